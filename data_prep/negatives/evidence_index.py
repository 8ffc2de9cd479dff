"""An index of one split's evidence: where each claim holds, and every piece that can replace another.

Built once from a stream of pairs and then only read, so that altering the evidence of a million pairs needs no scan per
pair. It lies in a temporary SQLite file: a split need not fit in memory. Altered negatives are made from it
(evidence_changes.py).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from ...core import (
    EVIDENCE_KINDS,
    Audio,
    Evidence,
    Moving,
    Pair,
    Passage,
    RowError,
    Transcript,
    VideoSegment,
    evidence_from_dict,
    evidence_key,
    evidence_to_dict,
    media_name,
)
from ..dataset import rank
from .swapped import normal_claim

HEARD_VIDEO = "video with sound"
VISUAL_KINDS = ("video", HEARD_VIDEO, "frames", "image")
MAX_TRIES = 32  # candidates looked at for one negative: no pair costs a scan of the data set
Timed = VideoSegment | Audio
"""Evidence that is a span of a file."""
T = TypeVar("T")
Span = tuple[float, float]  # [start, end] in seconds
Shape = tuple[str, ...]  # the kinds of some pieces of evidence, in order
Proposals = Iterator[tuple[Evidence, ...]]
_BEARERS: dict[str, Shape] = {  # the kinds of evidence that can carry a modality
    "visual": VISUAL_KINDS,
    "ocr": VISUAL_KINDS,
    "audio": ("transcript", "audio", HEARD_VIDEO),
    "text": ("transcript", "passage"),
    "mixed": (*VISUAL_KINDS, "audio", "transcript", "passage"),
}
_CACHED = 20_000  # pieces of evidence
_CACHED_VIDEOS = 64
_AT_ONCE = 10_000
_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -65536;
CREATE TABLE evidence (e INTEGER PRIMARY KEY, digest BLOB UNIQUE, json TEXT);
CREATE TABLE shown (e INTEGER, grp INTEGER, PRIMARY KEY (e, grp)) WITHOUT ROWID;
CREATE TABLE facts (key BLOB, e INTEGER);
CREATE TABLE ranked (e INTEGER, place TEXT);
CREATE TABLE around (key BLOB, place INTEGER, e INTEGER);
CREATE TABLE members (piece BLOB, grp INTEGER, PRIMARY KEY (piece, grp)) WITHOUT ROWID;
CREATE TABLE parts (digest BLOB PRIMARY KEY, shape TEXT, place INTEGER, json TEXT);
"""
_KIND_OF = {cls: kind for kind, cls in EVIDENCE_KINDS.items()}


def shape_of(evidence: Sequence[Evidence]) -> Shape:
    """The kinds of these pieces, in order; a video that is heard is another kind than one that is only seen."""
    heard = (isinstance(piece, VideoSegment) and piece.sound for piece in evidence)
    return tuple(HEARD_VIDEO if sound else _KIND_OF[type(piece)] for piece, sound in zip(evidence, heard, strict=True))


