"""Fitting the maps of a few parameters: temperature, Platt, beta. Each is one convex problem.

Arguments of every fit: margins, labels (0 or 1) and weights, each (n,), checked. It returns the map and whether it
stopped at the edge of its range, where the labels no longer say how steep it should be.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq, minimize

from ..models.calibration import sigmoid
from ..models.calibration_maps import Affine, Beta, beta_features
from .checks import Floats

LOG_SLOPE_BOUND = 10.0  # slopes from e^-10 to e^10, the range scikit-learn's temperature scaling searches
LOW, HIGH = math.exp(-LOG_SLOPE_BOUND), math.exp(LOG_SLOPE_BOUND)
_PULL = 1e-6  # on (a - b)^2 of the beta map, beside a mean log-loss: felt only where the rows say nothing
_OPTIONS = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1_000}


def fit_temperature(margins: Floats, labels: Floats, weights: Floats) -> tuple[Affine, bool]:
    """Root of the log-loss's derivative in the log of the slope (Guo et al., 2017): no learning rate to get wrong."""
    weights = weights / np.sum(weights)

    def derivative(log_slope: float) -> float:
        return float(np.sum(weights * (sigmoid(math.exp(log_slope) * margins) - labels) * margins))

    for bound, beyond in ((-LOG_SLOPE_BOUND, 1), (LOG_SLOPE_BOUND, -1)):
        if derivative(bound) * beyond >= 0:
            return Affine(math.exp(bound), 0.0), True
    root = brentq(derivative, -LOG_SLOPE_BOUND, LOG_SLOPE_BOUND, xtol=1e-12)
    return Affine(math.exp(float(root)), 0.0), False  # type: ignore[arg-type]  # brentq returns a float here


def fit_platt(margins: Floats, labels: Floats, weights: Floats) -> tuple[Affine, bool]:
    """Logistic regression on the margin with smoothed targets (Platt, 1999), finite on separable rows."""
    targets, weights = smoothed_targets(labels, weights), weights / np.sum(weights)
    centre, scale = float(np.mean(margins)), float(np.std(margins)) or 1.0
    x = (margins - centre) / scale

    def loss(theta: Floats) -> tuple[float, Floats]:
        value, residual = _logistic(theta[0] * x + theta[1], targets, weights)
        return value, np.array([np.sum(residual * x), np.sum(residual)])

    low, high = LOW * scale, HIGH * scale
    found = _minimum(loss, [np.clip(1.0, low, high), 0.0], [(low, high), (None, None)])
    slope = float(np.clip(found[0] / scale, LOW, HIGH))
    at_bound = bool(found[0] <= low * (1 + 1e-9) or found[0] >= high * (1 - 1e-9))
    return Affine(slope, float(found[1]) - slope * centre), at_bound


def fit_beta(margins: Floats, labels: Floats, weights: Floats) -> tuple[Beta, bool]:
    """Logistic regression on log q and -log(1 - q), q = sigmoid(margin), both slopes >= e^-10 (Kull et al., 2017).

    Targets are smoothed as Platt's. Where all margins lie on one side of 0, the other side's slope follows this one's,
    so that it does not go astray on margins never seen.
    """
    targets, weights = smoothed_targets(labels, weights), weights / np.sum(weights)
    start, _ = fit_platt(margins, labels, weights)
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
    return Beta(a, b, c), max(a, b) <= LOW * (1 + 1e-9) or max(a, b) >= HIGH * (1 - 1e-9)


def smoothed_targets(labels: Floats, weights: Floats) -> Floats:
    """(N+ + 1) / (N+ + 2) for supported rows and 1 / (N- + 2) for others (Platt, 1999), N counted by weight; (n,)."""
    n_pos, n_neg = np.sum(weights[labels == 1]), np.sum(weights[labels == 0])
    return np.where(labels == 1, (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2))


def _logistic(logits: Floats, targets: Floats, weights: Floats) -> tuple[float, Floats]:
    """(log-loss, its derivative with respect to each logit), weights summing to 1."""
    value = np.sum(weights * (np.logaddexp(0, logits) - targets * logits))
    return float(value), weights * (sigmoid(logits) - targets)


def _minimum(loss: Callable[[Floats], tuple[float, Floats]], start: list[float], bounds: list) -> Floats:
    return minimize(loss, np.array(start), jac=True, method="L-BFGS-B", bounds=bounds, options=_OPTIONS).x
