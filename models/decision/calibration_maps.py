"""The maps of a calibration, from margins to calibrated log-odds: records of plain numbers, applied with NumPy alone.

Every map is non-decreasing, so that calibrating never reverses a ranking, and is finite wherever the margin is: where a
fitted frequency would be 0 or 1, the fitting half has already moved it inside. NaN stays NaN. The fitting half is
`eval/calibration/methods.py`. Shapes: `_K` knots or steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core import CalibrationError
from .stored import check_keys, finite

Floats = NDArray[np.float64]
Method = Literal["none", "temperature", "platt", "beta", "centred_isotonic", "isotonic", "histogram", "venn_abers"]
METHODS: tuple[Method, ...] = get_args(Method)  # simplest first


@dataclass(frozen=True)
class Affine:
    """log-odds = slope * margin + intercept, slope > 0: temperature (slope 1/T, intercept 0) and Platt scaling."""

    slope: float
    intercept: float

    def __post_init__(self) -> None:
        """Refuse a slope that would reverse or erase the ranking."""
        if not (finite(self.slope) and self.slope > 0 and finite(self.intercept)):
            raise CalibrationError(
                f"calibration: slope must be finite and > 0 and intercept finite, "
                f"got {self.slope!r}, {self.intercept!r}; fit it again"
            )

    def logits(self, margins: ArrayLike) -> Floats:
        """Calibrated log-odds, same shape as `margins`."""
        return self.slope * np.asarray(margins, dtype=np.float64) + self.intercept

    def formula(self) -> str:
        """The map as a reader writes it."""
        return f"p = sigmoid({self.slope:.6g} × margin {self.intercept:+.6g})"


@dataclass(frozen=True)
class Beta:
    """Beta calibration (Kull et al., 2017): log-odds = a log(q) - b log(1 - q) + c with q = sigmoid(margin), a, b > 0.

    Both logarithms come from the margin itself, so a margin of 1e4 is as good as one of 1. `a` is the slope far below
    0 and `b` the slope far above; a = b is Platt's map.
    """

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

    def logits(self, margins: ArrayLike) -> Floats:
        """Calibrated log-odds, same shape as `margins`."""
        log_q, minus_log_rest = beta_features(margins)
        return self.a * log_q + self.b * minus_log_rest + self.c

    def formula(self) -> str:
        """The map as a reader writes it."""
        return f"log-odds = {self.a:.6g} log q - {self.b:.6g} log(1 - q) {self.c:+.6g}, q = sigmoid(margin)"


@dataclass(frozen=True)
class Knots:
    """p drawn in straight lines between knots, flat beyond them: isotonic and centred isotonic regression.

    Attributes:
        margins: where the knots lie, (K,), increasing.
        p: their probabilities, (K,), non-decreasing, inside (0, 1).
    """

    margins: tuple[float, ...]
    p: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse knots out of order and certainties."""
        _check_increasing("margins", self.margins, strictly=True)
        _check_p(self.p, len(self.margins))
        if not self.p:
            raise CalibrationError("calibration: needs at least one knot, got none; fit it again")

    def logits(self, margins: ArrayLike) -> Floats:
        """Calibrated log-odds, same shape as `margins`."""
        m = np.asarray(margins, dtype=np.float64)
        p = np.interp(m, self.margins, self.p)
        return log_odds(np.where(np.isnan(m), np.nan, p))

    def formula(self) -> str:
        """The map as a reader writes it."""
        return (
            f"p by straight lines between {len(self.p)} knots, margin {self.margins[0]:.4g} to {self.margins[-1]:.4g}"
        )


