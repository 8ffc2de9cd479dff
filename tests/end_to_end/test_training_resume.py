"""Runs that are killed and resumed are the runs they would have been; changed ones are refused; the best is kept."""

import dataclasses
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ROOT, sft_arguments
from nightly import only
from safetensors.torch import load_file
from training_runs import adapter, losses, metrics, with_rows
from transformers import EvalPrediction, TrainingArguments

from proofreel.core.errors import ConfigError
from proofreel.core.pairs import Pair, Passage
from proofreel.data_prep.dataset.shards import read_split
from proofreel.models.engine.packing import IGNORED
from proofreel.train.arguments import parse
from proofreel.train.batching import group_pairs
from proofreel.train.checkpoints import COMPLETE, choose_best, damage_of, step_of
from proofreel.train.dataset import IDLE
from proofreel.train.epochs import EpochOrder
from proofreel.train.faults import RunError
from proofreel.train.preemption import PreemptionError
from proofreel.train.recipe import run
from proofreel.train.trainer import VerdictTrainer, verdict_metrics

# Dropout, accumulation, an uneven epoch, evaluation and a log that checkpoints do not divide: all that resuming may
# get wrong. Three epochs of three steps.
HARD = {
    "num_train_epochs": 3,
    "max_steps": -1,
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 2,
    "claims_per_row": 2,
    "lora_dropout": 0.1,
    "logging_steps": 3,
    "save_strategy": "steps",
    "save_steps": 2,
    "eval_strategy": "steps",
    "eval_steps": 2,
}
TIMED = {
    "claims_per_second",
    "eval_runtime",
    "eval_samples_per_second",
    "eval_steps_per_second",
    "eval_model_preparation_time",
}

KILLS = {
    "in the first step": ("training_step", "before", 0),
    "in a later step": ("training_step", "before", 5),
    "while it evaluates": ("prediction_step", "before", 6),
    "between the files of a checkpoint": ("_save_optimizer_and_scheduler", "before", 6),
    "when a checkpoint is written but not yet marked": ("_save_rng_state", "after", 6),
    "while the metrics are written": ("log", "after", 4),
    "after the last step": ("_finalize_training", "before", 9),
}
KILLED_IN_CI = ("between the files of a checkpoint", "when a checkpoint is written but not yet marked")
KILLED = """
import os, signal, sys
from proofreel.train import sft
from proofreel.train.trainer import VerdictTrainer

name, when, step = sys.argv[1], sys.argv[2], int(sys.argv[3])
method = getattr(VerdictTrainer, name)

def struck(self, *args, **kwargs):
    if when == "before" and self.state.global_step == step:
        os.kill(os.getpid(), signal.SIGKILL)
    found = method(self, *args, **kwargs)
    if when == "after" and self.state.global_step == step:
        if name == "log":
            with open(self.args.output_dir + "/metrics.jsonl", "a") as file:
                file.write('{"step": 4, "lo')
        os.kill(os.getpid(), signal.SIGKILL)
    return found

setattr(VerdictTrainer, name, struck)
sft.main(sys.argv[4:])
"""


@pytest.fixture(scope="module")
def dataset(colour_dataset, tmp_path_factory):
    """Five packed rows of two claims to train on: with two rows to a step, an epoch ends with a step of one."""
    groups = group_pairs(read_split(colour_dataset, "train"), 100)
    two, four = ([g for g in groups if len(g) == n] for n in (2, 4))
    folder = tmp_path_factory.mktemp("five") / "data"
    with_rows(colour_dataset, folder, [p for g in (*two[:3], four[0]) for p in g])
    return with_rows(colour_dataset, folder, read_split(colour_dataset, "validation"), "validation")


@pytest.fixture
def train(tiny_base, dataset, tmp_path):
    def go(name, dataset=dataset, **changes):
        run(*parse(sft_arguments(tiny_base, dataset, tmp_path / name, **changes)))
        return tmp_path / name

    return go


