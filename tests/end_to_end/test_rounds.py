"""Rounds of mining: one command trains, judges, mines and trains anew, and goes on where it was stopped."""

import dataclasses
import importlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from conftest import ROOT, sft_arguments
from training_runs import adapter, with_rows

from proofreel.cli import COMMANDS
from proofreel.core.config import from_mapping, load_config
from proofreel.core.errors import ConfigError, RowError
from proofreel.core.storage import sha256_of
from proofreel.data_prep.dataset.shards import MANIFEST, read_manifest, read_split, write_pairs
from proofreel.data_prep.negatives.hard_mining import MiningConfig
from proofreel.data_prep.negatives.swapped import swapped_negatives
from proofreel.eval.scoring.predictions import read_predictions
from proofreel.train import stages
from proofreel.train.rounds import main
from proofreel.train.rounds_config import RoundsConfig, as_options, as_words, flat
from proofreel.train.rounds_loop import round_folder, run_rounds, stages_of, write_mine_config
from proofreel.train.stages import StageError

SCRIPTS = ("data_prep", "train", "eval")
TRUSTED = ["annotated", "swapped_evidence"]


@pytest.fixture(scope="module")
def pool(colour_dataset, tmp_path_factory):
    """The colour clips; of each true claim of train, two or three false candidates."""
    true = [p for p in read_split(colour_dataset, "train") if p.label == "supported"]
    swapped, _ = swapped_negatives(true, 3)
    assert len(swapped) >= 2 * len(true)
    folder = with_rows(colour_dataset, tmp_path_factory.mktemp("pool") / "pool", [*true, *swapped])
    for split in ("validation", "calibration", "test"):  # their clips are named from where they lie now
        with_rows(colour_dataset, folder, read_split(colour_dataset, split), split)
    return folder


@pytest.fixture(scope="module", autouse=True)
def stages_run_here():
    """What is written in Python runs in this process, which has imported it; launchers and shells stay processes."""
    start = stages.status_of

    def run_here(command, lock):
        parts = Path(command[1]).with_suffix("").parts[-2:] if len(command) > 1 else ()
        if command[0] != sys.executable or not parts or parts[0] not in SCRIPTS:
            return start(command, lock)
        return importlib.import_module(".".join(("proofreel", *parts))).main(list(command[2:])), 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "status_of", run_here)
        yield


@pytest.fixture
def values(pool, tiny_base, tmp_path):
    return settings_for(pool, tiny_base, tmp_path)


def settings_for(pool: Path, base: Path, folder: Path) -> dict:
    """A configuration, as its file holds it."""
    words = sft_arguments(base, pool, folder / "nowhere", max_steps=2)
    given = {name.removeprefix("--"): yaml.safe_load(v) for name, v in zip(words[::2], words[1::2], strict=True)}
    given["save_strategy"] = "no"  # a word, in YAML a false
    (folder / "sft.yaml").write_text(yaml.safe_dump(given))
    return {
        "data": str(pool),
        "output": str(folder / "rounds"),
        "rounds": 1,
        "train": {"script": "sft", "config": str(folder / "sft.yaml")},
        "mining": {"trusted_origins": TRUSTED},
        "predict": {"options": {"device": "cpu"}},
    }


def config_of(values, **changes) -> RoundsConfig:
    return from_mapping(RoundsConfig, values | changes, "test")


def write(values, folder: Path) -> str:
    (folder / "rounds.yaml").write_text(yaml.safe_dump(values))
    return str(folder / "rounds.yaml")


def test_the_kitchens_config_loads_and_its_command_is_known(monkeypatch):
    monkeypatch.chdir(ROOT)
    config = load_config(RoundsConfig, "configs/kitchen_rounds.yaml", ["train.options.learning_rate=1e-4", "rounds=3"])
    assert config.train.options["learning_rate"] == "1e-4"
    assert (config.rounds, config.mining.hard_share) == (3, 0.75)
    assert COMMANDS["rounds"][0] == "proofreel.train.rounds"


