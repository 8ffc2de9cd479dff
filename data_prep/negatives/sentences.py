"""Alter sentences: what stands in one claim's place is put in the same place of another, where it is false.

A slot is filled only with what the data set holds in the same place: after the same verb and particle and beside the
same prepositions for an object, after the same verb for a place or a tool (its own preposition comes along), before the
same object and places for a verb. So what is read somewhere is put where it reads well.

A value is refused where it might be true all the same: the claims of its group name it, or name what WordNet or the
word groups put above it, below it, beside it as a part, or in its class; or it lies directly below the same word as
what it replaces (a pan, a pot). What is done, and the vessel it is done in, change from segment to segment, so there
only the segment's own claims count. Vague words ("mixture", "put") and nouns whose kinds are named more often than they
are ("meat") are neither drawn nor replaced: what is only ever replaced would tell true claims from altered ones.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .balance import ROUNDS, Balance, Key, keys_of
from .grammar import ClaimSlot, Grammar, ParsedClaim
from .phrases import word_set, words_of
from .vocabulary import Candidate, DrawTable, Place, WordGroups, random_numbers
from .wordnet import PartOfSpeech, Synset, WordNet

ORIGINS = {
    "verb": "altered_claim_A",
    "object": "altered_claim_B",
    "tool": "altered_claim_C",
    "location": "altered_claim_D",
    "event": "altered_claim_E",
}
REPLACED = {"event": "verb, object"}
_VAGUE_VERBS = word_set(
    "add put place set lay take get keep let leave make do use prepare cook heat warm preheat mix stir combine serve "
    "have be go start begin continue finish try need want turn move transfer bring give show hold pick allow ensure "
    "repeat check insert apply work process cover season remove incorporate blend include open taste enjoy lie"
)
_VAGUE_NOUNS = word_set(
    "mixture mix ingredient food thing item stuff everything rest side top part half content all piece dish meal "
    "recipe preparation batch garnish filling topping seasoning dressing coating stuffing marinade liquid remainder "
    "surface bottom hand finger time minute way step place area edge end center centre middle heat flame "
    "temperature amount bit lot layer portion kind type size shape one other each both object product material "
    "something it inside outside sauce people person man woman video camera cook chef color colour decoration"
)
_MOST_AS_VERB = 0.25  # share of a noun's uses that may be tagged as a verb ("stir" in "add oil and stir")
_RECURS = 3
_OF_ITS_NOUN = 0.02  # share of a noun's uses that a compound with it must have: "oil cumin" is no thing
_MUCH = 8  # texts that a place must have before what stands there only once is left out
_SHARE = 0.01  # of what stands at a place: rarer places and tools are slips of the parser
_TRIES = 24  # draws for one slot: beyond, only the rare is left, and would be drawn too often
_REMEMBERED = 64  # sets of claims
_SAMPLE = 1_000  # groups on which the draws are balanced


Text = tuple[str, str]  # kind of slot, what stands there: "fry" the verb is not "fry" the noun


@dataclass(frozen=True)
class Sentences:
    """What the true claims of a data set say, slot by slot.

    Attributes:
        counts: place -> how often each text stands there; what may be drawn and replaced.
        heads: (kind of slot, text) -> the lemmas it is about.
        balance: what makes every word be drawn as often as it is replaced.
    """

    grammar: Grammar
    groups: WordGroups
    counts: Mapping[Place, Counter[Candidate]] = field(repr=False)
    heads: Mapping[Text, tuple[str, ...]] = field(repr=False)
    balance: Balance = field(default_factory=Balance, repr=False)
    _tables: dict[Place, DrawTable] = field(default_factory=dict, repr=False, compare=False)
    _mentions: dict[frozenset[str], Mentions] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def collect(
        cls, claims: Iterable[tuple[str, str]], grammar: Grammar, groups: WordGroups, rounds: int = ROUNDS
    ) -> Sentences:
        """What the true claims say, each given as (group, claim), in one pass; then the draws are balanced."""
        counts: dict[Place, Counter[Candidate]] = defaultdict(Counter)
        slots: dict[Text, ClaimSlot] = {}
        words, sample = _WordCounts(), _Sample()
        for parsed in grammar.read(sample.passing(claims)):
            words.add(parsed)
            for slot in parsed.slots:
                known = slots.setdefault((slot.kind, slot.text), slot)
                if (slot.heads, slot.pairs) < (known.heads, known.pairs):  # the order of claims does not matter
                    slots[slot.kind, slot.text] = slot
                counts[place_of(slot)][(slot.text,)] += 1
        general = words.general(grammar.wordnet)
        heads = {text: slot.heads for text, slot in slots.items()}
        usable = {
            text
            for text, slot in slots.items()
            if not _vague(slot, general) and all(words.is_compound(pair, grammar.wordnet) for pair in slot.pairs)
        }
        kept = {place: _kept(place[0], texts, heads, usable) for place, texts in sorted(counts.items())}
        sentences = cls(grammar, groups, {place: texts for place, texts in kept.items() if texts}, heads)
        sentences._learn(sample.groups, rounds)
        return sentences

    def alterations(
        self, claim: str, segment: Mentions, group: Mentions, numbers: Iterator[float]
    ) -> Iterator[tuple[ClaimSlot, str]]:
        """Ways to make a claim false, at most one for each slot: the kinds of slots in random order."""
        slots = [s for s in self.grammar.of(claim).slots if (s.text,) in self.counts.get(place_of(s), ())]
        order = {kind: next(numbers) for kind in sorted({slot.kind for slot in slots})}
        for slot in sorted(slots, key=lambda slot: (order[slot.kind], slot.start)):
            if next(numbers) >= self.balance.share(keys_of(slot.kind, slot.text, slot.heads)):
                continue
            for (text,) in itertools.islice(self._table(place_of(slot)).draws(numbers), _TRIES):
                if text != slot.text and self.contradicts(slot, text, segment, group):
                    yield slot, text
                    break

    def contradicts(self, slot: ClaimSlot, text: str, segment: Mentions, group: Mentions) -> bool:
        """Whether a text in a slot would be false, as far as the true claims of the segment and its group tell."""
        heads, has_verb = self.heads[slot.kind, text], slot.kind in ("verb", "event")
        if has_verb and not self._another(heads[0], slot.heads[:1], segment, "verb"):
            return False
        vessel = slot.kind in ("tool", "location") and slot.frame[-1] == "artifact"
        named = segment if vessel else group
        words = words_of(text).stems[has_verb:]
        return named.noun_stems.isdisjoint(words) and all(
            self._another(noun, slot.heads[has_verb:], named, "noun") for noun in heads[has_verb:]
        )

    def mentions(self, claims: Collection[str]) -> Mentions:
        """What some true claims name; the last groups are remembered."""
        key = frozenset(claims)
        if (known := self._mentions.get(key)) is None:
            if len(self._mentions) >= _REMEMBERED:
                self._mentions.clear()
            known = self._mentions[key] = Mentions.of(key, self.grammar, self.groups)
        return known

    def _another(self, word: str, true: Sequence[str], named: Mentions, part: PartOfSpeech) -> bool:
        """Whether a word is another thing than all that is named, and than what it replaces."""
        wordnet, groups = self.grammar.wordnet, self.groups
        stem = words_of(word).stems[-1:]
        if not stem or stem[0] in named.stems or groups.is_generic(word):
            return False
        if any(wordnet.siblings(word, other, part) or wordnet.related(word, other, part) for other in true):
            return False
        if named.relates(word, part, wordnet, groups):
            return False
        roles, others = (("Action",), {*true, *named.verbs}) if part == "verb" else (("Tool", "Location"), set(true))
        return not any(groups.functions(role, word) & groups.functions(role, o) for role in roles for o in others)

    def _table(self, place: Place) -> DrawTable:
        if (table := self._tables.get(place)) is None:
            texts = {c: (n, keys_of(place[0], c[0], self.heads[place[0], c[0]])) for c, n in self.counts[place].items()}
            weights = {c: n * self.balance.weight(keys) for c, (n, keys) in texts.items()}
            table = self._tables[place] = DrawTable.of(weights, {c: self.heads[place[0], c[0]][-1] for c in weights})
        return table

    def _learn(self, groups: Mapping[str, Collection[str]], rounds: int) -> None:
        for turn in range(rounds):
            replaced: Counter[Key] = Counter()
            drawn: Counter[Key] = Counter()
            for name, claims in sorted(groups.items()):
                group = self.mentions(claims)
                for claim in sorted(claims):
                    numbers = random_numbers(turn, f"balance\0{name}\0{claim}")
                    segment = Mentions.of([claim], self.grammar, self.groups)
                    if (first := next(self.alterations(claim, segment, group, numbers), None)) is not None:
                        slot, text = first
                        replaced.update(keys_of(slot.kind, slot.text, slot.heads))
                        drawn.update(keys_of(slot.kind, text, self.heads[slot.kind, text]))
            self.balance.learn(replaced, drawn)
            self._tables.clear()


def place_of(slot: ClaimSlot) -> Place:
    """The table that a slot's text is counted in, and altered from."""
    return (slot.kind, *slot.frame)


