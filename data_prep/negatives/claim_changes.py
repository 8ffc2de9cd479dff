"""Make refuted pairs by altering claims: one slot of a true fact gets a value that does not hold (DualFact, section 3).

Values are drawn from what is true elsewhere in the data set (vocabulary.py) under the paper's rules, by a random stream
that depends on the seed and the pair's id alone.

Contextual claims are altered in DualFact's error types (appendix E), patterns kept. A: negative verb + original object.
B: verb + wrong object. C: verb + wrong tool. D: verb + wrong location, after the same preposition. E: negative verb +
wrong object.

The paper gives its rules (appendices C.5 and E) as prompts for a language model. Here they are checks: of values drawn
by rule, and of values a language model proposes. The overlap rule is applied to the replaced slot against the true
values of the same role: for contextual negatives appendix E also forbids every word of the positive facts, and its own
error types A to D, which keep the other slot, cannot obey that.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...core import Pair
from ..dataset import rank
from ..importers import conceptual_claim
from .phrases import (
    KIND_OF_PLACE,
    Phrase,
    SegmentFacts,
    Slot,
    claim_of,
    conceptual_value,
    contextual_phrase,
    is_contextual,
    phrase_of,
    words_of,
)
from .phrases import segment_facts as segment_facts
from .sentences import ORIGINS, REPLACED, Mentions, Sentences, with_text
from .swapped import normal_claim
from .vocabulary import Candidate, Place, Vocabulary, WordGroups, family, random_numbers


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
    changes = list(_of_event(phrase, groups)) if phrase.object else []
    changes.extend(_of_relation(phrase, i, "tool", "C", _tool_places(phrase, groups)) for i in phrase.places("tool"))
    changes.extend(
        _of_relation(phrase, i, "location", "D", _location_places(phrase, phrase.relations[i].word))
        for i in phrase.places("location")
    )
    return changes


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
        if relation := groups.in_wordnet(role, value, true):
            yield f"altered value is a {relation} of a true one in WordNet, or the reverse, {beside}; use another"
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
    """The values known to be true of one segment.

    Attributes:
        groups: which words mean nearly the same.
        values: role family -> true values of that family, from conceptual facts and from the slots of phrases.
        shown: the content words of every true value that is no action: named in another role, it may hold in this one.
        caption_stems: of the segment's captions: what they say may hold without being a fact.
    """

    groups: WordGroups
    values: dict[str, list[str]]
    shown: frozenset[tuple[str, ...]]
    caption_stems: frozenset[str]

    @classmethod
    def of(cls, facts: SegmentFacts, captions: Iterable[str], groups: WordGroups) -> Truths:
        """The truths of a segment's facts and captions."""
        values: dict[str, list[str]] = {}
        for role, members in facts.conceptual.items():
            values.setdefault(family(role), []).extend(members)
        for text in facts.contextual:
            for kind, value in _slots(text):
                values.setdefault(kind, []).append(value)
        values = {kind: list(dict.fromkeys(members)) for kind, members in values.items()}
        nouns = (value for kind, members in values.items() if kind != "action" for value in members)
        stems = (stem for caption in captions for stem in words_of(caption).stems)
        return cls(groups, values, frozenset(words_of(value).content for value in nouns), frozenset(stems))

    def contradict(self, roles: Sequence[str], candidate: Candidate) -> bool:
        """Whether every value of a candidate breaks no rule in its role, and is not known to be there otherwise."""
        return all(self._contradict(role, value) for role, value in zip(roles, candidate, strict=True))

    def _contradict(self, role: str, value: str) -> bool:
        kind, content = family(role), words_of(value).content
        if content and self.caption_stems.issuperset(content):
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