def test_the_library_imports_no_torch():
    code = "import sys, proofreel.train.rounds_loop; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": -1}, "rounds: must not be negative, got -1"),
        ({"train": {"script": "sft", "config": "nowhere.yaml"}}, r"train\.config: no such file, got nowhere\.yaml"),
        ({"train": {"script": "distill", "config": "x"}}, r"train\.script is not one of"),
        ({"mining": {"hard_sharee": 0.5}}, r"got mining\.hard_sharee; did you mean mining\.hard_share"),
        ({"calibrate": {"out": "elsewhere"}}, r"calibrate\.out: is set by the rounds"),
        ({"predict": {"options": {"zero-shot": "x"}}}, r"predict\.options\.zero-shot: is set by the rounds"),
        ({"predict": {"launch": []}}, r"predict\.launch: holds no word"),
    ],
)
def test_what_cannot_work_is_refused_by_its_key_before_anything_runs(values, changes, message):
    with pytest.raises(ConfigError, match=message):
        config_of(values, **changes)


@pytest.mark.parametrize("name", ["dataset_dir", "output-dir", "seed", "resume_from_checkpoint"])
def test_options_that_the_rounds_set_cannot_be_given(values, name):
    with pytest.raises(ConfigError, match=rf"train\.options\.{name}: is set by the rounds"):
        config_of(values, train=values["train"] | {"options": {name: 1}})


def test_options_become_the_words_a_user_would_type():
    options = {"learning_rate": 1e-4, "use_peft": True, "lora_parts": ["a", "b"], "deepspeed": None}
    assert as_options(options) == ["--learning_rate", "0.0001", "--use_peft", "true", "--lora_parts", "a", "b"]
    assert as_options({"lr_scheduler_kwargs": {"num_cycles": 2}}) == ["--lr_scheduler_kwargs", '{"num_cycles": 2}']
    flags = {"frame_cache": "x", "allow": True, "not_this": False, "nor_this": None, "objective": ["f1", "mcc"]}
    assert as_words(flags) == ["--frame-cache", "x", "--allow", "--objective", "f1", "mcc"]
    assert flat({"a": {"b": 1, "c": {}}, "d": [2]}) == {"a.b": 1, "d": [2]}


def test_every_round_trains_the_same_way_from_the_same_base(values):
    config = config_of(
        values, train=values["train"] | {"options": {"max_steps": 3}, "launch": ["accelerate", "launch"]}
    )
    commands = [next(s for s in stages_of(config, number) if s.name == "train").command for number in (0, 1)]
    folders = [str(round_folder(config, number)) for number in (0, 1)]
    assert commands[1] == tuple(word.replace(folders[0], folders[1]) for word in commands[0])
    assert commands[0][:2] == ("accelerate", "launch")
    assert "adapter" not in " ".join(commands[1])


def test_round_0_is_random_without_a_teacher_and_the_last_one_teaches_nobody(values):
    config = config_of(values, mining={"positives": 4, "positive_share_hard": 0.5, "hard_share": 0.5})
    first, second = (yaml.safe_load(write_mine_config(config, number).read_text()) for number in (0, 1))
    assert (first["predictions"], first["mining"]["hard_share"]) == (None, 0.0)
    assert MiningConfig(**first["mining"] | {"trusted_origins": ()}).positive_share_hard is None
    assert second["predictions"] == str(round_folder(config, 0) / "teacher.parquet")
    assert second["mining"]["hard_share"] == 0.5
    names = [[stage.name for stage in stages_of(config, number)] for number in (0, 1)]
    assert names[1] == ["data", "train", "predict calibration", "calibrate"]
    assert names[0] == [*names[1], "predict train", "teach"]


def test_a_stage_that_fails_stops_the_rounds_with_its_status_and_command(values, tmp_path, capsys):
    values["train"]["launch"] = ["sh", "-c", "exit 7"]
    assert main(["--config", write(values, tmp_path)]) == 7
    said = capsys.readouterr()
    assert "round 0, train: the command failed, got status 7 from `sh -c 'exit 7'" in said.err
    assert "$ python" in said.out
    assert (tmp_path / "rounds" / "round-0" / "data" / MANIFEST).is_file()
    values["train"]["launch"] = ["sh", "-c", "kill -TERM $$"]
    with pytest.raises(StageError) as found:
        run_rounds(config_of(values, output=str(tmp_path / "other")))
    assert found.value.status == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("answer", ["ends", "finishes"])
