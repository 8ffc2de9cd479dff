"""Choosing thresholds on calibrated probabilities. The applying half is `models/decisions.py`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from ..data_prep.errors import CalibrationError
from ..models.decisions import OBJECTIVES, Objective, OperatingPoint
from .labelled import checked
from .metrics import Confusion, Floats, balanced_accuracy, cumulative_counts, f1

ALL_NEGATIVE = math.nextafter(1.0, 2.0)  # above every probability
_METRICS = {"f1": f1, "balanced_accuracy": balanced_accuracy}


def fit_threshold(
    p: ArrayLike, labels: ArrayLike, objective: Objective = "f1", name: str = "default"
) -> OperatingPoint:
    """The threshold on p that maximises `objective`; positive means p >= threshold.

    Every distinct cut is tried, everything-positive (0) and everything-negative (just above 1) among them; equal
    probabilities are never parted. Cuts lie midway between neighbouring probabilities; of equally good cuts the one in
    the widest gap wins. Applying the point to the same rows gives exactly the stored metric and counts.

    Args:
        p: probabilities, shape (n,), cross-fitted if a calibrator was fitted on the same rows.
        labels: 1 or 0, shape (n,).
    """
    p, y = checked(p, labels, f"threshold {name}")
    if np.any((p < 0) | (p > 1)):
        raise CalibrationError(
            f"threshold {name}: p must be probabilities, got {p.min()} to {p.max()}; calibrate first"
        )
    if objective not in _METRICS:
        raise CalibrationError(f"threshold {name}: unknown objective, got {objective!r}; use one of {list(OBJECTIVES)}")
    tp, fp = cumulative_counts(p, y)
    n_pos, n_neg = int(tp[-1]), int(fp[-1])
    counts = [Confusion(int(t), int(f), n_neg - int(f), n_pos - int(t)) for t, f in zip(tp, fp, strict=True)]
    metric = np.array([_METRICS[objective](c) for c in counts])
    thresholds, gaps = _cuts(p)
    best = np.lexsort((gaps, metric))[-1]
    return OperatingPoint(
        name=name,
        objective=objective,
        threshold=float(thresholds[best]),
        metric=float(metric[best]),
        positive_rate=n_pos / len(y),
        **counts[best]._asdict(),
    )


def _cuts(p: Floats) -> tuple[Floats, Floats]:
    """Thresholds from all-negative down to all-positive, and the width of the gap each lies in."""
    descending = np.unique(p)[::-1]
    upper, lower = descending[:-1], descending[1:]
    middle = lower + (upper - lower) / 2
    middle = np.where(middle > lower, middle, upper)  # neighbouring floats have nothing between them
    thresholds = np.concatenate([[ALL_NEGATIVE], middle, [0.0]])
    return thresholds, np.concatenate([[1 - descending[0]], upper - lower, [descending[-1]]])
