"""Calibration as a scikit-learn estimator: fit on margins and labels, then `predict_proba`."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ...core import CalibrationError
from ...models.decision import sigmoid
from ..metrics import Floats
from .fit import fit_calibration


class CalibrationEstimator(BaseEstimator):
    """From margins to probabilities, as scikit-learn has it.

    Args:
        method: `auto` or a name of `CALIBRATORS`.

    Attributes:
        calibration_: the fitted `Calibration`, which a verifier directory stores.
        classes_: 0 (not supported), 1 (supported): the columns of `predict_proba`.
    """

    method: str

    def __init__(self, method: str = "auto") -> None:
        self.method = method

    def fit(
        self,
        margins: ArrayLike,
        labels: ArrayLike,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit on margins (n,) or (n, 1), labels 1 or 0 (n,); `groups` (n,) keep the choice of a method honest.

        Raises:
            CalibrationError: as `fit_calibration`.
        """
        self.classes_ = np.array([0, 1])
        self.calibration_ = fit_calibration(
            _flat(margins), labels, self.method, groups, sample_weight=sample_weight, where="CalibrationEstimator"
        )
        return self

    def decision_function(self, margins: ArrayLike) -> Floats:
        """Calibrated log-odds, (n,); NaN stays NaN."""
        check_is_fitted(self)
        return self.calibration_.logits(_flat(margins))

    def predict_proba(self, margins: ArrayLike) -> Floats:
        """P(not supported), P(supported), (n, 2): each exact where the other rounds to 1. NaN stays NaN."""
        logits = self.decision_function(margins)
        return np.stack([sigmoid(-logits), sigmoid(logits)], axis=1)

    def predict(self, margins: ArrayLike) -> NDArray[np.int64]:
        """1 where P(supported) >= 0.5, (n,). Failed rows have no verdict: NaN is refused.

        Raises:
            CalibrationError: a margin is NaN.
        """
        p = sigmoid(self.decision_function(margins))
        if np.isnan(p).any():
            raise CalibrationError(
                f"CalibrationEstimator: margins must be numbers, got {np.isnan(p).sum()} NaN; leave failed rows out"
            )
        return (p >= 0.5).astype(np.int64)


def _flat(margins: ArrayLike) -> Floats:
    margins = np.asarray(margins, dtype=np.float64)
    return margins[:, 0] if margins.ndim == 2 and margins.shape[1] == 1 else margins
