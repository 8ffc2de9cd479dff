"""Scores beside the user's own rows: one row out for every row in, in order, with all columns that the row had.

Parquet holds the user's columns, the results, and the other columns of a predictions file, so that reports and
calibrations read it. CSV and JSON lines hold the user's columns and the results; where a format has no columns of its
own (an item of it holds many claims), also which claim about which evidence. A column of the user that is called like
one of these is called `input_NAME`.
"""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...core import RowError
from ...data_prep.exports import ClaimRow, GivenRow, GivenRows, in_batches
from ...data_prep.importers import Rejected
from .predictions import FIELDS
from .score import into_place

STATUSES = ("scored", "failed", "bad")
"""Of a row: it has a score; the verifier could not judge it; it is no claim about evidence."""
RESULTS = ("status", "verdict", "answer", "p_supported", "margin", "error")
QUESTION = ("pair_id", "claim", "evidence")
_ROWS_AT_ONCE = 8192


def with_every_row(tables: Iterator[pa.Table], given: GivenRows) -> Iterator[pa.Table]:
    """Predictions of the good rows, with a failure for each bad one and the user's columns before them.

    Args:
        tables: the predictions in order, some rows at a time.
        given: the user's rows.

    Returns:
        Tables in order, at least one.

    Raises:
        RowError: predictions of other rows; or values of a column that turn out to be of several kinds.
    """
    ours = [*RESULTS, *(name for name in FIELDS if name not in RESULTS)]
    names = own_names(list(given.columns), ours)
    for rows, every in _beside(tables, given):
        values = {
            shown: _column(shown, [row.values.get(name) for row in rows], given.columns[name])
            for name, shown in names.items()
        }
        table = pa.table(values | {name: every[name] for name in ours})
        yield table.replace_schema_metadata(every.schema.metadata)


def write_scored_rows(path: str | Path, predictions: str | Path, given: GivenRows) -> None:
    """The user's rows with the results, as CSV or JSON lines by the name of the file; whole or not at all."""
    path = Path(path)
    ours = RESULTS if given.columns else (*QUESTION, *RESULTS)
    names = own_names(list(given.columns), ours)
    temporary = path.with_name(f".{path.name}")
    write: Callable[..., None] = _write_csv if path.suffix == ".csv" else _write_json_lines
    with pq.ParquetFile(predictions) as file:
        tables = map(pa.Table.from_batches, ([batch] for batch in file.iter_batches(_ROWS_AT_ONCE)))
        write(
            temporary,
            _rows(chain(tables, [file.schema_arrow.empty_table()]), given, names, ours),
            [*names.values(), *ours],
        )
    into_place(temporary, path)


def own_names(names: Sequence[str], ours: Sequence[str]) -> dict[str, str]:
    """What the user's columns are called beside ours: their own names, or `input_NAME` where ours has that name."""
    shown: dict[str, str] = {}
    for name in names:
        free = name
        while free in ours or free in shown.values() or (free != name and free in names):
            free = f"input_{free}"
        shown[name] = free
    return shown


def _beside(tables: Iterator[pa.Table], given: GivenRows) -> Iterator[tuple[list[GivenRow], pa.Table]]:
    """The user's rows, some at a time, and beside them the columns of predictions and results."""
    held, names = next(tables), _NamesOfBadRows(given)
    is_empty = True
    for rows in in_batches(given, _ROWS_AT_ONCE):
        n_good = sum(not isinstance(row.claim.item, Rejected) for row in rows)
        while held.num_rows < n_good and (more := next(tables, None)) is not None:
            held = pa.concat_tables([held, more])
        if held.num_rows < n_good:
            break
        yield rows, _every_row(held.slice(0, n_good), rows, names)
        held, is_empty = held.slice(n_good), False
    else:
        if is_empty:
            yield [], _every_row(held.slice(0, 0), [], names)
        if not held.num_rows and not any(table.num_rows for table in tables):
            return
    raise RowError("scores: must be of as many claims as there are, got others; score the file again")


def _every_row(table: pa.Table, rows: Sequence[GivenRow], names: _NamesOfBadRows) -> pa.Table:
    """The columns of predictions and results, a row for each of the user's."""
    items = [row.claim.item for row in rows]
    reasons = [item.reason if isinstance(item, Rejected) else None for item in items]
    bad = np.array([reason is not None for reason in reasons], dtype=bool)
    table = table.take(pa.array(np.cumsum(~bad) - 1, mask=bad))
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    columns["error"] = pc.fill_null(columns["error"], pa.array(reasons, pa.string()))
    named = [names.of(row.claim) if isinstance(row.claim.item, Rejected) else None for row in rows]
    columns["pair_id"] = pc.fill_null(columns["pair_id"], pa.array(named, pa.string()))
    for name in ("margin", "p_supported"):
        columns[name] = pc.fill_null(columns[name], math.nan)
    for name in ("group", "role", "origin", "modality", "claim", "evidence"):
        columns[name] = pc.fill_null(columns[name], "")
    failed = columns["error"].is_valid().to_numpy(zero_copy_only=False)
    scored, unjudged, no_claim = STATUSES
    columns["status"] = pa.array(np.where(bad, no_claim, np.where(failed, unjudged, scored)).tolist(), pa.string())
    return pa.table(columns).replace_schema_metadata(table.schema.metadata)


class _NamesOfBadRows:
    """Bad rows by file and line, without taking another row's name."""

    def __init__(self, given: GivenRows) -> None:
        self._is_pair, self._latest = given.claims.has, Counter[str]()

    def of(self, row: ClaimRow) -> str:
        """A name for this row."""
        base = f"{Path(row.file).name}:{row.line or 0}"
        while True:
            self._latest[base] += 1
            name = base if self._latest[base] == 1 else f"{base}#{self._latest[base]}"
            if not self._is_pair(name):
                return name


def _column(name: str, values: list[Any], type: pa.DataType | None) -> pa.Array:
    """A column of Parquet; values of several kinds are stored as JSON text."""
    if type is None:
        return pa.array([None if v is None else json.dumps(v, ensure_ascii=False) for v in values], pa.string())
    try:
        return pa.array(values, type)
    except (pa.ArrowException, OverflowError) as error:
        raise RowError(f"{name}: values must be of one kind, got {error}; write JSON lines instead") from error


def _rows(
    tables: Iterator[pa.Table], given: GivenRows, names: dict[str, str], ours: Sequence[str]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """For each row the user's values, by the names they have here, and the results."""
    for rows, every in _beside(tables, given):
        for row, result in zip(rows, every.select(list(ours)).to_pylist(), strict=True):
            if math.isnan(result["margin"]):
                result |= {"margin": None, "p_supported": None}
            else:
                result["margin"] = float(str(np.float32(result["margin"])))  # the shortest number of this float32
            yield {names[name]: value for name, value in row.values.items()}, result


def _write_csv(path: Path, rows: Iterator[tuple[dict[str, Any], dict[str, Any]]], header: list[str]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for own, result in rows:
            values = own | result
            writer.writerow([_cell(values.get(name)) for name in header])


def _write_json_lines(path: Path, rows: Iterator[tuple[dict[str, Any], dict[str, Any]]], header: list[str]) -> None:
    del header  # a row has the keys that it came with
    with path.open("w", encoding="utf-8") as file:
        for own, result in rows:
            file.write(json.dumps(own | result, ensure_ascii=False, default=str) + "\n")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (bool, dict, list)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
