"""Choosing two thresholds that leave the doubtful rows without a verdict. Applied by `models/decision/thresholds.py`.

Every pair of cuts between distinct probabilities is a candidate and counts are whole numbers throughout, so the choice
is exact; nothing assumes that p is calibrated or that the band lies around 0.5. A selective accuracy says nothing about
which verdict is right: with few supported rows a band may reach it by refuting alone. The counts per state show it.
What a band reaches on these rows it may miss on others; `guaranteed_bands` promises an accuracy.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from ...core import CalibrationError
from ...models.decision import (
    BAND_CRITERIA,
    AbstainBand,
    BandCriterion,
    Confusions,
    best_pair,
    counts_of_band,
    divide,
    sides_of,
)
from ..metrics import Floats, checked
from ..uncertainty import resample
from .chosen_intervals import Choices, band_chosen_again, chosen_interval, drawn_cuts
from .thresholds import all_cuts

BandTarget = tuple[BandCriterion, float] | tuple[BandCriterion, float, float]
GUARANTEED: BandCriterion = "selective_accuracy_guaranteed"
DELTA = 0.1


def parse_band(text: str) -> BandTarget:
    """What commands take: `selective_accuracy:0.95`, `max_abstention:0.2`, `selective_accuracy_guaranteed:0.95:0.1`.

    Returns:
        The criterion and its target; for the guaranteed one also delta, 0.1 where the text names none.

    Raises:
        CalibrationError: another criterion, or no number.
    """
    name, *numbers = text.split(":")
    try:
        values = [float(number) for number in numbers]
        objective: BandCriterion = BAND_CRITERIA[BAND_CRITERIA.index(name)]  # type: ignore[arg-type]
    except ValueError:
        values = []
    if len(values) == 1:
        return (objective, values[0], DELTA) if objective == GUARANTEED else (objective, values[0])
    if len(values) == 2 and objective == GUARANTEED:
        return objective, values[0], values[1]
    raise CalibrationError(
        f"--abstain: must be one of {list(BAND_CRITERIA)}, a colon and a number, got {text!r}; write e.g. "
        "max_abstention:0.2"
    )


def fit_band(
    p: ArrayLike,
    labels: ArrayLike,
    groups: ArrayLike,
    objective: BandCriterion = "selective_accuracy",
    target: float = 0.9,
    n_draws: int = 1_000,
    seed: int = 0,
    level: float = 0.95,
    prior: float | None = None,
) -> AbstainBand:
    """The best pair of thresholds, with counts per state and group-clustered intervals.

    `selective_accuracy`: among all bands whose verdicts are right with share `target` or more, the one with most
    verdicts. `max_abstention`: among all that abstain on a share of `target` or less, the one whose verdicts are most
    often right; of equals, the one with most verdicts. The intervals know that the band was chosen on these rows.

    Args:
        p: probabilities, shape (n,), cross-fitted if a calibrator was fitted on the same rows.
        labels: 1 or 0, shape (n,).
        groups: shape (n,); rows of one group are drawn together.
        target: the accuracy in (0, 1], or the share in [0, 1).
        prior: the share of supported claims that the band is chosen for, and that its numbers are stated for; that of
            the rows where None.

    Raises:
        CalibrationError: no band reaches the accuracy.
    """
    p, y = checked(p, labels, "abstain band", probabilities=True, to_fit=True)
    cuts = all_cuts(p, y)
    tp, fp = cuts.tp.astype(np.int64), cuts.fp.astype(np.int64)
    i, j = best_pair(sides_of(tp, fp, prior), objective, target)
    last = len(cuts.thresholds) - 1
    band = AbstainBand(
        support_at_or_above=float(cuts.thresholds[i]),
        refute_at_or_below=float(np.nextafter(cuts.thresholds[last - j], -1.0)),
        objective=objective,
        target=float(target),
        **counts_of_band(tp, fp, i, j, prior),
        prior=prior,
    )
    return with_band_intervals(band, p, y, groups, n_draws, seed, level)


def selective_counts(band: AbstainBand, p: ArrayLike, labels: ArrayLike) -> dict[str, int]:
    """The counts a band stores, on these rows: tp, fp, tn, fn, abstained_positive, abstained_negative."""
    state, is_so = band.decide(p), np.asarray(labels) == 1
    cells = {
        "tp": (state == "supported") & is_so,
        "fp": (state == "supported") & ~is_so,
        "tn": (state == "refuted") & ~is_so,
        "fn": (state == "refuted") & is_so,
        "abstained_positive": (state == "abstain") & is_so,
        "abstained_negative": (state == "abstain") & ~is_so,
    }
    return {name: int(np.sum(cell)) for name, cell in cells.items()}


def with_band_intervals(
    band: AbstainBand, p: Floats, y: Floats, groups: ArrayLike, n_draws: int, seed: int, level: float
) -> AbstainBand:
    """The band with intervals of its accuracy and coverage on these rows, and their number of groups."""
    state, resamples = band.decide(p), resample(groups, n_draws, seed)
    decided = state != "abstain"
    right = decided & ((state == "supported") == (y == 1))
    is_so = y == 1
    cells = [of & own for own in (is_so, ~is_so) for of in (right, decided, np.ones(len(p), dtype=bool))]
    sums = resamples.sums(np.stack(cells, axis=1)).T
    supported, other = (1.0, 1.0)
    if band.prior is not None:  # each draw is as many rows of the stated share
        n_all = sums[2] + sums[5]
        supported, other = divide(band.prior * n_all, sums[2]), divide((1 - band.prior) * n_all, sums[5])
    n_right, n_decided, n = sums[:3] * supported + sums[3:] * other
    again = None
    if band.objective != GUARANTEED:
        again = band_chosen_again(drawn_cuts(p, y, resamples), band.objective, band.target, band.prior)
    accuracy_gains, coverage_gains = (None, None) if again is None else _gains(*again)
    n_groups = len(np.unique(resamples.group_of_row[decided]))
    return dataclasses.replace(
        band,
        selective_accuracy_interval=chosen_interval(
            band.selective_accuracy, divide(n_right, n_decided), accuracy_gains, level, n_groups
        ),
        coverage_interval=chosen_interval(band.coverage, n_decided / n, coverage_gains, level, resamples.n_groups),
        n_groups=resamples.n_groups,
    )


def _gains(support: Choices, keep: Choices) -> tuple[Floats, Floats]:
    """By how much accuracy and coverage of the bands that draws choose are better there than on the rows."""
    (accuracy, coverage), (accuracy_here, coverage_here) = (
        (divide(up.tp + not_refuted.tn, up.tp + up.fp + not_refuted.tn + not_refuted.fn), _decided(up, not_refuted))
        for up, not_refuted in ((support.there, keep.there), (support.here, keep.here))
    )
    return accuracy - accuracy_here, coverage - coverage_here


def _decided(up: Confusions, not_refuted: Confusions) -> Floats:
    return divide(up.tp + up.fp + not_refuted.tn + not_refuted.fn, sum(up, np.zeros(())))
