"""The ways a contextual claim may be altered: DualFact's error types A to E (appendix E), patterns kept.

A: negative verb + original object. B: verb + wrong object. C: verb + wrong tool. D: verb + wrong location, after the
same preposition. E: negative verb + wrong object.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .phrases import KIND_OF_PLACE, Phrase, Slot, claim_of
from .vocabulary import Candidate, Place
from .word_groups import WordGroups


@dataclass(frozen=True)
class Change:
    """One way to alter a claim.

    Attributes:
        origin: of the pairs it makes.
        replaced: the role or slots it replaces, as the pairs' meta names them.
        roles: the role of each replaced value.
        true: the values that stand there.
        places: where candidates are looked for, the most plausible first.
        render: the claim that a candidate gives.
    """

    origin: str
    replaced: str
    roles: tuple[str, ...]
    true: Candidate
    places: tuple[Place, ...]
    render: Callable[[Candidate], str]


def changes_of(phrase: Phrase, groups: WordGroups) -> list[Change]:
    """Every way to alter a phrase: what its pattern has, by the letters of the types."""
    found = list(_of_event(phrase, groups)) if phrase.object else []
    found.extend(_of_relation(phrase, i, "tool", "C", _tool_places(phrase, groups)) for i in phrase.places("tool"))
    found.extend(
        _of_relation(phrase, i, "location", "D", _location_places(phrase, phrase.relations[i].word))
        for i in phrase.places("location")
    )
    return found


def _of_event(phrase: Phrase, groups: WordGroups) -> Iterator[Change]:
    verb, thing = phrase.verb, phrase.object
    yield Change(
        "altered_claim_A",
        "verb",
        ("action",),
        (verb,),
        (("verb", thing), ("verb",)),
        lambda candidate: claim_of(dataclasses.replace(phrase, verb=candidate[0])),
    )
    yield Change(
        "altered_claim_B",
        "object",
        ("object",),
        (thing,),
        (("object", verb), *_of_kind("object", verb, groups), ("object",)),
        lambda candidate: claim_of(dataclasses.replace(phrase, object=candidate[0])),
    )
    yield Change(
        "altered_claim_E",
        "verb, object",
        ("action", "object"),
        (verb, thing),
        (("event",),),
        lambda candidate: claim_of(dataclasses.replace(phrase, verb=candidate[0], object=candidate[1])),
    )


def _of_relation(phrase: Phrase, index: int, slot: Slot, letter: str, places: tuple[Place, ...]) -> Change:
    return Change(
        f"altered_claim_{letter}",
        slot,
        (slot,),
        (phrase.relations[index].argument,),
        places,
        lambda candidate: claim_of(phrase.with_argument(index, candidate[0])),
    )


def _tool_places(phrase: Phrase, groups: WordGroups) -> tuple[Place, ...]:
    return (("tool", phrase.verb), *_of_kind("tool", phrase.verb, groups), ("tool",))


def _location_places(phrase: Phrase, word: str) -> tuple[Place, ...]:
    kind = KIND_OF_PLACE[word]
    return (("location", word, phrase.verb), ("location", word), ("location", "kind", kind))


def _of_kind(slot: Slot, verb: str, groups: WordGroups) -> Iterator[Place]:
    return ((slot, "kind", name) for name in sorted(groups.functions("action", verb)))
