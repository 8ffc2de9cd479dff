"""Where adapters go, what of them is saved, and that what was trained is what is loaded."""

import re
from typing import Any

import pytest
import torch
from nightly import only
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file

from proofreel.core.errors import ConfigError
from proofreel.core.pairs import VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.models.backbones.families import BACKBONES, published_config, vision_layout
from proofreel.models.backbones.load import load_backbone, load_processor
from proofreel.models.backbones.lora import attach_lora, lora_targets, trainable_summary
from proofreel.models.backbones.shapes import meta_model
from proofreel.models.engine.forward import margins
from proofreel.models.engine.heads import NextToken, NLIHead
from proofreel.models.engine.packing import collate, pack
from proofreel.models.inputs.chat_text import LabelWords
from proofreel.models.inputs.encoder import Encoder

PARTS = BACKBONES["qwen2_5_vl"].lora_parts

WAYS: dict[str, dict[str, Any]] = {
    "language": {},
    "all parts": {"parts": tuple(PARTS)},
    "output layer": {"parts": ("language_model", "lm_head")},
    "vision only": {"parts": ("visual", "merger")},
    "dora": {"use_dora": True},
    "rslora": {"use_rslora": True},
}


def adapted(base, parts=("language_model",), head=None, **options) -> Any:
    torch.manual_seed(0)
    config = LoraConfig(r=2, init_lora_weights=options.pop("init", True), **options)
    return attach_lora(load_backbone(base, head=head), config, parts)


@pytest.fixture(scope="module")
def ask(tiny_base, small_sampling, make_media):
    """Margins of two claims on noise, by a model."""
    config = load_backbone(tiny_base).config
    encoder = Encoder(load_processor(tiny_base), vision_layout(config), Prompt(), small_sampling)
    evidence = encoder.evidence((VideoSegment("a.mp4", 0, 2),), make_media(8))
    batch = collate([pack(evidence, [encoder.claim_ids(c) for c in ("Object is red ball.", "No.")])], encoder.pad_id)
    readout = NextToken(LabelWords.of(Prompt(), encoder.tokenizer))
    return lambda model: margins(model, batch, readout, encoder.layout)[0]


def hit(model):
    return {n.removeprefix("base_model.model.") for n, m in model.named_modules() if hasattr(m, "base_layer")}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_all_of_its_linear_layers_and_no_other(tiny_base, part):
    model: Any = load_backbone(tiny_base)
    linears = {n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    of = {
        "language_model": {n for n in linears if "language_model" in n},
        "visual": {n for n in linears if ".visual.blocks." in n},
        "merger": {n for n in linears if ".merger." in n},
        "lm_head": {"lm_head"},
    }
    assert set().union(*of.values()) == linears
    assert hit(adapted(tiny_base, (part,))) == of[part]
    counts = trainable_summary(adapted(tiny_base, (part,)))
    assert [p for p in PARTS if counts[p]] == [part]


@pytest.mark.parametrize("name", ["Qwen2.5-VL-3B-Instruct", "Qwen2.5-VL-72B-Instruct", "Qwen2.5-7B-Instruct"])
def test_published_shapes_have_the_parts_their_architecture_has(name):
    model = meta_model(published_config(name))
    expected = set(PARTS) if "VL" in name else {"language_model", "lm_head"}
    found = {p for p in PARTS if any(re.fullmatch(PARTS[p], n) for n, _ in model.named_modules())}
    assert found == expected
    linears = {n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and "visual" not in n}
    pattern = lora_targets(model, ["language_model"])
    assert {n for n in linears if re.fullmatch(pattern, n)} == linears - {"lm_head"}


@pytest.mark.parametrize("way", WAYS)
def test_an_adapter_reloads_to_the_same_margins_and_holds_nothing_of_the_base(tiny_base, ask, tmp_path, way):
    model = adapted(tiny_base, **WAYS[way], init=False)
    with torch.no_grad():
        before = ask(model.eval())
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "adapter_model.safetensors")
    assert all("lora_" in name for name in saved), [n for n in saved if "lora_" not in n]
    again = PeftModel.from_pretrained(load_backbone(tiny_base), str(tmp_path), autocast_adapter_dtype=False)
    with torch.no_grad():
        assert torch.equal(before, ask(again.eval()))
        assert not torch.allclose(before, ask(load_backbone(tiny_base).eval()))


GRADIENTS = [(reentrant, way) for reentrant in (False, None, True) for way in WAYS]


@pytest.mark.parametrize(
    ("reentrant", "way"), only([c for c in GRADIENTS if c[0] is False or c[1] == next(iter(WAYS))], GRADIENTS)
)
def test_every_trainable_parameter_gets_a_gradient(tiny_base, ask, way, reentrant):
    model = adapted(tiny_base, **WAYS[way], init=False)
    if reentrant is not None:
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    ask(model.train()).sum().backward()
    assert not [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert not [n for n, p in model.named_parameters() if not p.requires_grad and p.grad is not None]


@pytest.mark.parametrize("parts", [[], ["vision"], ["language_model", "lm_heads"]])
def test_unknown_parts_are_refused(tiny_base, parts):
    with pytest.raises(ConfigError, match="lora_parts"):
        lora_targets(load_backbone(tiny_base), parts)


def test_a_backbone_without_the_part_is_refused(tiny_base):
    with pytest.raises(ConfigError, match="has no such layers"):
        adapted(tiny_base, ("language_model", "lm_head"), head=NLIHead())
    with pytest.raises(ConfigError, match="has no such layers"):
        lora_targets(meta_model(published_config("Qwen2.5-7B-Instruct")), ["visual"])
