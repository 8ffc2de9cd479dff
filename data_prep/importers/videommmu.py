"""Import Video-MMMU: questions about lecture videos in three tracks, one file each.

The layout is that of data/{perception,comprehension,adaptation}_video.json (EvolvingLMMs-Lab/VideoMMMU). The right
option becomes a supported statement about the whole video, every other a refuted one; an open answer only a supported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ...core import ConfigError, Label, Pair, RowError, VideoSegment
from .base import Importer, Record, Rejected, Row, kind_of, read_json_members, reject
from .qa_statements import LETTERS, Rewrite, distinct_options, option_number, plain_options, statements

TRACKS = ("Perception", "Comprehension", "Adaptation")
# The published archive sorts the 30 subjects into six folders.
FOLDERS = {
    "Art": "Art Art_Theory Design Music",
    "Business": "Accounting Economics Finance Manage Marketing",
    "Engineering": "Agriculture Architecture_and_Engineering Computer_Science Electronics Energy_and_Power Materials "
    "Mechanical_Engineering",
    "Humanities": "History Literature Psychology Sociology",
    "Medicine": "Basic_Medical_Science Clinical_Medicine Diagnostics_and_Laboratory_Medicine Pharmacy Public_Health",
    "Science": "Biology Chemistry Geography Math Physics",
}
_FOLDER_OF = {subject: folder for folder, subjects in FOLDERS.items() for subject in subjects.split()}
_ID = re.compile(r"[^_]+_(?P<subject>.+)_\d+")
_ESCAPES = {"\f": "\\f", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\v": "\\v", "\a": "\\a"}
_LOST = re.compile(r"[\f\t\r\x08\v\a](?=[a-z])")  # not the line feed: questions hold real ones
_TYPES = ("multiple-choice", "open", None)


@dataclass(frozen=True)
class VideoMMMUOptions:
    """Where the videos lie.

    Attributes:
        folders: `discipline`: in the archive's six folders, `Science/dev_Biology_3.mp4`; `subject`:
            `Biology/dev_Biology_3.mp4`; `none`: all in one.
        extension: of the video files.
    """

    folders: str = "discipline"
    extension: str = ".mp4"


def read(
    path: Path, options: VideoMMMUOptions | None = None, rewrite: Rewrite | None = None, fall_back: bool = False
) -> Iterator[Row | Rejected]:
    """Every question of a file (of one track or several) as rows, and what cannot be one as rejections.

    Args:
        rewrite, fall_back: write the statements by a language model, see `statements`.

    Raises:
        ConfigError: `folders` is none of the known.
    """
    options = options or VideoMMMUOptions()
    if options.folders not in ("discipline", "subject", "none"):
        raise ConfigError(f"folders: unknown, got {options.folders!r}; use 'discipline', 'subject' or 'none'")
    for track, record in _records(path):
        if isinstance(record, Rejected):
            yield record
            continue
        value = record.value[1]
        name = value.get("id") if isinstance(value, dict) else None
        try:
            yield from _rows(track, record, options, rewrite, fall_back)
        except RowError as error:
            yield reject(record, str(error), id=f"video-mmmu/{track}/{name or record.value[0]}")


def _records(path: Path) -> Iterator[tuple[str, Record | Rejected]]:
    """Every question with its track. A damaged file is reported once, however many tracks it holds."""
    text = path.read_bytes()
    tracks = [track for track in TRACKS if re.search(rb'(?<!\\)"%s"\s*:' % track.encode(), text)]
    complaints: set[Rejected] = set()
    for record in read_json_members(path):
        if isinstance(record, Record) and record.value[0] not in TRACKS:
            message = f"track is unknown, got {record.value[0]!r}; use one of {list(TRACKS)}"
            yield "", reject(record, message)
        elif isinstance(record, Rejected) and not tracks:
            yield "", record
    for track in tracks:
        for record in read_json_members(path, track):
            if isinstance(record, Record) or record not in complaints:
                yield track, record
            if isinstance(record, Rejected):
                complaints.add(record)


def _rows(
    track: str, record: Record, options: VideoMMMUOptions, rewrite: Rewrite | None, fall_back: bool
) -> Iterator[Row | Rejected]:
    value = record.value[1]
    _check_types(value)
    video, name = _video(value["id"], options), f"video-mmmu/{track}/{value['id']}"
    question = _repaired(value["question"])
    if not value["options"]:
        answers = _open_answers(_repaired(value["answer"]))
        (claim,) = statements([(question, answers[0])], rewrite, fall_back)
        yield _row(track, record, video, "open", claim, "supported", {"answer": answers[0], "answers": answers})
        return
    choices = plain_options([_repaired(option) for option in value["options"]])
    right = option_number(value["answer"], choices)
    kept, repeated = distinct_options(choices, right)
    claims = statements([(question, choices[number]) for number in kept], rewrite, fall_back)
    for number, claim in zip(kept, claims, strict=True):
        label = "supported" if number == right else "refuted"
        yield _row(track, record, video, LETTERS[number], claim, label, {"answer": choices[number]})
    for again, first in repeated:
        message = f"option repeats another, got {LETTERS[again]} like {LETTERS[first]}; one row is kept for both"
        yield Rejected(record.file, record.line, name, kind_of(message), message, pairs=1, blocking=False)


def _row(track: str, record: Record, video: str, name: str, claim: str, label: Label, answers: dict[str, Any]) -> Row:
    value = record.value[1]
    question = f"video-mmmu/{track}/{value['id']}"
    pair = Pair(
        id=f"{question}/{name}",
        claim=claim,
        evidence=(VideoSegment(video),),
        label=label,
        group=_source(value["link_selected"]),
        role=track,
        origin="annotated" if label == "supported" else "distractor",
        modality="mixed",  # a lecture is spoken and shown; which of them answers is not annotated
        meta={"question": _repaired(value["question"]), "question_id": value["id"], **answers},
    )
    return Row(pair, record.file, record.line, question)


def _check_types(value: Any) -> None:
    if not isinstance(value, dict):
        raise RowError(f"question must be an object, got {type(value).__name__}; see docs/formats.md")
    for key in ("id", "question", "answer", "link_selected"):
        if not isinstance(value.get(key), str) or not value[key].strip():
            raise RowError(f"{key} must be text, got {value.get(key)!r}; fill it in")
    options, kind = value.get("options"), value.get("question_type")
    if not isinstance(options, list) or not all(isinstance(o, str) and o.strip() for o in options):
        raise RowError(f"options must be a list of texts, got {options!r}; write [text, ...], [] for an open question")
    if kind not in _TYPES:
        raise RowError(f"question_type is unknown, got {kind!r}; use one of {list(_TYPES)}")
    # The type is given in one track only, and null once there: the options decide, the type must not contradict.
    if bool(options) == (kind == "open"):
        raise RowError(f"options do not fit the question_type, got {len(options)} options and {kind!r}; correct one")


def _open_answers(answer: str) -> list[str]:
    """One answer, or the equivalent ones of a list written into the text, as in "['24/7', '3.429']"."""
    if not answer.strip().startswith("['"):
        return [answer]
    return [text for part in answer.split(",") if (text := part.strip(" []'"))] or [answer]


def _repaired(text: str) -> str:
    """The text with the backslashes that the annotation lost: it holds "<form feed>rac" where "\\frac" was meant."""
    return _LOST.sub(lambda match: _ESCAPES[match.group()], text)


def _video(name: str, options: VideoMMMUOptions) -> str:
    match = _ID.fullmatch(name)
    folder = match.group("subject") if match else ""
    if options.folders == "discipline":
        folder = _FOLDER_OF.get(folder, "")
    if options.folders != "none" and not folder:
        raise RowError(f"id names no known subject, got {name!r}; write <part>_<Subject>_<number> or use folders: none")
    return (f"{folder}/" if options.folders != "none" else "") + name + options.extension


def _source(link: str) -> str:
    """The video an address leads to: YouTube's id, else the address."""
    link = link.strip()
    ids = parse_qs(urlsplit(link).query).get("v")
    return ids[0].strip() if ids else link


IMPORTER = Importer(
    name="videommmu",
    description="Video-MMMU questions about lecture videos.",
    read=read,
    options=VideoMMMUOptions,
    writes_statements=True,
)
