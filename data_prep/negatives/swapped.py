"""Make refuted pairs by swapping evidence: a claim that holds for one segment, asked of a segment of another group.

A swapped claim has the very same text as its positive, so a model cannot tell them apart without looking. `balanced`
carries that to the end: every sentence occurs equally often supported and refuted, and text alone gives exactly chance.
"""

from __future__ import annotations

import dataclasses
import itertools
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar

from ...core import Pair, evidence_key
from ..dataset import rank
from .even_swaps import EvenSwaps

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
    number_of = {key: number for number, key in enumerate(segments.keys)}
    swaps = EvenSwaps(segments.keys, segments.groups, generic, seed)
    for claim in list(positives):
        held = [number_of[evidence_key(pair.evidence)] for pair in positives[claim]]
        if (reason := swaps.add(claim, held, (pair.group for pair in positives[claim]))) is not None:
            left_out[reason] += len(positives.pop(claim))
    swaps.assign()
    made = [
        _swap(pair, examples[segments.keys[number]], label)
        for claim, group in enumerate(positives.values())
        for pair, number in zip(group, swaps.targets(claim), strict=True)
    ]
    return [pair for group in positives.values() for pair in group] + made, dict(left_out)
