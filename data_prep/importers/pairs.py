"""Import stored pairs: the files of rows that this package writes, JSON lines or Parquet.

Shards of a data set are such files too: dataset/shards.py reads them from here and writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...core import Pair, RowError
from .base import ClaimFormat, Importer, Record, Rejected, Row, read_json_records, reject

_JSON_COLUMNS = ("evidence", "meta")  # as text: evidence in files written before it became a nested column


def read(path: Path, options: None = None) -> Iterator[Row | Rejected]:
    """Every stored pair of a file as a row; what describes no pair as a rejection."""
    for item in read_pair_records(path):
        if isinstance(item, Rejected):
            yield item
            continue
        try:
            pair = pair_from(item)
            yield Row(pair, item.file, item.line, pair.id)
        except RowError as error:
            name = item.value.get("id") if isinstance(item.value, dict) else None
            message = str(error).removeprefix(f"{item.file}:{item.line}: ")
            yield reject(item, message, id=name if isinstance(name, str) else None)


def read_pair_records(path: str | Path) -> Iterator[Record | Rejected]:
    """The stored objects of a file of pairs, one by one; what cannot be read is a `Rejected`."""
    path = Path(path)
    if not path.is_file():
        raise RowError(f"{path}: no such file, got nothing to read; check the path")
    return _parquet_records(path) if pairs_suffix(path) == ".parquet" else read_json_records(path)


def pair_from(record: Record) -> Pair:
    """The pair a stored object describes; `RowError` with file and line if it describes none."""
    where = f"{record.file}:{record.line}"
    if not isinstance(record.value, Mapping):
        raise RowError(f"{where}: a row must be an object, got {record.value!r}; write {{'id': ...}}")
    for key, kind in (("id", str), ("claim", str), ("evidence", list)):
        if key in record.value and not isinstance(record.value[key], kind):
            raise RowError(f"{where}: {key} must be a {kind.__name__}, got {record.value[key]!r}; every pair has {key}")
    return Pair.from_dict({key: value for key, value in record.value.items() if value is not None}, where)


def pairs_suffix(path: Path) -> str:
    """The suffix of a file of pairs; `RowError` where it is none of the two."""
    if path.suffix not in (".parquet", ".jsonl"):
        raise RowError(f"{path}: pairs are stored as .parquet or .jsonl, got {path.suffix!r}; rename the file")
    return path.suffix


def _parquet_records(path: Path) -> Iterator[Record | Rejected]:
    try:
        file = pq.ParquetFile(path)
        number = 0
        for batch in file.iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield _decoded(str(path), number, row)
    except (pa.ArrowException, OSError) as error:
        message = f"the file is not readable Parquet, got {error}; copy it again or rebuild it"
        yield Rejected(str(path), None, None, "not readable Parquet", message)


def _decoded(file: str, number: int, row: dict[str, Any]) -> Record | Rejected:
    for name in _JSON_COLUMNS:
        if isinstance(row.get(name), str):
            try:
                row[name] = json.loads(row[name])
            except json.JSONDecodeError as error:
                message = f"{name} is not JSON, got {row[name][:40]!r} ({error}); store it with write_pairs"
                return Rejected(file, number, str(row.get("id")), f"{name} is not JSON", message)
    if isinstance(row.get("evidence"), list):  # nested columns fill the keys that a kind does not have with null
        row["evidence"] = [
            {k: v for k, v in e.items() if v is not None} if isinstance(e, dict) else e for e in row["evidence"]
        ]
    return Record(file, number, row)


IMPORTER = Importer(
    name="pairs",
    description="Pairs that are ready, as this package writes them.",
    read=read,
    claims=ClaimFormat(
        "pairs", lambda value, is_member: not is_member and "claim" in value and isinstance(value.get("evidence"), list)
    ),
)
