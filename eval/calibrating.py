"""Fitting calibrations and thresholds on a split of their own. The applying half is `models/calibration.py`.

Inputs are margins (log-odds), never probabilities: a sigmoid fitted on probabilities cannot undo overconfidence.
Anything chosen by looking at labels is judged on rows whose group was held out while it was fitted: the method by
cross-fitted log-loss, the threshold on cross-fitted probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, minimize
from sklearn.model_selection import StratifiedGroupKFold

from ..data_prep.errors import CalibrationError
from ..models.calibration import IDENTITY, METHODS, Calibration, Method, sigmoid
from ..models.decisions import OBJECTIVES, Decision, Objective
from .labelled import checked
from .metrics import Floats, nll
from .predictions import Prediction, groups_of, labels_of, margins_of
from .thresholds import fit_threshold

LOG_SLOPE_BOUND = 10.0  # slopes from e^-10 to e^10, the range scikit-learn's temperature scaling searches


def fit_decision(
    predictions: Sequence[Prediction],
    method: Method | Literal["auto"] = "auto",
    objective: Objective = "f1",
    fitted_on: dict[str, Any] | None = None,
    where: str = "predictions",
) -> Decision:
    """Calibration and operating points (one per objective, `objective` the default) from calibration-split predictions.

    Failed and unlabelled rows are left out. Thresholds are chosen on cross-fitted probabilities, so that they do not
    profit from the calibrator having seen the row.

    Raises:
        CalibrationError: rows of another split or of several, one class, or too few rows or groups.
    """
    splits = sorted({str(p.split) for p in predictions})
    if splits != ["calibration"]:
        raise CalibrationError(
            f"{where}: a calibration is fitted on the calibration split alone, got rows of {splits}; "
            f"predict on the calibration split and pass that file"
        )
    used = [p for p in predictions if p.error is None and p.label is not None]
    margins, labels, groups = margins_of(used), labels_of(used), groups_of(used)
    calibration = fit_calibration(margins, labels, method, groups, fitted_on=fitted_on, where=where)
    folds = grouped_folds(labels, groups, where=where)
    p = sigmoid(cross_fitted_logits(margins, labels, folds, calibration.method))
    points = tuple(fit_threshold(p, labels, each, name=each) for each in OBJECTIVES)
    return Decision(calibration, points, default=objective)


def fit_calibration(
    margins: ArrayLike,
    labels: ArrayLike,
    method: Method | Literal["auto"] = "auto",
    groups: ArrayLike | None = None,
    fitted_on: dict[str, Any] | None = None,
    where: str = "calibration",
) -> Calibration:
    """Fit a map from margins to probabilities.

    Args:
        margins: log-odds of supported, shape (n,), finite.
        labels: 1 or 0, shape (n,).
        method: `temperature` minimises the log-loss over one slope (Guo et al., 2017); `platt` over slope and
            intercept, with Platt's smoothed targets (1999); `auto` takes the one with the least log-loss on held-out
            groups, or none where that is better than both.
        groups: shape (n,); every row alone where None.
        fitted_on: stored with the calibration.

    Raises:
        CalibrationError: fewer than two rows of a class, too few groups for `auto`, or values that are not margins.
    """
    m, y = checked(margins, labels, where)
    groups = np.arange(len(m)) if groups is None else np.asarray(groups)
    chosen: Method = choose_method(m, y, groups, where) if method == "auto" else method
    slope, intercept, at_bound = _fit(chosen, m, y)
    return Calibration(
        method=chosen,
        slope=slope,
        intercept=intercept,
        n=len(m),
        n_groups=len(np.unique(groups)),
        positive_rate=float(np.mean(y)),
        fitted_on=dict(fitted_on or {}),
        at_bound=at_bound,
    )


def choose_method(margins: Floats, labels: Floats, groups: NDArray, where: str = "calibration") -> Method:
    """The method with the least log-loss on held-out groups; the simpler one on a tie.

    A temperature at its bound is no candidate: on perfectly separated rows it would promise certainty, and held-out
    rows as easy as these cannot contradict it. Platt's smoothed targets stay finite there.
    """
    candidates: list[Method] = [m for m in METHODS if m != "temperature" or not _fit(m, margins, labels)[2]]
    folds = grouped_folds(labels, groups, where=where)
    losses = {m: nll(cross_fitted_logits(margins, labels, folds, m), labels) for m in candidates}
    return min(candidates, key=lambda m: losses[m])


def cross_fitted_logits(margins: Floats, labels: Floats, folds: NDArray[np.int64], method: Method) -> Floats:
    """Calibrated log-odds of each row by a map fitted on the other folds only, shape (n,)."""
    logits = np.empty(len(margins))
    for fold in np.unique(folds):
        held_out = folds == fold
        slope, intercept, _ = _fit(method, margins[~held_out], labels[~held_out])
        logits[held_out] = slope * margins[held_out] + intercept
    return logits


def grouped_folds(
    labels: Floats, groups: NDArray, n_folds: int = 5, seed: int = 0, where: str = "calibration"
) -> NDArray[np.int64]:
    """A fold number per row, shape (n,): no group in two folds, both classes outside of each fold.

    Takes fewer folds where the data allow no more.

    Raises:
        CalibrationError: not even two folds are possible.
    """
    n_groups = len(np.unique(groups))
    n_smallest = int(min(np.sum(labels == 1), np.sum(labels == 0)))
    for k in range(min(n_folds, n_groups, n_smallest), 1, -1):
        folds = np.empty(len(labels), dtype=np.int64)
        splitter = StratifiedGroupKFold(n_splits=k, shuffle=True, random_state=seed)
        for fold, (_, held_out) in enumerate(splitter.split(labels, labels, groups)):
            folds[held_out] = fold
        if all(len(np.unique(labels[folds != fold])) == 2 for fold in range(k)):
            return folds
    raise CalibrationError(
        f"{where}: rows cannot be cut into two folds by group with both classes outside each, "
        f"got {len(labels)} rows of {n_groups} groups; calibrate on more groups (videos)"
    )


def _fit(method: str, margins: Floats, labels: Floats) -> tuple[float, float, bool]:
    """(slope, intercept, did the slope stop at its bound?)."""
    if method == "none":
        return IDENTITY.slope, IDENTITY.intercept, False
    if method == "temperature":
        return _fit_temperature(margins, labels)
    if method == "platt":
        return _fit_platt(margins, labels)
    raise CalibrationError(f"calibration: unknown method, got {method!r}; use 'auto' or one of {list(METHODS)}")


def _fit_temperature(margins: Floats, labels: Floats) -> tuple[float, float, bool]:
    """Root of the derivative of the log-loss, which is convex in the slope: no learning rate, no local minimum."""

    def derivative(log_slope: float) -> float:
        return float(np.mean((sigmoid(math.exp(log_slope) * margins) - labels) * margins))

    for bound, beyond in ((-LOG_SLOPE_BOUND, 1), (LOG_SLOPE_BOUND, -1)):
        if derivative(bound) * beyond >= 0:
            return math.exp(bound), 0.0, True
    root = brentq(derivative, -LOG_SLOPE_BOUND, LOG_SLOPE_BOUND, xtol=1e-12)
    return math.exp(float(root)), 0.0, False  # type: ignore[arg-type]  # brentq returns a float here


def _fit_platt(margins: Floats, labels: Floats) -> tuple[float, float, bool]:
    """Two-parameter logistic regression on the margins; smoothed targets keep it finite on separable rows."""
    n_pos, n_neg = np.sum(labels == 1), np.sum(labels == 0)
    targets = np.where(labels == 1, (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2))
    centre, scale = float(np.mean(margins)), float(np.std(margins)) or 1.0
    x = (margins - centre) / scale

    def loss(parameters: Floats) -> tuple[float, Floats]:
        z = parameters[0] * x + parameters[1]
        residual = sigmoid(z) - targets
        return float(np.mean(np.logaddexp(0, z) - targets * z)), np.array([np.mean(residual * x), np.mean(residual)])

    low, high = math.exp(-LOG_SLOPE_BOUND) * scale, math.exp(LOG_SLOPE_BOUND) * scale
    start = np.array([np.clip(1.0, low, high), 0.0])
    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1_000}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(low, high), (None, None)], options=options).x
    slope = float(found[0]) / scale
    at_bound = bool(found[0] <= low * (1 + 1e-9) or found[0] >= high * (1 - 1e-9))
    return slope, float(found[1]) - slope * centre, at_bound
