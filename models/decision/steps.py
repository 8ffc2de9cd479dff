"""Calibrators that follow the data step by step: isotonic, histogram binning, Venn-Abers. A family of its own.

Frequencies of 0 and 1 are kept inside (0, 1), because no number of rows makes a thing certain: isotonic ones are
clipped to [1/(n+2), (n+1)/(n+2)], those of bins are (positives + 1) / (rows + 2), those of Venn-Abers need nothing.
Rows are counted by weight. Shapes: `_K` distinct margins, knots or steps.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core import CalibrationError
from .calibrator import Calibrator, Floats, log_odds
from .stored import finite

FEW_ROWS = 1_000  # below this, maps that follow every step of the data follow its noise too
N_BINS = 15
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Knots(Calibrator, ABC):
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

    def apply(self, margins: ArrayLike) -> Floats:
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
class CentredIsotonic(Knots):
    """Centred isotonic regression: one knot per isotonic level, at its mean margin.

    Between the outermost knots the map increases strictly, so it parts rows that isotonic regression ties. Levels of 0
    and 1 are treated as all others, and beyond the outermost knots the map is flat.
    """

    name = "centred_isotonic"
    description = (
        "one knot per isotonic level at its mean margin, straight lines between, flat beyond (Oron and Flournoy, "
        "2017); parts rows that `isotonic` ties"
    )
    extremes = "clipped to [1/(n+2), (n+1)/(n+2)]"
    fewest_rows = FEW_ROWS

    @classmethod
    def fit(cls, margins: Floats, labels: Floats, weights: Floats) -> tuple[CentredIsotonic, bool]:
        """Knots at the mean margins of the isotonic levels; no bound."""
        at_K, hits_K, rows_K = by_margin(margins, labels, weights)
        starts, p = _blocks(hits_K, rows_K)
        centres = np.add.reduceat(at_K * rows_K, starts) / np.add.reduceat(rows_K, starts)
        # Rounding must not carry a centre across a neighbouring block's margins.
        centres = np.clip(centres, at_K[starts], at_K[np.append(starts[1:], len(at_K)) - 1])
        return cls(tuple(centres.tolist()), tuple(_inside(p, np.sum(rows_K)).tolist())), False


@dataclass(frozen=True)
class Isotonic(Knots):
    """Isotonic regression: the non-decreasing map of least squared error, straight between rows (Zadrozny, 2002)."""

    name = "isotonic"
    description = "isotonic regression, straight lines between rows, flat beyond"
    extremes = "clipped likewise"
    fewest_rows = FEW_ROWS
    ties_margins = True

    @classmethod
    def fit(cls, margins: Floats, labels: Floats, weights: Floats) -> tuple[Isotonic, bool]:
        """Knots at both ends of each isotonic level; no bound."""
        at_K, hits_K, rows_K = by_margin(margins, labels, weights)
        starts, p = _blocks(hits_K, rows_K)
        ends = np.append(starts[1:], len(at_K)) - 1
        p = _inside(p, np.sum(rows_K))
        two = ends > starts  # a block of one margin is one knot
        places = np.concatenate([at_K[starts], at_K[ends[two]]])
        order = np.argsort(places)
        return cls(tuple(places[order].tolist()), tuple(np.concatenate([p, p[two]])[order].tolist())), False


@dataclass(frozen=True)
class Histogram(Calibrator):
    """Histogram binning (Zadrozny and Elkan, 2001): one p per bin of margins.

    Attributes:
        edges: between bins, (K-1,), increasing; a margin on an edge belongs to the bin above.
        p: per bin, (K,), non-decreasing, inside (0, 1).
    """

    name = "histogram"
    description = (
        f"{N_BINS} bins of equal mass, equal margins never parted, neighbours that would reverse the ranking pooled"
    )
    extremes = "(positives + 1) / (rows + 2)"
    fewest_rows = FEW_ROWS
    ties_margins = True

    edges: tuple[float, ...]
    p: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse edges out of order and certainties."""
        _check_increasing("edges", self.edges, strictly=True)
        _check_p(self.p, len(self.edges) + 1)

    @classmethod
    def fit(cls, margins: Floats, labels: Floats, weights: Floats, n_bins: int = N_BINS) -> tuple[Histogram, bool]:
        """Bins of equal mass with Laplace's (positives + 1) / (rows + 2); no bound.

        Equal margins are never parted: each goes where the middle of its rows falls. Edges lie midway between margins.
        Neighbouring bins that would reverse the ranking are pooled, so there may be fewer than `n_bins`.
        """
        at_K, hits_K, rows_K = by_margin(margins, labels, weights)
        middle_K = np.cumsum(rows_K) - rows_K / 2
        bin_K = np.floor(n_bins * middle_K / np.sum(rows_K))
        starts = np.flatnonzero(np.diff(bin_K, prepend=-1))
        hits, rows = np.add.reduceat(hits_K, starts), np.add.reduceat(rows_K, starts)
        pooled: list[tuple[int, float, float]] = []
        for start, hit, row in zip(starts.tolist(), hits, rows, strict=True):
            while pooled and (pooled[-1][1] + 1) / (pooled[-1][2] + 2) > (hit + 1) / (row + 2):
                start, hit, row = pooled[-1][0], hit + pooled[-1][1], row + pooled[-1][2]
                pooled.pop()
            pooled.append((start, hit, row))
        upper = at_K[[start for start, _, _ in pooled[1:]]]
        lower = at_K[[start - 1 for start, _, _ in pooled[1:]]]
        middle = lower + (upper - lower) / 2
        edges = np.where(middle > lower, middle, upper)  # neighbouring floats have nothing between them
        return cls(tuple(edges.tolist()), tuple(float((hit + 1) / (row + 2)) for _, hit, row in pooled)), False

    def apply(self, margins: ArrayLike) -> Floats:
        """Calibrated log-odds, same shape as `margins`."""
        m = np.asarray(margins, dtype=np.float64)
        p = np.asarray(self.p)[np.searchsorted(self.edges, m, side="right")]
        return log_odds(np.where(np.isnan(m), np.nan, p))

    def formula(self) -> str:
        """The map as a reader writes it."""
        return f"p of {len(self.p)} bins of the margin"


