"""Thresholds on calibrated probabilities, chosen on rows (`models/decision/criteria.py` says what for, and how).

`fit_threshold` tries every cut between distinct probabilities. Intervals hold the chosen threshold fixed and resample
groups: they say how sure its value is on rows like these, not how much the choice profited from them; a report measures
it on other rows. Operating points are applied by `models/decision/thresholds.py`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...models.decision import (
    SIMPLE_CRITERIA,
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
from ..uncertainty import Interval, interval_of, resample


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
    cuts, resamples = all_cuts(p, y), resample(groups, n_draws, seed)
    return tuple(_with_intervals(best_point(g, cuts, g.name, prior), g, p, y, resamples, level) for g in criteria)


def all_cuts(p: Floats, labels: Floats) -> Cuts:
    """Every cut between distinct probabilities; equal ones stay together."""
    tp, fp = cumulative_counts(p, labels)
    return cuts_between(np.unique(p)[::-1], tp, fp)


def stored_interval(interval: Interval) -> StoredInterval | None:
    """An interval as it is stored: not at all where its bounds are undefined."""
    defined = math.isfinite(interval.low) and math.isfinite(interval.high)
    return StoredInterval(interval.low, interval.high, interval.level) if defined else None


def with_rate_intervals(
    point: OperatingPoint, p: Floats, labels: Floats, resamples: Resamples, level: float
) -> OperatingPoint:
    """The point with intervals of its sensitivity and specificity on these rows, and their number of groups."""
    drawn, n_groups = Confusions(*resamples.sums(outcomes(point.decide(p), labels)).T), resamples.n_groups
    sensitivity = interval_of(recall(drawn), point.sensitivity, level, n_groups=n_groups)
    specificity = interval_of(true_negative_rate(drawn), point.specificity, level, n_groups=n_groups)
    return dataclasses.replace(
        point,
        sensitivity_interval=stored_interval(sensitivity),
        specificity_interval=stored_interval(specificity),
        n_groups=n_groups,
    )


def outcomes(is_supported: NDArray[np.bool_], labels: Floats) -> Floats:
    """Which of tp, fp, tn, fn each row is, as 0 and 1, shape (n, 4)."""
    is_so = labels == 1
    return np.stack(
        [is_supported & is_so, is_supported & ~is_so, ~is_supported & ~is_so, ~is_supported & is_so], axis=1
    ).astype(np.float64)


def _with_intervals(
    point: OperatingPoint, criterion: Criterion, p: Floats, y: Floats, resamples: Resamples, level: float
) -> OperatingPoint:
    tp, fp, tn, fn = resamples.sums(outcomes(point.decide(p), y)).T
    counts = Confusions(tp, fp, tn, fn) if point.prior is None else at_prior((tp, fp, tn, fn), point.prior)
    interval = interval_of(criterion_value(criterion, counts), point.metric, level, n_groups=resamples.n_groups)
    return dataclasses.replace(with_rate_intervals(point, p, y, resamples, level), interval=stored_interval(interval))