@pytest.fixture(scope="module")
def straight(tiny_base, dataset, tmp_path_factory):
    """The run that nothing happened to."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    run(*parse(sft_arguments(tiny_base, dataset, folder, **HARD)))
    return folder


def timeless(folder):
    """What a run logged, without how long it took."""
    lines = [line for line in metrics(folder) if "train_runtime" not in line]
    return [{k: v for k, v in line.items() if k not in TIMED} for line in lines]


def assert_same_run(one, other):
    assert timeless(one) == timeless(other)
    assert len(metrics(one)) == len(metrics(other))
    mine, theirs = adapter(one), adapter(other)
    assert mine.keys() == theirs.keys()
    for name in mine:
        assert torch.equal(mine[name], theirs[name]), name


def rewind(folder, copy, *later):
    """A copy of a finished run as it was before its later checkpoints and its draft."""
    shutil.copytree(folder, copy)
    for name in ("draft", *later):
        shutil.rmtree(copy / name)
    return copy


@pytest.mark.parametrize("moment", only(KILLED_IN_CI, KILLS))
def test_killed_and_resumed_is_the_run_it_would_have_been(tiny_base, dataset, straight, tmp_path, moment):
    """A real process is killed with SIGKILL, and another goes on."""
    words = sft_arguments(tiny_base, dataset, tmp_path / "run", **HARD)
    method, when, step = KILLS[moment]
    first = subprocess.run(
        [sys.executable, "-c", KILLED, method, when, str(step), *words], capture_output=True, cwd=ROOT
    )
    assert first.returncode == -9, first.stderr.decode()
    assert not (tmp_path / "run" / "draft").exists()
    run(*parse([*words, "--resume_from_checkpoint", "true"]))
    assert_same_run(tmp_path / "run", straight)
    assert len(json.loads((tmp_path / "run" / "run.json").read_text())["resumed"]) == 1


TOLD = {
    "in the middle of an epoch and of an accumulation": ("training_step", 4, 5),
    "in the last step of an epoch": ("training_step", 2, 3),
    "while it evaluates": ("prediction_step", 4, 4),
}


@pytest.mark.parametrize("moment", TOLD)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1], ids=lambda n: n.name)
def test_told_to_end_it_saves_its_step_and_resumed_is_the_run_it_would_have_been(
    train, straight, tmp_path, monkeypatch, moment, number
):
    name, step, saved = TOLD[moment]
    if number == signal.SIGUSR1 and saved != 5:
        pytest.skip("one moment is enough for the second signal")
    method = getattr(VerdictTrainer, name)

    def told(self, *args, **kwargs):
        if self.state.global_step == step:
            os.kill(os.getpid(), number)
        return method(self, *args, **kwargs)

    handlers = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGUSR1)]
    with monkeypatch.context() as patch:
        patch.setattr(VerdictTrainer, name, told)
        with pytest.raises(
            PreemptionError, match=rf"{number.name}.*checkpoint-{saved} .*--resume_from_checkpoint"
        ) as stopped:
            train("run", **HARD)
    assert stopped.value.status == 128 + number
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGUSR1)] == handlers
    assert max((tmp_path / "run").glob("checkpoint-*"), key=step_of).name == f"checkpoint-{saved}"
    assert not (tmp_path / "run" / "draft").exists()
    assert_same_run(train("run", **HARD, resume_from_checkpoint=True), straight)


TOLD_BY_A_SCHEDULER = """
import os, subprocess, sys
from proofreel.train import sft
from proofreel.train.trainer import VerdictTrainer

method = VerdictTrainer.training_step

def told(self, *args, **kwargs):
    if self.state.global_step == 4:
        subprocess.run(["kill", "-TERM", "--", f"-{os.getpgid(0)}"], process_group=0, check=True)
    return method(self, *args, **kwargs)

VerdictTrainer.training_step = told
raise SystemExit(sft.main(sys.argv[1:]))
"""


def test_a_signal_to_every_process_of_a_run_leaves_its_loader_workers_to_finish_the_step(
    tiny_base, dataset, straight, tmp_path
):
    """Schedulers and torch's launcher signal workers and decoders as well; a step that lost them could not be saved."""
    words = sft_arguments(tiny_base, dataset, tmp_path / "run", **HARD, dataloader_num_workers=1)
    told = subprocess.run(
        [sys.executable, "-c", TOLD_BY_A_SCHEDULER, *words], capture_output=True, cwd=ROOT, start_new_session=True
    )
    assert told.returncode == 143, told.stderr.decode()[-3000:]
    assert "--resume_from_checkpoint true" in told.stderr.decode()
    assert damage_of(tmp_path / "run" / "checkpoint-5") is None
    run(*parse([*words, "--dataloader_num_workers", "0", "--resume_from_checkpoint", "true"]))
    assert_same_run(tmp_path / "run", straight)


def test_a_run_resumed_in_the_middle_of_an_epoch_is_the_run_it_would_have_been(train, straight, tmp_path):
    assert sorted(f.name for f in straight.glob("checkpoint-*")) == [f"checkpoint-{n}" for n in (2, 4, 6, 8, 9)]
    rewind(straight, tmp_path / "run", "checkpoint-6", "checkpoint-8", "checkpoint-9")
    assert_same_run(train("run", **HARD, resume_from_checkpoint=True), straight)
    resumed = json.loads((tmp_path / "run" / "run.json").read_text())["resumed"]
    assert [entry["after_step"] for entry in resumed] == [4]


