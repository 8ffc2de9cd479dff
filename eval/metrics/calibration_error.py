"""How far probabilities are from frequencies: Brier score, log-loss, calibration errors, their parts and their chance.

p is P(supported), y is 1 or 0. A bin b holds n_b of n rows, with mean probability p_b and share of positives y_b.
- *event* errors compare p with y; *top-label* errors compare max(p, 1 - p) with whether the likelier label is right;
- *equal width*: edges k / n_bins as exact decimals, bins [lo, hi), the last one closed;
- *equal mass*: edges at quantiles of p, equal values never parted, so bins may be fewer and of unequal count.
Bins beyond that hold no row count for nothing. Every error is biased upwards at finite n: see `noise_floor`.

The smooth calibration error (Blasiok and Nakkiran, 2023) has no bins, and its smoothing width is chosen by the data.
With residuals r_i = y_i - p_i and, as kernel K, the Gaussian of width sigma reflected at 0 and 1, smECE(sigma) is the
integral over t in [0, 1] of |1/n sum of K(t, p_i) r_i|. It falls as sigma grows; the smooth error is its value where it
equals sigma. Reflecting makes the cosines of [0, 1] the kernel's eigenfunctions, so smoothing is a factor
exp(-(pi k sigma)^2 / 2) on the k-th cosine coefficient: one transform serves every sigma.

The decompositions part the Brier score into calibration, discrimination and uncertainty. `noise_floor` and
`spiegelhalter` say whether an error could be chance: what a perfectly calibrated model would show. Given labels and
groups the floor keeps the dependence within groups that the residuals show. `spiegelhalter` takes rows as independent:
for claims about one video its true p value is larger.

Shapes: (n,) columns; the functions with an underscore also take labels of shape (draws, n) and give shape (draws,).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import dct, idct
from scipy.special import ndtr
from sklearn.isotonic import IsotonicRegression

from ...models.decision import divide
from .base import Floats, checked

Binning = Literal["width", "mass"]
N_BINS = 15


class Bins(NamedTuple):
    """Rows, mean probability and share of positives per bin, shape (n_bins,); means are NaN in empty bins."""

    count: NDArray[np.int64]
    mean_p: Floats
    mean_y: Floats


def brier(p: ArrayLike, labels: ArrayLike) -> float:
    """Mean of (p - y)^2 (the one-class form, half of the two-class one). NaN for n = 0."""
    p, labels = checked(p, labels, probabilities=True)
    return float(divide(np.sum((p - labels) ** 2), len(p)))


def nll(margins: ArrayLike, labels: ArrayLike) -> float:
    """Mean log-loss in nats, from log-odds rather than probabilities so that it never saturates. NaN for n = 0."""
    margins, labels = checked(margins, labels)
    return float(divide(np.sum(np.logaddexp(0, np.where(labels == 1, -margins, margins))), len(margins)))


def bin_index(p: Floats, n_bins: int = N_BINS, binning: Binning = "width") -> NDArray[np.int64]:
    """The bin of each row, shape (n,), from 0 to n_bins - 1.

    Edge k lies at k / n_bins (`width`), or at the value on position round(k n / n_bins) of p in ascending order
    (`mass`); a row on an edge belongs to the bin above.
    """
    steps = np.arange(1, n_bins)
    if binning == "mass":
        edges = np.sort(p)[np.round(steps * len(p) / n_bins).astype(int).clip(max=len(p) - 1)] if len(p) else p
    else:
        edges = steps / n_bins  # not linspace, whose third of ten edges is a little above 0.3
    return np.searchsorted(edges, p, side="right")


def reliability_bins(p: ArrayLike, labels: ArrayLike, n_bins: int = N_BINS, binning: Binning = "width") -> Bins:
    """Count, mean probability and share of positives in each of `n_bins` bins."""
    p, labels = checked(p, labels, probabilities=True)
    count, sum_p, sum_y = _sums(p, labels, n_bins, binning)
    return Bins(count, divide(sum_p, count), divide(sum_y, count))


def ece_event(p: ArrayLike, labels: ArrayLike, n_bins: int = N_BINS, binning: Binning = "width") -> float:
    """Expected calibration error of P(supported): sum over bins of n_b / n |y_b - p_b| (Naeini et al., 2015).

    The event version: it compares P(y = 1) with y, not top-label confidence with correctness. NaN for n = 0.
    """
    return float(_ece(*checked(p, labels, probabilities=True), n_bins, binning))


def ece_top_label(p: ArrayLike, labels: ArrayLike, n_bins: int = N_BINS, binning: Binning = "width") -> float:
    """Expected calibration error of the confidence max(p, 1 - p) in the likelier label (Guo et al., 2017, eq. 3).

    Equal-width bins divide [0, 1], of which confidences use the upper half. p = 0.5 says supported. NaN for n = 0.
    """
    return float(_ece_top_label(*checked(p, labels, probabilities=True), n_bins, binning))


def ece_classwise(p: ArrayLike, labels: ArrayLike, n_bins: int = N_BINS, binning: Binning = "width") -> float:
    """Mean over both classes of the event error of that class (classwise-ECE of Kull et al., 2019). NaN for n = 0.

    The classes mirror each other: this differs from `ece_event` only by bins that are not symmetric about 0.5 and by
    rows exactly on an edge.
    """
    return float(_ece_classwise(*checked(p, labels, probabilities=True), n_bins, binning))


def mce(p: ArrayLike, labels: ArrayLike, n_bins: int = N_BINS, binning: Binning = "width", min_count: int = 1) -> float:
    """Maximum calibration error: the largest |y_b - p_b| of bins of at least `min_count` rows; NaN without such a bin.

    A bin of few rows dominates it; equal-mass bins or a `min_count` of 10 or more tell more.
    """
    return float(_mce(*checked(p, labels, probabilities=True), n_bins, binning, min_count))


def ece_debiased(p: ArrayLike, labels: ArrayLike, n_bins: int = N_BINS, binning: Binning = "width") -> float:
    """`ece_event` less the bias that chance in each bin's labels gives it (Kumar et al., 2019). NaN for n = 0.

    With y_b' normal around y_b with variance y_b (1 - y_b) / n_b, the bias is estimated as E sum n_b / n |y_b' - p_b|
    less the error itself; the expectation is taken in closed form (folded normal) rather than by resampling. May be
    slightly negative. Of a calibrated model it removes nearly half the bias (`squared_ce_debiased` removes all of its
    own); bins whose labels are all equal are not corrected.
    """
    return float(_ece_debiased(*checked(p, labels, probabilities=True), n_bins, binning))


def squared_ce_debiased(p: ArrayLike, labels: ArrayLike, n_bins: int = N_BINS, binning: Binning = "mass") -> float:
    """Squared calibration error less its bias: sum of n_b / n ((y_b - p_b)^2 - y_b (1 - y_b) / (n_b - 1)).

    Unbiased per bin (Broecker, 2012; Kumar et al., 2019), so it may be negative. Bins of one row, in
    which the variance is unknown, contribute 0. NaN for n = 0. Its root is `rms_ce_debiased`.
    """
    return float(_squared_ce_debiased(*checked(p, labels, probabilities=True), n_bins, binning))


def rms_ce_debiased(p: ArrayLike, labels: ArrayLike, n_bins: int = N_BINS, binning: Binning = "mass") -> float:
    """Root of `squared_ce_debiased`, 0 where that is negative. NaN for n = 0."""
    return float(np.sqrt(np.maximum(squared_ce_debiased(p, labels, n_bins, binning), 0)))


def sum_by_bin(index: NDArray[np.int64], values: NDArray, n_bins: int) -> Floats:
    """Sums of `values` of shape (n,) or (draws, n) over the rows of each bin, shape (n_bins,) or (draws, n_bins)."""
    if values.ndim == 1:
        return np.bincount(index, values, minlength=n_bins).astype(np.float64)
    if np.any(index[1:] < index[:-1]):
        order = np.argsort(index, kind="stable")
        index, values = index[order], values[:, order]
    filled, starts = np.unique(index, return_index=True)
    sums = np.zeros((len(values), n_bins))
    if len(index):
        kind = np.int64 if values.dtype == bool else np.float64  # whole numbers add up several times faster
        sums[:, filled] = np.add.reduceat(values, starts, axis=1, dtype=kind)
    return sums


def _sums(p: Floats, y: NDArray, n_bins: int, binning: Binning) -> tuple[NDArray[np.int64], Floats, Floats]:
    index = bin_index(p, n_bins, binning)
    return np.bincount(index, minlength=n_bins), sum_by_bin(index, p, n_bins), sum_by_bin(index, y, n_bins)


def _gaps(p: Floats, y: NDArray, n_bins: int, binning: Binning) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Rows per bin, y_b - p_b and y_b, of the bins that hold rows."""
    count, sum_p, sum_y = _sums(p, y, n_bins, binning)
    some = count > 0
    count, sum_p, sum_y = count[some], sum_p[some], sum_y[..., some]
    return count, (sum_y - sum_p) / count, sum_y / count


