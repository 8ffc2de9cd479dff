"""The columns that metrics read, checked and derived; and those whose sums give the metrics that are sums over rows.

Apart from the catalogue because it knows no metric's line: permutation tests move the sums of these columns between two
verifiers without `METRICS`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ...models.decision import Confusions, balanced_accuracy, divide, f1, sigmoid
from .base import Floats, MetricRows, checked
from .calibration_error import N_BINS, bin_index
from .selective import confidence_of

COVERAGE = 0.8


def metric_rows(
    margins: ArrayLike,
    p: ArrayLike,
    labels: ArrayLike,
    threshold: float,
    log_odds: ArrayLike | None = None,
    confidence: ArrayLike | None = None,
    coverage: float = COVERAGE,
) -> MetricRows:
    """Check the columns and derive those that metrics read.

    Args:
        margins, p, labels: shape (n,); no NaN, probabilities in [0, 1], labels 0 or 1.
        threshold: on p; positive means p >= threshold.
        log_odds: of p, where they are known more exactly than from p itself.
        confidence: how sure each decision is; `confidence_of`, the distance |p - threshold|, where None.

    Raises:
        RowError: NaN (a failed row), columns of different lengths, or values outside their range.
    """
    probability, y = checked(p, labels, "headline", probabilities=True)
    m, _ = checked(margins, labels, "headline margins")
    if log_odds is not None:
        exact, _ = checked(log_odds, labels, "headline log-odds")
        loss = np.logaddexp(0, np.where(y == 1, -exact, exact))
    else:
        with np.errstate(divide="ignore"):
            exact = np.log(probability) - np.log1p(-probability)
            loss = -np.where(y == 1, np.log(probability), np.log1p(-probability))
    given = confidence_of(probability, threshold) if confidence is None else confidence
    sure, _ = checked(given, labels, "headline confidence")
    return MetricRows(m, sigmoid(m), exact, probability, y, threshold, loss, sure, coverage)


def summed_columns(rows: MetricRows) -> Floats:
    """Columns whose sums give decisions, Brier, NLL and ECE, shape (n, 7 + bins)."""
    positive, is_so = rows.decisions, rows.labels == 1
    never = np.isinf(rows.loss)
    columns = [positive & is_so, positive & ~is_so, ~positive & ~is_so, ~positive & is_so, (rows.p - rows.labels) ** 2]
    columns += [np.where(never, 0, rows.loss), never]
    gaps = np.zeros((len(rows.p), N_BINS))
    gaps[np.arange(len(rows.p)), bin_index(rows.p)] = rows.labels - rows.p
    return np.column_stack([*(np.asarray(column, dtype=np.float64) for column in columns), gaps])


def values_of_sums(sums_DK: Floats) -> dict[str, Floats]:
    """F1, balanced accuracy, Brier, NLL and event ECE from sums of `summed_columns`; each of shape (draws,)."""
    tp, fp, tn, fn, squares, loss, n_never = sums_DK[:, :7].T
    counts, n = Confusions(tp, fp, tn, fn), tp + fp + tn + fn
    return {
        "f1": np.asarray(f1(counts)),
        "balanced_accuracy": np.asarray(balanced_accuracy(counts)),
        "brier": divide(squares, n),
        "nll": divide(np.where(n_never > 0, np.inf, loss), n),
        # n_b |mean y - mean p| is |sum y - sum p| over the bin.
        "ece_event": divide(np.abs(sums_DK[:, 7:]).sum(axis=1), n),
    }
