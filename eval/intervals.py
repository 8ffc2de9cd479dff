"""Clustered intervals of any metric that takes weights; `headline_draws` is the fast way to those of the headline."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .bootstrap import Interval, Method, Resamples, as_observed, interval_of, leaving_one_out, resample

__all__ = ["Interval", "WeightedMetric", "clustered_interval"]

WeightedMetric = Callable[[ArrayLike, ArrayLike, NDArray[np.float64]], NDArray[np.float64]]
_WEIGHTS_AT_ONCE = 1_000_000  # weights held at once: draws x rows; bounds memory at tens of megabytes


def clustered_interval(
    metric: WeightedMetric,
    scores: ArrayLike,
    labels: ArrayLike,
    groups: ArrayLike,
    n_draws: int = 1_000,
    level: float = 0.95,
    seed: int = 0,
    method: Method = "percentile",
) -> Interval:
    """Bootstrap interval of a metric, resampling groups.

    Args:
        metric: takes (scores, labels, weights of shape (draws, n)) and gives shape (draws,), such as `metrics.roc_auc`.
        scores: shape (n,), no NaN.
        labels: 0 or 1, shape (n,).
        groups: shape (n,); rows of one group are drawn together.
        seed: the same seed gives the same interval.
        method: "percentile" or "bca".
    """
    drawn = resample(groups, n_draws, seed)
    if drawn.n_groups < 2:
        return interval_of([], np.nan, level, method, None, drawn.n_groups, drawn.largest_share)

    def values(of: Resamples) -> NDArray[np.float64]:
        return _by_weights(metric, scores, labels, of)

    jackknife = values(leaving_one_out(drawn)) if method == "bca" else None
    estimate = float(values(as_observed(drawn))[0])
    return interval_of(values(drawn), estimate, level, method, jackknife, drawn.n_groups, drawn.largest_share)


def _by_weights(metric: WeightedMetric, scores: ArrayLike, labels: ArrayLike, drawn: Resamples) -> NDArray[np.float64]:
    """The metric in each draw, shape (draws,)."""
    at_once = max(1, _WEIGHTS_AT_ONCE // max(1, len(drawn.group_of_row)))
    parts = []
    for start in range(0, drawn.n_draws, at_once):
        times = drawn.times_DG[start : start + at_once].astype(np.float64)
        parts.append(metric(scores, labels, times[:, drawn.group_of_row]))
    return np.concatenate(parts)
