"""proofreel init: what is guessed of annotations is a config that builds as it is; columns mean what they hold."""

import csv
import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from nightly import only

from proofreel import init, run
from proofreel.cli import COMMANDS
from proofreel.core.errors import RowError
from proofreel.core.pairs import SPLITS, Pair, Passage
from proofreel.data_prep.dataset.shards import read_manifest, read_split
from proofreel.data_prep.pipeline.build_guess import guess_splits, guess_swapped
from proofreel.data_prep.pipeline.source_guess import guess_source
from proofreel.train import presets, stages

SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kitchen" / "sample.mp4"


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """No card, and steps run in this process."""

    def run_here(command, lock):
        assert command[:3] == [sys.executable, "-m", "proofreel.cli"]
        return importlib.import_module(COMMANDS[command[3]][0]).main(list(command[4:])), 0

    monkeypatch.setattr(stages, "status_of", run_here)
    monkeypatch.setattr(presets, "card", lambda: None)


def built(annotations: Path, folder: Path, *more: str) -> dict[str, Any]:
    """The manifest of the data set that the written config gives."""
    config = folder / "my.yaml"
    words = [str(annotations), "--out", str(config), "--output", str(folder / "out"), *more]
    assert init.main(words) == 0
    assert run.main([str(config), "--until", "build"]) == 0
    return read_manifest(folder / "out" / "data")


def rows_of(n: int, **columns: Any) -> list[dict[str, Any]]:
    return [{name: value(i) for name, value in columns.items()} for i in range(n)]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_columns_of_a_table_are_guessed_and_the_config_builds(tmp_path, suffix):
    columns = {
        "uid": lambda i: i,
        "Statement": lambda i: f"The pan number {i} is red.",
        "Document": lambda i: f"Here the pan {i} is {'red' if i % 2 else 'blue'} and hot.",
        "Entailment": lambda i: ["No", "Yes"][i % 2],
        "remark": lambda i: "x",
    }
    path = write(tmp_path / f"mine{suffix}", rows_of(24, **columns))
    guess = guess_source(path)
    assert guess.format == "table"
    named = {name: guess.options[name] for name in ("claim", "passage", "label", "id")}
    assert named == {"claim": "Statement", "passage": "Document", "label": "Entailment", "id": "uid"}
    assert set(guess.options["labels"]) == {"No=refuted", "Yes=supported", "null=none"}
    manifest = built(path, tmp_path)
    assert manifest["counts"]["all"]["rows"] == 24
    assert {*SPLITS} < set(manifest["counts"])
    pairs = [p for split in SPLITS for p in read_split(tmp_path / "out" / "data", split)]
    assert sum(pair.label == "supported" for pair in pairs) == 12


def test_videos_are_looked_for_where_they_are_and_claims_without_labels_get_negatives(tmp_path):
    (tmp_path / "clips").mkdir()
    for i in range(8):
        shutil.copy(SAMPLE, tmp_path / "clips" / f"v{i}.mp4")
        with (tmp_path / "clips" / f"v{i}.mp4").open("ab") as file:
            file.write(bytes([0, 0, 0, 9]) + b"free" + bytes([i]))  # another file, the same frames
    columns = {"caption": lambda i: f"Pan {i} is red.", "clip": lambda i: f"v{i % 8}.mp4", "start": lambda i: 0.0}
    path = write(
        tmp_path / "captions.jsonl", [*rows_of(16, **columns), {"caption": "", "clip": "v0.mp4", "start": 0.0}]
    )
    manifest = built(path, tmp_path, "--media", str(tmp_path / "clips"))
    config = yaml.safe_load((tmp_path / "my.yaml").read_text())
    assert config["build"]["options"]["media_root"] == str(tmp_path / "clips")
    assert config["build"]["skip_invalid"] is True
    assert "1 bad rows" in (tmp_path / "my.yaml").read_text()
    assert set(manifest["counts"]["all"]["label"]) == {"supported", "refuted"}
    assert manifest["media"] == "required"