@dataclass(frozen=True)
class VennAbers(Calibrator):
    """Inductive Venn-Abers prediction (Vovk and Petej, 2014): two probabilities, one of which is right.

    p0 is what isotonic regression gives the margin when the row itself is added with label 0, p1 with label 1. Both are
    step functions of the margin, stored where they change. The merged probability p1 / (1 - p0 + p1) is the minimax one
    under log-loss (section 4 there). It lies inside (0, 1), however few rows there are.

    Attributes:
        p0_from, p0: p0[i] holds for margins >= p0_from[i - 1] and below p0_from[i]; (K-1,) and (K,).
        p1_upto, p1: p1[i] holds for margins > p1_upto[i - 1] and up to p1_upto[i]; (K-1,) and (K,).
    """

    name = "venn_abers"
    description = (
        "inductive Venn-Abers (Vovk and Petej, 2014): p1 / (1 − p0 + p1); `calibration.map.pair(margins)` gives "
        "(p0, p1)"
    )
    fewest_rows = FEW_ROWS
    ties_margins = True

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

    @classmethod
    def fit(cls, margins: Floats, labels: Floats, weights: Floats) -> tuple[VennAbers, bool]:
        """Isotonic fits with the row itself added, once with each label; no bound.

        A row between two margins is, with label 1, pooled with the margin above it; with label 0, with the margin
        below: so the values at the margins tell the map everywhere. Beyond the last margin label 1 gives p1 = 1, before
        the first one label 0 gives p0 = 0.
        """
        at_K, hits_K, rows_K = by_margin(margins, labels, weights)
        first_K, last_K = _prefix_blocks(hits_K, rows_K), _suffix_blocks(hits_K, rows_K)
        p0_K = np.maximum.accumulate(_with_row(hits_K, rows_K, first_K, last_K, label=0))
        p1_K = np.maximum.accumulate(_with_row(hits_K, rows_K, first_K, last_K, label=1))
        p0, p1 = np.append(0.0, p0_K), np.append(np.minimum(p1_K, 1.0), 1.0)  # sums of weights are rounded
        changes0, changes1 = np.flatnonzero(np.diff(p0)), np.flatnonzero(np.diff(p1))
        return cls(
            p0_from=tuple(at_K[changes0].tolist()),
            p0=(0.0, *p0[changes0 + 1].tolist()),
            p1_upto=tuple(at_K[changes1].tolist()),
            p1=(*p1[changes1].tolist(), 1.0),
        ), False

    def pair(self, margins: ArrayLike) -> tuple[Floats, Floats]:
        """(p0, p1), each of the shape of `margins`; NaN stays NaN."""
        m = np.asarray(margins, dtype=np.float64)
        p0 = np.asarray(self.p0)[np.searchsorted(self.p0_from, m, side="right")]
        p1 = np.asarray(self.p1)[np.searchsorted(self.p1_upto, m, side="left")]
        return np.where(np.isnan(m), np.nan, p0), np.where(np.isnan(m), np.nan, p1)

    def apply(self, margins: ArrayLike) -> Floats:
        """Log-odds of the merged probability, log(p1 / (1 - p0)), same shape as `margins`."""
        p0, p1 = self.pair(margins)
        return np.log(p1) - np.log1p(-p0)

    def formula(self) -> str:
        """The map as a reader writes it."""
        return f"p = p1 / (1 - p0 + p1), p0 in {len(self.p0)} steps, p1 in {len(self.p1)}"