def _mean(count: NDArray[np.int64], values: Floats) -> Floats:
    return divide(np.sum(count * values, axis=-1), np.sum(count))


def _ece(p: Floats, y: NDArray, n_bins: int = N_BINS, binning: Binning = "width") -> Floats:
    count, gap, _ = _gaps(p, y, n_bins, binning)
    return _mean(count, np.abs(gap))


def _ece_top_label(p: Floats, y: NDArray, n_bins: int = N_BINS, binning: Binning = "width") -> Floats:
    hits = y == (p >= 0.5) if y.dtype == bool else np.where(p >= 0.5, y, 1 - y)
    return _ece(np.maximum(p, 1 - p), hits, n_bins, binning)


def _ece_classwise(p: Floats, y: NDArray, n_bins: int = N_BINS, binning: Binning = "width") -> Floats:
    return (_ece(p, y, n_bins, binning) + _ece(1 - p, ~y if y.dtype == bool else 1 - y, n_bins, binning)) / 2


def _mce(p: Floats, y: NDArray, n_bins: int = N_BINS, binning: Binning = "width", min_count: int = 1) -> Floats:
    count, gap, _ = _gaps(p, y, n_bins, binning)
    large = np.abs(gap[..., count >= min_count])
    return large.max(axis=-1) if large.shape[-1] else np.full(large.shape[:-1], np.nan)


