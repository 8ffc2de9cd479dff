"""Every YAML in configs/ loads through the code that will read it, and opens with its own launch line."""

from pathlib import Path

import pytest
from accelerate.commands.config.config_args import ClusterConfig
from peft import LoraConfig
from trl import get_peft_config, get_quantization_config

from proofreel.core.config import load_config
from proofreel.core.errors import ConfigError
from proofreel.core.prompt import Prompt
from proofreel.data_prep.pipeline.config import BuildConfig
from proofreel.data_prep.pipeline.mine import MineConfig
from proofreel.models.inputs.mrope import POSITION_RULES
from proofreel.models.zero_shot.config import ZeroShotConfig
from proofreel.train.arguments import parse, parse_distill
from proofreel.train.rounds_config import RoundsConfig
from proofreel.train.run_config import RunConfig
from proofreel.train.teacher import distillation_of

CONFIGS = sorted((Path(__file__).resolve().parents[2] / "configs").rglob("*.yaml"))


def kind(path):
    if path.name.startswith("accelerate_"):
        return "launch"
    if path.name.startswith("teacher_"):
        return "teacher"
    if (last := path.stem.split("_")[-1]) in ("rounds", "run"):
        return last
    if "distill" in path.stem.split("_"):
        return "distill"
    return "mine" if path.stem.endswith("mine") else "build" if path.stem.endswith("_build") else "sft"


def named(wanted):
    return pytest.mark.parametrize("path", [p for p in CONFIGS if kind(p) == wanted], ids=lambda p: p.name)


def test_there_are_configs_of_every_kind():
    assert {kind(p) for p in CONFIGS} == {"launch", "build", "mine", "rounds", "run", "sft", "distill", "teacher"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.name)
def test_it_opens_with_its_launch_line(path):
    header = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert any(f"configs/{path.name}" in line for line in header[:6])


@named("launch")
def test_launch_configs_load(path):
    config = ClusterConfig.from_yaml_file(yaml_file=str(path))
    if path.stem != "accelerate_machines":
        assert config.num_machines == 1
        return
    # Started by hand on every machine: as many processes on each, and an address to meet at.
    assert config.num_machines > 1
    assert config.num_processes % config.num_machines == 0
    assert (config.deepspeed_config or {})["deepspeed_multinode_launcher"] == "standard"
    assert (config.machine_rank, config.main_process_port) == (0, 29500)
    header = path.read_text(encoding="utf-8").split("compute_environment")[0]
    assert "--machine_rank" in header
    assert "--main_process_ip" in header


@named("build")
def test_build_configs_load(path):
    assert load_config(BuildConfig, path).sources


@named("mine")
def test_mining_configs_load(path):
    assert load_config(MineConfig, path).mining.hard_share == 0.75


@named("run")
def test_configs_of_whole_runs_load_and_name_configs_that_load(path, monkeypatch):
    monkeypatch.chdir(path.parent.parent)
    config = load_config(RunConfig, path)
    assert config.build
    assert kind(Path(str(config.build.config))) == "build"
    assert kind(Path(str(config.train.config))) in ("sft", "distill")


@named("rounds")
def test_configs_of_rounds_load(path, monkeypatch):
    monkeypatch.chdir(path.parent.parent)
    assert load_config(RoundsConfig, path).mining.hard_share == 0.75


@named("teacher")
def test_teacher_configs_load_and_ask_what_the_presets_students_are_asked(path):
    config = load_config(ZeroShotConfig, path)
    named = config.named_prompt != "proofreel"  # a checkpoint with a question of its own; its students name it too
    assert named or config.prompt.sha256 == Prompt().sha256
    step = 32 if "qwen3vl" in path.stem else 28
    # All frames at their largest fit: an endpoint does not merge them in pairs, a local model does.
    visual = config.sampling.max_frames * config.sampling.max_pixels // step**2
    assert (visual if config.model is None else visual // 2) <= 8192
    assert config.model is None or config.model.max_tokens > 8192


@named("sft")
def test_training_configs_load(path, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda *_, **__: True)  # the machine they are meant for
    check_training(*parse(["--config", str(path), "--use_cpu", "true", "--output_dir", str(tmp_path)]))


@named("distill")
def test_distilling_configs_load(path, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda *_, **__: True)  # the machine they are meant for
    words = ["--config", str(path), "--use_cpu", "true", "--output_dir", str(tmp_path)]
    distill, *rest = parse_distill(words)
    assert distillation_of(distill).alpha == distill.alpha
    check_training(*rest)
    with pytest.raises(ConfigError, match=r"a key of train/distill\.py"):
        parse(words)


def check_training(arguments, training, model):
    assert arguments.position_rule in POSITION_RULES
    assert arguments.prompt().sha256
    assert arguments.sampling().max_frames <= 64
    assert training.remove_unused_columns is False
    assert isinstance(get_peft_config(model), LoraConfig) == model.use_peft
    assert (get_quantization_config(model) is not None) == model.load_in_4bit
