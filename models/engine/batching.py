"""From pairs to margins: segments are read ahead in threads, batched by length, and split where memory runs out.

Reading ahead and batching are deterministic: the same items in the same order give the same batches, whatever the speed
of the threads.

Out of memory, a batch of segments is halved, then the chunk of claims about one segment, then, only if asked, the
number of frames of its videos. Kept prefixes and unused memory are given back in between. Halving changes no margin
beyond the tolerance (tests/end_to_end/test_out_of_memory.py); fewer frames are other evidence, as every answer says.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, TypeVar

import numpy as np
from tqdm import tqdm

from ...core import Evidence, Moving, Pair, ProofreelError
from ..decision import Judge, Verdict, failed
from .scorer import PrefixScorer, Segment, free_memory, is_out_of_memory
from .segments import Group, ReadGroup, SegmentReader

T = TypeVar("T")
R = TypeVar("R")

MOST_READ_THREADS, AHEAD_PER_THREAD = 16, 2

STEP, _SHORT = 1.25, 10
"""Two lengths in one batch differ by less than this factor. Claims that are STEP ** 10 times shorter than the prefix
count as equal: how they are padded hardly matters. So at least 0.7 of the tokens of any row are real."""


def read_threads() -> int:
    """How many segments to decode and encode at once: the cores that this process and its like on the machine share."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = max(1, int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
    return max(2, min(MOST_READ_THREADS, cores // processes))


def read_ahead(
    read: Callable[[T], R], items: Iterable[T], threads: int | None = None, ahead: int | None = None
) -> Generator[R]:
    """`read` of every item, in order, while the caller works on the ones before.

    Args:
        read: called in a thread; what it raises is raised here, in the item's turn, and ends the whole.
        items: taken one by one.
        threads: how many items are read at once; `read_threads` where None.
        ahead: how many items may be begun before the caller asks for them; two a thread where None.

    Close the iterator (`contextlib.closing`) to end its threads when not all of it is used.
    """
    items, threads = iter(items), threads or read_threads()
    ahead = ahead or AHEAD_PER_THREAD * threads
    pool = ThreadPoolExecutor(threads, thread_name_prefix="read-ahead")
    try:
        begun = deque(pool.submit(read, item) for item in islice(items, ahead))
        while begun:
            yield begun.popleft().result()
            begun.extend(pool.submit(read, item) for item in islice(items, ahead - len(begun)))
    finally:
        pool.shutdown(cancel_futures=True)


def batch_by_length(
    items: Iterable[T], lengths: Callable[[T], tuple[int, int] | None], budget: int
) -> Iterator[list[T]]:
    """Items of similar lengths in batches that, once padded, stay within a token budget.

    Args:
        items: taken one by one; at most two budgets of padded tokens wait for company at any time.
        lengths: of an item: tokens of its prefix and of its claims, which are padded apart. None: it stays alone.
        budget: most tokens of a padded batch; an item that exceeds it makes a batch of its own.
    """
    waiting: dict[tuple[int, int], _Batch[T]] = {}
    for item in items:
        if (size := lengths(item)) is None:
            yield [item]
            continue
        prefix, claims = (math.ceil(math.log(max(n, 1)) / math.log(STEP)) for n in size)
        kind = (prefix, max(claims, prefix - _SHORT))
        batch = waiting.setdefault(kind, _Batch())
        if batch.items and batch.padded(size) > budget:
            yield waiting.pop(kind).items
            batch = waiting[kind] = _Batch()
        batch.add(item, size)
        if batch.padded() >= budget:
            yield waiting.pop(kind).items
        while sum(b.padded() for b in waiting.values()) > 2 * budget:
            yield waiting.pop(max(waiting, key=lambda k: waiting[k].padded())).items
    yield from (batch.items for batch in waiting.values())


@dataclass
class _Batch(Generic[T]):
    """Items that wait for company, and the longest of each of their lengths."""

    items: list[T] = field(default_factory=list)
    longest: tuple[int, int] = (0, 0)

    def add(self, item: T, lengths: tuple[int, int]) -> None:
        self.items.append(item)
        self.longest = (max(self.longest[0], lengths[0]), max(self.longest[1], lengths[1]))

    def padded(self, *more: tuple[int, int]) -> int:
        """Tokens of the batch, with these items added."""
        sizes = (self.longest, *more)
        return (len(self.items) + len(more)) * (max(p for p, _ in sizes) + max(c for _, c in sizes))


Progress = Callable[[int], Any] | bool | None

HALVED = "memory ran out: scored in smaller batches, with the same margins"
FRAMES_STEP = 2  # the backbone merges frames in pairs


@dataclass(frozen=True)
class Answer:
    """A margin, or why there is none (NaN and `error`); `note` says what was out of the ordinary."""

    margin: float = math.nan
    error: str | None = None
    note: str | None = None


class BatchScorer:
    """One call. What it learns of the memory there is (`too_many`, tokens of a forward) ends with it."""

    def __init__(
        self,
        scorer: PrefixScorer,
        reader: SegmentReader,
        batch_tokens: int,
        shrink_frames: bool = False,
        threads: int | None = None,
    ) -> None:
        """`shrink_frames` allows evidence that does not fit to be judged on fewer frames; `threads` read ahead."""
        self.scorer, self.reader, self.batch_tokens, self.threads = scorer, reader, batch_tokens, threads
        self.shrink_frames, self.too_many = shrink_frames, math.inf

    def answers(self, pairs: Sequence[Pair]) -> Generator[list[tuple[int, Answer]]]:
        """(place, answer) of every pair, batch by batch as they are done."""
        with closing(self._readings(deque(self.reader.group(pairs)))) as readings:
            for batch in batch_by_length(readings, _lengths, self.batch_tokens):
                yield list(self.answer(batch))

    def verdicts(self, pairs: Sequence[Pair], judge: Judge, keyed: bool, progress: Progress = None) -> list[Verdict]:
        """Verdicts of pairs, in order.

        Args:
            pairs: to ask about.
            judge: makes verdicts of margins.
            keyed: whether the pairs' modality, role and origin are known and not just defaults.
            progress: True for a bar on stderr, or a function called with the number of claims done since the last call.
        """
        verdicts = [failed("not scored")] * len(pairs)
        bar = tqdm(total=len(pairs), unit="claim", desc="scoring", disable=progress is not True)
        with bar, closing(self.answers(pairs)) as answers:
            for batch_answers in answers:
                for place, a in batch_answers:
                    row = pairs[place] if keyed else None
                    verdicts[place] = failed(a.error, a.note) if a.error else judge.verdict(a.margin, row, a.note)
                bar.update(len(batch_answers))
                if callable(progress):
                    progress(len(batch_answers))
        return verdicts

    def answer(self, batch: Sequence[ReadGroup]) -> Iterator[tuple[int, Answer]]:
        """(place, answer) of every pair of a batch. What the network is not given fails its own segment only."""
        for reading in batch:
            yield from ((place, Answer(error=reason)) for place, reason in reading.failed.items())
        yield from self._together([r for r in batch if r.segment is not None])
        for reading in batch:
            if reading.out_of_memory:
                yield from self._read_again(reading)

    def _readings(self, groups: deque[Group]) -> Generator[ReadGroup]:
        """Each group read, in order: those of a call with several in threads, ahead of the network."""
        several = len(groups) > 1
        given = (groups.popleft() for _ in range(len(groups)))  # not held on to: a group holds its prefix
        if not several:
            yield from map(self.reader.read, given)
            return
        with closing(read_ahead(self.reader.read, given, self.threads)) as readings:
            yield from readings

    def _together(self, readings: Sequence[ReadGroup]) -> Iterator[tuple[int, Answer]]:
        """Readings with a segment, in one forward if memory allows."""
        parts = deque([readings] if readings else [])
        note = None
        while parts:
            part = parts.popleft()
            if len(part) == 1:
                yield from self._alone(part[0], note)
                continue
            segments = [r.segment for r in part if r.segment is not None]
            margins = self._forward(segments, self.scorer.claims_per_chunk)
            if margins is None:
                note = HALVED
                parts.extendleft([part[len(part) // 2 :], part[: len(part) // 2]])
            elif isinstance(margins, str):  # one of them is at fault: each by itself
                parts.extendleft([r] for r in reversed(part))
            else:
                for reading, margins_K in zip(part, margins, strict=True):
                    yield from _answers(reading, margins_K, note)

    def _alone(self, reading: ReadGroup, note: str | None = None) -> Iterator[tuple[int, Answer]]:
        """One segment: all its claims, then in smaller chunks, then on fewer frames."""
        assert reading.segment is not None
        per_chunk = min(self.scorer.claims_per_chunk, len(reading.segment.claims))
        while (margins := self._forward([reading.segment], per_chunk)) is None and per_chunk > 1:
            per_chunk, note = per_chunk // 2, HALVED
        if isinstance(margins, list):
            yield from _answers(reading, margins[0], note)
        elif isinstance(margins, str):
            yield from ((place, Answer(error=margins)) for place in reading.places)
        else:
            yield from self._on_fewer_frames(reading, reading.places)

    def _read_again(self, reading: ReadGroup) -> Iterator[tuple[int, Answer]]:
        """Memory ran out while a thread encoded this evidence: now nothing else is in it."""
        assert reading.group is not None
        free_memory(self.scorer.prefixes)
        again = self.reader.read(reading.group)
        yield from _failures(again, reading.out_of_memory)
        if again.segment is not None:
            yield from self._alone(again)
        elif again.out_of_memory:
            yield from self._on_fewer_frames(again, again.out_of_memory)

    def _on_fewer_frames(self, reading: ReadGroup, places: tuple[int, ...]) -> Iterator[tuple[int, Answer]]:
        """Half the frames, again and again, if that was asked for; else the reason why there is no answer."""
        assert reading.group is not None
        before = self._frames(reading)
        n_frames = _half(before) if self.shrink_frames else 0
        while n_frames:
            free_memory(self.scorer.prefixes)
            smaller = self.reader.read(reading.group, n_frames)
            if not smaller.out_of_memory:
                margins = [np.empty(0)] if smaller.segment is None else self._forward([smaller.segment], 1)
                if isinstance(margins, str):
                    yield from ((place, Answer(error=margins)) for place in places)
                    return
                if margins is not None:
                    note = f"memory ran out: judged on at most {n_frames} frames of a video instead of {before}"
                    yield from _answers(smaller, margins[0], note)
                    yield from _failures(smaller, places)
                    return
            n_frames = _half(n_frames)
        reason = _no_memory(reading, before, self.shrink_frames)
        yield from ((place, Answer(error=reason)) for place in places)

    def _forward(self, segments: Sequence[Segment], per_chunk: int) -> list[np.ndarray] | str | None:
        """Margins of each segment; a reason for none; None where memory ran out, or is known to run out."""
        n_tokens = _tokens(segments, per_chunk)
        if n_tokens >= self.too_many and (len(segments) > 1 or per_chunk > 1):
            return None
        try:
            return self.scorer.score(segments, per_chunk)
        except ProofreelError as error:
            return str(error)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        self.too_many = min(self.too_many, n_tokens)
        free_memory(self.scorer.prefixes)
        return None

    def _frames(self, reading: ReadGroup) -> int:
        """Most frames of a video of this reading; 0 without one."""
        evidence: tuple[Evidence, ...] = reading.group.pairs[0].evidence if reading.group else ()
        if not any(isinstance(e, Moving) for e in evidence):
            return 0
        most = self.reader.encoder.sampling.max_frames
        grids_N3 = reading.segment.evidence.vision.get("video_grid_thw") if reading.segment else None
        return most if grids_N3 is None else min(most, FRAMES_STEP * int(grids_N3[:, 0].max()))


def _answers(reading: ReadGroup, margins_K: np.ndarray, note: str | None) -> Iterator[tuple[int, Answer]]:
    notes = reading.segment.evidence.notes if reading.segment else ()
    together = "; ".join([*notes, *([note] if note else [])]) or None
    yield from ((p, Answer(float(m), note=together)) for p, m in zip(reading.places, margins_K, strict=True))


def _failures(reading: ReadGroup, places: Sequence[int]) -> Iterator[tuple[int, Answer]]:
    yield from ((place, Answer(error=reading.failed[place])) for place in places if place in reading.failed)


def _half(n_frames: int) -> int:
    """Half as many frames, even; 0 where there is nothing to halve."""
    return n_frames // 2 // FRAMES_STEP * FRAMES_STEP if n_frames > FRAMES_STEP else 0


def _tokens(segments: Sequence[Segment], per_chunk: int) -> int:
    """Tokens of the forward that begins these segments, padded."""
    claims = max(sum(len(c) for c in s.claims[:per_chunk]) for s in segments)
    return len(segments) * (max(len(s.evidence.ids_P) for s in segments) + claims)


def _lengths(reading: ReadGroup) -> tuple[int, int] | None:
    """What decides on a segment's company; None for one that has none: nothing to ask, or a prefix of its own."""
    return None if reading.segment is None or reading.segment.prefix else reading.segment.lengths


def _no_memory(reading: ReadGroup, frames: int, shrunk: bool) -> str:
    size = f"{len(reading.segment.evidence.ids_P)} tokens" if reading.segment else "what this evidence shows"
    if frames and not shrunk:
        advice = "or pass shrink_frames=True to have it judged on fewer frames"
    else:
        advice = "or give less evidence"
    return f"memory: ran out for one claim about this evidence, got {size}; free memory, use a larger device, {advice}"
