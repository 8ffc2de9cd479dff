"""Merged shards give the bytes of one build, however they were dealt; what does not belong together is refused."""

import csv
import dataclasses
import json
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from nightly import first_of, only

from proofreel.core.errors import ConfigError, RowError
from proofreel.core.pairs import Pair, Passage
from proofreel.data_prep.build import main
from proofreel.data_prep.dataset.shards import read_manifest, write_pairs
from proofreel.data_prep.negatives.evidence_changes import AlteredEvidenceConfig
from proofreel.data_prep.pipeline import pipeline
from proofreel.data_prep.pipeline.config import (
    BuildConfig,
    LanguageModelConfig,
    NegativesConfig,
    SourceConfig,
    SplitsConfig,
)
from proofreel.data_prep.pipeline.pipeline import build, build_shard, merge_shards
from proofreel.data_prep.pipeline.sharding import Shard
from proofreel.data_prep.pipeline.staging import Staging

ACTIONS = ("chopping", "stirring", "frying", "washing", "pouring")
OBJECTS = ("carrot", "onion", "dough", "soup", "bread", "fish", "egg")
LONG = "pour the whole bowl of thick tomato soup over the bread"


def facts(path: Path, n: int, seed: int) -> str:
    """Videos of some segments each; videos that two files show, a long claim that groups share, repeats, bad rows."""
    draw = random.Random(seed)
    lines: list[dict[str, Any]] = []
    for number in range(n):
        start_s = 10.0 * draw.randrange(4)
        video = f"v{draw.randrange(n // 2) + seed * n // 4}.mp4"
        lines.append(
            {
                "id": f"{seed}-{number}",
                "video": video,
                "group": draw.choice([video, f"topic {draw.randrange(40)}"]),
                "start_s": start_s,
                "end_s": start_s + 5,
                "conceptual": {"Action": draw.choice(ACTIONS), "Object": draw.choice(OBJECTS)},
                "contextual": [f"lift the {draw.choice(OBJECTS)}", *([LONG] if number % 9 == 0 else [])],
                "negative_contextual": [f"break the {draw.choice(OBJECTS)}"],
            }
        )
    lines[3]["end_s"] = -1.0
    lines[7]["video"] = 7
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + "{broken\n", encoding="utf-8")
    return str(path)


def grounding(path: Path, n: int) -> str:
    """Judgments of claims of a few videos, some of them twice, some in conflict."""
    draw = random.Random(n)
    with path.open("w", newline="", encoding="utf-8") as file:
        names = ["Input.id", "Input.payload", "Answer.audio", "Answer.video", "Answer.ocr", "Answer.neither"]
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for number in range(n):
            ticks = [draw.random() < 0.8 for _ in range(2)]
            payload = {
                "Wiki_Title": f"Topic {draw.randrange(5)}",
                "Claim_Sentence": "A sentence.",
                "Extracted_Claims": [f"Claim {draw.randrange(9)}.", f"Claim {9 + draw.randrange(9)}."],
                "Video_Url": f"https://host/v{draw.randrange(3)}.mp4",
            }
            answers = {"audio": [False] * 2, "video": ticks, "ocr": ticks, "neither": [not tick for tick in ticks]}
            row = {"Input.id": f"t{number}", "Input.payload": json.dumps(payload)}
            writer.writerow(row | {f"Answer.{name}": json.dumps(value) for name, value in answers.items()})
    return str(path)


def stored(path: Path) -> str:
    """Rows that are ready, of several groups each line, with meta and numbers of every kind."""
    pairs = [
        Pair(
            f"p{n}",
            f"Passage {n % 11} is long.",
            (Passage(f"Text {n % 13}."),),
            ("supported", "refuted", None)[n % 3],
            group=f"g{n % 17}",
            meta={"tags": [n, None, "ä"]} if n % 2 else {},
            weight=n / 7,
        )
        for n in range(60)
    ]
    write_pairs(path, pairs)
    return str(path)


@pytest.fixture
def base(tmp_path: Path) -> BuildConfig:
    source = SourceConfig("facts", paths=(facts(tmp_path / "a.jsonl", 60, 0), facts(tmp_path / "b.jsonl", 50, 1)))
    return BuildConfig(str(tmp_path / "out"), (source,), media="absent", shortcut_probe=False, card=False)


def negatives(**changes: Any) -> NegativesConfig:
    return NegativesConfig(altered_by="rules", **changes)


