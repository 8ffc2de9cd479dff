"""The headline metrics in many resamples of whole groups, all from one set of resamples, and their intervals.

Decisions, Brier, NLL and ECE are functions of sums over rows, so one product of counts gives them for all draws; AUC
and accuracy at coverage have modules of their own. Every value equals the metric on the rows the draw took.

Shape suffixes: _D draws, _K columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..data_prep.errors import RowError
from .auc_draws import auc_draws
from .bootstrap import N_DRAWS, Interval, Method, Resamples, as_observed, interval_of, leaving_one_out, resample
from .coverage_draws import accuracy_at_coverage_draws

Floats = NDArray[np.float64]

HEADLINE = ("auc", "f1", "balanced_accuracy", "brier", "nll", "ece_event", "accuracy_at_coverage")
N_BINS = 15
COVERAGE = 0.8


@dataclass(frozen=True)
class HeadlineRows:
    """What the headline metrics look at, checked; each array of shape (n,).

    Attributes:
        margins: what AUC ranks by.
        p: calibrated P(supported): decisions (p >= threshold), Brier, ECE, and by default confidence.
        labels: 0 or 1.
        loss: log-loss of p in nats; infinite where p is 0 or 1 and wrong.
        confidence: what coverage ranks by, max(p, 1 - p) unless given.
        coverage: share of the rows at which accuracy is read.
    """

    margins: Floats
    p: Floats
    labels: Floats
    threshold: float
    loss: Floats
    confidence: Floats
    coverage: float = COVERAGE


def headline_rows(
    margins: ArrayLike,
    p: ArrayLike,
    labels: ArrayLike,
    threshold: float,
    log_odds: ArrayLike | None = None,
    confidence: ArrayLike | None = None,
    coverage: float = COVERAGE,
) -> HeadlineRows:
    """Check the columns and derive those the metrics need.

    Args:
        margins, p, labels: shape (n,); no NaN, probabilities in [0, 1], labels 0 or 1.
        threshold: on p; positive means p >= threshold.
        log_odds: of p, where they are known more exactly than from p itself.
        confidence: how sure each decision is; max(p, 1 - p) where None.

    Raises:
        RowError: NaN (a failed row), columns of different lengths, or values outside their range.
    """
    given = {"margins": margins, "p": p, "labels": labels, "log_odds": log_odds, "confidence": confidence}
    columns = {name: np.asarray(column, dtype=np.float64) for name, column in given.items() if column is not None}
    for name, column in columns.items():
        if column.shape != columns["margins"].shape or column.ndim != 1:
            raise RowError(f"headline: columns must be rows of one length, got {name} of {column.shape}; give one each")
        if np.isnan(column).any():
            raise RowError(f"headline: a failed row has no {name}, got {np.isnan(column).sum()} NaN; leave it out")
    m, probability, y = columns["margins"], columns["p"], columns["labels"]
    if not np.isin(y, (0, 1)).all() or np.any((probability < 0) | (probability > 1)):
        raise RowError("headline: labels are 0 or 1 and p within [0, 1], got others; leave unlabelled rows out")
    if "log_odds" in columns:
        loss = np.logaddexp(0, np.where(y == 1, -columns["log_odds"], columns["log_odds"]))
    else:
        with np.errstate(divide="ignore"):
            loss = -np.where(y == 1, np.log(probability), np.log1p(-probability))
    sure = columns.get("confidence", np.maximum(probability, 1 - probability))
    return HeadlineRows(m, probability, y, threshold, loss, sure, coverage)


def headline_values(rows: HeadlineRows, drawn: Resamples) -> dict[str, Floats]:
    """Each of `HEADLINE` in each draw, shape (draws,); NaN where the metric is undefined in the draw."""
    correct = ((rows.p >= rows.threshold) == (rows.labels == 1)).astype(np.float64)
    values = {"auc": auc_draws(rows.margins, rows.labels, drawn)}
    values |= values_of_sums(drawn.sums(summed_columns(rows)))
    values["accuracy_at_coverage"] = accuracy_at_coverage_draws(rows.confidence, correct, drawn, rows.coverage)
    return values


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

    Others as `headline_rows`.
    """
    rows = headline_rows(margins, p, labels, threshold, log_odds, confidence, coverage)
    if np.shape(groups) != rows.labels.shape:
        raise RowError(f"headline: each row has a group, got {np.shape(groups)} for {rows.labels.shape}; give one each")
    drawn = resample(groups, n_draws, seed)
    if drawn.n_groups < 2:
        none = interval_of([], np.nan, level, method, None, drawn.n_groups, drawn.largest_share)
        return dict.fromkeys(HEADLINE, none)
    values, observed = headline_values(rows, drawn), headline_values(rows, as_observed(drawn))
    without = headline_values(rows, leaving_one_out(drawn)) if method == "bca" else {}
    return {
        name: interval_of(
            values[name], observed[name][0], level, method, without.get(name), drawn.n_groups, drawn.largest_share
        )
        for name in HEADLINE
    }


def summed_columns(rows: HeadlineRows) -> Floats:
    """Columns whose sums give decisions, Brier, NLL and ECE, shape (n, 7 + bins)."""
    said, is_so = rows.p >= rows.threshold, rows.labels == 1
    never = np.isinf(rows.loss)
    columns = [said & is_so, said & ~is_so, ~said & ~is_so, ~said & is_so, (rows.p - rows.labels) ** 2]
    columns += [np.where(never, 0, rows.loss), never]
    bin_of_row = np.digitize(rows.p, np.linspace(0, 1, N_BINS + 1)[1:-1])
    gaps = np.zeros((len(rows.p), N_BINS))
    gaps[np.arange(len(rows.p)), bin_of_row] = rows.labels - rows.p
    return np.column_stack([*(np.asarray(column, dtype=np.float64) for column in columns), gaps])


def values_of_sums(sums_DK: Floats) -> dict[str, Floats]:
    """F1, balanced accuracy, Brier, NLL and event ECE from sums of `summed_columns`; each of shape (draws,)."""
    tp, fp, tn, fn, squares, loss, n_never = sums_DK[:, :7].T
    n, positives, negatives = tp + fp + tn + fn, tp + fn, tn + fp
    return {
        "f1": _divide(2 * tp, np.where(positives > 0, 2 * tp + fp + fn, 0)),
        "balanced_accuracy": _divide(tp * negatives + tn * positives, 2 * positives * negatives),
        "brier": _divide(squares, n),
        "nll": _divide(np.where(n_never > 0, np.inf, loss), n),
        # n_b |mean y - mean p| is |sum y - sum p| over the bin.
        "ece_event": _divide(np.abs(sums_DK[:, 7:]).sum(axis=1), n),
    }


def _divide(numerator: Floats, denominator: Floats) -> Floats:
    """numerator / denominator, NaN (and no warning) where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator != 0)
