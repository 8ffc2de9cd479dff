"""Make refuted pairs by swapping evidence: a claim that holds for one segment, asked of a segment of another group.

A swapped claim has the very same text as its positive, so a model cannot tell them apart without looking. `balanced`
carries that to the end: every sentence occurs equally often supported and refuted, and text alone gives exactly chance.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
import unicodedata
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from .rows import Pair, evidence_key
from .splits import rank

SwappedLabel = Literal["refuted", "not_enough"]
_key = functools.lru_cache(maxsize=100_000)(evidence_key)  # many rows share their evidence


def normal_claim(claim: str) -> str:
    """The form in which two claims count as the same sentence: NFKC, case, spaces and final full stop aside."""
    return " ".join(unicodedata.normalize("NFKC", claim).casefold().split()).rstrip(". ")


@dataclasses.dataclass(frozen=True)
class Segments:
    """The evidence of one split in a pseudo-random order, each with a pair that has it."""

    keys: tuple[str, ...]
    examples: tuple[Pair, ...]

    @classmethod
    def of(cls, pairs: Iterable[Pair], seed: int) -> Segments:
        """Collect the segments of `pairs` (the first pair of each stands for it), ordered by the seed."""
        examples: dict[str, Pair] = {}
        for pair in pairs:
            examples.setdefault(_key(pair.evidence), pair)
        order = sorted(examples, key=lambda key: rank(seed, "segment", key))
        return cls(tuple(order), tuple(examples[key] for key in order))

    def allowed(self, holds_in: Collection[str], start: int = 0) -> Iterator[int]:
        """The numbers of the segments outside the groups in which a claim holds; begins at the start-th."""
        for number in itertools.chain(range(start, len(self.keys)), range(start)):
            if self.examples[number].group not in holds_in:
                yield number


def swapped_negatives(
    pairs: Sequence[Pair],
    per_claim: int,
    generic_claims: Collection[str] = (),
    seed: int = 0,
    label: SwappedLabel = "refuted",
) -> tuple[list[Pair], int]:
    """`per_claim` swapped pairs for every supported pair of one split.

    The target segment belongs to another group and to no group in which the claim holds; generic claims (which may hold
    unannotated anywhere) are never swapped.

    Returns:
        The new pairs (group of their evidence, context of their claim), and how many could not be made.
    """
    segments = Segments.of(pairs, seed)
    generic = {normal_claim(claim) for claim in generic_claims}
    by_claim: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_claim[normal_claim(pair.claim)].append(pair)
    made: list[Pair] = []
    missing = 0
    for claim, same in by_claim.items():
        if claim not in generic:
            new, without = swaps_of_claim(same, segments, per_claim, seed, label)
            made.extend(new)
            missing += without
    return made, missing


def swaps_of_claim(
    same: Sequence[Pair], segments: Segments, per_claim: int, seed: int, label: SwappedLabel
) -> tuple[list[Pair], int]:
    """The swapped pairs of all the rows of one split that make one claim, and how many could not be made."""
    holds_in = {pair.group for pair in same if pair.label == "supported"}
    taken = {_key(pair.evidence) for pair in same}
    made: list[Pair] = []
    missing = 0
    for pair in same:
        if pair.label != "supported":
            continue
        start = int(rank(seed, "swap", pair.id), 16) % len(segments.keys)
        free = (number for number in segments.allowed(holds_in, start) if segments.keys[number] not in taken)
        chosen = list(itertools.islice(free, per_claim))
        missing += per_claim - len(chosen)
        taken.update(segments.keys[number] for number in chosen)
        made.extend(_swap(pair, segments.examples[number], label) for number in chosen)
    return made, missing


def _swap(claim_of: Pair, evidence_of: Pair, label: SwappedLabel) -> Pair:
    digest = rank(0, _key(evidence_of.evidence))[:8]
    return dataclasses.replace(
        claim_of,
        id=f"{claim_of.id}/swapped/{digest}",
        evidence=evidence_of.evidence,
        label=label,
        soft_label=None,
        group=evidence_of.group,
        origin="swapped_evidence",
        teacher_margin=None,
        meta={"claim_of": claim_of.id},
    )


def balanced_pairs(
    pairs: Sequence[Pair],
    generic_claims: Collection[str] = (),
    seed: int = 0,
    label: SwappedLabel = "refuted",
) -> tuple[list[Pair], dict[str, int]]:
    """Annotated positives and as many swapped negatives, balanced per sentence, and nearly per segment.

    All `pairs` are of one split. A claim that holds in n segments gets n distinct other segments; negatives per segment
    differ from its positives by as little as possible (no chain of exchanges brings them nearer).

    Returns:
        The balanced pairs, and how many positives were left out: as `generic`, or as `unbalanceable` (fewer segments
        where the claim may be asked than segments where it holds).
    """
    segments = Segments.of(pairs, seed)
    generic = {normal_claim(claim) for claim in generic_claims}
    positives: dict[str, list[Pair]] = defaultdict(list)
    left_out = Counter(generic=0, unbalanceable=0)
    for pair in pairs:
        if pair.label == "supported":
            positives[normal_claim(pair.claim)].append(pair)
    examples = dict(zip(segments.keys, segments.examples, strict=True))
    allowed = {
        claim: [segments.keys[number] for number in segments.allowed({pair.group for pair in group})]
        for claim, group in positives.items()
    }
    for claim in list(positives):
        if claim in generic or len(allowed[claim]) < len(positives[claim]):
            left_out["generic" if claim in generic else "unbalanceable"] += len(positives.pop(claim))
    targets = _spread({c: len(p) for c, p in positives.items()}, allowed, _counts(positives.values()), seed)
    made = [
        _swap(pair, examples[key], label)
        for claim, group in positives.items()
        for pair, key in zip(group, sorted(targets[claim], key=lambda key: rank(seed, "order", key)), strict=True)
    ]
    return [pair for group in positives.values() for pair in group] + made, dict(left_out)


def _counts(positives: Iterable[list[Pair]]) -> Counter[str]:
    return Counter(_key(pair.evidence) for group in positives for pair in group)


def _spread(
    needs: Mapping[str, int], allowed: Mapping[str, list[str]], positives: Counter[str], seed: int
) -> dict[str, set[str]]:
    """{claim: its target segments}, `needs[claim]` of them, filling each segment to its number of positives.

    Greedy first (the most constrained claims choose first), then chains of exchanges from overfull to underfull
    segments until none helps: optimal for the sum of squared differences, a separable convex flow.
    """
    excess: Counter[str] = Counter({key: -count for key, count in positives.items()})
    targets: dict[str, set[str]] = {}
    for claim in sorted(needs, key=lambda c: (len(allowed[c]), rank(seed, "claim", c))):
        targets[claim] = set(heapq.nsmallest(needs[claim], allowed[claim], key=excess.__getitem__))
        excess.update(targets[claim])
    asked: dict[str, set[str]] = defaultdict(set)
    for claim, keys in targets.items():
        for key in keys:
            asked[key].add(claim)
    while chain := _chain(asked, targets, allowed, excess):
        for claim, source, target in chain:
            targets[claim] = targets[claim] - {source} | {target}
            asked[source].discard(claim)
            asked[target].add(claim)
        excess.subtract([chain[0][1]])
        excess.update([chain[-1][2]])
    return targets


def _chain(
    asked: Mapping[str, set[str]],
    targets: Mapping[str, set[str]],
    allowed: Mapping[str, list[str]],
    excess: Counter[str],
) -> list[tuple[str, str, str]]:
    """Moves (claim, from, to) that take one negative from a segment to one whose excess is lower by two or more."""
    came: dict[str, tuple[str, str] | None] = {}  # a start that led nowhere bars its segments to every lower start
    followed: set[str] = set()
    for start in sorted((key for key in asked if asked[key]), key=lambda key: (-excess[key], key)):
        queue = deque([] if start in came else [start])
        came.setdefault(start, None)
        while queue:
            here = queue.popleft()
            if excess[here] <= excess[start] - 2:
                return _trace(here, came)
            for claim in sorted(asked.get(here, set()) - followed):
                followed.add(claim)
                for there in allowed[claim]:
                    if there not in came and there not in targets[claim]:
                        came[there] = (claim, here)
                        queue.append(there)
    return []


def _trace(end: str, came: Mapping[str, tuple[str, str] | None]) -> list[tuple[str, str, str]]:
    moves: list[tuple[str, str, str]] = []
    while (step := came[end]) is not None:
        moves.append((step[0], step[1], end))
        end = step[1]
    return moves[::-1]