def test_a_signal_is_passed_on_to_the_training_and_its_status_is_the_rounds(values, tmp_path, number, answer):
    draft = tmp_path / "rounds" / "round-0" / "run" / "draft"
    name = signal.Signals(number).name.removeprefix("SIG")
    trap = f"trap 'exit 7' {name}" if answer == "ends" else f"trap 'mkdir -p {draft}; exit 0' {name}"
    script = f"{trap}; kill -{name} $PPID; for i in $(seq 1200); do sleep 0.05; done; exit 9"
    values["train"]["launch"] = ["sh", "-c", script]

    def not_passed_on(*_):
        raise AssertionError(f"{name} did not reach the training")

    before = signal.signal(number, not_passed_on)
    try:
        with pytest.raises(StageError, match=f"round 0, train: the rounds were stopped, got SIG{name}") as found:
            run_rounds(config_of(values))
        assert signal.getsignal(number) is not_passed_on
    finally:
        signal.signal(number, before)
    assert found.value.status == (7 if answer == "ends" else 128 + number)
    assert not draft.parent.with_name("calibration.parquet").exists()


def test_a_launcher_that_is_not_there_or_makes_nothing_is_told(values):
    values["train"]["launch"] = ["true"]
    with pytest.raises(StageError, match="round 0, train: the command failed, got status 0") as found:
        run_rounds(config_of(values))
    assert found.value.status == 1
    values["train"]["launch"] = ["no-such-launcher"]
    with pytest.raises(ConfigError, match="launch: cannot be run, got 'no-such-launcher'"):
        run_rounds(config_of(values))


def test_a_changed_configuration_is_refused_by_its_key_and_what_changes_nothing_is_not(values, tmp_path):
    begun = tmp_path / "rounds" / "round-0" / "run"
    values["train"] |= {"launch": ["sh", "-c", f"mkdir -p {begun}; exit 1"], "options": {"max_steps": 3}}

    def go(**changes):
        run_rounds(config_of(values, **changes))

    with pytest.raises(StageError):
        go()
    (begun.parent / "calibration.parquet").touch()  # as if scoring had gone that far
    train, file = values["train"], tmp_path / "sft.yaml"
    for changes, message in (
        ({"seed": 1}, r"seed: the rounds in .* began with 0, got 1; set it back"),
        ({"mining": {"trusted_origins": TRUSTED, "guard_p": 0.9}}, r"mining\.guard_p: .* began with 0\.95, got 0\.9"),
        ({"train": train | {"options": {"max_steps": 4}}}, r"train\.options\.max_steps: .* began with 3, got 4"),
        ({"train": train | {"options": {}}}, r"train\.options\.max_steps: .* began with 3, got None"),
        ({"train": train | {"launch": ["true"]}}, r"train\.launch: .* began with \['sh', .* got \['true'\]"),
        ({"predict": {"options": {"windowing": "max:8:4"}}}, r"predict\.options\.windowing: .* began with None"),
    ):
        with pytest.raises(ConfigError, match=message):
            go(**changes)
    (begun.parent / "calibration.parquet").unlink()
    with pytest.raises(StageError):
        go(rounds=4, predict={"options": {"device": "cuda:1", "batch_tokens": 9}})
    file.write_text(file.read_text().replace("learning_rate: 0.01", "learning_rate: 0.02"))
    with pytest.raises(ConfigError, match=r"train\.config: learning_rate: .* began with 0\.01, got 0\.02"):
        go()


def test_a_stage_that_made_nothing_can_be_mended_and_one_that_did_cannot(values, tmp_path):
    values["train"]["launch"] = ["false"]
    broken = values | {"train": values["train"] | {"options": {"max_stepss": 3}}, "calibrate": {"methodd": "platt"}}
    folder = tmp_path / "rounds" / "round-0"

    def go(values, **changes):
        run_rounds(config_of(values, **changes))

    with pytest.raises(StageError):
        go(broken)
    with pytest.raises(StageError):  # not refused: nothing was trained or calibrated with what was wrong
        go(values, calibrate={"method": "platt"})
    (folder / "calibrated").mkdir()
    with pytest.raises(ConfigError, match=r"calibrate\.method: the rounds in .* began with 'platt', got 'beta'"):
        go(values, calibrate={"method": "beta"})
    mining = values["mining"] | {"unscored": "keep"}
    with pytest.raises(StageError):  # round 0 is drawn blindly: only a later round is mined with it
        go(values, calibrate={"method": "platt"}, mining=mining)
    (tmp_path / "rounds" / "round-1" / "data").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"mining\.unscored: .* began with 'keep', got 'refuse'"):
        go(values, calibrate={"method": "platt"})


