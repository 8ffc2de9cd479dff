"""Arithmetic on spans of time: merge, complement, length, overlap. No function changes its arguments.

A span is (start_s, end_s) in seconds with start_s < end_s. Annotated spans may overlap and be out of order;
every function takes such spans and returns them sorted and disjoint.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from random import Random
from typing import TypeGuard

from .errors import RowError
from .pairs import span_problems

Span = tuple[float, float]


def is_seconds(value: object) -> TypeGuard[float]:
    """Whether a value read from a file is a finite number, which a time must be; true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def merged(spans: Iterable[Sequence[float]]) -> tuple[Span, ...]:
    """The same seconds as sorted spans, those that overlap or touch joined into one.

    Raises:
        RowError: a span that is reversed, empty, negative or not finite.
    """
    joined: list[Span] = []
    for start_s, end_s in sorted(_checked(span) for span in spans):
        if joined and start_s <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end_s))
        else:
            joined.append((start_s, end_s))
    return tuple(joined)


def complement(spans: Iterable[Sequence[float]], duration_s: float, gap_s: float = 0.0) -> tuple[Span, ...]:
    """The parts of [0, duration_s] that keep at least `gap_s` seconds from every span, sorted.

    Raises:
        RowError: as `merged`.
    """
    free, position_s = [], 0.0
    for start_s, end_s in merged(spans):
        free.append((position_s, min(start_s - gap_s, duration_s)))
        position_s = max(position_s, end_s + gap_s)
    free.append((position_s, duration_s))
    return tuple((start_s, end_s) for start_s, end_s in free if start_s < end_s)


def without(spans: Iterable[Sequence[float]], holes: Iterable[Sequence[float]]) -> tuple[Span, ...]:
    """What is left of the spans where the holes are cut out, sorted."""
    left = merged(spans)
    for hole_start_s, hole_end_s in merged(holes):
        parts = [[(a, min(b, hole_start_s)), (max(a, hole_end_s), b)] for a, b in left]
        left = tuple((a, b) for part in parts for a, b in part if a < b)
    return left


def total_s(spans: Iterable[Sequence[float]]) -> float:
    """Seconds covered, each counted once however many spans hold it."""
    return sum(end_s - start_s for start_s, end_s in merged(spans))


def overlap_s(one: Iterable[Sequence[float]], other: Iterable[Sequence[float]]) -> float:
    """Seconds that both sets of spans cover."""
    others = merged(other)
    return sum(
        max(0.0, min(end_s, other_end_s) - max(start_s, other_start_s))
        for start_s, end_s in merged(one)
        for other_start_s, other_end_s in others
    )


def draw_apart(lengths_s: Sequence[float], free: Iterable[Sequence[float]], rng: Random) -> tuple[Span, ...] | None:
    """One span per length, anywhere in the free spans and not overlapping each other; sorted.

    Each start is drawn uniformly from every place where the span still fits, the longest first, on whole seconds if all
    lengths are whole, else on milliseconds, where possible: decimals must not tell drawn spans from annotated ones.
    None if one found no room.
    """
    free, drawn = merged(free), []
    digits = 0 if all(float(length_s).is_integer() for length_s in lengths_s) else 3
    for length_s in sorted(lengths_s, reverse=True):
        room = [(start_s, end_s) for start_s, end_s in free if end_s - start_s >= length_s]
        if not room:
            return None
        slack = [end_s - start_s - length_s for start_s, end_s in room]
        first_s, end_s = rng.choices(room, slack if sum(slack) > 0 else None)[0]
        start_s = round(rng.uniform(first_s, end_s - length_s), digits)
        start_s = min(max(start_s, first_s), end_s - length_s)
        drawn.append((start_s, min(start_s + length_s, end_s)))
        free = without(free, drawn[-1:])
    return tuple(sorted(drawn))


def _checked(span: Sequence[float]) -> Span:
    start_s, end_s = span
    if problems := list(span_problems(start_s, end_s)):
        raise RowError(f"span: {problems[0]}")
    return start_s, end_s
