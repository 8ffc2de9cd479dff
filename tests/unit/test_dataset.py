"""What is written is what is read, byte for byte the same for the same pairs; damage is named with its place."""

import dataclasses
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofreel.core.errors import RowError
from proofreel.core.pairs import Audio, Image, Pair, Passage, Transcript, VideoSegment
from proofreel.core.storage import sha256_of
from proofreel.data_prep.dataset.shards import read_manifest, read_pairs, read_split, shard_name, write_pairs
from proofreel.data_prep.pipeline.config import BuildConfig, SourceConfig, SplitsConfig
from proofreel.data_prep.pipeline.pipeline import build

SUFFIXES = ["parquet", "jsonl"]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
EVIDENCE = st.one_of(
    st.builds(VideoSegment, TEXT, st.floats(0, 1e6), st.none() | st.floats(0, 1e6), st.booleans(), st.booleans()),
    st.builds(Audio, TEXT, st.floats(0, 1e6), st.none() | st.floats(0, 1e6)),
    st.builds(Transcript, TEXT, st.none() | st.floats(0, 1e6)),
    st.builds(Image, TEXT),
    st.builds(Passage, TEXT),
)
PAIRS = st.builds(
    Pair,
    id=TEXT,
    claim=TEXT,
    evidence=st.lists(EVIDENCE, min_size=1, max_size=3).map(tuple),
    label=st.sampled_from(["supported", "refuted", "not_enough", None]),
    context=st.none() | TEXT,
    soft_label=st.none() | st.floats(0, 1),
    split=st.sampled_from(["train", "test", None]),
    group=TEXT,
    role=TEXT,
    weight=st.floats(0, 10),
    teacher_margin=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    meta=st.dictionaries(TEXT, st.none() | st.booleans() | st.integers(-5, 5) | TEXT | st.lists(TEXT, max_size=2)),
)
PAIR = Pair("r1", "Line\u2028separated.", (VideoSegment("a.mp4", 1.0, 2.5),), "supported", meta={"k": [1, None]})


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=60, deadline=None)
@given(pairs=st.lists(PAIRS, max_size=5))
def test_pairs_survive_the_disk_unchanged_and_give_equal_bytes(tmp_path_factory, suffix, pairs):
    folder = tmp_path_factory.mktemp("pairs")
    one, two = folder / f"one.{suffix}", folder / f"two.{suffix}"
    write_pairs(one, pairs)
    assert read_pairs(one) == pairs
    write_pairs(two, read_pairs(one))
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("meta", [{"k": {1, 2}}, {"k": float("nan")}, {"k": "half \ud83d"}])
def test_meta_that_is_not_json_is_refused_with_the_row(tmp_path, suffix, meta):
    with pytest.raises(RowError, match="'r1' is not JSON"):
        write_pairs(tmp_path / f"a.{suffix}", [dataclasses.replace(PAIR, meta=meta)])


def test_a_value_of_the_wrong_type_is_refused(tmp_path):
    with pytest.raises(RowError, match="wrong type"):
        write_pairs(tmp_path / "a.parquet", [dataclasses.replace(PAIR, claim=7)])


def test_other_suffixes_and_missing_files_are_refused(tmp_path):
    with pytest.raises(RowError, match=r"\.parquet or \.jsonl, got '\.csv'"):
        write_pairs(tmp_path / "a.csv", [PAIR])
    with pytest.raises(RowError, match="no such file"):
        read_pairs(tmp_path / "a.jsonl")


def lines_with(tmp_path: Path, *second: str | bytes) -> Path:
    path = tmp_path / "a.jsonl"
    write_pairs(path, [PAIR])
    more = [line if isinstance(line, bytes) else line.encode() for line in second]
    path.write_bytes(path.read_bytes() + b"\n".join(more))
    return path


GOOD = {"id": "r2", "claim": "c", "evidence": [{"kind": "passage", "text": "p"}]}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (json.dumps(GOOD)[:30], "not JSON"),
        (json.dumps({**GOOD, "claim": None}), "claim must be a str, got None"),
        (json.dumps({**GOOD, "id": 5}), "id must be a str, got 5"),
        (json.dumps({**GOOD, "evidence": None}), "evidence must be a list, got None"),
        (json.dumps({**GOOD, "lable": "x"}), r"unknown keys, got \['lable'\]"),
        (json.dumps({"id": "r2", "claim": "c"}), "required keys are missing"),
        (json.dumps([GOOD]), "must be an object"),
        (json.dumps(GOOD) + json.dumps(GOOD), "text after the record"),
        (json.dumps({**GOOD, "claim": "caf\xe9"}, ensure_ascii=False).encode("latin-1"), "not UTF-8"),
    ],
)
def test_a_damaged_line_is_named_with_file_and_line(tmp_path, line, words):
    path = lines_with(tmp_path, json.dumps(GOOD), line)
    with pytest.raises(RowError, match=words) as caught:
        read_pairs(path)
    assert str(caught.value).startswith(f"{path}:3: ")


