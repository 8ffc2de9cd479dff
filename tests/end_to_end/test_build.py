"""A build is repeatable, keeps groups apart, reports all bad rows together, and is written completely or not at all."""

import dataclasses
import json
import shutil
from collections import Counter
from pathlib import Path

import av
import numpy as np
import PIL.Image
import pytest
from sounded_clips import sine, write_sounded

from proofreel.core.config import load_config
from proofreel.core.errors import ConfigError, RowError
from proofreel.core.pairs import Audio, Image, Pair, VideoSegment
from proofreel.data_prep.build import main
from proofreel.data_prep.dataset.shards import read_manifest, read_split, write_pairs
from proofreel.data_prep.negatives.swapped import swapped_negatives
from proofreel.data_prep.pipeline.config import (
    BuildConfig,
    LeaksConfig,
    NegativesConfig,
    ProbingConfig,
    SourceConfig,
    SplitsConfig,
)
from proofreel.data_prep.pipeline.pipeline import build
from proofreel.data_prep.pipeline.write import summary

ROOT = Path(__file__).resolve().parents[2]
TRAIN_ONLY = SplitsConfig(1.0, 0.0, 0.0, 0.0)


def annotation(number: int, **changes: object) -> dict:
    facts = {"Action": f"action{number}", "Object": f"object{number}"}
    base = {"video": f"v{number}.mp4", "start_s": 0.0, "end_s": 1.0, "conceptual": facts}
    return {**base, "negative_contextual": [f"break thing {number}"], **changes}


def write_annotations(folder: Path, *annotations: dict) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "annotations.jsonl"
    path.write_text("".join(json.dumps(a) + "\n" for a in annotations), encoding="utf-8")
    return path


def write_clip(path: Path, seconds: float = 2.0) -> None:
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=8)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"  # type: ignore[attr-defined]
        for number in range(int(seconds * 8)):
            frame = av.VideoFrame.from_ndarray(np.full((32, 32, 3), number, np.uint8), format="rgb24")
            file.mux(stream.encode(frame))  # type: ignore[attr-defined]
        file.mux(stream.encode(None))  # type: ignore[attr-defined]


@pytest.fixture
def ten(tmp_path: Path) -> BuildConfig:
    """An annotation-only build of ten videos."""
    path = write_annotations(tmp_path / "in", *(annotation(i) for i in range(10)))
    return BuildConfig(
        str(tmp_path / "out"), (SourceConfig("facts", str(path)),), media="absent", shortcut_probe=False, card=False
    )


def with_annotations(config: BuildConfig, *annotations: dict) -> BuildConfig:
    write_annotations(Path(config.sources[0].path or "").parent, *annotations)
    return config


def rejected(folder: Path) -> list[dict]:
    return [json.loads(line) for line in folder.read_text().splitlines()]


def everything(config: BuildConfig) -> list[Pair]:
    manifest = read_manifest(config.output)
    return [pair for split in manifest["shards"] for pair in read_split(config.output, split)]


def test_every_fact_arrives_with_its_swapped_negative_and_groups_stay_apart(ten):
    manifest = build(ten)
    pairs = everything(ten)
    assert Counter(p.origin for p in pairs) == {"annotated": 20, "negative_annotated": 10, "swapped_evidence": 14}
    assert manifest["left_out"] == {"swapped negatives without a segment": 6}  # three splits hold one group each
    splits: dict[str, set] = {}
    for pair in pairs:
        splits.setdefault(pair.group, set()).add(pair.split)
    assert {len(found) for found in splits.values()} == {1}
    assert set(manifest["shards"]) == {"train", "validation", "calibration", "test"}
    assert all(e.absent for p in pairs for e in p.evidence if isinstance(e, VideoSegment))


