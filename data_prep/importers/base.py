"""What every importer uses: the `Importer` protocol, records with their lines, rows and rejections.

A JSON list, JSON lines and CSV are all read as `Record`s; whatever is damaged becomes a `Rejected`, so that one bad
line never hides the others.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core import ConfigError, Pair, from_mapping

_BOM = b"\xef\xbb\xbf"
_WHITESPACE = re.compile(r"[ \t\r\n]*")
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
class Merge:
    """How the judgments of a source become rows, a few of them in memory at a time.

    Attributes:
        key: what a row judges; the judgments with one key are joined.
        join: `join(judgments of one key in file order, options, known)` gives their rows, and rejections of the others.
        survey: `survey(all judgments, options)` gives what `join` must know of all of them, and rejections that come
            before those of `join`. None: nothing.
    """

    key: Callable[[Row], str]
    join: Callable[[Sequence[Row], Any, Any], Iterable[Row | Rejected]]
    survey: Callable[[Iterable[Row], Any], tuple[Any, list[Rejected]]] | None = None

    def known(self, rows: Iterable[Row], options: Any) -> tuple[Any, list[Rejected]]:
        """What `survey` gives; nothing where there is none."""
        return (None, []) if self.survey is None else self.survey(rows, options)

    def all_of(self, rows: Sequence[Row], options: Any = None) -> tuple[list[Row], list[Rejected]]:
        """The rows in order of the first judgment of each, and the rejections, of judgments that are all in memory."""
        known, rejected = self.known(rows, options)
        of_key: dict[str, list[Row]] = {}
        for row in rows:
            of_key.setdefault(self.key(row), []).append(row)
        results = [item for same in of_key.values() for item in self.join(same, options, known)]
        return [r for r in results if isinstance(r, Row)], rejected + [r for r in results if isinstance(r, Rejected)]


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
        merge: how the judgments of all files of a source become rows. None: every row stands for itself.
        reads_folders: a path may name a folder.
        claims: how `proofreel score` reads files of this format; None: it does not.
    """

    name: str
    description: str
    read: Callable[..., Iterator[Row | Rejected]]
    options: type[Any] | None = None
    writes_statements: bool = False
    merge: Merge | None = None
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


def read_json_records(path: Path, lines: bool = False) -> Iterator[Record | Rejected]:
    """Every object of a JSON list or of a JSON lines file (distinguished by the first character), BOM accepted.

    JSON lines are read line by line, as records are taken; a list is read whole.

    Args:
        lines: the file is one of JSON lines, whatever its name.
    """
    first = _first_byte(path)
    if lines:
        yield from _lines(path)
    elif first == b"[":
        yield from _list_items(str(path), path.read_bytes().removeprefix(_BOM))
    elif path.suffix == ".json" and first:
        got = path.read_bytes().removeprefix(_BOM).strip()[:20]
        message = f"file must be a JSON list of objects, got {got!r}; wrap the records in [ ]"
        yield Rejected(str(path), 1, None, kind_of(message), message)
    else:
        yield from _lines(path)


def _first_byte(path: Path) -> bytes:
    """The first byte that is no white space; empty where there is none."""
    with path.open("rb") as file:
        for line in file:
            if text := line.removeprefix(_BOM).lstrip():
                return text[:1]
    return b""


def read_json_members(path: Path, *under: str) -> Iterator[Record | Rejected]:
    """Every member of a JSON object as a record whose value is (key, value), at the line of its key.

    `under` names the keys that lead from the file's outermost object to the one meant. A member that is damaged, or an
    object without those keys, is a rejection.
    """
    file, data = str(path), path.read_bytes().removeprefix(_BOM)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        yield _not_utf8(file, data.count(b"\n", 0, error.start) + 1, error)
        return
    del data
    end = yield from _members(_Text(file, text), _skip(text, 0), under)
    if not under and end >= 0 and (rest := text[end:].strip()):
        line = text.count("\n", 0, _skip(text, end)) + 1
        yield _broken(file, line, f"text after the closing }}, got {rest[:20]!r}; remove it")


