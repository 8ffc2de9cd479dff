"""An index of one split's evidence: where each claim holds, and every piece that can replace another.

Built once from a stream of pairs and then only read, so that altering the evidence of a million pairs needs no scan per
pair. Altered negatives are made from it (evidence_changes.py).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ...core import (
    EVIDENCE_KINDS,
    Evidence,
    Moving,
    Pair,
    RowError,
    Transcript,
    VideoSegment,
    Visual,
    evidence_key,
    media_name,
)
from ..dataset import rank
from .swapped import normal_claim

VISUAL_KINDS = ("video", "frames", "image")
MAX_TRIES = 32  # candidates looked at for one negative: no pair costs a scan of the data set
T = TypeVar("T")
Span = tuple[float, float]  # [start, end] in seconds
Shape = tuple[str, ...]  # the kinds of some pieces of evidence, in order
Proposals = Iterator[tuple[Evidence, ...]]
Material = tuple[tuple[Evidence, ...], tuple[str, ...]]  # pieces, and the groups they belong to
_BEARERS: dict[str, Shape] = {  # the kinds of evidence that can carry a modality
    "visual": VISUAL_KINDS,
    "ocr": VISUAL_KINDS,
    "audio": ("transcript",),
    "text": ("transcript", "passage"),
    "mixed": (*VISUAL_KINDS, "transcript", "passage"),
}
_KIND_OF = {cls: kind for kind, cls in EVIDENCE_KINDS.items()}


def shape_of(evidence: Iterable[Evidence]) -> Shape:
    """The kinds of these pieces, in order."""
    return tuple(_KIND_OF[type(piece)] for piece in evidence)


@dataclass(frozen=True)
class Known:
    """An index over the pairs of one split; claims in it are normalised (`normal_claim`).

    Attributes:
        held: (claim, path of a video) -> the evidence with this video for which the claim is supported; of evidence
            without video the path or text of the first piece.
        groups: (claim, group) for every group in which a claim is supported.
        judged: (claim, evidence) of the pairs that are not supported.
        material: kinds -> pieces of these kinds: each piece alone, and what each pair shows or says as a whole.
        same_video: (video path, kinds) -> the evidence of these kinds around one segment of that video.
        durations: video path -> length of the file in seconds, where known.
        ends: video path -> its duration, or its latest annotated end where that is unknown, in seconds.
        generic: claims that may hold anywhere unannotated: their evidence is never altered.
    """

    held: Mapping[tuple[str, str], Sequence[tuple[Evidence, ...]]]
    groups: Collection[tuple[str, str]]
    judged: Collection[tuple[str, tuple[Evidence, ...]]]
    material: Mapping[Shape, Sequence[Material]]
    same_video: Mapping[tuple[str, Shape], Sequence[tuple[Evidence, ...]]]
    durations: Mapping[str, float]
    ends: Mapping[str, float]
    generic: Collection[str] = ()

    @classmethod
    def of(
        cls,
        pairs: Iterable[Pair],
        durations: Mapping[str, float] | None = None,
        generic_claims: Iterable[str] = (),
        seed: int = 0,
    ) -> Known:
        """Index the pairs of one split, in any order; `durations` in seconds, by the path the pairs use.

        Raises:
            RowError: a duration that is no positive number of seconds.
        """
        groups_of: dict[tuple[Evidence, ...], set[str]] = {}
        same: dict[Any, Any] = {}  # equal claims and equal evidence are kept once
        held: dict[tuple[str, str], list[tuple[Evidence, ...]]] = {}
        groups: set[tuple[str, str]] = set()
        judged: set[tuple[str, tuple[Evidence, ...]]] = set()
        for pair in pairs:
            claim, evidence = normal_claim(pair.claim), same.setdefault(pair.evidence, pair.evidence)
            claim = same.setdefault(claim, claim)
            groups_of.setdefault(evidence, set()).add(pair.group)
            if pair.label == "supported":
                groups.add((claim, pair.group))
                for anchor in _anchors(evidence):
                    if (at := held.get((claim, anchor))) is None:
                        held[claim, anchor] = [evidence]
                    else:
                        at.append(evidence)
            elif pair.label is not None:
                judged.add((claim, evidence))
        order = sorted(groups_of, key=lambda evidence: rank(seed, "evidence", evidence_key(evidence)))
        lengths = _checked(durations or {})
        ends = {**_latest_ends(order), **lengths}
        generic = frozenset(map(normal_claim, generic_claims))
        return cls(held, groups, judged, _material(groups_of, order), _same_video(order), lengths, ends, generic)

    def holds(self, claim: str, evidence: Sequence[Evidence]) -> bool:
        """Whether everything that some supported pair needs for this claim is among `evidence`."""
        for piece in evidence:
            for needed in self.held.get((claim, _anchor(piece)), ()):
                if all(any(_covers(new, part) for new in evidence) for part in needed):
                    return True
        return False

    def spans(self, claim: str, path: str) -> Iterator[Span]:
        """Spans [start, end] (seconds) of a video in which a claim is known to hold; inf is an unknown end."""
        for evidence in self.held.get((claim, path), ()):
            for piece in evidence:
                if isinstance(piece, VideoSegment) and piece.path == path:
                    yield self.span(piece)

    def span(self, segment: VideoSegment) -> Span:
        """[start, end] of a segment in seconds; inf where it goes to an unknown end of the file."""
        if segment.end_s is not None:
            return segment.start_s, segment.end_s
        return segment.start_s, self.durations.get(segment.path, math.inf)


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
        own = [p for p in self.pair.evidence if isinstance(p, VideoSegment) and p.path == path]
        return [*map(self.known.span, own), *self.known.spans(self.claim, path)]

    def bearers(self) -> list[int]:
        """Places of the pieces that may carry the claim, by the pair's modality; all where none fits it."""
        kinds = shape_of(self.pair.evidence)
        fitting = [at for at, kind in enumerate(kinds) if kind in _BEARERS[self.pair.modality]]
        return fitting or list(range(len(kinds)))


