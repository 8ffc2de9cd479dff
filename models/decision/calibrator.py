"""`Calibrator`: a family of maps from margins to calibrated log-odds, how one is fitted, applied and stored.

Every map is non-decreasing, so that calibrating never reverses a ranking, and is finite wherever the margin is: a
fitted frequency of 0 or 1 is moved inside (0, 1) while fitting. NaN stays NaN. `calibrators.py` lists the families;
applying needs NumPy alone, fitting imports SciPy where it needs it, because that import takes a second.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .stored import check_keys

Floats = NDArray[np.float64]


class Calibrator(ABC):
    """A family of maps; an instance is one fitted map, a frozen dataclass of plain numbers.

    As in scikit-learn, `fit` and `apply` of a family stand beside each other, in its class. A new family is such a
    class and one line in `CALIBRATORS`.

    Attributes:
        name: what `--method` and calibration.json call it.
        description: the map in one sentence, for the table of docs/calibration.md.
        extremes: what becomes of probabilities of 0 and 1, for the same table.
        fewest_rows: `auto` tries it from this many rows on, and a fit on fewer is warned of.
        ties_margins: it may give different margins one probability.
        sound_at_bound: a fit that stopped at the edge of its range may still be chosen by `auto`.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    extremes: ClassVar[str] = "cannot arise"
    fewest_rows: ClassVar[int] = 0
    ties_margins: ClassVar[bool] = False
    sound_at_bound: ClassVar[bool] = True

    @classmethod
    @abstractmethod
    def fit(cls, margins: Floats, labels: Floats, weights: Floats) -> tuple[Self, bool]:
        """The fitted map, and whether it stopped at the edge of its range, where labels cannot say how steep it is.

        Args:
            margins: (n,), finite.
            labels: 1 or 0, (n,), both present.
            weights: how often each row counts, (n,), > 0.
        """

    @abstractmethod
    def apply(self, margins: ArrayLike) -> Floats:
        """Calibrated log-odds, same shape as `margins`."""

    @abstractmethod
    def formula(self) -> str:
        """The map as a reader writes it: what reports and model cards print."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values of the map; `from_dict` gives an equal map back, bit for bit."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The map that JSON values describe.

        Raises:
            CalibrationError: unknown or missing values, values that are no numbers, or a map that reverses a ranking.
        """
        names = set(cls.parameter_names())
        check_keys(values, names, names, f"calibration: parameters of {cls.name}")
        frozen = {name: tuple(value) if isinstance(value, (list, tuple)) else value for name, value in values.items()}
        return cls(**frozen)

    @classmethod
    def parameter_names(cls) -> tuple[str, ...]:
        """The names of the numbers that a fitted map holds, as they are stored."""
        return tuple(f.name for f in dataclasses.fields(cls))  # type: ignore[arg-type]


def sigmoid(logits: ArrayLike) -> Floats:
    """1 / (1 + exp(-x)) in float64, without overflow at either end; NaN stays NaN."""
    x = np.asarray(logits, dtype=np.float64)
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def log_odds(p: ArrayLike) -> Floats:
    """log(p / (1 - p)); infinite at 0 and 1."""
    p = np.asarray(p, dtype=np.float64)
    return np.log(p) - np.log1p(-p)
