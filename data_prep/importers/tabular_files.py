"""Tables of any columns as records, streamed: JSON, JSON lines, CSV, Parquet, Arrow, and folders of them.

A folder may be a data set saved by Hugging Face `datasets`. Its files are read with pyarrow alone: `datasets` itself
would decode media and import a deep-learning framework. Nothing is fetched.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .base import Record, Rejected, kind_of, read_csv_records, read_json_records

SUFFIXES = (".json", ".jsonl", ".csv", ".parquet", ".arrow")
_SHARD = re.compile(r"(?P<split>.+)-\d{5}-of-\d{5}")
_BATCH_ROWS = 1024
_ROWS_OF_BYTES = 16  # where rows hold pictures: a thousand of them may be gigabytes
_END = b"\x00" * 4  # how every Arrow stream ends, of the older form and the newer


@dataclass(frozen=True)
class TabularFile:
    """One file of rows.

    Attributes:
        file: its path.
        split: what a saved data set calls the part this file belongs to; None where it says nothing.
        names: the dotted column names, all at once or, where rows may differ (JSON), row by row.
        records: reads the rows, as objects that hold at least the columns with the given dotted names; in Parquet and
            Arrow a record's line is the row's number, from 1.
        schema: of Parquet and Arrow; None elsewhere.
    """

    file: str
    split: str | None
    names: Callable[[], Iterator[set[str]]]
    records: Callable[[Set[str]], Iterator[Record | Rejected]]
    schema: pa.Schema | None = None


def tables(path: Path) -> Iterator[TabularFile | Rejected]:
    """The table of a file, or every table of a folder in a fixed order; what is no table is a rejection."""
    if not path.is_dir():
        yield _table(path, None)
    elif (path / "dataset_dict.json").is_file():
        parts = _json_key(path / "dataset_dict.json", "splits")
        if isinstance(parts, Rejected):
            yield parts
            return
        for part in parts:
            yield from _saved(path / str(part), str(part))
    elif (path / "state.json").is_file():
        yield from _saved(path, None)
    else:
        files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
        if not files:
            yield _rejected(path, f"folder holds no table, got no file of {list(SUFFIXES)}; name another folder")
        for file in files:
            shard = _SHARD.fullmatch(file.stem)
            yield _table(file, shard.group("split") if shard else None)


def missing_columns(table: TabularFile, wanted: Iterable[str]) -> tuple[list[str], set[str]]:
    """The wanted columns that no row has, and the names that occur. A table without rows lacks nothing."""
    missing, known = set(wanted), set()
    for known_here in table.names():
        known |= known_here
        missing = {name for name in missing if not _present(name, known)}
        if not missing:
            break
    return (sorted(missing) if known else []), known


def cell(row: dict[str, Any], name: str) -> Any:
    """The value under a dotted name: keys of objects and, as numbers from 0, items of lists. None where nothing is."""
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def _present(name: str, known: Set[str]) -> bool:
    parts = name.split(".")
    below_list = (".".join(parts[:i]) in known and parts[i].isdigit() for i in range(1, len(parts)))
    return name in known or any(below_list)


def _saved(folder: Path, split: str | None) -> Iterator[TabularFile | Rejected]:
    """The Arrow files of one saved data set, in the order its state.json gives."""
    files = _json_key(folder / "state.json", "_data_files")
    if isinstance(files, Rejected):
        yield files
        return
    for entry in files:
        name = entry.get("filename") if isinstance(entry, dict) else None
        if isinstance(name, str) and (folder / name).is_file():
            yield _table(folder / name, split)
        else:
            yield _rejected(folder / "state.json", f"a data file is missing, got {name!r}; copy the folder again")


def _json_key(path: Path, key: str) -> list[Any] | Rejected:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))[key]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return _rejected(path, f"not a saved data set, got {error!r}; save it again with save_to_disk")
    if not isinstance(value, list):
        return _rejected(path, f"not a saved data set, got {value!r} as {key}; save it again with save_to_disk")
    return value


def _table(path: Path, split: str | None) -> TabularFile | Rejected:
    file = str(path)
    if path.suffix in (".json", ".jsonl"):
        return TabularFile(file, split, partial(_json_names, path), lambda columns: read_json_records(path))
    if path.suffix == ".csv":
        return TabularFile(file, split, lambda: iter([set(_header(path))]), partial(_csv_records, path))
    if path.suffix not in SUFFIXES:
        return _rejected(path, f"not a known kind of table, got {path.suffix!r}; use one of {list(SUFFIXES)}")
    try:
        schema = pq.read_schema(path) if path.suffix == ".parquet" else _arrow_schema(path)
    except (pa.ArrowException, OSError) as error:
        return _rejected(path, f"the file is not readable {path.suffix[1:]}, got {error}; copy it again")
    names = set(_schema_names(schema))
    return TabularFile(file, split, lambda: iter([names]), partial(_columnar_records, path, schema), schema)


def _json_names(path: Path) -> Iterator[set[str]]:
    for record in read_json_records(path):
        if isinstance(record, Record) and isinstance(record.value, dict):
            yield set(_object_names(record.value))


def _object_names(value: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, item in value.items():
        yield prefix + key
        if isinstance(item, dict):
            yield from _object_names(item, f"{prefix}{key}.")


def _schema_names(fields: Iterable[pa.Field], prefix: str = "") -> Iterator[str]:
    for field in fields:
        yield prefix + field.name
        if pa.types.is_struct(field.type):
            yield from _schema_names(field.type, f"{prefix}{field.name}.")


def _header(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        try:
            return next(csv.reader(file, strict=True), [])
        except csv.Error:
            return []


def _csv_records(path: Path, columns: Set[str]) -> Iterator[Record | Rejected]:
    header = _header(path)
    if repeated := sorted(name for name in columns if header.count(name) > 1):
        yield _rejected(path, f"a column is given twice, got {repeated}; rename one", line=1)
        return
    yield from read_csv_records(path, set(columns))


def _columnar_records(path: Path, schema: pa.Schema, columns: Set[str]) -> Iterator[Record | Rejected]:
    number, outermost = 0, {name if name in schema.names else name.split(".")[0] for name in columns}
    try:
        for batch in _batches(path, sorted(outermost)):
            step = _ROWS_OF_BYTES if any(holds_bytes(field.type) for field in batch.schema) else max(1, len(batch))
            for start in range(0, len(batch), step):
                for row in batch.slice(start, step).to_pylist():
                    number += 1
                    yield Record(str(path), number, row)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        message = f"the table is damaged, got {error}; copy it again, the rows from here on were not read"
        yield _rejected(path, message, line=number + 1)


def _batches(path: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    if path.suffix == ".parquet":
        with pq.ParquetFile(path, pre_buffer=False) as file:  # else all row groups lie in memory at once
            wanted = (file.schema_arrow.field(name).type for name in columns if name in file.schema_arrow.names)
            rows = _ROWS_OF_BYTES if any(map(holds_bytes, wanted)) else _BATCH_ROWS
            yield from file.iter_batches(rows, columns=columns)
        return
    with pa.memory_map(str(path)) as source:
        reader = _arrow_reader(source)
        if isinstance(reader, pa.ipc.RecordBatchFileReader):
            yield from (reader.get_batch(i).select(columns) for i in range(reader.num_record_batches))
        else:
            yield from (batch.select(columns) for batch in reader)


def holds_bytes(kind: pa.DataType) -> bool:
    """Whether a column of this type holds bytes: pictures, in tables of `datasets`."""
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return True
    return pa.types.is_nested(kind) and any(holds_bytes(kind.field(i).type) for i in range(kind.num_fields))


def _arrow_schema(path: Path) -> pa.Schema:
    with pa.memory_map(str(path)) as source:
        reader = _arrow_reader(source)
        if isinstance(reader, pa.ipc.RecordBatchStreamReader):
            source.seek(source.size() - len(_END))
            if source.read() != _END:  # cut between two batches, the rows that are gone would not be missed
                raise pa.ArrowInvalid("no mark at the end of the stream")
        return reader.schema


def _arrow_reader(source: pa.MemoryMappedFile) -> pa.ipc.RecordBatchStreamReader | pa.ipc.RecordBatchFileReader:
    """Arrow files come as a stream (what `datasets` writes) or as a file with a footer (Feather)."""
    try:
        return pa.ipc.open_stream(source)
    except pa.ArrowInvalid:
        source.seek(0, io.SEEK_SET)
        return pa.ipc.open_file(source)


def _rejected(path: Path, message: str, line: int | None = None) -> Rejected:
    return Rejected(str(path), line, None, kind_of(message), message)
