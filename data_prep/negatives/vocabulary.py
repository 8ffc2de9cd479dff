"""What is true in a data set, by role: the values that altered claims are drawn from, and how often each is drawn.

A value that is never true anywhere would give an altered claim away without any evidence, and so would a value that is
drawn more often than it is true. So altered values come from the true values of the same role, weighted such that each
is drawn as often as it is true (as nearly as the rules allow: a value is never drawn where it holds).

Word groups (categories, synonyms, kinds, parts and generic words, from a small YAML file per data set) say when two
values could both be true of a segment. A file for cooking and crafting is shipped; docs/negatives.md describes the
format. Words are compared by stem.
"""

from __future__ import annotations

import bisect
import difflib
import hashlib
import heapq
import itertools
import math
import struct
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import yaml

from ...core import ConfigError, Pair
from .phrases import KIND_OF_PLACE, Phrase, conceptual_value, contextual_phrase, phrase_of, words_of
from .wordnet import PartOfSpeech, WordNet

SHIPPED = Path(__file__).parent / "vocabularies" / "cooking_crafting.yaml"
SECTIONS = ("categories", "synonyms", "kinds", "parts", "generic")

Key = tuple[str, ...]  # a word, or several in a row, by their stems
_FAMILIES = {"ingredient": "object", "material": "object", "item": "object", "act": "action", "verb": "action"}
_JOINTS = frozenset(("and", "or", "of", "with", "in", "on", "for", "from"))  # between two things in one value


@lru_cache(maxsize=1 << 10)
def family(role: str) -> str:
    """Roles whose values answer the same question: Ingredient, Material and Object are one; others stand alone."""
    folded = role.strip().casefold()
    singular = folded.removesuffix("s") if not folded.endswith("ss") else folded
    return _FAMILIES.get(singular, singular)


@dataclass(frozen=True)
class WordGroups:
    """What a word-group file says.

    Attributes:
        categories: role family -> word -> its functional category.
        synonyms: word -> the word that stands for its class.
        above: word (the one that stands for its class) -> all more general words and wholes, chains followed.
        generic: words that may hold nearly everywhere.
        wordnet: what it relates counts too, where it is given.
    """

    categories: Mapping[str, Mapping[Key, str]] = field(default_factory=dict)
    synonyms: Mapping[Key, Key] = field(default_factory=dict)
    above: Mapping[Key, frozenset[Key]] = field(default_factory=dict)
    generic: frozenset[Key] = frozenset()
    wordnet: WordNet | None = None
    _things: dict[str, frozenset[Key]] = field(default_factory=dict, repr=False, compare=False)
    _functions: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict, repr=False, compare=False)

    def things(self, value: str) -> frozenset[Key]:
        """The things a value names, one word per synonym class: "large frying pan" -> pan."""
        if (known := self._things.get(value)) is None:
            keys = _named(words_of(value).sequence, self.synonyms, self.above)
            known = self._things[value] = frozenset(self.synonyms.get(key, key) for key in keys)
        return known

    def functions(self, role: str, value: str) -> frozenset[str]:
        """The functional categories of a value of a role; none where the file says nothing."""
        place = (family(role), value)
        if (known := self._functions.get(place)) is None:
            table = self.categories.get(place[0], {})
            keys = _named(words_of(value).sequence, table)
            known = self._functions[place] = frozenset(table[key] for key in keys)
        return known

    def is_generic(self, value: str) -> bool:
        """Whether a value says no more than what holds nearly everywhere ("food", "both hands")."""
        content = words_of(value).content
        return content in self.generic or (bool(content) and all((word,) in self.generic for word in content))

    def is_synonym(self, one: str, other: str) -> bool:
        """Whether two values name the same thing by different words."""
        return not self.things(one).isdisjoint(self.things(other))

    def is_kind_or_part(self, one: str, other: str) -> bool:
        """Whether something that one value names is a kind or part of something the other names, or the reverse."""
        first, second = self.things(one), self.things(other)
        return any(not second.isdisjoint(self.above.get(key, ())) for key in first) or any(
            not first.isdisjoint(self.above.get(key, ())) for key in second
        )

    def in_wordnet(self, role: str, one: str, other: str) -> str:
        """How WordNet relates the last words of two values: "synonym", "kind", "part", or nothing."""
        if self.wordnet is None:
            return ""
        part: PartOfSpeech = "verb" if family(role) == "action" else "noun"
        first, second = (self._lemmas(value, part) for value in (one, other))
        return next(filter(None, (self.wordnet.related(a, b, part) for a in first for b in second)), "")

    def _lemmas(self, value: str, part: PartOfSpeech) -> list[str]:
        """What a value may be called in WordNet: by all its words and by the one that carries it, each bare or cut."""
        words = words_of(value)
        if self.wordnet is None or not words.words:
            return []
        at = 0 if part == "verb" else -1
        stem = words.stems[at]
        forms = (" ".join(words.words), words.words[at], stem, f"{stem}e", f"{stem.removesuffix('i')}y")
        return [form for form in dict.fromkeys(forms) if self.wordnet.knows(form, part)]

    def knows(self, role: str, value: str) -> bool:
        """Whether any word of a value is in the file, for this role's categories or as a thing."""
        return bool(self.functions(role, value) or self.things(value))


