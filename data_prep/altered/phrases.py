"""Read facts back from their sentences: a conceptual claim into role and value, a contextual one into its slots.

The inverse of the rendering in importers/facts.py. A contextual phrase follows one of DualFact's patterns (appendix E):
verb + object, verb + "with" + tool, verb + preposition + location, or several of them in one phrase ("chop onion with
knife on board"). What follows no pattern is None, never guessed at.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from ...core.pairs import Pair
from ..importers.facts import contextual_claim
from .stems import word_set

Slot = Literal["verb", "object", "tool", "location"]

TOOL_WORDS = frozenset(("with", "using"))
PLACES = {  # places of one kind answer to one another: what one pours into, one can stir in
    "inside": "in into inside out_of from to through within",
    "surface": "on onto over on_top_of across off against along",
    "beside": "beside near next_to past by behind in_front_of under below above between around at toward towards",
}
KIND_OF_PLACE = {word.replace("_", " "): kind for kind, words in PLACES.items() for word in words.split()}
_OTHER = word_set("for until while as without per before after")
_PREPOSITIONS = {*TOOL_WORDS, *KIND_OF_PLACE, *_OTHER}
_LONGEST = max(len(preposition.split()) for preposition in _PREPOSITIONS)
_PARTICLES = word_set("up down out off away apart together back aside")
_TWO_WORD_VERBS = frozenset(
    ("deep fry", "stir fry", "pan fry", "air fry", "pat dry", "slow cook", "dry roast", "spray paint", "hot glue")
)
_NO_VERBS = word_set(
    "a an the this that these those there it he she they we i you his her their some one two three and not no"
)
_SENTENCE_WORDS = word_set("is are was were be been being has have had does did will can")


class Relation(NamedTuple):
    """A preposition and what follows it (empty in "flip pancake over")."""

    word: str
    argument: str


@dataclass(frozen=True)
class Phrase:
    """A contextual fact: what is done, to what, and with, in or on what."""

    verb: str
    object: str = ""
    relations: tuple[Relation, ...] = ()

    def text(self) -> str:
        """The phrase in words; `phrase_of` gives an equal phrase back."""
        parts = [self.verb, self.object, *(word for relation in self.relations for word in relation)]
        return " ".join(part for part in parts if part)

    def places(self, slot: Slot) -> list[int]:
        """Which relations fill a slot: indices into `relations`."""
        wanted = TOOL_WORDS if slot == "tool" else KIND_OF_PLACE
        return [i for i, (word, argument) in enumerate(self.relations) if argument and word in wanted]

    def with_argument(self, index: int, argument: str) -> Phrase:
        """The phrase with another argument after one of its prepositions."""
        relations = list(self.relations)
        relations[index] = Relation(relations[index].word, argument)
        return Phrase(self.verb, self.object, tuple(relations))


class SegmentFacts(NamedTuple):
    """What is annotated as true of one segment: role -> values, and contextual phrases."""

    conceptual: dict[str, list[str]]
    contextual: list[str]


def segment_facts(pairs: Iterable[Pair]) -> SegmentFacts:
    """The supported facts of one segment, in order and without repeats; claims that are no facts are passed over."""
    facts = SegmentFacts({}, [])
    for pair in pairs:
        if pair.label != "supported":
            continue
        if (value := conceptual_value(pair.role, pair.claim)) is not None:
            values = facts.conceptual.setdefault(pair.role, [])
        elif (value := contextual_phrase(pair.role, pair.claim)) is not None:
            values = facts.contextual
        else:
            continue
        if value not in values:
            values.append(value)
    return facts


def is_contextual(role: str) -> bool:
    """Whether a pair's role marks a contextual claim: `contextual`, or a relation such as `act/with`."""
    return role == "contextual" or role.startswith("act/")


def conceptual_value(role: str, claim: str) -> str | None:
    """The value of "<Role> is <value>."; None for any other sentence."""
    opening = f"{role} is "
    if not role or is_contextual(role) or not claim.startswith(opening):
        return None
    return claim[len(opening) :].strip().rstrip(".").strip() or None


def contextual_phrase(role: str, claim: str) -> str | None:
    """The phrase of a contextual claim: no full stop, and a small first letter where only the sentence made it big."""
    phrase = claim.strip().rstrip(".!?").strip()
    if not is_contextual(role) or not phrase:
        return None
    first = phrase.split()[0]
    return phrase if first[1:] != first[1:].lower() else phrase[0].lower() + phrase[1:]


def claim_of(phrase: Phrase) -> str:
    """The sentence of a phrase, as the importer writes it."""
    return contextual_claim(phrase.text())


@lru_cache(maxsize=1 << 18)
def phrase_of(text: str) -> Phrase | None:
    """The slots of a contextual phrase; None where it follows no pattern (a full sentence, a lone verb, no verb)."""
    words = text.split()
    folded = [word.casefold() for word in words]
    if len(words) < 2 or not words[0][0].isalpha() or folded[0] in _NO_VERBS or _SENTENCE_WORDS & set(folded):
        return None
    start = _verb_length(folded)
    if (cut := next(_prepositions(folded, start), None)) is None:
        return Phrase(" ".join(words[:start]), " ".join(words[start:])) if start < len(words) else None
    relations = []
    cuts = [*_prepositions(folded, start), (len(words), 0)]
    for (at, length), (end, _) in itertools.pairwise(cuts):
        relations.append(Relation(" ".join(folded[at : at + length]), " ".join(words[at + length : end])))
    return Phrase(" ".join(words[:start]), " ".join(words[start : cut[0]]), tuple(relations))


def _verb_length(folded: list[str]) -> int:
    """One word, or two: "deep fry", "pick up" ("crawl out of" is a verb and a preposition)."""
    if " ".join(folded[:2]) in _TWO_WORD_VERBS:
        return 2
    return 2 if folded[1] in _PARTICLES and " ".join(folded[1:3]) not in _PREPOSITIONS else 1


def _prepositions(folded: list[str], start: int) -> Iterator[tuple[int, int]]:
    """(position, length in words) of every preposition from `start` on, the longest reading of each."""
    at = start
    while at < len(folded):
        for length in range(_LONGEST, 0, -1):
            if " ".join(folded[at : at + length]) in _PREPOSITIONS and at + length <= len(folded):
                yield at, length
                at += length - 1
                break
        at += 1
