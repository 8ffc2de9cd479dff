"""Sliding windows over a span of time, and the rule that makes one margin of those of several windows. NumPy only.

A rule is written `max:8:4`, `noisy_or:8:4` or `mean_top_k:8:4:3`: aggregation, length and stride in seconds, and k. In
this form it stands on command lines, in predictions and in the calibration that was fitted after it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from ...core import ConfigError, ModelInputError, Span

Aggregation = Literal["max", "noisy_or", "mean_top_k"]
MAX_WINDOWS = 100_000  # of one span; a stride that is orders of magnitude too small is a mistake
_SAME_S = 1e-6  # spans that differ by less are of one length
_RARE = -30.0  # below this margin, log(1 + exp(m)) is exp(m) to the last digit of a float64


@dataclass(frozen=True)
class Windowing:
    """How evidence longer than the verifier was trained on is cut, and one margin made of those of the windows.

    Attributes:
        length_s: of a window; a span no longer than this is judged whole.
        stride_s: from the start of one window to that of the next; at most `length_s`, so that nothing is left out.
        aggregation: `max`, the largest margin; `noisy_or`, the log-odds that at least one of the windows supports the
            claim were they independent, 1 - prod(1 - sigmoid(margin)); `mean_top_k`, the mean of the k largest margins.
        top_k: of `mean_top_k`; all margins where there are fewer.
    """

    length_s: float
    stride_s: float
    aggregation: Aggregation = "max"
    top_k: int = 1

    def __post_init__(self) -> None:
        """Refuse what leaves gaps, or is no rule."""
        if self.aggregation not in get_args(Aggregation):
            raise ConfigError(
                f"windowing: unknown aggregation, got {self.aggregation!r}; use one of {list(get_args(Aggregation))}"
            )
        if not (math.isfinite(self.length_s) and 0 < self.stride_s <= self.length_s):
            raise ConfigError(
                f"windowing: windows must have a length, and a stride that is not longer, got {self.length_s} s every "
                f"{self.stride_s} s; for windows that touch, give the same number twice"
            )
        if self.top_k < 1 or (self.top_k != 1 and self.aggregation != "mean_top_k"):
            raise ConfigError(
                f"windowing: top_k is how many margins mean_top_k averages, got {self.top_k} with {self.aggregation}; "
                "use mean_top_k and at least 1"
            )

    @property
    def rule(self) -> str:
        """As text, see the module's head; `Windowing.parse` gives an equal windowing back."""
        words = [self.aggregation, *(str(float(s)).removesuffix(".0") for s in (self.length_s, self.stride_s))]
        return ":".join([*words, str(self.top_k)] if self.aggregation == "mean_top_k" else words)

    @classmethod
    def parse(cls, text: str) -> Windowing:
        """The windowing of a text like `max:8:4`.

        Raises:
            ConfigError: another form, or numbers that are no windowing.
        """
        name, *numbers = text.split(":")
        try:
            if len(numbers) != (3 if name == "mean_top_k" else 2):
                raise ValueError
            length_s, stride_s, top_k = float(numbers[0]), float(numbers[1]), int(numbers[2]) if numbers[2:] else 1
        except ValueError:
            raise ConfigError(
                f"windowing: must read RULE:LENGTH_S:STRIDE_S, got {text!r}; write max:8:4, noisy_or:8:4 or "
                "mean_top_k:8:4:3"
            ) from None
        return cls(length_s, stride_s, name, top_k)  # type: ignore[arg-type]  # refused there

    def cut(self, start_s: float, end_s: float) -> tuple[Span, ...]:
        """Windows that cover [start_s, end_s], in order of time.

        All have the same length. They start every `stride_s` from `start_s`; the last one ends at `end_s`, so it may
        overlap the one before it by more than the others. A span no longer than a window is the one window.

        Raises:
            ModelInputError: more than `MAX_WINDOWS`.
        """
        last_s = end_s - self.length_s
        if last_s <= start_s + _SAME_S:
            return ((start_s, end_s),)
        before_last = (last_s - start_s) / self.stride_s
        if before_last > MAX_WINDOWS:
            raise ModelInputError(
                f"windowing: too many windows, got {end_s - start_s:g} s in steps of {self.stride_s:g} s; "
                "use a longer stride"
            )
        starts_s = [start_s + i * self.stride_s for i in range(max(1, math.ceil(before_last - _SAME_S)))]
        return (*((s, s + self.length_s) for s in starts_s), (last_s, end_s))

    def aggregate(self, margins_W: Sequence[float]) -> float:
        """One margin of those of W windows, in any order; of a single one, itself.

        Raises:
            ModelInputError: no margin, or one that is NaN: a failed window has no part in a verdict.
        """
        m_W = np.sort(np.asarray(margins_W, dtype=np.float64))[::-1]  # so that order changes no rounding
        if not len(m_W) or np.isnan(m_W).any():
            raise ModelInputError(f"windowing: needs a margin of every window, got {list(margins_W)}; report failures")
        if len(m_W) == 1 or self.aggregation == "max":
            return float(m_W[0])
        if self.aggregation == "mean_top_k":
            return math.fsum(m_W[: self.top_k]) / len(m_W[: self.top_k])
        return _noisy_or(m_W)


def _noisy_or(m_W: np.ndarray) -> float:
    """logit(1 - prod(1 - sigmoid(m))), without overflow: -log(1 - P) is the sum of log(1 + exp(m))."""
    if m_W[0] < _RARE:
        return float(np.logaddexp.reduce(m_W))
    s = math.fsum(np.logaddexp(0.0, m_W))
    return s + math.log(-math.expm1(-s))
