"""Import your own rows in the manner of OMD-Bench: anchors shown by video, audio and text, in all eight conditions.

OMD-Bench asks what a model does when channels disagree (sections 3.3, 4.2, appendix A.8 and A.9). Each anchor gives
rows in eight conditions, C000 to C111: the three bits say whether video, audio and text are those of another anchor,
drawn for each channel by itself. The draws depend on the seed, the anchor and the channel, not on the order of the
file. No file of the benchmark is public, and none can be read here: the layout is this project's own, the form in which
users bring rows of that kind (docs/formats.md).
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...core import (
    LABELS,
    SPLITS,
    Audio,
    ConfigError,
    Evidence,
    Label,
    MediaError,
    Pair,
    Passage,
    RowError,
    Split,
    Transcript,
    VideoSegment,
)
from .base import Importer, Record, Rejected, Row, read_json_records, reject
from .qa_statements import option_number, plain_options, same_text, statement
from .transcripts import Transcripts

DATA = ("real", "synthetic")
ABSTENTION = "I cannot answer"
_TEXTS = ("id", "video", "audio", "audio_file", "text")
_KEYS = {*_TEXTS, "split", "questions", "claims"}
_QUESTION_KEYS = {"question", "options", "answer", "abstention", "key"}


@dataclass(frozen=True)
class Question:
    """One question about an anchor.

    Attributes:
        text: the question.
        options: without letters, and without the one that abstains.
        answer: the option that is right for the anchor.
        key: which option is right for which anchor (appendix A.8); the anchor's own `answer` included.
    """

    text: str
    options: tuple[str, ...]
    answer: str
    key: Mapping[str, str]


@dataclass(frozen=True)
class Anchor:
    """An object or event with what shows it on three channels. `audio` is what is heard, in words, unless `audio_file`
    names what a transcript is to be found for, or what is heard itself; without both it is the sound of `video`. `data`
    is "real" or "synthetic"."""

    id: str
    data: str
    video: str
    audio: str
    audio_file: str
    text: str
    questions: tuple[Question, ...]
    claims: tuple[tuple[str, Label], ...]


def anchor_of(value: Any, heard: bool = False) -> Anchor | str:
    """The anchor a record describes, or the first thing wrong with it. One that is `heard` may leave the audio out."""
    if problem := _problem_of(value) or _audio_problem(value, heard):
        return problem
    texts = {key: value.get(key) or "" for key in _TEXTS}
    try:
        questions = tuple(_question(item, value["id"]) for item in value.get("questions") or [])
    except RowError as error:
        return str(error)
    claims = tuple((item["claim"], item["label"]) for item in value.get("claims") or [])
    return Anchor(**texts, data=value.get("split") or DATA[0], questions=questions, claims=claims)


def _problem_of(value: Any) -> str | None:
    if not isinstance(value, dict):
        return f"anchor must be an object, got {type(value).__name__}; write {{'id': ..., 'video': ...}}"
    if unknown := sorted(set(value) - _KEYS):
        return f"unknown keys, got {unknown}; an anchor has {sorted(_KEYS)}"
    for key in _TEXTS:
        if not isinstance(value.get(key), (str, type(None))):
            return f"{key} must be text, got {value[key]!r:.60}; quote it"
        if key not in ("audio", "audio_file") and not (value.get(key) or "").strip():
            return f"{key} is missing, got {value.get(key)!r}; an anchor is shown on all three channels"
    if value.get("split") not in (*DATA, None):
        return f"split must be one of {list(DATA)}, got {value['split']!r}; it names the kind of media here"
    for key, is_good in (("questions", _is_question), ("claims", _is_claim)):
        items = value.get(key)
        if not isinstance(items, (list, type(None))) or not all(is_good(item) for item in items or []):
            return f"{key} cannot be read, got {items!r:.80}; see docs/formats.md for the layout"
    if not (value.get("questions") or value.get("claims")):
        return f"anchor asks nothing, got {sorted(value)}; give questions or claims"
    return None


def _audio_problem(value: dict[str, Any], heard: bool) -> str | None:
    words, file = value.get("audio"), value.get("audio_file")
    if heard and words:
        return f"audio is in words, got {words!r:.40}; name an audio_file, or leave both out to hear the video's sound"
    if not heard and bool(words) == bool(file):
        return f"audio must be given once, got {words!r:.40} and {file!r:.40}; give one"
    return None


def _is_question(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and {"question", "options", "answer"} <= set(item) <= _QUESTION_KEYS
        and all(isinstance(item.get(key, ""), str) for key in ("question", "answer", "abstention"))
        and isinstance(item["options"], list)
        and all(isinstance(option, str) and option.strip() for option in item["options"])
        and isinstance(item.get("key", {}), dict)
        and all(isinstance(option, str) for option in item.get("key", {}).values())
    )


def _is_claim(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and set(item) == {"claim", "label"}
        and isinstance(item["claim"], str)
        and item["label"] in LABELS
    )


def _question(item: dict[str, Any], anchor: str) -> Question:
    raw = item["options"]
    options = plain_options(raw)
    for option in options:
        statement(item["question"], option)  # raises where no statement can be made
    if len({same_text(option) for option in options}) < len(options):
        raise RowError(f"an option is given twice, got {options}; keep one")
    silent = [option for option in options if same_text(option) == same_text(ABSTENTION)]
    if item.get("abstention"):
        silent = [options[_named(item["abstention"], raw)]]
    key = {name: options[_named(option, raw)] for name, option in item.get("key", {}).items()}
    answer = options[_named(item["answer"], raw)]
    if key.setdefault(anchor, answer) != answer or any(option in silent for option in key.values()):
        raise RowError(
            f"answer contradicts key or abstains, got {answer!r} and {key}; give each anchor its true option"
        )
    return Question(item["question"], tuple(o for o in options if o not in silent), answer, key)


def _named(name: str, raw: list[str]) -> int:
    """The number of the option that a letter or the option's own words, with its letter or without, name."""
    for options in (raw, plain_options(raw)):
        if same := [n for n, option in enumerate(options) if same_text(option) == same_text(name)]:
            return same[0]
    return option_number(name, raw)


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
class OMDBenchOptions:
    """How anchors are read.

    Attributes:
        seed: draws the replacements.
        transcripts: folder of `<audio stem>.srt|.vtt|.json`, or one JSON for all, relative to the annotation file; for
            anchors that name an `audio_file`.
        audio: `sound`: the audio channel is heard, for a verifier that hears: an anchor's `audio_file`, or the sound of
            its video; no transcripts are needed then.
        split: the split of every row. Conditions share channels between anchors, so groups cannot be kept apart:
            "test" keeps the benchmark whole; "" leaves splits to the build.
    """

    seed: int = 0
    transcripts: str = ""
    split: str = "test"
    audio: Literal["transcript", "sound"] = "transcript"

    def __post_init__(self) -> None:
        if self.audio == "sound" and self.transcripts:
            raise ConfigError(f"transcripts: not read where sound is heard, got {self.transcripts!r}; leave them out")
        if self.split not in ("", *SPLITS):
            raise ConfigError(f"split: unknown split, got {self.split!r}; use one of {list(SPLITS)}, or ''")