def test_media_that_are_not_there_are_said_and_the_config_still_builds(tmp_path):
    columns = {"claim": lambda i: f"Pan {i} is red.", "video": lambda i: f"v{i}.mp4", "label": lambda i: i % 2}
    manifest = built(write(tmp_path / "c.csv", rows_of(12, **columns)), tmp_path)
    assert manifest["media"] == "absent"
    assert "0 of 12 named files" in (tmp_path / "my.yaml").read_text()


def test_nothing_is_overwritten_and_what_cannot_be_guessed_is_one_sentence(tmp_path, capsys):
    path = write(tmp_path / "c.csv", [{"claim": "A.", "text": "B.", "label": 1}])
    (tmp_path / "my.yaml").write_text("mine")
    assert init.main([str(path), "--out", str(tmp_path / "my.yaml")]) == 1
    assert (tmp_path / "my.yaml").read_text() == "mine"
    assert "exists already" in capsys.readouterr().err
    for name, rows in (("a.csv", [{"q": "?", "text": "B."}]), ("b.csv", [{"claim": "A.", "q": "?"}])):
        with pytest.raises(RowError, match="no column looks like"):
            guess_source(write(tmp_path / name, rows))
    assert init.main([str(tmp_path / "none.csv"), "--out", str(tmp_path / "x.yaml")]) == 1
    assert not (tmp_path / "x.yaml").exists()


def test_splits_leave_every_split_two_groups_where_that_can_be():
    for n, least in ((3, 0), (10, 2), (400, 2)):
        way = guess_splits([Pair(f"{i}", "A.", (Passage(f"{i}"),), group=f"g{i}") for i in range(n)])
        assert min(way.groups.values()) >= least
        assert sum(way.groups.values()) == n
    assert "too few" in guess_splits([Pair("a", "A.", (Passage("x"),), group="g")]).remark


def test_negatives_are_drawn_where_there_are_hardly_any():
    def pairs(n_true: int, n_false: int) -> list[Pair]:
        labels = ["supported"] * n_true + ["refuted"] * n_false
        return [Pair(f"{i}", "A.", (Passage(f"{i}"),), label=x, group=f"{i}") for i, x in enumerate(labels)]  # type: ignore[arg-type]

    assert [guess_swapped(pairs(*counts))[0] for counts in ((10, 0), (10, 3), (10, 4), (1, 0))] == [1, 1, 0, 0]


def test_the_largest_preset_that_fits_is_taken():
    fits = {gib: Path(presets.guess_preset(("card", gib), False).config).stem for gib in (80.0, 24.0, 16.0, 8.0)}
    assert list(fits.values()) == ["qwen25vl_7b_lora", "qwen25vl_7b_qlora", "qwen25vl_3b_qlora", "qwen25vl_3b_qlora"]
    assert "NOTHING FITS" in presets.guess_preset(("card", 8.0), False).reason
    assert Path(presets.guess_preset(("card", 80.0), True).config).stem == "qwen25_7b_text_lora"
    without = presets.guess_preset(None, False)
    assert (Path(without.config).stem, without.on_card) == ("kitchen_sft", False)
    assert "no card" in without.reason


REAL = {
    "youcook2/youcookii_annotations_trainval.40videos.json": "youcook2",
    "cg-bench/cgbench_mini.8records.json": "cgbench",
    "mirage/grounding_judgments/all_qwen_72b_cag_claims-Batch_3398_results.csv": "grounding",
    "mirage/metric_preference/metric_prediction_qwen3_llm_annotator_1_DONE.json": "mirage_judgments",
    "benchmarks/vsr/zeroshot_dev.jsonl": "table",
    "video-clips/annotations.json": "facts",
}


@pytest.mark.parametrize("name", only([name for name in REAL if not name.startswith(("mirage", "video"))], REAL))
def test_real_annotations_are_recognised_and_build(shared_data, tmp_path, name):
    manifest = built(shared_data / name, tmp_path)
    config = yaml.safe_load((tmp_path / "my.yaml").read_text())
    assert config["build"]["options"]["sources"][0]["format"] == REAL[name]
    assert manifest["counts"]["all"]["rows"] > 40