def test_a_checkpoint_that_is_not_whole_is_passed_over(train, straight, tmp_path):
    folder = rewind(straight, tmp_path / "run")
    (folder / "checkpoint-9" / COMPLETE).unlink()
    assert_same_run(train("run", **HARD, resume_from_checkpoint=True), straight)


def damage(path):
    """Flip the last bit of an adapter, zero anything else; the size stays. Returns the content it then has."""
    content = bytearray(path.read_bytes())
    content = content[:-1] + bytes([content[-1] ^ 1]) if path.suffix == ".safetensors" else bytes(len(content))
    path.write_bytes(content)
    return content


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "optimizer.pt"])
def test_a_damaged_checkpoint_is_passed_over_and_the_run_says_so(train, straight, tmp_path, capsys, name):
    """A flipped bit of an adapter loads without a word, and a zeroed optimiser is a traceback of torch."""
    path = rewind(straight, tmp_path / "run") / "checkpoint-9" / name
    content = damage(path)
    assert_same_run(train("run", **HARD, resume_from_checkpoint=True), straight)
    said = capsys.readouterr().err
    for words in ("warning", "checkpoint-9: is damaged", name, "goes on from checkpoint-8"):
        assert words in said
    assert (tmp_path / "run" / "damaged-checkpoint-9" / name).read_bytes() == content


def test_a_checkpoint_sealed_by_sizes_alone_still_resumes_with_a_note(train, straight, tmp_path, capsys):
    seal = rewind(straight, tmp_path / "run", "checkpoint-8", "checkpoint-9") / "checkpoint-6" / COMPLETE
    seal.write_text(json.dumps({k: v for k, v in json.loads(seal.read_text()).items() if k != "sha256"}))
    assert_same_run(train("run", **HARD, resume_from_checkpoint=True), straight)
    assert "checkpoint-6 was sealed by an earlier release" in capsys.readouterr().err


def test_a_best_checkpoint_that_is_damaged_never_becomes_the_verifier(train, straight, tmp_path):
    folder = rewind(straight, tmp_path / "run", "checkpoint-9")
    state = json.loads((folder / "checkpoint-8" / "trainer_state.json").read_text())
    best = folder / f"checkpoint-{state['best_global_step']}"
    if best.name == "checkpoint-8":
        pytest.fail("the best of this run must be an earlier one; choose other settings")
    damage(best / "adapter_model.safetensors")
    with pytest.raises(RunError, match=rf"{best.name}: the best checkpoint is damaged, got adapter_model"):
        train("run", **HARD, resume_from_checkpoint=True)
    assert not (folder / "draft").exists()


def test_a_finished_run_that_is_resumed_takes_no_more_steps(train, straight, tmp_path):
    shutil.copytree(straight, tmp_path / "run")
    assert_same_run(train("run", **HARD, resume_from_checkpoint=True), straight)