def _ece_debiased(p: Floats, y: NDArray, n_bins: int = N_BINS, binning: Binning = "width") -> Floats:
    count, gap, mean_y = _gaps(p, y, n_bins, binning)
    spread = np.sqrt(np.maximum(mean_y * (1 - mean_y), 0) / count)
    size = np.abs(gap)
    scaled = np.divide(size, spread, out=np.full(size.shape, np.inf), where=spread > 0)
    folded = spread * np.sqrt(2 / np.pi) * np.exp(-(scaled**2) / 2) + size * (1 - 2 * ndtr(-scaled))
    return _mean(count, 2 * size - folded)


def _squared_ce_debiased(p: Floats, y: NDArray, n_bins: int = N_BINS, binning: Binning = "mass") -> Floats:
    count, gap, mean_y = _gaps(p, y, n_bins, binning)
    unbiased = gap**2 - mean_y * (1 - mean_y) / np.maximum(count - 1, 1)
    return _mean(count, np.where(count > 1, unbiased, 0))


N_CELLS = 4096  # residuals are shared between the two nearest cell centres
_N_HALVINGS = 24


def smooth_ece(p: ArrayLike, labels: ArrayLike) -> float:
    """The smooth calibration error (smECE), within about 1 / 4096. NaN for n = 0.

    Between 0 and 1 like a binned error, and what `relplot` computes, which stops its search for sigma earlier.
    """
    return float(_smooth_ece(*checked(p, labels, probabilities=True)))


def smooth_ece_at(p: ArrayLike, labels: ArrayLike, sigma: float) -> float:
    """smECE(sigma) at a given smoothing width. NaN for n = 0."""
    p, labels = checked(p, labels, probabilities=True)
    return float(_smoothed(_coefficients(p, labels), np.asarray(sigma))) if len(p) else np.nan


def _smooth_ece(p: Floats, y: NDArray) -> Floats:
    """Labels of shape (n,) or (draws, n): shape () or (draws,)."""
    if not len(p):
        return np.full(y.shape[:-1], np.nan)
    coefficients = _coefficients(p, y)
    low, high = np.zeros(y.shape[:-1]), np.ones(y.shape[:-1])
    for _ in range(_N_HALVINGS):
        middle = (low + high) / 2
        is_below = _smoothed(coefficients, middle) > middle
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return (low + high) / 2


