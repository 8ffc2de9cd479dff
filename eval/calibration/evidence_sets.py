"""Fitting the probability of sets of evidence that are judged by their surest piece."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from scipy.optimize import minimize

from ...core import CalibrationError
from ...models.verifier import Attributed, SetCalibration

_FEWEST = 50


def fit_sets(attributed: Sequence[Attributed], labels: Iterable[bool]) -> SetCalibration:
    """The calibration of sets of several pieces, by maximum likelihood.

    Args:
        attributed: by `sets="largest"`, apart from those that will be judged, with as much irrelevant company as there
            will be. Those of fewer than two pieces, and failures, are left out.
        labels: whether the pieces together support the claim.

    Raises:
        CalibrationError: too few sets, one class alone, or margins that do not tell them apart.
    """
    both = zip(attributed, labels, strict=True)
    rows = [(a.recall.margin, a.n_pieces, float(y)) for a, y in both if a.n_pieces > 1 and a.recall.error is None]
    n_of = [sum(y == label for *_, y in rows) for label in (0.0, 1.0)]
    if len(rows) < _FEWEST or not all(n_of):
        raise CalibrationError(
            f"set calibration: needs {_FEWEST} sets of several pieces and both classes, got {len(rows)} sets, "
            f"{n_of[1]} of them supported; cite more"
        )
    margins, sizes, y = np.array(rows).T
    x = np.stack([margins, np.ones(len(y)), np.log(sizes)])
    if np.ptp(sizes) == 0:
        x[2] = 0.0  # one size: its share is in the intercept

    def loss(w: np.ndarray) -> float:
        logits = w @ x
        return float(np.mean(np.logaddexp(0.0, logits) - y * logits) + 1e-6 * w @ w)  # finite where classes part

    slope, intercept, per_log_n = (float(w) for w in minimize(loss, np.array([1.0, 0.0, 0.0]), method="BFGS").x)
    if slope <= 0:
        raise CalibrationError(
            f"set calibration: larger margins are no likelier supported, got a slope of {slope:.3g}; check the labels"
        )
    extent = int(sizes.min()), int(sizes.max())
    return SetCalibration(slope, intercept, per_log_n, len(y), extent, float(y.mean()))
