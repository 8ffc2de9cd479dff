"""A fitted rule from windows to the intervals in which a claim holds.

Single windows are wrong now and then, and many windows are many chances to be; an event shows in several windows that
overlap. So margins are averaged over neighbouring windows first. A stretch of windows is an interval where its greatest
average reaches `found_at`; it extends as far as averages, of fewer windows perhaps, reach `extends_at`, less `trim_s`
at either edge, where windows show the event in part only. All of it, and the windows, are fitted to videos apart from
those that are searched (`proofreel.eval.scores.fit_intervals`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core import CalibrationError, ConfigError
from ..decision import JudgedWindow, finite, from_dict
from ..inputs import Windowing


@dataclass(frozen=True)
class SupportedInterval:
    """Seconds of a video in which a claim holds; `p_supported` is that of the surest of its `n_windows` windows."""

    start_s: float
    end_s: float
    p_supported: float
    n_windows: int


@dataclass(frozen=True)
class IntervalRule:
    """How windows become intervals; margins are before calibration, so it goes with the verifier it was fitted to.

    Attributes:
        windowing: of the windows, such as "max:1:0.25".
        n_averaged: neighbouring windows whose margins are averaged, odd; fewer at the ends of the video.
        found_at, extends_at: margins; see the module's head.
        trim_s: taken off either edge that is not an end of the video.
        fitted_on: counts and what the fit reached there: `n_videos`, `n_somewhere`, `n_nowhere`, `mean_tiou`,
            `false_alarms`.
        n_extended: neighbouring windows averaged where edges are sought, odd; None: as many as `n_averaged`.
    """

    windowing: str
    n_averaged: int
    found_at: float
    extends_at: float
    trim_s: float = 0.0
    fitted_on: dict[str, float] = dataclasses.field(default_factory=dict)
    n_extended: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is no rule."""
        try:
            length_s = Windowing.parse(self.windowing).length_s
        except (ConfigError, AttributeError) as error:
            raise CalibrationError(f"interval rule: {error}; fit it again") from None
        counts = {"n_averaged": self.n_averaged} | ({} if self.n_extended is None else {"n_extended": self.n_extended})
        for name, n in counts.items():
            if not isinstance(n, int) or isinstance(n, bool) or n < 1 or n % 2 == 0:
                raise CalibrationError(f"interval rule: {name} must be odd, got {n!r}; fit it again")
        numbers = self.found_at, self.extends_at, self.trim_s
        if not (all(map(finite, numbers)) and self.extends_at <= self.found_at and 0 <= self.trim_s < length_s / 2):
            raise CalibrationError(
                "interval rule: needs extends_at <= found_at and a trim_s below half a window, "
                f"got found_at, extends_at and trim_s of {numbers}; fit it again"
            )

    def intervals(
        self, windows: Sequence[JudgedWindow], stretches: Sequence[tuple[int, int]] | None = None
    ) -> tuple[SupportedInterval, ...]:
        """Intervals of the windows of one video, all judged, in order of time; of `stretches`, where they are known."""
        if stretches is None:
            stretches = self.stretches(np.array([w.verdict.margin for w in windows]))
        return _joined([self._interval(windows, first, last) for first, last in stretches])

    def stretches(self, margins_W: NDArray[np.float64]) -> list[tuple[int, int]]:
        """First and last place of each stretch of windows that makes an interval."""
        averages = averaged(margins_W, self.n_averaged)
        wide = averages if self.n_extended is None else averaged(margins_W, self.n_extended)
        found = averages >= self.found_at
        return [each for each in runs((wide >= self.extends_at) | found) if found[each[0] : each[1] + 1].any()]

    def _interval(self, windows: Sequence[JudgedWindow], first: int, last: int) -> SupportedInterval:
        start_s, end_s = windows[first].segment.start_s, windows[last].segment.end_s
        assert end_s is not None
        start_s += self.trim_s if first > 0 else 0.0
        end_s -= self.trim_s if last < len(windows) - 1 else 0.0
        p = max(w.verdict.p_supported for w in windows[first : last + 1])
        return SupportedInterval(start_s, end_s, p, last - first + 1)

    def to_dict(self) -> dict[str, Any]:
        """JSON values; `from_dict` gives an equal rule back."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "interval rule") -> IntervalRule:
        """The rule a dict describes; `CalibrationError` on unknown or missing keys and on other values."""
        return from_dict(cls, values, where)


def averaged(margins_W: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Each margin's mean with its neighbours, (n - 1) / 2 on either side as far as there are any."""
    total_W1 = np.concatenate([[0.0], np.cumsum(np.asarray(margins_W, dtype=np.float64))])
    places = np.arange(len(margins_W))
    low, high = np.maximum(places - n // 2, 0), np.minimum(places + n // 2 + 1, len(margins_W))
    return (total_W1[high] - total_W1[low]) / (high - low)


def runs(on_W: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and last place of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], on_W, [False]]).astype(np.int8)))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _joined(found: Sequence[SupportedInterval]) -> tuple[SupportedInterval, ...]:
    """Intervals that overlap or touch as one."""
    joined: list[SupportedInterval] = []
    for each in found:
        if joined and each.start_s <= joined[-1].end_s:
            last = joined.pop()
            end_s, p = max(last.end_s, each.end_s), max(last.p_supported, each.p_supported)
            each = SupportedInterval(last.start_s, end_s, p, last.n_windows + each.n_windows)
        joined.append(each)
    return tuple(joined)
