"""Intervals of what a threshold or band truly reaches, from the rows that it was chosen on.

A value reached on the rows that chose the threshold is too good by chance, and one that holds the threshold fixed while
groups are resampled knows nothing of it: of a 95 % interval 60 to 90 % held the truth. Here the choice is made again on
each resample: what it gains there over the same choice on the rows as they are is how much too good the value is, and
how far it varies. The interval is the value less that gain; and, where that is wider, the one of the fixed threshold
moved by the mean gain. The value itself is always inside.

Shape suffixes: _D draws, _C cuts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...core import CalibrationError
from ...models.decision import (
    BandCriterion,
    Confusions,
    Criterion,
    StoredInterval,
    at_prior,
    best_pair,
    preference,
    sides_of,
)
from ..metrics import Floats, Resamples
from ..uncertainty import interval_of, share_interval

N_CHOICES = 200  # resamples in which the choice is made again
_MOST_CUTS = 300
_FEWEST_CHOICES = 50  # in which a choice could be made; with fewer the threshold is held fixed


class DrawnCuts(NamedTuple):
    """Rows of either class at or above each cut, from none to all: in draws and as they are."""

    tp_DC: np.ndarray
    fp_DC: np.ndarray
    tp_C: np.ndarray
    fp_C: np.ndarray


class Choices(NamedTuple):
    """Counts of the choice that each draw makes: in that draw, and on the rows as they are; shape (draws,) each."""

    there: Confusions
    here: Confusions


def drawn_cuts(p: Floats, y: Floats, resamples: Resamples) -> DrawnCuts:
    """Of at most `_MOST_CUTS` cuts between distinct probabilities, in the first `N_CHOICES` draws."""
    distinct, cell = np.unique(-p, return_inverse=True)
    n_cuts = min(len(distinct), _MOST_CUTS)
    cell = cell * n_cuts // len(distinct)

    def above(weights: Floats) -> np.ndarray:
        cells = [np.bincount(cell, weights * of, minlength=n_cuts) for of in (y, 1 - y)]
        return np.array([np.append(0, np.cumsum(np.rint(each))) for each in cells]).astype(np.int64)

    drawn = np.array(
        [above(times[resamples.group_of_row].astype(np.float64)) for times in resamples.times_DG[:N_CHOICES]]
    )
    here = above(np.ones(len(p)))
    return DrawnCuts(drawn[:, 0], drawn[:, 1], here[0], here[1])


def chosen_again(cuts: DrawnCuts, criterion: Criterion, prior: float | None) -> Choices | None:
    """The threshold that each draw chooses; None where too few can."""
    there_DC, here_C = (_counts(*of, prior) for of in (cuts[:2], cuts[2:]))
    first_DC, second_DC = preference(criterion, there_DC)
    second_DC = np.where(first_DC == first_DC.max(axis=1, keepdims=True), second_DC, -np.inf)
    able = np.flatnonzero(np.isfinite(first_DC.max(axis=1)))
    if len(able) < _FEWEST_CHOICES:
        return None
    cut = np.argmax(second_DC, axis=1)[able]
    return Choices(Confusions(*(of[able, cut] for of in there_DC)), Confusions(*(of[cut] for of in here_C)))


def band_chosen_again(
    cuts: DrawnCuts, objective: BandCriterion, target: float, prior: float | None
) -> tuple[Choices, Choices] | None:
    """Of the bands that draws choose, verdicts `supported` and rows not refuted, as counts; None where too few can."""
    pairs, able = [], []
    for draw, (tp, fp) in enumerate(zip(cuts.tp_DC, cuts.fp_DC, strict=True)):
        try:
            i, j = best_pair(sides_of(tp, fp, prior), objective, target)
        except (CalibrationError, ZeroDivisionError, OverflowError):  # out of reach, or one class alone
            continue
        pairs.append((i, len(tp) - 1 - j))
        able.append(draw)
    if len(able) < _FEWEST_CHOICES:
        return None
    there_DC, here_C = (_counts(*of, prior) for of in (cuts[:2], cuts[2:]))
    support, keep = (
        Choices(Confusions(*(of[able, cut] for of in there_DC)), Confusions(*(of[cut] for of in here_C)))
        for cut in np.array(pairs).T
    )
    return support, keep


def chosen_interval(
    value: float,
    fixed_D: Floats,
    gains_D: Floats | None,
    level: float,
    n_groups: int,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> StoredInterval | None:
    """The interval of a value; None where it is undefined.

    Args:
        value: on the rows.
        fixed_D: in draws, the threshold held fixed.
        gains_D: by how much the choice of a draw does better there than on the rows; None: the threshold was not chosen
            on these rows.
        bounds: what the value can be.
    """
    of = share_interval if bounds == (0, 1) else interval_of
    found = of(fixed_D, value, level, n_groups=n_groups)
    low, high = found.low, found.high
    if gains_D is not None and np.isfinite(gains_D).sum() >= _FEWEST_CHOICES:
        gain = float(np.nanmean(gains_D))
        moved = interval_of(value - gains_D, value, level, n_groups=n_groups)
        low, high = min(low - gain, moved.low, value), max(high - gain, moved.high, value)
    if not np.isfinite([low, high]).all():
        return None
    low, high = np.clip((low, high), *bounds)
    return StoredInterval(float(low), float(high), level)


def gains(choices: Choices | None, metric: Callable[[Confusions], Floats]) -> Floats | None:
    """Of a metric of counts."""
    return None if choices is None else np.asarray(metric(choices.there) - metric(choices.here))


def _counts(tp: np.ndarray, fp: np.ndarray, prior: float | None) -> Confusions:
    tp, fp = tp.astype(np.float64), fp.astype(np.float64)
    counts = Confusions(tp, fp, fp[..., -1:] - fp, tp[..., -1:] - tp)
    return counts if prior is None else at_prior(counts, prior)