EVERY = {"swapped_per_claim": 2, "altered_per_claim": 2}
CHANGES: dict[str, dict[str, Any]] = {
    "random, altered and evidence": {
        "negatives": negatives(
            altered_evidence=AlteredEvidenceConfig(other_time=1, shifted_span=1, swapped_citation=1), **EVERY
        ),
        "rows_per_shard": 400,
    },
    "balanced": {"negatives": negatives(balanced=True), "seed": 3},
    "held-out combinations": {"splits": SplitsConfig(0.6, 0.1, 0.15, 0.15, held_out_roles=("Action", "Object"))},
    "annotated alone": {
        "negatives": negatives(annotated=False, swapped_per_claim=0),
        "shortcut_probe": True,
        "card": True,
    },
}


def files(config: BuildConfig) -> dict[str, bytes]:
    folder = Path(config.output)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def one_build(config: BuildConfig) -> dict[str, bytes]:
    build(config, skip_invalid=True)
    whole = files(config)
    shutil.rmtree(config.output)
    return whole


def in_shards(config: BuildConfig, of: int, skip_invalid: bool = True) -> dict[str, bytes]:
    for number in range(of, 0, -1):
        build_shard(config, f"{number}/{of}")
    merge_shards(config, skip_invalid=skip_invalid)
    return files(config)


def n_rows(path: Path) -> int:
    return json.loads((path / "shard.json").read_text())["rows"]


@pytest.mark.parametrize("sharding", first_of(["groups", "files"]))
@pytest.mark.parametrize("change", only(("random, altered and evidence", "balanced"), CHANGES))
def test_merged_shards_have_every_byte_of_one_build(base, change, sharding):
    config = dataclasses.replace(base, sharding=sharding, **CHANGES[change])
    whole = one_build(config)
    assert in_shards(config, 2) == whole
    counts = read_manifest(config.output)["counts"]
    assert set(counts) == {"train", "validation", "calibration", "test", "all"}
    assert json.loads(whole["manifest.json"])["rejected"]["not valid JSON"] == 2
    assert all(n_rows(Shard(n, 2).directory(config.output)) > 50 for n in (1, 2))


@pytest.mark.parametrize("of", [1, 3])
@pytest.mark.parametrize("sharding", ["groups", "files"])
def test_judgments_are_merged_over_all_shards_whatever_their_number(base, tmp_path, of, sharding):
    sources = (
        SourceConfig("pairs", stored(tmp_path / "p.jsonl")),
        SourceConfig("grounding", paths=(grounding(tmp_path / "g.csv", 40), grounding(tmp_path / "h.csv", 30))),
        *base.sources,
    )
    config = dataclasses.replace(base, sources=sources, sharding=sharding)
    whole = one_build(config)
    manifest = json.loads(whole["manifest.json"])
    assert manifest["merged_repeats"] > 10
    assert manifest["rejected"]["judgments conflict"] > 10
    assert in_shards(config, of) == whole


def test_groups_that_only_other_shards_tie_go_into_one_split(tmp_path):
    same = "the very same long claim of many words is made of these two"
    pairs = [
        Pair(f"{n}", same if n in (0, 19) else f"Claim {n}.", (Passage(f"Text {n}."),), "supported", group=f"g{n}")
        for n in range(20)
    ]
    write_pairs(tmp_path / "p.jsonl", pairs)
    config = BuildConfig(str(tmp_path / "out"), (SourceConfig("pairs", str(tmp_path / "p.jsonl")),))
    shards = {n: [s for s in range(1, 6) if Shard(s, 5).has([_row(pairs[n])])] for n in (0, 19)}
    assert shards[0] != shards[19]
    in_shards(config, 5)
    manifest = read_manifest(config.output)
    assert (manifest["leaks"]["claims"], manifest["leaks"]["tied_groups"]) == (1, 2)
    assert "unusable_splits" in manifest


def _row(pair: Pair) -> Any:
    from proofreel.data_prep.importers.base import Row

    return Row(pair, "p.jsonl", 1, pair.id)


def write_clip(path: Path, value: int) -> None:
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=8)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"  # type: ignore[attr-defined]
        for _ in range(16):
            frame = av.VideoFrame.from_ndarray(np.full((32, 32, 3), value, np.uint8), format="rgb24")
            file.mux(stream.encode(frame))  # type: ignore[attr-defined]
        file.mux(stream.encode(None))  # type: ignore[attr-defined]


