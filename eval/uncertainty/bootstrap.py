"""Bootstrap over whole groups: drawing the resamples, and the interval that values over them give.

Rows about one video are not independent, so a draw takes as many groups as there are, with replacement, and a row
counts as often as its group was taken (Davison and Hinkley, 1997, section 3.8). `clustered_interval` serves any metric
that takes weights; the metrics of a report have faster draws of their own (`Metric.draws`).

Shape suffixes: _D draws, _G groups.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, stdtrit

from ...core import RowError
from ..metrics import CELLS_AT_ONCE, Floats, Resamples, WeightedMetric, weighted_draws

Method = Literal["percentile", "bca"]

N_DRAWS = 10_000
MOST_GROUPS, N_BAGS = 25_000, 5_000  # above the first, groups are drawn in so many bags of them
FEWEST_GROUPS = 20  # below, a clustered interval covers clearly less than it says
FEW_GROUPS = 100  # below, a little less (benchmarks/results/coverage.md)
MOST_LEFT_OUT = 500  # groups that a jackknife leaves out in turn; above, it changes nothing
_MOST_UNDEFINED = 0.05  # share of draws without a value above which the rest is a selection
_MOST_FLOAT32_BYTES = 2**28


@dataclass(frozen=True)
class Interval:
    """An interval and what it rests on. NaN bounds where fewer than two groups, or no draw, define it.

    Attributes:
        n_groups: groups that it rests on: of a precision, those with a row called supported; see `trust`.
        n_undefined: draws in which the metric was undefined (one class only); they are left out.
        method: how the bounds were found: percentile, or bca (Efron, 1987).
        note: why bca was asked for and percentile given; None otherwise.
        largest_share: part of the rows that the largest group holds; None where not known.
    """

    low: float
    high: float
    level: float
    n_groups: int
    n_draws: int
    n_undefined: int
    method: str = "percentile"
    note: str | None = None
    largest_share: float | None = None


def resample(groups: ArrayLike, n_draws: int = N_DRAWS, seed: int = 0) -> Resamples:
    """Draw whole groups with replacement, as many as there are, `n_draws` times.

    More than `MOST_GROUPS` groups are first put at random into `N_BAGS` bags of equal size, and whole bags are drawn:
    the variance between random bags is that between groups, known to 1 %, and memory no longer grows with the groups.

    Args:
        groups: shape (n,); rows with equal values are drawn together.
        seed: the same seed gives the same draws, whatever the order of the rows.
    """
    group_of_row, n_groups = _numbered(groups)
    if n_groups > MOST_GROUPS:
        bag_of_group = np.random.default_rng(seed).permutation(n_groups) % N_BAGS
        group_of_row, n_groups = bag_of_group[group_of_row], N_BAGS
    cells = n_draws * n_groups
    fits = 4 * cells <= _MOST_FLOAT32_BYTES
    times_DG = np.empty((n_draws, n_groups), np.float32) if fits else np.empty((n_draws, n_groups), np.uint8)
    rng = np.random.default_rng(seed)
    at_once = max(1, CELLS_AT_ONCE // max(1, n_groups))
    for start in range(0, n_draws if n_groups else 0, at_once):
        size = min(at_once, n_draws - start)
        taken = rng.integers(n_groups, size=(size, n_groups)) + n_groups * np.arange(size)[:, None]
        counts = np.bincount(taken.ravel(), minlength=size * n_groups)
        times_DG[start : start + size] = counts.reshape(size, n_groups)
    return Resamples(group_of_row, times_DG)


def leaving_one_out(resamples: Resamples) -> Resamples:
    """The jackknife over the same groups: one draw for each group, taking every other group once."""
    n_groups = resamples.n_groups
    return Resamples(resamples.group_of_row, (1 - np.eye(n_groups, dtype=np.float32)))


def as_observed(resamples: Resamples) -> Resamples:
    """The rows as they are: a single draw that takes every group once."""
    return Resamples(resamples.group_of_row, np.ones((1, resamples.n_groups), dtype=np.float32))


def interval_of(
    draws: ArrayLike,
    estimate: float,
    level: float = 0.95,
    method: Method = "percentile",
    leave_one_out: ArrayLike | None = None,
    n_groups: int = 0,
    largest_share: float | None = None,
    widened: bool = True,
) -> Interval:
    """The interval that values of a metric over resamples give.

    Args:
        draws: the metric in each resample, NaN where undefined, shape (draws,).
        estimate: the metric on the rows as they are.
        method: "percentile", or "bca": corrected for bias and for an error that changes with the value (Efron, 1987).
        leave_one_out: for bca, the metric without each group in turn, shape (groups,).
        n_groups: how many groups were resampled; below 2 there is no interval.
        widened: read the bounds further out, as far as t with n_groups - 1 degrees of freedom and the spread of as many
            values are from a normal (Hesterberg, 2015): a bootstrap of few groups is else too narrow.
    """
    draws = np.asarray(draws, dtype=np.float64)
    if not 0 < level < 1 or method not in ("percentile", "bca"):
        raise RowError(f"interval: level is within (0, 1), method percentile or bca, got {level}, {method!r}; give one")
    defined = draws[~np.isnan(draws)]
    if n_groups < 2:
        return Interval(np.nan, np.nan, level, n_groups, 0, 0, method, None, largest_share)
    outer = _widened_tail((1 - level) / 2, n_groups) if widened else (1 - level) / 2
    tails, note = np.array([outer, 1 - outer]), None  # note: why not bca
    if method == "bca" and len(defined):
        tails, note = _bca_tails(tails, defined, estimate, leave_one_out)
    between = "linear" if np.isfinite(defined).all() else "inverted_cdf"  # nothing lies between two infinities
    low, high = np.quantile(defined, tails, method=between) if len(defined) else (np.nan, np.nan)
    used = "percentile" if note else method
    n_undefined = len(draws) - len(defined)
    return Interval(float(low), float(high), level, n_groups, len(draws), n_undefined, used, note, largest_share)


def share_interval(
    draws: ArrayLike,
    estimate: float,
    level: float = 0.95,
    n_groups: int = 0,
    method: Method = "percentile",
    leave_one_out: ArrayLike | None = None,
    largest_share: float | None = None,
) -> Interval:
    """`interval_of` a share of rows; where no draw shows an error, or nothing but errors, it does not end at that.

    What no group of so many shows may happen in a share of groups whose chance to stay hidden is 1 - level: at 95 % the
    rule of three, 3 / groups.

    Args:
        n_groups: how many groups have rows that it is a share of.
    """
    interval = interval_of(draws, estimate, level, method, leave_one_out, n_groups, largest_share)
    hidden = 1 - (1 - level) ** (1 / max(n_groups, 1))
    if interval.low == interval.high == 1:
        return dataclasses.replace(interval, low=1 - hidden)
    return dataclasses.replace(interval, high=hidden) if interval.low == interval.high == 0 else interval


def _widened_tail(tail: float, n_groups: int) -> float:
    return float(ndtr(np.sqrt(n_groups / (n_groups - 1)) * stdtrit(n_groups - 1, tail)))


def trust(interval: Interval) -> list[str]:
    """Why an interval should not be trusted, a sentence each; empty where nothing speaks against it."""
    reasons = []
    if interval.n_groups < 2:
        reasons.append(f"No interval: {interval.n_groups} group(s), and at least 2 are needed.")
    elif interval.n_groups < FEWEST_GROUPS:
        reasons.append(f"Only {interval.n_groups} groups: with fewer than {FEWEST_GROUPS} the interval is too narrow.")
    elif interval.n_groups < FEW_GROUPS:
        reasons.append(f"Only {interval.n_groups} groups: below {FEW_GROUPS} a 95 % interval may cover 90 %.")
    if interval.n_draws and interval.low == interval.high != 0:  # a difference of 0 is of one verifier with itself
        reasons.append(
            f"No resample differs: what none of {interval.n_groups} groups shows may still happen in up to "
            f"{3 / interval.n_groups:.1%} of groups."
        )
    if interval.n_undefined > _MOST_UNDEFINED * interval.n_draws:
        share = interval.n_undefined / interval.n_draws
        reasons.append(
            f"Undefined in {share:.0%} of the resamples (a class, or every row that counts, was missing): a class sits "
            f"in too few groups."
        )
    if interval.largest_share is not None and interval.largest_share > 0.5 and interval.n_groups > 1:
        reasons.append(f"One group holds {interval.largest_share:.0%} of the rows and decides the result alone.")
    return reasons


def _numbered(groups: ArrayLike) -> tuple[NDArray[np.int64], int]:
    names, group_of_row = np.unique(np.asarray(groups), return_inverse=True)
    return group_of_row.astype(np.int64), len(names)


def _bca_tails(
    tails: Floats, draws: Floats, estimate: float, leave_one_out: ArrayLike | None
) -> tuple[Floats, str | None]:
    """Where in the draws the bounds lie, and why not there (then the tails come back unchanged)."""
    if leave_one_out is None:
        return tails, "no leave-one-out values were given"
    values = np.asarray(leave_one_out, dtype=np.float64)
    if not np.isfinite(values).all():
        return tails, "undefined without one of the groups"
    pull = np.mean(values) - values
    if not np.any(np.abs(pull) > 1e-12):
        return tails, "no single group changes the value"
    below = np.mean(draws < estimate) + np.mean(draws == estimate) / 2
    if not 0 < below < 1:
        return tails, "every resample lies on one side of the value"
    acceleration, bias = np.sum(pull**3) / (6 * np.sum(pull**2) ** 1.5), ndtri(below)
    z = bias + ndtri(tails)
    corrected = ndtr(bias + z / (1 - acceleration * z)) if np.isfinite(z).all() else np.full(2, np.nan)
    if not corrected[0] < corrected[1]:
        return tails, "too few groups for a correction"
    return corrected, None


def clustered_interval(
    metric: WeightedMetric,
    scores: ArrayLike,
    labels: ArrayLike,
    groups: ArrayLike,
    n_draws: int = 1_000,
    level: float = 0.95,
    seed: int = 0,
    method: Method = "percentile",
    widened: bool = True,
) -> Interval:
    """Bootstrap interval of a metric, resampling groups.

    Args:
        metric: takes (scores, labels, weights of shape (draws, n)) and gives shape (draws,), such as `metrics.roc_auc`.
        scores: shape (n,), no NaN.
        labels: 0 or 1, shape (n,).
        groups: shape (n,); rows of one group are drawn together.
        seed: the same seed gives the same interval.
        method: "percentile" or "bca".
        widened: as `interval_of`.
    """
    drawn = resample(groups, n_draws, seed)
    if drawn.n_groups < 2:
        return interval_of([], np.nan, level, method, None, drawn.n_groups, drawn.largest_share)

    def values(of: Resamples) -> Floats:
        return weighted_draws(metric, scores, labels, of)

    jackknife = values(leaving_one_out(drawn)) if method == "bca" else None
    estimate = float(values(as_observed(drawn))[0])
    return interval_of(values(drawn), estimate, level, method, jackknife, drawn.n_groups, drawn.largest_share, widened)
