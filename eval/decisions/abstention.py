"""Choosing two thresholds that leave the doubtful rows without a verdict. Applied by `models/decision/thresholds.py`.

Every pair of cuts between distinct probabilities is a candidate and counts are whole numbers throughout, so the choice
is exact; nothing assumes that p is calibrated or that the band lies around 0.5. A selective accuracy says nothing about
which verdict is right: with few supported rows a band may reach it by refuting alone. The counts per state show it.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core import CalibrationError
from ...models.decision import BAND_CRITERIA, AbstainBand, BandCriterion
from ..metrics import Floats, checked
from ..uncertainty import interval_of, resample
from .thresholds import all_cuts, stored_interval

Counts = NDArray[np.int64]
_MOST_PARTS = 1_000_000  # a share is taken as a fraction with at most this denominator, so that comparisons are exact


class _Sides(NamedTuple):
    """Counts when the upper i distinct probabilities are called supported, and the lower j refuted; index i, j."""

    supported: Counts
    right_supported: Counts
    refuted: Counts
    right_refuted: Counts


def parse_band(text: str) -> tuple[BandCriterion, float]:
    """A criterion of a band and its target, as commands take them: `selective_accuracy:0.95`, `max_abstention:0.2`.

    Raises:
        CalibrationError: another criterion, or no number.
    """
    try:
        name, target = text.split(":")
        return BAND_CRITERIA[BAND_CRITERIA.index(name)], float(target)  # type: ignore[arg-type]
    except ValueError as error:
        raise CalibrationError(
            f"--abstain: must be one of {list(BAND_CRITERIA)}, a colon and a number, got {text!r}; write e.g. "
            "max_abstention:0.2"
        ) from error


def fit_band(
    p: ArrayLike,
    labels: ArrayLike,
    groups: ArrayLike,
    objective: BandCriterion = "selective_accuracy",
    target: float = 0.9,
    n_draws: int = 1_000,
    seed: int = 0,
    level: float = 0.95,
) -> AbstainBand:
    """The best pair of thresholds, with counts per state and group-clustered intervals.

    `selective_accuracy`: among all bands whose verdicts are right with share `target` or more, the one with most
    verdicts. `max_abstention`: among all that abstain on a share of `target` or less, the one whose verdicts are most
    often right; of equals, the one with most verdicts. The intervals hold the thresholds fixed.

    Args:
        p: probabilities, shape (n,), cross-fitted if a calibrator was fitted on the same rows.
        labels: 1 or 0, shape (n,).
        groups: shape (n,); rows of one group are drawn together.
        target: the accuracy in (0, 1], or the share in [0, 1).

    Raises:
        CalibrationError: no band reaches the accuracy.
    """
    p, y = checked(p, labels, "abstain band", probabilities=True, to_fit=True)
    cuts = all_cuts(p, y)
    tp, fp = cuts.tp.astype(np.int64), cuts.fp.astype(np.int64)
    sides = _Sides(tp + fp, tp, (tp[-1] + fp[-1] - tp - fp)[::-1], (fp[-1] - fp)[::-1])
    i, j = _best_pair(sides, objective, target)
    last = len(cuts.thresholds) - 1
    high, low = float(cuts.thresholds[i]), float(np.nextafter(cuts.thresholds[last - j], -1.0))
    right_up, wrong_up = int(tp[i]), int(fp[i])
    right_down, wrong_down = int(sides.right_refuted[j]), int(sides.refuted[j] - sides.right_refuted[j])
    band = AbstainBand(
        support_at_or_above=high,
        refute_at_or_below=low,
        objective=objective,
        target=float(target),
        tp=right_up,
        fp=wrong_up,
        tn=right_down,
        fn=wrong_down,
        abstained_positive=int(tp[-1]) - right_up - wrong_down,
        abstained_negative=int(fp[-1]) - wrong_up - right_down,
    )
    return _with_intervals(band, p, y, groups, n_draws, seed, level)


def selective_counts(band: AbstainBand, p: ArrayLike, labels: ArrayLike) -> dict[str, int]:
    """The counts a band stores, on these rows: tp, fp, tn, fn, abstained_positive, abstained_negative."""
    state, is_so = band.decide(p), np.asarray(labels) == 1
    cells = {
        "tp": (state == "supported") & is_so,
        "fp": (state == "supported") & ~is_so,
        "tn": (state == "refuted") & ~is_so,
        "fn": (state == "refuted") & is_so,
        "abstained_positive": (state == "abstain") & is_so,
        "abstained_negative": (state == "abstain") & ~is_so,
    }
    return {name: int(np.sum(cell)) for name, cell in cells.items()}


def _best_pair(sides: _Sides, objective: BandCriterion, target: float) -> tuple[int, int]:
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


def _most_verdicts(sides: _Sides, accuracy: Fraction) -> tuple[int, int]:
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


def _most_accurate(sides: _Sides, fewest: int) -> Fraction:
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


def _with_intervals(
    band: AbstainBand, p: Floats, y: Floats, groups: ArrayLike, n_draws: int, seed: int, level: float
) -> AbstainBand:
    state, resamples = band.decide(p), resample(groups, n_draws, seed)
    decided = state != "abstain"
    right = decided & ((state == "supported") == (y == 1))
    per_row = np.stack([right, decided, np.ones(len(p))], axis=1)
    n_right, n_decided, n = resamples.sums(per_row).T
    accuracy = np.divide(n_right, n_decided, out=np.full(len(n), np.nan), where=n_decided > 0)
    accuracy_interval = interval_of(accuracy, band.selective_accuracy, level, n_groups=resamples.n_groups)
    coverage = interval_of(n_decided / n, band.coverage, level, n_groups=resamples.n_groups)
    return dataclasses.replace(
        band,
        selective_accuracy_interval=stored_interval(accuracy_interval),
        coverage_interval=stored_interval(coverage),
        n_groups=resamples.n_groups,
    )
