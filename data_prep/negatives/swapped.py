"""Make refuted pairs by swapping evidence: a claim that holds for one segment, asked of a segment of another group.

A swapped claim has the very same text as its positive, so a model cannot tell them apart without looking. `balanced`
carries that to the end: every sentence occurs equally often supported and refuted, and text alone gives exactly chance.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import unicodedata
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar

from ...core import Pair, evidence_key
from ..dataset import rank

SwappedLabel = Literal["refuted", "not_enough"]
SWAPPED = "swapped_evidence"
Key = TypeVar("Key", str, int)


def normal_claim(claim: str) -> str:
    """The form in which two claims count as the same sentence: NFKC, case, spaces and final full stop aside."""
    return " ".join(unicodedata.normalize("NFKC", claim).casefold().split()).rstrip(". ")


@dataclasses.dataclass(frozen=True)
class Segments(Generic[Key]):
    """The evidence of one split in a pseudo-random order: what names each, and its group."""

    keys: Sequence[Key]
    groups: Sequence[str]

    def allowed(self, holds_in: Collection[str], start: int = 0) -> Iterator[int]:
        """The numbers of the segments outside the groups in which a claim holds; begins at the start-th."""
        for number in itertools.chain(range(start, len(self.keys)), range(start)):
            if self.groups[number] not in holds_in:
                yield number


class ClaimRow(NamedTuple, Generic[Key]):
    """A row as the choice of swaps sees it: its id, its evidence and group, and whether it is supported."""

    id: str
    evidence: Key
    group: str
    supported: bool | int


def swap_targets(
    same: Sequence[ClaimRow[Key]], segments: Segments[Key], per_claim: int, seed: int
) -> tuple[list[tuple[int, int]], int]:
    """Segments of which a claim is to be asked falsely, given all rows of one split that make this claim.

    A target belongs to no group in which the claim holds, and the claim is not asked of it yet.

    Returns:
        (number in `same` of a supported row, number of a segment), `per_claim` for each; how many could not be found.
    """
    holds_in = {row.group for row in same if row.supported}
    taken = {row.evidence for row in same}
    keys, groups, n_segments = segments.keys, segments.groups, len(segments.keys)
    chosen: list[tuple[int, int]] = []
    wanted = 0
    none_left = False
    for index, row in enumerate(same):
        if not row.supported:
            continue
        wanted += per_claim
        if none_left:  # all segments were looked at for an earlier row, and none is given back
            continue
        start, n_targets = int(rank(seed, "swap", row.id)[:16], 16) % n_segments, 0
        for number in itertools.chain(range(start, n_segments), range(start)):
            if n_targets == per_claim:
                break
            if groups[number] not in holds_in and keys[number] not in taken:
                taken.add(keys[number])
                chosen.append((index, number))
                n_targets += 1
        none_left = n_targets < per_claim
    return chosen, wanted - len(chosen)


def segment_rank(seed: int, key: str) -> str:
    """The place of a segment in the pseudo-random order; `key` is its `evidence_key`."""
    return rank(seed, "segment", key)


def swapped_suffix(key: str) -> str:
    """What is added to a pair's id when its claim is asked of other evidence, named by its `evidence_key`."""
    return f"/swapped/{rank(0, key)[:8]}"


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
    segments, examples = _segments_of(pairs, seed)
    generic = {normal_claim(claim) for claim in generic_claims}
    by_claim: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_claim[normal_claim(pair.claim)].append(pair)
    made: list[Pair] = []
    missing = 0
    for claim, same in by_claim.items():
        if claim not in generic:
            claim_rows = [ClaimRow(p.id, evidence_key(p.evidence), p.group, p.label == "supported") for p in same]
            chosen, without = swap_targets(claim_rows, segments, per_claim, seed)
            made.extend(_swap(same[index], examples[segments.keys[number]], label) for index, number in chosen)
            missing += without
    return made, missing


def _segments_of(pairs: Iterable[Pair], seed: int) -> tuple[Segments[str], dict[str, Pair]]:
    """The segments of `pairs` and, by evidence key, the first pair of each."""
    examples: dict[str, Pair] = {}
    for pair in pairs:
        examples.setdefault(evidence_key(pair.evidence), pair)
    keys = sorted(examples, key=lambda key: segment_rank(seed, key))
    return Segments(keys, [examples[key].group for key in keys]), examples


def _swap(claim_of: Pair, evidence_of: Pair, label: SwappedLabel) -> Pair:
    return dataclasses.replace(
        claim_of,
        id=claim_of.id + swapped_suffix(evidence_key(evidence_of.evidence)),
        evidence=evidence_of.evidence,
        label=label,
        soft_label=None,
        group=evidence_of.group,
        origin=SWAPPED,
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
    segments, examples = _segments_of(pairs, seed)
    generic = {normal_claim(claim) for claim in generic_claims}
    positives: dict[str, list[Pair]] = defaultdict(list)
    left_out = Counter(generic=0, unbalanceable=0)
    for pair in pairs:
        if pair.label == "supported":
            positives[normal_claim(pair.claim)].append(pair)
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
    return Counter(evidence_key(pair.evidence) for group in positives for pair in group)


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
    claims: dict[str, set[str]] = defaultdict(set)
    for claim, keys in targets.items():
        for key in keys:
            claims[key].add(claim)
    while chain := _chain(claims, targets, allowed, excess):
        for claim, source, target in chain:
            targets[claim] = targets[claim] - {source} | {target}
            claims[source].discard(claim)
            claims[target].add(claim)
        excess.subtract([chain[0][1]])
        excess.update([chain[-1][2]])
    return targets


def _chain(
    claims: Mapping[str, set[str]],
    targets: Mapping[str, set[str]],
    allowed: Mapping[str, list[str]],
    excess: Counter[str],
) -> list[tuple[str, str, str]]:
    """Moves (claim, from, to) that take one negative from a segment to one whose excess is lower by two or more."""
    came: dict[str, tuple[str, str] | None] = {}  # a start that led nowhere bars its segments to every lower start
    followed: set[str] = set()
    for start in sorted((key for key in claims if claims[key]), key=lambda key: (-excess[key], key)):
        queue = deque([] if start in came else [start])
        came.setdefault(start, None)
        while queue:
            here = queue.popleft()
            if excess[here] <= excess[start] - 2:
                return _trace(here, came)
            for claim in sorted(claims.get(here, set()) - followed):
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