def altered_claims(
    pairs: Sequence[Pair],
    vocabulary: Vocabulary,
    per_claim: int,
    seed: int,
    true_in_group: Collection[str] = (),
    sentences: Sentences | None = None,
) -> tuple[list[Pair], int]:
    """`per_claim` altered pairs for every supported pair of one segment.

    Conceptual claims get another value of their role (origin `altered_claim`); contextual ones an error of type A to E
    (`altered_claim_A`, ...), the types that their pattern has taking turns; other sentences the same types, by what
    the parser reads in them.

    Args:
        pairs: all pairs of one piece of evidence. Their order does not matter.
        vocabulary: of the whole data set.
        true_in_group: normalised claims that hold in the segment's group: never made.
        sentences: of the whole data set, by the parser; None: sentences that are no facts are not altered.

    Returns:
        The refuted pairs, and how many could not be made (a claim that is no fact counts as well).
    """
    truths = Truths.of(segment_facts(pairs), _captions(pairs), vocabulary.groups)
    taken = {normal_claim(pair.claim) for pair in pairs}
    made: list[Pair] = []
    wanted = 0
    read = None if sentences is None else _Read.of(pairs, sentences, true_in_group)
    for pair in sorted(pairs, key=lambda pair: pair.id):
        if pair.label != "supported":
            continue
        wanted += per_claim
        if is_sentence(pair):
            altered = () if read is None else read.altered(pair, seed, (taken, true_in_group))
            new = [_pair(pair, *item) for item in itertools.islice(altered, per_claim)]
            taken.update(normal_claim(other.claim) for other in new)
            made.extend(new)
            continue
        changes = _changes(pair, vocabulary.groups)
        numbers = random_numbers(seed, pair.id)
        first = int(next(numbers) * len(changes))
        for turn in range(first, first + per_claim if changes else first):
            in_turn = (changes[(turn + step) % len(changes)] for step in range(len(changes)))
            candidates = (_alter(change, truths, vocabulary, numbers, (taken, true_in_group)) for change in in_turn)
            if (altered := next((item for item in candidates if item), None)) is not None:
                taken.add(normal_claim(altered[1]))
                made.append(_pair(pair, *altered))
    return made, wanted - len(made)


def is_sentence(pair: Pair) -> bool:
    """Whether a claim is no fact of a known form: only the parser can alter it."""
    return conceptual_value(pair.role, pair.claim) is None and not is_contextual(pair.role)


@dataclass(frozen=True)
class _Read:
    """What the parser sees in the claims of one segment and of its group."""

    sentences: Sentences
    segment: Mentions
    group: Mentions

    @classmethod
    def of(cls, pairs: Sequence[Pair], sentences: Sentences, true_in_group: Collection[str]) -> _Read | None:
        own = {normal_claim(pair.claim) for pair in pairs if pair.label == "supported"} | _captions(pairs)
        if not any(is_sentence(pair) for pair in pairs):
            return None
        return cls(sentences, sentences.mentions(own), sentences.mentions({*own, *true_in_group}))

    def altered(
        self, pair: Pair, seed: int, forbidden: tuple[Collection[str], ...]
    ) -> Iterator[tuple[Change, str, Candidate]]:
        numbers = random_numbers(seed, pair.id)
        for slot, text in self.sentences.alterations(pair.claim, self.segment, self.group, numbers):
            claim = with_text(pair.claim, slot, text)
            if not any(normal_claim(claim) in claims for claims in forbidden):
                change = Change(ORIGINS[slot.kind], REPLACED.get(slot.kind, slot.kind), (), (slot.text,), (), str)
                yield change, claim, (text,)


def _captions(pairs: Iterable[Pair]) -> set[str]:
    texts = (pair.meta.get(key) for pair in pairs for key in ("caption", "caption_implicit"))
    return {caption for caption in texts if isinstance(caption, str)}


def _changes(pair: Pair, groups: WordGroups) -> list[Change]:
    """Every way to alter a pair's claim; none where it is no fact."""
    if (value := conceptual_value(pair.role, pair.claim)) is not None:
        role = pair.role
        places = (("value", role), ("family", family(role)))
        return [
            Change("altered_claim", role, (role,), (value,), places, lambda values: conceptual_claim(role, values[0]))
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
