"""The headline metrics in many resamples of whole groups, all from one set of resamples, and their intervals.

Every value equals the metric on the rows the draw took.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ...core import RowError
from ..metrics import COVERAGE, METRICS, DrawnRows, Floats, MetricRows, Resamples, metric_rows
from .bootstrap import N_DRAWS, Interval, Method, as_observed, interval_of, leaving_one_out, resample


def headline_names() -> list[str]:
    """The names of the headline metrics, in the order of `METRICS`."""
    return [metric.name for metric in METRICS.values() if metric.is_headline]


def headline_values(rows: MetricRows, resamples: Resamples) -> dict[str, Floats]:
    """Each of `headline_names` in each draw, shape (draws,); NaN where the metric is undefined in the draw."""
    drawn = DrawnRows(rows, resamples)
    return {name: draws(drawn) for name in headline_names() if (draws := METRICS[name].draws) is not None}


def headline_intervals(
    margins: ArrayLike,
    p: ArrayLike,
    labels: ArrayLike,
    groups: ArrayLike,
    threshold: float,
    n_draws: int = N_DRAWS,
    level: float = 0.95,
    seed: int = 0,
    method: Method = "percentile",
    log_odds: ArrayLike | None = None,
    confidence: ArrayLike | None = None,
    coverage: float = COVERAGE,
) -> dict[str, Interval]:
    """Intervals of the headline metrics, clustered by group, all from one set of resamples.

    Args:
        groups: shape (n,); rows with equal values are drawn together.
        method: "percentile" or "bca" (its jackknife leaves out one group at a time).

    Others as `metric_rows`.
    """
    rows = metric_rows(margins, p, labels, threshold, log_odds, confidence, coverage)
    if np.shape(groups) != rows.labels.shape:
        raise RowError(f"headline: each row has a group, got {np.shape(groups)} for {rows.labels.shape}; give one each")
    drawn = resample(groups, n_draws, seed)
    if drawn.n_groups < 2:
        none = interval_of([], np.nan, level, method, None, drawn.n_groups, drawn.largest_share)
        return dict.fromkeys(headline_names(), none)
    values, observed = headline_values(rows, drawn), headline_values(rows, as_observed(drawn))
    without = headline_values(rows, leaving_one_out(drawn)) if method == "bca" else {}
    return {
        name: interval_of(
            values[name], observed[name][0], level, method, without.get(name), drawn.n_groups, drawn.largest_share
        )
        for name in headline_names()
    }