def with_text(claim: str, slot: ClaimSlot, text: str) -> str:
    """The claim with another text in a slot."""
    text = text[:1].upper() + text[1:] if slot.start == 0 and claim[:1].isupper() else text
    return claim[: slot.start] + text + claim[slot.end :]


def _kept(kind: str, texts: Counter[Candidate], heads: Mapping[Text, tuple[str, ...]], usable: set[Text]) -> Counter:
    """What may be drawn at a place: nothing vague; and where much is known, nothing that stands there only once."""
    by_head: Counter[Key] = Counter()
    for (text,), number in texts.items():
        by_head[keys_of(kind, text, heads[kind, text])[-1]] += number
    total = by_head.total()
    least = 1 if total < _MUCH else max(2, _SHARE * total if kind in ("location", "tool") else 0)
    return Counter(
        {
            c: n
            for c, n in texts.items()
            if (kind, c[0]) in usable and by_head[keys_of(kind, c[0], heads[kind, c[0]])[-1]] >= least
        }
    )


def _vague(slot: ClaimSlot, general: Collection[str]) -> bool:
    has_verb = slot.kind in ("verb", "event")
    if any(verb in _VAGUE_VERBS for verb in slot.heads[:has_verb]):
        return True
    nouns = slot.heads[has_verb:]
    return any(noun in _VAGUE_NOUNS for noun in nouns) or any(noun in general for noun in nouns[-1:])


