"""Thresholds on calibrated probabilities, chosen on rows (`models/decision/criteria.py` says what for, and how).

`fit_threshold` tries every cut between distinct probabilities. Intervals resample groups and know that the threshold
was chosen on these rows (`chosen_intervals`); a report measures it on other rows. Operating points are applied by
`models/decision/thresholds.py`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core import CalibrationError
from ...models.decision import (
    SIMPLE_CRITERIA,
    CountMetric,
    Criterion,
    Cuts,
    OperatingPoint,
    StoredInterval,
    at_prior,
    best_point,
    criterion_value,
    cuts_between,
)
from ..metrics import (
    Confusions,
    Floats,
    Resamples,
    checked,
    cumulative_counts,
    recall,
)
from ..metrics import specificity as true_negative_rate
from ..uncertainty import Interval, resample
from .chosen_intervals import Choices, DrawnCuts, chosen_again, chosen_interval, drawn_cuts, gains


def fit_threshold(
    p: ArrayLike,
    labels: ArrayLike,
    objective: str | Criterion = "f1",
    name: str | None = None,
    prior: float | None = None,
) -> OperatingPoint:
    """The threshold on p that serves `objective` best; positive means p >= threshold.

    Every distinct cut is tried, everything-positive (0) and everything-negative (just above 1) among them; equal
    probabilities are never parted. Cuts lie midway between neighbouring probabilities; of equally good cuts the one in
    the widest gap wins. Applying the point to the same rows gives exactly the stored metric and counts.

    `precision_at` takes the most recall among the cuts that reach the target, `recall_at` the most precision.

    Args:
        p: probabilities, shape (n,), cross-fitted if a calibrator was fitted on the same rows.
        labels: 1 or 0, shape (n,).
        objective: see `criterion_value`; `precision_at:0.95`, `recall_at:0.9`, `cost:5:1` carry numbers.
        name: of the point; that of the criterion where None.
        prior: as `fit_points`.

    Raises:
        CalibrationError: no cut reaches the target, or the objective is defined at none.
    """
    criterion = Criterion.parse(objective)
    p, y = checked(p, labels, f"threshold {name or criterion.name}", probabilities=True, to_fit=True)
    return best_point(criterion, all_cuts(p, y), name or criterion.name, prior)


def fit_points(
    p: ArrayLike,
    labels: ArrayLike,
    groups: ArrayLike,
    objectives: Sequence[str | Criterion] = SIMPLE_CRITERIA,
    n_draws: int = 1_000,
    seed: int = 0,
    level: float = 0.95,
    prior: float | None = None,
) -> tuple[OperatingPoint, ...]:
    """An operating point per criterion, each with group-clustered intervals of its metric, sensitivity, specificity.

    Args:
        p: probabilities, shape (n,), cross-fitted if a calibrator was fitted on the same rows.
        labels: 1 or 0, shape (n,).
        groups: shape (n,); rows of one group are drawn together. With fewer than two groups no interval is stored.
        prior: the share of supported claims that thresholds are chosen for, and that metric, counts and intervals are
            stated for (each class weighted to it); that of the rows where None.

    Raises:
        CalibrationError: as `fit_threshold`.
    """
    criteria = [Criterion.parse(objective) for objective in objectives]
    p, y = checked(p, labels, "thresholds", probabilities=True, to_fit=True)
    cuts, resamples = all_cuts(p, y), resample(_aligned(groups, p), n_draws, seed)
    drawn = drawn_cuts(p, y, resamples)
    points = ((of, best_point(of, cuts, of.name, prior)) for of in criteria)
    return tuple(_with_intervals(point, of, p, y, resamples, drawn, level) for of, point in points)


def _aligned(groups: ArrayLike, p: Floats) -> NDArray:
    groups = np.asarray(groups)
    if groups.shape != p.shape:
        raise CalibrationError(f"thresholds: needs a group per row, got {groups.shape} for {p.shape}; align them")
    return groups


def all_cuts(p: Floats, labels: Floats) -> Cuts:
    """Every cut between distinct probabilities; equal ones stay together."""
    tp, fp = cumulative_counts(p, labels)
    return cuts_between(np.unique(p)[::-1], tp, fp)


def stored_interval(interval: Interval) -> StoredInterval | None:
    """An interval as it is stored: not at all where its bounds are undefined."""
    defined = math.isfinite(interval.low) and math.isfinite(interval.high)
    return StoredInterval(interval.low, interval.high, interval.level) if defined else None


def with_rate_intervals(
    point: OperatingPoint,
    p: Floats,
    labels: Floats,
    resamples: Resamples,
    level: float,
    choices: Choices | None = None,
) -> OperatingPoint:
    """The point with intervals of its sensitivity and specificity, and its number of groups.

    Args:
        choices: what resamples choose in its place; None where it was not chosen for what it reaches on these rows.
    """
    drawn = Confusions(*resamples.sums(outcomes(point.decide(p), labels)).T)

    def interval(rate: CountMetric, value: float, label: int) -> StoredInterval | None:
        n_groups = len(np.unique(resamples.group_of_row[labels == label]))
        return chosen_interval(value, np.asarray(rate(drawn)), gains(choices, rate), level, n_groups)

    return dataclasses.replace(
        point,
        sensitivity_interval=interval(recall, point.sensitivity, 1),
        specificity_interval=interval(true_negative_rate, point.specificity, 0),
        n_groups=resamples.n_groups,
    )


def outcomes(is_supported: NDArray[np.bool_], labels: Floats) -> Floats:
    """Which of tp, fp, tn, fn each row is, as 0 and 1, shape (n, 4)."""
    is_so = labels == 1
    return np.stack(
        [is_supported & is_so, is_supported & ~is_so, ~is_supported & ~is_so, ~is_supported & is_so], axis=1
    ).astype(np.float64)


def _with_intervals(
    point: OperatingPoint,
    criterion: Criterion,
    p: Floats,
    y: Floats,
    resamples: Resamples,
    drawn: DrawnCuts,
    level: float,
) -> OperatingPoint:
    tp, fp, tn, fn = resamples.sums(outcomes(point.decide(p), y)).T
    counts = Confusions(tp, fp, tn, fn) if point.prior is None else at_prior((tp, fp, tn, fn), point.prior)
    choices = chosen_again(drawn, criterion, point.prior)
    interval = chosen_interval(
        point.metric,
        criterion_value(criterion, counts),
        gains(choices, partial(criterion_value, criterion)),
        level,
        resamples.n_groups,
        _BOUNDS.get(criterion.objective, (0.0, 1.0)),
    )
    return dataclasses.replace(with_rate_intervals(point, p, y, resamples, level, choices), interval=interval)


_BOUNDS: dict[str, tuple[float, float]] = {
    "cost": (0.0, math.inf),
    **dict.fromkeys(("mcc", "youden", "match_rate"), (-1.0, 1.0)),
}