def _coefficients(p: Floats, y: NDArray) -> Floats:
    """Cosine coefficients of the residuals' mass on the cells, shape (..., cells)."""
    residuals = (y - p) / len(p)
    place = (p * N_CELLS - 0.5).clip(0, N_CELLS - 1)  # beyond the outer centres lies their own mirror image
    lower = np.floor(place).astype(np.int64).clip(max=N_CELLS - 2)
    share = place - lower
    mass = sum_by_bin(lower, residuals * (1 - share), N_CELLS) + sum_by_bin(lower + 1, residuals * share, N_CELLS)
    return np.asarray(dct(mass, axis=-1))


def _smoothed(coefficients: Floats, sigma: Floats) -> Floats:
    factors = np.exp(-((np.pi * np.arange(N_CELLS) * sigma[..., None]) ** 2) / 2)
    return np.sum(np.abs(np.asarray(idct(coefficients * factors, axis=-1))), axis=-1)


class Murphy(NamedTuple):
    """Parts with reliability - resolution + uncertainty + within_bin = the Brier score, exactly."""

    reliability: float
    resolution: float
    uncertainty: float
    within_bin: float


class Corp(NamedTuple):
    """Parts with miscalibration - discrimination + uncertainty = the Brier score, exactly; none is negative."""

    miscalibration: float
    discrimination: float
    uncertainty: float


def murphy_decomposition(p: ArrayLike, labels: ArrayLike, n_bins: int = N_BINS, binning: Binning = "width") -> Murphy:
    """Reliability, resolution and uncertainty over bins (Murphy, 1973), and what binning leaves over.

    reliability = sum n_b / n (p_b - y_b)^2, resolution = sum n_b / n (y_b - y)^2, uncertainty = y (1 - y). Murphy's
    three parts add up only if all p of a bin are equal; `within_bin`, the mean of (p - p_b)^2 - 2 (p - p_b)(y - y_b),
    makes up the rest (Stephenson et al., 2008). NaN for n = 0.
    """
    p, labels = checked(p, labels, probabilities=True)
    if not len(p):
        return Murphy(*[np.nan] * 4)
    bins = reliability_bins(p, labels, n_bins, binning)
    index = bin_index(p, n_bins, binning)
    mean_p, mean_y, rate = bins.mean_p[index], bins.mean_y[index], np.mean(labels)
    inside = (p - mean_p) ** 2 - 2 * (p - mean_p) * (labels - mean_y)
    parts = (np.mean((mean_p - mean_y) ** 2), np.mean((mean_y - rate) ** 2), rate * (1 - rate), np.mean(inside))
    return Murphy(*map(float, parts))


def corp_decomposition(p: ArrayLike, labels: ArrayLike) -> Corp:
    """Miscalibration, discrimination and uncertainty without bins (Dimitriadis, Gneiting and Jordan, 2021).

    The isotonic fit of the labels on p stands in for calibrated probabilities: miscalibration is what it would gain,
    discrimination what it gains over the bare positive rate. NaN for n = 0.
    """
    p, labels = checked(p, labels, probabilities=True)
    if not len(p):
        return Corp(*[np.nan] * 3)
    recalibrated = IsotonicRegression(y_min=0, y_max=1).fit_transform(p, labels)
    before, after, constant = (brier(q, labels) for q in (p, recalibrated, np.full(len(p), np.mean(labels))))
    return Corp(before - after, constant - after, constant)


Statistic = Callable[..., float]
_CELLS_AT_ONCE = 4_000_000  # labels held at once: draws x rows
_OF_DRAWS: dict[Statistic, Callable[..., Floats]] = {
    ece_event: _ece,
    ece_top_label: _ece_top_label,
    ece_classwise: _ece_classwise,
    mce: _mce,
    ece_debiased: _ece_debiased,
    squared_ce_debiased: _squared_ce_debiased,
    smooth_ece: _smooth_ece,
}


class NoiseFloor(NamedTuple):
    """What a perfectly calibrated model with these probabilities would show: mean, and the value 5% of draws exceed."""

    mean: float
    high: float
    n_draws: int


