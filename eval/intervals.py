"""Confidence intervals that respect groups: claims about one video are not independent observations.

Percentile bootstrap over whole groups (Davison and Hinkley, 1997, section 3.8): each draw takes as many groups as there
are, with replacement, and every row of a drawn group counts as often as its group was drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

WeightedMetric = Callable[[ArrayLike, ArrayLike, NDArray[np.float64]], NDArray[np.float64]]
_CELLS_AT_ONCE = 1_000_000  # weights held at once: draws x rows; bounds memory at tens of megabytes


@dataclass(frozen=True)
class Interval:
    """A percentile interval, and what it rests on. NaN bounds where fewer than two groups, or no draw, define it.

    Attributes:
        n_groups: groups that were resampled; below about 20 the interval is too narrow.
        n_undefined: draws in which the metric was undefined (one class only); they are left out of the percentiles.
    """

    low: float
    high: float
    level: float
    n_groups: int
    n_draws: int
    n_undefined: int


def clustered_interval(
    metric: WeightedMetric,
    scores: ArrayLike,
    labels: ArrayLike,
    groups: ArrayLike,
    n_draws: int = 1_000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval of a metric, resampling groups.

    Args:
        metric: takes (scores, labels, weights of shape (draws, n)) and gives shape (draws,), such as `metrics.roc_auc`.
        scores: shape (n,), no NaN.
        labels: 0 or 1, shape (n,).
        groups: shape (n,); rows of one group are drawn together.
        seed: the same seed gives the same interval.
    """
    _, group_of_row = np.unique(np.asarray(groups), return_inverse=True)
    n_groups = int(group_of_row.max()) + 1 if len(group_of_row) else 0
    if n_groups < 2:
        return Interval(np.nan, np.nan, level, n_groups, 0, 0)
    rng = np.random.default_rng(seed)
    at_once = max(1, _CELLS_AT_ONCE // len(group_of_row))
    values = []
    for start in range(0, n_draws, at_once):
        size = min(at_once, n_draws - start)
        times_drawn = rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), size=size).astype(np.float64)
        values.append(metric(scores, labels, times_drawn[:, group_of_row]))
    draws = np.concatenate(values)
    defined = draws[~np.isnan(draws)]
    tail = (1 - level) / 2
    low, high = np.quantile(defined, [tail, 1 - tail]) if len(defined) else (np.nan, np.nan)
    return Interval(float(low), float(high), level, n_groups, n_draws, len(draws) - len(defined))
