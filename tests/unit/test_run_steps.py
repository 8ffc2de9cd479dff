"""proofreel run: the steps are commands of their own, done once, and made anew only where their settings changed."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from proofreel import run
from proofreel.core.config import from_mapping
from proofreel.core.errors import ConfigError
from proofreel.data_prep.dataset import SCHEMA_VERSION
from proofreel.train import stages
from proofreel.train.run_config import RunConfig
from proofreel.train.run_steps import RECORD, cost_command, plan_lines, run_steps, steps_of
from proofreel.train.stages import StageError

NAMES = ["build", "train", "predict calibration", "calibrate", "predict test", "report", "export", "selftest"]
TRAINING = {"model_name_or_path": "base", "learning_rate": 1e-3}
CONTROLS = ["zero-shot", "mismatched-evidence", "claim-only"]


@pytest.fixture
def values(tmp_path) -> dict[str, Any]:
    (tmp_path / "facts.json").write_text("[]")
    return {
        "output": str(tmp_path / "out"),
        "build": {"options": {"sources": [{"format": "facts", "path": str(tmp_path / "facts.json")}], "seed": 1}},
        "train": {"options": TRAINING},
        "calibrate": {"method": "platt"},
    }


def config_of(values: dict[str, Any], **changes: Any) -> RunConfig:
    return from_mapping(RunConfig, values | changes, "test")


@pytest.fixture
def commands(tmp_path, monkeypatch) -> list[list[str]]:
    """Commands that would have run; each leaves the file that it makes last, with itself in it."""
    ran: list[list[str]] = []

    def pretend(command: list[str], lock: int) -> tuple[int, int]:
        name, *words = command[3:]
        ran.append([name, *words])
        out = Path(words[words.index("--out") + 1]) if "--out" in words else tmp_path / "out"
        made = {"build": "data/manifest.json", "sft": "run/draft/MANIFEST.sha256", "calibrate": "fitted_rows.json"}
        made |= {"nli": made["sft"], "report": "metrics.json", "export": "card", "predict": ""}
        if name in made:
            path = out / made[name]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"schema_version": SCHEMA_VERSION, "command": command}))
        return 0, 0

    monkeypatch.setattr(stages, "status_of", pretend)
    return ran


def test_the_steps_come_in_order_each_as_a_command_on_the_products_of_those_before(values, tmp_path):
    steps = steps_of(config_of(values))
    assert [step.name for step in steps] == NAMES
    made: set[str] = {str(tmp_path / "out" / name) for name in ("build.yaml", "train.yaml")}
    for step in steps:
        words = step.stage.command
        assert words[1:3] == ("-m", "proofreel.cli")
        read = [word for word in words[3:] if str(tmp_path / "out") in word]
        known = [w for w in read if w in made or str(Path(w).parent) in made or any(w in m for m in made)]
        assert set(read) - set(known) <= {str(p) for p in step.products}, step.name
        made |= {str(path) for path in step.products}
    with_controls = [step.name for step in steps_of(config_of(values, controls=CONTROLS))]
    assert with_controls == [*NAMES[:2], "train claim-only", *NAMES[2:5], "predict claim-only", *NAMES[5:]]


def test_every_printed_command_is_the_one_that_runs(values, commands, capsys):
    run_steps(config_of(values))
    printed = [line[2:] for line in capsys.readouterr().out.splitlines() if line.startswith("$ ")]
    assert [shlex.split(line) for line in printed] == [["proofreel", *command] for command in commands]
    assert len(printed) == len(NAMES)


def test_what_is_done_is_not_done_again_and_the_verifier_is_tested_every_time(values, commands, capsys):
    run_steps(config_of(values), until="calibrate")
    assert [command[0] for command in commands] == ["build", "sft", "predict", "calibrate"]
    record = run_steps(config_of(values))
    assert [command[0] for command in commands[4:]] == ["predict", "report", "export", "selftest"]
    assert list(record["steps"]) == NAMES
    assert all(entry["seconds"] is not None for entry in record["steps"].values())
    said = capsys.readouterr().out
    assert said.count("done before") == 4
    assert "[4/8] calibrate took 0:00:00\n" in said
    assert "[5/8] predict test took 0:00:00; next: report\n" in said
    run_steps(config_of(values))
    assert [command[0] for command in commands[8:]] == ["selftest"]


@pytest.mark.parametrize(
    ("change", "key", "stale"),
    [
        ({"build": {"options": {"seed": 2}}}, "build.options.s", NAMES[:7]),
        ({"train": {"options": TRAINING | {"learning_rate": 2e-3}}}, "train.options.l", NAMES[1:7]),
        (
            {"train": {"script": "nli", "options": {"model_name_or_path": "base", "learning_rate": 1e-3}}},
            "train.script",
            NAMES[1:7],
        ),
        ({"predict": {"options": {"windowing": "max:8:4"}}}, "predict.options.w", NAMES[2:7]),
        ({"calibrate": {"method": "auto"}}, "calibrate.method", NAMES[3:7]),
        ({"report": {"title": "Other"}}, "report.title", NAMES[5:7]),
        ({"export": {"license": "mit"}}, "export.license", NAMES[6:7]),
    ],
)
def test_a_changed_setting_names_what_no_longer_fits_and_again_makes_that_anew(values, commands, change, key, stale):
    run_steps(config_of(values))
    changed = config_of(values, **change)
    for attempt in (lambda: run_steps(changed), lambda: plan_lines(changed)):
        with pytest.raises(ConfigError) as found:
            attempt()
        assert str(found.value).startswith(key)
        assert f"no longer fit: {', '.join(stale)}." in str(found.value)
    before = len(commands)
    run_steps(changed, again=stale[0].replace(" ", "-"))
    assert len(commands) - before == len(stale) + 1
    run_steps(changed)


@pytest.mark.parametrize("change", [{"predict": {"options": {"device": "cuda:1"}}}, {"selftest": {"dtype": "float32"}}])
def test_settings_by_which_no_byte_differs_may_change(values, commands, change):
    run_steps(config_of(values))
    run_steps(config_of(values, **change))
    assert [command[0] for command in commands[8:]] == ["selftest"]


def test_other_annotations_make_the_data_set_stale(values, commands, tmp_path):
    run_steps(config_of(values))
    (tmp_path / "facts.json").write_text("[{}]")
    with pytest.raises(ConfigError, match=r"facts\.json: build was done with another file"):
        run_steps(config_of(values))


def test_a_step_that_was_stopped_is_begun_again_and_training_goes_on(values, commands, tmp_path, monkeypatch):
    start = stages.status_of

    def stop(command: list[str], lock: int) -> tuple[int, int]:
        if command[3] == "sft":
            (tmp_path / "out" / "run").mkdir(parents=True, exist_ok=True)
            return -9, 0
        return start(command, lock)

    monkeypatch.setattr(stages, "status_of", stop)
    with pytest.raises(StageError, match="train: the command failed, got status -9") as found:
        run_steps(config_of(values))
    assert found.value.status == 137
    monkeypatch.setattr(stages, "status_of", start)
    run_steps(
        config_of(values, train={"options": {"model_name_or_path": "other"}})
    )  # nothing was trained by the old one
    trained = next(command for command in commands if command[0] == "sft")
    assert trained[-2:] == ["--resume_from_checkpoint", "true"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"build": None}, "build: it or data is needed"),
        ({"data": "x"}, "build: it or data is needed"),
        ({"train": {"config": "nowhere.yaml"}}, r"train\.config: no such file"),
        ({"train": {"launch": []}}, r"train\.launch: holds no word"),
        ({"train": {"options": {"output-dir": "x"}}}, r"train\.options\.output-dir: is set by the run"),
        ({"export": {"out": "x"}}, r"export\.out: is set by the run"),
        ({"controls": ["blind"]}, r"controls\[0\] is not one of"),
    ],
)
def test_what_cannot_work_is_refused_by_its_key(values, change, message):
    with pytest.raises(ConfigError, match=message):
        config_of(values, **change)


def test_a_config_of_its_own_file_takes_its_options_on_the_command_line(values, tmp_path):
    (tmp_path / "b.yaml").write_text(yaml.safe_dump({"output": "x", "sources": values["build"]["options"]["sources"]}))
    (tmp_path / "t.yaml").write_text(yaml.safe_dump({"model_name_or_path": "base"}))
    parts = {
        "build": {"config": str(tmp_path / "b.yaml"), "options": {"seed": 3}},
        "train": {
            "config": str(tmp_path / "t.yaml"),
            "options": {"use_peft": True},
            "launch": ["accelerate", "launch"],
        },
    }
    build, train, *_ = (step.stage.command for step in steps_of(config_of(values, **parts)))
    assert build[3:] == ("build", "--config", str(tmp_path / "b.yaml"), f"output={tmp_path / 'out' / 'data'}", "seed=3")
    assert train[:2] == ("accelerate", "launch")
    assert Path(train[2]).name == "sft.py"
    assert train[3:7] == ("--config", str(tmp_path / "t.yaml"), "--use_peft", "true")


def test_without_trl_nothing_is_built_that_could_not_be_trained_on(values, commands, tmp_path, monkeypatch, capsys):
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(values))
    monkeypatch.setitem(sys.modules, "trl", None)
    assert run.main([str(tmp_path / "run.yaml")]) == 1
    assert 'train: needs packages that are not installed, got no trl; run pip install "proofreel[train]"' in (
        capsys.readouterr().err
    )
    assert not commands
    assert run.main([str(tmp_path / "run.yaml"), "--until", "build"]) == 0
    assert [command[0] for command in commands] == ["build"]


def test_the_command_plans_without_running_and_ends_with_what_comes_next(values, commands, tmp_path, capsys):
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(values))
    assert run.main([str(tmp_path / "run.yaml"), "--plan"]) == 0
    assert not commands
    said = capsys.readouterr().out
    assert [line.split("] ")[1] for line in said.splitlines() if line.startswith("[")] == NAMES
    assert "cost          not known before the data set is built" in said
    assert cost_command(config_of(values), "a100", 2.0) is None
    assert yaml.safe_load((tmp_path / "out" / "build.yaml").read_text())["seed"] == 1
    assert run.main([str(tmp_path / "run.yaml"), "calibrate.method=auto"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-1].startswith(f"next         proofreel score {tmp_path / 'out' / 'verifier'} ")
    words = cost_command(config_of(values), "a100", 2.0)
    assert words
    assert words[3:5] == ("sft", "--config")
    assert words[6:] == ("--validate_only", "true", "--card", "a100", "--price", "2.0")
    record = json.loads((tmp_path / "out" / RECORD).read_text())
    assert record["steps"]["calibrate"]["command"].endswith("--method auto")
    assert run.main([str(tmp_path / "run.yaml")]) == 1
    assert "calibrate.method" in capsys.readouterr().err
    assert run.main([str(tmp_path / "run.yaml"), "--until", "training"]) == 1
