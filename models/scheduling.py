"""The order of work when many segments are scored: read ahead in threads, and batch segments of similar length.

Both are deterministic: the same items in the same order give the same batches, whatever the speed of the threads.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

READ_THREADS, READ_AHEAD = 2, 4

STEP, _SHORT = 1.25, 10
"""Two lengths in one batch differ by less than this factor. Claims that are STEP ** 10 times shorter than the prefix
count as equal: how they are padded hardly matters. So at least 0.7 of the tokens of any row are real."""


def read_ahead(
    read: Callable[[T], R], items: Iterable[T], threads: int = READ_THREADS, ahead: int = READ_AHEAD
) -> Generator[R]:
    """`read` of every item, in order, while the caller works on the ones before.

    Args:
        read: called in a thread; what it raises is raised here, in the item's turn, and ends the whole.
        items: taken one by one.
        threads: how many items are read at once.
        ahead: how many items may be begun before the caller asks for them.

    Close the iterator (`contextlib.closing`) to end its threads when not all of it is used.
    """
    items = iter(items)
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
        if (found := lengths(item)) is None:
            yield [item]
            continue
        prefix, claims = (math.ceil(math.log(max(n, 1)) / math.log(STEP)) for n in found)
        kind = (prefix, max(claims, prefix - _SHORT))
        batch = waiting.setdefault(kind, _Batch())
        if batch.items and batch.padded(found) > budget:
            yield waiting.pop(kind).items
            batch = waiting[kind] = _Batch()
        batch.add(item, found)
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
