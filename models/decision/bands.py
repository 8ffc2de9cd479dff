"""The exact choice of two thresholds among every pair of cuts; `eval/decisions/abstention.py` says what for.

Counts are whole numbers throughout. Where a share of supported claims is stated, each class counts so often as it would
occur there, in whole numbers too.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core import CalibrationError
from .thresholds import BandCriterion

Counts = NDArray[np.int64]
_MOST_WEIGHT = 1_000  # of a row, where a class counts more often than it occurs
_MOST_PARTS = 1_000_000  # a share is taken as a fraction with at most this denominator, so that comparisons are exact


class Sides(NamedTuple):
    """Counts when the upper i distinct probabilities are called supported, and the lower j refuted; index i, j."""

    supported: Counts
    right_supported: Counts
    refuted: Counts
    right_refuted: Counts


def sides_of(tp: Counts, fp: Counts, prior: float | None = None) -> Sides:
    """Both sides of every cut, from whole cumulative counts over descending probabilities (a 0, then one each)."""
    if prior is not None:
        odds = Fraction(prior * int(fp[-1]) / ((1 - prior) * int(tp[-1]))).limit_denominator(_MOST_WEIGHT)
        tp, fp = tp * max(odds.numerator, 1), fp * odds.denominator
    return Sides(tp + fp, tp, (tp[-1] + fp[-1] - tp - fp)[::-1], (fp[-1] - fp)[::-1])


def counts_of_band(tp: Counts, fp: Counts, i: int, j: int, prior: float | None = None) -> dict[str, Any]:
    """What an `AbstainBand` stores of the upper i and lower j cuts: counts per state, stated for a prior if given."""
    n_pos, n_neg = int(tp[-1]), int(fp[-1])
    up, missed = (int(tp[i]), int(fp[i])), (n_pos - int(tp[len(tp) - 1 - j]), n_neg - int(fp[len(fp) - 1 - j]))
    supported, other = 1.0, 1.0
    if prior is not None:
        supported, other = prior * (n_pos + n_neg) / n_pos, (1 - prior) * (n_pos + n_neg) / n_neg
    counts = {
        "tp": up[0] * supported,
        "fp": up[1] * other,
        "tn": missed[1] * other,
        "fn": missed[0] * supported,
        "abstained_positive": (n_pos - up[0] - missed[0]) * supported,
        "abstained_negative": (n_neg - up[1] - missed[1]) * other,
    }
    return {name: int(count) for name, count in counts.items()} if prior is None else counts


def best_pair(sides: Sides, objective: BandCriterion, target: float) -> tuple[int, int]:
    n = int(sides.supported[-1])
    if objective == "selective_accuracy" and 0 < target <= 1:
        accuracy = Fraction(target).limit_denominator(_MOST_PARTS)
        i, j = _most_verdicts(sides, accuracy)
        if not sides.supported[i] + sides.refuted[j]:
            best = _most_accurate(sides, 1)
            raise CalibrationError(
                f"abstain band: no band reaches a selective accuracy of {target}, got {float(best):.4f} at most; "
                f"lower the target"
            )
        return i, j
    if objective == "max_abstention" and 0 <= target < 1:
        share = Fraction(target).limit_denominator(_MOST_PARTS)
        fewest = -(-n * (share.denominator - share.numerator) // share.denominator)  # rounded up
        return _most_verdicts(sides, _most_accurate(sides, max(fewest, 1)))
    raise CalibrationError(
        f"abstain band: needs selective_accuracy with a target in (0, 1] or max_abstention with one in [0, 1), "
        f"got {objective!r}, {target}; choose one"
    )


def _most_verdicts(sides: Sides, accuracy: Fraction) -> tuple[int, int]:
    """The pair of cuts with most verdicts among those that are right with this share or more.

    Being right often enough is a sum over the two sides: (right * b - verdicts * a) of both must reach 0 for a share of
    a / b. So for each upper cut i the best lower cut is the last j <= d - i whose side makes up for what i lacks.
    Of pairs with equally many verdicts the one with most right ones.
    """
    a, b = accuracy.numerator, accuracy.denominator
    upper, lower = (b * right - a * verdicts for verdicts, right in (sides[:2], sides[2:]))
    j = _last_reaching(lower, -upper)
    verdicts = np.where(j >= 0, sides.supported + sides.refuted[j], -1)
    i = int(np.lexsort((sides.right_supported + sides.right_refuted[j], verdicts))[-1])
    return i, int(j[i])


def _most_accurate(sides: Sides, fewest: int) -> Fraction:
    """The greatest share of right verdicts that a pair of cuts with at least `fewest` verdicts has (at most all rows).

    Dinkelbach (1967): the pair that gains most over a share is better than it, until none gains.
    """
    best = Fraction(0)
    d = len(sides.supported) - 1
    first_j = np.searchsorted(sides.refuted, fewest - sides.supported)  # fewer would be too few verdicts
    last_j = d - np.arange(d + 1)
    possible = first_j <= last_j
    first_j = np.minimum(first_j, last_j)
    while True:
        a, b = best.numerator, best.denominator
        upper, lower = (b * right - a * verdicts for verdicts, right in (sides[:2], sides[2:]))
        gain = np.where(possible, upper + _range_maximum(lower, first_j, last_j), -1)
        i = int(np.argmax(gain))
        if gain[i] <= 0:
            return best
        j = int(first_j[i] + np.argmax(lower[first_j[i] : last_j[i] + 1]))
        right = int(sides.right_supported[i] + sides.right_refuted[j])
        best = Fraction(right, int(sides.supported[i] + sides.refuted[j]))


def _last_reaching(values: Counts, wanted: Counts) -> Counts:
    """For each i the last j <= d - i with values[j] >= wanted[i]; -1 where there is none. Shape (d + 1,) both."""
    tables = _maxima(values)
    end = len(values) - np.arange(len(values))  # one past the last candidate
    for width, table in zip((2**k for k in range(len(tables) - 1, -1, -1)), tables[::-1], strict=True):
        start = end - width
        none_reaches = (start >= 0) & (table[np.clip(start, 0, len(table) - 1)] < wanted)
        end = np.where(none_reaches, start, end)
    return end - 1


def _range_maximum(values: Counts, first: Counts, last: Counts) -> Counts:
    """The greatest of values[first[i]..last[i]], both ends included, for each i."""
    tables = _maxima(values)
    level = np.log2(last - first + 1).astype(np.int64)
    maxima = np.empty(len(first), dtype=np.int64)
    for k in np.unique(level):
        own = level == k
        maxima[own] = np.maximum(tables[k][first[own]], tables[k][last[own] - 2**k + 1])
    return maxima


def _maxima(values: Counts) -> list[Counts]:
    """Maxima of all runs of 1, 2, 4, ... values, by where the run starts."""
    tables = [values]
    while 2 ** len(tables) <= len(values):
        half, previous = 2 ** (len(tables) - 1), tables[-1]
        tables.append(np.maximum(previous[:-half], previous[half:]))
    return tables
