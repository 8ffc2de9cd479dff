"""Calibrators of up to three numbers: none, temperature, Platt, beta. Each is fitted by one convex problem."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ...core import CalibrationError
from .calibrator import Calibrator, Floats, sigmoid
from .stored import finite

LOG_SLOPE_BOUND = 10.0  # slopes from e^-10 to e^10, the range scikit-learn's temperature scaling searches
LOW, HIGH = math.exp(-LOG_SLOPE_BOUND), math.exp(LOG_SLOPE_BOUND)
_PULL = 1e-6  # on (a - b)^2 of the beta map, beside a mean log-loss: felt only where the rows say nothing
_OPTIONS = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1_000}


@dataclass(frozen=True)
class Affine(Calibrator, ABC):
    """log-odds = slope * margin + intercept, slope > 0.

    calibration.json holds the two numbers beside `method`, not under `parameters`, as it did before other maps.
    """

    slope: float
    intercept: float

    def __post_init__(self) -> None:
        """Refuse a slope that would reverse or erase the ranking."""
        if not (finite(self.slope) and self.slope > 0 and finite(self.intercept)):
            raise CalibrationError(
                f"calibration: slope must be finite and > 0 and intercept finite, "
                f"got {self.slope!r}, {self.intercept!r}; fit it again"
            )

    def apply(self, margins: ArrayLike) -> Floats:
        """Calibrated log-odds, same shape as `margins`."""
        return self.slope * np.asarray(margins, dtype=np.float64) + self.intercept

    def formula(self) -> str:
        """The map as a reader writes it."""
        return f"p = sigmoid({self.slope:.6g} × margin {self.intercept:+.6g})"

    def _refuse_others(self, slope: float, intercept: float) -> None:
        if (self.slope, self.intercept) != (slope, intercept):
            raise CalibrationError(
                f"calibration: these parameters are not of this method, got {self.name} with slope {self.slope}, "
                f"intercept {self.intercept}; fit it again"
            )


@dataclass(frozen=True)
class Uncalibrated(Affine):
    """The margin as it is: slope 1, intercept 0, nothing fitted."""

    name = "none"
    description = "sigmoid(margin)"

    slope: float = 1.0
    intercept: float = 0.0

    def __post_init__(self) -> None:
        """Refuse other numbers than 1 and 0."""
        super().__post_init__()
        self._refuse_others(1.0, 0.0)

    @classmethod
    def fit(cls, margins: Floats, labels: Floats, weights: Floats) -> tuple[Uncalibrated, bool]:
        """Fits nothing."""
        return cls(), False


@dataclass(frozen=True)
class Temperature(Affine):
    """Temperature scaling: slope 1/T, intercept 0. On perfectly separated rows its slope has no end: see its bound."""

    name = "temperature"
    description = "sigmoid(slope × margin), slope = 1/T (Guo et al., 2017)"
    sound_at_bound = False  # it would promise certainty, and held-out rows as easy as these cannot contradict it

    intercept: float = 0.0

    def __post_init__(self) -> None:
        """Refuse an intercept."""
        super().__post_init__()
        self._refuse_others(self.slope, 0.0)

    @classmethod
    def fit(cls, margins: Floats, labels: Floats, weights: Floats) -> tuple[Temperature, bool]:
        """Root of the log-loss's derivative in the log of the slope: no learning rate to get wrong."""
        from scipy.optimize import brentq

        weights = weights / np.sum(weights)

        def derivative(log_slope: float) -> float:
            return float(np.sum(weights * (sigmoid(math.exp(log_slope) * margins) - labels) * margins))

        for bound, beyond in ((-LOG_SLOPE_BOUND, 1), (LOG_SLOPE_BOUND, -1)):
            if derivative(bound) * beyond >= 0:
                return cls(math.exp(bound)), True
        root = brentq(derivative, -LOG_SLOPE_BOUND, LOG_SLOPE_BOUND, xtol=1e-12)
        return cls(math.exp(float(root))), False  # type: ignore[arg-type]  # brentq returns a float here


@dataclass(frozen=True)
class Platt(Affine):
    """Logistic regression on the margin."""

    name = "platt"
    description = "sigmoid(slope × margin + intercept), smoothed targets (Platt, 1999)"

    @classmethod
    def fit(cls, margins: Floats, labels: Floats, weights: Floats) -> tuple[Platt, bool]:
        """Least log-loss on smoothed targets, which is finite on separable rows."""
        targets, weights = smoothed_targets(labels, weights), weights / np.sum(weights)
        centre, scale = float(np.mean(margins)), float(np.std(margins)) or 1.0
        x = (margins - centre) / scale

        def loss(theta: Floats) -> tuple[float, Floats]:
            value, residual = _logistic(theta[0] * x + theta[1], targets, weights)
            return value, np.array([np.sum(residual * x), np.sum(residual)])

        low, high = LOW * scale, HIGH * scale
        best = _minimum(loss, [np.clip(1.0, low, high), 0.0], [(low, high), (None, None)])
        slope = float(np.clip(best[0] / scale, LOW, HIGH))
        at_bound = bool(best[0] <= low * (1 + 1e-9) or best[0] >= high * (1 - 1e-9))
        return cls(slope, float(best[1]) - slope * centre), at_bound


