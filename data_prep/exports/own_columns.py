"""The rows of a file of claims as the user wrote them, with all their columns: scores are put beside them.

`given_rows` reads them in the order in which `read_claims` reads claims, bad ones included, and pairs the two.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...core import RowError, sha256_of
from ..importers import Record, Rejected, TabularFile, holds_bytes, tables
from .claim_files import ClaimFile, ClaimRow

WITH_COLUMNS = ("rows", "chat", "pairs")  # of the other formats an item may hold many claims


@dataclass(frozen=True)
class GivenRow:
    """One row as it was written, by column, and what it was read as; a row that could not be read has no columns."""

    values: dict[str, Any]
    claim: ClaimRow


@dataclass(frozen=True)
class GivenRows:
    """All rows of a file or folder.

    Attributes:
        rows: in order.
        names: the columns that occur, in order.
        schema: their types, where every file has the same; None for text formats.
    """

    rows: tuple[GivenRow, ...]
    names: tuple[str, ...]
    schema: pa.Schema | None = None


def given_rows(path: str | Path, claims: ClaimFile) -> GivenRows:
    """The user's own rows beside what they were read as; of formats whose items hold many claims, the claims alone."""
    if claims.format not in WITH_COLUMNS:
        return GivenRows(tuple(GivenRow({}, row) for row in claims.rows), ())
    by_file = {file: list(rows) for file, rows in groupby(claims.rows, key=lambda row: row.file)}
    rows: list[GivenRow] = []
    names: dict[str, None] = {}
    schemas: list[pa.Schema | None] = []
    for table in tables(Path(path)):
        file = table.file
        values, schema = ([], None) if isinstance(table, Rejected) else (list(_values(table)), _schema(table))
        schemas.append(schema)
        names.update(dict.fromkeys(() if schema is None else schema.names))
        names.update(dict.fromkeys(name for row in values for name in row))
        rows += _beside(values, by_file.get(file, []))
    same = bool(schemas) and schemas[0] is not None and all(schema == schemas[0] for schema in schemas)
    return GivenRows(tuple(rows), tuple(names), schemas[0] if same else None)


def rows_sha256(path: str | Path) -> str:
    """Hash of a file, or of all tables of a folder: what tells that the user's rows are the same."""
    path = Path(path)
    if path.is_file():
        return sha256_of(path)
    return "+".join(sha256_of(table.file)[:16] for table in tables(path) if Path(table.file).is_file())


def _beside(values: Sequence[dict[str, Any]], claims: Sequence[ClaimRow]) -> Iterator[GivenRow]:
    """Rows and what they were read as, one by one; what stands for a whole file stands for each of its rows."""
    if values and not claims:
        raise RowError("claims: the file changed while it was read, got rows that were not there; score it again")
    for number in range(max(len(values), len(claims))):
        claim = claims[min(number, len(claims) - 1)]
        yield GivenRow(values[number] if number < len(values) else {}, claim)


def _values(table: TabularFile) -> Iterator[dict[str, Any]]:
    """The rows of a table, all columns; {} for one that cannot be read."""
    if table.file.endswith(".csv"):
        yield from _csv_values(Path(table.file))
        return
    schema = _schema(table)
    records = table.records(frozenset() if schema is None else frozenset(schema.names))
    for record in records:
        if isinstance(record, Record):
            yield record.value if isinstance(record.value, dict) else {}
        elif _is_json(table):
            yield {}


def _csv_values(path: Path) -> Iterator[dict[str, Any]]:
    """Cells as text, by column; of a row with too few or too many cells those that have a column."""
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = _distinct(next(reader, []))
        for cells in reader:
            if cells:
                yield dict(zip(header, cells, strict=False))
    except csv.Error:
        yield {}


def _distinct(names: Sequence[str]) -> list[str]:
    """Names of columns; one that occurs again is numbered."""
    distinct: list[str] = []
    for name in names:
        number, base = 2, name
        while name in distinct:
            name, number = f"{base}_{number}", number + 1
        distinct.append(name)
    return distinct


def _is_json(table: TabularFile) -> bool:
    return table.file.endswith((".json", ".jsonl"))


def _schema(table: TabularFile) -> pa.Schema | None:
    """Without columns of bytes: pictures of all rows at once are more than memory holds."""
    if table.schema is None:
        return None
    return pa.schema([field for field in table.schema if not holds_bytes(field.type)])