@dataclass(frozen=True)
class _AnchorEvidence:
    """An anchor with the evidence that shows it, per channel."""

    anchor: Anchor
    record: Record
    channels: Mapping[str, Evidence]


def read(path: Path, options: OMDBenchOptions) -> Iterator[Row | Rejected]:
    """Every claim about every anchor under all eight conditions; rejections for what cannot be shown."""
    return conflicting_rows(path, options)


def conflicting_rows(path: Path, options: OMDBenchOptions, lost: Collection[str] = ()) -> Iterator[Row | Rejected]:
    """As `read`; channels that are `lost` show nothing where they are corrupted, in place of another anchor.

    Who loses them makes the evidence: here it is still the anchor's own.
    """
    by_data: dict[str, dict[str, _AnchorEvidence]] = {}
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
            yield from _rows(shown, {channel: other for channel, other in drawn.items() if other}, split, lost)


def _shown(path: Path, options: OMDBenchOptions) -> Iterator[_AnchorEvidence | Rejected]:
    try:
        transcripts = Transcripts(path.parent / options.transcripts) if options.transcripts else None
    except MediaError as error:
        raise ConfigError(f"transcripts: {error}") from None
    for record in read_json_records(path):
        if isinstance(record, Rejected):
            yield record
            continue
        anchor = anchor_of(record.value, options.audio == "sound")
        if isinstance(anchor, str):
            name = record.value.get("id") if isinstance(record.value, dict) else None
            yield reject(record, anchor, id=name if isinstance(name, str) else None)
            continue
        audio: Evidence | str
        if options.audio == "sound":
            audio = Audio(os.path.normpath(anchor.audio_file or anchor.video))
        else:
            audio = Transcript(anchor.audio) if anchor.audio else _said(anchor.audio_file, transcripts)
        if isinstance(audio, str):
            yield reject(record, audio, id=anchor.id)
            continue
        seen = VideoSegment(os.path.normpath(anchor.video))
        channels: dict[str, Evidence] = {"video": seen, "audio": audio, "text": Passage(anchor.text)}
        yield _AnchorEvidence(anchor, record, channels)