def by_margin(margins: Floats, labels: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """(distinct margins ascending, supported rows, rows) at each, counted by weight, each (K,)."""
    at_K, which = np.unique(margins, return_inverse=True)
    rows_K = np.bincount(which, weights).astype(np.float64)
    return at_K, np.bincount(which, weights * labels).astype(np.float64), rows_K


def _blocks(hits_K: Floats, rows_K: Floats) -> tuple[Indices, Floats]:
    """(first index, frequency) of each level of the isotonic fit, frequencies strictly increasing."""
    from scipy.optimize import isotonic_regression

    starts = isotonic_regression(hits_K / rows_K, weights=rows_K).blocks[:-1].astype(np.int64)
    while True:  # SciPy may leave neighbouring blocks of equal level apart
        p = np.add.reduceat(hits_K, starts) / np.add.reduceat(rows_K, starts)
        rises = np.diff(p, prepend=-1) > 0
        if rises.all():
            return starts, p
        starts = starts[rises]


def _inside(p: Floats, n: float) -> Floats:
    return np.clip(p, 1 / (n + 2), (n + 1) / (n + 2))


def _prefix_blocks(hits_K: Floats, rows_K: Floats) -> Indices:
    """first[j]: where the last level of the isotonic fit to margins 0..j begins, (K,)."""
    first, hits, rows = list(range(len(hits_K))), hits_K.tolist(), rows_K.tolist()
    for j in range(len(first)):
        before = j - 1
        while before >= 0 and hits[before] * rows[j] >= hits[j] * rows[before]:
            hits[j], rows[j], first[j] = hits[j] + hits[before], rows[j] + rows[before], first[before]
            before = first[j] - 1
    return np.array(first)


def _suffix_blocks(hits_K: Floats, rows_K: Floats) -> Indices:
    """last[j]: where the first level of the isotonic fit to margins j.. ends, (K,)."""
    misses_K = (rows_K - hits_K)[::-1]  # read from the end, with labels swapped, falling becomes rising
    return len(hits_K) - 1 - _prefix_blocks(misses_K, rows_K[::-1])[::-1]


def _with_row(hits_K: Floats, rows_K: Floats, first_K: Indices, last_K: Indices, label: int) -> Floats:
    """Level at each margin of the isotonic fit with one more row of `label` there, (K,).

    The fits to what lies below and above are known; the margin's own level takes in neighbouring levels for as long as
    one of them is out of order. The order of pooling does not matter to the result.
    """
    k = np.arange(len(hits_K))
    hits_to, rows_to = np.append(0.0, np.cumsum(hits_K)), np.append(0.0, np.cumsum(rows_K))

    def level(start: Indices, stop: Indices, extra: float, extra_rows: float) -> Floats:
        return (hits_to[stop] - hits_to[start] + extra) / (rows_to[stop] - rows_to[start] + extra_rows)

    start, stop = k.copy(), k + 1  # this margin's level covers start..stop-1
    while True:
        own = level(start, stop, label, 1)
        below, above = np.flatnonzero(start > 0), np.flatnonzero(stop < len(k))
        below_start, above_stop = first_K[start[below] - 1], last_K[stop[above]] + 1
        down = level(below_start, start[below], 0, 0) > own[below]
        up = level(stop[above], above_stop, 0, 0) < own[above]
        if not (down.any() or up.any()):
            return own
        start[below[down]], stop[above[up]] = below_start[down], above_stop[up]


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
