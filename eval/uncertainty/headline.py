"""The headline metrics in many resamples of whole groups, all from one set of resamples, and their intervals.

Every value equals the metric on the rows the draw took.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ...core import RowError
from ..metrics import COVERAGE, METRICS, DrawnRows, Floats, Metric, MetricRows, Resamples, metric_rows
from .bootstrap import (
    MOST_LEFT_OUT,
    N_DRAWS,
    Interval,
    Method,
    as_observed,
    interval_of,
    leaving_one_out,
    resample,
    share_interval,
)
from .calibration_intervals import error_interval


def headline_metrics() -> list[Metric]:
    """Those of the headline, in the order of `METRICS`."""
    return [metric for metric in METRICS.values() if metric.is_headline]


def headline_names() -> list[str]:
    """Their names."""
    return [metric.name for metric in headline_metrics()]


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
    method: Method = "bca",
    log_odds: ArrayLike | None = None,
    confidence: ArrayLike | None = None,
    coverage: float = COVERAGE,
) -> dict[str, Interval]:
    """Intervals of the headline metrics, clustered by group, all from one set of resamples.

    Args:
        groups: shape (n,); rows with equal values are drawn together.
        method: "bca" or "percentile", which is taken above `MOST_LEFT_OUT` groups. The calibration error has its own
            (see `calibration_intervals`).

    Others as `metric_rows`.
    """
    rows = metric_rows(margins, p, labels, threshold, log_odds, confidence, coverage)
    if np.shape(groups) != rows.labels.shape:
        raise RowError(f"headline: each row has a group, got {np.shape(groups)} for {rows.labels.shape}; give one each")
    drawn = resample(groups, n_draws, seed)
    if drawn.n_groups < 2:
        none = interval_of([], np.nan, level, method, None, drawn.n_groups, drawn.largest_share)
        return dict.fromkeys(headline_names(), none)
    return intervals_of(headline_metrics(), rows, drawn, level, method)


def intervals_of(
    metrics: Sequence[Metric], rows: MetricRows, drawn: Resamples, level: float = 0.95, method: Method = "bca"
) -> dict[str, Interval]:
    """Intervals of metrics that can be drawn, by name; each by the way that covers (docs/uncertainty.md)."""
    method = method if drawn.n_groups <= MOST_LEFT_OUT else "percentile"
    ways = [DrawnRows(rows, of) for of in (drawn, as_observed(drawn))]
    ways += [DrawnRows(rows, leaving_one_out(drawn))] if method == "bca" else []
    intervals = {}
    for metric in metrics:
        if metric.gaps is not None:
            intervals[metric.name] = error_interval(metric.gaps(ways[0]), drawn.n_groups, level, drawn.largest_share)
        elif metric.draws is not None:
            values, (observed,), *without = (metric.draws(way) for way in ways)
            left_out, n_groups = without[0] if without else None, drawn.n_groups
            if metric.share_of is not None:
                n_groups = len(np.unique(drawn.group_of_row[metric.share_of(rows)]))
            about = (n_groups, method, left_out, drawn.largest_share)
            intervals[metric.name] = share_interval(values, observed, level, *about)
    return intervals
