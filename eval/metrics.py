"""Metrics of a binary verifier: ranking, decisions, probabilities. NumPy only, exact with ties, NaN where undefined.

Binary view: labels are 1 (supported) and 0 (refuted or not_enough). Scores are margins or probabilities, without NaN:
`headline` takes whole columns and leaves failed and unlabelled rows out, counting them. A metric is NaN, never 0 or an
exception, where its definition divides nothing by nothing. Ranking metrics need both classes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..data_prep.errors import RowError

Floats = NDArray[np.float64]
N_BINS = 15


class Confusion(NamedTuple):
    """Counts of decisions against labels; positive means supported."""

    tp: int
    fp: int
    tn: int
    fn: int


class Bins(NamedTuple):
    """Equal-width bins of a probability, [lo, hi) with the last one closed; means are NaN in empty bins."""

    count: NDArray[np.int64]
    mean_p: Floats
    mean_y: Floats


def cumulative_counts(scores: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> tuple[Floats, Floats]:
    """True and false positives when everything scored at least s is called positive, s descending over distinct scores.

    Args:
        scores: shape (n,).
        labels: 0 or 1, shape (n,).
        weights: shape (n,) or (draws, n), how often each row counts; all once where None.

    Returns:
        tp and fp, shape (1 + distinct scores,) or (draws, 1 + distinct scores), each starting with 0.
    """
    scores, labels = _checked(scores, labels)
    weights = np.ones(len(scores)) if weights is None else np.asarray(weights, dtype=np.float64)
    order = np.argsort(-scores, kind="stable")
    is_last_of_tie = np.append(np.diff(scores[order]) != 0, True)[: len(scores)]
    zero = np.zeros((*weights.shape[:-1], 1))

    def cumulative(hits: Floats) -> Floats:
        total = np.cumsum((weights * hits)[..., order], axis=-1)
        return np.concatenate([zero, total[..., is_last_of_tie]], axis=-1)

    return cumulative(labels), cumulative(1 - labels)


def roc_auc(scores: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> Floats:
    """P(score of a positive > score of a negative), ties counting half: the area under the ROC curve.

    Returns a scalar array, or shape (draws,) for weights of shape (draws, n). NaN with one class.
    """
    tp, fp = cumulative_counts(scores, labels, weights)
    twice_area = np.sum(np.diff(fp, axis=-1) * (tp[..., 1:] + tp[..., :-1]), axis=-1)
    return _divide(twice_area, 2 * tp[..., -1] * fp[..., -1])


def average_precision(scores: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> Floats:
    """Step-wise sum of (R_n - R_{n-1}) P_n over distinct scores; chance level is the positive rate.

    Shapes and NaN as `roc_auc`.
    """
    tp, fp = cumulative_counts(scores, labels, weights)
    # Nothing counted above a score (weights of 0) means no gain in recall there either.
    precision = np.nan_to_num(_divide(tp[..., 1:], tp[..., 1:] + fp[..., 1:]))
    gained = np.sum(np.diff(tp, axis=-1) * precision, axis=-1)
    return _divide(np.where(fp[..., -1] > 0, gained, np.nan), tp[..., -1])


def confusion(decisions: ArrayLike, labels: ArrayLike) -> Confusion:
    """Confusion counts of boolean decisions against labels, both shape (n,)."""
    said, is_so = np.asarray(decisions, dtype=bool), np.asarray(labels) == 1
    return Confusion(
        int(np.sum(said & is_so)), int(np.sum(said & ~is_so)), int(np.sum(~said & ~is_so)), int(np.sum(~said & is_so))
    )


def f1(counts: Confusion) -> float:
    """F1 of the positive class, 2 tp / (2 tp + fp + fn); NaN where nothing is labelled positive."""
    tp, fp, _, fn = counts
    return 2 * tp / (2 * tp + fp + fn) if tp + fn else math.nan


def balanced_accuracy(counts: Confusion) -> float:
    """(TPR + TNR) / 2, rounded once; NaN where a class is absent."""
    tp, fp, tn, fn = counts
    positives, negatives = tp + fn, tn + fp
    both = 2 * positives * negatives
    return (tp * negatives + tn * positives) / both if both else math.nan


def reliability_bins(p: ArrayLike, labels: ArrayLike, n_bins: int = N_BINS) -> Bins:
    """Count, mean probability and share of positives in each of `n_bins` equal-width bins."""
    p, labels = _checked(p, labels)
    inner_edges = np.linspace(0, 1, n_bins + 1)[1:-1]
    index = np.digitize(p, inner_edges)
    count = np.bincount(index, minlength=n_bins)
    mean_p = _divide(np.bincount(index, p, minlength=n_bins), count)
    return Bins(count, mean_p, _divide(np.bincount(index, labels, minlength=n_bins), count))


def ece_event(p: ArrayLike, labels: ArrayLike, n_bins: int = N_BINS) -> float:
    """Expected calibration error of P(supported): sum over bins of n_b/n |mean y - mean p| (Naeini et al., 2015).

    The event version: it compares P(y = 1) with y, not top-label confidence with correctness. NaN for n = 0.
    """
    bins = reliability_bins(p, labels, n_bins)
    gaps = np.nan_to_num(np.abs(bins.mean_y - bins.mean_p))
    return float(_divide(np.sum(bins.count * gaps), np.sum(bins.count)))


def brier(p: ArrayLike, labels: ArrayLike) -> float:
    """Mean of (p - y)^2 (the one-class form, half of the two-class one). NaN for n = 0."""
    p, labels = _checked(p, labels)
    return float(_divide(np.sum((p - labels) ** 2), len(p)))


def nll(margins: ArrayLike, labels: ArrayLike) -> float:
    """Mean log-loss in nats, from log-odds rather than probabilities so that it never saturates. NaN for n = 0."""
    margins, labels = _checked(margins, labels)
    return float(_divide(np.sum(np.logaddexp(0, np.where(labels == 1, -margins, margins))), len(margins)))


def headline(
    margins: ArrayLike, p_raw: ArrayLike, p_calibrated: ArrayLike, labels: ArrayLike, threshold: float
) -> dict[str, float]:
    """The row every table of a report is made of.

    Args:
        margins: log-odds, shape (n_rows,); NaN where scoring failed.
        p_raw: probabilities before calibration, shape (n_rows,).
        p_calibrated: probabilities after calibration, shape (n_rows,).
        labels: 1, 0, or NaN without a label, shape (n_rows,).
        threshold: on `p_calibrated`; positive means p >= threshold.

    Returns:
        Counts `n_rows` = `n` (scored and labelled, what the metrics stand on) + `n_failed` + `n_unlabelled`, then the
        metrics. A failed row is in no metric: it is neither a yes nor a no.
    """
    columns = (np.asarray(column, dtype=np.float64) for column in (margins, p_raw, p_calibrated, labels))
    margins, p_raw, p_calibrated, labels = columns
    failed, unlabelled = np.isnan(margins), np.isnan(labels)
    used = ~failed & ~unlabelled
    m, before, after, y = margins[used], p_raw[used], p_calibrated[used], labels[used]
    counts = confusion(after >= threshold, y)
    return {
        "n_rows": len(margins),
        "n": len(m),
        "n_failed": int(np.sum(failed)),
        "n_unlabelled": int(np.sum(unlabelled & ~failed)),
        "positive_rate": float(_divide(np.sum(y), len(y))),
        "auc": float(roc_auc(m, y)),
        "ap": float(average_precision(m, y)),
        "f1": f1(counts),
        "balanced_accuracy": balanced_accuracy(counts),
        "ece_before": ece_event(before, y),
        "ece_after": ece_event(after, y),
        "brier_before": brier(before, y),
        "brier_after": brier(after, y),
        **counts._asdict(),
    }


def _checked(scores: ArrayLike, labels: ArrayLike) -> tuple[Floats, Floats]:
    scores, labels = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if scores.shape != labels.shape or scores.ndim != 1:
        raise RowError(f"metrics: scores and labels must be rows of one length, got {scores.shape}, {labels.shape}")
    if np.isnan(scores).any():
        raise RowError(f"metrics: a failed row has no score, got {np.isnan(scores).sum()} NaN; leave failed rows out")
    if not np.isin(labels, (0, 1)).all():
        raise RowError(f"metrics: labels must be 0 or 1, got {np.unique(labels)[:5]}; leave unlabelled rows out")
    return scores, labels


def _divide(numerator: ArrayLike, denominator: ArrayLike) -> Floats:
    """numerator / denominator, NaN (and no warning) where the denominator is 0."""
    numerator, denominator = np.broadcast_arrays(np.asarray(numerator, dtype=np.float64), denominator)
    return np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator != 0)