@pytest.fixture
def clips(tmp_path: Path) -> BuildConfig:
    """Eight clips, two of them the same file, one missing, one damaged, one shorter than its span."""
    lines = []
    for number in range(8):
        span = {"start_s": 0.0, "end_s": 60.0 if number == 4 else 1.0}
        lines.append({"video": f"v{number}.mp4", **span, "conceptual": {"Object": OBJECTS[number % 7]}})
        if number != 2:
            write_clip(tmp_path / f"v{number}.mp4", 0 if number == 7 else number * 30)
    lines.append({"video": "v0.mp4", "group": "another", "start_s": 0.0, "end_s": 1.5, "conceptual": {"Object": "pan"}})
    (tmp_path / "v3.mp4").write_bytes(b"no video")
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return BuildConfig(str(tmp_path / "out"), (SourceConfig("facts", str(path)),), shortcut_probe=False)


def test_media_are_opened_by_the_shards_alone(clips, monkeypatch):
    whole = one_build(clips)
    for number in (1, 2):
        build_shard(clips, f"{number}/2")
    monkeypatch.setattr(pipeline, "look_at_files", lambda *_: 1 / 0)
    manifest = merge_shards(clips, skip_invalid=True)
    assert files(clips) == whole
    assert len(manifest["rejected"]) == 3
    assert manifest["leaks"]["media"] == 1  # v0.mp4 is v7.mp4, and has a second group


def test_a_media_file_that_two_shards_found_different_is_named(clips, tmp_path):
    numbers = [n for n in range(1, 99) if len({Shard(s, n).has_file(0) for s in range(1, n + 1)})]
    of = next(n for n in numbers[1:] if _shard_of("v0.mp4", n) != _shard_of("another", n))
    for number in range(1, of + 1):
        build_shard(clips, f"{number}/{of}")
        if number == min(_shard_of("v0.mp4", of), _shard_of("another", of)):
            write_clip(tmp_path / "v0.mp4", 99)
    with pytest.raises(RowError, match=r"shard-\d+-of-\d+: the media file differs .*'v0.mp4'; give every machine"):
        merge_shards(clips, skip_invalid=True)


def _shard_of(group: str, of: int) -> int:
    row = _row(Pair("x", "C.", (Passage("T"),), group=group))
    return next(number for number in range(1, of + 1) if Shard(number, of).has([row]))


def test_bad_rows_of_all_shards_are_reported_together_by_the_merge(base, tmp_path, capsys):
    with pytest.raises(RowError) as one:
        build(base)
    listed = (tmp_path / "out.rejected.jsonl").read_bytes()
    (tmp_path / "out.rejected.jsonl").unlink()
    with pytest.raises(RowError) as merged:
        in_shards(base, 3, skip_invalid=False)
    assert str(merged.value) == str(one.value)
    assert (tmp_path / "out.rejected.jsonl").read_bytes() == listed
    assert not Path(base.output).exists()


def test_with_whole_files_a_machine_needs_only_its_own(base):
    config = dataclasses.replace(base, sharding="files")
    whole = one_build(config)
    kept = {Path(path): Path(path).read_bytes() for path in base.sources[0].paths}
    for number, (path, data) in enumerate(kept.items(), start=1):
        for other in kept:
            other.unlink(missing_ok=True)
        path.write_bytes(data)
        build_shard(config, f"{number}/2")
    path.unlink()
    merge_shards(config, skip_invalid=True)
    assert files(config) == whole


class Cut(BaseException):
    """A kill, seen from inside."""


def cut_off(patch: pytest.MonkeyPatch, after: int) -> None:
    commit, made = Staging.commit, [0]

    def counted(staging: Staging) -> None:
        made[0] += 1
        if made[0] > after:
            staging.db.rollback()
            raise Cut
        commit(staging)

    patch.setattr(Staging, "commit", counted)