def test_a_relative_output_is_below_the_folder_one_is_in(ten, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build(dataclasses.replace(ten, output="runs/out"))
    assert read_split(tmp_path / "runs" / "out", "train") == read_split("runs/out", "train") != []


def test_the_staging_database_makes_the_swaps_that_would_be_made_in_memory(ten):
    with_annotations(ten, *(annotation(i, contextual=[f"lift box {i % 5}"]) for i in range(40)))
    build(dataclasses.replace(ten, splits=TRAIN_ONLY, negatives=NegativesConfig(swapped_per_claim=2)))
    pairs = read_split(ten.output, "train")
    annotated = [p for p in pairs if p.origin != "swapped_evidence"]
    made, missing = swapped_negatives(sorted(annotated, key=lambda p: int(p.group[1:-4])), 2)
    assert {p.id: p for p in made} == {p.id: p for p in pairs if p.origin == "swapped_evidence"}
    assert missing == 0
    assert len(made) == 2 * 40 * 3


def test_the_manifest_counts_what_is_there(ten):
    manifest = build(ten)
    pairs = everything(ten)
    assert manifest == read_manifest(ten.output)
    assert manifest["counts"]["all"]["rows"] == len(pairs)
    assert sum(shard["rows"] for shards in manifest["shards"].values() for shard in shards) == len(pairs)
    for name, column in (("label", "label"), ("role", "role"), ("origin", "origin"), ("modality", "modality")):
        assert manifest["counts"]["all"][name] == Counter(getattr(p, column) for p in pairs)
    assert manifest["counts"]["train"]["groups"] == len({p.group for p in pairs if p.split == "train"})
    assert [source["rows"] for source in manifest["sources"]] == [30]
    assert manifest["config"]["seed"] == manifest["seed"] == 0


def test_the_same_inputs_and_seed_give_the_same_bytes_and_another_seed_does_not(ten, tmp_path):
    shards = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        build(dataclasses.replace(ten, output=str(tmp_path / name), seed=seed))
        shards.append({path.name: path.read_bytes() for path in (tmp_path / name).glob("*.parquet")})
    assert shards[0] == shards[1] != shards[2]


def test_annotated_negatives_can_be_left_out_and_are_counted(ten):
    manifest = build(dataclasses.replace(ten, negatives=NegativesConfig(annotated=False, swapped_per_claim=0)))
    assert {p.origin for p in everything(ten)} == {"annotated"}
    assert manifest["left_out"] == {"annotated rows not asked for": 10}


def test_a_balanced_build_leaves_text_at_chance_in_every_split(tmp_path):
    annotations = [annotation(i) for i in range(24)]
    path = write_annotations(tmp_path / "in", *annotations)
    config = BuildConfig(
        str(tmp_path / "out"),
        (SourceConfig("facts", str(path)),),
        media="absent",
        negatives=NegativesConfig(balanced=True),
        splits=SplitsConfig(0.4, 0.2, 0.2, 0.2),
    )
    build(config)
    for split in ("train", "validation", "calibration", "test"):
        counts: Counter[str] = Counter()
        for pair in read_split(config.output, split):
            counts[pair.claim] += 1 if pair.label == "supported" else -1
        assert set(counts.values()) == {0}


def test_fixed_splits_are_honoured(ten):
    with_annotations(ten, *(annotation(i, split="test" if i < 3 else "train") for i in range(10)))
    build(ten)
    assert {p.group for p in read_split(ten.output, "test")} == {"v0.mp4", "v1.mp4", "v2.mp4"}
    assert set(read_manifest(ten.output)["shards"]) == {"train", "test"}


BAD = {
    "empty claim": ({"contextual": [" "]}, "claim is empty"),
    "reversed span": ({"start_s": 2.0}, "span is reversed or empty"),
    "unknown key": ({"captoin": "x"}, "unknown key"),
    "other label": (
        {"negative_conceptual": {"Action": "ACTION5"}},
        "the same claim and evidence have different labels",
    ),
    "two splits": ({"group": "v6.mp4", "split": "test"}, "group has two fixed splits"),
    "used id": ({"id": "taken"}, "id is used for different rows"),
}


@pytest.mark.parametrize("fault", sorted(BAD))
def test_a_bad_annotation_stops_the_build_and_is_listed_with_its_line(ten, fault):
    change, kind = BAD[fault]
    neighbours = {6: {"split": "train"}, 7: {"id": "taken"}}
    with_annotations(ten, *(annotation(i, **(change if i == 5 else neighbours.get(i, {}))) for i in range(10)))
    with pytest.raises(RowError, match=kind):
        build(ten)
    assert not Path(ten.output).exists()
    listed = rejected(Path(f"{ten.output}.rejected.jsonl"))
    assert 6 in {item["line"] for item in listed}
    assert {item["kind"] for item in listed} == {kind}
    assert all(item["file"] == ten.sources[0].path and item["reason"] for item in listed)


def test_an_id_used_with_both_labels_is_named_as_such(tmp_path):
    clip = (VideoSegment("a.mp4"),)
    write_pairs(tmp_path / "p.jsonl", [Pair("x", "A.", clip, "supported"), Pair("x", "A.", clip, "refuted")])
    with pytest.raises(RowError, match=r"id is used with different labels, got \['supported', 'refuted'\]"):
        build(BuildConfig(str(tmp_path / "out"), (SourceConfig("pairs", str(tmp_path / "p.jsonl")),), media="absent"))


def test_all_bad_rows_are_reported_together_and_skipping_them_keeps_the_rest(ten, capsys):
    faults = [annotation(20, contextual=[""]), annotation(21, start_s=3.0), annotation(22, lable=1)]
    with_annotations(ten, annotation(0), *faults, *(annotation(i) for i in range(1, 10)))
    with pytest.raises(RowError) as caught:
        build(ten)
    assert all(f"annotations.jsonl:{line}: " in str(caught.value) for line in (2, 3, 4))
    manifest = build(ten, skip_invalid=True)
    kinds = {"claim is empty": 1, "span is reversed or empty": 1, "unknown key": 1}
    assert manifest["rejected"] == kinds
    listed = rejected(Path(ten.output) / "rejected.jsonl")
    assert [(item["line"], item["pairs"]) for item in listed] == [(2, 1), (3, 3), (4, None)]
    assert not Path(f"{ten.output}.rejected.jsonl").exists()
    groups = {p.group for p in everything(ten)}
    assert groups == {f"v{i}.mp4" for i in range(10)} | {"v20.mp4"}


def test_only_the_first_twenty_are_shown_and_all_are_listed(ten):
    with_annotations(ten, *(annotation(i, end_s=-1.0) for i in range(30)))
    with pytest.raises(RowError, match="and 10 more") as caught:
        build(ten)
    assert str(caught.value).count("annotations.jsonl:") == 20
    assert len(rejected(Path(f"{ten.output}.rejected.jsonl"))) == 30


def test_nothing_left_is_an_error_not_an_empty_data_set(ten):
    with_annotations(ten, annotation(0, end_s=-1.0))
    with pytest.raises(RowError, match="no rows are left"):
        build(ten, skip_invalid=True)
    assert not Path(ten.output).exists()


def test_repeats_of_a_row_are_merged_and_counted(ten):
    with_annotations(ten, *(annotation(i) for i in range(10)), annotation(0, id="again"))
    assert build(ten)["merged_repeats"] == 3


def test_media_are_probed_and_every_fault_of_them_is_named(tmp_path):
    good, late, gone, broken = annotation(0), annotation(1, end_s=60.0), annotation(2), annotation(3)
    path = write_annotations(tmp_path / "in", good, late, gone, broken)
    for number in (0, 1):
        write_clip(tmp_path / "in" / f"v{number}.mp4")
    (tmp_path / "in" / "v3.mp4").write_bytes(b"no video")
    config = BuildConfig(str(tmp_path / "out"), (SourceConfig("facts", str(path)),), splits=TRAIN_ONLY)
    with pytest.raises(RowError):
        build(config)
    listed = rejected(tmp_path / "out.rejected.jsonl")
    kinds = [(2, "end_s is past the end of the video"), (3, "media file is missing"), (4, "media is unreadable")]
    assert [(item["line"], item["kind"]) for item in listed] == kinds
    assert {item["pairs"] for item in listed} == {3}
    manifest = build(config, skip_invalid=True)
    assert manifest["media"] == "required"
    segment = read_split(config.output, "train")[0].evidence[0]
    assert segment == VideoSegment(str((tmp_path / "in" / "v0.mp4").resolve()), 0.0, 1.0)


def test_images_are_opened_too(tmp_path):
    write_pairs(tmp_path / "p.jsonl", [Pair(name, "A.", (Image(f"{name}.png"),)) for name in ("good", "bad", "gone")])
    PIL.Image.new("RGB", (8, 8)).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes((tmp_path / "good.png").read_bytes()[:30])
    config = BuildConfig(str(tmp_path / "out"), (SourceConfig("pairs", str(tmp_path / "p.jsonl")),), splits=TRAIN_ONLY)
    manifest = build(config, skip_invalid=True)
    assert manifest["rejected"] == {"media file is missing": 1, "media is unreadable": 1}
    assert [pair.id for pair in read_split(config.output, "train")] == ["good"]


def test_sounds_are_heard_through_and_their_faults_named_while_silence_is_listed_and_kept(tmp_path):
    write_clip(tmp_path / "mute.mp4")
    write_sounded(tmp_path / "good.mp4", sine(440, 32_000, 16_000), 16_000, video=True)
    write_sounded(tmp_path / "silent.wav", np.zeros(16_000), 16_000)
    (tmp_path / "bad.wav").write_bytes((tmp_path / "silent.wav").read_bytes()[:30])
    evidence = {
        "good": VideoSegment("good.mp4", 0.0, 1.5, sound=True),
        "mute": VideoSegment("mute.mp4", 0.0, 1.5, sound=True),
        "seen": VideoSegment("mute.mp4", 0.0, 1.5),
        "silent": Audio("silent.wav"),
        "short": Audio("silent.wav", 0.5, 2.0),
        "late": Audio("good.mp4", 5.0, 6.0),
        "bad": Audio("bad.wav"),
        "gone": Audio("gone.wav"),
    }
    write_pairs(tmp_path / "p.jsonl", [Pair(name, f"{name} A.", (piece,)) for name, piece in evidence.items()])
    source = SourceConfig("pairs", str(tmp_path / "p.jsonl"))
    config = BuildConfig(str(tmp_path / "out"), (source,), splits=TRAIN_ONLY, probing=ProbingConfig(workers=1))
    manifest = build(config, skip_invalid=True)
    assert [pair.id for pair in read_split(config.output, "train")] == ["good", "seen", "silent"]
    listed = {item["id"]: item for item in rejected(tmp_path / "out" / "rejected.jsonl")}
    assert {name: item["kind"] for name, item in listed.items()} == {
        "mute": "media is unreadable",
        "silent": "its sound is silent",
        "short": "end_s is past the end of the sound",
        "late": "start_s is past the end of the sound",
        "bad": "media is unreadable",
        "gone": "media file is missing",
    }
    assert "mute.mp4: has no sound, got a file without an audio stream; fetch it" in listed["mute"]["reason"]
    assert (listed["silent"]["blocking"], listed["silent"]["pairs"]) == (False, 0)
    assert manifest["media_files"]["sound"] == {"files": 2, "silent": 1}
    assert manifest["media_files"]["files"]["videos"] == 2


def test_one_video_fixed_into_two_splits_is_refused_or_where_allowed_warned_of(ten):
    shared = [
        annotation(i, video="same.mp4", id=f"a{i}", group=f"g{i}", split=split)
        for i, split in ((0, "train"), (1, "test"))
    ]
    with_annotations(ten, *shared, *(annotation(i) for i in range(2, 10)))
    with pytest.raises(RowError, match=r"media file 'same.mp4': 'g0' \(.*:1\) in train, 'g1' \(.*:2\) in test"):
        build(ten, skip_invalid=True)
    manifest = build(dataclasses.replace(ten, leaks=LeaksConfig(media="allow")))
    assert manifest["media_in_several_splits"] == ["same.mp4"]
    assert "1 media files are in several splits, e.g. same.mp4" in summary(manifest, Path("x"))


def test_rows_marked_absent_are_refused_where_media_are_required(tmp_path):
    write_pairs(tmp_path / "p.jsonl", [Pair("x", "A.", (VideoSegment("a.mp4", absent=True),))])
    write_clip(tmp_path / "a.mp4")
    with pytest.raises(RowError, match="media is marked absent"):
        build(BuildConfig(str(tmp_path / "out"), (SourceConfig("pairs", str(tmp_path / "p.jsonl")),)))


def test_sources_in_different_folders_share_one_media_root(tmp_path):
    paths = [write_annotations(tmp_path / name, annotation(i)) for i, name in enumerate(("one", "two"))]
    for i, name in enumerate(("one", "two")):
        write_clip(tmp_path / name / f"v{i}.mp4")
    config = BuildConfig(
        str(tmp_path / "out"), (SourceConfig("facts", paths=tuple(map(str, paths))),), splits=TRAIN_ONLY
    )
    build(config)
    found = {
        Path(e.path) for p in read_split(config.output, "train") for e in p.evidence if isinstance(e, VideoSegment)
    }
    assert found == {(tmp_path / name / f"v{i}.mp4").resolve() for i, name in enumerate(("one", "two"))}


def test_a_failed_build_leaves_the_last_good_data_set_and_no_litter(ten, tmp_path):
    build(ten)
    before = (Path(ten.output) / "manifest.json").read_bytes()
    with_annotations(ten, annotation(0, end_s=-1.0))
    with pytest.raises(RowError):
        build(ten)
    assert (Path(ten.output) / "manifest.json").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out", "out.rejected.jsonl"}


def test_a_data_set_may_be_built_anew_but_nothing_else_is_overwritten(ten, tmp_path):
    build(ten)
    build(dataclasses.replace(ten, seed=5))
    assert read_manifest(ten.output)["seed"] == 5
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out"}
    with pytest.raises(ConfigError, match="exists and is no data set"):
        build(dataclasses.replace(ten, output=str(tmp_path / "in")))
    assert (tmp_path / "in" / "annotations.jsonl").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sources": ()}, "the list is empty"),
        ({"sources": (SourceConfig("facts"),)}, r"sources\[0\]: no file is named"),
        ({"sources": (SourceConfig("facts", "none.json"),)}, "no such annotation file, got none.json"),
        ({"sources": (SourceConfig("facts", "${NO_SUCH_VARIABLE}/a"),)}, "environment variable is unset"),
        ({"splits": SplitsConfig(train=1.0)}, "sum to 1"),
        ({"negatives": NegativesConfig(swapped_per_claim=-1)}, "must not be negative"),
    ],
)
def test_a_wrong_config_is_named_before_anything_is_read(ten, change, words):
    with pytest.raises(ConfigError, match=words):
        build(dataclasses.replace(ten, **change))


