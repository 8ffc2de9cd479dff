"""Engines: two processes under DDP, ZeRO-2, ZeRO-3 and FSDP2 do what one process does; what is no engine is refused."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import DeepSpeedPlugin, DistributedType, FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env
from conftest import ROOT, sft_arguments
from PIL import Image as Picture
from safetensors.torch import load_file
from training_runs import free_port
from transformers.integrations import HfDeepSpeedConfig
from trl import ModelConfig

from proofreel.core.errors import ConfigError
from proofreel.core.pairs import Image, Passage
from proofreel.core.storage import sha256_of
from proofreel.data_prep.dataset.shards import read_split, shard_name, write_pairs
from proofreel.models.verifier.verifier import Verifier
from proofreel.train.arguments import parse
from proofreel.train.batching import group_pairs
from proofreel.train.faults import check_engine
from proofreel.train.recipe import run

# Losses, gradient norms and adapters of one process and of two: float32, summed in another order.
TOLERANCE = 1e-5
# Plain SGD, so that a gradient of the wrong size shows, and clipping, so that a norm of the wrong size does.
# r=16: DeepSpeed shards weights above ten times the hidden size, and adapters must be among them.
COMMON = {
    "lora_r": 16,
    "claims_per_row": 4,
    "optim": "sgd",
    "learning_rate": 1.0,
    "lr_scheduler_type": "constant",
    "max_grad_norm": 0.5,
    "max_steps": 3,
    "activation_checkpointing": True,
    "eval_strategy": "steps",
    "eval_steps": 1,
    "save_strategy": "steps",
    "save_steps": 1,
    "load_best_model_at_end": True,
    "metric_for_best_model": "auc",
    "per_device_eval_batch_size": 1,
}
REENTRANT = {"activation_checkpointing_kwargs": '{"use_reentrant": true}'}


def with_splits(source, folder, **splits):
    """A copy of a data set with other rows in some splits."""
    shutil.copytree(source, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    for split in ("train", "validation", "test"):  # all: media paths are relative to where the folder was
        pairs = splits.get(split, read_split(source, split))
        write_pairs(folder / shard_name(split), [dataclasses.replace(p, split=split) for p in pairs])
        manifest["shards"][split][0]["sha256"] = sha256_of(folder / shard_name(split))
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.fixture(scope="module")
def rows(colour_dataset, tmp_path_factory):
    """Eight packed rows to train on, and five to evaluate: two processes are handed one of them twice."""
    others = [p for split in ("validation", "calibration", "test") for p in read_split(colour_dataset, split)]
    five = [p for group in group_pairs(others, 100)[:5] for p in group]
    data = with_splits(colour_dataset, tmp_path_factory.mktemp("engines") / "data", validation=five)
    assert len(group_pairs(read_split(data, "train"), 4)) == 8
    return data


@pytest.fixture(scope="module")
def mixed_rows(rows, tmp_path_factory):
    """The same, but rows show a video, an image or nothing by turns."""
    folder = tmp_path_factory.mktemp("mixed")
    path = folder / "image.png"
    Picture.fromarray(np.random.default_rng(0).integers(0, 256, (84, 84, 3), dtype=np.uint8)).save(path)

    def turned(split):
        groups = group_pairs(read_split(rows, split), 100)
        shown = [None, (Image(str(path)),), (Passage("A clip."),)]
        return [
            p if (e := shown[i % 3]) is None else dataclasses.replace(p, evidence=e)
            for i, group in enumerate(groups)
            for p in group
        ]

    return with_splits(rows, folder / "data", train=turned("train"), validation=turned("validation"))


@pytest.fixture(scope="module")
def alone(tiny_base, tmp_path_factory):
    """Train in this process: four rows a step."""

    def go(data, *more, **changes):
        out = tmp_path_factory.mktemp("alone") / "run"
        changes = COMMON | {"per_device_train_batch_size": 4} | changes
        run(*parse([*sft_arguments(tiny_base, data, out, **changes), *more]))
        return out

    return go


def start(config, arguments, told, **environment):
    """Two processes under a launch configuration."""
    told.mkdir(parents=True, exist_ok=True)
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(ROOT / "configs" / config)]
    launcher += [
        "--num_processes",
        "2",
        "--main_process_port",
        str(free_port()),
        str(ROOT / "tests" / "engine_process.py"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1"} | environment
    return subprocess.run(
        [*launcher, str(told), *arguments], env=environment, capture_output=True, text=True, timeout=900
    )


def launch(config, base, data, out, *more, **changes):
    """Train in two processes, one row at a time and two of them a step; returns what each told (engine_process.py)."""
    changes = COMMON | {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 2, "use_cpu": False} | changes
    told = out.with_name(f"{out.name}-told")
    arguments = [*sft_arguments(base, data, out, **changes), "--ddp_backend", "gloo", *more]
    done = start(config, arguments, told, **({"ENGINE_DEVICE": "cpu"} if "fsdp" in config else {}))
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((told / f"{rank}.json").read_text()) for rank in range(2)]


def logged(folder, name):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line[name] for line in lines if name in line]


def check_same_adapter(one, two):
    weights, others = (load_file(folder / "adapter_model.safetensors") for folder in (one, two))
    assert weights.keys() == others.keys()
    for name, value in weights.items():
        assert others[name].shape == value.shape, name
        assert value.abs().max() > 0, name  # trained, and not the zeros that B starts from
        assert torch.allclose(others[name], value, atol=TOLERANCE), name


def check_same(one, two, data):
    """Losses, gradient norms, metrics, last checkpoint and best draft of two runs; both drafts score alike."""
    for name in ("loss", "grad_norm", "eval_auc", "eval_ap", "eval_f1", "eval_ece"):
        assert len(logged(one, name)) == COMMON["max_steps"]
        assert logged(two, name) == pytest.approx(logged(one, name), abs=TOLERANCE, rel=2 * TOLERANCE), name
    for part in (f"checkpoint-{COMMON['max_steps']}", "draft/adapter"):
        check_same_adapter(one / part, two / part)
    pairs = read_split(data, "test")
    drafts = [Verifier.from_pretrained(folder / "draft", device="cpu") for folder in (one, two)]
    margins = [[v.margin for v in draft.score_pairs(pairs)] for draft in drafts]
    assert margins[1] == pytest.approx(margins[0], abs=1e-4)


# What the presets train with; the tolerances are of updates and losses of one process and of two, in bfloat16.
HALF = {
    "optim": "adamw_torch",
    "dtype": "bfloat16",
    "bf16": True,
    "learning_rate": 2e-5,
    "max_steps": 20,
    "eval_steps": 20,
    "save_steps": 20,
    "max_grad_norm": 1.0,
}
HALF_TOLERANCE = 0.03
ENGINES = [
    pytest.param("accelerate_ddp.yaml", "MULTI_CPU", 1.0, {"use_cpu": True}, id="ddp", marks=pytest.mark.nightly),
    pytest.param("accelerate_cpu_zero2.yaml", "DEEPSPEED", 1.0, {}, id="zero2", marks=pytest.mark.nightly),
    pytest.param("accelerate_cpu_zero3.yaml", "DEEPSPEED", 0.51, REENTRANT, id="zero3"),
    pytest.param("accelerate_fsdp2.yaml", "FSDP", 0.51, {}, id="fsdp2"),
]


@pytest.mark.parametrize(("config", "engine", "held", "changes"), ENGINES)
def test_two_processes_learn_and_measure_what_one_does_and_leave_its_adapter(
    config, engine, held, changes, alone, tiny_base, rows, mixed_rows, tmp_path
):
    """A sharded tower is trained on rows that show a video, an image or nothing: its ranks must call it equally."""
    rows = mixed_rows if "zero3" in config else rows
    reference = alone(rows)
    out = tmp_path / "run"
    told = launch(config, tiny_base, rows, out, **changes)
    assert {t["engine"] for t in told} == {engine}
    assert all(t["held"] <= held for t in told)
    check_same(reference, out, rows)
    assert told[0]["tower_calls"] == told[1]["tower_calls"] > 0
    best = max(logged(reference, "eval_auc"))
    assert [t["best_metric"] for t in told] == pytest.approx([best, best], abs=TOLERANCE)
    assert {t["best_step"] for t in told} == {logged(reference, "eval_auc").index(best) + 1}
    if "zero3" in config:  # the most intricate checkpoints: go on from one, and arrive where the whole run did
        whole = shutil.copytree(out / "checkpoint-3", tmp_path / "whole")
        shard = next((out / "checkpoint-3").rglob("*rank_1*optim_states.pt"))
        shard.write_bytes(bytes(shard.stat().st_size))  # both ranks must pass over this checkpoint
        shutil.rmtree(out / "draft")
        launch(config, tiny_base, rows, out, "--resume_from_checkpoint", "true", **changes)
        check_same_adapter(whole, out / "checkpoint-3")
        assert (out / "damaged-checkpoint-3").is_dir()
        assert json.loads((out / "run.json").read_text())["resumed"][0]["after_step"] == 2
        assert logged(out, "loss")[-1] == pytest.approx(logged(reference, "loss")[-1], abs=TOLERANCE)


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        pytest.param("accelerate_ddp.yaml", {"use_cpu": True}, id="ddp", marks=pytest.mark.nightly),
        pytest.param("accelerate_cpu_zero2.yaml", {}, id="zero2"),
        pytest.param("accelerate_cpu_zero3.yaml", REENTRANT, id="zero3", marks=pytest.mark.nightly),
        pytest.param("accelerate_fsdp2.yaml", {}, id="fsdp2", marks=pytest.mark.nightly),
    ],
)
def test_in_bfloat16_every_engine_takes_the_steps_of_one_process(config, changes, alone, tiny_base, rows, tmp_path):
    reference, out = alone(rows, **HALF), tmp_path / "run"
    launch(config, tiny_base, rows, out, **HALF | changes)
    one, two = (load_file(folder / "draft/adapter/adapter_model.safetensors") for folder in (reference, out))
    assert {t.dtype for t in (*one.values(), *two.values())} == {torch.bfloat16}

    def all_of(name):
        return [torch.cat([t.float().ravel() for n, t in some.items() if name in n]) for some in (one, two)]

    updates = all_of("lora_B")  # which starts from zero
    assert updates[0].abs().max() > 10 * HALF["learning_rate"]
    assert (updates[1] - updates[0]).norm() <= HALF_TOLERANCE * updates[0].norm()
    # A starts from entries that in bfloat16 no step of this size would move.
    a, b = all_of("lora_A")
    assert (b - a).square().mean().sqrt() <= 0.1 * HALF["learning_rate"] * HALF["max_steps"]
    assert logged(out, "loss") == pytest.approx(logged(reference, "loss"), abs=HALF_TOLERANCE)


@pytest.mark.nightly  # the ZeRO-3 run above checks equal calls of the tower too
@pytest.mark.parametrize(
    ("config", "more"),
    [
        pytest.param("accelerate_cpu_zero3.yaml", [], id="sharded tower", marks=pytest.mark.nightly),
        pytest.param(
            "accelerate_ddp.yaml", ["--lora_parts", "language_model", "visual", "--use_cpu", "true"], id="trained"
        ),
    ],
)
def test_ranks_call_the_tower_equally_often_where_rows_show_videos_images_or_nothing(
    config, more, alone, tiny_base, mixed_rows, tmp_path
):
    told = launch(config, tiny_base, mixed_rows, tmp_path / "run", *more)
    check_same(alone(mixed_rows, *more), tmp_path / "run", mixed_rows)
    assert told[0]["tower_calls"] == told[1]["tower_calls"] > 0
    pairs = [p for split in ("train", "validation") for p in read_split(mixed_rows, split)]
    shown = {p.evidence for p in pairs if not isinstance(p.evidence[0], Passage)}
    assert sum(rank["measured"] for rank in told) == len(shown)  # each on one of them, before the run


@pytest.mark.nightly  # each refusal is checked in process as well
@pytest.mark.parametrize(
    ("config", "more", "reason"),
    [
        pytest.param(
            *("accelerate_cpu_zero2.yaml", ["--use_cpu", "true"], "use_cpu: accelerate leaves DeepSpeed out"),
            id="ddp for zero2",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            *("accelerate_cpu_zero3.yaml", [], "ddp_backend: 2 processes were launched and each would train alone"),
            id="one process each",
        ),
        pytest.param(
            *("accelerate_cpu_zero3.yaml", ["--ddp_backend", "gloo", "--vision_cache", "x"], "vision_cache: the tower"),
            id="vision cache",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            *("accelerate_fsdp2.yaml", ["--ddp_backend", "gloo"], "distributed_type: accelerate has FSDP for GPUs"),
            id="fsdp on a cpu",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_run_that_would_not_be_the_one_launched_stops_before_its_weights(
    config, more, reason, tiny_base, rows, tmp_path
):
    arguments = sft_arguments(tiny_base, rows, tmp_path / "run", use_cpu=False)
    done = start(config, [*arguments, *more], tmp_path / "told")
    assert done.returncode == 1
    assert f"error: {reason}" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["DEEPSPEED", "FSDP"])
def test_an_engine_that_runs_is_not_refused(name, monkeypatch):
    monkeypatch.setenv(f"ACCELERATE_USE_{name}", "true")
    monkeypatch.setenv("WORLD_SIZE", "8")
    kind = DistributedType.DEEPSPEED if name == "DEEPSPEED" else DistributedType.MULTI_GPU
    state = SimpleNamespace(distributed_type=kind)
    training: Any = SimpleNamespace(distributed_state=state, world_size=8, use_cpu=False)
    check_engine(training)
    state.distributed_type = DistributedType.NO
    with pytest.raises(ConfigError):
        check_engine(training)


@pytest.mark.parametrize(
    ("engine", "kind", "world_size", "vision_cache", "key"),
    [
        ("DEEPSPEED", "MULTI_CPU", 2, None, "use_cpu: accelerate leaves DeepSpeed out"),
        ("DEEPSPEED", "NO", 1, None, "ddp_backend: 2 processes were launched"),
        ("FSDP", "MULTI_GPU", 2, "x", "vision_cache: the tower's weights are sharded"),
        ("FSDP", "MULTI_CPU", 2, None, "distributed_type: accelerate has FSDP for GPUs only"),
        ("NOTHING", "NO", 2, None, "use_cpu: gradients of 2 processes on CPUs would not be averaged"),
    ],
)
def test_an_engine_that_is_not_the_launched_one_is_refused(engine, kind, world_size, vision_cache, key, monkeypatch):
    monkeypatch.setenv(f"ACCELERATE_USE_{engine}", "true")
    monkeypatch.setenv("WORLD_SIZE", "2")
    state = SimpleNamespace(distributed_type=DistributedType[kind])
    training: Any = SimpleNamespace(distributed_state=state, world_size=world_size, use_cpu=True)
    with pytest.raises(ConfigError, match=key):
        check_engine(training, vision_cache)


@pytest.mark.parametrize("option", ["load_in_4bit", "load_in_8bit"])
@pytest.mark.parametrize("engine", ["ZeRO-3", "FSDP"])
def test_quantised_weights_are_refused_where_they_would_be_sharded(engine, option, monkeypatch):
    state = SimpleNamespace(distributed_type=DistributedType.NO)
    training: Any = SimpleNamespace(distributed_state=state, world_size=1, use_cpu=False)
    model = ModelConfig()
    setattr(model, option, True)
    check_engine(training, None, model)  # nothing is sharded
    if engine == "FSDP":
        monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    else:
        sharded = HfDeepSpeedConfig({"zero_optimization": {"stage": 3}})  # in force as long as it lives
        assert sharded.is_zero3()
    with pytest.raises(ConfigError, match=rf"{option}: .* got true with {engine}; launch with ZeRO-2 or DDP"):
        check_engine(training, None, model)


@pytest.mark.parametrize("option", ["load_in_4bit", "load_in_8bit"])
def test_quantised_weights_that_would_be_sharded_stop_a_run_before_its_base_is_read(option, tmp_path, monkeypatch):
    words = sft_arguments(tmp_path / "no-base", tmp_path / "no-rows", tmp_path / "run")
    arguments = parse([*words, f"--{option}", "true"])
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ConfigError, match=f"{option}: quantised weights cannot be sharded"):
        run(*arguments)


def launcher_environment(path, monkeypatch):
    """Put what `accelerate launch` would tell the processes of a launch configuration into the environment."""
    given = launch_command_parser().parse_args(
        ["--config_file", str(path), "--main_process_port", str(free_port()), "x.py"]
    )
    read: Any = _validate_launch_command(given)
    given, defaults, _ = read
    given.deepspeed_fields_from_accelerate_config = ",".join(defaults.deepspeed_config or {})
    told = prepare_deepspeed_cmd_env(given)[1] if given.use_deepspeed else prepare_multi_gpu_env(given)
    for name, value in told.items():
        if value != os.environ.get(name):
            monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    "path",
    [p for p in sorted((ROOT / "configs").glob("accelerate_*.yaml")) if "_config:" in p.read_text(encoding="utf-8")],
    ids=lambda p: p.stem,
)
def test_launch_configs_become_the_engine_they_name(path, monkeypatch):
    launcher_environment(path, monkeypatch)
    if "fsdp" in path.stem:
        plugin: Any = FullyShardedDataParallelPlugin()
        assert (plugin.fsdp_version, plugin.reshard_after_forward, plugin.state_dict_type.name) == (
            2,
            True,
            "FULL_STATE_DICT",
        )
        return
    plugin: Any = DeepSpeedPlugin()
    zero = plugin.deepspeed_config["zero_optimization"]
    stage = 2 if "zero2" in path.stem else 3
    device = "cpu" if "offload" in path.stem else "none"
    assert zero["stage"] == stage
    assert {zero[f"offload_{part}"]["device"] for part in ("optimizer", "param")} == {device}
    assert plugin.zero3_init_flag == (stage == 3)
    assert zero["stage3_gather_16bit_weights_on_model_save"] == (stage == 3)
    monkeypatch.undo()
    del plugin  # transformers knows of ZeRO-3 as long as a plugin lives


def test_qlora_on_the_cpu_learns_and_goes_on_after_an_evaluation(alone, rows):
    """On some CPUs bitsandbytes repacks weights for inference, and would then give no gradient."""
    changes = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "use_bnb_nested_quant": True, "max_steps": 45}
    changes |= {"optim": "adamw_torch", "learning_rate": 3e-3, "max_grad_norm": 1.0, "per_device_train_batch_size": 8}
    changes |= {"save_strategy": "no", "load_best_model_at_end": False, "eval_steps": 5}
    evaluated, never = alone(rows, **changes), alone(rows, **changes, eval_strategy="no")
    losses = logged(evaluated, "loss")
    assert losses == logged(never, "loss")
    assert np.mean(losses[-3:]) < 0.6 * losses[0]
    assert len(logged(evaluated, "eval_auc")) == 9
    weights, others = (load_file(f / "draft" / "adapter" / "adapter_model.safetensors") for f in (evaluated, never))
    assert all(torch.equal(weights[name], others[name]) for name in weights)
