"""Metrics of a ranking: ROC-AUC and average precision, exact with ties, with weights, NaN where undefined.

Labels are 1 (supported) and 0 (refuted or not_enough). Scores are margins or probabilities, without NaN. Both metrics
need both classes; without one they are NaN, never 0 or an exception.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ...models.decision import divide
from .base import Floats, checked


def cumulative_counts(scores: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> tuple[Floats, Floats]:
    """True and false positives when everything scored at least s is called positive, s descending over distinct scores.

    Args:
        scores: shape (n,).
        labels: 0 or 1, shape (n,).
        weights: shape (n,) or (draws, n), how often each row counts; all once where None.

    Returns:
        tp and fp, shape (1 + distinct scores,) or (draws, 1 + distinct scores), each starting with 0.
    """
    scores, labels = checked(scores, labels)
    weights = np.ones(len(scores)) if weights is None else np.asarray(weights, dtype=np.float64)
    order = np.argsort(-scores, kind="stable")
    descending = scores[order]
    is_last_of_tie = np.append(descending[1:] != descending[:-1], True)[: len(scores)]  # infinities tie too
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
    return divide(twice_area, 2 * tp[..., -1] * fp[..., -1])


def average_precision(scores: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> Floats:
    """Step-wise sum of (R_n - R_{n-1}) P_n over distinct scores; chance level is the positive rate.

    Shapes and NaN as `roc_auc`.
    """
    tp, fp = cumulative_counts(scores, labels, weights)
    # Nothing counted above a score (weights of 0) means no gain in recall there either.
    precision = np.nan_to_num(divide(tp[..., 1:], tp[..., 1:] + fp[..., 1:]))
    gained = np.sum(np.diff(tp, axis=-1) * precision, axis=-1)
    return divide(np.where(fp[..., -1] > 0, gained, np.nan), tp[..., -1])
