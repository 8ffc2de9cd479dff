"""What every array metric begins with: columns of one length, no failed rows, labels of 0 and 1; and safe division.

The check every fit begins with: finite values, labels of 0 and 1, enough of each, weights that are weights.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core import CalibrationError, RowError

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


MIN_PER_CLASS = 2


def checked(values: ArrayLike, labels: ArrayLike, where: str) -> tuple[Floats, Floats]:
    """Values and labels as float64, both (n,); `CalibrationError` where nothing can be fitted on them."""
    values, labels = np.asarray(values, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if values.shape != labels.shape or values.ndim != 1:
        raise CalibrationError(
            f"{where}: needs a label per value, got shapes {values.shape} and {labels.shape}; align them"
        )
    if not np.isfinite(values).all():
        n_bad = int(np.sum(~np.isfinite(values)))
        raise CalibrationError(f"{where}: values must be finite, got {n_bad} that are not; leave failed rows out")
    if not np.isin(labels, (0, 1)).all():
        raise CalibrationError(
            f"{where}: labels must be 0 or 1, got {np.unique(labels)[:5]}; leave unlabelled rows out"
        )
    n_pos, n_neg = int(np.sum(labels == 1)), int(np.sum(labels == 0))
    if min(n_pos, n_neg) < MIN_PER_CLASS:
        raise CalibrationError(
            f"{where}: needs at least {MIN_PER_CLASS} supported and {MIN_PER_CLASS} other rows that were scored, "
            f"got {n_pos} and {n_neg}; label more rows, or see why scoring failed"
        )
    return values, labels


def checked_weights(weights: ArrayLike | None, n: int, where: str) -> Floats:
    """How much each row counts, (n,): all 1 where None. A weight of 2 is the same as the row twice."""
    if weights is None:
        return np.ones(n)
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != (n,) or not (np.isfinite(weights) & (weights > 0)).all():
        raise CalibrationError(
            f"{where}: needs a finite weight > 0 per row, got shape {weights.shape} for {n} rows, "
            f"or other values; leave rows that do not count out"
        )
    return weights