def _named(stems: Key, *tables: Container[Key], longest: int = 4) -> Iterator[Key]:
    """The entries of some tables that a value names: the last of each compound, read from the left, longest first.

    "green onion" is no onion, a "kitchen sink" no kitchen, but "carrot and onion" is both.
    """
    last: Key | None = None
    at = 0
    while at < len(stems):
        pieces = (stems[at : at + length] for length in range(longest, 0, -1))
        match = next((piece for piece in pieces if any(piece in table for table in tables)), None)
        if match is None and stems[at] in _JOINTS and last is not None:
            yield last
        last = match or (None if stems[at] in _JOINTS else last)
        at += len(match) if match else 1
    if last is not None:
        yield last


def read_word_groups(path: str | Path = SHIPPED) -> WordGroups:
    """The word groups of a YAML file.

    Raises:
        ConfigError: no such file, not YAML, an unknown section, an empty class, a word twice in the categories of one
            role or in the synonyms, a kind of itself; with file and line.
    """
    reader = _Reader(str(path))
    try:
        root = yaml.compose(Path(path).read_text(encoding="utf-8-sig"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise ConfigError(f"{path}: the word-group file cannot be read, got {error}; check the path") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML in UTF-8, got {error}; fix the file") from error
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{path}:1: must map section names to words, got no mapping; use {list(SECTIONS)}")
    sections = dict(reader.members(root))
    for name, node in sections.items():
        if name not in SECTIONS:
            near = difflib.get_close_matches(name, SECTIONS, n=1, cutoff=0.0)[0]
            raise reader.error(node, "unknown section", name, f"did you mean {near!r}?")
    synonyms = reader.synonyms(sections["synonyms"]) if "synonyms" in sections else {}
    categories = reader.categories(sections["categories"]) if "categories" in sections else {}
    generic = reader.words(sections["generic"], "generic") if "generic" in sections else ()
    return WordGroups(
        categories={role: _with_synonyms(table, synonyms) for role, table in categories.items()},
        synonyms=synonyms,
        above=reader.above([sections[name] for name in ("kinds", "parts") if name in sections], synonyms),
        generic=frozenset(key for key, _ in generic),
    )


def _with_synonyms(table: Mapping[Key, str], synonyms: Mapping[Key, Key]) -> dict[Key, str]:
    """The categories of one role, with those of a word for its synonyms too, where the synonyms do not disagree."""
    of_class: dict[Key, set[str]] = {}
    for word, first in synonyms.items():
        of_class.setdefault(first, set()).update({table[word]} if word in table else ())
    firsts = {word: min(of_class[first]) for word, first in synonyms.items() if len(of_class[first]) == 1}
    return {**firsts, **table}


@dataclass(frozen=True)
class _Reader:
    """Turns the nodes of one file into groups; every complaint names the line."""

    file: str

    def error(self, node: yaml.Node, what: str, got: object, remedy: str) -> ConfigError:
        return ConfigError(f"{self.file}:{node.start_mark.line + 1}: {what}, got {got!r}; {remedy}")

    def members(self, node: yaml.Node) -> Iterator[tuple[str, yaml.Node]]:
        """The members of a mapping; a name given twice is an error."""
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, "must map names to lists of words", node.value, "write name: [word, ...]")
        names: set[str] = set()
        for name, value in node.value:
            if not isinstance(name, yaml.ScalarNode) or not name.value.strip() or name.value in names:
                raise self.error(name, "name is empty or given twice", name.value, "keep one")
            names.add(name.value)
            yield name.value, value

    def words(self, node: yaml.Node, group: str, at_least: int = 1) -> list[tuple[Key, yaml.Node]]:
        """The words of a list as keys; too few, or something that holds no word, is an error."""
        if not isinstance(node, yaml.SequenceNode) or len(node.value) < at_least:
            got = [item.value for item in node.value] if isinstance(node, yaml.SequenceNode) else node.value
            raise self.error(node, f"{group} needs at least {at_least} words", got, "write [word, ...]")
        words = [(self.key(item), item) for item in node.value]
        if len({key for key, _ in words}) < len(words):
            keys = [key for key, _ in words]
            again = next(item for i, (key, item) in enumerate(words) if key in keys[:i])
            raise self.error(again, f"word is twice in {group} (words are compared by stem)", again.value, "keep one")
        return words

    def key(self, node: yaml.Node) -> Key:
        key = words_of(node.value).sequence if isinstance(node, yaml.ScalarNode) else ()
        if not key:
            raise self.error(node, "must be a word", node.value, "write one or a few words")
        return key

    def categories(self, node: yaml.Node) -> dict[str, dict[Key, str]]:
        tables: dict[str, dict[Key, str]] = {}
        for role, groups in self.members(node):
            table = tables.setdefault(family(role), {})
            for category, listed in self.members(groups):
                for key, word in self.words(listed, f"category {category!r}"):
                    if key in table:
                        both = f"word is in two categories of {role}, {table[key]!r} and {category!r}"
                        raise self.error(word, both, word.value, "keep one")
                    table[key] = category
        return tables

    def synonyms(self, node: yaml.Node) -> dict[Key, Key]:
        if not isinstance(node, yaml.SequenceNode):
            raise self.error(node, "synonyms must be a list of lists", node.value, "write - [word, word]")
        table: dict[Key, Key] = {}
        for listed in node.value:
            words = self.words(listed, "a synonym class", at_least=2)
            for key, word in words:
                if key in table:
                    raise self.error(word, "word is in two synonym classes", word.value, "join the classes or keep one")
                table[key] = words[0][0]
        return table

    def above(self, sections: list[yaml.Node], synonyms: Mapping[Key, Key]) -> dict[Key, frozenset[Key]]:
        """Word -> everything above it, over kinds and parts alike; a word above itself is an error."""
        direct: dict[Key, set[Key]] = {}
        places: dict[Key, yaml.Node] = {}
        for section in sections:
            for name, listed in self.members(section):
                general = words_of(name).sequence
                general = synonyms.get(general, general)
                direct.setdefault(general, set())
                for key, node in self.words(listed, repr(name)):
                    key = synonyms.get(key, key)
                    direct.setdefault(key, set()).add(general)
                    places.setdefault(key, node)
        above = {key: self._climb(key, direct) for key in direct}
        for key, higher in above.items():
            if key in higher:
                raise self.error(places[key], "word is a kind or part of itself", places[key].value, "break the circle")
        return above

    @staticmethod
    def _climb(key: Key, direct: Mapping[Key, set[Key]]) -> frozenset[Key]:
        above: set[Key] = set()
        todo = [key]
        while todo:
            higher = direct.get(todo.pop(), set()) - above
            above |= higher
            todo.extend(higher)
        return frozenset(above)


Candidate = tuple[str, ...]  # the values that replace one or several slots together
Place = tuple[str, ...]  # names a table of candidates, e.g. ("object", "chop"): what is chopped
_TRIES = 24
_ROUNDS = 12
_NEARLY_ALL = 1 - 1e-3
_LEAST_WEIGHT = 1e-12  # of a candidate whose weight is lost in the sums' rounding


@dataclass(frozen=True)
class DrawTable:
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
    def of(cls, counts: Mapping[Candidate, float], classes: Mapping[Candidate, object]) -> DrawTable:
        """The table in which every candidate is expected to be drawn as often as it is true."""
        candidates = tuple(sorted(counts))
        total = sum(counts.values())
        mass: dict[object, float] = defaultdict(float)
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
        """Every candidate, by weight to the end: first with repeats, which is cheap, then what is left without.

        The rules may leave only rare candidates. Walking the table in a fixed order would hand those that stand first
        in the alphabet to every claim that is hard to alter. `numbers` in [0, 1), one for each draw.
        """
        drawn: set[int] = set()
        for _ in range(_TRIES):
            index = self._index(next(numbers))
            drawn.add(index)
            yield self.candidates[index]
        bounds = zip((0.0, *self.cumulative), self.cumulative, strict=False)
        waits = [  # the time to an event of this rate: the order of the waits is that of draws without replacement
            (-math.log1p(-next(numbers)) / max(high - low, _LEAST_WEIGHT), index)
            for index, (low, high) in enumerate(bounds)
            if index not in drawn
        ]
        heapq.heapify(waits)
        while waits:
            yield self.candidates[heapq.heappop(waits)[1]]

    def _index(self, number: float) -> int:
        return min(bisect.bisect_right(self.cumulative, number * self.cumulative[-1]), len(self.candidates) - 1)


def balanced_weights(counts: Sequence[float], classes: Sequence[object]) -> list[float]:
    """Weights (sum 1) such that values are drawn as often as they are true, no value replacing one of its class.

    The expected number of draws of a value w of class C is weight(w) times the sum, over all other classes D, of
    count(D) / (1 - weight(D)). Iterated from the counts; where one class has more than half of everything no
    weights do, and it comes out as heavy as possible.
    """
    total = sum(counts)
    weights = [count / total for count in counts]
    facts: dict[object, float] = defaultdict(float)
    for count, name in zip(counts, classes, strict=True):
        facts[name] += count
    for _ in range(_ROUNDS if len(facts) > 1 else 0):
        mass: dict[object, float] = defaultdict(float)
        for weight, name in zip(weights, classes, strict=True):
            mass[name] += weight
        shares = {name: facts[name] / (1 - min(mass[name], _NEARLY_ALL)) for name in facts}
        everything = sum(shares.values())
        weights = [count / (everything - shares[name]) for count, name in zip(counts, classes, strict=True)]
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
    _tables: dict[Place, DrawTable] = field(default_factory=dict, repr=False, compare=False)
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
        for role, counter in values.items():
            for value, count in counter.items():
                counts["value", role][(value,)] += count
                counts["family", family(role)][(value,)] += count
        for text, count in phrases.items():
            for place, candidate in _phrase_places(phrase_of(text), groups):
                counts[place][candidate] += count
        return cls(groups, dict(values), phrases, dict(counts))

    def table(self, place: Place) -> DrawTable | None:
        """The candidates of a place; None where nothing is true there."""
        if place not in self.counts:
            return None
        if (table := self._tables.get(place)) is None:
            counts = self.counts[place]
            role = _role_of(place)
            table = self._tables[place] = DrawTable.of(counts, {c: self._class_of(role, c[0]) for c in counts})
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


def random_numbers(seed: int, name: str) -> Iterator[float]:
    """Pseudo-random numbers in [0, 1) that depend on the seed and the name alone."""
    for block in itertools.count():
        digest = hashlib.sha256(f"{seed}\0altered\0{name}\0{block}".encode("utf-8", "surrogatepass")).digest()
        yield from (word / 2**64 for word in struct.unpack(">4Q", digest))