def test_a_byte_order_mark_blank_lines_and_nulls_for_defaults_are_accepted(tmp_path):
    path = tmp_path / "a.jsonl"
    nulls = dict.fromkeys(("label", "group", "weight", "meta", "split"))
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({**GOOD, **nulls}).encode() + b"\r\n\n")
    assert read_pairs(path) == [Pair("r2", "c", (Passage("p"),))]


def test_parquet_of_other_writers_may_nest_evidence(tmp_path):
    rows = [{**GOOD, "meta": {"k": 1}}, {**GOOD, "id": "r3", "evidence": [{"kind": "video", "path": "a.mp4"}]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert [p.evidence for p in read_pairs(tmp_path / "a.parquet")] == [(Passage("p"),), (VideoSegment("a.mp4"),)]


def test_parquet_of_before_holds_evidence_as_text(tmp_path):
    rows = [{**GOOD, "evidence": json.dumps(GOOD["evidence"]), "meta": '{"k": 1}'}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert read_pairs(tmp_path / "a.parquet") == [Pair("r2", "c", (Passage("p"),), meta={"k": 1})]


@pytest.mark.parametrize(
    ("change", "words"),
    [({"extra": 1}, "unknown keys"), ({"claim": None}, "claim"), ({"meta": "{"}, "meta is not JSON")],
)
def test_a_damaged_parquet_row_is_named_with_its_number(tmp_path, change, words):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist([{**GOOD, "evidence": json.dumps(GOOD["evidence"]), **change}]), path)
    with pytest.raises(RowError, match=words) as caught:
        read_pairs(path)
    assert f"{path}:1: " in str(caught.value)


@pytest.mark.parametrize("cut", [0, 100])
def test_a_truncated_parquet_file_is_an_error(tmp_path, cut):
    path = tmp_path / "a.parquet"
    write_pairs(path, [PAIR])
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(RowError, match="not readable Parquet"):
        read_pairs(path)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with media and a data set in it."""
    (tmp_path / "tree" / "media").mkdir(parents=True)
    source = tmp_path / "tree" / "media" / "pairs.jsonl"
    image = tmp_path / "tree" / "media" / "still.png"
    pairs = [
        Pair(f"r{i}", f"Claim {i}.", (VideoSegment(f"v{i % 2}.mp4"), Image("still.png")), group="g") for i in range(4)
    ]
    write_pairs(source, pairs)
    image.touch()
    config = BuildConfig(
        output=str(tmp_path / "tree" / "set"),
        sources=(SourceConfig("pairs", str(source)),),
        media="absent",
        splits=SplitsConfig(1.0, 0.0, 0.0, 0.0),
    )
    build(config)
    return tmp_path / "tree"


def test_rows_that_share_evidence_lie_side_by_side(tree):
    assert [pair.id for pair in read_split(tree / "set", "train")] == ["r0", "r2", "r1", "r3"]


def test_pandas_and_datasets_open_the_evidence_of_a_built_data_set_as_nested_columns(tree, tmp_path):
    import datasets
    import pandas

    shard = tree / "set" / shard_name("train")
    frame = pandas.read_parquet(shard)
    assert [piece["path"] for piece in frame["evidence"][0]] == ["v0.mp4", "still.png"]
    rows = datasets.Dataset.from_parquet(str(shard), cache_dir=str(tmp_path / "cache"))
    assert isinstance(rows, datasets.Dataset)
    assert [(piece["kind"], piece["start_s"], piece["text"]) for piece in rows[2]["evidence"]] == [
        ("video", 0.0, None),
        ("image", None, None),
    ]


def test_media_paths_follow_a_moved_tree(tree, tmp_path):
    moved = tmp_path / "elsewhere"
    shutil.move(tree, moved)
    image = read_split(moved / "set", "train")[0].evidence[1]
    assert isinstance(image, Image)
    assert Path(image.path) == (moved / "media" / "still.png").resolve()
    assert Path(image.path).exists()


def test_a_split_that_is_not_there_is_an_error_that_names_those_that_are(tree):
    with pytest.raises(RowError, match=r"set: split is not in this data set, got 'test'; it has \['train'\]"):
        read_split(tree / "set", "test")


def test_the_manifest_vouches_for_every_shard(tree):
    manifest = read_manifest(tree / "set")
    for shards in manifest["shards"].values():
        assert [sha256_of(tree / "set" / shard["file"]) for shard in shards] == [shard["sha256"] for shard in shards]
    shard = tree / "set" / shard_name("train")
    write_pairs(shard, read_pairs(shard)[:-1])
    with pytest.raises(RowError, match="differs from its manifest, got other bytes"):
        read_split(tree / "set", "train")
    shard.unlink()
    with pytest.raises(RowError, match="got no file"):
        read_split(tree / "set", "train")


def test_a_folder_that_is_no_data_set_is_an_error(tmp_path):
    with pytest.raises(RowError, match="not a data set directory"):
        read_manifest(tmp_path)
    for text, words in (("{", "damaged"), ("{}", "damaged"), ('{"schema_version": 99}', "got 99")):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(RowError, match=words):
            read_manifest(tmp_path)