class _Text:
    """A JSON text read from its start to its end, and the lines of what is read."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text
        self._at, self._line = 0, 1
        self._repeated: set[str] = set()
        self._decoder = json.JSONDecoder(object_pairs_hook=self._object)

    def line(self, position: int) -> int:
        """The line of a position, counted on from that of the latest one: positions only grow."""
        self._line += self.text.count("\n", self._at, position)
        self._at = position
        return self._line

    def __getitem__(self, position: int) -> str:
        """The character there; empty at the end."""
        return self.text[position : position + 1]

    def shown(self, position: int, most: int = 20) -> str:
        """What stands there, for a message."""
        return repr(self.text[position : position + most])

    def parse(self, line: int, position: int, stop: str = "") -> tuple[Record | Rejected, int]:
        """The value at `position` and where it ends; -1 where reading cannot go on. A key given twice is an error."""
        self._repeated.clear()
        start = _skip(self.text, position)
        try:
            value, end = self._decoder.raw_decode(self.text, start)
        except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
            at = line + (self.text.count("\n", start, error.pos) if isinstance(error, json.JSONDecodeError) else 0)
            got = self.shown(start, 40)
            return _broken(self.file, at, f"the record is not JSON, got {got} ({error}); repair it{stop}"), -1
        if self._repeated:
            got = sorted(self._repeated)
            message = f"a key is given twice in one object, got {got}; keep one, or use a list of values"
            return Rejected(self.file, line, None, kind_of(message), message), end
        return Record(self.file, line, value), end

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            self._repeated |= {key for key, n in Counter(key for key, _ in pairs).items() if n > 1}
        return members


def _members(text: _Text, position: int, under: tuple[str, ...]) -> Generator[Record | Rejected, None, int]:
    """Returns where the object ends; -1 where reading stopped."""
    if text[position] != "{":
        yield _no_object(text, position)
        return -1
    keys: set[str] = set()
    position = _skip(text.text, position + 1)
    while text[position] != "}":
        start, line = position, text.line(position)
        key, position = text.parse(line, position, stop=f", {_STOP}")
        if isinstance(key, Rejected):
            yield key
            return -1
        colon = _skip(text.text, position)
        if not isinstance(key.value, str) or text[colon] != ":":
            yield _broken(text.file, line, f"no key and colon, got {text.shown(start)}; repair it, {_STOP}")
            return -1
        if key.value in keys:
            message = f"a key is given twice in one object, got {key.value!r}; keep one"
            yield Rejected(text.file, line, None, kind_of(message), message)
        keys.add(key.value)
        if under and key.value == under[0]:
            return (yield from _members(text, _skip(text.text, colon + 1), under[1:]))
        item, position = text.parse(line, colon + 1, stop=f", {_STOP}")
        if not under:
            yield Record(text.file, line, (key.value, item.value)) if isinstance(item, Record) else item
        if position < 0:
            return -1
        position = _skip(text.text, position)
        if text[position] == ",":
            position = _skip(text.text, position + 1)
        elif text[position] != "}":
            got = text.shown(position)
            yield _broken(
                text.file, text.line(position), f"the object is not closed, got {got}; is the file cut short?"
            )
            return -1
    if under:
        message = f"the object has no such key, got no {under[0]!r}; see docs/formats.md"
        yield Rejected(text.file, text.line(position), None, kind_of(message), message)
    return position + 1


def _no_object(text: _Text, position: int) -> Rejected:
    """Another JSON value is of the wrong shape; anything else is no JSON."""
    line, got = text.line(position), text.shown(position)
    if isinstance(text.parse(line, position)[0], Rejected):
        return _broken(text.file, line, f"not an object, got {got}; see docs/formats.md")
    message = f"value is not an object, got {got}; see docs/formats.md"
    return Rejected(text.file, line, None, kind_of(message), message)


def _lines(path: Path) -> Iterator[Record | Rejected]:
    file = str(path)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            line = line.removesuffix(b"\n")
            line = line.removeprefix(_BOM) if number == 1 else line
            if not line.strip():
                continue
            try:
                text = _Text(file, line.decode("utf-8"))
            except UnicodeDecodeError as error:
                yield _not_utf8(file, number, error)
                continue
            item, end = text.parse(number, 0)
            if isinstance(item, Record) and (rest := text.text[end:].strip()):
                item = _broken(file, number, f"text after the record, got {rest[:20]!r}; one object a line")
            yield item


def _list_items(file: str, data: bytes) -> Iterator[Record | Rejected]:
    try:
        text = _Text(file, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        yield _not_utf8(file, data.count(b"\n", 0, error.start) + 1, error)
        return
    position = text.text.index("[") + 1
    while True:
        position = _skip(text.text, position)
        line = text.line(position)
        if text[position] == "]":
            if rest := text.text[position + 1 :].strip():
                yield _broken(file, line, f"text after the closing ], got {rest[:20]!r}; remove it")
            return
        if not text[position]:
            yield _broken(file, line, "the list is not closed, got the end of the file; is the file cut short?")
            return
        item, position = text.parse(line, position, stop=f", {_STOP}")
        yield item
        if position < 0:
            return
        position = _skip(text.text, position)
        if text[position] == ",":
            position += 1
        elif text[position] != "]":
            got = text.shown(position)
            message = f"no comma or ] after a record, got {got}; repair it, {_STOP}"
            yield _broken(file, text.line(position), message)
            return


def _skip(text: str, position: int) -> int:
    """The first position that is no white space."""
    match = _WHITESPACE.match(text, position)
    assert match is not None
    return match.end()


def _broken(file: str, line: int, what: str) -> Rejected:
    return Rejected(file, line, None, "not valid JSON", what)


def _not_utf8(file: str, line: int, error: UnicodeDecodeError) -> Rejected:
    message = f"text is not UTF-8, got byte 0x{error.object[error.start]:02x}; save the file as UTF-8"
    return Rejected(file, line, None, kind_of(message), message)


def read_csv_records(path: Path, columns: set[str]) -> Iterator[Record | Rejected]:
    """Every row of a CSV file as a dict of `columns` only: the other columns are not read."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                yield _not_utf8(str(path), number, error)
                return
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from _csv_records(path, csv.reader(file, strict=True), columns)


def _csv_records(path: Path, reader: Any, columns: set[str]) -> Iterator[Record | Rejected]:
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
