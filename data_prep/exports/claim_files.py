"""Claims to be scored, out of any file: pairs, plain rows, chat rows, and the formats of importers that have `claims`.

The format is recognised by the file's first readable record, or given. Every row that is no claim about evidence
becomes a `Rejected` with file and line. Importers do the reading; here are only the chat rows and the plain rows, which
need no options:

    {"claim": "...", "video": "a.mp4", "start_s": 2, "end_s": 4.5, "text": "...", "transcript": "...", "image": "a.png"}
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from ...core import ConfigError, Pair, Prompt, RowError, media_paths, problems_of
from ..importers import (
    IMPORTERS,
    SUFFIXES,
    Importer,
    Record,
    Rejected,
    Row,
    kind_of,
    missing_columns,
    read_json_members,
    read_json_records,
    reject,
    tables,
)
from ..media import outside_root, picture_directory
from .chat import is_chat_row, pair_of_chat

# Columns of plain rows: the field of a pair, and the names it may have, the first of them ours.
COLUMNS: dict[str, tuple[str, ...]] = {
    "claim": ("claim",),
    "video": ("video",),
    "start": ("start_s", "start"),
    "end": ("end_s", "end"),
    "frames": ("frames",),
    "times": ("times_s", "times"),
    "image": ("image",),
    "transcript": ("transcript",),
    "passage": ("text", "passage"),
    "context": ("context",),
    "label": ("label",),
    "group": ("group",),
    "role": ("role",),
    "origin": ("origin",),
    "modality": ("modality",),
    "split": ("split",),
    "id": ("id",),
}
_LABELS = ("supported=supported", "refuted=refuted", "not_enough=not_enough", "null=none")
_LABELS += ("1=supported", "true=supported", "0=refuted", "false=refuted")
_LOOKED_AT = 100  # records among which the first readable one tells the format


@dataclass(frozen=True)
class ClaimRow:
    """One item of a file, where it stands, and what it is: a pair, or why it is none."""

    file: str
    line: int | None
    item: Pair | Rejected


@dataclass(frozen=True)
class ClaimFile:
    """What a file holds.

    Attributes:
        rows: every item in the order of the file; ids of pairs differ.
        format: as it was read.
        unused: columns of plain rows that mean nothing here.
    """

    rows: tuple[ClaimRow, ...]
    format: str
    unused: tuple[str, ...] = ()

    @cached_property
    def _ids(self) -> frozenset[str]:
        return frozenset(pair.id for pair in self.pairs)

    def has(self, id: str) -> bool:
        """Whether a pair is called so."""
        return id in self._ids

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The claims about evidence."""
        return tuple(row.item for row in self.rows if isinstance(row.item, Pair))

    @cached_property
    def rejected(self) -> tuple[Rejected, ...]:
        """Items that are no claim about evidence, or repeat an id."""
        return tuple(row.item for row in self.rows if isinstance(row.item, Rejected))


@dataclass(frozen=True)
class ClaimStream:
    """A file of claims that is read row by row.

    Attributes:
        rows: reads every item from the first one on, in the order of the file. Two pairs may have one id.
        format, unused: as of `ClaimFile`.
    """

    rows: Callable[[], Iterator[ClaimRow]]
    format: str
    unused: tuple[str, ...] = ()


def read_claims(path: str | Path, format: str | None = None, **options: Any) -> ClaimFile:
    """Every claim of a file, in memory; arguments and errors are those of `stream_claims`."""
    stream = stream_claims(path, format, **options)
    return ClaimFile(tuple(_once(stream.rows())), stream.format, stream.unused)


