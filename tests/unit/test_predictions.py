"""Predictions survive the file bit for bit, and broken files and rows are named."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proofreel.core.errors import RowError
from proofreel.core.pairs import Passage, VideoSegment, evidence_key
from proofreel.eval.scoring.predictions import (
    Prediction,
    groups_of,
    labels_of,
    margins_of,
    read_predictions,
    write_predictions,
)

SCORED = Prediction(
    pair_id="v1#0",
    margin=float(np.float32(1.1)),
    p_supported=0.7502601055951177,
    label="supported",
    split="test",
    group="v1",
    role="Action",
    origin="annotated",
    modality="visual",
    claim="Die Tür öffnet sich — langsam.",
    evidence=evidence_key((VideoSegment("v1.mp4", 0.0, 2.5), Passage("naïve"))),
)
FAILED = dataclasses.replace(
    SCORED, pair_id="v1#1", margin=math.nan, p_supported=math.nan, label="refuted", error="v1.mp4: cannot be read"
)
UNJUDGED = dataclasses.replace(SCORED, pair_id="x#2", label=None, split=None, group="")


def test_predictions_and_source_come_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "new" / "test.parquet"
    source = {"verifier_fingerprint": "abc", "calibrated": False, "note": "ü", "nested": {"a": [1, None]}}
    write_predictions(path, [SCORED, FAILED, UNJUDGED], source)
    (scored, failed, unjudged), read_source = read_predictions(path)
    assert (scored, unjudged, read_source) == (SCORED, UNJUDGED, source)
    assert dataclasses.replace(failed, margin=0.0, p_supported=0.0) == dataclasses.replace(
        FAILED, margin=0.0, p_supported=0.0
    )
    assert math.isnan(failed.margin)
    assert math.isnan(failed.p_supported)


def test_no_predictions_are_a_valid_file(tmp_path: Path) -> None:
    write_predictions(tmp_path / "none.parquet", [], {})
    assert read_predictions(tmp_path / "none.parquet") == ([], {})


def test_margins_are_float32() -> None:
    margins = margins_of([dataclasses.replace(SCORED, margin=0.1)])
    assert margins.dtype == np.float64
    assert margins[0] == float(np.float32(0.1))
    assert margins[0] != 0.1


def test_the_binary_view_folds_refuted_and_not_enough_and_leaves_unjudged_rows_unknown() -> None:
    rows = [dataclasses.replace(SCORED, label=label) for label in ("supported", "refuted", "not_enough", None)]
    np.testing.assert_array_equal(labels_of(rows), [1, 0, 0, math.nan])


def test_rows_without_a_group_stand_alone() -> None:
    rows = [dataclasses.replace(UNJUDGED, pair_id="a"), dataclasses.replace(UNJUDGED, pair_id="b"), SCORED, FAILED]
    assert len(set(groups_of(rows))) == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"margin": math.nan}, "finite margin"),
        ({"margin": math.inf}, "finite margin"),
        ({"p_supported": 1.5}, "finite margin and a probability"),
        ({"error": "no video"}, "failed row has no score"),
        ({"label": "yes"}, "label is outside the vocabulary"),
        ({"group": None}, "missing"),
    ],
)
def test_a_row_that_is_neither_score_nor_failure_is_not_written(tmp_path: Path, change: dict, says: str) -> None:
    path = tmp_path / "bad.parquet"
    with pytest.raises(RowError, match=says) as caught:
        write_predictions(path, [SCORED, dataclasses.replace(SCORED, pair_id="second", **change)], {})
    assert str(path) in str(caught.value)
    assert "row 1 ('second')" in str(caught.value)
    assert not path.exists()


def test_a_pair_is_not_scored_twice(tmp_path: Path) -> None:
    with pytest.raises(RowError, match="occurs twice"):
        write_predictions(tmp_path / "x.parquet", [SCORED, SCORED], {})


def _rewrite(path: Path, change) -> None:
    pq.write_table(change(pq.read_table(path)), path)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda path: path.unlink(), "no such predictions file"),
        (lambda path: path.write_text("pair_id,margin\n"), "not a Parquet file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-20]), "not a Parquet file"),
        (lambda path: _rewrite(path, lambda t: t.drop_columns(["margin"])), "columns are missing"),
        (lambda path: _rewrite(path, lambda t: t.replace_schema_metadata({})), "not a predictions file"),
        (
            lambda path: _rewrite(path, lambda t: t.set_column(1, "margin", pa.array(["1.5"]))),
            "columns have wrong types",
        ),
        (
            lambda path: _rewrite(
                path, lambda t: t.replace_schema_metadata({"proofreel.predictions": '{"schema": 99, "source": {}}'})
            ),
            "upgrade proofreel",
        ),
        (lambda path: _rewrite(path, lambda t: t.set_column(3, "label", pa.array(["maybe"]))), "vocabulary"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, damage, says: str) -> None:
    path = tmp_path / "p.parquet"
    write_predictions(path, [SCORED], {})
    damage(path)
    with pytest.raises(RowError, match=says) as caught:
        read_predictions(path)
    assert str(path) in str(caught.value)
