"""Scores beside the user's rows: every row of every kind of file comes out, in order, with its own columns."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proofreel.core.errors import RowError
from proofreel.data_prep.exports import ClaimFile, GivenRows, given_rows, own_columns, read_claims
from proofreel.eval.scoring import read_predictions, scored_rows, with_every_row, write_predictions, write_scored_rows
from proofreel.eval.scoring.predictions import Prediction
from proofreel.eval.scoring.scored_rows import own_names

ROWS: list[dict[str, Any]] = [
    {"claim": "A.", "text": "One.", "label": 1, "note": "x,y", "error": "mine"},
    {"claim": "", "text": "Two.", "label": 0, "note": 'quo"te', "error": None},
    {"claim": "C.", "text": "Three.", "label": 7, "note": "", "error": None},
    {"claim": "D.", "text": "Four.", "label": 0, "note": "ünï", "error": None},
]


def write(path: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def predictions(path: Path, claims: ClaimFile) -> Path:
    """Scores 0, 1, ... of the good rows, the last of them failed; with the columns that bulk scoring adds."""
    rows = []
    for number, pair in enumerate(claims.pairs):
        failed = number == len(claims.pairs) - 1
        numbers = (math.nan, math.nan) if failed else (float(number) + 0.1, 0.5)
        named = (pair.label, None, pair.group, "", "", "", "cut" if failed else None, pair.claim)
        rows.append(Prediction(pair.id, *numbers, *named))
    write_predictions(path, rows, {"verifier_fingerprint": "f"})
    table = pq.read_table(path)
    verdict = pa.array(["supported"] * (len(rows) - 1) + [None], pa.string())
    pq.write_table(table.append_column("verdict", verdict).append_column("answer", verdict), path)
    return path


def every_row(scores: Path, own: GivenRows, n_at_once: int = 1000) -> pa.Table:
    """All tables that are written, of predictions that come so many rows at a time."""
    table = pq.read_table(scores)
    starts = range(0, max(table.num_rows, 1), n_at_once)
    return pa.concat_tables(with_every_row((table.slice(start, n_at_once) for start in starts), own))


@pytest.mark.parametrize("given", ["c.csv", "c.jsonl", "c.json", "c.parquet"])
def test_every_row_comes_out_in_order_with_its_own_columns(tmp_path, given):
    path = write(tmp_path / given)
    claims = read_claims(path)
    assert [len(claims.pairs), len(claims.rejected)] == [2, 2]
    own, scores = given_rows(path, claims), predictions(tmp_path / "p.parquet", claims)
    pq.write_table(every_row(scores, own), tmp_path / "o.parquet")
    write_scored_rows(tmp_path / "o.csv", scores, own)
    write_scored_rows(tmp_path / "o.jsonl", scores, own)

    found = pq.read_table(tmp_path / "o.parquet").to_pylist()
    assert [row["status"] for row in found] == ["scored", "bad", "bad", "failed"]
    assert [str(row["input_label"]) for row in found] == ["1", "0", "7", "0"]
    assert [row["label"] for row in found] == ["supported", None, None, "refuted"]
    assert found[0]["input_error"] == "mine"
    assert [row["note"] for row in found] == [row["note"] for row in ROWS]
    rows, source = read_predictions(tmp_path / "o.parquet")
    assert [row.error is None for row in rows] == [True, False, False, False]
    assert source == {"verifier_fingerprint": "f"}

    lines = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    with (tmp_path / "o.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    for row, line, cell, parquet in zip(ROWS, lines, cells, found, strict=True):
        assert cell["note"] == line["note"] == row["note"]
        assert cell["label"] == str(line["label"]) == str(row["label"])
        assert cell["status"] == line["status"] == parquet["status"]
        assert cell["error"] == (line["error"] or "") == (parquet["error"] or "")
    assert (lines[0]["margin"], cells[0]["margin"], lines[3]["margin"], cells[3]["margin"]) == (0.1, "0.1", None, "")
    assert "label" in lines[2]["error"]


def test_types_of_parquet_stay_and_values_of_several_kinds_become_text(tmp_path):
    claim = {"claim": ["A.", "B."], "text": ["One.", "Two."]}
    kinds = {"n": pa.array([1, 2], pa.int8()), "at": pa.array(np.array([0, 1], "datetime64[us]"))}
    pq.write_table(pa.table(claim | kinds), tmp_path / "c.parquet")
    jsonl = write(tmp_path / "c.jsonl", [{"claim": "A.", "text": "T.", "n": 1}, {"claim": "B.", "text": "T.", "n": []}])
    types = []
    for path in (tmp_path / "c.parquet", jsonl):
        claims = read_claims(path)
        scores = predictions(tmp_path / "p.parquet", claims)
        schema = every_row(scores, given_rows(path, claims)).schema
        types.append({name: schema.field(name).type for name in ("n", "at") if name in schema.names})
    assert types == [{name: array.type for name, array in kinds.items()}, {"n": pa.string()}]


@pytest.mark.parametrize(
    ("name", "text", "n_bad"),
    [
        ("c.csv", 'claim,text,n,n\nA.,T.,1,2\nB.,T.\n\nC.,"T.,3,4\nD.,T.,5,6\n', 2),  # too few cells; a quote left open
        ("c.jsonl", '{"claim": "A.", "text": "T."}\n\n{cut\n7\n{"claim": "B.", "text": "T."}\n', 2),
        ("c.json", '[{"claim": "A.", "text": "T."}, {"claim": "B.", "text": "T."}, {', 1),
    ],
)
def test_damaged_rows_come_out_where_they_stood(tmp_path, name, text, n_bad):
    path = tmp_path / name
    path.write_text(text)
    claims = read_claims(path)
    own = given_rows(path, claims)
    assert len(list(own)) == len(claims.rows) == len(claims.pairs) + n_bad
    assert len(claims.rejected) == n_bad
    read = [row.values.get("claim") for row in own if row.claim.item in claims.pairs]
    assert read == [pair.claim for pair in claims.pairs]
    table = every_row(predictions(tmp_path / "p.parquet", claims), own)
    assert table["status"].to_pylist().count("bad") == n_bad
    assert len(set(table["pair_id"].to_pylist())) == len(list(own))


def test_a_table_of_a_folder_that_lacks_a_column_gives_each_of_its_rows_the_reason(tmp_path):
    (tmp_path / "d").mkdir()
    write(tmp_path / "d" / "a.csv", [{"claim": "A.", "text": "T."}])
    write(tmp_path / "d" / "b.csv", [{"claim": "B.", "film": "x"}, {"claim": "C.", "film": "y"}])
    claims = read_claims(tmp_path / "d")
    own = given_rows(tmp_path / "d", claims)
    assert [row.values["claim"] for row in own] == ["A.", "B.", "C."]
    table = every_row(predictions(tmp_path / "p.parquet", claims), own)
    assert [status == "bad" for status in table["status"].to_pylist()] == [False, True, True]


def test_a_column_of_ours_never_hides_one_of_the_users():
    assert own_names(["a", "status", "input_status"], ["status"]) == {
        "a": "a",
        "status": "input_input_status",
        "input_status": "input_status",
    }


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_rows_come_out_alike_however_many_are_in_memory(tmp_path, monkeypatch, at_once):
    path = write(tmp_path / "c.jsonl", [ROWS[i % 4] | {"note": str(i)} for i in range(11)])
    claims = read_claims(path)
    scores = predictions(tmp_path / "p.parquet", claims)
    whole = every_row(scores, given_rows(path, claims))
    write_scored_rows(tmp_path / "whole.csv", scores, given_rows(path, claims))
    for module in (scored_rows, own_columns):
        monkeypatch.setattr(module, "_ROWS_AT_ONCE", at_once)
    parts = every_row(scores, given_rows(path, claims), at_once)
    assert parts.schema.equals(whole.schema, check_metadata=True)
    assert repr(parts.to_pylist()) == repr(whole.to_pylist())  # NaN equals nothing
    write_scored_rows(tmp_path / "parts.csv", scores, given_rows(path, claims))
    assert (tmp_path / "parts.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_scores_of_other_rows_are_refused(tmp_path):
    path = write(tmp_path / "c.jsonl")
    claims = read_claims(path)
    table = pq.read_table(predictions(tmp_path / "p.parquet", claims))
    own = given_rows(path, claims)
    for tables in ([table.slice(1)], [table, table.slice(1)], [table.slice(0, 0)]):
        with pytest.raises(RowError, match="score the file again"):
            list(with_every_row(iter(tables), own))
    write(path, ROWS + ROWS[:1])
    with pytest.raises(RowError, match="changed while it was read"):
        list(with_every_row(iter([table]), own))


VALUES: list[list[Any]] = [
    [1, 2.5, None],
    [2**60, 3],
    [2**60, 0.5],
    [0.5, 2**60, 1],
    [2**63, 1],
    [True, 1],
    [1, "a"],
    [None, None],
    [[], [1], [0.5]],
    [{"a": 1}, {"b": "x"}, None],
    [{"a": 1}, {"a": "x"}],
    [[1], 1],
    ["a", None],
]


@pytest.mark.parametrize("values", VALUES, ids=str)
@pytest.mark.parametrize("at_once", [1, 100])
def test_a_type_fits_all_values_as_pyarrow_says_of_all_at_once(tmp_path, monkeypatch, values, at_once):
    """The rule before columns were read in parts: one array of all values, or JSON text where there is none."""
    path = write(tmp_path / "c.jsonl", [{"claim": "A.", "text": "T.", "v": value} for value in values])
    monkeypatch.setattr(own_columns, "_ROWS_AT_ONCE", at_once)
    monkeypatch.setattr(scored_rows, "_ROWS_AT_ONCE", at_once)
    claims = read_claims(path)
    found = every_row(predictions(tmp_path / "p.parquet", claims), given_rows(path, claims))["v"].combine_chunks()
    try:
        expected = pa.array(values)
        expected = expected.cast(pa.string()) if pa.types.is_null(expected.type) else expected
    except (pa.ArrowException, OverflowError):
        expected = pa.array([None if value is None else json.dumps(value) for value in values])
    assert found.equals(expected)