@dataclass(frozen=True)
class _WordCounts:
    """How often words stand in the true claims: as nouns, as verbs, side by side, and joined by "and"."""

    nouns: Counter[str] = field(default_factory=Counter)
    verbs: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    adjacent: Counter[tuple[str, str]] = field(default_factory=Counter)
    joined: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, parsed: ParsedClaim) -> None:
        self.nouns.update(parsed.nouns)
        self.verbs.update(parsed.verbs)
        words = [word.strip(",.;:!?").casefold() for word in parsed.claim.split()]
        self.words.update(words)
        self.adjacent.update(itertools.pairwise(words))
        self.joined.update((a, c) for a, b, c in zip(words, words[1:], words[2:], strict=False) if b == "and")

    def general(self, wordnet: WordNet) -> frozenset[str]:
        """Nouns whose kinds are named more often than they are, and nouns that are often tagged as verbs."""
        kinds: Counter[Synset] = Counter()
        for noun, number in self.nouns.items():
            for sense in wordnet.above(noun, "noun"):
                kinds[sense] += number
        above = (
            noun
            for noun, number in self.nouns.items()
            for sense in wordnet.names(noun, "noun")
            if kinds[sense] - number * (sense in wordnet.above(noun, "noun")) >= number
        )
        verbs = (n for n, number in self.nouns.items() if self.verbs[n] > _MOST_AS_VERB * (number + self.verbs[n]))
        return frozenset((*above, *verbs))

    def is_compound(self, pair: tuple[str, str], wordnet: WordNet) -> bool:
        """Whether two nouns side by side name one thing: WordNet has it, or it recurs and is not written as a list."""
        if wordnet.knows(" ".join(pair), "noun"):
            return True
        one, other = pair
        together = self.adjacent[pair]
        apart = self.joined[pair] + self.joined[other, one] + self.adjacent[other, one]
        return together >= max(_RECURS, _OF_ITS_NOUN * self.words[one]) and together > 2 * apart


