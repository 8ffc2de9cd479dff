"""The check every fit begins with: finite values, labels of 0 and 1, enough of each, weights that are weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ..core.errors import CalibrationError
from .checks import Floats

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
