"""Make refuted pairs by altering claims: one slot of a true fact gets a value that does not hold (DualFact, section 3).

Rule-based and reproducible: values are drawn from what is true elsewhere in the data set (vocabulary.py) under the
paper's rules (altered_rules.py), by a random stream that depends on the seed and the pair's id alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence

from ...core.pairs import Pair
from ..importers.facts import conceptual_claim
from ..negatives import normal_claim
from ..splits import rank
from .altered_contextual import Change, changes_of
from .altered_rules import Truths
from .altered_rules import violations as violations
from .phrases import SegmentFacts as SegmentFacts
from .phrases import conceptual_value, contextual_phrase, phrase_of
from .phrases import segment_facts as segment_facts
from .vocabulary import Candidate, Vocabulary
from .word_groups import WordGroups, family


def altered_claims(
    pairs: Sequence[Pair],
    vocabulary: Vocabulary,
    per_claim: int,
    seed: int,
    true_in_group: Collection[str] = (),
) -> tuple[list[Pair], int]:
    """`per_claim` altered pairs for every supported pair of one segment.

    Conceptual claims get another value of their role (origin `altered_claim`); contextual ones an error of type A to E
    (`altered_claim_A`, ...), the types that their pattern has taking turns.

    Args:
        pairs: all pairs of one piece of evidence. Their order does not matter.
        vocabulary: of the whole data set.
        true_in_group: normalised claims that hold in the segment's group: never made.

    Returns:
        The refuted pairs, and how many could not be made (a claim that is no fact counts as well).
    """
    truths = Truths.of(segment_facts(pairs), _captions(pairs), vocabulary.groups)
    taken = {normal_claim(pair.claim) for pair in pairs}
    made: list[Pair] = []
    asked = 0
    for pair in sorted(pairs, key=lambda pair: pair.id):
        if pair.label != "supported":
            continue
        asked += per_claim
        changes = _changes(pair, vocabulary.groups)
        numbers = _numbers(seed, pair.id)
        first = int(next(numbers) * len(changes))
        for turn in range(first, first + per_claim if changes else first):
            in_turn = (changes[(turn + step) % len(changes)] for step in range(len(changes)))
            found = (_alter(change, truths, vocabulary, numbers, (taken, true_in_group)) for change in in_turn)
            if (altered := next((item for item in found if item), None)) is not None:
                taken.add(normal_claim(altered[1]))
                made.append(_pair(pair, *altered))
    return made, asked - len(made)


def _captions(pairs: Iterable[Pair]) -> set[str]:
    told = (pair.meta.get(key) for pair in pairs for key in ("caption", "caption_implicit"))
    return {caption for caption in told if isinstance(caption, str)}


def _changes(pair: Pair, groups: WordGroups) -> list[Change]:
    """Every way to alter a pair's claim; none where it is no fact."""
    if (value := conceptual_value(pair.role, pair.claim)) is not None:
        role = pair.role
        places = (("value", role), ("family", family(role)))
        return [
            Change("altered_claim", role, (role,), (value,), places, lambda found: conceptual_claim(role, found[0]))
        ]
    text = contextual_phrase(pair.role, pair.claim)
    phrase = phrase_of(text) if text else None
    return changes_of(phrase, groups) if phrase else []


def _alter(
    change: Change,
    truths: Truths,
    vocabulary: Vocabulary,
    numbers: Iterator[float],
    forbidden: tuple[Collection[str], Collection[str]],
) -> tuple[Change, str, Candidate] | None:
    """The change, the altered claim and the values in it; None where no value keeps the rules.

    A place where one value is true nearly always has no room for as many others: beyond that, less specific places are
    tried first.
    """
    tables = [table for place in change.places if (table := vocabulary.table(place)) is not None]
    crowded = [next(numbers) >= table.room(change.true) for table in tables[:-1]] + [False] * bool(tables)
    for _, table in sorted(zip(crowded, tables, strict=True), key=lambda item: item[0]):
        for candidate in table.draws(numbers):
            if not truths.contradict(change.roles, candidate):
                continue
            claim = change.render(candidate)
            if not any(normal_claim(claim) in claims for claims in forbidden):
                return change, claim, candidate
    return None


def _pair(pair: Pair, change: Change, claim: str, candidate: Candidate) -> Pair:
    meta = {
        "claim_of": pair.id,
        "replaced": change.replaced,
        "true": " ".join(change.true),
        "altered": " ".join(candidate),
    }
    return dataclasses.replace(
        pair,
        id=f"{pair.id}/altered/{rank(0, normal_claim(claim))[:8]}",
        claim=claim,
        label="refuted",
        soft_label=None,
        origin=change.origin,
        teacher_margin=None,
        meta=meta,
    )


def _numbers(seed: int, name: str) -> Iterator[float]:
    """Pseudo-random numbers in [0, 1) that depend on the seed and the name alone."""
    for block in itertools.count():
        digest = hashlib.sha256(f"{seed}\0altered\0{name}\0{block}".encode("utf-8", "surrogatepass")).digest()
        yield from (word / 2**64 for word in struct.unpack(">4Q", digest))