def stream_claims(
    path: str | Path,
    format: str | None = None,
    *,
    transcripts: str | Path | None = None,
    jointly: bool = False,
    heard: bool = False,
    prompts: Sequence[Prompt] = (),
    inside: str | Path | None = None,
) -> ClaimStream:
    """The claims of a file, to be read one by one. A JSON list or object is in memory as text while it is read.

    Args:
        path: `.jsonl`, `.json`, `.csv`, `.parquet` or `.arrow`, or a folder of tables.
        format: None tells it by the first record.
        transcripts: what MuRGAt's audio citations need: a folder or a JSON file.
        jointly: all videos that a MiRAGE sentence cites as one evidence, instead of one pair per video.
        heard: MuRGAt's audio citations and MiRAGE's videos are heard, for a verifier that hears.
        prompts: of chat rows; the usual one is tried after them.
        inside: the media root; rows whose media leave it, by `..`, an absolute path or a link, are rejected.

    Raises:
        RowError: no such file, or one whose format is not recognised. ConfigError: options that cannot be used.
    """
    path = Path(path)
    if not path.exists():
        raise RowError(f"{path}: no such file, got nothing to read; check the path")
    format = format or format_of(path)
    unused: tuple[str, ...] = ()
    read: Callable[[], Iterable[Row | Rejected]]
    if format == "rows":
        options, unused = _columns(path)
        read = partial(_plain_rows, path, options)
    elif format == "chat":
        read = partial(_chats, path, (*prompts, Prompt()))
    elif importer := _claim_importers().get(format):
        given = {"transcripts": "" if transcripts is None else str(Path(transcripts).absolute()), "jointly": jointly}
        given |= {"sound": heard, "audio": "sound" if heard else "transcript"}
        read = partial(importer.read, path, _options(importer, given))
    else:
        raise ConfigError(f"format: is unknown, got {format!r}; use one of {claim_formats()}")
    check = partial(_checked, media_root=None if inside is None else Path(inside))
    return ClaimStream(lambda: map(check, read()), format, unused)


def _plain_rows(path: Path, options: Any) -> Iterator[Row | Rejected]:
    return _numbered(IMPORTERS["table"].read(path, options), bool(options.id))


def claim_formats() -> list[str]:
    """The formats that files of claims may have."""
    return ["rows", "chat", *_claim_importers()]


def _claim_importers() -> dict[str, Importer]:
    """The importers whose files can be scored, by the names that they have here."""
    return {importer.claims.name: importer for importer in IMPORTERS.values() if importer.claims is not None}


def _options(importer: Importer, given: dict[str, Any]) -> Any:
    """The importer's options: those of `given` that it has, defaults elsewhere."""
    if importer.options is None:
        return None
    fields = {field.name for field in dataclasses.fields(importer.options)}
    return importer.options(**{name: value for name, value in given.items() if name in fields})


def format_of(path: Path) -> str:
    """The format of a file; `RowError` where no record shows it."""
    if path.is_dir() or path.suffix in (".csv", ".parquet", ".arrow"):
        names = {name for t in tables(path) if not isinstance(t, Rejected) for name in missing_columns(t, ["\0"])[1]}
        return "pairs" if path.suffix == ".parquet" and {"id", "claim", "evidence"} <= names else "rows"
    if path.suffix not in SUFFIXES:
        raise RowError(f"{path}: not a known kind of file, got {path.suffix!r}; use one of {list(SUFFIXES)}")
    with path.open("rb") as file:
        start = file.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip()
    members = path.suffix == ".json" and not start.startswith(b"[")
    records = read_json_members(path) if members else read_json_records(path)
    for record in islice(records, _LOOKED_AT):
        value = record.value if isinstance(record, Record) else None
        if format := _format_of_record(value[1] if members and isinstance(value, tuple) else value, members):
            return format
    if not start:
        return "rows"
    raise RowError(f"{path}: its format is not recognised, got {start[:60]!r}; name it: one of {claim_formats()}")


def _format_of_record(value: Any, is_member: bool) -> str | None:
    if not isinstance(value, dict):
        return None
    if not is_member and is_chat_row(value):
        return "chat"
    for name, importer in _claim_importers().items():
        if importer.claims is not None and importer.claims.recognises(value, is_member):
            return name
    return "rows" if "claim" in value and not is_member else None