def test_paths_may_name_the_home_and_variables(values, pool, monkeypatch):
    monkeypatch.setenv("POOL", str(pool.parent))
    values["train"]["launch"] = ["false"]
    with pytest.raises(StageError):
        run_rounds(config_of(values, data=f"$POOL/{pool.name}"))
    with pytest.raises(ConfigError, match=r"data: an environment variable is unset, got \$NOT_SET/x"):
        run_rounds(config_of(values, data="$NOT_SET/x"))


def test_another_data_set_and_rounds_without_a_record_are_refused(values, tmp_path, pool):
    values["train"]["launch"] = ["false"]
    with pytest.raises(StageError):
        run_rounds(config_of(values))
    other = with_rows(pool, tmp_path / "other", read_split(pool, "train")[1:])
    with pytest.raises(ConfigError, match=r"data: manifest_sha256: the rounds in .* began with"):
        run_rounds(config_of(values, data=str(other)))
    (tmp_path / "rounds" / "rounds.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"rounds\.json: is no record of rounds"):
        run_rounds(config_of(values))
    (tmp_path / "rounds" / "rounds.json").unlink()
    with pytest.raises(ConfigError, match=r"output: holds rounds without their rounds\.json"):
        run_rounds(config_of(values))


def test_while_a_command_outlives_its_killed_rounds_nobody_begins_beside_it(values, tmp_path):
    script = f"touch {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 3"
    values["train"]["launch"] = ["sh", "-c", script]
    words = [sys.executable, str(ROOT / "train" / "rounds.py"), "--config", write(values, tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as rounds:
        wait_for(lambda: (tmp_path / "begun").exists())
        rounds.kill()
    with pytest.raises(ConfigError, match="output: other rounds are at work there"):
        run_rounds(config_of(values))
    (tmp_path / "go").touch()

    def go_on() -> bool:
        with pytest.raises((StageError, ConfigError)) as found:
            run_rounds(config_of(values))
        return isinstance(found.value, StageError)

    wait_for(go_on)


def wait_for(is_so, timeout_s: float = 120.0) -> None:
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def straight(pool, tiny_base, tmp_path_factory):
    """Rounds that nothing happened to: their folder and configuration."""
    folder = tmp_path_factory.mktemp("straight")
    found = settings_for(pool, tiny_base, folder)
    record = run_rounds(config_of(found))
    return folder / "rounds", found, record


def test_each_rounds_manifest_names_the_verifier_that_chose_its_negatives(straight, pool):
    folder, _, record = straight
    manifests = [read_manifest(folder / f"round-{number}" / "data")["mining"] for number in (0, 1)]
    first, second = record["rounds"]
    assert manifests[0]["teacher"] is None
    assert first["teacher"] is None
    teacher = read_predictions(folder / "round-0" / "teacher.parquet")[1]
    assert manifests[1]["teacher"]["verifier_fingerprint"] == teacher["verifier_fingerprint"]
    assert second["teacher"]["verifier_fingerprint"] == first["verifier_fingerprint"]
    assert second["verifier_fingerprint"] != first["verifier_fingerprint"]
    assert manifests[1]["teacher"]["calibrated"] is True
    for each in manifests:
        assert each["parent"]["manifest_sha256"] == sha256_of(pool / MANIFEST)
    assert json.loads((folder / "rounds.json").read_text()) == record


def test_rounds_have_as_many_rows_and_steps_and_other_negatives(straight, pool):
    folder, _, record = straight
    first, second = record["rounds"]
    n_true = sum(p.label == "supported" for p in read_split(pool, "train"))
    assert first["rows"] == second["rows"] == 2 * n_true
    assert first["counts"]["hard"] == 0
    assert second["counts"]["hard"] == round(0.75 * n_true)
    chosen = [{p.id for p in read_split(folder / f"round-{number}" / "data", "train")} for number in (0, 1)]
    assert chosen[0] != chosen[1]
    for each in record["rounds"]:
        assert each["manifest_sha256"] == sha256_of(folder / f"round-{each['round']}" / "data" / MANIFEST)
        assert 0 <= each["calibration"]["auc"] <= 1
        assert each["calibration"]["rows"] == len(read_split(pool, "calibration"))
        assert each["validation_auc"] is None  # eval_strategy is "no"
    steps = [json.loads((folder / f"round-{n}" / "run" / "draft" / "verifier_config.json").read_text()) for n in (0, 1)]
    assert steps[0]["trained"]["steps"] == steps[1]["trained"]["steps"] == 2


def test_rounds_that_are_done_are_not_done_again(straight, tmp_path, capsys):
    folder, found, record = straight
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name not in ("rounds.json", ".lock")}
    assert main(["--config", write(found, tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.count("done before") == 10
    assert "$ " not in said
    assert all(path.stat().st_mtime_ns == at for path, at in before.items() if path.is_file())
    assert json.loads((folder / "rounds.json").read_text()) == record


def test_rounds_that_do_not_follow_from_each_other_are_refused(straight, tmp_path):
    folder, found, _ = straight
    other = tmp_path / "rounds"
    subprocess.run(["cp", "-r", str(folder), str(other)], check=True)
    teacher = other / "round-0" / "teacher.parquet"
    kept = teacher.read_bytes()
    teacher.write_bytes(kept + b" ")
    with pytest.raises(RowError, match="round-1: was mined by another teacher"):
        run_rounds(config_of(found, output=str(other)))
    teacher.write_bytes(kept)
    retrained = other / "round-0" / "run" / "draft" / "MANIFEST.sha256"
    retrained.write_text((kept_names := retrained.read_text()) + "\n")
    with pytest.raises(RowError, match=r"round-0/calibration\.parquet: was judged by another verifier than the one in"):
        run_rounds(config_of(found, output=str(other)))
    retrained.write_text(kept_names)
    data = other / "round-1" / "data"
    shard = read_manifest(data)["shards"]["train"][0]
    rows = [dataclasses.replace(p, weight=2.0) for p in read_split(data, "train")]
    write_pairs(data / shard["file"], rows)
    text = (data / MANIFEST).read_text()
    (data / MANIFEST).write_text(text.replace(shard["sha256"], sha256_of(data / shard["file"])))
    with pytest.raises(RowError, match="round-1: its run was trained on other rows"):
        run_rounds(config_of(found, output=str(other)))


def run_in_a_session_of_its_own(values: dict) -> None:
    os.setsid()
    torch.set_num_threads(1)
    run_rounds(config_of(values))


def test_rounds_killed_in_training_and_between_stages_come_to_the_same_files(straight, values, tmp_path):
    """Killed three times, in forks of this process, which has imported everything; the command itself ends them."""
    words = [sys.executable, str(ROOT / "train" / "rounds.py"), "--config", write(values, tmp_path)]
    here = tmp_path / "rounds"
    # After the first step: what ended before it leaves nothing, and is begun anew.
    for moment in ("round-0/run/metrics.jsonl", "round-0/calibrated/fitted_rows.json", "round-1/run/draft"):
        rounds = multiprocessing.get_context("fork").Process(target=run_in_a_session_of_its_own, args=(values,))
        rounds.start()
        wait_for(lambda moment=moment: (here / moment).exists() and (here / moment).stat().st_size > 0, 300)
        os.killpg(rounds.pid or 0, signal.SIGKILL)
        rounds.join(60)
        assert rounds.exitcode == -signal.SIGKILL
        if "calibrated" in moment:
            (here / "round-1").mkdir(exist_ok=True)
            (here / "round-1" / "data.tmp-1").mkdir()  # as a kill in mining leaves it
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert "round 0  train: done before" in said
    assert json.loads((here / "round-0" / "run" / "run.json").read_text()).get("resumed")
    assert_same(straight[0], here)
    files = [{str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} for folder in (straight[0], here)]
    assert files[0] == files[1]


def assert_same(one: Path, other: Path) -> None:
    """Rows byte for byte, weights and judgements number for number; what names its own folder may differ."""
    for number in (0, 1):
        first, second = one / f"round-{number}", other / f"round-{number}"
        for split, shards in read_manifest(first / "data")["shards"].items():
            assert read_manifest(second / "data")["shards"][split] == shards
        weights = adapter(first / "run"), adapter(second / "run")
        assert weights[0].keys() == weights[1].keys()
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
        for name in ("calibration", "train", "teacher") if number == 0 else ("calibration",):
            found = [read_predictions(folder / f"{name}.parquet")[0] for folder in (first, second)]
            assert found[0] == found[1]
