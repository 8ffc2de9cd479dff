"""The headline metrics in many resamples of whole groups, all from one set of resamples, and their intervals.

Decisions, Brier, NLL and ECE are functions of sums over rows, so one product of counts gives them for all draws; AUC
and accuracy at coverage have modules of their own. Every value equals the metric on the rows the draw took.

Shape suffixes: _D draws, _K columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..core.errors import RowError
from .auc_draws import auc_draws
from .bootstrap import N_DRAWS, Interval, Method, Resamples, as_observed, interval_of, leaving_one_out, resample
from .calibration_error import N_BINS, bin_index
from .checks import Floats, checked_probabilities, checked_scores, divide
from .counts import Confusions, balanced_accuracy, f1
from .coverage_draws import accuracy_at_coverage_draws
from .selective import confidence_of

HEADLINE = ("auc", "f1", "balanced_accuracy", "brier", "nll", "ece_event", "accuracy_at_coverage")
COVERAGE = 0.8


@dataclass(frozen=True)
class HeadlineRows:
    """What the headline metrics look at, checked; each array of shape (n,).

    Attributes:
        margins: what AUC ranks by.
        p: calibrated P(supported): decisions (p >= threshold), Brier, ECE, and by default confidence.
        labels: 0 or 1.
        loss: log-loss of p in nats; infinite where p is 0 or 1 and wrong.
        confidence: what coverage ranks by; see `headline_rows`.
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
        confidence: how sure each decision is; `selective.confidence_of`, the distance |p - threshold|, where None.

    Raises:
        RowError: NaN (a failed row), columns of different lengths, or values outside their range.
    """
    probability, y = checked_probabilities(p, labels, "headline")
    m, _ = checked_scores(margins, labels, "headline margins")
    if log_odds is not None:
        of_p, _ = checked_scores(log_odds, labels, "headline log-odds")
        loss = np.logaddexp(0, np.where(y == 1, -of_p, of_p))
    else:
        with np.errstate(divide="ignore"):
            loss = -np.where(y == 1, np.log(probability), np.log1p(-probability))
    given = confidence_of(probability, threshold) if confidence is None else confidence
    sure, _ = checked_scores(given, labels, "headline confidence")
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
