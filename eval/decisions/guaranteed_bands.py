"""Abstain bands whose accuracy is promised for other groups, by learn then test as in `risk_control`.

A loss is one number per group: the share of its verdicts that are wrong, of groups that get a verdict. Bands are pairs
of cuts on the margin grid, fixed without labels: around each of seven centres, from wide (few verdicts) to nothing left
out. The risk need not fall along that order, so each is tested from four starts at delta / 28: the chance that any band
that is certified breaks the bound is at most delta, whichever is then chosen. It is the one with most verdicts.

Shape suffixes: _T thresholds, _G groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ...core import CalibrationError
from ...models.decision import AbstainBand, Guarantee, divide, log_odds, sigmoid
from ..metrics import Floats
from .abstention import DELTA, GUARANTEED, selective_counts, with_band_intervals
from .risk_control import (
    RiskRows,
    called_by_group,
    enough_groups,
    fixed_sequences,
    groups_needed,
    hoeffding_bentkus,
    margin_grid,
    risk_rows,
)

BAND_RISK = "selective_error_rate"
_CENTRES = (0, -16, 16, -32, 32, -48, 48)  # in steps of the grid, from its middle; it has 80 on either side
_WIDEST, _STARTS = 64, 4  # half width in such steps, and starts of each centre: at 64, 48, 32 and 16


class _Bands(NamedTuple):
    """Candidate bands of one centre, wide to narrow: cuts, mean loss, groups that count and verdicts on these rows."""

    low: np.ndarray
    high: np.ndarray
    mean_loss: Floats
    n_groups: np.ndarray
    n_verdicts: np.ndarray


def guaranteed_band(
    p: ArrayLike,
    labels: ArrayLike,
    groups: ArrayLike,
    target: float = 0.95,
    delta: float = DELTA,
    thresholds: ArrayLike | None = None,
    n_draws: int = 1_000,
    seed: int = 0,
    level: float = 0.95,
    prior: float | None = None,
) -> AbstainBand:
    """The band with most verdicts whose accuracy is at least `target` with chance 1 - delta over the fitting groups.

    The accuracy is the mean over groups, of those that get a verdict, of the share of right verdicts in the group.

    Args:
        p: probabilities, shape (n,), of a map that did not see these labels, or that is strictly increasing.
        labels: 1 or 0, shape (n,).
        groups: shape (n,), what is exchangeable.
        target: the accuracy, in (0, 1).
        delta: the chance, over draws of the fitting groups, that it is not kept.
        thresholds: the map of `margin_grid`, shape (161,), where p comes from a map fitted on these rows; the grid of
            the log-odds of p where None.
        prior: must be None: a promise on these rows does not carry over to another share of supported claims.

    Raises:
        CalibrationError: too few groups to certify any band, or none certified; says what can be promised.
    """
    where = f"abstain band {GUARANTEED}"
    if prior is not None:
        raise CalibrationError(
            f"{where}: a guarantee on these rows does not carry over to another share of claims, got the prior "
            f"{prior:g}; calibrate on rows of that share, or use selective_accuracy, which guarantees nothing"
        )
    if not (0 < target < 1 and 0 < delta < 1):
        raise CalibrationError(
            f"{where}: target and delta lie between 0 and 1, got {target}, {delta}; try 0.95 and 0.1"
        )
    at_most = round(1 - target, 12)
    rows = risk_rows(p, labels, groups, "error_rate", at_most, where)
    if thresholds is None:
        with np.errstate(divide="ignore"):
            thresholds = sigmoid(margin_grid(log_odds(rows.p)))
    grid_T = np.sort(np.asarray(thresholds, dtype=np.float64))
    candidates = list(_candidates(rows, grid_T))
    most_groups = max(int(of.n_groups.max()) for of in candidates)
    enough_groups(most_groups, groups_needed(at_most, delta, len(_CENTRES) * _STARTS), "its verdicts", where)
    chosen = _widest_coverage(candidates, at_most, delta)
    if chosen is None:
        raise CalibrationError(f"{where}: no band is certified at {target:g}, got {_at_best(candidates, delta)}")
    low, high, n_groups = chosen
    band = AbstainBand(
        support_at_or_above=float(grid_T[high]),
        refute_at_or_below=float(np.nextafter(grid_T[low], -1.0)),
        objective=GUARANTEED,
        target=float(target),
        **dict.fromkeys(("tp", "fp", "tn", "fn", "abstained_positive", "abstained_negative"), 0),
        guarantee=Guarantee(BAND_RISK, at_most, delta, "learn_then_test", n_groups),
    )
    counted = AbstainBand.from_dict(band.to_dict() | selective_counts(band, rows.p, rows.y), where)
    return with_band_intervals(counted, rows.p, rows.y, groups, n_draws, seed, level)


def band_losses(band: AbstainBand, p: ArrayLike, labels: ArrayLike, groups: ArrayLike) -> Floats:
    """The share of wrong verdicts in each group, NaN in groups without one, shape (groups,): what is promised of."""
    state, is_so = band.decide(p), np.asarray(labels) == 1
    _, group = np.unique(np.asarray(groups), return_inverse=True)
    wrong = np.bincount(group, ((state == "supported") & ~is_so) | ((state == "refuted") & is_so))
    return divide(wrong, np.bincount(group, state != "abstain"))


def _candidates(rows: RiskRows, grid_T: Floats) -> Iterator[_Bands]:
    positive, negative = called_by_group(rows, grid_T)
    last, middle = len(grid_T) - 1, len(grid_T) // 2
    half = np.arange(_WIDEST, -1, -1)
    for centre in _CENTRES:
        low, high = (np.clip(middle + centre + sign * half, 0, last) for sign in (-1, 1))
        found = []
        for i, j in zip(low, high, strict=True):
            missed = positive[-1] - positive[i]
            wrong, verdicts = negative[j] + missed, negative[j] + positive[j] + missed + negative[-1] - negative[i]
            losses = wrong[verdicts > 0] / verdicts[verdicts > 0]
            found.append((losses.mean() if len(losses) else 1.0, len(losses), verdicts.sum()))
        mean_loss, n_groups, n_verdicts = (np.array(of) for of in zip(*found, strict=True))
        yield _Bands(low, high, mean_loss, n_groups, n_verdicts)


def _widest_coverage(candidates: list[_Bands], at_most: float, delta: float) -> tuple[int, int, int] | None:
    """Cuts and groups of the certified band with most verdicts on these rows, of equals the one with least loss.

    Bands that still tie cut the same gap between margins: the middle one of the innermost centre.
    """
    best, cuts = (-1.0, 0.0), []
    for of in candidates:
        p_values = hoeffding_bentkus(of.mean_loss, of.n_groups, at_most)
        equals: list[tuple[int, int, int]] = []
        for k in fixed_sequences(p_values, delta / len(candidates), _STARTS):
            worth = float(of.n_verdicts[k]), -float(of.mean_loss[k])
            if worth > best:
                best, equals, cuts = worth, [], []
            if worth == best and not cuts:
                equals.append((int(of.low[k]), int(of.high[k]), int(of.n_groups[k])))
        cuts = cuts or equals
    return cuts[len(cuts) // 2] if cuts else None


def _at_best(candidates: list[_Bands], delta: float) -> str:
    """What these rows can promise, and what to do."""
    for percent in range(2, 50):
        if _widest_coverage(candidates, percent / 100, delta) is not None:
            return f"{1 - percent / 100:.2f} at best; lower the accuracy to that, or fit on more groups"
    return "none above 0.5; fit on more groups, or train further"
