"""A run that cross-fits: each fold is predicted by a verifier trained without it, a last one on all is published."""

import json
from pathlib import Path
from typing import Any

import pytest
from test_folds import config_of

from proofreel.core import ConfigError, from_mapping
from proofreel.data_prep.dataset import FOLDS, SCHEMA_VERSION
from proofreel.data_prep.pipeline import build
from proofreel.train import stages
from proofreel.train.run_config import RunConfig
from proofreel.train.run_steps import folds_of, plan_lines, refuse_unusable, run_steps, steps_of
from proofreel.train.stages import StageError

FOLD_STEPS = [f"{step} fold-{k}" for k in range(3) for step in ("train", "predict test")]
NAMES = ["build", *FOLD_STEPS, "join test", "calibrate", "report", "train", "export", "selftest"]


def run_config(folder: Path, splits: dict[str, Any], **changes: Any) -> RunConfig:
    (folder / "facts.json").write_text("[]")
    values: dict[str, Any] = {
        "output": str(folder / "out"),
        "build": {"options": {"sources": [{"format": "facts", "path": str(folder / "facts.json")}], **splits}},
        "train": {"options": {"model_name_or_path": "base"}},
    }
    return from_mapping(RunConfig, values | changes, "test")


def value_of(words: tuple[str, ...], option: str) -> str:
    return words[words.index(option) + 1]


def test_each_fold_is_predicted_by_the_verifier_that_was_trained_on_the_data_set_without_it(tmp_path):
    config = run_config(tmp_path, {"splits": {"cross": 3}}, controls=["claim-only", "zero-shot"])
    steps = {step.name: step.stage.command for step in steps_of(config)}
    out = tmp_path / "out"
    for k in range(3):
        data, run = out / "data" / FOLDS / f"fold-{k}", out / FOLDS / f"fold-{k}"
        for name, folder in (("train", "run"), ("train claim-only", "claim-only-run")):
            words = steps[f"{name} fold-{k}"]
            assert value_of(words, "--dataset_dir") == str(data)
            assert value_of(words, "--output_dir") == str(run / folder)
            assert ("--claim_only" in words) == (folder == "claim-only-run")
        for name, folder in (("test", "run"), ("claim-only", "claim-only-run")):
            words = steps[f"predict {name} fold-{k}"]
            assert value_of(words, "--data") == str(data)
            assert value_of(words, "--split") == "test"
            assert value_of(words, "--verifier") == str(run / folder / "draft")
            assert value_of(words, "--out") == str(run / f"{name}.parquet")
    drafts = [str(out / FOLDS / f"fold-{k}" / "claim-only-run" / "draft") for k in range(3)]
    words = steps["join claim-only"]
    assert list(words[words.index("--verifiers") + 1 : words.index("--predictions")]) == drafts
    assert "join test-zero-shot" in steps
    assert value_of(steps["calibrate"], "--predictions") == str(out / "test.parquet")
    assert value_of(steps["export"], "--verifier") == str(out / "run" / "draft")
    assert "train claim-only" not in steps  # the last one needs no control


@pytest.mark.parametrize("given", ["inline", "dotted", "file", "data"])
def test_folds_are_known_before_the_build_wherever_they_are_set(tmp_path, given):
    if given == "inline":
        config = run_config(tmp_path, {"splits": {"cross": 3}})
    elif given == "data":
        built = config_of(tmp_path, cross=3)
        build(built)
        config = run_config(tmp_path, {}, build=None, data=built.output)
    else:
        (tmp_path / "build.yaml").write_text(f"splits: {{cross: {3 if given == 'file' else 4}}}\n")
        options = {"splits.cross": 3} if given == "dotted" else {}
        config = run_config(tmp_path, {}, build={"config": str(tmp_path / "build.yaml"), "options": options})
    assert folds_of(config) == ("fold-0", "fold-1", "fold-2")
    assert [step.name for step in steps_of(config)] == NAMES[int(given == "data") :]


def test_a_run_stopped_in_a_fold_goes_on_there(tmp_path, monkeypatch):
    ran: list[list[str]] = []
    stop_at = ["fold-1/run"]

    def pretend(command: list[str], lock: int) -> tuple[int, int]:
        name, *words = command[3:]
        ran.append([name, *words])
        if name == "sft":
            run = Path(value_of(tuple(words), "--output_dir")) if "--output_dir" in words else tmp_path / "out" / "run"
            run.mkdir(parents=True, exist_ok=True)
            if stop_at and str(run).endswith(stop_at[0]):
                return -9, 0
            made = run / "draft" / "MANIFEST.sha256"
        else:
            out = Path(words[words.index("--out") + 1]) if "--out" in words else tmp_path / "out"
            last = {"build": "data/manifest.json", "calibrate": "fitted_rows.json", "report": "metrics.json"}
            made = out / (last | {"export": "card"}).get(name, "")
        made.parent.mkdir(parents=True, exist_ok=True)
        if name != "selftest":
            made.write_text(json.dumps({"schema_version": SCHEMA_VERSION, "command": command}))
        return 0, 0

    monkeypatch.setattr(stages, "status_of", pretend)
    config = run_config(tmp_path, {"splits": {"cross": 3}})
    with pytest.raises(StageError, match="train fold-1"):
        run_steps(config)
    assert [words[0] for words in ran] == ["build", "sft", "predict", "sft"]
    stop_at.clear()
    record = run_steps(config)
    assert ran[4][-2:] == ["--resume_from_checkpoint", "true"]
    assert list(record["steps"]) == NAMES
    assert len(ran) == len(NAMES) + 1
    assert sum(line.endswith(": done") for line in plan_lines(config)) == len(NAMES) - 1
    with pytest.raises(ConfigError, match=r"no longer fit: build, train fold-0, predict test fold-0, train fold-1"):
        run_steps(run_config(tmp_path, {"splits": {"cross": 3}, "seed": 5}))


def test_a_teacher_of_the_whole_data_set_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"train\.script: .*got distill with splits\.cross"):
        steps_of(run_config(tmp_path, {"splits": {"cross": 3}}, train={"script": "distill"}))


def test_a_control_that_needs_other_groups_of_the_fold_is_refused_before_training(tmp_path):
    config = config_of(tmp_path, 6, 6)
    build(config)
    with pytest.raises(ConfigError, match="mismatched-evidence takes another group's evidence of the same fold"):
        refuse_unusable(Path(config.output), ["mismatched-evidence"])
    refuse_unusable(Path(config.output), ["zero-shot", "claim-only"])