@dataclass(frozen=True)
class _Sample:
    """The claims of some groups, those first by the hash of their names: which they are depends on no order."""

    groups: dict[str, set[str]] = field(default_factory=dict)
    _first: list[tuple[int, str]] = field(default_factory=list)

    def passing(self, claims: Iterable[tuple[str, str]]) -> Iterator[str]:
        """The claims, while some are kept."""
        for group, claim in claims:
            if group not in self.groups:
                self._enter(group)
            if group in self.groups:
                self.groups[group].add(claim)
            yield claim

    def _enter(self, group: str) -> None:
        place = -int.from_bytes(hashlib.sha256(group.encode("utf-8", "surrogatepass")).digest()[:8], "big")
        if len(self._first) < _SAMPLE:
            heapq.heappush(self._first, (place, group))
            self.groups[group] = set()
        elif (place, group) > self._first[0]:
            _, out = heapq.heapreplace(self._first, (place, group))
            del self.groups[out]
            self.groups[group] = set()


@dataclass(frozen=True)
class Mentions:
    """What some true claims name, and what is related to it.

    Attributes:
        verbs: lemmas.
        stems, noun_stems: of all words, and of the nouns.
        senses, above, beside: of the nouns or verbs, in WordNet.
        things, over: what the word groups call the nouns, and what they put above those.
    """

    verbs: frozenset[str]
    stems: frozenset[str]
    noun_stems: frozenset[str]
    senses: frozenset[Synset]
    above: frozenset[Synset]
    beside: frozenset[Synset]
    things: frozenset[tuple[str, ...]]
    over: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, claims: Iterable[str], grammar: Grammar, groups: WordGroups) -> Mentions:
        """What some claims name."""
        parsed = list(grammar.read(sorted(claims)))
        verbs = frozenset(verb for p in parsed for verb in p.verbs)
        nouns = frozenset(noun for p in parsed for noun in p.nouns)
        words: list[tuple[str, PartOfSpeech]] = [(noun, "noun") for noun in nouns if noun not in _VAGUE_NOUNS]
        words.extend((verb, "verb") for verb in verbs)
        wordnet = grammar.wordnet
        things = frozenset(thing for noun in nouns for thing in groups.things(noun))
        return cls(
            verbs=verbs,
            stems=frozenset(stem for p in parsed for stem in words_of(p.claim).stems),
            noun_stems=frozenset(stem for noun in nouns for stem in words_of(noun).stems),
            senses=frozenset(sense for word in words for sense in wordnet.names(*word)),
            above=frozenset(sense for word in words for sense in wordnet.above(*word)),
            beside=frozenset(sense for word in words for sense in wordnet.beside(*word)),
            things=things,
            over=frozenset(higher for thing in things for higher in groups.above.get(thing, ())),
        )

    def relates(self, word: str, part: PartOfSpeech, wordnet: WordNet, groups: WordGroups) -> bool:
        """Whether a word is a synonym, a kind or a part of something named, or the reverse."""
        names = wordnet.names(word, part)
        if not (names.isdisjoint(self.senses) and names.isdisjoint(self.above) and names.isdisjoint(self.beside)):
            return True
        if not (wordnet.above(word, part) | wordnet.beside(word, part)).isdisjoint(self.senses):
            return True
        things = groups.things(word)
        over = (higher for thing in things for higher in groups.above.get(thing, ()))
        return not (things.isdisjoint(self.things) and things.isdisjoint(self.over) and self.things.isdisjoint(over))