def test_the_command_prints_the_table_and_fails_with_status_one(ten, tmp_path, capsys):
    config = tmp_path / "c.yaml"
    config.write_text(
        f"output: {ten.output}\nmedia: absent\ncard: false\nsources: [{{format: facts, path: {ten.sources[0].path}}}]\n"
    )
    assert main(["--config", str(config), "seed=2"]) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("supported", "train", "calibration", "absent", ten.output))
    assert main(["--config", str(config), "sede=2"]) == 1
    assert "did you mean seed" in capsys.readouterr().err
    with_annotations(ten, annotation(0, end_s=-1.0), annotation(1))
    assert main(["--config", str(config)]) == 1
    assert "annotations.jsonl:1: " in capsys.readouterr().err
    assert main(["--config", str(config), "--skip-invalid", "seed=3"]) == 0
    assert "rejected: 1 x span is reversed or empty" in capsys.readouterr().out


def test_the_mirage_config_builds_all_judgments(shared_data, tmp_path, monkeypatch):
    monkeypatch.setenv("MIRAGE_DATA", str(shared_data / "mirage" / "grounding_judgments"))
    config = load_config(BuildConfig, ROOT / "configs" / "mirage_grounding_build.yaml", [f"output={tmp_path}/m"])
    manifest = build(config)
    # 8,755 judgments: 145 repeats merged, 4 pairs judged both ways kept out with their 8 judgments
    assert manifest["counts"]["all"]["rows"] == 8755 - 145 - 8
    assert (manifest["merged_repeats"], manifest["rejected"]) == (145, {"judgments conflict": 8})
    assert manifest["media_in_several_splits"] == []
    assert manifest["counts"]["all"]["groups"] == 10
    assert {source["rows"] for source in manifest["sources"]} == {2319, 2853, 3583}
    workers = b'"Turkle.Username"'
    assert not [path for path in (tmp_path / "m").iterdir() if path.is_file() and workers in path.read_bytes()]
    assert b"amart233" not in b"".join(path.read_bytes() for path in (tmp_path / "m").iterdir() if path.is_file())


