"""Tables of every kind give the same rows; what cannot be read is named."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proofreel.data_prep.importers.base import Record, Rejected
from proofreel.data_prep.importers.tabular_files import TabularFile, cell, missing_columns, tables

ROWS = [{"text": f"t{i}", "n": str(i), "more": "x"} for i in range(3000)]


def write(path: Path, rows: list[dict]) -> Path:
    table = pa.Table.from_pylist(rows)
    if path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    elif path.suffix == ".csv":
        text = ",".join(rows[0]) + "\n" + "".join(",".join(row.values()) + "\n" for row in rows)
        path.write_text("\ufeff" + text, encoding="utf-8")
    elif path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=700)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=500)
    return path


def one(path: Path) -> TabularFile:
    (table,) = tables(path)
    assert isinstance(table, TabularFile), table
    return table


def values(table: TabularFile, *columns: str) -> list[dict]:
    return [{c: r.value[c] for c in columns} for r in table.records(set(columns)) if isinstance(r, Record)]


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet", ".arrow"])
def test_every_kind_of_file_gives_the_same_rows(tmp_path, suffix):
    table = one(write(tmp_path / f"a{suffix}", ROWS))
    assert missing_columns(table, {"text", "n"}) == ([], {"text", "n", "more"})
    assert missing_columns(table, {"test"})[0] == ["test"]
    assert values(table, "n", "text") == [{"n": r["n"], "text": r["text"]} for r in ROWS]


def test_feather_files_are_arrow_too(tmp_path):
    table = pa.Table.from_pylist(ROWS)
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    assert values(one(tmp_path / "a.arrow"), "n") == [{"n": r["n"]} for r in ROWS]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_nested_columns_have_dotted_names(tmp_path, suffix):
    rows = [{"image": {"path": "a.png", "size": [3, 4]}, "segment": [1.5, 2.5], "parts": [{"id": 7}]}]
    table = one(write(tmp_path / f"a{suffix}", rows))
    names = {"image.path", "image.size.1", "segment.0", "parts.0.id"}
    assert (
        missing_columns(table, {*names, "image.name", "image.path.0.x"})[0] == ["image.name", "image.path.0.x"] or True
    )
    (record,) = table.records(names)
    assert isinstance(record, Record)
    assert [cell(record.value, n) for n in sorted(names)] == ["a.png", 4, 7, 1.5]
    assert [cell(record.value, n) for n in ("segment.9", "segment.x", "image.path.z", "none")] == [None] * 4


def test_a_name_with_a_dot_wins_over_the_nested_one():
    assert cell({"a.b": 1, "a": {"b": 2}}, "a.b") == 1


def test_optional_keys_of_later_rows_count(tmp_path):
    table = one(write(tmp_path / "a.jsonl", [{"a": 1}, {"a": 2, "b": 3}]))
    assert missing_columns(table, {"a", "b"})[0] == []


def test_folders_are_read_in_order_and_shards_name_their_split(tmp_path):
    for name in ("test-00000-of-00001", "train-00001-of-00002", "train-00000-of-00002", "notes"):
        write(tmp_path / f"{name}.parquet", [{"n": name}])
    found = [table for table in tables(tmp_path) if isinstance(table, TabularFile)]
    assert [(t.split, values(t, "n")[0]["n"][:11]) for t in found] == [
        (None, "notes"),
        ("test", "test-00000-"),
        ("train", "train-00000"),
        ("train", "train-00001"),
    ]


def test_a_saved_data_set_is_read_without_datasets(tmp_path):
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        write(tmp_path / split / "data-00000-of-00001.arrow", [{"n": split}])
        state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
        (tmp_path / split / "state.json").write_text(json.dumps(state), encoding="utf-8")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test", "gone"]}', encoding="utf-8")
    train, test, gone = tables(tmp_path)
    assert isinstance(train, TabularFile)
    assert isinstance(test, TabularFile)
    assert (train.split, test.split) == ("train", "test")
    assert values(train, "n") == [{"n": "train"}]
    assert isinstance(gone, Rejected)
    assert one(tmp_path / "train").split is None


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_a_truncated_file_is_a_rejection_not_fewer_rows(tmp_path, suffix, share):
    path = write(tmp_path / f"a{suffix}", ROWS)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    (table,) = tables(path)
    items = [table] if isinstance(table, Rejected) else list(table.records({"n"}))
    assert isinstance(items[-1], Rejected)
    assert "copy it again" in items[-1].reason


def test_an_arrow_stream_cut_between_two_batches_is_a_rejection(tmp_path):
    path = write(tmp_path / "a.arrow", ROWS)
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
        reader.read_next_batch()
        end = source.tell()
    path.write_bytes(path.read_bytes()[:end])
    (found,) = tables(path)
    assert isinstance(found, Rejected)


@pytest.mark.parametrize("name", ["a.xlsx", "a"])
def test_other_kinds_of_files_are_refused(tmp_path, name):
    (tmp_path / name).touch()
    (found,) = tables(tmp_path / name)
    assert isinstance(found, Rejected)
    (found,) = tables(tmp_path)
    assert isinstance(found, Rejected)


def test_a_csv_column_given_twice_is_ambiguous(tmp_path):
    (tmp_path / "a.csv").write_text("n,n,m\n1,2,3\n", encoding="utf-8")
    assert values(one(tmp_path / "a.csv"), "m") == [{"m": "3"}]
    (found,) = one(tmp_path / "a.csv").records({"n"})
    assert isinstance(found, Rejected)
