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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...core import RowError
from ...data_prep.exports import GivenRows
from ...data_prep.importers import Rejected
from .predictions import FIELDS
from .score import into_place

STATUSES = ("scored", "failed", "bad")
"""Of a row: it has a score; the verifier could not judge it; it is no claim about evidence."""
RESULTS = ("status", "verdict", "answer", "p_supported", "margin", "error")
QUESTION = ("pair_id", "claim", "evidence")


def with_every_row(table: pa.Table, given: GivenRows) -> pa.Table:
    """Predictions of the good rows, with a failure for each bad one and the user's columns before them."""
    every = _every_row(table, given)
    ours = [*RESULTS, *(name for name in FIELDS if name not in RESULTS)]
    arrays: dict[str, Any] = {}
    for name, shown in own_names(given.names, ours).items():
        arrays[shown] = _column([row.values.get(name) for row in given.rows], _type(given, name))
    arrays |= {name: every[name] for name in ours}
    return pa.table(arrays).replace_schema_metadata(table.schema.metadata)


def write_scored_rows(path: str | Path, predictions: str | Path, given: GivenRows) -> None:
    """The user's rows with the results, as CSV or JSON lines by the name of the file; whole or not at all."""
    path = Path(path)
    every = _every_row(pq.read_table(predictions), given)
    ours = RESULTS if given.names else (*QUESTION, *RESULTS)
    names = own_names(given.names, ours)
    rows = _rows(every, given, names, ours)
    temporary = path.with_name(f".{path.name}")
    write: Callable[..., None] = _write_csv if path.suffix == ".csv" else _write_json_lines
    write(temporary, rows, [*names.values(), *ours])
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


def _every_row(table: pa.Table, given: GivenRows) -> pa.Table:
    """The columns of predictions and results, a row for each of the user's."""
    items = [row.claim.item for row in given.rows]
    reasons = [item.reason if isinstance(item, Rejected) else None for item in items]
    bad = np.array([reason is not None for reason in reasons], dtype=bool)
    if (n := int((~bad).sum())) != table.num_rows:
        raise RowError(f"scores: must be of {n} claims, got {table.num_rows}; score the file again")
    table = table.take(pa.array(np.cumsum(~bad) - 1, mask=bad))
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    columns["error"] = pc.fill_null(columns["error"], pa.array(reasons, pa.string()))
    columns["pair_id"] = pc.fill_null(columns["pair_id"], _names_of_bad_rows(given, columns["pair_id"]))
    for name in ("margin", "p_supported"):
        columns[name] = pc.fill_null(columns[name], math.nan)
    for name in ("group", "role", "origin", "modality", "claim", "evidence"):
        columns[name] = pc.fill_null(columns[name], "")
    failed = columns["error"].is_valid().to_numpy(zero_copy_only=False)
    scored, unjudged, no_claim = STATUSES
    columns["status"] = pa.array(np.where(bad, no_claim, np.where(failed, unjudged, scored)).tolist(), pa.string())
    return pa.table(columns).replace_schema_metadata(table.schema.metadata)


def _names_of_bad_rows(given: GivenRows, names: pa.Array) -> pa.Array:
    """Bad rows by file and line, without taking a good row's name."""
    taken = set(names.to_pylist())
    distinct: list[str | None] = []
    for row in given.rows:
        base = f"{Path(row.claim.file).name}:{row.claim.line or 0}"
        name, number = base, 2
        while isinstance(row.claim.item, Rejected) and name in taken:
            name, number = f"{base}#{number}", number + 1
        taken.add(name)
        distinct.append(name)
    return pa.array(distinct, pa.string())


def _type(given: GivenRows, name: str) -> pa.DataType | None:
    return None if given.schema is None else given.schema.field(name).type


def _column(values: list[Any], type: pa.DataType | None) -> pa.Array:
    """A column of Parquet; values of several kinds are stored as JSON text."""
    try:
        array = pa.array(values, type)
        return array.cast(pa.string()) if pa.types.is_null(array.type) else array
    except (pa.ArrowException, OverflowError):
        return pa.array([None if value is None else json.dumps(value, ensure_ascii=False) for value in values])


def _rows(
    every: pa.Table, given: GivenRows, names: dict[str, str], ours: Sequence[str]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """For each row the user's values, by the names they have here, and the results."""
    results = every.select(list(ours)).to_pylist()
    for row, result in zip(given.rows, results, strict=True):
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
