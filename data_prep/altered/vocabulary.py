"""What is true in a data set, by role: the values that altered claims are drawn from, and how often each is drawn.

A value that is never true anywhere would give an altered claim away without looking, and so would a value that is drawn
more often than it is true. So altered values come from the true values of the same role, weighted such that each is
drawn as often as it is true (as nearly as the rules allow: a value is never drawn where it holds).
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...core.pairs import Pair
from .phrases import KIND_OF_PLACE, Phrase, conceptual_value, contextual_phrase, phrase_of
from .stems import words_of
from .word_groups import SHIPPED as SHIPPED
from .word_groups import WordGroups, family
from .word_groups import read_word_groups as read_word_groups

Candidate = tuple[str, ...]  # the values that replace one or several slots together
Place = tuple[str, ...]  # names a table of candidates, e.g. ("object", "chop"): what is chopped
_TRIES = 24
_ROUNDS = 12
_NEARLY_ALL = 1 - 1e-3


@dataclass(frozen=True)
class Table:
    """Candidates with weights.

    Attributes:
        candidates: sorted.
        cumulative: running sums of their weights; the last is 1.
        shares: candidate -> share of the true facts that its class has (a class = values that exclude one another).
    """

    candidates: tuple[Candidate, ...]
    cumulative: tuple[float, ...]
    shares: Mapping[Candidate, float]

    @classmethod
    def of(cls, counts: Mapping[Candidate, int], classes: Mapping[Candidate, object]) -> Table:
        """The table in which every candidate is expected to be drawn as often as it is true."""
        candidates = tuple(sorted(counts))
        total = sum(counts.values())
        mass: Counter[object] = Counter()
        for candidate in candidates:
            mass[classes[candidate]] += counts[candidate]
        weights = balanced_weights([counts[c] for c in candidates], [classes[c] for c in candidates])
        shares = {candidate: mass[classes[candidate]] / total for candidate in candidates}
        return cls(candidates, tuple(itertools.accumulate(weights)), shares)

    def room(self, true: Candidate) -> float:
        """How much of the alterations of a true candidate the others can take, none drawn oftener than it is true."""
        share = self.shares.get(true, 0.0)
        return min(1.0, (1 - share) / share) if share else 1.0

    def draws(self, numbers: Iterator[float]) -> Iterator[Candidate]:
        """Candidates by weight, then (the rules may leave only rare ones) every one in turn. `numbers` in [0, 1)."""
        for _ in range(_TRIES):
            yield self.candidates[self._index(next(numbers))]
        start = self._index(next(numbers))
        yield from self.candidates[start:]
        yield from self.candidates[:start]

    def _index(self, number: float) -> int:
        return min(bisect.bisect_right(self.cumulative, number * self.cumulative[-1]), len(self.candidates) - 1)


def balanced_weights(counts: Sequence[int], classes: Sequence[object]) -> list[float]:
    """Weights (sum 1) such that values are drawn as often as they are true, no value replacing one of its class.

    The expected number of draws of a value w of class C is weight(w) times the sum, over all other classes D, of
    count(D) / (1 - weight(D)). Iterated from the counts; where one class has more than half of everything no
    weights do, and it comes out as heavy as possible.
    """
    total = sum(counts)
    weights = [count / total for count in counts]
    facts: Counter[object] = Counter()
    for count, name in zip(counts, classes, strict=True):
        facts[name] += count
    for _ in range(_ROUNDS if len(facts) > 1 else 0):
        mass: dict[object, float] = defaultdict(float)
        for weight, name in zip(weights, classes, strict=True):
            mass[name] += weight
        asked = {name: facts[name] / (1 - min(mass[name], _NEARLY_ALL)) for name in facts}
        everything = sum(asked.values())
        weights = [count / (everything - asked[name]) for count, name in zip(counts, classes, strict=True)]
        scale = sum(weights)
        weights = [weight / scale for weight in weights]
    return weights


@dataclass(frozen=True)
class Vocabulary:
    """The true values of a data set and its word groups.

    Attributes:
        groups: which words mean nearly the same.
        values: role -> how often each value is true.
        phrases: how often each contextual phrase is true.
        counts: place -> how often each candidate is true there; see `_phrase_places`.
    """

    groups: WordGroups
    values: Mapping[str, Counter[str]]
    phrases: Counter[str]
    counts: Mapping[Place, Counter[Candidate]] = field(repr=False)
    _tables: dict[Place, Table] = field(default_factory=dict, repr=False, compare=False)
    _known: dict[str, frozenset[str]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def collect(cls, pairs: Iterable[Pair], groups: WordGroups) -> Vocabulary:
        """The vocabulary of the supported pairs, in one pass; other pairs and claims that are no facts add nothing."""
        values: dict[str, Counter[str]] = defaultdict(Counter)
        phrases: Counter[str] = Counter()
        for pair in pairs:
            if pair.label != "supported":
                continue
            if (value := conceptual_value(pair.role, pair.claim)) is not None:
                values[pair.role][value] += 1
            elif (phrase := contextual_phrase(pair.role, pair.claim)) is not None:
                phrases[phrase] += 1
        counts: dict[Place, Counter[Candidate]] = defaultdict(Counter)
        for role, found in values.items():
            for value, count in found.items():
                counts["value", role][(value,)] += count
                counts["family", family(role)][(value,)] += count
        for text, count in phrases.items():
            for place, candidate in _phrase_places(phrase_of(text), groups):
                counts[place][candidate] += count
        return cls(groups, dict(values), phrases, dict(counts))

    def table(self, place: Place) -> Table | None:
        """The candidates of a place; None where nothing is true there."""
        if place not in self.counts:
            return None
        if (table := self._tables.get(place)) is None:
            counts = self.counts[place]
            role = _role_of(place)
            table = self._tables[place] = Table.of(counts, {c: self._class_of(role, c[0]) for c in counts})
        return table

    def knows(self, role: str, value: str) -> bool:
        """Whether any word of a value is in the word groups, or in a true value of this role: a mark of plausibility.

        For callers that take values from elsewhere (a language model). A value that is never true in the data set keeps
        the rules, but a claim-only probe may learn it.
        """
        kind = family(role)
        if (known := self._known.get(kind)) is None:
            slot = {"action": "verb"}.get(kind, kind)
            places = (("family", kind), (slot,))
            stems = (words_of(c[0]).content for place in places for c in self.counts.get(place, ()))
            known = self._known[kind] = frozenset(itertools.chain.from_iterable(stems))
        return self.groups.knows(role, value) or not known.isdisjoint(words_of(value).content)

    def _class_of(self, role: str, value: str) -> object:
        """Equal for values that may not replace one another: one function, one thing, or the same words."""
        groups = self.groups
        return min(groups.functions(role, value) or groups.things(value) or {words_of(value).stems})


def _role_of(place: Place) -> str:
    if place[0] in ("value", "family"):
        return place[1]
    return {"verb": "action", "event": "action"}.get(place[0], place[0])


def _phrase_places(phrase: Phrase | None, groups: WordGroups) -> Iterator[tuple[Place, Candidate]]:
    """Where the parts of a true phrase are candidates: beside the very same words, and beside words of their kind."""
    if phrase is None:
        return
    verb, thing = phrase.verb, phrase.object
    functions = groups.functions("action", verb)
    if thing:
        yield ("event",), (verb, thing)
        yield ("verb",), (verb,)
        yield ("verb", thing), (verb,)
        yield ("object",), (thing,)
        yield ("object", verb), (thing,)
        yield from ((("object", "kind", name), (thing,)) for name in functions)
    for index in phrase.places("tool"):
        tool = phrase.relations[index].argument
        yield ("tool",), (tool,)
        yield ("tool", verb), (tool,)
        yield from ((("tool", "kind", name), (tool,)) for name in functions)
    for index in phrase.places("location"):
        word, location = phrase.relations[index]
        yield ("location",), (location,)
        yield ("location", word, verb), (location,)
        yield ("location", word), (location,)
        yield ("location", "kind", KIND_OF_PLACE[word]), (location,)