@pytest.mark.parametrize("after", first_of([6, 1, 2, 3, 4, 9, 12, 16]))
def test_a_shard_and_a_merge_that_are_killed_go_on_to_the_same_bytes(base, monkeypatch, after):
    monkeypatch.setattr("proofreel.data_prep.pipeline.sources._BATCH", 50)
    monkeypatch.setattr("proofreel.data_prep.pipeline.merging._BATCH", 60)
    monkeypatch.setattr("proofreel.data_prep.pipeline.negatives._COMMIT_EVERY", 75)
    whole = one_build(base)
    with monkeypatch.context() as patch:
        cut_off(patch, after)
        with pytest.raises(Cut):
            in_shards(base, 1)
    assert not Path(base.output).exists()
    build_shard(base, "1/2")
    build_shard(base, "2/2")
    shutil.rmtree(Shard(1, 1).directory(base.output), ignore_errors=True)
    copied: list[int] = []
    with monkeypatch.context() as patch:
        cut_off(patch, after)
        with pytest.raises(Cut):
            merge_shards(base, skip_invalid=True)
    with monkeypatch.context() as patch:
        add = Staging.add_copies
        patch.setattr(Staging, "add_copies", lambda staging, rows: (copied.append(len(rows)), add(staging, rows)))
        merge_shards(base, skip_invalid=True)
    assert files(base) == whole
    every = sum(n_rows(Shard(number, 2).directory(base.output)) for number in (1, 2))
    assert sum(copied) < every or after < 4  # what was committed is not copied again


@pytest.mark.parametrize("after", first_of([8, 3, 7, 9]))
def test_a_build_that_is_killed_while_judgments_are_joined_goes_on_to_the_same_bytes(
    base, tmp_path, monkeypatch, after
):
    monkeypatch.setattr("proofreel.data_prep.pipeline.sources._BATCH", 30)
    source = SourceConfig("grounding", grounding(tmp_path / "g.csv", 60))
    config = dataclasses.replace(base, sources=(source,), negatives=negatives(swapped_per_claim=0))
    whole = one_build(config)
    joined: list[int] = []
    with monkeypatch.context() as patch:
        cut_off(patch, after)
        with pytest.raises(Cut):
            build(config, skip_invalid=True)
    with monkeypatch.context() as patch:
        read = Staging.joint_judgments
        patch.setattr(Staging, "joint_judgments", lambda *args: (joined.append(args[-1]), read(*args))[1])
        build(config, skip_invalid=True)
    assert files(config) == whole
    assert [place >= 0 for place in joined] == {3: [False], 7: [False], 8: [True], 9: []}[after]


def test_a_shard_that_was_killed_is_finished_by_the_same_command(base, monkeypatch):
    monkeypatch.setattr("proofreel.data_prep.pipeline.sources._BATCH", 50)
    whole = one_build(base)
    with monkeypatch.context() as patch:
        cut_off(patch, 3)
        with pytest.raises(Cut):
            build_shard(base, "1/2")
    assert not Shard(1, 2).directory(base.output).exists()
    assert in_shards(base, 2) == whole


@pytest.fixture
def shards(base: BuildConfig) -> list[Path]:
    """Three shards of one build."""
    return [build_shard(base, f"{number}/3")[0] for number in (1, 2, 3)]


