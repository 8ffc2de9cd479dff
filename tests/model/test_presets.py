"""Every preset against the true architecture, on the meta device: what trains, what is quantised, and what it takes."""

import functools
import re
from pathlib import Path

import pytest
import torch
import yaml
from bitsandbytes.nn import Linear4bit
from nightly import only
from transformers.integrations.bitsandbytes import replace_with_bnb_linear
from transformers.quantizers.quantizers_utils import should_convert_module
from trl import get_peft_config, get_quantization_config

from proofreel.models.backbones.families import BACKBONES, published_config, vision_layout
from proofreel.models.backbones.lora import attach_lora, trainable_summary
from proofreel.models.backbones.shapes import attention_widths, language_linears, meta_model
from proofreel.models.engine.vision_features import check_frozen
from proofreel.models.inputs.sound import audio_tokens
from proofreel.train.arguments import parse
from proofreel.train.memory import TEXT_TOKENS, TURN_TOKENS, Engine, Load, estimate_run

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
PAPERS = ("dualfact_qlora", "mirage_next_token", "mirage_nli", "mirage_text_next_token", "mirage_text_nli")
PRESETS = sorted([*CONFIGS.glob("qwen*.yaml"), *(CONFIGS / f"{name}.yaml" for name in PAPERS)])
# The estimate is of tensors: what a card is sold as, less a tenth for all that is not ours on it.
USABLE = 0.9