class Known:
    """An index over the pairs of one split, on disk; claims in it are normalised (`normal_claim`).

    What it holds in memory grows with media files and groups alone. A claim is found by the hash of the claim together
    with the group, the video or the evidence that is asked for.

    Attributes:
        durations: video path -> length of the file in seconds, where known.
        ends: video path -> its duration, or its latest annotated end where that is unknown, in seconds.
        generic: claims that may hold anywhere unannotated: their evidence is never altered.
    """

    def __init__(self, durations: Mapping[str, float], generic: Collection[str], path: str = "") -> None:
        self.durations, self.generic = durations, generic
        self.ends: dict[str, float] = {}
        self._groups: dict[str, int] = {}
        self._names: list[str] = []
        self._numbers: dict[tuple[Evidence, ...], int] = {}
        self._db = sqlite3.connect(path)
        self._db.executescript(_SCHEMA)
        self._evidence = lru_cache(_CACHED)(self._load)
        self._around = lru_cache(_CACHED_VIDEOS)(self._load_around)

    @classmethod
    def of(
        cls,
        pairs: Iterable[Pair],
        durations: Mapping[str, float] | None = None,
        generic_claims: Iterable[str] = (),
        seed: int = 0,
        path: str = "",
    ) -> Known:
        """Index the pairs of one split, in any order; `durations` in seconds, by the path the pairs use.

        `path`: a new file to work in; empty: one that the system chooses and removes.

        Raises:
            RowError: a duration that is no positive number of seconds.
        """
        known = cls(_checked(durations or {}), frozenset(map(normal_claim, generic_claims)), path)
        facts = itertools.chain.from_iterable(map(known._facts_of, pairs))
        while some := list(itertools.islice(facts, _AT_ONCE)):
            known._db.executemany("INSERT INTO facts VALUES (?, ?)", some)
        known._db.execute("CREATE INDEX facts_key ON facts (key, e)")
        known._put_in_order(seed)
        known.ends.update(known.durations)
        return known

    def is_true_in(self, claim: str, group: str) -> bool:
        """Whether a claim is supported somewhere in a group."""
        return self._is_there(_key("group", claim, group))

    def is_judged(self, claim: str, evidence: tuple[Evidence, ...]) -> bool:
        """Whether a pair that is not supported asks this claim of this evidence."""
        return self._is_there(_key("judged", claim, _form(evidence)))

    def around(self, path: str, shape: Shape) -> Sequence[tuple[Evidence, ...]]:
        """The evidence of these kinds around one segment of a video."""
        return self._around(path, shape)

    def material(self, shape: Shape) -> Material:
        """Pieces of these kinds: each piece alone, and what each pair shows or says as a whole."""
        return Material(self._db, self._names, ",".join(shape))

    def holds(self, claim: str, evidence: Sequence[Evidence]) -> bool:
        """Whether everything that some supported pair needs for this claim is among `evidence`."""
        for piece in evidence:
            for needed in self._held(claim, _anchor(piece)):
                if all(any(_covers(new, part) for new in evidence) for part in needed):
                    return True
        return False

    def spans(self, claim: str, path: str) -> Iterator[Span]:
        """Spans [start, end] (seconds) of a video in which a claim is known to hold; inf is an unknown end."""
        for evidence in self._held(claim, path):
            for piece in evidence:
                if isinstance(piece, Timed) and piece.path == path:
                    yield self.span(piece)

    def span(self, segment: Timed) -> Span:
        """[start, end] of a segment in seconds; inf where it goes to an unknown end of the file."""
        if segment.end_s is not None:
            return segment.start_s, segment.end_s
        return segment.start_s, self.durations.get(segment.path, math.inf)

    def _held(self, claim: str, anchor: str) -> Iterator[tuple[Evidence, ...]]:
        """The evidence with this anchor for which a claim is supported."""
        found = self._db.execute("SELECT DISTINCT e FROM facts WHERE key = ?", (_key("held", claim, anchor),))
        return (self._evidence(e) for (e,) in found.fetchall())

    def _is_there(self, key: bytes) -> bool:
        return self._db.execute("SELECT 1 FROM facts WHERE key = ? LIMIT 1", (key,)).fetchone() is not None

    def _load(self, e: int) -> tuple[Evidence, ...]:
        (text,) = self._db.execute("SELECT json FROM evidence WHERE e = ?", (e,)).fetchone()
        return _pieces_of(text)

    def _load_around(self, path: str, shape: Shape) -> list[tuple[Evidence, ...]]:
        key = (_key("around", path, *shape),)
        found = self._db.execute("SELECT e FROM around WHERE key = ? ORDER BY place", key).fetchall()
        return [self._evidence(e) for (e,) in found]

    def _facts_of(self, pair: Pair) -> Iterator[tuple[bytes, int]]:
        """(key, evidence) for all that a pair says; its evidence is stored."""
        claim, e = normal_claim(pair.claim), self._number(pair.evidence)
        if (group := self._groups.get(pair.group)) is None:
            group = self._groups[pair.group] = len(self._names)
            self._names.append(pair.group)
        self._db.execute("INSERT OR IGNORE INTO shown VALUES (?, ?)", (e, group))
        if pair.label == "supported":
            yield _key("group", claim, pair.group), 0
            for anchor in _anchors(pair.evidence):
                yield _key("held", claim, anchor), e
        elif pair.label is not None:
            yield _key("judged", claim, _form(pair.evidence)), 0

    def _number(self, evidence: tuple[Evidence, ...]) -> int:
        if (number := self._numbers.get(evidence)) is None:
            if len(self._numbers) >= _CACHED:
                self._numbers.clear()
            number = self._numbers[evidence] = self._store(evidence)
        return number

    def _store(self, evidence: tuple[Evidence, ...]) -> int:
        digest = _key(_form(evidence))
        row = self._db.execute("SELECT e FROM evidence WHERE digest = ?", (digest,)).fetchone()
        if row is not None:
            return row[0]
        for piece in evidence:
            if isinstance(piece, Timed) and piece.end_s is not None:
                self.ends[piece.path] = max(piece.end_s, self.ends.get(piece.path, 0.0))
        number = self._db.execute("INSERT INTO evidence VALUES (NULL, ?, ?)", (digest, _text(evidence))).lastrowid
        assert number is not None
        return number

    def _put_in_order(self, seed: int) -> None:
        """Number what can replace other evidence in the pseudo-random order of the evidence."""
        db, places = self._db, Counter[str]()
        ranks = (
            (e, rank(seed, "evidence", evidence_key(_pieces_of(text))))
            for e, text in db.execute("SELECT e, json FROM evidence")
        )
        db.executemany("INSERT INTO ranked VALUES (?, ?)", ranks)
        query = "SELECT v.e, v.json FROM ranked r JOIN evidence v ON v.e = r.e ORDER BY r.place"
        for place, (e, text) in enumerate(db.execute(query)):
            evidence = _pieces_of(text)
            segments = [piece for piece in evidence if isinstance(piece, Timed)]
            if len(segments) == 1:
                key = _key("around", segments[0].path, *shape_of(evidence))
                db.execute("INSERT INTO around VALUES (?, ?, ?)", (key, place, e))
            pieces = [Transcript(piece.text) if isinstance(piece, Transcript) else piece for piece in evidence]
            for piece in dict.fromkeys(pieces):
                members = "INSERT OR IGNORE INTO members SELECT ?, grp FROM shown WHERE e = ?"
                db.execute(members, (_key(_form((piece,))), e))
            for part in _parts(pieces):
                shape = ",".join(shape_of(part))
                new = "INSERT OR IGNORE INTO parts VALUES (?, ?, ?, ?)"
                places[shape] += db.execute(new, (_key(_form(part)), shape, places[shape], _text(part))).rowcount
        db.execute("DROP TABLE ranked")
        db.execute("CREATE INDEX around_key ON around (key, place)")
        db.execute("CREATE INDEX parts_place ON parts (shape, place)")


