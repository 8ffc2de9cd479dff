"""Scores with an interval over whole units (video, question, caption), and paired differences of two systems.

A statistic gives two values in each resample: what it would be at least and at most, whatever the judgments that failed
would have said. Where none failed the two are equal. The interval reaches from the lower end of the one to the upper
end of the other, so it covers both what resampling and what failures leave open.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...core import RowError
from ..metrics import Floats, Resamples
from ..uncertainty import N_DRAWS, Interval, as_observed, interval_of, resample
from .judging import Score

Bounds = tuple[Floats, Floats]
Statistic = Callable[[Resamples], Bounds]
"""Lowest and highest value in each draw, each shape (draws,); NaN where it is not defined."""

Measured = tuple[Resamples, Statistic]
"""What a system's rows were resampled to, and the statistic of those rows."""


def score_over(measured: Measured, n: int, n_failed: int = 0) -> Score:
    """A statistic of the rows as they are, with the interval that resampling their units gives.

    Args:
        measured: the resamples, and the statistic.
        n, n_failed: see `Score`.
    """
    drawn, statistic = measured
    return _score(statistic(as_observed(drawn)), statistic(drawn), drawn, n, n_failed)


def difference_over(first: Measured, second: Measured, n: int, n_failed: int = 0) -> Score:
    """First minus second, both looked at in the same resamples of the same units.

    Raises:
        RowError: the two were not resampled alike.
    """
    one, other = first[0], second[0]
    if not np.array_equal(one.times_DG, other.times_DG):
        raise RowError(
            f"difference: both systems must be judged on the same units, got {one.n_groups} and {other.n_groups}; "
            "leave out what one of them lacks"
        )
    observed = _minus(first[1](as_observed(one)), second[1](as_observed(other)))
    return _score(observed, _minus(first[1](one), second[1](other)), one, n, n_failed)


def ratio_of_sums(low: ArrayLike, high: ArrayLike, weights: ArrayLike | None = None) -> Statistic:
    """The statistic sum of values / sum of weights, such as a mean over rows; NaN in draws whose weights sum to 0.

    Args:
        low, high: each row's value at least and at most, shape (n,).
        weights: shape (n,), default 1.
    """
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    weights = np.ones(len(low)) if weights is None else np.asarray(weights, dtype=np.float64)

    def statistic(drawn: Resamples) -> Bounds:
        sums_D3 = drawn.sums(np.stack([low, high, weights], axis=1))
        return share(sums_D3[:, 0], sums_D3[:, 2]), share(sums_D3[:, 1], sums_D3[:, 2])

    return statistic


def share(part: Floats, whole: Floats) -> Floats:
    """Part / whole, NaN where the whole is 0."""
    return np.divide(part, whole, out=np.full(np.broadcast(part, whole).shape, np.nan), where=whole > 0)


def resampled(units: Sequence[str], n_draws: int = N_DRAWS, seed: int = 0) -> Resamples:
    """Draws of whole units; two systems with the same units and seed get the same draws, whatever their rows."""
    return resample(np.asarray(units, dtype=np.str_), n_draws, seed)


def mean_over(units: Mapping[str, Score], n_draws: int = N_DRAWS, seed: int = 0) -> Score:
    """The mean of a score over the units where it is defined, with a 95 % interval over resampled units."""
    defined = sorted(name for name, score in units.items() if not math.isnan(score.low))
    n, n_failed = _counts(units[name] for name in defined)
    if not defined:
        return Score(math.nan, math.nan, math.nan, n, n_failed)
    return score_over(_measured(units, defined, n_draws, seed), n, n_failed)


def n_undefined(units: Mapping[str, Score]) -> int:
    """How many units `mean_over` leaves out."""
    return sum(math.isnan(score.low) for score in units.values())


def mean_difference(
    first: Mapping[str, Score], second: Mapping[str, Score], n_draws: int = N_DRAWS, seed: int = 0
) -> Score:
    """The mean over units of first minus second, paired: both have the same resampled units.

    Units that only one of them has, or in which one is undefined, are left out.
    """
    both = sorted(set(first) & set(second))
    defined = [name for name in both if not (math.isnan(first[name].low) or math.isnan(second[name].low))]
    n, n_failed = _counts(units[name] for units in (first, second) for name in defined)
    if not defined:
        return Score(math.nan, math.nan, math.nan, n, n_failed)
    one, other = (_measured(units, defined, n_draws, seed) for units in (first, second))
    return difference_over(one, other, n, n_failed)


def _measured(units: Mapping[str, Score], names: list[str], n_draws: int, seed: int) -> Measured:
    lows, highs = ([getattr(units[name], bound) for name in names] for bound in ("low", "high"))
    return resampled(names, n_draws, seed), ratio_of_sums(lows, highs)


def _counts(scores: Iterable[Score]) -> tuple[int, int]:
    counts = [(score.n, score.n_failed) for score in scores]
    return sum(n for n, _ in counts), sum(failed for _, failed in counts)


def plain(value: Any) -> Any:
    """As JSON values: dataclasses are objects, NaN is None, a score is `Score.to_dict`."""
    if isinstance(value, Score):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(each) for each in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def shown(score: Score, times: float = 100.0, digits: int = 1) -> str:
    """A score for a table: `81.2 [78.0, 84.1]`; `40.0 to 60.0?` where failures leave it open; `-` where undefined."""
    if math.isnan(score.low) or math.isnan(score.high):
        return "-"
    text = f"{times * score.value:.{digits}f}"
    if math.isnan(score.value):
        text = f"{times * score.low:.{digits}f} to {times * score.high:.{digits}f}?"
    if score.interval is None or math.isnan(score.interval.low):
        return text
    return f"{text} [{times * score.interval.low:.{digits}f}, {times * score.interval.high:.{digits}f}]"


def _score(observed: Bounds, draws: Bounds, drawn: Resamples, n: int, n_failed: int) -> Score:
    low, high = float(observed[0][0]), float(observed[1][0])
    ends = [
        interval_of(draws[i], (low, high)[i], n_groups=drawn.n_groups, largest_share=drawn.largest_share)
        for i in (0, 1)
    ]
    interval: Interval = dataclasses.replace(ends[0], high=ends[1].high)
    return Score(low if low == high else math.nan, low, high, n, n_failed, interval)


def _minus(first: Bounds, second: Bounds) -> Bounds:
    return first[0] - second[1], first[1] - second[0]