class CalibrationTest(NamedTuple):
    """A standard normal statistic and its two-sided p value."""

    z: float
    p_value: float


def noise_floor(
    p: ArrayLike,
    n_draws: int = 1_000,
    seed: int = 0,
    statistic: Statistic = ece_event,
    *,
    labels: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    **options: Any,
) -> NoiseFloor:
    """The statistic's mean and 95th percentile if the probabilities were calibrated.

    Rows that each stand alone get labels drawn as Bernoulli(p). Rows in groups get p plus their residual y - p, freed
    of its bin's mean (which is the miscalibration) and with one random sign for each group: so residuals of a group
    stay as dependent as they are (wild cluster bootstrap; Cameron, Gelbach and Miller, 2008).

    Args:
        p: probabilities, shape (n,).
        labels, groups: shape (n,); without them, or where no group has two rows, rows are independent and the labels
            that were observed play no part.
        seed: the same seed gives the same floor.
        statistic: takes (p, labels, **options); those of this module are computed for many
            draws at once, any other draw by draw.
        options: `n_bins`, `binning`, `min_count`.

    Returns:
        NaN for n = 0.
    """
    p, y = checked(p, np.zeros(np.shape(p)) if labels is None else labels, probabilities=True)
    order = np.argsort(p, kind="stable")  # sorted rows are binned without being moved
    p, y = p[order], y[order]
    if not len(p):
        return NoiseFloor(np.nan, np.nan, n_draws)
    rng, single = np.random.default_rng(seed), p.astype(np.float32)
    names, group = np.unique(np.arange(len(p)) if groups is None else np.asarray(groups)[order], return_inverse=True)
    clustered = labels is not None and len(names) < len(p)
    residual = _freed(p, y, group, options) if clustered else p
    at_once = max(1, _CELLS_AT_ONCE // len(p))
    values = []
    for start in range(0, n_draws, at_once):
        size = min(at_once, n_draws - start)
        if clustered:
            drawn = p + (2.0 * rng.integers(2, size=(size, len(names))) - 1)[:, group] * residual
        else:
            drawn = rng.random((size, len(p)), dtype=np.float32) < single
        values.append(_values(p, drawn, statistic, options))
    found = np.concatenate(values)
    return NoiseFloor(float(np.mean(found)), float(np.quantile(found, 0.95)), n_draws)


def _freed(p: Floats, y: Floats, group: NDArray[np.int64], options: dict[str, Any]) -> Floats:
    """Residuals less the mean of their bin over the other groups (their own, for a group alone in a bin)."""
    n_bins = options.get("n_bins", N_BINS)
    index, residual = bin_index(p, n_bins, options.get("binning", "width")), y - p
    count, total = np.bincount(index, minlength=n_bins), np.bincount(index, residual, minlength=n_bins)
    _, cell = np.unique(index * (group.max() + 1) + group, return_inverse=True)
    own, own_total = np.bincount(cell)[cell], np.bincount(cell, residual)[cell]
    others = divide(total[index] - own_total, count[index] - own)
    return residual - np.nan_to_num(others)


def spiegelhalter(p: ArrayLike, labels: ArrayLike) -> CalibrationTest:
    """Whether the Brier score is what calibrated probabilities would give (Spiegelhalter, 1986).

    z = sum (y - p)(1 - 2p) / sqrt(sum (1 - 2p)^2 p (1 - p)), standard normal if P(y = 1) = p and rows are independent.
    NaN where the variance is 0: no rows, or every p is 0, 1 or 0.5.
    """
    p, labels = checked(p, labels, probabilities=True)
    tilt = 1 - 2 * p
    z = float(divide(np.sum((labels - p) * tilt), np.sqrt(np.sum(tilt**2 * p * (1 - p)))))
    return CalibrationTest(z, float(2 * ndtr(-abs(z))))


def _values(p: Floats, labels: NDArray, statistic: Statistic, options: dict[str, Any]) -> Floats:
    """Of labels of shape (draws, n): shape (draws,)."""
    of_draws = _OF_DRAWS.get(statistic)
    if of_draws is None:
        return np.array([statistic(p, row, **options) for row in labels])
    return of_draws(p, labels, **options)
