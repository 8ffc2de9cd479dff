"""What every importer uses: the `Importer` protocol, records with their lines, rows and rejections.

A JSON list, JSON lines and CSV are all read as `Record`s; whatever is damaged becomes a `Rejected`, so that one bad
line never hides the others.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core import ConfigError, Pair, from_mapping

_WHITESPACE = " \t\r\n"
_STOP = "the records after it were not read"


@dataclass(frozen=True)
class Record:
    """One object of an annotation file and the line (from 1) it starts on."""

    file: str
    line: int
    value: Any


@dataclass(frozen=True)
class Row:
    """A pair and where it came from; `record` names the annotation that gave it (several pairs may share one)."""

    pair: Pair
    file: str
    line: int
    record: str


@dataclass(frozen=True)
class Rejected:
    """An item of an annotation file that is left out of the data set.

    Attributes:
        file, line: where it starts; for Parquet the row number.
        id: of the annotation or row, None where it could not be read.
        kind: short and without values, to count by.
        reason: the whole message: what is wrong, what was got, what to do.
        pairs: how many (claim, evidence) pairs are lost; None where unknown.
        blocking: whether a build must stop for it. Annotators who disagree are reported, and block nothing.
    """

    file: str
    line: int | None
    id: str | None
    kind: str
    reason: str
    pairs: int | None = None
    blocking: bool = True

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {f'{self.id}: ' if self.id else ''}{self.reason}"


@dataclass(frozen=True)
class ClaimFormat:
    """How `proofreel score` reads files of an importer's format.

    Attributes:
        name: what `--format` calls it.
        recognises: whether a record is of this format; its second argument says that the record is a member of a JSON
            object, not an item of a list.
    """

    name: str
    recognises: Callable[[dict[str, Any], bool], bool]


@dataclass(frozen=True)
class Importer:
    """An annotation format: its name, its options and how its files are read.

    Attributes:
        name: what `format:` of a source is in a build's YAML.
        description: what the files hold, in one sentence; the table of formats in docs/formats.md shows it.
        read: `read(path, options)` gives the rows and rejections of a file in file order. Where `writes_statements`,
            it also takes `rewrite` and `fall_back`, see `qa_statements.statements`.
        options: the dataclass of the keys under `options:`; None: the format has no options.
        writes_statements: rows are statements made of questions and answers, which a language model can write.
        merge: `merge(rows, options)` makes one row of repeated judgments over all files of a source, and rejections
            of the others. None: every row stands for itself.
        reads_folders: a path may name a folder.
        claims: how `proofreel score` reads files of this format; None: it does not.
    """

    name: str
    description: str
    read: Callable[..., Iterator[Row | Rejected]]
    options: type[Any] | None = None
    writes_statements: bool = False
    merge: Callable[[list[Row], Any], tuple[list[Row], list[Rejected]]] | None = None
    reads_folders: bool = False
    claims: ClaimFormat | None = None

    def parse_options(self, values: Mapping[str, Any], where: str) -> Any:
        """The options of a source, checked; None where the format has none.

        Raises:
            ConfigError: an unknown key or a wrong value.
        """
        if self.options is not None:
            return from_mapping(self.options, dict(values), where=where)
        if values:
            raise ConfigError(f"{where}: format has no options, got {sorted(values)} for {self.name}; remove them")
        return None


def kind_of(message: str) -> str:
    """The part of an error message that holds no values: what is wrong, without what was got."""
    return message.partition(", got")[0].partition(";")[0]


def reject(record: Record | Row, message: str, id: str | None = None, kind: str | None = None) -> Rejected:
    """A `Rejected` at the place of a record or row."""
    if isinstance(record, Row):
        id, pairs = id or record.pair.id, 1
    else:
        pairs = None
    return Rejected(record.file, record.line, id, kind or kind_of(message), message, pairs)


def read_json_records(path: Path) -> Iterator[Record | Rejected]:
    """Every object of a JSON list or of a JSON lines file (distinguished by the first character), BOM accepted."""
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if data.lstrip().startswith(b"["):
        yield from _list_items(str(path), data)
    elif path.suffix == ".json" and data.strip():
        message = f"file must be a JSON list of objects, got {data.strip()[:20]!r}; wrap the records in [ ]"
        yield Rejected(str(path), 1, None, kind_of(message), message)
    else:
        yield from _lines(str(path), data)


def read_json_members(path: Path, *under: str) -> Iterator[Record | Rejected]:
    """Every member of a JSON object as a record whose value is (key, value), at the line of its key.

    `under` names the keys that lead from the file's outermost object to the one meant. A member that is damaged, or an
    object without those keys, is a rejection.
    """
    file, data = str(path), path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        yield _not_utf8(file, data.count(b"\n", 0, error.start) + 1, error)
        return
    yield from _members(file, text, _skip(text, 0), under)


def _members(file: str, text: str, position: int, under: tuple[str, ...]) -> Iterator[Record | Rejected]:
    def line(at: int) -> int:
        return text.count("\n", 0, at) + 1

    if text[position : position + 1] != "{":
        yield _broken(
            file, line(position), f"not an object, got {text[position : position + 20]!r}; see docs/formats.md"
        )
        return
    keys: set[str] = set()
    position = _skip(text, position + 1)
    while text[position : position + 1] != "}":
        start = position
        key, position = _parse(file, line(start), text, position, stop=f", {_STOP}")
        colon = _skip(text, position)
        if isinstance(key, Rejected) or not isinstance(key.value, str) or text[colon : colon + 1] != ":":
            yield (
                key
                if isinstance(key, Rejected)
                else _broken(
                    file, line(start), f"no key and colon, got {text[start : start + 20]!r}; repair it, {_STOP}"
                )
            )
            return
        if key.value in keys:
            yield _broken(file, line(start), f"a key is given twice in one object, got {key.value!r}; keep one")
        keys.add(key.value)
        if under and key.value == under[0]:
            yield from _members(file, text, _skip(text, colon + 1), under[1:])
            return
        item, position = _parse(file, line(start), text, colon + 1, stop=f", {_STOP}")
        if not under:
            yield Record(file, line(start), (key.value, item.value)) if isinstance(item, Record) else item
        if position < 0:
            return
        position = _skip(text, position)
        if text[position : position + 1] == ",":
            position = _skip(text, position + 1)
        elif text[position : position + 1] != "}":
            got = text[position : position + 20]
            yield _broken(file, line(position), f"the object is not closed, got {got!r}; is the file cut short?")
            return
    if under:
        yield _broken(file, line(position), f"the object has no such key, got no {under[0]!r}; see docs/formats.md")


def _lines(file: str, data: bytes) -> Iterator[Record | Rejected]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            yield _not_utf8(file, number, error)
            continue
        item, end = _parse(file, number, text, 0)
        if isinstance(item, Record) and text[end:].strip():
            item = _broken(file, number, f"text after the record, got {text[end:].strip()[:20]!r}; one object a line")
        yield item


def _list_items(file: str, data: bytes) -> Iterator[Record | Rejected]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        yield _not_utf8(file, data.count(b"\n", 0, error.start) + 1, error)
        return
    position, line, counted = text.index("[") + 1, 1, 0
    while True:
        position = _skip(text, position)
        line, counted = line + text.count("\n", counted, position), position
        if text[position : position + 1] == "]":
            if rest := text[position + 1 :].strip():
                yield _broken(file, line, f"text after the closing ], got {rest[:20]!r}; remove it")
            return
        if position == len(text):
            yield _broken(file, line, "the list is not closed, got the end of the file; is the file cut short?")
            return
        item, position = _parse(file, line, text, position, stop=f", {_STOP}")
        yield item
        if position < 0:
            return
        position = _skip(text, position)
        if text[position : position + 1] == ",":
            position += 1
        elif text[position : position + 1] != "]":
            line += text.count("\n", counted, position)
            got = text[position : position + 20]
            yield _broken(file, line, f"no comma or ] after a record, got {got!r}; repair it, {_STOP}")
            return


def _parse(file: str, line: int, text: str, position: int, stop: str = "") -> tuple[Record | Rejected, int]:
    """The JSON value at `position` and where it ends; -1 where reading cannot go on. A key given twice is an error."""
    repeated: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in items]
        repeated.extend(key for key in dict.fromkeys(keys) if keys.count(key) > 1)
        return dict(items)

    start = _skip(text, position)
    try:
        value, end = json.JSONDecoder(object_pairs_hook=pairs).raw_decode(text, start)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        at = line + (text.count("\n", start, error.pos) if isinstance(error, json.JSONDecodeError) else 0)
        got = text[start : start + 40]
        return _broken(file, at, f"the record is not JSON, got {got!r} ({error}); repair it{stop}"), -1
    if repeated:
        message = f"a key is given twice in one object, got {repeated}; keep one, or use a list of values"
        return Rejected(file, line, None, kind_of(message), message), end
    return Record(file, line, value), end


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in _WHITESPACE:
        position += 1
    return position


def _broken(file: str, line: int, what: str) -> Rejected:
    return Rejected(file, line, None, "not valid JSON", what)


def _not_utf8(file: str, line: int, error: UnicodeDecodeError) -> Rejected:
    message = f"text is not UTF-8, got byte 0x{error.object[error.start]:02x}; save the file as UTF-8"
    return Rejected(file, line, None, kind_of(message), message)


def read_csv_records(path: Path, columns: set[str]) -> Iterator[Record | Rejected]:
    """Every row of a CSV file as a dict of `columns` only: the other columns are not read."""
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        yield _not_utf8(str(path), data.count(b"\n", 0, error.start) + 1, error)
        return
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, [])
    except csv.Error as error:
        message = f"the header is not CSV, got {error}; repair the quotes: nothing of the file was read"
        yield Rejected(str(path), 1, None, kind_of(message), message)
        return
    if missing := sorted(columns - set(header)):
        message = f"columns are missing, got no {missing}; export the file with its header"
        yield Rejected(str(path), 1, None, kind_of(message), message)
        return
    yield from _csv_rows(str(path), reader, header, columns)


def _csv_rows(file: str, reader: Any, header: list[str], columns: set[str]) -> Iterator[Record | Rejected]:
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            message = f"the row is not CSV, got {error}; repair the quotes, {_STOP}"
            yield Rejected(file, line, None, kind_of(message), message)
            return
        if cells is None:
            return
        if len(cells) == len(header):
            yield Record(file, line, {k: v for k, v in zip(header, cells, strict=True) if k in columns})
        elif cells:
            message = f"row has the wrong number of cells, got {len(cells)} for {len(header)} columns; repair the row"
            yield Rejected(file, line, None, kind_of(message), message)