def _said(file: str, transcripts: Transcripts | None) -> Transcript | str:
    """All that is said in an audio file, or why there is nothing."""
    if transcripts is None:
        return (
            f"audio file without transcripts, got {file!r}; set the option transcripts, give the audio in words, or "
            "have it heard (audio: sound)"
        )
    try:
        cues = transcripts.cues(file)
    except MediaError as error:
        return f"transcript cannot be read, got {error}"
    if not cues:
        return f"transcript is missing or empty, got none for {file!r} in {transcripts.source}; give the audio in words"
    return Transcript(" ".join(cue.text for cue in cues))


def _replacement(
    shown: _AnchorEvidence, channel: str, anchors: Mapping[str, _AnchorEvidence], seed: int
) -> _AnchorEvidence | None:
    """Another anchor whose channel differs, uniform over them; None without one.

    Each candidate gets a hash and the smallest wins: the draw does not depend on the order of the file, and a new
    anchor changes few draws.
    """
    others = (other for other in anchors.values() if other.channels[channel] != shown.channels[channel])

    def ticket(other: _AnchorEvidence) -> bytes:
        words = [str(seed), shown.anchor.id, channel, other.anchor.id]
        return hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).digest()

    return min((other for other in others if other.anchor.id != shown.anchor.id), key=ticket, default=None)


def _rows(
    shown: _AnchorEvidence, drawn: Mapping[str, _AnchorEvidence], split: Split | None, lost: Collection[str]
) -> Iterator[Row]:
    anchor, record = shown.anchor, shown.record
    for condition, replaced in CONDITIONS.items():
        now = {channel: drawn[channel] if {channel} & {*replaced} - {*lost} else shown for channel in CHANNELS}
        depicted = {
            channel: "" if channel in lost and channel in replaced else here.anchor.id for channel, here in now.items()
        }
        human = {} if lost else {"expected_abstention": HUMAN_ABSTENTION[anchor.data].get(condition, 0.0)}
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
                    **human,
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
        depicted: the anchor that each channel shows. An anchor that the question's key lacks supports no option.
    """
    votes = Counter(question.key[anchor] for anchor in depicted if anchor in question.key).most_common(2)
    if not votes or (len(votes) == 2 and votes[0][1] == votes[1][1]):
        return None
    return votes[0][0]


IMPORTER = Importer(
    name="omdbench",
    description="Your own anchors in the manner of OMD-Bench, whose files are not public: three channels to replace.",
    read=read,
    options=OMDBenchOptions,
)
