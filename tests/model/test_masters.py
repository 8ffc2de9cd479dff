"""What trains is held in float32, whatever the network's dtype: small steps count, and moments follow the gradients."""

import math
from typing import Any

import pytest
import torch
from peft import LoraConfig
from safetensors.torch import load_file, save_file

from proofreel.core.prompt import Prompt
from proofreel.models.backbones.load import load_backbone, load_processor
from proofreel.models.backbones.lora import attach_lora, keep_float32_masters
from proofreel.models.engine.heads import NLIHead
from proofreel.models.inputs.chat_text import LabelWords
from proofreel.train.recipe import cast_weights

LEARNING_RATE = 2e-5  # of the presets after MiRAGE's next-token training
REAL_FAN_IN = 3584  # of the 7B: what a new LoRA A draws from is within 1 / sqrt of it
SETTINGS = {
    "adapters": {},
    "adapters on the tower": {"parts": ("language_model", "visual", "merger")},
    "adapters and a head": {"head": NLIHead(("supported", "refuted"))},
    "all of the language model": None,
}


def network(base, setting: Any, dtype=torch.bfloat16) -> Any:
    torch.manual_seed(0)
    if setting is None:
        model: Any = load_backbone(base, dtype=dtype)
        model.model.visual.requires_grad_(False)
        return model
    head = setting.get("head")
    words = LabelWords.of(Prompt(), load_processor(base).tokenizer) if head else None
    model = load_backbone(base, dtype=dtype, head=head, words=words)
    return attach_lora(model, LoraConfig(r=8), setting.get("parts", ("language_model",)))


def trained_of(model):
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("name", SETTINGS)
def test_no_trained_weight_stands_still_under_a_steady_gradient(tiny_base, name):
    model = network(tiny_base, SETTINGS[name])
    keep_float32_masters(model, autocast=True)
    weights = trained_of(model)
    for parameter in weights.values():
        with torch.no_grad():
            parameter.uniform_(-1 / math.sqrt(REAL_FAN_IN), 1 / math.sqrt(REAL_FAN_IN))
    before = {name: p.detach().clone() for name, p in weights.items()}
    optimizer = torch.optim.AdamW(weights.values(), lr=LEARNING_RATE, weight_decay=0.0)
    for _ in range(20):
        for parameter in weights.values():
            parameter.grad = torch.full_like(parameter, 1e-3)
        optimizer.step()
    for key, parameter in weights.items():
        moved = before[key] - parameter.detach()
        assert torch.allclose(moved, torch.tensor(20 * LEARNING_RATE), rtol=1e-2), key  # Adam steps by the rate


def test_second_moments_follow_gradients_that_become_smaller(tiny_base):
    model = network(tiny_base, {})
    keep_float32_masters(model, autocast=True)
    weights = trained_of(model)
    optimizer = torch.optim.AdamW(weights.values(), lr=LEARNING_RATE)
    expected = 0.0
    for step in range(150):
        gradient = 1.0 if step < 100 else 0.05
        expected = 0.999 * expected + 0.001 * gradient**2
        for parameter in weights.values():
            parameter.grad = torch.full_like(parameter, gradient)
        optimizer.step()
    for parameter in weights.values():
        assert torch.allclose(optimizer.state[parameter]["exp_avg_sq"], torch.tensor(expected), rtol=1e-3)


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_frozen_and_what_goes_through_the_network_keep_their_dtype(tiny_base, name):
    model = network(tiny_base, SETTINGS[name])
    total = sum(p.numel() for p in model.parameters())
    keep_float32_masters(model, autocast=True)
    assert sum(p.numel() for p in model.parameters()) == total
    assert {p.dtype for p in model.parameters() if not p.requires_grad} == {torch.bfloat16}
    assert {p.dtype for p in model.parameters() if p.requires_grad} == {torch.float32}
    streams = []
    layers = next(m for n, m in model.named_modules() if n.endswith("language_model.layers"))
    for layer in layers:
        layer.register_forward_hook(lambda _, __, out: streams.append(out.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        model(input_ids=torch.tensor([[1, 2, 3]]))
    assert set(streams) == {torch.bfloat16}


def test_under_autocast_masters_give_the_logits_of_the_network_in_its_dtype(tiny_base):
    """To the last bit where adapters lie in between: what is trained is what is scored after saving."""
    ids = torch.arange(1, 30)[None]
    stored = network(tiny_base, {})
    with torch.no_grad():
        for name, parameter in trained_of(stored).items():
            if "lora_B" in name:
                parameter.normal_(0, 0.05)
        expected = stored(input_ids=ids).logits
        keep_float32_masters(stored, autocast=True)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(stored(input_ids=ids).logits, expected)


def test_saving_in_a_narrower_dtype_is_measured(tmp_path):
    torch.manual_seed(0)
    tensors = {"a": torch.randn(64, 64), "b": torch.randn(8).bfloat16(), "ids": torch.arange(4)}
    save_file(tensors, tmp_path / "adapter_model.safetensors", metadata={"format": "pt"})
    rms = cast_weights(tmp_path, torch.bfloat16)
    saved = load_file(tmp_path / "adapter_model.safetensors")
    assert {name: t.dtype for name, t in saved.items()} == {
        "a": torch.bfloat16,
        "b": torch.bfloat16,
        "ids": torch.int64,
    }
    assert torch.equal(saved["a"], tensors["a"].bfloat16())
    change = (tensors["a"] - saved["a"].float()).double()
    assert rms == pytest.approx(float((change.square().sum() / tensors["a"].double().square().sum()).sqrt()))
    assert cast_weights(tmp_path, torch.bfloat16) is None
    save_file({"a": tensors["a"]}, tmp_path / "adapter_model.safetensors")
    assert cast_weights(tmp_path, torch.float32) is None
