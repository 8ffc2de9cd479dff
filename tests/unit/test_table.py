"""Any table becomes pairs by a column mapping; a value that means nothing is a rejection, never a guess."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proofreel.core.errors import ConfigError
from proofreel.core.pairs import Image, Pair, Passage, Transcript, VideoSegment, problems_of
from proofreel.data_prep.importers.base import Rejected, Row
from proofreel.data_prep.importers.table import TableOptions, read

ROW = {"claim": "A dog barks.", "label": "supported", "video": "dog.mp4"}
VIDEO = TableOptions(video="video")


def read_all(tmp_path: Path, *rows: object, options: TableOptions = VIDEO) -> list[Row | Rejected]:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return list(read(path, options))


def pair_of(tmp_path: Path, row: dict, **options) -> Pair:
    (found,) = read_all(tmp_path, row, options=TableOptions(**{"video": "video", **options}))
    assert isinstance(found, Row), found
    assert not problems_of(found.pair)
    return found.pair


def reason_of(tmp_path: Path, row: object, **options) -> str:
    (found,) = read_all(tmp_path, row, options=TableOptions(**{"video": "video", **options}))
    assert isinstance(found, Rejected), found
    assert found.line == 1
    return found.reason


def test_columns_become_the_fields_they_are_mapped_to(tmp_path):
    row = {"sent": "It rains.", "y": 1, "f": {"name": "a.mp4", "span": ["0:05", 7.5]}, "asr": "Rain!", "para": "Long."}
    row |= {"topic": 12, "kind": "Event", "part": "dev", "key": 3, "w": 0.5, "p": 0.9, "url": "u"}
    options = {"claim": "sent", "label": "y", "video": "f.name", "start": "f.span.0", "end": "f.span.1"}
    options |= {"transcript": "asr", "context": "para", "group": "topic", "role": "kind", "split": "part", "id": "key"}
    options |= {"weight": "w", "soft_label": "p", "labels": ("1=supported", "0=not_enough"), "keep": ("url",)}
    pair = pair_of(tmp_path, row, **options, splits=("dev=validation",), constants=("origin=mine",))
    assert pair == Pair(
        id="3",
        claim="It rains.",
        evidence=(VideoSegment("a.mp4", 5.0, 7.5), Transcript("Rain!", 5.0, 7.5)),
        label="supported",
        context="Long.",
        soft_label=0.9,
        split="validation",
        group="12",
        role="Event",
        origin="mine",
        modality="mixed",
        weight=0.5,
        meta={"url": "u"},
    )


@pytest.mark.parametrize(
    ("field", "evidence", "modality"),
    [("image", Image("x"), "visual"), ("passage", Passage("x"), "text"), ("transcript", Transcript("x"), "audio")],
)
def test_every_kind_of_evidence_may_stand_alone(tmp_path, field, evidence, modality):
    pair = pair_of(tmp_path, {"claim": "C.", "label": "refuted", "e": "x"}, video="", **{field: "e"})
    assert (pair.evidence, pair.modality) == ((evidence,), modality)
    assert pair.group == ("x" if field == "image" else pair.group) != ""


@pytest.mark.parametrize(
    ("value", "spec"),
    [(1, "1"), (1.0, "1"), (True, "true"), (None, "null"), ("yes", "yes"), (0.5, "0.5"), ("a=b", "a=b"), ("1", "1")],
)
def test_label_values_are_named_by_their_json_text(tmp_path, value, spec):
    assert pair_of(tmp_path, {**ROW, "label": value}, labels=(f"{spec}=refuted",)).label == "refuted"


def test_an_unknown_label_lists_the_known_ones(tmp_path):
    for value in ("Supported", 2, None, float("nan"), {"a": 1}, True):
        reason = reason_of(tmp_path, {**ROW, "label": value}, labels=("1=supported", "0=refuted"))
        assert "known values are ['1', '0']" in reason
    assert "['supported', 'refuted', 'not_enough']" in reason_of(tmp_path, {**ROW, "label": "yes"})


def test_rows_nobody_judged_are_taken_only_when_said_so(tmp_path):
    assert pair_of(tmp_path, {**ROW, "label": None}, labels=("null=none",)).label is None
    assert pair_of(tmp_path, ROW, label="").label is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(3, 3.0), (2.5, 2.5), ("4.5", 4.5), ("1:05", 65.0), ("90:00", 5400.0), ("1:02:03.5", 3723.5), ("00:07", 7.0)],
)
def test_times_are_seconds_or_clock_times(tmp_path, value, seconds):
    assert pair_of(tmp_path, {**ROW, "s": value}, start="s").evidence == (VideoSegment("dog.mp4", seconds),)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "nan", "1:75", "1:75:00", "soon", True, [1], "1e999"])
def test_a_time_that_is_none_is_a_rejection(tmp_path, value):
    assert "end must be seconds" in reason_of(tmp_path, {**ROW, "e": value}, end="e")


def test_nulls_have_a_meaning_for_each_field(tmp_path):
    names = ("start", "end", "context", "role", "split", "weight", "soft_label", "id", "passage")
    pair = pair_of(tmp_path, {**ROW, **dict.fromkeys(names)}, **{name: name for name in names})
    plain = pair_of(tmp_path, ROW)
    assert pair == plain
    assert (plain.evidence, plain.split, plain.weight) == ((VideoSegment("dog.mp4"),), None, 1.0)
    for field in ("claim", "group"):
        assert f"{field} must be text" in reason_of(
            tmp_path, {**ROW, field: None}, group=field if field != "claim" else ""
        )
    assert "no evidence" in reason_of(tmp_path, {**ROW, "video": ""})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"claim": 3}, "claim must be text"),
        ({"claim": " "}, "claim must be text"),
        ({"video": {"bytes": "x" * 999}}, "video must be text"),
        ({"w": float("nan")}, "weight must be a finite number"),
        ({"w": "heavy"}, "weight must be a finite number"),
        ({"part": "dev"}, "split is unknown"),
        ({"k": float("nan")}, "kept column"),
    ],
)
def test_a_damaged_row_is_one_short_rejection(tmp_path, change, reason):
    row = {**ROW, "w": 1, "part": "test", "k": 1, **change}
    found = reason_of(tmp_path, row, weight="w", split="part", keep=("k",))
    assert reason in found
    assert len(found) < 300


def test_a_damaged_line_hides_no_other(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(f"\ufeff{json.dumps(ROW)}\n{{\n3\n{json.dumps({**ROW, 'claim': 'B.'})}", encoding="utf-8")
    assert [type(item) for item in read(path, VIDEO)] == [Row, Rejected, Rejected, Row]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_a_missing_column_is_one_rejection_naming_the_nearest(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([ROW] * 9), path)
    elif suffix == ".csv":
        path.write_text("claim,label,video\n" + "A.,supported,a.mp4\n" * 9, encoding="utf-8")
    else:
        path.write_text("\n".join([json.dumps(ROW)] * 9), encoding="utf-8")
    (found,) = read(path, TableOptions(claim="clam", video="video"))
    assert isinstance(found, Rejected)
    assert "'clam' (did you mean 'claim'?)" in found.reason


def test_ids_come_from_the_content_and_not_from_the_place(tmp_path):
    rows = [ROW, {**ROW, "claim": "B."}, {**ROW, "video": "cat.mp4"}]
    forward, backward = (
        {row.pair.id: row.pair for row in read_all(tmp_path, *order) if isinstance(row, Row)}
        for order in (rows, rows[::-1])
    )
    assert forward == backward
    assert len(forward) == 3


def test_an_empty_csv_cell_is_null(tmp_path):
    (tmp_path / "a.csv").write_text('claim,label,video,start\n"A, b.",1,a.mp4,\nC.,,a.mp4,0:04\n', encoding="utf-8")
    options = TableOptions(video="video", start="start", labels=("1=supported", "null=none"))
    first, second = (row.pair for row in read(tmp_path / "a.csv", options) if isinstance(row, Row))
    assert (first.claim, first.label, first.evidence) == ("A, b.", "supported", (VideoSegment("a.mp4"),))
    assert (second.label, second.evidence) == (None, (VideoSegment("a.mp4", 4.0),))


def test_parquet_rows_count_from_one(tmp_path):
    rows = [{**ROW, "claim": f"{n}.", "start": [n, None][n % 2]} for n in range(5)] + [{**ROW, "start": float("nan")}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=2)
    found = list(read(tmp_path / "a.parquet", TableOptions(video="video", start="start")))
    assert [item.line for item in found] == [1, 2, 3, 4, 5, 6]
    assert [type(item) for item in found] == [Row] * 5 + [Rejected]


def test_a_data_set_saved_by_datasets_gives_its_rows_and_splits(tmp_path):
    import datasets

    parts = {name: datasets.Dataset.from_list([{**ROW, "claim": f"{name}."}] * 2) for name in ("train", "test")}
    shuffled = (
        datasets.Dataset.from_list([{**ROW, "claim": f"{n}."} for n in range(9)]).shuffle(seed=1).select(range(3))
    )
    datasets.DatasetDict({**parts, "validation": shuffled}).save_to_disk(tmp_path / "saved")
    found = list(read(tmp_path / "saved", TableOptions(video="video", split="_split")))
    assert [row.pair.split for row in found if isinstance(row, Row)] == ["train"] * 2 + ["test"] * 2 + [
        "validation"
    ] * 3
    assert [row.pair.claim for row in found[4:] if isinstance(row, Row)] == shuffled["claim"][:]
    (missing,) = read(tmp_path / "saved" / "train", TableOptions(video="video", split="_split"))
    assert isinstance(missing, Rejected)


@pytest.mark.parametrize(
    "options",
    [
        TableOptions(),
        TableOptions(claim="", video="v"),
        TableOptions(passage="p", start="s"),
        TableOptions(video="v", labels=("1",)),
        TableOptions(video="v", labels=("1=yes",)),
        TableOptions(video="v", labels=("1=supported", "1=refuted")),
        TableOptions(video="v", constants=("colour=red",)),
        TableOptions(video="v", constants=("label=yes",)),
        TableOptions(video="v", role="r", constants=("role=x",)),
    ],
)
def test_options_that_contradict_themselves_are_refused(tmp_path, options):
    with pytest.raises(ConfigError):
        read_all(tmp_path, ROW, options=options)


def test_a_constant_label_needs_no_column(tmp_path):
    (found,) = read_all(
        tmp_path, {"claim": "A.", "video": "v"}, options=TableOptions(video="video", constants=("label=refuted",))
    )
    assert isinstance(found, Row)
    assert found.pair.label == "refuted"


def test_the_real_clip_annotations_are_read_by_a_mapping(shared_data):
    path = shared_data / "video-clips" / "annotations.json"
    options = TableOptions(
        "caption", "", "video", "start_s", "end_s", role="conceptual.Action", constants=("label=supported",)
    )
    rows = [row for row in read(path, options) if isinstance(row, Row)]
    assert len(rows) == 22
    assert not [p for row in rows for p in problems_of(row.pair)]
