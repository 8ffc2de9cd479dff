"""Intervals of a binned calibration error, and of a difference of two, that cover its true value.

The error found, a sum of |gaps| over bins, is too large by chance, most where the true one is 0, so what a bootstrap
draws lies above it and covers nothing. The interval here holds the true errors t under which the error found is
neither too large nor too small: gaps of total size t are put under the noise of the draws (draws less what is found),
and t is in the interval where the error found lies between the quantiles of the errors that follow. It depends
on how the gaps are spread over bins; both the spread found and gaps alike in all bins are tried, and the wider bounds
taken. The error found itself is always inside.

A difference takes both intervals and median-unbiased values (Zou and Donner, 2008, "MOVER"), as if the two errors were
independent: taking their correlation in makes it shorter, and in simulations too short.

Shape suffixes: _D draws, _K bins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..metrics import BinGaps, Floats
from .bootstrap import Interval

METHOD = "inversion"
_MOST_DRAWS = 2_000
_HALVINGS = 14
_P_HALVINGS = 10


@dataclass(frozen=True)
class _Noisy:
    """An error found, the noise around its gaps in each draw, and the spreads of gaps that are tried."""

    found: float
    noise_DK: Floats
    spreads: tuple[Floats, ...]


def error_interval(gaps: BinGaps, n_groups: int, level: float = 0.95, largest_share: float | None = None) -> Interval:
    """The interval of one error.

    Args:
        gaps: as found and as drawn, see `BinGaps`.
        n_groups: how many groups were resampled; below 2 there is no interval.
    """
    low, high, n_draws = np.nan, np.nan, 0
    if n_groups >= 2 and len(gaps.drawn_DK):
        noisy, n_draws = _noisy(gaps, n_groups), len(gaps.drawn_DK)
        low, _, high = _bounds(noisy, level)
    return Interval(float(low), float(high), level, n_groups, n_draws, 0, METHOD, None, largest_share)


def error_difference(
    first: BinGaps, second: BinGaps, n_groups: int, level: float = 0.95, largest_share: float | None = None
) -> Interval:
    """The interval of first minus second, of the same rows and draws."""
    none = error_interval(first, min(n_groups, 1), level, largest_share)
    if n_groups < 2 or not len(first.drawn_DK):
        return none
    low, high = 0.0, 0.0
    if not _are_one(first, second):
        low, high = _difference(_noisy(first, n_groups), _noisy(second, n_groups), level)
    return replace(none, low=low, high=high, n_groups=n_groups, n_draws=len(first.drawn_DK))


def error_p_value(first: BinGaps, second: BinGaps, n_groups: int, level: float = 0.95) -> float:
    """1 less the greatest level at which the interval of the difference leaves 0 out; NaN without an interval.

    So it is at most 1 - level exactly where the interval at this level leaves 0 out.
    """
    if n_groups < 2 or not len(first.drawn_DK):
        return np.nan
    if _are_one(first, second):
        return 1.0
    both = _noisy(first, n_groups), _noisy(second, n_groups)

    def holds_zero(level: float) -> bool:
        low, high = _difference(*both, level)
        return low <= 0 <= high

    inside, outside = (level, 0.0) if holds_zero(level) else (1.0, level)
    for _ in range(_P_HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds_zero(middle) else (inside, middle)
    return 1 - (inside + outside) / 2


def _are_one(first: BinGaps, second: BinGaps) -> bool:
    return np.array_equal(first.found_K, second.found_K) and np.array_equal(first.drawn_DK, second.drawn_DK)


def _noisy(gaps: BinGaps, n_groups: int) -> _Noisy:
    drawn_DK = gaps.drawn_DK[:_MOST_DRAWS]
    noise_DK = (drawn_DK - gaps.found_K) * np.sqrt(n_groups / (n_groups - 1))
    spreads = tuple(each / each.sum() for each in (np.abs(gaps.found_K), gaps.share_K) if each.sum() > 0)
    # A draw's sign follows its gap, so that noise that leans to one side leans as it does in the rows.
    sign_K = np.where(gaps.found_K < 0, -1.0, 1.0)
    return _Noisy(float(np.abs(gaps.found_K).sum()), noise_DK * sign_K, spreads)


def _bounds(noisy: _Noisy, level: float) -> tuple[float, float, float]:
    """Lower bound, median-unbiased value and upper bound of the true error."""
    tails = ((1 + level) / 2, 0.5, (1 - level) / 2)
    found = np.array([[_error_under(noisy, spread, tail) for tail in tails] for spread in noisy.spreads])
    if not len(found):
        return 0.0, 0.0, 0.0
    low, high = min(found[:, 0].min(), noisy.found), max(found[:, 2].max(), noisy.found)
    return float(low), float(np.clip(found[0, 1], low, high)), float(high)


def _error_under(noisy: _Noisy, spread_K: Floats, tail: float) -> float:
    """The true error, spread like this, under which this share of errors is at most the one found; 0 where none is."""

    def quantile(error: float) -> float:
        return float(np.quantile(np.abs(error * spread_K + noisy.noise_DK).sum(axis=1), tail))

    if quantile(0.0) >= noisy.found:
        return 0.0
    low, high = 0.0, max(noisy.found, 1e-6)
    while quantile(high) < noisy.found:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if quantile(middle) < noisy.found else (low, middle)
    return (low + high) / 2


def _difference(first: _Noisy, second: _Noisy, level: float) -> tuple[float, float]:
    (low, value, high), (other_low, other, other_high) = _bounds(first, level), _bounds(second, level)
    found = first.found - second.found
    # An error that may be 0 has no value below it to be found as often as one above: its lower bound stands for it.
    least, most = (value if low > 0 else 0.0), (other if other_low > 0 else 0.0)
    lowest = least - other - np.hypot(least - low, other_high - other)
    highest = value - most + np.hypot(high - value, most - other_low)
    return float(min(lowest, found)), float(max(highest, found))
