"""Shapes of published checkpoints: as many parameters as the hub counts, part by part, and no weights anywhere."""

import re

import pytest
import torch
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLTextConfig

from proofreel.core.errors import ConfigError
from proofreel.models.backbones.families import published, published_config, vision_layout
from proofreel.models.backbones.shapes import Parameters, lora_parameters, meta_model

# Parameters in the safetensors files, as the model pages of the hub show them.
ON_THE_HUB = {
    "Qwen2.5-VL-3B-Instruct": 3_754_622_976,
    "Qwen2.5-VL-7B-Instruct": 8_292_166_656,
    "Qwen2.5-VL-72B-Instruct": 73_410_777_344,
    "Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen3-4B": 4_022_468_096,
    "Qwen3-8B": 8_190_735_360,
    "SmolLM2-135M-Instruct": 134_515_008,
    "Llama-3.1-8B-Instruct": 8_030_261_248,
    "Qwen3-VL-2B-Instruct": 2_127_532_032,
    "Qwen3-VL-4B-Instruct": 4_437_815_808,
    "Qwen3-VL-8B-Instruct": 8_767_123_696,
    "Qwen3-VL-32B-Instruct": 33_357_390_064,
    # Of the thinker alone; pages of repositories that hold it alone show 5B and 9B.
    "Qwen2.5-Omni-3B": 4_703_464_448,
    "Qwen2.5-Omni-7B": 8_931_813_888,
    # Without the `mtp` head that files hold as well (tests/model/test_qwen3_5.py adds it).
    "Qwen3.5-0.8B": 852_985_920,
    "Qwen3.5-2B": 2_213_241_664,
    "Qwen3.5-4B": 4_539_265_536,
    "Qwen3.5-9B": 9_409_813_744,
    "Qwen3.5-27B": 27_356_728_560,
}
WITH_VISION = [name for name in published() if "-VL-" in name or "Omni" in name or "Qwen3.5-" in name]


@pytest.fixture(scope="module")
def networks():
    return {name: meta_model(published_config(name)) for name in published()}


def test_every_published_shape_is_counted_on_the_hub():
    assert set(published()) == set(ON_THE_HUB)


@pytest.mark.parametrize("name", published())
def test_the_network_has_as_many_parameters_as_the_checkpoint(networks, name):
    assert sum(p.numel() for p in networks[name].parameters()) == ON_THE_HUB[name]
    assert {t.device.type for t in networks[name].state_dict().values()} == {"meta"}


def part(name):
    if "visual" in name or "audio_tower" in name:
        return "vision" if "visual" in name else "audio"
    if name.startswith("lm_head"):
        return "lm_head"
    if "embed_tokens" in name:
        return "embeddings"
    return "linears" if re.search(r"(_proj|in_proj_\w+)\.weight$", name) else "rest"


@pytest.mark.parametrize("name", published())
def test_parameters_are_counted_from_the_configuration_part_by_part(networks, name):
    counted = dict.fromkeys(("embeddings", "lm_head", "linears", "rest", "vision", "audio"), 0)
    for key, parameter in networks[name].named_parameters():
        counted[part(key)] += parameter.numel()
    assert Parameters.of(networks[name].config) == Parameters(**counted)
    assert Parameters(**counted).total == ON_THE_HUB[name]


@pytest.mark.parametrize("name", published())
def test_up_to_4b_the_output_layer_is_tied_to_the_embeddings(networks, name):
    model = networks[name]
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    small = bool(re.search("-([234]|0.8)B|135M", name)) and "Omni" not in name
    assert tied == small == model.config.tie_word_embeddings
    assert (Parameters.of(model.config).lm_head == 0) == tied


def test_transformers_defaults_are_the_72b():
    ours, default = published_config("Qwen2.5-VL-72B-Instruct").text_config, Qwen2_5_VLTextConfig()
    for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size"):
        assert getattr(ours, key) == getattr(default, key)
    assert ours.intermediate_size == default.intermediate_size


@pytest.mark.parametrize("name", WITH_VISION)
def test_rotary_sections_fill_half_a_head_and_time_runs_at_the_familys_rate(name):
    config = published_config(name)
    text = config.text_config
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    turned = head * text.rope_parameters.get("partial_rotary_factor", 1)
    assert sum(text.rope_parameters["mrope_section"]) * 2 == turned
    layout = vision_layout(config)
    assert layout.tokens_per_second == (25.0 if layout.hears else 2.0) or layout.frame_turn  # or time is text
    assert config.vision_config.out_hidden_size == text.hidden_size


def test_adapters_of_the_7b_have_the_published_count():
    # r=16, seven linears of 28 layers. Adapters of 47,589,376 parameters are about, too: those hit the tower's MLPs.
    config = published_config("Qwen/Qwen2.5-VL-7B-Instruct")
    assert lora_parameters(config, 16) == 40_370_176
    vision = config.vision_config
    by_suffix = 3 * vision.depth * 16 * (vision.hidden_size + vision.intermediate_size)
    assert lora_parameters(config, 16) + by_suffix == 47_589_376


def test_an_unknown_checkpoint_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"shapes: unknown checkpoint, got 'Qwen2.5-VL-8B'; known are .*3B"):
        published_config("Qwen2.5-VL-8B")


def test_reading_a_shape_takes_no_memory():
    assert meta_model(published_config("Qwen2.5-7B-Instruct")).lm_head.weight.device == torch.device("meta")
