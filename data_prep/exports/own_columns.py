"""The rows of a file of claims as the user wrote them, with all their columns: scores are put beside them.

They are read in the order in which the claims were read, bad ones included, and paired with these, one at a time.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice, zip_longest
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from ...core import Pair, RowError, sha256_of
from ..importers import Record, Rejected, TabularFile, holds_bytes, tables
from .claim_files import ClaimRow

WITH_COLUMNS = ("rows", "chat", "pairs")  # of the other formats an item may hold many claims
_ROWS_AT_ONCE = 8192
_T = TypeVar("_T")
_EXACT = 2**53  # whole numbers up to this are floats too


class ClaimsRead(Protocol):
    """Claims that were read from a file, in memory (`ClaimFile`) or on disk."""

    @property
    def format(self) -> str: ...
    @property
    def rows(self) -> Iterable[ClaimRow]: ...
    def has(self, id: str) -> bool: ...


@dataclass(frozen=True)
class GivenRow:
    """One row as it was written, by column, and what it was read as; a row that could not be read has no columns."""

    values: dict[str, Any]
    claim: ClaimRow


@dataclass(frozen=True)
class GivenRows:
    """All rows of a file or folder, read from it whenever they are iterated over.

    Attributes:
        path: the file or folder.
        claims: what its rows were read as.
        columns: the columns that occur, in order, with the type of their values; None where these are of several kinds.
    """

    path: Path
    claims: ClaimsRead
    columns: dict[str, pa.DataType | None]

    def __iter__(self) -> Iterator[GivenRow]:
        if self.claims.format not in WITH_COLUMNS:
            yield from (GivenRow({}, row) for row in self.claims.rows)
            return
        by_file = groupby(self.claims.rows, key=lambda row: row.file)
        file, claims = next(by_file, (None, iter(())))
        for table in tables(self.path):
            values = iter(()) if isinstance(table, Rejected) else _values(table)
            if file != table.file:
                yield from _beside(values, ())
                continue
            yield from _beside(values, claims)
            file, claims = next(by_file, (None, iter(())))
        if file is not None:
            raise RowError(f"{file}: is no longer where it was read, got no such table; score the claims again")


def in_batches(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """The items in lists of that many, the last of fewer."""
    left = iter(items)
    while batch := list(islice(left, size)):
        yield batch


def given_rows(path: str | Path, claims: ClaimsRead) -> GivenRows:
    """The user's own rows beside what they were read as; of formats whose items hold many claims, the claims alone."""
    path = Path(path)
    return GivenRows(path, claims, _columns(path) if claims.format in WITH_COLUMNS else {})


def _columns(path: Path) -> dict[str, pa.DataType | None]:
    """The columns that occur and their types: those of the files, or else what fits all values, read once for this."""
    schemas = [None if isinstance(table, Rejected) else _schema(table) for table in tables(path)]
    first = schemas[0] if schemas else None
    if first is not None and all(schema == first for schema in schemas):
        return {field.name: pa.string() if pa.types.is_null(field.type) else field.type for field in first}
    found: dict[str, _Values] = {}
    for table, schema in zip(tables(path), schemas, strict=True):
        for name in () if schema is None else schema.names:
            found.setdefault(name, _Values())
        for rows in in_batches(() if isinstance(table, Rejected) else _values(table), _ROWS_AT_ONCE):
            for name in dict.fromkeys(chain.from_iterable(rows)):
                found.setdefault(name, _Values()).add([row.get(name) for row in rows])
    return {name: values.fitting for name, values in found.items()}


class _Values:
    """What type fits the values of a column, seen batch by batch, as one look at all of them would say."""

    def __init__(self) -> None:
        self._kind: pa.DataType | None = pa.null()
        self._largest = 0  # of whole numbers: those that no float is cannot stand beside floats

    @property
    def fitting(self) -> pa.DataType | None:
        """Text for a column of nothing; None where no type fits."""
        return pa.string() if self._kind == pa.null() else self._kind

    def add(self, values: Sequence[Any]) -> None:
        """Look at more values."""
        if self._kind is None:
            return
        try:
            array = pa.array(values)
            if pa.types.is_integer(array.type):
                numbers = array.drop_null().to_numpy()
                self._largest = max(self._largest, -int(numbers.min()), int(numbers.max()))
            both = [pa.schema([("values", kind)]) for kind in (self._kind, array.type)]
            self._kind = pa.unify_schemas(both, promote_options="permissive").field(0).type
        except (pa.ArrowException, OverflowError):
            self._kind = None
        if self._kind == pa.float64() and self._largest > _EXACT:
            self._kind = None


def rows_sha256(path: str | Path) -> str:
    """Hash of a file, or of all tables of a folder: what tells that the user's rows are the same."""
    path = Path(path)
    if path.is_file():
        return sha256_of(path)
    return "+".join(sha256_of(table.file)[:16] for table in tables(path) if Path(table.file).is_file())


def _beside(values: Iterable[dict[str, Any]], claims: Iterable[ClaimRow]) -> Iterator[GivenRow]:
    """Rows and what they were read as, one by one; what stands for a whole file stands for each of its rows."""
    latest: ClaimRow | None = None
    for row, claim in zip_longest(values, claims):
        if claim is None and (latest is None or isinstance(latest.item, Pair)):
            raise RowError("claims: the file changed while it was read, got rows that were not there; score it again")
        latest = claim or latest
        assert latest is not None
        yield GivenRow(row or {}, latest)


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
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(file, strict=True)
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
