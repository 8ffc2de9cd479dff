"""Counts for the data set card, taken row by row: cheap enough for a million pairs, without keeping them.

What is kept are counters: of label, role and so on together, of claim lengths, of durations in tenths of a second, of
rows per group and per piece of evidence. Memory grows with the number of groups and of distinct evidence, not of rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple

from ...core import (
    Audio,
    Evidence,
    Frames,
    Image,
    Pair,
    Transcript,
    VideoSegment,
    evidence_from_dict,
    evidence_to_dict,
    media_paths,
)

EXAMPLES_PER_KIND = 2
QUANTILES = {"least": 0.0, "5%": 0.05, "25%": 0.25, "median": 0.5, "75%": 0.75, "95%": 0.95, "most": 1.0}
_SHOWN_CHARS = 90


class Stratum(NamedTuple):
    """The columns by which rows are counted."""

    split: str | None
    label: str | None
    role: str
    origin: str
    modality: str


@dataclass(frozen=True)
class ExampleRow:
    """A row as the card shows it; `evidence` names files without their folders."""

    claim: str
    label: str | None
    role: str
    origin: str
    evidence: str


class CardStatistics:
    """Counts over the rows of a data set.

    Attributes:
        strata: rows per combination of split, label, role, origin and modality.
        words: rows per (label, number of words of the claim).
        group_rows: rows per group.
        evidence_rows: rows per piece of evidence, by hash.
        evidence_kinds: distinct evidence per combination of kinds, e.g. "transcript + video".
        durations_ds: distinct video segments per duration, in tenths of a second.
        total_s: seconds of all distinct video segments; overlapping ones count each.
        open_ended: distinct video segments that run to the end of their file, whose duration is not known here.
        media_files: distinct paths of videos and images.
        examples: the first rows of each (label, origin).
    """

    def __init__(self) -> None:
        """Start from nothing."""
        self.strata: Counter[Stratum] = Counter()
        self.words: Counter[tuple[str | None, int]] = Counter()
        self.group_rows: Counter[str] = Counter()
        self.evidence_rows: Counter[int] = Counter()
        self.evidence_kinds: Counter[str] = Counter()
        self.durations_ds: Counter[int] = Counter()
        self.total_s = 0.0
        self.open_ended = 0
        self.media_files: set[str] = set()
        self.examples: dict[tuple[str | None, str], list[ExampleRow]] = {}

    def add(self, pair: Pair) -> None:
        """Count one pair."""
        stratum = Stratum(pair.split, pair.label, pair.role, pair.origin, pair.modality)
        self._count(stratum, pair.group, pair.claim, pair.evidence)

    def add_many(self, pairs: Iterable[Pair]) -> None:
        """Count every pair."""
        for pair in pairs:
            self.add(pair)

    def add_stored(
        self,
        split: str | None,
        label: str | None,
        role: str,
        origin: str,
        modality: str,
        group: str,
        claim: str,
        evidence: str,
    ) -> None:
        """Count one row from its stored columns; `evidence` is JSON text and is parsed once per distinct text.

        Do not mix with `add`: the same evidence would count as two pieces.
        """
        self._count(Stratum(split, label, role, origin, modality), group, claim, evidence)

    @property
    def rows(self) -> int:
        """Rows counted."""
        return self.strata.total()

    def table(self, field: str) -> dict[str, Counter[str | None]]:
        """Rows per label for each value of `field`, a name of `Stratum`; in order of names."""
        counts: dict[str, Counter[str | None]] = {}
        for stratum, rows in self.strata.items():
            counts.setdefault(str(getattr(stratum, field)), Counter())[stratum.label] += rows
        return dict(sorted(counts.items()))

    def claim_words(self) -> dict[str | None, Counter[int]]:
        """Per label, rows per number of words."""
        counts: dict[str | None, Counter[int]] = {}
        for (label, words), rows in self.words.items():
            counts.setdefault(label, Counter())[words] += rows
        return counts

    def _count(self, stratum: Stratum, group: str, claim: str, evidence: str | tuple[Evidence, ...]) -> None:
        self.strata[stratum] += 1
        self.group_rows[group] += 1
        self.words[stratum.label, len(claim.split())] += 1
        key = hash(evidence)
        is_new = key not in self.evidence_rows
        self.evidence_rows[key] += 1
        shown = self.examples.get((stratum.label, stratum.origin))
        wanted = shown is None or len(shown) < EXAMPLES_PER_KIND
        if not is_new and not wanted:
            return
        parts = _parsed(evidence) if isinstance(evidence, str) else evidence
        if is_new:
            self._count_evidence(parts)
        if wanted:
            example = ExampleRow(claim, stratum.label, stratum.role, stratum.origin, "; ".join(map(describe, parts)))
            shown = self.examples.setdefault((stratum.label, stratum.origin), [])
            if all(example.evidence != other.evidence for other in shown):
                shown.append(example)

    def _count_evidence(self, evidence: tuple[Evidence, ...]) -> None:
        names = sorted({evidence_to_dict(part)["kind"] for part in evidence})
        self.evidence_kinds[" + ".join(names)] += 1
        for part in evidence:
            self.media_files.update(media_paths(part))
            end_s = part.until_s if isinstance(part, Frames) else getattr(part, "end_s", None)
            if isinstance(part, VideoSegment) and end_s is None:
                self.open_ended += 1
            elif isinstance(part, (VideoSegment, Frames)) and end_s is not None:
                seconds = end_s - part.start_s
                self.durations_ds[round(seconds * 10)] += 1
                self.total_s += seconds


def quantiles(counted: Mapping[int, int]) -> dict[str, int]:
    """The values at `QUANTILES` of a counter {value: how often}, the lower one between two; empty for no values."""
    values, total = sorted(counted), sum(counted.values())
    marks: dict[str, int] = {}
    for name, share in QUANTILES.items():
        passed = 0
        for value in values:
            passed += counted[value]
            if passed >= share * total:
                marks[name] = value
                break
    return marks


def sizes(counted: Mapping[Any, int]) -> Counter[int]:
    """How many keys have each count: rows per group -> groups per number of rows."""
    return Counter(counted.values())


def describe(evidence: Evidence) -> str:
    """One piece of evidence in a few words, without the folder it lies in."""
    if isinstance(evidence, (VideoSegment, Audio)):
        end = "to its end" if evidence.end_s is None else f"to {evidence.end_s:g} s"
        kind = "sound of" if isinstance(evidence, Audio) else "video with sound" if evidence.sound else "video"
        return f"{kind} {PurePath(evidence.path).name}, {evidence.start_s:g} {end}"
    if isinstance(evidence, Frames):
        span = f"{evidence.start_s:g} to {evidence.until_s:g} s"
        return f"{len(evidence.paths)} frames from {PurePath(evidence.paths[0]).name}, {span}"
    if isinstance(evidence, Image):
        return f"image {PurePath(evidence.path).name}"
    kind = "transcript" if isinstance(evidence, Transcript) else "text"
    text = " ".join(evidence.text.split())
    return f"{kind} \N{LEFT DOUBLE QUOTATION MARK}{shortened(text)}\N{RIGHT DOUBLE QUOTATION MARK}"


def shortened(text: str, width: int = _SHOWN_CHARS) -> str:
    """The text, cut to `width` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"


def _parsed(evidence: str) -> tuple[Evidence, ...]:
    return tuple(evidence_from_dict(part) for part in json.loads(evidence))