def test_resuming_where_nothing_is_yet_begins(train, straight):
    """The same command line serves the first start and every other: what a scheduler that kills jobs wants."""
    assert_same_run(train("run", **HARD, resume_from_checkpoint=True), straight)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"learning_rate": 0.5}, "learning_rate"),
        ({"seed": 7}, "seed"),
        ({"gradient_accumulation_steps": 4}, "gradient_accumulation_steps"),
        ({"claims_per_row": 3}, "claims_per_row"),
        ({"lora_r": 8}, "lora_r"),
        ({"focal_gamma": 1.0}, "focal_gamma"),
        ({"max_frames": 6}, "max_frames"),
        ({"supported_word": "no", "refuted_word": "yes"}, "refuted_word"),
    ],
)
def test_resuming_with_another_configuration_is_refused_and_the_key_is_named(train, straight, tmp_path, change, key):
    shutil.copytree(straight, tmp_path / "run")
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(ConfigError, match=f"^{key}: the run in .* began with"):
        train("run", **(HARD | change), resume_from_checkpoint=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_resuming_with_other_rows_or_another_head_is_refused(train, straight, dataset, tiny_base, tmp_path):
    shutil.copytree(straight, tmp_path / "run")
    shutil.copytree(dataset, tmp_path / "data")
    other = with_rows(dataset, tmp_path / "data", read_split(dataset, "train")[:-2])
    with pytest.raises(ConfigError, match="another train split"):
        train("run", dataset=other, **HARD, resume_from_checkpoint=True)
    words = sft_arguments(tiny_base, dataset, tmp_path / "run", **HARD, resume_from_checkpoint=True)
    with pytest.raises(ConfigError, match=r"^head: "):
        run(*parse(words), head_kind="nli")


def test_a_directory_without_a_run_is_not_resumed(train, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds no run"):
        train("run", max_steps=1, resume_from_checkpoint=True)
    assert [f.name for f in (tmp_path / "run").iterdir()] == ["thesis.txt"]


def test_what_does_not_change_what_is_learned_may_change(train, straight, dataset, tmp_path):
    rewind(straight, tmp_path / "run", "checkpoint-8", "checkpoint-9")
    shutil.copytree(dataset, tmp_path / "data")
    changes = {"dataset": tmp_path / "data", "cache_gib": 0, "save_total_limit": 9, "bad_rows": "skip"}
    assert_same_run(train("run", **(HARD | changes), resume_from_checkpoint=True), straight)


def test_the_best_checkpoint_by_auc_is_the_one_that_is_kept(train):
    folder = train("run", max_steps=5, eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1)
    aucs = {line["step"]: line["eval_auc"] for line in metrics(folder) if "eval_auc" in line}
    best = min(step for step, auc in aucs.items() if auc == max(aucs.values()))
    weights = load_file(folder / f"checkpoint-{best}" / "adapter_model.safetensors")
    assert all(torch.equal(weights[name], value) for name, value in adapter(folder).items())
    assert {line["step"] for line in metrics(folder) if "train_runtime" in line} == {5}


def test_a_run_stops_early_and_stays_stopped_when_it_is_resumed(train, tmp_path):
    """Nothing is learned at a rate of 0, so the first evaluation stays the best."""
    stops = {"max_steps": 9, "learning_rate": 0, "early_stopping": 2, "eval_strategy": "steps", "eval_steps": 1}
    stops |= {"save_strategy": "steps", "save_steps": 1}
    folder = train("run", **stops)
    assert [line["step"] for line in metrics(folder) if "loss" in line] == [1, 2, 3]
    assert all(line["claims_per_second"] > 0 for line in metrics(folder) if "loss" in line)
    again = train(rewind(folder, tmp_path / "again").name, **stops, resume_from_checkpoint=True)
    assert_same_run(again, folder)
    before = rewind(folder, tmp_path / "before", "checkpoint-3")
    assert_same_run(train(before.name, **stops, resume_from_checkpoint=True), folder)  # it goes on counting


def test_adapters_keep_their_precision_over_a_resume_and_the_choice_of_the_best(train, tmp_path):
    """peft reads them back as float32."""
    half = {"dtype": "bfloat16", "max_steps": 4, "save_strategy": "steps", "save_steps": 2, "learning_rate": 0.05}
    half |= {"eval_strategy": "steps", "eval_steps": 2}
    whole = train("whole", **half)
    assert {w.dtype for w in adapter(whole).values()} == {torch.bfloat16}
    rewind(whole, tmp_path / "run", "checkpoint-4")
    assert_same_run(train("run", **half, resume_from_checkpoint=True), whole)


def settings(**changes: Any) -> TrainingArguments:
    usual: dict[str, Any] = {"report_to": "none", "use_cpu": True, "eval_strategy": "steps", "save_strategy": "steps"}
    values: dict[str, Any] = usual | {"eval_steps": 5, "save_steps": 10} | changes
    return TrainingArguments(**values)


def rows(*labels):
    return [Pair(id=str(i), claim="x", evidence=(Passage("y"),), label=label) for i, label in enumerate(labels)]


def chosen(training, patience=None, labels=("supported", "refuted")):
    choose_best(training, patience, rows(*labels))
    return training.metric_for_best_model, training.greater_is_better, training.load_best_model_at_end


def test_the_best_is_chosen_by_auc_where_evaluation_and_saving_allow():
    assert chosen(settings()) == ("eval_auc", True, True)
    assert chosen(settings(eval_strategy="epoch", save_strategy="epoch")) == ("eval_auc", True, True)
    assert chosen(settings(save_steps=7)) == ("eval_auc", True, False)
    assert chosen(settings(save_strategy="no")) == ("eval_auc", True, False)
    assert chosen(settings(eval_strategy="no"))[2] is False
    assert chosen(settings(metric_for_best_model="eval_ap")) == ("eval_ap", True, False)
    asked = settings(metric_for_best_model="ece", load_best_model_at_end=True)
    assert chosen(asked) == ("ece", False, True)  # the lower the better


def test_early_stopping_that_could_never_work_is_refused():
    with pytest.raises(ConfigError, match=r"early_stopping.*eval_strategy: no"):
        chosen(settings(eval_strategy="no", save_strategy="no"), patience=2)
    with pytest.raises(ConfigError, match="early_stopping: must be at least 1"):
        chosen(settings(), patience=0)
    with pytest.raises(ConfigError, match="a validation split of one kind"):
        chosen(settings(), patience=2, labels=("refuted", "not_enough"))
    assert chosen(settings(metric_for_best_model="eval_loss"), 2, ("refuted",))[:2] == ("eval_loss", False)


def evaluated(labels, margins, losses=None):
    labels, margins = np.asarray(labels, dtype=float), np.asarray(margins, dtype=float)
    losses = np.full(labels.shape, 0.5) if losses is None else losses
    outputs: Any = margins, losses, np.ones(labels.shape)
    return verdict_metrics(EvalPrediction(predictions=outputs, label_ids=labels))


def test_metrics_of_an_evaluation_are_scikit_learns_and_leave_padding_out():
    from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

    random = np.random.default_rng(0)
    labels, margins = random.integers(0, 2, (40, 3)).astype(float), random.normal(size=(40, 3)).round(1)
    found = evaluated(np.pad(labels, ((0, 2), (0, 1)), constant_values=IGNORED), np.pad(margins, ((0, 2), (0, 1))))
    y, m = labels.ravel(), margins.ravel()
    assert found["auc"] == pytest.approx(roc_auc_score(y, m))
    assert found["ap"] == pytest.approx(average_precision_score(y, m))
    assert found["f1"] == pytest.approx(f1_score(y, m >= 0))
    assert found["positive_rate"] == pytest.approx(y.mean())
    assert found["loss"] == pytest.approx(0.5)
    assert "failed" not in found


@pytest.mark.filterwarnings("error")
def test_metrics_of_one_class_of_nothing_and_of_failures_are_nan_or_leave_out_but_never_crash():
    one = evaluated([[1, 1]], [[0.2, -0.2]])
    assert math.isnan(one["auc"])
    assert one["f1"] == pytest.approx(2 / 3)
    nothing = evaluated([[IGNORED]], [[0.0]])
    assert all(math.isnan(value) for value in nothing.values())
    some = evaluated([[1, 0, 1]], [[2.0, -1.0, math.nan]], np.array([[0.1, 0.3, math.nan]]))
    assert (some["auc"], some["failed"]) == (1.0, 1.0)
    assert some["loss"] == pytest.approx(0.2)


@pytest.mark.parametrize(("n", "world", "size"), [(16, 2, 4), (9, 2, 4), (1, 3, 2), (7, 1, 1), (10, 4, 3)])
def test_an_epoch_is_every_row_once_in_whole_batches_the_same_for_any_number_of_processes(n, world, size):
    alone, shared = EpochOrder(n, 1, seed=3), EpochOrder(n, world * size, seed=3)
    for epoch in range(3):
        alone.start(epoch)
        shared.start(epoch)
        order = list(shared)
        assert len(order) == len(shared)
        assert len(order) % (world * size) == 0
        assert len(order) - n < world * size
        assert [i for i in order if i != IDLE] == order[:n] == list(alone)
        assert sorted(order[:n]) == list(range(n))
    assert n == 1 or list(alone) != list(EpochOrder(n, 1, seed=4))
    assert list(EpochOrder(n, 1, 3, shuffle=False)) == list(range(n))


def test_the_same_seed_gives_the_same_losses_bit_for_bit(train, straight):
    assert losses(train("again", **HARD)) == losses(straight)
    assert len(set(losses(straight))) == len(losses(straight))


def test_metrics_are_json_where_a_metric_is_not_a_number(train, dataset, tmp_path):
    """A validation split of one class has no AUC: null, and the run goes on."""
    one_class = [dataclasses.replace(p, label="refuted") for p in read_split(dataset, "validation")]
    shutil.copytree(dataset, tmp_path / "data")
    folder = with_rows(dataset, tmp_path / "data", one_class, "validation")
    out = train("run", dataset=folder, max_steps=1, eval_strategy="steps", eval_steps=1)
    line = next(
        json.loads(x, parse_constant=pytest.fail)
        for x in (out / "metrics.jsonl").read_text().splitlines()
        if "auc" in x
    )
    assert line["eval_auc"] is None
    assert line["eval_ece"] is not None
