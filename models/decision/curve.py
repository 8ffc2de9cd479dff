"""How many rows of each class a decision was fitted on lie above every probability: enough to choose thresholds again.

Stored with the thresholds, so that they can be chosen for another share of supported claims where a verifier is used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core import CalibrationError
from .calibrator import Floats, sigmoid
from .stored import from_dict

MOST_CUTS = 2_000  # more are thinned evenly


@dataclass(frozen=True)
class Curve:
    """Cumulative counts over the cross-fitted log-odds of the fitting rows, at their own share of supported rows.

    Attributes:
        log_odds: distinct values, descending.
        tp, fp: supported and other rows at or above each.
    """

    log_odds: tuple[float, ...]
    tp: tuple[int, ...]
    fp: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse columns that are no cumulative counts of both classes."""
        lengths = {len(self.log_odds), len(self.tp), len(self.fp)}
        ordered = lengths - {0} == lengths and len(lengths) == 1
        ordered = ordered and np.isfinite(self.log_odds).all() and (np.diff(self.log_odds) < 0).all()
        ordered = ordered and all(c[0] >= 0 and c[-1] > 0 and (np.diff(c) >= 0).all() for c in (self.tp, self.fp))
        if not ordered:
            raise CalibrationError(
                f"curve: needs descending log-odds and growing counts of both classes, got {sorted(lengths)} values; "
                "fit it again"
            )

    @classmethod
    def of(cls, log_odds: ArrayLike, labels: ArrayLike) -> Self:
        """The curve of rows: log-odds and labels (1 or 0) of shape (n,)."""
        x, y = np.asarray(log_odds, dtype=np.float64), np.asarray(labels) == 1
        values, which = np.unique(-x, return_inverse=True)
        tp, fp = (np.cumsum(np.bincount(which, of, minlength=len(values))).astype(int) for of in (y, ~y))
        kept = np.unique(np.linspace(0, len(values) - 1, min(len(values), MOST_CUTS)).round().astype(int))
        return cls(tuple((-values[kept]).tolist()), tuple(tp[kept].tolist()), tuple(fp[kept].tolist()))

    def above(self, offset: float) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
        """Distinct probabilities after adding `offset` to the log-odds, descending; tp and fp, a 0 before each."""
        p = sigmoid(np.asarray(self.log_odds) + offset)
        is_last = np.append(p[1:] != p[:-1], True)  # what rounds to one probability is not parted
        tp, fp = (np.append(0, np.asarray(c, dtype=np.int64)[is_last]) for c in (self.tp, self.fp))
        return p[is_last], tp, fp

    def counts(self, threshold: float, offset: float) -> tuple[int, int, int, int]:
        """tp, fp, tn, fn of the rows cut at a threshold on the probability."""
        p, tp, fp = self.above(offset)
        n = int(np.sum(p >= threshold))
        return int(tp[n]), int(fp[n]), int(fp[-1] - fp[n]), int(tp[-1] - tp[n])

    def to_dict(self) -> dict[str, Any]:
        """JSON values; `from_dict` gives an equal curve back."""
        return {name: list(values) for name, values in dataclasses.asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str) -> Self:
        """The curve a dict describes; `CalibrationError` on unknown or missing keys."""
        if isinstance(values, Mapping):
            values = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return from_dict(cls, values, where)
