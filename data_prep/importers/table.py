"""Import any table: a mapping says which column is the claim, which the label, and which the evidence.

Tables are JSON lists, JSON lines, CSV, Parquet, Arrow, folders of them, and data sets saved by Hugging Face `datasets`;
see `tables`. Columns inside others are named with dots: `segment.0`, `image.path`.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core import (
    LABELS,
    MODALITIES,
    SPLITS,
    Audio,
    ConfigError,
    Evidence,
    Frames,
    Image,
    MediaError,
    Modality,
    Pair,
    Passage,
    RowError,
    Transcript,
    VideoSegment,
    evidence_key,
    is_seconds,
    media_paths,
    problems_of_evidence,
)
from ..media import keep_picture
from .base import Importer, Record, Rejected, Row, kind_of, reject
from .tabular_files import TabularFile, cell, missing_columns, tables

SPLIT_COLUMN = "_split"  # what a saved data set calls the part a row is in
_EVIDENCE = ("video", "frames", "image", "audio", "transcript", "passage")
_CONSTANTS = ("label", "context", "group", "role", "origin", "modality", "split")
_TIME = re.compile(r"(?:(?:(?P<h>\d{1,6}):(?P<hm>[0-5]?\d))|(?P<m>\d{1,6})):(?P<s>[0-5]?\d(?:\.\d*)?)")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class TableOptions:
    """Which column is what: dotted names, "" for none.

    Attributes:
        claim to soft_label: the columns of a pair's fields. `video`, `frames`, `image`, `audio`, `transcript` and
            `passage` are evidence, at least one is needed; `start` and `end` (seconds, or M:SS and H:MM:SS) are the
            span of video, audio and transcript. `frames` is a list of image files, `times` that of the seconds at
            which each is shown. `split` may be `_split`, what a saved data set calls the part a row is in. `image`,
            and each of `frames`, may also be a picture itself, as bytes or as `datasets` stores it, {bytes, path};
            `image` a list of them.
        labels: what the values of `label` mean, as "value=label", a number or boolean by its JSON text, e.g.
            ("1=supported", "0=refuted", "null=none"); `none` is a row without a judgment. Empty: the values are labels.
        splits: the same for `split`.
        constants: fields that are the same in every row, as "field=value".
        keep: columns to keep in `meta`, under their dotted names.
        sound: videos are heard as well as seen, for a verifier that hears.
        store: folder in which pictures that the table holds as bytes become files, named by their content.
    """

    claim: str = "claim"
    label: str = "label"
    video: str = ""
    start: str = ""
    end: str = ""
    frames: str = ""
    times: str = ""
    image: str = ""
    audio: str = ""
    transcript: str = ""
    passage: str = ""
    context: str = ""
    group: str = ""
    role: str = ""
    origin: str = ""
    modality: str = ""
    split: str = ""
    id: str = ""
    weight: str = ""
    soft_label: str = ""
    labels: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    sound: bool = False
    store: str = ""


@dataclass(frozen=True)
class _ColumnMap:
    """Checked options."""

    columns: Mapping[str, str]
    labels: Mapping[str, str]
    splits: Mapping[str, str]
    constants: Mapping[str, str]
    keep: Sequence[str]
    sound: bool
    store: str


def read(path: Path, options: TableOptions | None = None) -> Iterator[Row | Rejected]:
    """Every row of a table or folder of tables; a table without a named column is one rejection.

    Raises:
        ConfigError: the options contradict themselves.
    """
    plan = _plan(options or TableOptions())
    for table in tables(path):
        if isinstance(table, Rejected):
            yield table
            continue
        wanted = {*plan.columns.values(), *plan.keep}
        if table.split is not None:
            wanted.discard(SPLIT_COLUMN)
        missing, known = missing_columns(table, wanted)
        if missing:
            yield _missing(table, missing, known)
            continue
        for record in table.records(wanted):
            yield record if isinstance(record, Rejected) else _row_or_reason(plan, table, record)


def _plan(options: TableOptions) -> _ColumnMap:
    values = dataclasses.asdict(options)
    columns = {k: v for k, v in values.items() if isinstance(v, str) and v and k != "store"}
    constants = _mapping("constants", options.constants)
    for field, value in constants.items():
        if field not in _CONSTANTS:
            raise ConfigError(f"constants: no field that can be constant, got {field!r}; use one of {_CONSTANTS}")
        allowed = {"label": LABELS, "split": SPLITS, "modality": MODALITIES}.get(field)
        if allowed and value not in allowed:
            raise ConfigError(f"constants: {field} is unknown, got {value!r}; use one of {list(allowed)}")
    if "label" in constants and columns.get("label") == "label":
        del columns["label"]  # the default name was not asked for
    if both := sorted(set(columns) & set(constants)):
        raise ConfigError(f"constants: the same field is a column and a constant, got {both}; keep one")
    if "claim" not in columns or not set(_EVIDENCE) & set(columns):
        raise ConfigError(f"columns: a claim and evidence are needed, got {columns}; name one of {list(_EVIDENCE)}")
    if ("frames" in columns) != ("times" in columns):
        raise ConfigError(f"columns: frames need the times of each, got {columns}; name both columns or none")
    if {"start", "end"} & set(columns) and not {"video", "frames", "audio", "transcript"} & set(columns):
        raise ConfigError(f"columns: times belong to a video, audio or transcript, got {columns}; name that column")
    labels = _mapping("labels", options.labels, (*LABELS, "none")) or {label: label for label in LABELS}
    splits = _mapping("splits", options.splits, SPLITS) or {split: split for split in SPLITS}
    return _ColumnMap(columns, labels, splits, constants, options.keep, options.sound, options.store)


def _mapping(name: str, entries: Sequence[str], allowed: Sequence[str] = ()) -> dict[str, str]:
    mapping: dict[str, str] = {}
    for entry in entries:
        # A constant's value may hold "=", a label's may hold it only before.
        key, equals, value = entry.rpartition("=") if allowed else entry.partition("=")
        if not equals or (allowed and value not in allowed):
            raise ConfigError(f"{name}: not a known value=name, got {entry!r}; names are {list(allowed) or _CONSTANTS}")
        if mapping.setdefault(key, value) != value:
            raise ConfigError(f"{name}: a value is given twice, got {key!r}; keep one")
    return mapping


def _missing(table: TabularFile, missing: Sequence[str], known: set[str]) -> Rejected:
    near = {name: difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0) for name in missing}
    hints = ", ".join(f"{name!r} (did you mean {names[0]!r}?)" if names else repr(name) for name, names in near.items())
    message = f"columns are missing, got no {hints}; name columns of this file"
    return Rejected(table.file, None, None, kind_of(message), message)


def _row_or_reason(plan: _ColumnMap, table: TabularFile, record: Record) -> Row | Rejected:
    if not isinstance(record.value, dict):
        return reject(record, f"row must be an object, got {type(record.value).__name__}; write {{column: value}}")
    cells = {field: _cell(record.value, column, table) for field, column in plan.columns.items()}
    name = cells.get("id")
    try:
        pair = _pair(plan, cells, _kept(plan.keep, record.value, table))
        return Row(pair, record.file, record.line, pair.id)
    except RowError as error:
        return reject(record, str(error), id=None if name is None else str(name))


def _cell(row: dict[str, Any], column: str, table: TabularFile) -> Any:
    """The value of a column; None for null and for empty text, which is all a CSV has for null."""
    value = table.split if column == SPLIT_COLUMN and table.split is not None else cell(row, column)
    return None if isinstance(value, str) and not value.strip() else value


def _kept(keep: Sequence[str], row: dict[str, Any], table: TabularFile) -> dict[str, Any]:
    kept = {column: _cell(row, column, table) for column in keep}
    if not kept:
        return {}
    try:
        json.dumps(kept, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RowError(f"a kept column is not JSON, got {error}; keep columns of text and finite numbers") from None
    return kept


def _pair(plan: _ColumnMap, cells: dict[str, Any], meta: dict[str, Any]) -> Pair:
    claim, context = _text(cells, "claim"), plan.constants.get("context") or _text(cells, "context")
    if claim is None:
        raise RowError(f"claim must be text, got {cells['claim']!r}; write the claim or leave the row out")
    evidence = _evidence(cells, plan)
    if "label" in plan.columns:
        label = _translated("label", cells["label"], plan.labels)
    else:
        label = plan.constants.get("label")
    split = _translated("split", cells["split"], plan.splits) if cells.get("split") is not None else None
    values: dict[str, Any] = {"label": None if label == "none" else label, "context": context}
    values["split"] = split or plan.constants.get("split")
    if "group" in cells and cells["group"] is None:
        raise RowError("group must be text, got None; name what ties the row to others, or map no group column")
    values["group"] = plan.constants.get("group") or _name(cells, "group") or _default_group(evidence)
    values["modality"] = plan.constants.get("modality") or _text(cells, "modality") or modality_of(evidence)
    for field in ("role", "origin"):
        if given := plan.constants.get(field) or _name(cells, field):
            values[field] = given
    for field in ("weight", "soft_label"):
        if (number := _number(cells, field)) is not None:
            values[field] = number
    return Pair(_name(cells, "id") or _default_id(claim, context, evidence), claim, evidence, meta=meta, **values)


def _translated(field: str, value: Any, known: Mapping[str, str]) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a column of integers with nulls becomes floats in many writers
    key = value if isinstance(value, str) else json.dumps(value, default=repr)
    if key not in known:
        raise RowError(f"{field} is unknown, got {_short(key)}; known values are {list(known)}")
    return known[key]


def _evidence(cells: dict[str, Any], plan: _ColumnMap) -> tuple[Evidence, ...]:
    start_s, end_s = cell_seconds(cells, "start"), cell_seconds(cells, "end")
    evidence: list[Evidence] = []
    if (video := _text(cells, "video")) is not None:
        evidence.append(VideoSegment(video, start_s or 0.0, end_s, sound=plan.sound))
    if (frames := _frames(cells, end_s, plan.store)) is not None:
        evidence.append(frames)
    image = cells.get("image")
    images = image if isinstance(image, list) else [image]
    evidence += [Image(path) for each in images if (path := _picture(each, plan.store))]
    if (audio := _text(cells, "audio")) is not None:
        evidence.append(Audio(audio, start_s or 0.0, end_s))
    if (transcript := _text(cells, "transcript")) is not None:
        evidence.append(Transcript(transcript, start_s, end_s))
    if (passage := _text(cells, "passage")) is not None:
        evidence.append(Passage(passage))
    if not evidence:
        given = [field for field in _EVIDENCE if field in cells]
        raise RowError(f"row has no evidence, got null in {given}; fill one in or leave the row out")
    return tuple(evidence)


def _picture(held: Any, store: str) -> str | None:
    """The path of a picture that is named or held; None for null."""
    if isinstance(held, dict) and set(held) <= {"bytes", "path"}:
        held = held.get("path") if held.get("bytes") is None else held["bytes"]
    if held is None or isinstance(held, str):
        return held or None
    if not isinstance(held, (bytes, bytearray)):
        raise RowError(f"image must be a path or a picture, got {_short(held)}; map another column")
    if not store:
        raise RowError("image holds bytes, and evidence names files; set options.store to a folder below media_root")
    try:
        return str(keep_picture(bytes(held), store))
    except MediaError as error:
        raise RowError(f"image cannot be used: {error}") from error


def _frames(cells: dict[str, Any], end_s: float | None, store: str) -> Frames | None:
    """Lists, or in a CSV their JSON text."""
    lists = {name: cells.get(name) for name in ("frames", "times")}
    for name, value in lists.items():
        if isinstance(value, str):
            with suppress(ValueError):
                lists[name] = json.loads(value)
        if not (lists[name] is None or isinstance(lists[name], (list, tuple))):
            raise RowError(f"{name} must be a list, got {_short(value)}; write one file and one time per frame")
    if lists["frames"] is None:
        return None
    frames = Frames((_picture(each, store) or "" for each in lists["frames"]), tuple(lists["times"] or ()), end_s)
    if problems := problems_of_evidence(frames):
        raise RowError(problems[0])
    return frames


def _text(cells: dict[str, Any], field: str) -> str | None:
    value = cells.get(field)
    if value is not None and not isinstance(value, str):
        raise RowError(f"{field} must be text, got {_short(value)}; write it as text or map another column")
    return value


def _name(cells: dict[str, Any], field: str) -> str | None:
    """A text, or a whole number as one."""
    value = cells.get(field)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else _text(cells, field)


def _number(cells: Mapping[str, Any], field: str) -> float | None:
    value = cells.get(field)
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if value is not None and not is_seconds(value):
        raise RowError(f"{field} must be a finite number, got {_short(value)}; fix it or leave it empty")
    return value


def cell_seconds(cells: Mapping[str, Any], field: str) -> float | None:
    """The time in a cell, in seconds; None for null. `RowError` for what is no time."""
    value = cells.get(field)
    if isinstance(value, str) and (match := _TIME.fullmatch(value.strip())):
        minutes = match["m"] or 60 * int(match["h"]) + int(match["hm"])
        return 60.0 * int(minutes) + float(match["s"])
    try:
        return _number(cells, field)
    except RowError:
        raise RowError(f"{field} must be seconds, M:SS or H:MM:SS, got {_short(value)}; fix the time") from None


def _short(value: Any) -> str:
    """What a message shows of a value: an image's bytes would fill it."""
    return text if len(text := repr(value)) <= 80 else f"{text[:80]}..."


def _default_group(evidence: tuple[Evidence, ...]) -> str:
    paths = [path for part in evidence for path in media_paths(part)]
    return paths[0] if paths else _digest(evidence_key(evidence))


def _default_id(claim: str, context: str | None, evidence: tuple[Evidence, ...]) -> str:
    text = "\0".join((claim, context or "", evidence_key(evidence)))
    return f"table/{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def modality_of(evidence: tuple[Evidence, ...]) -> Modality:
    """What can support a claim: a transcript stands for what is heard."""
    kinds = {type(part) for part in evidence}
    if kinds <= {VideoSegment, Image, Frames}:
        heard = any(isinstance(part, VideoSegment) and part.sound for part in evidence)
        return "mixed" if heard else "visual"
    if kinds <= {Audio, Transcript}:
        return "audio"
    return "mixed" if len(kinds) > 1 else "text"


IMPORTER = Importer(
    name="table",
    description="Any table, by a mapping of its columns.",
    read=read,
    options=TableOptions,
    reads_folders=True,
)