def refused(config: BuildConfig, directories: list[Path], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        merge_shards(config, directories, skip_invalid=True)
    assert not Path(config.output).exists()


def test_shards_may_be_named_in_any_order(base, shards):
    whole = one_build(base)
    merge_shards(base, [shards[2], shards[0], shards[1]], skip_invalid=True)
    assert files(base) == whole


def test_a_missing_shard_is_named_with_the_command_that_makes_it(base, shards):
    words = r"out\.shard-2-of-3: shard 2 of 3 is missing, got \[1, 3\]; build it by --shard 2/3"
    refused(base, [shards[0], shards[2]], ConfigError, words)
    shutil.rmtree(shards[1])
    refused(base, [], ConfigError, words)


def test_a_shard_given_twice_is_named(base, shards, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(shards[1], copy)
    words = rf"copy: shard 2 of 3 is given twice, got {shards[1]} too; name each shard once"
    refused(base, [*shards, copy], ConfigError, words)


def test_a_shard_of_another_config_is_named_with_the_key(base, shards):
    other = dataclasses.replace(base, leaks=dataclasses.replace(base.leaks, claim_words=9))
    build_shard(other, "2/3")
    words = r"shard-2-of-3: made with other config, got leaks.claim_words=9 for 8; build it again by --shard 2/3"
    refused(base, shards, ConfigError, words)


def test_what_changes_no_shard_may_differ(base, shards, tmp_path):
    moved = dataclasses.replace(
        base, output=str(tmp_path / "moved"), probing=dataclasses.replace(base.probing, workers=7)
    )
    assert merge_shards(moved, shards, skip_invalid=True)["counts"]["all"]["rows"] > 100


def test_a_shard_of_other_code_is_named(base, shards):
    record = json.loads((shards[2] / "shard.json").read_text())
    record["made_by"]["av"] = "0.1"
    (shards[2] / "shard.json").write_text(json.dumps(record))
    refused(base, shards, ConfigError, r"shard-3-of-3: made with other code or libraries, got av=0.1 for .*--shard 3/3")


def test_shards_of_different_numbers_are_refused(base, shards):
    other, _ = build_shard(base, "1/2")
    refused(base, [*shards, other], ConfigError, r"shard-1-of-2: not a shard of the same number, got 1 of 2 beside")


@pytest.mark.parametrize("damage", ["cut short", "one byte", "gone", "record"])
def test_a_damaged_shard_is_named_with_the_remedy(base, shards, damage):
    file = shards[1] / ("shard.json" if damage == "record" else "rows.sqlite")
    data = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        middle = len(data) // 2
        file.write_bytes(
            data[:middle] + (b"" if damage != "one byte" else bytes([data[middle] ^ 1]) + data[middle + 1 :])
        )
    words = {"record": "shard.json: the record is damaged", "gone": "got no file; copy it again, or build it by"}
    refused(
        base, shards, RowError, rf"shard-2-of-3/.*{words.get(damage, 'got other bytes; copy it again, or build it')}"
    )


def test_what_is_no_shard_is_refused_and_never_replaced(base, shards, tmp_path):
    (tmp_path / "folder").mkdir()
    refused(base, [tmp_path / "folder"], ConfigError, r"folder: not a shard of a build, got no shard.json; make one by")
    refused(dataclasses.replace(base, output=str(tmp_path / "none")), [], ConfigError, "--merge: there are no shards")
    shutil.rmtree(shards[0])
    shards[0].mkdir()
    (shards[0] / "letter.txt").write_text("Dear")
    with pytest.raises(ConfigError, match="exists and is no shard"):
        build_shard(base, "1/3")
    assert (shards[0] / "letter.txt").read_text() == "Dear"


def test_sources_that_changed_between_shards_are_named(base, shards):
    with Path(base.sources[0].paths[0]).open("a") as file:
        file.write("\n")
    build_shard(base, "3/3")
    refused(base, shards, RowError, r"shard-3-of-3: read other bytes of .*a\.jsonl than .*shard-1-of-3, got")


@pytest.mark.parametrize("number", ["0/3", "4/3", "1", "1/0", "-1/2", "x/y", "1/2/3"])
def test_a_number_that_is_none_is_refused(base, number):
    with pytest.raises(ConfigError, match=r"--shard: must be i/n with i from 1 to n, got .*; the first of four is 1/4"):
        build_shard(base, number)


def test_statements_by_a_model_are_dealt_by_files(base, tmp_path):
    model = LanguageModelConfig(base_url="http://localhost:1/v1", model="m", cache_dir=str(tmp_path))
    source = SourceConfig("cgbench", base.sources[0].paths[0], statements="model")
    with pytest.raises(ConfigError, match=r"sharding: a model that writes statements .*set sharding to files"):
        build_shard(dataclasses.replace(base, sources=(source,), language_model=model), "1/2")


def test_the_command_says_what_a_shard_holds_and_overrides_may_follow_merge(base, tmp_path, capsys):
    yaml = tmp_path / "c.yaml"
    named = ", ".join(base.sources[0].paths)
    yaml.write_text(
        f"output: {base.output}\nmedia: absent\nshortcut_probe: false\ncard: false\n"
        f"sources: [{{format: facts, paths: [{named}]}}]\n"
    )
    for number in (1, 2):
        assert main(["--config", str(yaml), "--shard", f"{number}/2", "seed=4"]) == 0
    said = capsys.readouterr().out
    assert f"shard 2 of 2: {n_rows(Shard(2, 2).directory(base.output))} rows, 0 media files" in said
    assert "bad annotations: 1 x " in said
    assert main(["--config", str(yaml), "--merge", "seed=4"]) == 1
    assert "--skip-invalid" in capsys.readouterr().err
    directories = [str(Shard(number, 2).directory(base.output)) for number in (1, 2)]
    assert main(["--config", str(yaml), "--skip-invalid", "--merge", *directories, "seed=4"]) == 0
    assert files(base) == one_build(dataclasses.replace(base, seed=4))


def test_the_shard_s_file_is_one_whole_database(base, shards):
    assert sorted(path.name for path in shards[0].iterdir()) == ["rows.sqlite", "shard.json"]
    with sqlite3.connect(f"file:{shards[0] / 'rows.sqlite'}?mode=ro&immutable=1", uri=True) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert not Path(f"{shards[0]}.building").exists()
