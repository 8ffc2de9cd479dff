"""What the metrics of the catalogue are of given rows, of a column of probabilities, or of confusion counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ...models.decision import Confusion, confusion
from .base import MetricRows, checked
from .calibration_error import brier, corp_decomposition, murphy_decomposition, noise_floor, spiegelhalter
from .catalogue import METRICS
from .columns import metric_rows

FLOOR_DRAWS = 200


def headline(
    margins: ArrayLike,
    p: ArrayLike,
    labels: ArrayLike,
    threshold: float,
    log_odds: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> dict[str, float]:
    """The row that every table of a report is made of.

    Args:
        margins: log-odds before calibration, shape (n_rows,); NaN where scoring failed.
        p: probabilities after calibration, shape (n_rows,).
        labels: 1, 0, or NaN without a label, shape (n_rows,).
        threshold: on `p`; positive means p >= threshold.
        log_odds: of p, shape (n_rows,), where they are known more exactly than from p itself.
        groups: shape (n_rows,), for what a calibrated verifier would show; rows are independent where None.

    Returns:
        Counts `n_rows` = `n` (scored and labelled, what the metrics stand on) + `n_failed` + `n_unlabelled`, then the
        metrics of rows of parts by their keys, and the confusion counts. A failed row is in no metric: it is neither a
        yes nor a no.
    """
    margins, p, labels = (np.asarray(column, dtype=np.float64) for column in (margins, p, labels))
    failed, unlabelled = np.isnan(margins), np.isnan(labels)
    used = ~failed & ~unlabelled
    exact = None if log_odds is None else np.asarray(log_odds, dtype=np.float64)[used]
    rows = metric_rows(margins[used], p[used], labels[used], threshold, exact)
    return {
        "n_rows": len(margins),
        "n": len(rows.labels),
        "n_failed": int(np.sum(failed)),
        "n_unlabelled": int(np.sum(unlabelled & ~failed)),
        **{metric.key: metric.value(rows) for metric in METRICS.values() if metric.in_parts or metric.column},
        **confusion(rows.decisions, rows.labels)._asdict(),
        **_chance_columns(rows, None if groups is None else np.asarray(groups)[used]),
    }


def _chance_columns(rows: MetricRows, groups: ArrayLike | None) -> dict[str, float]:
    """The noise floors that have a column: mean and 95th percentile."""
    row = {}
    for metric in METRICS.values():
        if metric.chance_column and metric.statistic is not None:
            error, options = metric.statistic
            floor = noise_floor(rows.p, FLOOR_DRAWS, 0, error, labels=rows.labels, groups=groups, **options)
            row |= {f"{metric.key}_floor": floor.mean, f"{metric.key}_floor_high": floor.high}
    return row


def probability_metrics(
    p: ArrayLike, labels: ArrayLike, n_draws: int = FLOOR_DRAWS, seed: int = 0, groups: ArrayLike | None = None
) -> dict[str, float]:
    """Every number about one column of probabilities, by the names documentation and reports use.

    Beside each calibration error stand `<name>_floor` and `<name>_floor_high`: the mean and 95th percentile a perfectly
    calibrated model with these probabilities would show (`noise_floor`, over `n_draws`). `_mass` means equal-mass bins,
    the others have equal width. All NaN for n = 0.
    """
    p, labels = checked(p, labels, probabilities=True)
    test = spiegelhalter(p, labels)
    row = {
        "brier": brier(p, labels),
        **{f"brier_{name}": part for name, part in murphy_decomposition(p, labels)._asdict().items()},
        **{f"corp_{name}": part for name, part in corp_decomposition(p, labels)._asdict().items()},
        "spiegelhalter_z": test.z,
        "spiegelhalter_p": test.p_value,
    }
    for name, metric in METRICS.items():
        if metric.statistic is not None:
            error, options = metric.statistic
            floor = noise_floor(p, n_draws, seed, error, labels=labels, groups=groups, **options)
            row |= {name: error(p, labels, **options), f"{name}_floor": floor.mean, f"{name}_floor_high": floor.high}
    return row


def decision_metrics(counts: Confusion) -> dict[str, float]:
    """Every metric of confusion counts by its name."""
    return {name: metric.of_counts(counts) for name, metric in METRICS.items() if metric.of_counts is not None}


def always_yes(n_supported: int, n_not: int) -> dict[str, float]:
    """Every metric of decisions for a verifier that calls all claims supported: MiRAGE's baseline (its Table 10)."""
    counts = decision_metrics(Confusion(tp=n_supported, fp=n_not, tn=0, fn=0))
    return counts | {"auc_of_verdicts": counts["balanced_accuracy"]}