def test_the_real_clips_build_with_media_and_every_sentence_balanced(shared_data, tmp_path, monkeypatch):
    monkeypatch.setenv("PROOFREEL_SHARED", str(shared_data.parent))
    config = load_config(BuildConfig, ROOT / "tests" / "data" / "clips_build.yaml", [f"output={tmp_path}/clips"])
    manifest = build(config)
    pairs = read_split(tmp_path / "clips", "train")
    assert manifest["counts"]["all"]["label"] == {"refuted": len(pairs) // 2, "supported": len(pairs) // 2}
    assert len({p.claim for p in pairs}) >= 60
    assert all(Path(e.path).is_file() for p in pairs for e in p.evidence if isinstance(e, VideoSegment))
    shutil.rmtree(tmp_path / "clips")


def test_altered_claims_of_captions_are_counted_with_the_reason(tmp_path):
    """A build of captions with altered_per_claim made nothing, and called that a lack of values."""
    videos = {
        f"v{i}": {
            "duration": 20.0,
            "subset": "training",
            "annotations": [{"id": 0, "segment": [1, 9], "sentence": f"cut onion {i}"}],
        }
        for i in range(8)
    }
    path = tmp_path / "captions.json"
    path.write_text(json.dumps({"database": videos}), encoding="utf-8")
    facts = write_annotations(tmp_path / "in", *(annotation(i, negative_contextual=[]) for i in range(3)))
    config = BuildConfig(
        str(tmp_path / "out"),
        (SourceConfig("youcook2", str(path)), SourceConfig("facts", str(facts))),
        negatives=NegativesConfig(swapped_per_claim=0, altered_per_claim=2, altered_by="rules"),
        media="absent",
        shortcut_probe=False,
        card=False,
    )
    left_out = build(config)["left_out"]
    (reason,) = (reason for reason in left_out if "neither facts nor verb phrases" in reason)
    assert left_out[reason] == 2 * len(videos)
    assert sum(number for other, number in left_out.items() if other != reason) <= 2 * 2 * 3


def test_numbers_beyond_64_bits_are_kept_as_floats(tmp_path):
    """JSON has integers of any length; SQLite has not, and the build ended in a traceback."""
    rows = [
        {"id": str(i), "claim": f"A{i} b.", "evidence": [{"kind": "passage", "text": f"x{i}"}], "group": str(i)}
        for i in range(4)
    ]
    rows = [row | {"label": "supported", "weight": 10**30, "teacher_margin": -(10**25)} for row in rows]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    source = SourceConfig("pairs", str(tmp_path / "a.jsonl"))
    none = NegativesConfig(swapped_per_claim=0)
    output = tmp_path / "out"
    build(BuildConfig(str(output), (source,), negatives=none, splits=TRAIN_ONLY, shortcut_probe=False, card=False))
    assert {(pair.weight, pair.teacher_margin) for pair in read_split(output, "train")} == {(1e30, -1e25)}
