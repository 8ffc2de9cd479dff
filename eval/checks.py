"""What every array metric begins with: columns of one length, no failed rows, labels of 0 and 1; and safe division."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.errors import RowError

Floats = NDArray[np.float64]


def checked_scores(scores: ArrayLike, labels: ArrayLike, where: str = "metrics") -> tuple[Floats, Floats]:
    """Both as float64 columns, shape (n,).

    Raises:
        RowError: the lengths differ, a score is NaN, or a label is neither 0 nor 1.
    """
    scores, labels = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if scores.shape != labels.shape or scores.ndim != 1:
        raise RowError(f"{where}: scores and labels must be rows of one length, got {scores.shape}, {labels.shape}")
    if np.isnan(scores).any():
        raise RowError(f"{where}: a failed row has no score, got {np.isnan(scores).sum()} NaN; leave failed rows out")
    if not ((labels == 0) | (labels == 1)).all():
        raise RowError(f"{where}: labels must be 0 or 1, got {np.unique(labels)[:5]}; leave unlabelled rows out")
    return scores, labels


def checked_probabilities(p: ArrayLike, labels: ArrayLike, where: str = "metrics") -> tuple[Floats, Floats]:
    """As `checked_scores`, and p must lie within [0, 1]: log-odds are refused, never turned into probabilities."""
    p, labels = checked_scores(p, labels, where)
    if np.any((p < 0) | (p > 1)):
        raise RowError(f"{where}: p must be probabilities, got {p.min()} to {p.max()}; apply a sigmoid or calibration")
    return p, labels


def divide(numerator: ArrayLike, denominator: ArrayLike) -> Floats:
    """numerator / denominator, NaN (and no warning) where the denominator is 0."""
    numerator, denominator = np.broadcast_arrays(np.asarray(numerator, dtype=np.float64), denominator)
    return np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator != 0)