@dataclass(frozen=True)
class Beta(Calibrator):
    """Beta calibration (Kull et al., 2017): log-odds = a log(q) - b log(1 - q) + c with q = sigmoid(margin), a, b > 0.

    Both logarithms come from the margin itself, so a margin of 1e4 is as good as one of 1. `a` is the slope far below
    0 and `b` the slope far above; a = b is Platt's map.
    """

    name = "beta"
    description = (
        "log-odds = a log q − b log(1 − q) + c, q = sigmoid(margin), a, b > 0 (Kull et al., 2017), smoothed targets, "
        "computed from the margin so that it never saturates"
    )

    a: float
    b: float
    c: float

    def __post_init__(self) -> None:
        """Refuse exponents that would reverse the ranking."""
        if not (finite(self.a) and self.a > 0 and finite(self.b) and self.b > 0 and finite(self.c)):
            raise CalibrationError(
                f"calibration: beta needs finite a > 0, b > 0 and c, got {self.a!r}, {self.b!r}, {self.c!r}; "
                f"fit it again"
            )

    @classmethod
    def fit(cls, margins: Floats, labels: Floats, weights: Floats) -> tuple[Beta, bool]:
        """Logistic regression on log q and -log(1 - q), both slopes >= e^-10, targets smoothed as Platt's.

        Where all margins lie on one side of 0, the other side's slope follows this one's, so that it does not go
        astray on margins beyond.
        """
        targets, weights = smoothed_targets(labels, weights), weights / np.sum(weights)
        start, _ = Platt.fit(margins, labels, weights)
        log_q, minus_log_rest = beta_features(margins)
        scale = float(np.std(margins)) or 1.0
        x0, x1 = (log_q - np.mean(log_q)) / scale, (minus_log_rest - np.mean(minus_log_rest)) / scale

        def loss(theta: Floats) -> tuple[float, Floats]:
            value, residual = _logistic(theta[0] * x0 + theta[1] * x1 + theta[2], targets, weights)
            apart = (theta[0] - theta[1]) / scale
            pull = 2 * _PULL * apart / scale
            gradient = [np.sum(residual * x0) + pull, np.sum(residual * x1) - pull, np.sum(residual)]
            return value + _PULL * apart**2, np.array(gradient)

        bound = (LOW * scale, HIGH * scale)
        mean_logit = float(start.slope * np.mean(margins) + start.intercept)
        a, b, c = _minimum(loss, [start.slope * scale, start.slope * scale, mean_logit], [bound, bound, (None, None)])
        a, b = float(np.clip(a / scale, LOW, HIGH)), float(np.clip(b / scale, LOW, HIGH))
        c = float(c - a * np.mean(log_q) - b * np.mean(minus_log_rest))
        return cls(a, b, c), max(a, b) <= LOW * (1 + 1e-9) or max(a, b) >= HIGH * (1 - 1e-9)

    def apply(self, margins: ArrayLike) -> Floats:
        """Calibrated log-odds, same shape as `margins`."""
        log_q, minus_log_rest = beta_features(margins)
        return self.a * log_q + self.b * minus_log_rest + self.c

    def formula(self) -> str:
        """The map as a reader writes it."""
        return f"log-odds = {self.a:.6g} log q - {self.b:.6g} log(1 - q) {self.c:+.6g}, q = sigmoid(margin)"


def beta_features(margins: ArrayLike) -> tuple[Floats, Floats]:
    """log(q) and -log(1 - q) for q = sigmoid(margin), without forming q: they never saturate."""
    m = np.asarray(margins, dtype=np.float64)
    both = np.log1p(np.exp(-np.abs(m)))
    return np.minimum(m, 0) - both, np.maximum(m, 0) + both


def smoothed_targets(labels: Floats, weights: Floats) -> Floats:
    """(N+ + 1) / (N+ + 2) for supported rows and 1 / (N- + 2) for others (Platt, 1999), N counted by weight; (n,)."""
    n_pos, n_neg = np.sum(weights[labels == 1]), np.sum(weights[labels == 0])
    return np.where(labels == 1, (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2))


def _logistic(logits: Floats, targets: Floats, weights: Floats) -> tuple[float, Floats]:
    """(log-loss, its derivative with respect to each logit), weights summing to 1."""
    value = np.sum(weights * (np.logaddexp(0, logits) - targets * logits))
    return float(value), weights * (sigmoid(logits) - targets)


def _minimum(loss: Callable[[Floats], tuple[float, Floats]], start: list[float], bounds: list) -> Floats:
    from scipy.optimize import minimize

    return minimize(loss, np.array(start), jac=True, method="L-BFGS-B", bounds=bounds, options=_OPTIONS).x
