"""Read facts back from their sentences: a conceptual claim into role and value, a contextual one into its slots.

The inverse of the rendering in importers/facts.py. A contextual phrase follows one of DualFact's patterns (appendix E):
verb + object, verb + "with" + tool, verb + preposition + location, or several of them in one phrase ("chop onion with
knife on board"). A phrase of no pattern is None.

Words are compared by stem (appendix E: no altered value may reuse a word, stem or substring of a true one): enough
English morphology to see that "chopping", "chopped" and "chop" are one word. The rules are our own, without a
dictionary. A stem need not be a word ("slice", "slicing" -> "slic"): the forms of one word must meet, and different
words rarely do.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from ...core import Pair
from ..importers import contextual_claim


def word_set(text: str) -> frozenset[str]:
    """The words of a text, for tables of words."""
    return frozenset(text.split())


RUN = 4  # letters in a row that two values may not share
_WORD = re.compile(r"\d+(?:[.,/]\d+)*|[^\W\d_]+")
_LITTLE = word_set("a an the of and or in on at to into onto from with for by some any its his her their your my s")
_NUMBERS = word_set(
    "zero one two three four five six seven eight nine ten eleven twelve dozen hundred half halves quarter "
    "third few several many more less couple double twice"
)
_UNITS = word_set(
    "cup tbsp tsp tablespoon teaspoon g gram kg mg ml l cl litre liter oz ounce lb pound inch cm mm m meter "
    "metre foot pinch dash handful piece minut min hour second degre percent"
)
_IRREGULAR = {
    form: word
    for word, forms in {
        "add": "adding added",
        "beat": "beaten",
        "bind": "bound",
        "break": "broke broken",
        "child": "children",
        "draw": "drew drawn",
        "foot": "feet",
        "freeze": "froze frozen",
        "grind": "ground",
        "half": "halves halve halving halved",
        "hold": "held",
        "knife": "knives",
        "leaf": "leaves",
        "loaf": "loaves",
        "man": "men",
        "mouse": "mice",
        "puree": "pureed pureeing",
        "saute": "sauteed sauteing",
        "saw": "sawn",
        "sew": "sewn",
        "shake": "shook shaken",
        "shelf": "shelves",
        "take": "took taken",
        "tear": "tore torn",
        "throw": "threw thrown",
        "tie": "tying",
        "tooth": "teeth",
        "weave": "wove woven",
        "woman": "women",
    }.items()
    for form in forms.split()
}


@dataclass(frozen=True)
class Words:
    """A value taken apart.

    Attributes:
        words: its words without articles, prepositions and conjunctions.
        stems: theirs, in order.
        content: the stems that are neither numbers nor, beside a number, units.
        runs: every run of `RUN` letters inside a stem.
        sequence: the stems of all words in a row, little ones too ("turn on" is not "turn").
    """

    words: tuple[str, ...]
    stems: tuple[str, ...]
    content: tuple[str, ...]
    runs: frozenset[str]
    sequence: tuple[str, ...]


@lru_cache(maxsize=1 << 18)
def words_of(text: str) -> Words:
    """The words of a value, folded (case, accents, compatibility forms)."""
    spoken = _WORD.findall(_fold(text))
    words = tuple(word for word in spoken if word not in _LITTLE)
    stems = tuple(stem(word) for word in words)
    counted = any(_is_number(word) for word in words)
    content = tuple(
        s for word, s in zip(words, stems, strict=True) if not (_is_number(word) or (counted and _is_unit(word, s)))
    )
    runs = frozenset(s[i : i + RUN] for s in stems for i in range(len(s) - RUN + 1))
    return Words(words, stems, content, runs, tuple(stem(word) for word in spoken))


@lru_cache(maxsize=1 << 18)
def stem(word: str) -> str:
    """The stem of one lower-case word without accents: endings of number and tense cut off, and a final e."""
    word = _IRREGULAR.get(word, word)
    word = _without_tense(_without_plural(word))
    if len(word) > 2 and word.endswith("e"):
        return word[:-1]  # slice, slicing
    return word[:-1] + "i" if len(word) > 2 and word[-1] == "y" and word[-2] not in "aeiou" else word  # cookie, cookies


def _without_plural(word: str) -> str:
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y" if len(word) > 4 else word[:-1]
    if word.endswith(("sses", "xes", "zes", "ches", "shes", "oes")):
        return word[:-2]
    return word[:-1]


def _without_tense(word: str) -> str:
    if word.endswith("ied") and len(word) > 4:
        return word[:-3] + "y"
    for ending in ("ing", "ed"):
        start = word.removesuffix(ending)
        if start == word or len(start) < 2 or word.endswith("eed") or not re.search("[aeiouy]", start):
            continue
        doubled = len(start) > 2 and start[-1] == start[-2] and start[-1] not in "aeioulsfz"
        return start[:-1] if doubled else start
    return word


def _fold(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def _is_number(word: str) -> bool:
    return word[0].isdigit() or word in _NUMBERS


def _is_unit(word: str, stemmed: str) -> bool:
    return word in _UNITS or stemmed in _UNITS


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