@dataclass(frozen=True)
class Bins:
    """One p per bin of margins: histogram binning.

    Attributes:
        edges: between bins, (K-1,), increasing; a margin on an edge belongs to the bin above.
        p: per bin, (K,), non-decreasing, inside (0, 1).
    """

    edges: tuple[float, ...]
    p: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse edges out of order and certainties."""
        _check_increasing("edges", self.edges, strictly=True)
        _check_p(self.p, len(self.edges) + 1)

    def logits(self, margins: ArrayLike) -> Floats:
        """Calibrated log-odds, same shape as `margins`."""
        m = np.asarray(margins, dtype=np.float64)
        p = np.asarray(self.p)[np.searchsorted(self.edges, m, side="right")]
        return log_odds(np.where(np.isnan(m), np.nan, p))

    def formula(self) -> str:
        """The map as a reader writes it."""
        return f"p of {len(self.p)} bins of the margin"


@dataclass(frozen=True)
class VennAbers:
    """Inductive Venn-Abers prediction (Vovk and Petej, 2014): two probabilities, one of which is right.

    p0 is what isotonic regression gives the margin when the row itself is added with label 0, p1 with label 1. Both are
    step functions of the margin, stored where they change. The merged probability p1 / (1 - p0 + p1) is the minimax one
    under log-loss (section 4 there). It lies inside (0, 1), however few rows there are.

    Attributes:
        p0_from, p0: p0[i] holds for margins >= p0_from[i - 1] and below p0_from[i]; (K-1,) and (K,).
        p1_upto, p1: p1[i] holds for margins > p1_upto[i - 1] and up to p1_upto[i]; (K-1,) and (K,).
    """

    p0_from: tuple[float, ...]
    p0: tuple[float, ...]
    p1_upto: tuple[float, ...]
    p1: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse steps out of order, and pairs that would merge to a certainty."""
        for name, at, p in (("p0", self.p0_from, self.p0), ("p1", self.p1_upto, self.p1)):
            _check_increasing(f"places of {name}", at, strictly=True)
            _check_increasing(name, p, strictly=False)
            if len(p) != len(at) + 1:
                raise CalibrationError(
                    f"calibration: {name} needs one value more than places, got {len(p)} and {len(at)}; fit it again"
                )
        if not (0 <= self.p0[0] <= self.p0[-1] < 1 and 0 < self.p1[0] <= self.p1[-1] <= 1):
            raise CalibrationError("calibration: needs p0 in [0, 1) and p1 in (0, 1], got others; fit it again")

    def pair(self, margins: ArrayLike) -> tuple[Floats, Floats]:
        """(p0, p1), each of the shape of `margins`; NaN stays NaN."""
        m = np.asarray(margins, dtype=np.float64)
        p0 = np.asarray(self.p0)[np.searchsorted(self.p0_from, m, side="right")]
        p1 = np.asarray(self.p1)[np.searchsorted(self.p1_upto, m, side="left")]
        return np.where(np.isnan(m), np.nan, p0), np.where(np.isnan(m), np.nan, p1)

    def logits(self, margins: ArrayLike) -> Floats:
        """Log-odds of the merged probability, log(p1 / (1 - p0)), same shape as `margins`."""
        p0, p1 = self.pair(margins)
        return np.log(p1) - np.log1p(-p0)

    def formula(self) -> str:
        """The map as a reader writes it."""
        return f"p = p1 / (1 - p0 + p1), p0 in {len(self.p0)} steps, p1 in {len(self.p1)}"


CalibrationMap = Affine | Beta | Knots | Bins | VennAbers
_KINDS: dict[Method, type[Beta] | type[Knots] | type[Bins] | type[VennAbers]] = {
    "beta": Beta,
    "centred_isotonic": Knots,
    "isotonic": Knots,
    "histogram": Bins,
    "venn_abers": VennAbers,
}


def is_affine(method: str) -> bool:
    """Is this method told by a slope and an intercept alone?"""
    return method not in tuple(_KINDS)  # a value read from a file may not be hashable


def map_of(method: Method, parameters: Mapping[str, Any]) -> CalibrationMap:
    """The map that stored parameters describe (not for the affine methods).

    Raises:
        CalibrationError: unknown or missing parameters, values that are no numbers, or a map that reverses a ranking.
    """
    kind = _KINDS[method]
    names = {f.name for f in dataclasses.fields(kind)}
    check_keys(parameters, names, names, f"calibration: parameters of {method}")
    return kind(**{name: _frozen(value) for name, value in parameters.items()})


def parameters_of(fitted: CalibrationMap) -> dict[str, Any]:
    """JSON values of a map; `map_of` gives an equal map back, bit for bit."""
    return {name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(fitted).items()}


def beta_features(margins: ArrayLike) -> tuple[Floats, Floats]:
    """log(q) and -log(1 - q) for q = sigmoid(margin), without forming q: they never saturate."""
    m = np.asarray(margins, dtype=np.float64)
    both = np.log1p(np.exp(-np.abs(m)))
    return np.minimum(m, 0) - both, np.maximum(m, 0) + both


def log_odds(p: ArrayLike) -> Floats:
    """log(p / (1 - p)); infinite at 0 and 1."""
    p = np.asarray(p, dtype=np.float64)
    return np.log(p) - np.log1p(-p)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, (list, tuple)) else value


def _check_increasing(name: str, values: Any, *, strictly: bool) -> None:
    if not isinstance(values, tuple) or not all(finite(v) for v in values):
        raise CalibrationError(f"calibration: {name} must be a list of finite numbers, got {values!r}; fit it again")
    steps = np.diff(values)
    if np.any(steps <= 0 if strictly else steps < 0):
        raise CalibrationError(f"calibration: {name} must increase, got a step of {steps.min()}; fit it again")


def _check_p(p: Any, length: int) -> None:
    _check_increasing("p", p, strictly=False)
    if len(p) != length:
        raise CalibrationError(f"calibration: needs {length} values of p, got {len(p)}; fit it again")
    if p and not 0 < p[0] <= p[-1] < 1:
        raise CalibrationError(f"calibration: p must lie inside (0, 1), got {p[0]} to {p[-1]}; fit it again")
