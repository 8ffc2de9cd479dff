"""Thresholds with a promise that holds for a finite number of groups, whatever the verifier.

Rows about one video are not exchangeable; videos are. So a loss is one number in [0, 1] per group, the share of its
rows (of those that count) on which the verdict is wrong, and the risk is its mean over groups: draw a group that has
such rows, then one of them; how likely is its verdict wrong?

- `control_risk`: learn then test (Angelopoulos et al., 2021). With chance 1 - delta over the fitting groups, the risk
  of the chosen threshold is at most the bound. Thresholds come from a grid fixed beforehand and are tested in a fixed
  order with the Hoeffding-Bentkus p-value: fixed sequence testing, from several starts where the risk need not fall
  along the order.
- `conformal_threshold`: conformal risk control (Angelopoulos et al., 2022). The risk, averaged over fitting groups as
  well as new ones, is at most the bound. For risks that only grow or only fall with the threshold.

Both promise for p from a map that did not see these labels. Where the calibration was fitted on the same rows and is
strictly increasing, the promise is kept by `control_risk(calibration.predict(margins), labels, groups,
thresholds=calibration.predict(margin_grid(margins)))`: that is the same as testing cuts on margins, which saw no label.

The grid follows the margins' place and spread, in powers of two. For the two risks that only fall or only grow with the
threshold any grid keeps the promise: certifying a cut beyond the last good one takes certifying that one too. For the
other two the grid should be fixed beforehand; rounding to powers of two leaves it to chance as good as never.

Shape suffixes: _T thresholds, _G groups.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from ...core import CalibrationError
from ...models.decision import PER_CLASS, RISKS, Guarantee, OperatingPoint, Risk, log_odds, sigmoid, stated
from ..metrics import Floats, checked, confusion, cumulative_counts
from ..uncertainty import interval_of, resample
from .thresholds import all_cuts, stored_interval, with_rate_intervals

MARGIN_GRID: Floats = np.arange(-80, 81) / 10
_STARTS = 10  # of the sequences for a risk that need not fall along the order; each is tested at delta / 10
_ROUNDING = 1e-9  # a sum of shares that should be whole


class RiskRows(NamedTuple):
    """Checked columns, each of shape (n,)."""

    p: Floats
    y: Floats
    group: np.ndarray  # numbered from 0
    n_groups: int


def control_risk(
    p: ArrayLike,
    labels: ArrayLike,
    groups: ArrayLike,
    risk: Risk = "false_support_rate",
    at_most: float = 0.1,
    delta: float = 0.1,
    name: str | None = None,
    thresholds: ArrayLike | None = None,
    n_starts: int | None = None,
    n_draws: int = 1_000,
    seed: int = 0,
    prior: float | None = None,
) -> OperatingPoint:
    """The most useful threshold whose risk is at most `at_most` with chance 1 - delta over the fitting groups.

    | risk | wrong | of the rows that | chosen among the certified |
    |---|---|---|---|
    | false_support_rate | called supported | are not | the lowest threshold |
    | miss_rate | not called supported | are | the highest |
    | false_discovery_rate (1 - precision) | are not supported | are called so | the lowest |
    | error_rate | called what they are not | all | the one with the fewest errors here |

    Args:
        p: probabilities, shape (n,); see the module's note on where they may come from.
        labels: 1 or 0, shape (n,).
        groups: shape (n,), what is exchangeable.
        thresholds: the grid, shape (k,), chosen without looking at these labels; `margin_grid` of the log-odds of p
            where None.
        n_starts: sequences tested, each at delta / n_starts; by default 1 for the first two risks, which only fall or
            only grow with the threshold, and 10 for the others. As many as thresholds is Bonferroni's correction.
        prior: the share of supported claims that counts are stated for. Only the first two risks, shares of one
            class, can be promised for a share other than that of these rows.

    Raises:
        CalibrationError: too few groups to certify any threshold, however good (says how many), or none certified.
    """
    name = name or f"{risk}_{at_most:g}"
    rows = risk_rows(p, labels, groups, risk, at_most, name)
    if prior is not None and risk not in PER_CLASS:
        raise CalibrationError(
            f"threshold {name}: a guarantee on these rows does not carry over to another share of claims, got "
            f"the prior {prior:g}; use one of {list(PER_CLASS)}, or calibrate on rows of that share"
        )
    if not 0 < delta < 1:
        raise CalibrationError(f"threshold {name}: delta must lie between 0 and 1, got {delta}; try 0.1")
    if thresholds is None:
        with np.errstate(divide="ignore"):
            thresholds = sigmoid(margin_grid(log_odds(rows.p)))
    grid_T = np.unique(np.asarray(thresholds, dtype=np.float64))
    starts = n_starts or (1 if risk in PER_CLASS else min(_STARTS, len(grid_T)))
    losses_TG = _losses(rows, grid_T, risk)
    n_T = np.sum(~np.isnan(losses_TG), axis=1)
    enough_groups(int(n_T.max()), groups_needed(at_most, delta, starts), risk, name)
    means_T = np.divide(np.nansum(losses_TG, axis=1), n_T, out=np.ones(len(n_T)), where=n_T > 0)
    p_values_T = hoeffding_bentkus(means_T, n_T, at_most)
    order = np.arange(len(grid_T)) if risk == "miss_rate" else np.arange(len(grid_T))[::-1]
    certified = order[fixed_sequences(p_values_T[order], delta, starts)]
    if risk in PER_CLASS:  # calling nothing, or everything, supported keeps the bound and decides nothing
        certified = certified[(grid_T[certified] <= rows.p.max()) & (grid_T[certified] > rows.p.min())]
    if not len(certified):
        best = int(np.argmin(p_values_T))
        raise CalibrationError(
            f"threshold {name}: none is certified, got a risk of {means_T[best]:.4f} over {n_T[best]} groups "
            f"(p-value {p_values_T[best]:.3g}) at best; allow more risk, or fit on more groups"
        )
    chosen = certified[np.argmin(means_T[certified])] if risk == "error_rate" else certified[-1]
    guarantee = Guarantee(risk, at_most, delta, "learn_then_test", int(n_T[chosen]))
    return _point(name, rows, float(grid_T[chosen]), guarantee, n_draws, seed, prior)


def margin_grid(margins: ArrayLike) -> Floats:
    """Cuts for `control_risk`: `MARGIN_GRID` moved and stretched to where margins lie, without looking at labels.

    It reaches beyond 95 % of them. Margins of which that many are within 4 to 8 of 0 get `MARGIN_GRID` itself.
    """
    margins = np.asarray(margins, dtype=np.float64)
    finite = margins[np.isfinite(margins)]
    if not len(finite):
        return MARGIN_GRID
    middle = float(np.median(finite))
    reach = float(np.quantile(np.abs(finite - middle), 0.95)) or max(abs(middle), 1.0)
    scale = 2.0 ** math.ceil(math.log2(reach / MARGIN_GRID[-1]))
    step = MARGIN_GRID[-1] * scale
    return MARGIN_GRID * scale + (0.0 if abs(middle) <= step / 2 else step * round(middle / step))


def conformal_threshold(
    p: ArrayLike,
    labels: ArrayLike,
    groups: ArrayLike,
    risk: Risk = "false_support_rate",
    at_most: float = 0.1,
    name: str | None = None,
    n_draws: int = 1_000,
    seed: int = 0,
) -> OperatingPoint:
    """The most useful threshold whose expected loss on a new group is at most `at_most` (conformal risk control).

    With n groups and total loss S over them, (S + 1) / (n + 1) <= at_most. Weaker than `control_risk`, which bounds the
    risk of the one threshold that was chosen, and reached with far fewer groups.

    Raises:
        CalibrationError: a risk that is not monotone in the threshold, too few groups, or only a trivial threshold
            (nothing, or everything, called supported) keeps the bound.
    """
    name = name or f"{risk}_{at_most:g}"
    if risk not in PER_CLASS:
        raise CalibrationError(
            f"threshold {name}: conformal risk control needs one of {list(PER_CLASS)}, got {risk!r}; use control_risk"
        )
    rows = risk_rows(p, labels, groups, risk, at_most, name)
    counts = rows.y == (risk == "miss_rate")
    per_group = np.bincount(rows.group, counts, minlength=rows.n_groups)
    n = int(np.sum(per_group > 0))
    enough_groups(n, math.ceil(1 / at_most - _ROUNDING) - 1, risk, name)
    share = np.where(counts, 1 / np.maximum(per_group, 1)[rows.group], 0.0)
    tp, fp = cumulative_counts(rows.p, rows.y, share)
    total = n - tp if risk == "miss_rate" else fp
    kept = np.flatnonzero((total + 1) / (n + 1) <= at_most + _ROUNDING / n)
    chosen = kept[0] if risk == "miss_rate" else kept[-1]
    if chosen in (0, len(total) - 1):
        raise CalibrationError(
            f"threshold {name}: only calling {'nothing' if chosen == 0 else 'everything'} supported keeps the bound, "
            f"got {n} groups; allow more risk, or fit on more groups"
        )
    guarantee = Guarantee(risk, at_most, None, "conformal_risk_control", n)
    return _point(name, rows, float(all_cuts(rows.p, rows.y).thresholds[chosen]), guarantee, n_draws, seed)


def group_risk(p: ArrayLike, labels: ArrayLike, groups: ArrayLike, threshold: float, risk: Risk) -> float:
    """The mean over groups of the loss at a threshold: what a risk-controlled point stores. NaN where no row counts."""
    rows = risk_rows(p, labels, groups, risk, 0.5, "of a risk")
    return _mean_loss(_losses(rows, np.array([threshold]), risk)[0])


def hoeffding_bentkus(mean_loss: ArrayLike, n: ArrayLike, at_most: float) -> Floats:
    """A p-value for "the expected loss is above `at_most`", from the mean of n independent losses in [0, 1].

    The smaller of Hoeffding's exp(-n kl(mean, bound)) and Bentkus' e P(Binomial(n, bound) <= ceil(n mean)), valid at
    every n (Bates et al., 2021; Angelopoulos et al., 2021); 1 for n = 0.
    """
    mean, n = np.asarray(mean_loss, dtype=np.float64), np.asarray(n, dtype=np.float64)
    low = np.minimum(mean, at_most)
    with np.errstate(divide="ignore", invalid="ignore"):
        kl = np.where(low > 0, low * np.log(low / at_most), 0.0) + (1 - low) * np.log((1 - low) / (1 - at_most))
    bentkus = math.e * binom.cdf(np.ceil(n * mean - _ROUNDING), n, at_most)
    return np.where(n > 0, np.minimum(np.minimum(np.exp(-n * kl), bentkus), 1.0), 1.0)


def groups_needed(at_most: float, delta: float, n_starts: int = 1) -> int:
    """The fewest groups that can certify a threshold at all: with no loss in any of them, (1 - at_most)^n <= delta."""
    return math.ceil(math.log(delta / n_starts) / math.log1p(-at_most) - _ROUNDING)


def fixed_sequences(p_values: ArrayLike, delta: float, n_starts: int = 1) -> np.ndarray:
    """Positions of the certified hypotheses: from each of `n_starts` evenly spaced starts on, until the first failure.

    The chance that any of them is wrong is at most delta (Bonferroni over the starts). One start: fixed sequence
    testing. As many as hypotheses: at least what Bonferroni's correction certifies.
    """
    passes = np.asarray(p_values) <= delta / n_starts
    starts = np.unique(np.arange(n_starts) * len(passes) // n_starts)
    failures = np.append(np.flatnonzero(~passes), len(passes))
    ends = failures[np.searchsorted(failures, starts)]
    certified = [np.arange(start, end) for start, end in zip(starts, ends, strict=True)]
    return np.unique(np.concatenate(certified)).astype(np.int64)


def risk_rows(p: ArrayLike, labels: ArrayLike, groups: ArrayLike, risk: str, at_most: float, name: str) -> RiskRows:
    p, y = checked(p, labels, f"threshold {name}", probabilities=True, to_fit=True)
    if risk not in RISKS or not 0 < at_most < 1:
        raise CalibrationError(
            f"threshold {name}: needs one of {list(RISKS)} and a bound between 0 and 1, got {risk!r}, {at_most}"
            f"; choose those"
        )
    names, group = np.unique(np.asarray(groups), return_inverse=True)
    if group.shape != p.shape:
        raise CalibrationError(f"threshold {name}: needs a group per row, got {len(group)} for {len(p)}; align them")
    return RiskRows(p, y, group, len(names))


def called_by_group(rows: RiskRows, grid_T: Floats) -> tuple[Floats, Floats]:
    """Supported and other rows called supported, in the last row all of them; shape (thresholds + 1, groups) each."""
    n_cells = len(grid_T) + 1

    def called(label: float) -> Floats:
        own = rows.y == label
        reached = np.searchsorted(grid_T, rows.p[own], side="right")
        cells = np.bincount(reached * rows.n_groups + rows.group[own], minlength=n_cells * rows.n_groups)
        from_above = np.cumsum(cells.reshape(n_cells, rows.n_groups)[::-1], axis=0)[::-1]
        return np.concatenate([from_above[1:], from_above[:1]]).astype(np.float64)

    return called(1.0), called(0.0)


def _losses(rows: RiskRows, grid_T: Floats, risk: Risk) -> Floats:
    """Share of wrong verdicts among the rows that count, shape (thresholds, groups); NaN in groups without any."""
    positive, negative = called_by_group(rows, grid_T)
    fp, fn = negative[:-1], positive[-1] - positive[:-1]
    wrong, counted = {
        "false_support_rate": (fp, np.broadcast_to(negative[-1], fp.shape)),
        "miss_rate": (fn, np.broadcast_to(positive[-1], fn.shape)),
        "false_discovery_rate": (fp, fp + positive[:-1]),
        "error_rate": (fp + fn, np.broadcast_to(positive[-1] + negative[-1], fp.shape)),
    }[risk]
    return np.divide(wrong, counted, out=np.full(fp.shape, np.nan), where=counted > 0)


def _mean_loss(losses_G: Floats) -> float:
    counted = losses_G[~np.isnan(losses_G)]
    return float(np.mean(counted)) if len(counted) else math.nan


def enough_groups(n: int, needed: int, risk: str, name: str) -> None:
    if n < needed:
        raise CalibrationError(
            f"threshold {name}: needs at least {needed} groups with rows that count for {risk}, got {n}; "
            f"fit on more groups, or allow more risk"
        )


def _point(
    name: str,
    rows: RiskRows,
    threshold: float,
    guarantee: Guarantee,
    n_draws: int,
    seed: int,
    prior: float | None = None,
) -> OperatingPoint:
    risk: Risk = guarantee.risk  # type: ignore[assignment]
    losses_G = _losses(rows, np.array([threshold]), risk)[0]
    counted = losses_G[~np.isnan(losses_G)]
    drawn = resample(np.arange(len(counted)), n_draws, seed)
    draws = drawn.sums(counted) / max(len(counted), 1)
    point = OperatingPoint(
        name=name,
        objective="risk_control",
        threshold=threshold,
        metric=_mean_loss(losses_G),
        positive_rate=float(np.mean(rows.y)),
        target=guarantee.at_most,
        interval=stored_interval(interval_of(draws, _mean_loss(losses_G), n_groups=drawn.n_groups)),
        guarantee=guarantee,
        prior=prior,
        **stated(confusion(rows.p >= threshold, rows.y), prior)._asdict(),
    )
    return with_rate_intervals(point, rows.p, rows.y, resample(rows.group, n_draws, seed), 0.95)
