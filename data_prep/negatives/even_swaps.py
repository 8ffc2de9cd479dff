"""Choose the segments of which the claims of a split are asked falsely: every sentence is refuted as often as it is
supported, and every segment nearly so.

The choice is one flow over the whole split, so it is made in memory, but of numbers alone: claims and segments are
numbered, and a positive costs some 20 bytes. Texts are kept on disk, for the order in which claims are exchanged.
"""

from __future__ import annotations

import heapq
import sqlite3
from array import array
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

from ..dataset import rank

_PLACE = 32  # bits of a segment's number
_BELOW = 1 << 40  # more than any segment has positives
Move = tuple[int, int, int]  # claim, from segment, to segment


class EvenSwaps:
    """The claims of one split, added one by one, and then the segments that each is asked of.

    Args:
        keys: the `evidence_key` of every segment, in the pseudo-random order of the split; not kept.
        groups: the group of each.
        generic: normalised claims that are never asked falsely.
        seed: of the order in which claims choose.
        path: a new file to work in; empty: one that the system chooses and removes.
    """

    def __init__(
        self, keys: Sequence[str], groups: Sequence[str], generic: Collection[str], seed: int, path: str = ""
    ) -> None:
        self._seed, self._generic = seed, generic
        self._numbers: dict[str, int] = {}
        self._group_of = array("q", (self._numbers.setdefault(group, len(self._numbers)) for group in groups))
        self._segments_in = Counter(self._group_of)
        self._by_key = array("q", [0] * len(keys))
        for place, number in enumerate(sorted(range(len(keys)), key=keys.__getitem__)):
            self._by_key[number] = place
        self._order = array("Q", (int(rank(seed, "order", key)[:16], 16) for key in keys))
        self._excess = array("q", [0] * len(keys))  # negatives of a segment beyond its positives
        self._starts, self._targets = array("q", [0]), array("q")  # of claim i: targets[starts[i] : starts[i + 1]]
        self._hold_starts, self._holds = array("q", [0]), array("q")  # likewise the groups that it holds in
        self._ranks: list[tuple[int, int]] = []  # segments that are free for a claim, its pseudo-random rank
        self._texts = sqlite3.connect(path)
        self._texts.execute("PRAGMA journal_mode = OFF")
        self._texts.execute("CREATE TABLE texts (number INTEGER PRIMARY KEY, text TEXT)")

    def add(
        self, claim: str, segments: Sequence[int], groups: Iterable[str]
    ) -> Literal["generic", "unbalanceable"] | None:
        """Add a (normalised) claim with the segments and groups in which it holds.

        Returns:
            Why it cannot be asked falsely as often as it holds; None where it can, and has the next number from 0.
        """
        holds = {self._numbers[group] for group in groups if group in self._numbers}
        free = len(self._group_of) - sum(self._segments_in[group] for group in holds)
        if claim in self._generic:
            return "generic"
        if free < len(segments):
            return "unbalanceable"
        number = len(self._ranks)
        self._ranks.append((free, int(rank(self._seed, "claim", claim)[:16], 16)))
        self._texts.execute("INSERT INTO texts VALUES (?, ?)", (number, claim))
        for segment in segments:
            self._excess[segment] -= 1
        self._targets.extend(segments)  # as many as it will have
        self._starts.append(len(self._targets))
        self._holds.extend(sorted(holds))
        self._hold_starts.append(len(self._holds))
        return None

    def assign(self) -> None:
        """Choose for all claims.

        Greedy first (the most constrained claims choose first, each the segments that lack most), then chains of
        exchanges from overfull to underfull segments until none helps: optimal for the sum of squared differences, a
        separable convex flow.
        """
        heap = [(excess + _BELOW) << _PLACE | segment for segment, excess in enumerate(self._excess)]
        heapq.heapify(heap)
        for claim in sorted(range(len(self._ranks)), key=self._ranks.__getitem__):
            holds, need = self._holds_of(claim), self._starts[claim + 1] - self._starts[claim]
            back: list[int] = []
            chosen = array("q")
            while len(chosen) < need:
                item = heapq.heappop(heap)
                segment = item & ((1 << _PLACE) - 1)
                if self._group_of[segment] in holds:
                    back.append(item)
                else:
                    chosen.append(segment)
                    back.append(item + (1 << _PLACE))
            for item in back:
                heapq.heappush(heap, item)
            self._targets[self._starts[claim] : self._starts[claim + 1]] = chosen
            for segment in chosen:
                self._excess[segment] += 1
        self._even_out()

    def targets(self, claim: int) -> list[int]:
        """The segments that a claim is asked of falsely, in the order of its positives."""
        return sorted(self._targets_of(claim), key=self._order.__getitem__)

    def _targets_of(self, claim: int) -> array[int]:
        return self._targets[self._starts[claim] : self._starts[claim + 1]]

    def _holds_of(self, claim: int) -> set[int]:
        return set(self._holds[self._hold_starts[claim] : self._hold_starts[claim + 1]])

    def _even_out(self) -> None:
        """Exchange along chains until none helps."""
        if not self._ranks or max(self._excess) - min(self._excess) < 2:
            return
        asked_of: dict[int, set[int]] = {}
        for claim in range(len(self._ranks)):
            for segment in self._targets_of(claim):
                asked_of.setdefault(segment, set()).add(claim)
        by_text = array("q", [0] * len(self._ranks))
        for place, (claim,) in enumerate(self._texts.execute("SELECT number FROM texts ORDER BY text")):
            by_text[claim] = place
        while chain := self._chain(asked_of, by_text):
            for claim, source, target in chain:
                start, end = self._starts[claim], self._starts[claim + 1]
                self._targets[self._targets.index(source, start, end)] = target
                asked_of[source].discard(claim)
                asked_of.setdefault(target, set()).add(claim)
            self._excess[chain[0][1]] -= 1
            self._excess[chain[-1][2]] += 1

    def _chain(self, asked_of: dict[int, set[int]], by_text: Sequence[int]) -> list[Move]:
        """Moves that take one negative from a segment to one whose excess is lower by two or more."""
        came: dict[int, tuple[int, int] | None] = {}  # a start that led nowhere bars its segments to every lower start
        followed: set[int] = set()
        lowest = min(self._excess)
        unvisited = list(range(len(self._excess)))
        starts = (segment for segment, claims in asked_of.items() if claims and self._excess[segment] - 2 >= lowest)
        for start in sorted(starts, key=lambda segment: (-self._excess[segment], self._by_key[segment])):
            if start in came:
                continue
            came[start] = None
            queue = deque([start])
            while queue:
                here = queue.popleft()
                if self._excess[here] <= self._excess[start] - 2:
                    return list(_trace(here, came))
                for claim in sorted(asked_of.get(here, set()) - followed, key=by_text.__getitem__):
                    followed.add(claim)
                    unvisited = self._follow(claim, here, unvisited, came, queue)
        return []

    def _follow(
        self,
        claim: int,
        here: int,
        unvisited: Sequence[int],
        came: dict[int, tuple[int, int] | None],
        queue: deque[int],
    ) -> list[int]:
        """Visit every segment that a claim may move to; returns those that are left."""
        holds, targets = self._holds_of(claim), set(self._targets_of(claim))
        left: list[int] = []
        for there in unvisited:
            if there in came:
                continue
            if self._group_of[there] in holds or there in targets:
                left.append(there)
            else:
                came[there] = (claim, here)
                queue.append(there)
        return left


def _trace(end: int, came: dict[int, tuple[int, int] | None]) -> Iterator[Move]:
    moves: list[Move] = []
    while (step := came[end]) is not None:
        moves.append((step[0], step[1], end))
        end = step[1]
    return reversed(moves)