LINEARS = {f"self_attn.{n}_proj" for n in "qkvo"} | {f"mlp.{n}_proj" for n in ("gate", "up", "down")}
DELTA_NETS = {f"linear_attn.{n}" for n in ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")}
ADAPTED = {"dualfact_qlora": {f"self_attn.{n}_proj" for n in "qkv"} | {"mlp.gate_proj"}}
"""Linear layers with an adapter, of presets that do not adapt all."""
OUTPUT_LAYER = {"dualfact_qlora"}
"""Presets that adapt lm_head as well."""


BUILT = ("qwen25vl_3b_nli_qlora", "qwen25vl_3b_qlora", "qwen3vl_2b_qlora", "qwen35_2b_qlora", "qwen25omni_3b_qlora")
BUILT += ("qwen25_7b_text_qlora", "dualfact_qlora")
"""Presets whose networks CI builds, one of each kind: building all of them takes half a minute."""


def header(path):
    return "\n".join(line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#"))


STATED = [path for path in PRESETS if "Expected memory" in header(path)]


def each(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda p: p.stem)


@functools.cache
def shape(name):
    return published_config(name)


def reader(parse, out):
    """A function that gives a preset as its script reads it; each is read once, and nobody writes to it."""

    @functools.cache
    def read(path):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("torch.cuda.is_bf16_supported", lambda *_, **__: True)  # the machine they are meant for
            return parse(["--config", str(path), "--use_cpu", "true", "--output_dir", str(out)])

    return read


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    return reader(parse, tmp_path_factory.mktemp("run"))


def has_head(path):
    return "nli" in path.stem.split("_")


ADAPTED_MODELS = {}


def adapted_model(model_config, config):
    """The network of a preset with its adapters, built once for equal ones, and how many parameters train by part."""
    peft_config = get_peft_config(model_config)
    key = model_config.model_name_or_path, str(peft_config)
    if key not in ADAPTED_MODELS:
        with torch.device("meta"):
            model = attach_lora(meta_model(config), peft_config)
        ADAPTED_MODELS[key] = model, trainable_summary(model)
    return ADAPTED_MODELS[key]


def linears_of(config, layer):
    """Linear layers of a decoder layer, which may carry a state in place of attention."""
    kinds = getattr(config.get_text_config(), "layer_types", None) or ["full_attention"]
    if kinds[layer % len(kinds)] == "full_attention":
        return LINEARS
    return {linear for linear in LINEARS if linear.startswith("mlp")} | DELTA_NETS


def layers_of(config):
    return "model.language_model.layers" if hasattr(config, "vision_config") else "model.layers"


def launched(path):
    """The engine of the launch config that a preset names first."""
    found = re.search(r"--config_file configs/(\w+\.yaml)", header(path))
    assert found is not None
    launch = yaml.safe_load((CONFIGS / found[1]).read_text(encoding="utf-8"))
    zero = launch.get("deepspeed_config")
    if zero is None:
        assert launch["distributed_type"] in ("NO", "MULTI_GPU")
        return Engine(launch["num_processes"])
    offloads = (zero[f"offload_{what}_device"] == "cpu" for what in ("optimizer", "param"))
    return Engine(launch["num_processes"], zero["zero_stage"], True, *offloads)


def test_the_presets_of_all_sizes_and_cards_are_there():
    names = {path.stem for path in PRESETS}
    cards = {f"qwen25vl_{size}_{card}" for size in ("3b", "7b") for card in ("qlora", "lora", "zero2")}
    heads = {name.replace("b_", "b_nli_") for name in cards}
    assert names >= cards | heads | {"qwen25vl_72b_zero3", "qwen25_7b_text_qlora", "qwen25_7b_text_lora"}
    newer = {f"qwen3vl_{size}_{card}" for size in ("2b", "4b", "8b", "8b_nli") for card in ("qlora", "lora")}
    assert names >= newer | {"qwen3vl_8b_zero2", "qwen3vl_32b_zero3"}
    assert names >= {
        "qwen35_2b_qlora",
        *(f"qwen35_{size}_{card}" for size in ("4b", "9b") for card in ("qlora", "lora")),
    }
    assert names >= {f"qwen25omni_{size}_{card}" for size in ("3b", "7b") for card in ("qlora", "lora")}


@each(PRESETS)
def test_a_preset_is_launched_with_the_script_its_name_says(path):
    script = re.search(r"train/(\w+)\.py", header(path))
    assert script is not None
    assert script[1] == ("nli" if has_head(path) else "sft")
    assert f"--config configs/{path.name}" in header(path)


@each(only([CONFIGS / f"{name}.yaml" for name in BUILT], PRESETS))
def test_adapters_hit_the_language_model_only_and_in_every_layer_what_the_preset_is_for(read, path):
    _, _, model_config = read(path)
    config = shape(model_config.model_name_or_path)
    model, counts = adapted_model(model_config, config)
    adapted = {name for name, module in model.named_modules() if hasattr(module, "base_layer")}
    layers = range(config.get_text_config().num_hidden_layers)
    prefix = "base_model.model." + layers_of(config)
    linears = [ADAPTED.get(path.stem, linears_of(config, i)) for i in layers]
    expected = {f"{prefix}.{i}.{linear}" for i in layers for linear in linears[i]}
    assert adapted == expected | ({"base_model.model.lm_head"} if path.stem in OUTPUT_LAYER else set())

    text, rank = config.get_text_config(), model_config.lora_r
    hidden, mlp = text.hidden_size, text.intermediate_size
    if path.stem in ADAPTED:
        queries, keys = attention_widths(text)
        widths = [hidden + queries, hidden + keys, hidden + keys, hidden + mlp] * len(layers)
    else:
        widths = [i + o for i, o in language_linears(config)]
    wanted = {"language_model": rank * sum(widths)}
    if path.stem in OUTPUT_LAYER:
        wanted["lm_head"] = rank * (hidden + text.vocab_size)
    assert counts["total"] == sum(p.numel() for p in model.parameters())
    assert {k: n for k, n in counts.items() if n and k != "total"} == wanted


@each(only([CONFIGS / f"{name}.yaml" for name in BUILT], PRESETS))
def test_only_linears_of_the_language_model_are_quantised(read, path):
    _, _, model_config = read(path)
    quantization = get_quantization_config(model_config)
    if quantization is None:
        assert not model_config.load_in_4bit
        return
    assert quantization.bnb_4bit_quant_type == "nf4"
    assert quantization.bnb_4bit_use_double_quant
    assert quantization.bnb_4bit_compute_dtype == torch.bfloat16
    config = shape(model_config.model_name_or_path)
    model = replace_with_bnb_linear(meta_model(config), list(BACKBONES[config.model_type].unquantised), quantization)
    quantised = {name for name, module in model.named_modules() if isinstance(module, Linear4bit)}
    layers = range(config.get_text_config().num_hidden_layers)
    assert quantised == {f"{layers_of(config)}.{i}.{linear}" for i in layers for linear in linears_of(config, i)}
    assert type(model.lm_head) is torch.nn.Linear


@each(PRESETS)
def test_a_preset_runs_on_the_weights_whose_shape_is_known_and_does_not_adapt_tied_weights(read, path):
    _, _, model_config = read(path)
    config = shape(model_config.model_name_or_path)
    assert config.tie_word_embeddings == (re.search(r"(VL|3\.5)-[234]B\b", model_config.model_name_or_path) is not None)
    assert "embed_tokens" not in str(model_config.lora_target_modules)
    assert not model_config.lora_modules_to_save
    assert not (config.tie_word_embeddings and path.stem in OUTPUT_LAYER)


@each(STATED)
def test_the_memory_a_preset_states_is_what_is_computed_and_fits_its_card(read, path):
    arguments, training, model_config = read(path)
    found = re.search(r"Expected memory: ([\d.]+) GiB per GPU, of an? (\d+) GB card", header(path))
    assert found is not None
    config = shape(model_config.model_name_or_path)
    counts = adapted_model(model_config, config)[1]
    known = {"n_trainable": sum(counts.values()) - counts["total"], "head": has_head(path)}
    needed = estimate_run(config, arguments, training, model_config, launched(path), **known)
    assert found[1] == f"{needed.gib:.1f}", str(needed)
    assert needed.gib < USABLE * int(found[2])


@each(STATED)
def test_the_longest_video_with_one_claim_is_within_max_tokens(read, path):
    arguments, _, model_config = read(path)
    assert arguments.tokens_per_row is None or arguments.tokens_per_row >= arguments.max_tokens
    config = shape(model_config.model_name_or_path)
    load = Load.of(config, arguments, 1)
    visual, heard = load.patches // 4, audio_tokens(load.mel_frames)
    times = arguments.max_frames // 2 * TURN_TOKENS if vision_layout(config).frame_turn else 0
    assert visual + times + heard + 2 * TEXT_TOKENS <= arguments.max_tokens


@each(PRESETS)
def test_checkpointing_is_reentrant_where_weights_are_sharded_and_nothing_sharded_is_quantised(read, path):
    _, training, model_config = read(path)
    sharded = launched(path).stage >= 3
    assert training.activation_checkpointing_kwargs == {"use_reentrant": sharded}
    assert not (sharded and model_config.load_in_4bit)


@each([*PRESETS, *(CONFIGS / f"kitchen_{name}.yaml" for name in ("sft", "nli", "text"))])
def test_a_preset_keeps_what_a_frozen_tower_makes_or_says_why_not(read, path):
    said = re.findall(r"^# vision_cache: none, for (.+)\.$", path.read_text(encoding="utf-8"), re.M)
    arguments, _, model_config = read(path)
    if arguments.vision_cache is None:
        assert len(said) == 1
        return
    assert said == []
    config = shape(model_config.model_name_or_path)
    model = adapted_model(model_config, config)[0]
    check_frozen(model)  # a run with a cache refuses any other tower
    assert launched(path).stage < 3
    stated = re.search(r"on disk at most (\d+) MiB each", path.read_text(encoding="utf-8"))
    assert stated is not None
    numbers = Load.of(config, arguments, 1).patches // 4 * vision_layout(config).levels
    assert int(stated[1]) * 2**20 == numbers * config.get_text_config().hidden_size * 2


@each([*PRESETS, *CONFIGS.glob("distill_*.yaml")])
def test_a_preset_saves_by_steps_where_it_evaluates_and_keeps_one_to_go_back_to(path):
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert values["save_strategy"] == values["eval_strategy"] == "steps"
    assert values["save_steps"] == values["eval_steps"] <= 0.1  # of the run
    assert values["save_total_limit"] >= 3
    assert values["load_best_model_at_end"]


UNQUANTISED = list(BACKBONES["qwen2_5_vl"].unquantised)


@pytest.mark.parametrize("skipped", [["visual", "lm_head"], ["model.vis"]])
def test_names_that_do_not_start_at_a_module_would_quantise_the_tower(skipped):
    assert should_convert_module("model.visual.blocks.0.attn.qkv", skipped)
    assert not should_convert_module("model.visual.blocks.0.attn.qkv", UNQUANTISED)
    assert not should_convert_module("model.visual.merger.mlp.0", UNQUANTISED)
    assert not should_convert_module("score", UNQUANTISED)
