"""proofreel run on a tiny base: annotations in, a published verifier out; killed in the middle, the same bytes."""

import fcntl
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, sft_arguments

from proofreel import run
from proofreel.cli import COMMANDS
from proofreel.core.storage import sha256_of
from proofreel.data_prep.dataset import read_split
from proofreel.eval.calibration import read_measuring
from proofreel.eval.scoring import read_predictions
from proofreel.models.directory import fingerprint
from proofreel.train import stages

TIMES = {"run.json", "metrics.jsonl", "steps.json", "trainer_state.json", "training_args.bin", "README.md"}


@pytest.fixture
def steps_run_here(monkeypatch):
    """Commands run in this process, which has imported what they need."""

    def run_here(command, lock):
        assert command[:3] == [sys.executable, "-m", "proofreel.cli"]
        return importlib.import_module(COMMANDS[command[3]][0]).main(list(command[4:])), 0

    monkeypatch.setattr(stages, "status_of", run_here)


@pytest.fixture
def config(colour_dataset, tiny_base, tmp_path) -> Path:
    build = yaml.safe_load((colour_dataset.parent / "build.yaml").read_text())
    words = sft_arguments(tiny_base, tmp_path, tmp_path, save_strategy="steps", save_steps=1)
    train = {name.removeprefix("--"): yaml.safe_load(v) for name, v in zip(words[::2], words[1::2], strict=True)}
    values = {
        "output": str(tmp_path / "out"),
        "build": {"options": {key: value for key, value in build.items() if key != "output"}},
        "train": {"options": {k: v for k, v in train.items() if k not in ("dataset_dir", "output_dir")}},
        "controls": ["mismatched-evidence"],
        "predict": {"options": {"device": "cpu"}},
        "report": {"clips": 0},
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(values))
    return tmp_path / "run.yaml"


def hashes(folder: Path) -> dict[str, str]:
    """Of every file that says nothing of times and machines; a checkpoint is no product."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in TIMES]
    return {str(p.relative_to(folder)): sha256_of(p) for p in files if "checkpoint-" not in str(p)}


def test_a_run_killed_in_training_comes_to_the_bytes_of_one_that_was_not(config, tmp_path, steps_run_here, capsys):
    assert run.main([str(config)]) == 0
    expected = hashes(tmp_path / "out")
    assert {"data/manifest.json", "test.parquet", "calibrated/calibration.json", "report/metrics.json"} <= set(expected)
    (tmp_path / "out").rename(tmp_path / "whole")

    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "proofreel.cli", "run", str(config)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 240
    while process.poll() is None and not list((tmp_path / "out" / "run").glob("checkpoint-*")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with (tmp_path / "out" / stages.LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the training, which was killed as well, has let go
    assert not (tmp_path / "out" / "run" / "draft").exists()

    capsys.readouterr()
    assert run.main([str(config)]) == 0
    said = capsys.readouterr().out
    assert "[1/8] build: done before" in said
    assert "--resume_from_checkpoint true" in said
    assert hashes(tmp_path / "out") == expected
    record = json.loads((tmp_path / "out" / "steps.json").read_text())
    assert all(entry["seconds"] is not None for name, entry in record["steps"].items() if name != "build")


def test_a_cross_fitted_run_publishes_a_verifier_and_the_report_is_out_of_fold(
    config, tmp_path, steps_run_here, capsys
):
    values = yaml.safe_load(config.read_text())
    values["build"]["options"]["splits"] = {"cross": 3, "validation": 0}
    values["train"]["options"] |= {"max_steps": 2, "save_strategy": "no"}
    config.write_text(yaml.safe_dump(values))
    assert run.main([str(config), "--until", "predict-test-fold-1"]) == 0
    before = hashes(tmp_path / "out" / "folds")
    capsys.readouterr()
    assert run.main([str(config)]) == 0
    assert capsys.readouterr().out.count("done before") == 5
    out = tmp_path / "out"
    assert {name: sha256 for name, sha256 in hashes(out / "folds").items() if name in before} == before

    rows, source = read_predictions(out / "test.parquet")
    data = out / "data"
    assert sorted(row.pair_id for row in rows) == sorted(pair.id for pair in read_split(data, "train"))
    for fold, sha256 in source["cross_fitted"]["folds"].items():
        draft = out / "folds" / fold / "run" / "draft"
        assert fingerprint(draft) == sha256
        trained = {p.group for p in read_split(data / "folds" / fold, "train")}
        assert not trained & {row.group for row in rows if row.split == fold}
    metrics = json.loads((out / "report" / "metrics.json").read_text())
    assert metrics["headline"]["n_groups"] == 16
    assert not metrics["watermark"]
    card = (out / "verifier" / "README.md").read_text()
    assert "this verifier was trained on all of them, and not tested itself" in card
    assert "out of fold (3 folds)" in card
    published, _ = read_predictions(out / "verifier" / "eval" / "predictions.parquet")
    calibration = read_measuring(out / "calibrated").calibration
    p = calibration.predict([row.margin for row in rows], calibration.group_keys(rows))
    assert [row.p_supported for row in published] == pytest.approx(p.tolist())
