"""A backbone is one class and one line of `BACKBONES`: everything that knows families follows from them."""

import dataclasses
import json
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from peft import LoraConfig
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Model

from proofreel.core.errors import DirectoryError, ModelInputError
from proofreel.core.prompt import Prompt
from proofreel.models.backbones.base import Shape, TinySizes
from proofreel.models.backbones.families import (
    BACKBONES,
    backbones_table,
    lora_parts,
    published_config,
    vision_config,
    vision_layout,
)
from proofreel.models.backbones.load import load_backbone, load_processor, read_config
from proofreel.models.backbones.lora import attach_lora
from proofreel.models.backbones.qwen25 import Qwen25
from proofreel.models.backbones.safety import check_settings
from proofreel.models.backbones.shapes import Parameters, meta_model
from proofreel.models.backbones.tiny import save_tiny_model
from proofreel.models.engine.heads import NLIHead
from proofreel.models.inputs.encoder import Encoder
from proofreel.models.inputs.mrope import TEXT_LAYOUT

DOCS = Path(__file__).parents[2] / "docs" / "backbones.md"
SIZES = TinySizes(hidden=64, layers=2, mlp=128, vocab=420)


class OtherConfig(Qwen2Config):
    model_type = "other"


class OtherForCausalLM(Qwen2ForCausalLM):
    config_class = OtherConfig


class Other(Qwen25):
    """What somebody writes who adds a family."""

    model_type = "other"
    name = "Other"
    published: ClassVar = {"Other-1B": Shape(64, 2, 4, 2, 128, 500, tied=True)}
    lora_parts: ClassVar = {
        "language_model": r"model\.layers\..*\.(q_proj|v_proj)",
        "gates": r"model\.layers\..*\.gate_proj",
    }
    processor_classes: ClassVar = {**Qwen25.processor_classes, "processor_class": ("OtherProcessor",)}

    def config_class(self):
        return OtherConfig

    def network_class(self):
        return OtherForCausalLM

    def body_class(self):
        return Qwen2Model


@pytest.fixture
def other(monkeypatch):
    monkeypatch.setitem(BACKBONES, "other", Other())


@pytest.fixture
def base(other, tmp_path):
    return save_tiny_model(tmp_path / "base", [Prompt().system, "Claim: x is red."] * 20, SIZES, model_type="other")


def test_the_docs_table_is_that_of_the_backbones():
    assert backbones_table() in DOCS.read_text(encoding="utf-8")


def test_every_backbone_is_listed_under_its_own_model_type():
    assert all(kind == backbone.model_type for kind, backbone in BACKBONES.items())


@pytest.mark.parametrize("kind", BACKBONES)
def test_every_backbone_makes_tiny_models_that_load(kind, tmp_path, small_sampling):
    base = save_tiny_model(tmp_path / "base", [Prompt().system] * 20, SIZES, model_type=kind)
    config = load_backbone(base).config
    assert config.model_type == kind
    assert Parameters.of(config).total == sum(p.numel() for p in meta_model(config).parameters())
    assert (vision_config(config) is not None) == BACKBONES[kind].sees == vision_layout(config).sees
    Encoder(load_processor(base), vision_layout(config), Prompt(), small_sampling)


def test_a_new_backbone_is_listed_in_errors_docs_and_options(other, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "none"}')
    with pytest.raises(DirectoryError, match=r"supported are .*Llama text \(llama\), Other \(other\)"):
        read_config(tmp_path)
    assert "| Other | `other` | transcript, passage | packed | 1B |" in backbones_table()
    assert "gates" in lora_parts()
    assert isinstance(published_config("Other-1B"), OtherConfig)


def test_a_new_backbone_is_read_loaded_and_adapted_where_it_says(base):
    assert vision_layout(read_config(base)) is TEXT_LAYOUT
    model = load_backbone(base)
    assert type(model) is OtherForCausalLM
    adapted = attach_lora(model, LoraConfig(r=2), ["language_model", "gates"])
    targets = {n.split(".")[-1] for n, module in adapted.named_modules() if hasattr(module, "lora_A")}
    assert targets == {"q_proj", "v_proj", "gate_proj"}


def test_a_new_backbone_takes_a_score_head(base, tmp_path):
    model = load_backbone(base, head=NLIHead())
    assert type(model).__name__ == "OtherForVerdicts"
    model.save_pretrained(tmp_path / "model")
    again = load_backbone(tmp_path / "model", head=NLIHead(), head_may_be_new=False)
    assert torch.equal(again.score.weight, model.score.weight)


def test_the_classes_its_processor_files_may_name_are_its_own(tmp_path, monkeypatch):
    (tmp_path / "processor_config.json").write_text(json.dumps({"processor_class": "OtherProcessor"}))
    with pytest.raises(DirectoryError, match="a class that is not loaded here"):
        check_settings(tmp_path)
    monkeypatch.setitem(BACKBONES, "other", Other())
    check_settings(tmp_path)


def test_a_processor_that_does_not_take_pictures_in_the_networks_steps_is_refused(tiny_base, small_sampling):
    layout = dataclasses.replace(vision_layout(read_config(tiny_base)), patch_step=32)
    with pytest.raises(ModelInputError, match=r"pictures in steps of 32 pixels, got \[28\] of the processor"):
        Encoder(load_processor(tiny_base), layout, Prompt(), small_sampling)
