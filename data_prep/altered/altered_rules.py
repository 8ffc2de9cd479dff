"""DualFact's rules for altered values (appendices C.5 and E), as a validator, and what is true of one segment.

The paper gives the rules as prompts for a language model. Here they are checks: of values drawn by rule, and of values
a language model proposes. The overlap rule is applied to the replaced slot against the true values of the same role:
for contextual negatives appendix E also forbids every word of the positive facts, and its own error types A to D, which
keep the other slot, cannot obey that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .phrases import SegmentFacts, phrase_of
from .stems import words_of
from .vocabulary import Candidate, Vocabulary
from .word_groups import WordGroups, family

_SHORTEST_PART = 3  # letters of a whole word that counts when it is contained in another


def violations(role: str, value: str, true_values: Sequence[str], vocabulary: Vocabulary) -> list[str]:
    """Every rule that `value` breaks as the altered value of a role of which `true_values` hold in the segment.

    `role` is a conceptual role, or the role that a contextual slot fills (Action for the verb, Object, Tool, Location).
    Whether the value is plausible is not judged here: see `Vocabulary.knows`.
    """
    return list(_broken_rules(role, value, true_values, vocabulary.groups))


def _broken_rules(role: str, value: str, true_values: Iterable[str], groups: WordGroups) -> Iterator[str]:
    if not words_of(value).words or not value.isprintable():
        yield f"altered value must be a word or a few in one line, got {value!r}; write a short phrase"
        return
    if groups.is_generic(value):
        yield f"altered value may hold nearly everywhere, got {value!r}; use something specific"
    for true in true_values:
        beside = f"got {value!r} beside the true {true!r}"
        if overlap := overlap_of(value, true):
            yield f"altered value {overlap} a true one, {beside}; use other words"
        if words_of(value).content == words_of(true).content and words_of(value).stems != words_of(true).stems:
            yield f"altered value differs in numbers or quantities only, {beside}; use another thing"
        if groups.is_synonym(value, true):
            yield f"altered value is a synonym of a true one, {beside}; use another thing"
        if groups.is_kind_or_part(value, true):
            yield f"altered value is a kind or part of a true one, or the reverse, {beside}; use an unrelated thing"
        if same := groups.functions(role, value) & groups.functions(role, true):
            yield f"altered value serves the same function, {min(same)}, {beside}; use another function"


def overlap_of(value: str, true: str) -> str:
    """How two values share letters: "shares a word with", "shares a stem with", "shares letters with", or nothing."""
    one, other = words_of(value), words_of(true)
    if not set(one.stems).isdisjoint(other.stems):
        return "shares a word with" if not set(one.words).isdisjoint(other.words) else "shares a stem with"
    if not one.runs.isdisjoint(other.runs):
        return "shares letters with"
    contained = any(
        (len(a) >= _SHORTEST_PART and a in b) or (len(b) >= _SHORTEST_PART and b in a)
        for a in one.stems
        for b in other.stems
    )
    return "shares letters with" if contained else ""


@dataclass(frozen=True)
class Truths:
    """What holds in one segment, as far as is known.

    Attributes:
        groups: which words mean nearly the same.
        values: role family -> true values of that family, from conceptual facts and from the slots of phrases.
        shown: the content words of every true value that is no action: named in another role, it may hold in this one.
        told: the stems of the segment's captions: what they tell may hold without being a fact.
    """

    groups: WordGroups
    values: dict[str, list[str]]
    shown: frozenset[tuple[str, ...]]
    told: frozenset[str]

    @classmethod
    def of(cls, facts: SegmentFacts, captions: Iterable[str], groups: WordGroups) -> Truths:
        """The truths of a segment's facts and captions."""
        values: dict[str, list[str]] = {}
        for role, found in facts.conceptual.items():
            values.setdefault(family(role), []).extend(found)
        for text in facts.contextual:
            for kind, value in _slots(text):
                values.setdefault(kind, []).append(value)
        values = {kind: list(dict.fromkeys(found)) for kind, found in values.items()}
        nouns = (value for kind, found in values.items() if kind != "action" for value in found)
        told = (stem for caption in captions for stem in words_of(caption).stems)
        return cls(groups, values, frozenset(words_of(value).content for value in nouns), frozenset(told))

    def contradict(self, roles: Sequence[str], candidate: Candidate) -> bool:
        """Whether every value of a candidate breaks no rule in its role, and is not known to be there otherwise."""
        return all(self._contradict(role, value) for role, value in zip(roles, candidate, strict=True))

    def _contradict(self, role: str, value: str) -> bool:
        kind, content = family(role), words_of(value).content
        if content and self.told.issuperset(content):
            return False
        if kind != "action" and content in self.shown:
            return False
        return next(_broken_rules(role, value, self.values.get(kind, ()), self.groups), None) is None


def _slots(text: str) -> Iterator[tuple[str, str]]:
    """(role family, value) of every slot of a contextual phrase."""
    if (phrase := phrase_of(text)) is None:
        return
    yield "action", phrase.verb
    if phrase.object:
        yield "object", phrase.object
    for slot in ("tool", "location"):
        yield from ((slot, phrase.relations[index].argument) for index in phrase.places(slot))
