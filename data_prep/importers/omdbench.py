"""Import OMD-Bench: anchors shown by video, audio and text, in all eight conditions of replaced channels.

OMD-Bench asks what a model does when channels disagree (sections 3.3, 4.2, appendix A.8 and A.9). Each anchor comes out
eight times, C000 to C111: the three bits say whether video, audio and text are those of another anchor, drawn for each
channel by itself. The draws depend on the seed, the anchor and the channel, not on the order of the file. No file of
the benchmark is public: the layout read here is our own (docs/formats.md).
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError, MediaError
from ...core.pairs import SPLITS, Evidence, Label, Pair, Passage, Split, Transcript, VideoSegment
from ..records import Record, Rejected, Row, read_json_records, reject
from ..statements import statement
from ..transcripts import Transcripts
from .omdbench_layout import Anchor, Question, anchor_of

CHANNELS = ("video", "audio", "text")
CONDITIONS: dict[str, tuple[str, ...]] = {
    f"C{''.join(map(str, bits))}": tuple(channel for channel, bit in zip(CHANNELS, bits, strict=True) if bit)
    for bits in itertools.product((0, 1), repeat=3)
}
"""The channels replaced in each condition (appendix A.9, table 12)."""

HUMAN_ABSTENTION: dict[str, dict[str, float]] = {
    "real": {"C011": 0.0078, "C101": 0.0392, "C110": 0.0078, "C111": 0.9843},
    "synthetic": {"C011": 0.0039, "C101": 0.0275, "C110": 0.0039, "C111": 0.9765},
}
"""How often people abstained (table 13); 0 in the other conditions."""


@dataclass(frozen=True)
class Options:
    """How anchors are read.

    Attributes:
        seed: draws the replacements.
        transcripts: folder of `<audio stem>.srt|.vtt|.json`, or one JSON for all, relative to the annotation file; for
            anchors that name an `audio_file`.
        split: the split of every row. Conditions share channels between anchors, so groups cannot be kept apart:
            "test" keeps the benchmark whole; "" leaves splits to the build.
    """

    seed: int = 0
    transcripts: str = ""
    split: str = "test"

    def __post_init__(self) -> None:
        if self.split not in ("", *SPLITS):
            raise ConfigError(f"split: unknown split, got {self.split!r}; use one of {list(SPLITS)}, or ''")


@dataclass(frozen=True)
class _Shown:
    """An anchor with the evidence that shows it, per channel."""

    anchor: Anchor
    record: Record
    channels: Mapping[str, Evidence]


def read(path: Path, options: Options) -> Iterator[Row | Rejected]:
    """Every claim about every anchor under all eight conditions; rejections for what cannot be shown."""
    by_data: dict[str, dict[str, _Shown]] = {}
    for item in _shown(path, options):
        if isinstance(item, Rejected):
            yield item
            continue
        here = by_data.setdefault(item.anchor.data, {})
        if item.anchor.id in here:
            yield reject(item.record, f"anchor is given twice, got {item.anchor.id!r}; keep one", id=item.anchor.id)
            continue
        here[item.anchor.id] = item
    for anchors in by_data.values():
        for shown in anchors.values():
            drawn = {channel: _replacement(shown, channel, anchors, options.seed) for channel in CHANNELS}
            if lacking := [channel for channel, other in drawn.items() if other is None]:
                message = f"no other anchor to replace from, got none with another {lacking[0]}; give two or more"
                yield reject(shown.record, message, id=shown.anchor.id)
                continue
            split: Split | None = options.split or None  # type: ignore[assignment]
            yield from _rows(shown, {channel: other for channel, other in drawn.items() if other}, split)


def _shown(path: Path, options: Options) -> Iterator[_Shown | Rejected]:
    try:
        transcripts = Transcripts(path.parent / options.transcripts) if options.transcripts else None
    except MediaError as error:
        raise ConfigError(f"transcripts: {error}") from None
    for record in read_json_records(path):
        if isinstance(record, Rejected):
            yield record
            continue
        anchor = anchor_of(record.value)
        if isinstance(anchor, str):
            name = record.value.get("id") if isinstance(record.value, dict) else None
            yield reject(record, anchor, id=name if isinstance(name, str) else None)
            continue
        audio = Transcript(anchor.audio) if anchor.audio else _heard(anchor.audio_file, transcripts)
        if isinstance(audio, str):
            yield reject(record, audio, id=anchor.id)
            continue
        channels = {"video": VideoSegment(os.path.normpath(anchor.video)), "audio": audio, "text": Passage(anchor.text)}
        yield _Shown(anchor, record, channels)


def _heard(file: str, transcripts: Transcripts | None) -> Transcript | str:
    """All that is said in an audio file, or why there is nothing."""
    if transcripts is None:
        return f"audio file without transcripts, got {file!r}; set the option transcripts, or give the audio in words"
    try:
        cues = transcripts.cues(file)
    except MediaError as error:
        return f"transcript cannot be read, got {error}"
    if not cues:
        return f"transcript is missing or empty, got none for {file!r} in {transcripts.source}; give the audio in words"
    return Transcript(" ".join(cue.text for cue in cues))


def _replacement(shown: _Shown, channel: str, anchors: Mapping[str, _Shown], seed: int) -> _Shown | None:
    """Another anchor whose channel differs, uniform over them; None without one.

    Each candidate gets a hash and the smallest wins: the draw does not depend on the order of the file, and a new
    anchor changes few draws.
    """
    others = (other for other in anchors.values() if other.channels[channel] != shown.channels[channel])

    def ticket(other: _Shown) -> bytes:
        words = [str(seed), shown.anchor.id, channel, other.anchor.id]
        return hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).digest()

    return min((other for other in others if other.anchor.id != shown.anchor.id), key=ticket, default=None)


def _rows(shown: _Shown, drawn: Mapping[str, _Shown], split: Split | None) -> Iterator[Row]:
    anchor, record = shown.anchor, shown.record
    for condition, replaced in CONDITIONS.items():
        now = {channel: drawn[channel] if channel in replaced else shown for channel in CHANNELS}
        depicted = {channel: here.anchor.id for channel, here in now.items()}
        for number, claim, label, meta in _judged(anchor, depicted):
            pair = Pair(
                id=f"{anchor.id}/{anchor.data}/{condition}/{number}",
                claim=claim,
                evidence=tuple(here.channels[channel] for channel, here in now.items()),
                label=label,
                split=split,
                group=anchor.id,
                origin="_".join(("replaced", *replaced)) if replaced else "annotated",
                modality="mixed",
                meta={
                    "condition": condition,
                    "corrupted": list(replaced),
                    "depicted": depicted,
                    "data": anchor.data,
                    "expected_abstention": HUMAN_ABSTENTION[anchor.data].get(condition, 0.0),
                    **meta,
                },
            )
            yield Row(pair, record.file, record.line, f"{anchor.id}/{anchor.data}")


def _judged(anchor: Anchor, depicted: Mapping[str, str]) -> Iterator[tuple[str, str, Label, dict[str, Any]]]:
    """(number, claim, label, meta) of every claim, as the channels now are."""
    for q, question in enumerate(anchor.questions):
        right = supported_option(question, list(depicted.values()))
        for o, option in enumerate(question.options):
            label: Label = "not_enough" if right is None else "supported" if option == right else "refuted"
            meta = {"question": question.text, "option": option, "abstain": right is None}
            yield f"q{q}.{o}", statement(question.text, option), label, meta
    shown = anchor.id in depicted.values()
    for number, (claim, label) in enumerate(anchor.claims):
        yield f"c{number}", claim, label if shown else "not_enough", {"abstain": not shown}


def supported_option(question: Question, depicted: list[str]) -> str | None:
    """The option with strictly more channels for it than any other, or None to abstain (section 4.2).

    Args:
        depicted: the anchor that each channel shows. One that the question's key does not name speaks for no option.
    """
    votes = Counter(question.key[anchor] for anchor in depicted if anchor in question.key).most_common(2)
    if not votes or (len(votes) == 2 and votes[0][1] == votes[1][1]):
        return None
    return votes[0][0]
