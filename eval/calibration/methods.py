"""One way to fit every map of `models/decision/calibration_maps.py`, by the name of its method.

Fitting the maps of a few parameters: temperature, Platt, beta. Each is one convex problem.

Arguments of every fit: margins, labels (0 or 1) and weights, each (n,), checked. It returns the map and whether it
stopped at the edge of its range, where the labels no longer say how steep it should be.

Fitting the maps that follow the data step by step: isotonic, centred isotonic, histogram binning, Venn-Abers.

Arguments of every fit: margins, labels (0 or 1) and weights, each (n,), checked. Frequencies of 0 and 1 are kept inside
(0, 1), because no number of rows makes a thing certain: isotonic ones are clipped to [1/(n+2), (n+1)/(n+2)], those of
bins are (positives + 1) / (rows + 2), those of Venn-Abers need nothing. Rows are counted by weight. Shapes: `_K`
distinct margins.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, isotonic_regression, minimize

from ...core import CalibrationError
from ...models.decision import (
    METHODS,
    Affine,
    Beta,
    Bins,
    CalibrationMap,
    Knots,
    Method,
    VennAbers,
    beta_features,
    sigmoid,
)
from ..metrics import N_BINS, Floats

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


Indices = NDArray[np.int64]


def fit_isotonic(margins: Floats, labels: Floats, weights: Floats) -> Knots:
    """Isotonic regression: the non-decreasing map of least squared error, straight between rows (Zadrozny, 2002)."""
    at_K, hits_K, rows_K = by_margin(margins, labels, weights)
    starts, p = _blocks(hits_K, rows_K)
    ends = np.append(starts[1:], len(at_K)) - 1
    p = _inside(p, np.sum(rows_K))
    two = ends > starts  # a block of one margin is one knot
    places = np.concatenate([at_K[starts], at_K[ends[two]]])
    order = np.argsort(places)
    return Knots(tuple(places[order].tolist()), tuple(np.concatenate([p, p[two]])[order].tolist()))


def fit_centred_isotonic(margins: Floats, labels: Floats, weights: Floats) -> Knots:
    """Centred isotonic regression (Oron and Flournoy, 2017): one knot per isotonic level, at its mean margin.

    Between the outermost knots the map increases strictly, so it parts rows that isotonic regression ties. Levels of 0
    and 1 are treated as all others, and beyond the outermost knots the map is flat.
    """
    at_K, hits_K, rows_K = by_margin(margins, labels, weights)
    starts, p = _blocks(hits_K, rows_K)
    centres = np.add.reduceat(at_K * rows_K, starts) / np.add.reduceat(rows_K, starts)
    # Rounding must not carry a centre across a neighbouring block's margins.
    centres = np.clip(centres, at_K[starts], at_K[np.append(starts[1:], len(at_K)) - 1])
    return Knots(tuple(centres.tolist()), tuple(_inside(p, np.sum(rows_K)).tolist()))


def fit_histogram(margins: Floats, labels: Floats, weights: Floats, n_bins: int = N_BINS) -> Bins:
    """Histogram binning (Zadrozny and Elkan, 2001) with bins of equal mass and Laplace's (positives + 1) / (rows + 2).

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
    return Bins(tuple(edges.tolist()), tuple(float((hit + 1) / (row + 2)) for _, hit, row in pooled))


def fit_venn_abers(margins: Floats, labels: Floats, weights: Floats) -> VennAbers:
    """Inductive Venn-Abers (Vovk and Petej, 2014): isotonic fits with the row itself added, once with each label.

    A row between two margins is, with label 1, pooled with the margin above it; with label 0, with the margin below:
    so the values at the margins tell the map everywhere. Beyond the last margin label 1 gives p1 = 1, before the first
    one label 0 gives p0 = 0.
    """
    at_K, hits_K, rows_K = by_margin(margins, labels, weights)
    first_K, last_K = _prefix_blocks(hits_K, rows_K), _suffix_blocks(hits_K, rows_K)
    p0_K = np.maximum.accumulate(_with_row(hits_K, rows_K, first_K, last_K, label=0))
    p1_K = np.maximum.accumulate(_with_row(hits_K, rows_K, first_K, last_K, label=1))
    p0, p1 = np.append(0.0, p0_K), np.append(np.minimum(p1_K, 1.0), 1.0)  # sums of weights are rounded
    changes0, changes1 = np.flatnonzero(np.diff(p0)), np.flatnonzero(np.diff(p1))
    return VennAbers(
        p0_from=tuple(at_K[changes0].tolist()),
        p0=(0.0, *p0[changes0 + 1].tolist()),
        p1_upto=tuple(at_K[changes1].tolist()),
        p1=(*p1[changes1].tolist(), 1.0),
    )


def by_margin(margins: Floats, labels: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """(distinct margins ascending, supported rows, rows) at each, counted by weight, each (K,)."""
    at_K, which = np.unique(margins, return_inverse=True)
    rows_K = np.bincount(which, weights).astype(np.float64)
    return at_K, np.bincount(which, weights * labels).astype(np.float64), rows_K


def _blocks(hits_K: Floats, rows_K: Floats) -> tuple[Indices, Floats]:
    """(first index, frequency) of each level of the isotonic fit, frequencies strictly increasing."""
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


_PARAMETRIC: dict[str, Callable[[Floats, Floats, Floats], tuple[CalibrationMap, bool]]] = {
    "temperature": fit_temperature,
    "platt": fit_platt,
    "beta": fit_beta,
}
_STEPS: dict[str, Callable[[Floats, Floats, Floats], CalibrationMap]] = {
    "centred_isotonic": fit_centred_isotonic,
    "isotonic": fit_isotonic,
    "histogram": fit_histogram,
    "venn_abers": fit_venn_abers,
}


def fit_map(method: Method, margins: Floats, labels: Floats, weights: Floats) -> tuple[CalibrationMap, bool]:
    """The fitted map, and whether its slope stopped at its bound.

    Args:
        margins: (n,), finite.
        labels: 1 or 0, (n,), both present.
        weights: how often each row counts, (n,), > 0.

    Raises:
        CalibrationError: an unknown method.
    """
    if method == "none":
        return Affine(1.0, 0.0), False
    if method in _PARAMETRIC:
        return _PARAMETRIC[method](margins, labels, weights)
    if method in _STEPS:
        return _STEPS[method](margins, labels, weights), False
    raise CalibrationError(f"calibration: unknown method, got {method!r}; use 'auto' or one of {list(METHODS)}")
