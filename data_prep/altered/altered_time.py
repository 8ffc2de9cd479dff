"""Negatives from the same video at a wrong time: elsewhere, or a near miss at the boundary of the true span."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from ...core.pairs import VideoSegment
from .known_evidence import MAX_TRIES, Proposals, Request, Span, shape_of, walk


def other_time(request: Request, gap_s: float) -> Proposals:
    """The same video elsewhere: first other annotated segments, then windows of the same length.

    Both keep `gap_s` seconds to every span where the claim is known to hold. Evidence with anything but video needs an
    annotated segment of the same kinds: nobody knows what is said in a drawn window.
    """
    evidence = request.pair.evidence
    segments = [piece for piece in evidence if isinstance(piece, VideoSegment)]
    if len(segments) == 1:
        taken = request.taken(segments[0].path)
        others = request.known.same_video.get((segments[0].path, shape_of(evidence)), ())
        for other in walk(others, request.draw()):
            segment = next(piece for piece in other if isinstance(piece, VideoSegment))
            if _is_clear(request.known.span(segment), taken, gap_s):
                yield other
    if segments and len(segments) == len(evidence):
        yield from _windows(request, segments, gap_s)


def _windows(request: Request, segments: Sequence[VideoSegment], gap_s: float) -> Proposals:
    """Every segment moved to a free window of its own video, all in the order of their times."""
    taken = {segment.path: request.taken(segment.path) for segment in segments}
    places = {path: number for number, path in enumerate(taken)}
    for attempt in range(MAX_TRIES):
        blocked = {path: list(spans) for path, spans in taken.items()}
        moved: list[VideoSegment] = []
        for number, segment in enumerate(segments, start=1 + attempt * len(segments)):
            file_end_s = request.known.ends.get(segment.path, 0.0)
            span = request.known.span(segment)
            window = _window(span, blocked[segment.path], file_end_s, gap_s, request.draw(number))
            if window is None:
                break
            blocked[segment.path].append(window)
            moved.append(dataclasses.replace(segment, start_s=window[0], end_s=window[1]))
        if not moved:
            return
        if len(moved) == len(segments):
            moved.sort(key=lambda segment: (places[segment.path], segment.start_s))
            yield tuple(moved)


def _window(span: Span, blocked: Sequence[Span], file_end_s: float, gap_s: float, draw: int) -> Span | None:
    """A window as long as `span` that keeps the gap to all of `blocked`; None where there is none.

    Its start lies on the grid of the annotation, whole seconds or tenths, so that decimals do not give it away.
    """
    start_s, end_s = span
    length_s = end_s - start_s
    if not math.isfinite(length_s):
        return None
    per_s = 1 if float(start_s).is_integer() and float(end_s).is_integer() else 10
    free: list[range] = []  # grid points a window may start at
    free_from_s = 0.0
    for begin_s, stop_s in sorted([*blocked, (file_end_s + gap_s, math.inf)]):
        first = math.ceil(round(free_from_s * per_s, 6))
        last = math.floor(round((begin_s - gap_s - length_s) * per_s, 6))
        free.append(range(first, last + 1))
        free_from_s = max(free_from_s, stop_s + gap_s)
        if free_from_s > file_end_s:
            break
    place = draw % max(1, sum(map(len, free)))
    for run in free:
        if place < len(run):
            return run[place] / per_s, min(round(run[place] / per_s + length_s, 6), file_end_s)
        place -= len(run)
    return None


def shifted_span(request: Request, share: float) -> Proposals:
    """Near misses of a single segment: windows of its length at either side that keep at most a share of it.

    The nearest come first: exactly the share remains, then a half, a third of it. No share: the windows touch.
    """
    evidence, known = request.pair.evidence, request.known
    segment = evidence[0]
    if len(evidence) > 1 or not isinstance(segment, VideoSegment):
        return
    start_s, end_s = known.span(segment)
    length_s = end_s - start_s
    if not math.isfinite(length_s):
        return
    taken = request.taken(segment.path)
    first_side = request.draw() % 2
    for number in range(MAX_TRIES if share else 2):
        remains_s = share * length_s / (1 + number // 2)
        if (number + first_side) % 2:
            window = round(end_s - remains_s, 6) if share else end_s, round(end_s - remains_s + length_s, 6)
        else:
            window = round(start_s + remains_s - length_s, 6), round(start_s + remains_s, 6) if share else start_s
        inside = window[0] >= 0 and window[1] <= known.ends.get(segment.path, 0.0)
        if inside and _misses(window, taken, share):
            yield (dataclasses.replace(segment, start_s=window[0], end_s=window[1]),)


def _is_clear(window: Span, spans: Sequence[Span], gap_s: float) -> bool:
    return all(window[1] + gap_s <= begin_s or end_s + gap_s <= window[0] for begin_s, end_s in spans)


def _misses(window: Span, spans: Sequence[Span], share: float) -> bool:
    """Whether at most `share` of each span lies in the window."""
    for begin_s, end_s in spans:
        allowed_s = share * (end_s - begin_s) + 1e-6 if share and end_s < math.inf else 0.0
        if min(window[1], end_s) - max(window[0], begin_s) > allowed_s:
            return False
    return True
