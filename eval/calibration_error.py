"""How far probabilities are from frequencies: Brier score, log-loss and the calibration errors over bins.

p is P(supported), y is 1 or 0. A bin b holds n_b of n rows, with mean probability p_b and share of positives y_b.
- *event* errors compare p with y; *top-label* errors compare max(p, 1 - p) with whether the likelier label is right;
- *equal width*: edges k / n_bins as exact decimals, bins [lo, hi), the last one closed;
- *equal mass*: edges at quantiles of p, equal values never parted, so bins may be fewer and of unequal count.
Bins beyond that hold no row count for nothing. Every error is biased upwards at finite n: see `noise_floor.py`.

Shapes: (n,) columns; the functions with an underscore also take labels of shape (draws, n) and give shape (draws,).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from .checks import Floats, checked_probabilities, checked_scores, divide

Binning = Literal["width", "mass"]
N_BINS = 15


class Bins(NamedTuple):
    """Rows, mean probability and share of positives per bin, shape (n_bins,); means are NaN in empty bins."""

    count: NDArray[np.int64]
    mean_p: Floats
    mean_y: Floats


def brier(p: ArrayLike, labels: ArrayLike) -> float:
    """Mean of (p - y)^2 (the one-class form, half of the two-class one). NaN for n = 0."""
    p, labels = checked_probabilities(p, labels)
    return float(divide(np.sum((p - labels) ** 2), len(p)))


def nll(margins: ArrayLike, labels: ArrayLike) -> float:
    """Mean log-loss in nats, from log-odds rather than probabilities so that it never saturates. NaN for n = 0."""
    margins, labels = checked_scores(margins, labels)
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
    p, labels = checked_probabilities(p, labels)
    count, sum_p, sum_y = _sums(p, labels, n_bins, binning)
    return Bins(count, divide(sum_p, count), divide(sum_y, count))


def ece_event(p: ArrayLike, labels: ArrayLike, n_bins: int = N_BINS, binning: Binning = "width") -> float:
    """Expected calibration error of P(supported): sum over bins of n_b / n |y_b - p_b| (Naeini et al., 2015).

    The event version: it compares P(y = 1) with y, not top-label confidence with correctness. NaN for n = 0.
    """
    return float(_ece(*checked_probabilities(p, labels), n_bins, binning))


def ece_top_label(p: ArrayLike, labels: ArrayLike, n_bins: int = N_BINS, binning: Binning = "width") -> float:
    """Expected calibration error of the confidence max(p, 1 - p) in the likelier label (Guo et al., 2017, eq. 3).

    Equal-width bins divide [0, 1], of which confidences use the upper half. p = 0.5 says supported. NaN for n = 0.
    """
    return float(_ece_top_label(*checked_probabilities(p, labels), n_bins, binning))


def ece_classwise(p: ArrayLike, labels: ArrayLike, n_bins: int = N_BINS, binning: Binning = "width") -> float:
    """Mean over both classes of the event error of that class (classwise-ECE of Kull et al., 2019). NaN for n = 0.

    The classes mirror each other: this differs from `ece_event` only by bins that are not symmetric about 0.5 and by
    rows exactly on an edge.
    """
    return float(_ece_classwise(*checked_probabilities(p, labels), n_bins, binning))


def mce(p: ArrayLike, labels: ArrayLike, n_bins: int = N_BINS, binning: Binning = "width", min_count: int = 1) -> float:
    """Maximum calibration error: the largest |y_b - p_b| of bins of at least `min_count` rows; NaN without such a bin.

    A bin of few rows dominates it; equal-mass bins or a `min_count` of 10 or more tell more.
    """
    return float(_mce(*checked_probabilities(p, labels), n_bins, binning, min_count))


def ece_debiased(p: ArrayLike, labels: ArrayLike, n_bins: int = N_BINS, binning: Binning = "width") -> float:
    """`ece_event` less the bias that chance in each bin's labels gives it (Kumar et al., 2019). NaN for n = 0.

    With y_b' normal around y_b with variance y_b (1 - y_b) / n_b, the bias is estimated as E sum n_b / n |y_b' - p_b|
    less the error itself; the expectation is taken in closed form (folded normal) rather than by resampling. May be
    slightly negative. Of a calibrated model it removes nearly half the bias (`squared_ce_debiased` removes all of its
    own); bins whose labels are all equal are not corrected.
    """
    return float(_ece_debiased(*checked_probabilities(p, labels), n_bins, binning))


def squared_ce_debiased(p: ArrayLike, labels: ArrayLike, n_bins: int = N_BINS, binning: Binning = "mass") -> float:
    """Squared calibration error less its bias: sum of n_b / n ((y_b - p_b)^2 - y_b (1 - y_b) / (n_b - 1)).

    Unbiased per bin (Broecker, 2012; Kumar et al., 2019), so it may be negative. Bins of one row, in
    which the variance is unknown, contribute 0. NaN for n = 0. Its root is `rms_ce_debiased`.
    """
    return float(_squared_ce_debiased(*checked_probabilities(p, labels), n_bins, binning))


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
    found, starts = np.unique(index, return_index=True)
    sums = np.zeros((len(values), n_bins))
    if len(index):
        kind = np.int64 if values.dtype == bool else np.float64  # whole numbers add up several times faster
        sums[:, found] = np.add.reduceat(values, starts, axis=1, dtype=kind)
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
    return _ece(np.maximum(p, 1 - p), y == (p >= 0.5), n_bins, binning)


def _ece_classwise(p: Floats, y: NDArray, n_bins: int = N_BINS, binning: Binning = "width") -> Floats:
    return (_ece(p, y, n_bins, binning) + _ece(1 - p, y == 0, n_bins, binning)) / 2


def _mce(p: Floats, y: NDArray, n_bins: int = N_BINS, binning: Binning = "width", min_count: int = 1) -> Floats:
    count, gap, _ = _gaps(p, y, n_bins, binning)
    large = np.abs(gap[..., count >= min_count])
    return large.max(axis=-1) if large.shape[-1] else np.full(large.shape[:-1], np.nan)


def _ece_debiased(p: Floats, y: NDArray, n_bins: int = N_BINS, binning: Binning = "width") -> Floats:
    count, gap, mean_y = _gaps(p, y, n_bins, binning)
    spread = np.sqrt(mean_y * (1 - mean_y) / count)
    size = np.abs(gap)
    scaled = np.divide(size, spread, out=np.full(size.shape, np.inf), where=spread > 0)
    folded = spread * np.sqrt(2 / np.pi) * np.exp(-(scaled**2) / 2) + size * (1 - 2 * ndtr(-scaled))
    return _mean(count, 2 * size - folded)


def _squared_ce_debiased(p: Floats, y: NDArray, n_bins: int = N_BINS, binning: Binning = "mass") -> Floats:
    count, gap, mean_y = _gaps(p, y, n_bins, binning)
    unbiased = gap**2 - mean_y * (1 - mean_y) / np.maximum(count - 1, 1)
    return _mean(count, np.where(count > 1, unbiased, 0))
