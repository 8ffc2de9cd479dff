"""Applying a calibration: margins to probabilities, to and from JSON. Decisions are `models/decisions.py`.

The fitting half is `eval/calibrating.py`. This half is NumPy only, so that a verifier directory can be applied, checked
and copied without scikit-learn or torch. Binary view throughout: positive means supported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..data_prep.errors import CalibrationError
from .stored import finite, from_dict

Method = Literal["none", "temperature", "platt"]
METHODS: tuple[Method, ...] = get_args(Method)
CALIBRATION_FILE = "calibration.json"


def sigmoid(logits: ArrayLike) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)) in float64, without overflow at either end; NaN stays NaN."""
    x = np.asarray(logits, dtype=np.float64)
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


@dataclass(frozen=True)
class Calibration:
    """p_supported = sigmoid(slope * margin + intercept), with slope > 0 so that ranking never changes.

    Attributes:
        method: `none` (slope 1, intercept 0), `temperature` (intercept 0, slope = 1/T) or `platt`.
        n: rows it was fitted on.
        n_groups: independent groups among them.
        positive_rate: share of supported rows among them; the map holds for this rate. None where nothing was fitted.
        fitted_on: where it comes from: `split`, `predictions_sha256`, `verifier_fingerprint`.
        at_bound: the slope stopped at the edge of its range: the margins separate the labels perfectly, or rank them
            no better than chance. Such probabilities deserve no trust.
    """

    method: Method
    slope: float
    intercept: float
    n: int
    n_groups: int
    positive_rate: float | None
    fitted_on: dict[str, Any] = field(default_factory=dict)
    at_bound: bool = False

    def __post_init__(self) -> None:
        """Refuse a map that is no calibration: unknown method, not finite, or one that would reverse the ranking."""
        if self.method not in METHODS:
            raise CalibrationError(f"calibration: unknown method, got {self.method!r}; use one of {list(METHODS)}")
        if not (finite(self.slope) and self.slope > 0 and finite(self.intercept)):
            raise CalibrationError(
                f"calibration: slope must be finite and > 0 and intercept finite, "
                f"got {self.slope!r}, {self.intercept!r}; fit it again"
            )
        if (self.method == "none" and self.slope != 1) or (self.method != "platt" and self.intercept != 0):
            raise CalibrationError(
                f"calibration: these parameters are not of this method, "
                f"got {self.method} with slope {self.slope}, intercept {self.intercept}; fit it again"
            )

    def logits(self, margins: ArrayLike) -> NDArray[np.float64]:
        """Calibrated log-odds, same shape as `margins`: what a log-loss should be computed from."""
        return self.slope * np.asarray(margins, dtype=np.float64) + self.intercept

    def predict(self, margins: ArrayLike) -> NDArray[np.float64]:
        """Calibrated P(supported), same shape as `margins`; NaN (a failed row) stays NaN."""
        return sigmoid(self.logits(margins))

    def to_dict(self) -> dict[str, Any]:
        """JSON values; `from_dict` gives an equal calibration back, bit for bit."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = CALIBRATION_FILE) -> Calibration:
        """The calibration a dict describes; `CalibrationError` on unknown or missing keys or an unknown method."""
        return from_dict(cls, values, where)


IDENTITY = Calibration(method="none", slope=1.0, intercept=0.0, n=0, n_groups=0, positive_rate=None)