class Material:
    """Pieces of the same kinds, each read when it is wanted: the pieces, and the groups that they belong to."""

    def __init__(self, db: sqlite3.Connection, groups: Sequence[str], shape: str) -> None:
        self._db, self._groups, self._shape = db, groups, shape
        last = db.execute("SELECT MAX(place) FROM parts WHERE shape = ?", (shape,)).fetchone()[0]
        self._n = 0 if last is None else last + 1

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, place: int) -> tuple[tuple[Evidence, ...], list[str]]:
        query = "SELECT json FROM parts WHERE shape = ? AND place = ?"
        pieces = _pieces_of(self._db.execute(query, (self._shape, place)).fetchone()[0])
        keys = [_key(_form((piece,))) for piece in pieces]
        query = f"SELECT DISTINCT grp FROM members WHERE piece IN ({', '.join('?' * len(keys))})"
        return pieces, sorted(self._groups[int(number)] for (number,) in self._db.execute(query, keys))


def _key(*parts: str) -> bytes:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _form(evidence: Iterable[Evidence]) -> str:
    """Equal for equal evidence, whether its times are whole numbers or not."""
    return json.dumps([[_KIND_OF[type(piece)], *map(_as_float, vars(piece).values())] for piece in evidence])


def _as_float(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _text(evidence: Iterable[Evidence]) -> str:
    return json.dumps([evidence_to_dict(piece) for piece in evidence])


def _pieces_of(text: str) -> tuple[Evidence, ...]:
    return tuple(map(evidence_from_dict, json.loads(text)))


def _parts(pieces: Sequence[Evidence]) -> list[tuple[Evidence, ...]]:
    """Each piece alone, and all that is seen and all that is said or written in one pair."""
    visual = tuple(piece for piece in pieces if _KIND_OF[type(piece)] in VISUAL_KINDS)
    text = tuple(piece for piece in pieces if _KIND_OF[type(piece)] not in VISUAL_KINDS)
    return list(dict.fromkeys([*((piece,) for piece in pieces), *filter(None, (visual, text))]))


@dataclass(frozen=True)
class Request:
    """A pair whose evidence is to be altered in one way."""

    pair: Pair
    claim: str  # normalised
    known: Known
    seed: int
    origin: str

    def draw(self, number: int = 0) -> int:
        """A pseudo-random natural number."""
        return int(rank(self.seed, self.origin, self.pair.id, str(number))[:15], 16)

    def taken(self, path: str) -> list[Span]:
        """The spans of a video where the claim is known to hold, those of the pair itself among them."""
        own = [p for p in self.pair.evidence if isinstance(p, Timed) and p.path == path]
        return [*map(self.known.span, own), *self.known.spans(self.claim, path)]

    def bearers(self) -> list[int]:
        """Places of the pieces that may carry the claim, by the pair's modality; all where none fits it."""
        kinds = shape_of(self.pair.evidence)
        fitting = [at for at, kind in enumerate(kinds) if kind in _BEARERS[self.pair.modality]]
        return fitting or list(range(len(kinds)))


def _anchor(piece: Evidence) -> str:
    return piece.text if isinstance(piece, (Transcript, Passage)) else media_name(piece)


def _anchors(evidence: Sequence[Evidence]) -> set[str]:
    return {media_name(piece) for piece in evidence if isinstance(piece, Moving)} or set(map(_anchor, evidence[:1]))


def _covers(new: Evidence, known: Evidence) -> bool:
    """Whether `new` may show what `known` does: a common moment of a file, seen or heard, or the same image or text."""
    if isinstance(new, Timed) and isinstance(known, Timed) and new.path == known.path:
        new_end, known_end = (math.inf if s.end_s is None else s.end_s for s in (new, known))
        return bool(_senses(new) & _senses(known)) and new.start_s < known_end and known.start_s < new_end
    return type(new) is type(known) and _anchor(new) == _anchor(known)


def _checked(durations: Mapping[str, float]) -> dict[str, float]:
    for path, duration_s in durations.items():
        if not (math.isfinite(duration_s) and duration_s > 0):
            raise RowError(f"{path}: duration must be a positive number of seconds, got {duration_s}; probe the file")
    return dict(durations)


def walk(items: Sequence[T], start: int) -> Iterator[T]:
    """Up to `MAX_TRIES` items in turn, beginning at an arbitrary one."""
    return (items[(start + number) % len(items)] for number in range(min(len(items), MAX_TRIES)))


def _senses(piece: Timed) -> set[str]:
    if isinstance(piece, Audio):
        return {"heard"}
    return {"seen", "heard"} if piece.sound else {"seen"}
