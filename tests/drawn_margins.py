"""Margins and labels of an overconfident verifier, and a map fitted to them: what tests of calibration maps draw."""

from typing import Any

import numpy as np

from proofreel.models.decision.calibrator import sigmoid
from proofreel.models.decision.calibrators import CALIBRATORS

GRID = np.concatenate([np.linspace(-12, 12, 241), [-1e4, 1e4, -1e300, 1e300]])


def drawn(seed: int, n: int, decimals: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Margins (rounded: with ties) and labels of a verifier that is too sure, with both classes present twice."""
    rng = np.random.default_rng(seed)
    margins = rng.normal(0, 3, n)
    margins = margins if decimals is None else np.round(margins, decimals)
    labels = (rng.random(n) < sigmoid(0.5 * margins - 0.3)).astype(float)
    labels[:4] = [0, 0, 1, 1]
    return margins, labels


def drawn_as(seed: int, n: int, slope: float = 1.0, intercept: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Margins, and labels drawn with P(y = 1) = sigmoid(slope * margin + intercept)."""
    rng = np.random.default_rng(seed)
    margins = rng.normal(0, 3, n)
    return margins, (rng.random(n) < sigmoid(slope * margins + intercept)).astype(float)


def fit(method, margins, labels, weights=None) -> Any:
    weights = np.ones(len(margins)) if weights is None else np.asarray(weights, dtype=float)
    return CALIBRATORS[method].fit(np.asarray(margins, dtype=float), np.asarray(labels, dtype=float), weights)[0]


def p_of(fitted, margins) -> np.ndarray:
    return sigmoid(fitted.apply(margins))