def _columns(path: Path) -> tuple[Any, tuple[str, ...]]:
    """The field of each known column of a table, and the unknown columns."""
    known: set[str] = set()
    for each in tables(path):
        if not isinstance(each, Rejected):
            known |= missing_columns(each, ["\0"])[1]
    used = {field: name for field, names in COLUMNS.items() for name in reversed(names) if name in known}
    if known and not {"video", "frames", "image", "transcript", "passage"} & set(used):
        raise RowError(
            f"{path}: rows name no evidence, got the columns {sorted(known)}; name one of video, frames, image, "
            "transcript and text"
        )
    options = {"store": str(picture_directory()), "label": "", "labels": _LABELS if "label" in used else ()} | used
    if not known:
        options["passage"] = "text"
    unused = sorted(name for name in known if name not in used.values() and "." not in name)
    return _options(IMPORTERS["table"], options), tuple(unused)


def _numbered(items: Iterator[Row | Rejected], have_ids: bool) -> Iterator[Row | Rejected]:
    """Rows without an id are called by their line: two that say the same are two rows."""
    counts: Counter[str] = Counter()
    for item in items:
        if isinstance(item, Row) and (not have_ids or item.pair.id.startswith("table/")):
            name = f"{Path(item.file).name}:{item.line}"
            counts[name] += 1  # a JSON list may be one line
            name += f"#{counts[name]}" if counts[name] > 1 else ""
            yield dataclasses.replace(item, pair=dataclasses.replace(item.pair, id=name))
        else:
            yield item


def _chats(path: Path, prompts: Sequence[Prompt]) -> Iterator[Row | Rejected]:
    for record in read_json_records(path):
        if isinstance(record, Rejected):
            yield record
        elif not isinstance(record.value, dict) or not is_chat_row(record.value):
            yield reject(
                record, f"row must hold messages or conversations, got {record.value!r:.60}; see docs/exports.md"
            )
        else:
            try:
                pair = pair_of_chat(record.value, f"{path.name}:{record.line}", prompts)
                yield Row(pair, record.file, record.line, pair.id)
            except RowError as error:
                yield reject(record, str(error))


def _checked(item: Row | Rejected, media_root: Path | None) -> ClaimRow:
    """A pair that can be scored, or an item with the reason why not."""
    given: Pair | Rejected
    if isinstance(item, Rejected):
        given = item
    elif problems := problems_of(item.pair):
        given = reject(item, "; ".join(problems), kind=kind_of(problems[0]))
    elif media_root is not None and (problems := _ways_out(item.pair, media_root)):
        given = Rejected(item.file, item.line, item.pair.id, "media path leaves the media root", problems[0])
    else:
        given = item.pair
    return ClaimRow(item.file, item.line, given)


def _ways_out(pair: Pair, media_root: Path) -> list[str]:
    """Why media of a pair lie outside the media root; pictures out of the file itself lie where we keep them."""
    kept = str(picture_directory()) + os.sep
    shown = (path for e in pair.evidence for path in media_paths(e) if not path.startswith(kept) or ".." in path)
    return [problem for path in shown if (problem := outside_root(path, media_root))]


def _once(rows: Iterable[ClaimRow]) -> Iterator[ClaimRow]:
    """The rows, of which a later pair with an id that an earlier one has is rejected."""
    ids: set[str] = set()
    for row in rows:
        if isinstance(row.item, Pair) and row.item.id in ids:
            yield repeated(row)
            continue
        if isinstance(row.item, Pair):
            ids.add(row.item.id)
        yield row


def repeated(row: ClaimRow) -> ClaimRow:
    """A pair whose id another one has, rejected."""
    assert isinstance(row.item, Pair)
    reason = f"id occurs twice, got {row.item.id!r}; name every row once"
    return dataclasses.replace(row, item=Rejected(row.file, row.line, row.item.id, kind_of(reason), reason, 1))