def _anchor(piece: Evidence) -> str:
    return media_name(piece) if isinstance(piece, Visual) else piece.text


def _anchors(evidence: Sequence[Evidence]) -> set[str]:
    return {media_name(piece) for piece in evidence if isinstance(piece, Moving)} or set(map(_anchor, evidence[:1]))


def _covers(new: Evidence, known: Evidence) -> bool:
    """Whether `new` may show what `known` shows: any common moment of a video, or the same image or text."""
    if isinstance(new, VideoSegment) and isinstance(known, VideoSegment) and new.path == known.path:
        new_end, known_end = (math.inf if s.end_s is None else s.end_s for s in (new, known))
        return new.start_s < known_end and known.start_s < new_end
    return type(new) is type(known) and _anchor(new) == _anchor(known)


def _checked(durations: Mapping[str, float]) -> dict[str, float]:
    for path, duration_s in durations.items():
        if not (math.isfinite(duration_s) and duration_s > 0):
            raise RowError(f"{path}: duration must be a positive number of seconds, got {duration_s}; probe the file")
    return dict(durations)


def _latest_ends(evidences: Iterable[tuple[Evidence, ...]]) -> dict[str, float]:
    ends: dict[str, float] = {}
    for piece in (piece for evidence in evidences for piece in evidence):
        if isinstance(piece, VideoSegment) and piece.end_s is not None:
            ends[piece.path] = max(piece.end_s, ends.get(piece.path, 0.0))
    return ends


def _material(
    groups_of: Mapping[tuple[Evidence, ...], set[str]], order: Iterable[tuple[Evidence, ...]]
) -> dict[Shape, list[Material]]:
    """Each piece alone, and all that is seen and all that is said or written in one pair; transcripts without times."""
    groups: dict[Evidence, set[str]] = defaultdict(set)
    parts: dict[tuple[Evidence, ...], None] = {}
    for evidence in order:
        pieces = [Transcript(piece.text) if isinstance(piece, Transcript) else piece for piece in evidence]
        visual = tuple(piece for piece in pieces if _KIND_OF[type(piece)] in VISUAL_KINDS)
        text = tuple(piece for piece in pieces if _KIND_OF[type(piece)] not in VISUAL_KINDS)
        parts.update(dict.fromkeys([*((piece,) for piece in pieces), *filter(None, (visual, text))]))
        for piece in pieces:
            groups[piece].update(groups_of[evidence])
    material: dict[Shape, list[Material]] = defaultdict(list)
    for part in parts:
        members = set().union(*(groups[piece] for piece in part))
        material[shape_of(part)].append((part, tuple(sorted(members))))
    return dict(material)


def _same_video(order: Iterable[tuple[Evidence, ...]]) -> dict[tuple[str, Shape], list[tuple[Evidence, ...]]]:
    pieces: dict[tuple[str, Shape], list[tuple[Evidence, ...]]] = defaultdict(list)
    for evidence in order:
        segments = [piece for piece in evidence if isinstance(piece, VideoSegment)]
        if len(segments) == 1:
            pieces[segments[0].path, shape_of(evidence)].append(evidence)
    return dict(pieces)


def walk(items: Sequence[T], start: int) -> Iterator[T]:
    """Up to `MAX_TRIES` items in turn, beginning at an arbitrary one."""
    return (items[(start + number) % len(items)] for number in range(min(len(items), MAX_TRIES)))
