"""Margins are products in float32: no grid, whatever the network's dtype and whatever stands at the output layer."""

import contextlib
import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from transformers import BitsAndBytesConfig

from proofreel.core import Passage
from proofreel.core.prompt import Prompt
from proofreel.models.backbones import load_backbone, load_processor, vision_layout
from proofreel.models.backbones.lora import attach_lora
from proofreel.models.engine import NextToken, NLIHead, collate, forward, margin, margins, pack
from proofreel.models.inputs import Encoder, LabelWords, Media
from proofreel.models.verifier import Verifier
from proofreel.models.verifier.self_test import selftest

VERIFIER = Path(__file__).resolve().parents[2] / "checkpoints" / "kitchen-verifier"
CLAIMS = ["Object is red ball.", "Action is moving left.", "No."]
ON_OUTPUT = {"r": 4, "target_modules": ["q_proj", "lm_head"]}
KINDS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "LoRA": ON_OUTPUT,
    "DoRA": ON_OUTPUT | {"use_dora": True},
    "trained whole": {"r": 4, "target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    "score": {"r": 4, "target_modules": ["q_proj"]},
}


@pytest.fixture(scope="module")
def encoder(tiny_base, small_sampling):
    return Encoder(load_processor(tiny_base), vision_layout(load_backbone(tiny_base).config), Prompt(), small_sampling)


@pytest.fixture
def words(encoder):
    return LabelWords.of(Prompt(), encoder.tokenizer)


@pytest.fixture
def batch(encoder):
    evidence = encoder.evidence((Passage("A red ball rolls."),), Media())
    return collate([pack(evidence, [encoder.claim_ids(c) for c in CLAIMS])], encoder.pad_id)


def network(base, kind, words, dtype=torch.float32, tied=False, quantised=False):
    """A network of a kind, and its head; adapters are random in both matrices."""
    torch.manual_seed(0)
    head = NLIHead() if kind == "score" else NextToken(words)
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    options: dict[str, Any] = {"quantization_config": config} if quantised else {}
    model = load_backbone(base, dtype=dtype, head=head, words=words, **options)
    if tied:
        model.config.tie_word_embeddings = model.config.get_text_config().tie_word_embeddings = True
        model.tie_weights()
    if (settings := KINDS[kind]) is not None:
        model = attach_lora(model, LoraConfig(**settings))
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.2)
    return model.eval(), head


def output_of(model):
    """The outermost module at the output layer."""
    return next(m for n, m in model.named_modules() if n.rpartition(".")[2] in ("lm_head", "score"))


def in_float32(model, head, hidden_NH):
    """Margins of hidden states by a copy of the output layer in float32, all of its rows."""
    logits_NV = copy.deepcopy(output_of(model)).float()(hidden_NH.float())
    return margin(head.classes(logits_NV if head.rows is None else logits_NV[:, list(head.rows)]))


def seen_by_output(model, batch, head, encoder):
    """Margins, the hidden states that the output layer took, and the shape of what it gave."""
    seen: list[Any] = []
    hook = output_of(model).register_forward_hook(lambda _, x, y: seen.extend([x[0].detach(), y.shape]))
    try:
        return margins(model, batch, head, encoder.layout)[0], *seen
    finally:
        hook.remove()


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_in_bfloat16_a_margin_is_the_float32_product_of_its_hidden_state(
    tiny_base, encoder, words, batch, kind, autocast
):
    model, head = network(tiny_base, kind, words, torch.bfloat16)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found, hidden_NH, shape = seen_by_output(model, batch, head, encoder)
    assert hidden_NH.dtype == torch.bfloat16
    assert kind == "DoRA" or shape == (len(CLAIMS), 2)
    tolerance = 2e-2 if kind == "DoRA" else 1e-5  # DoRA's own norms are of the weights' dtype
    torch.testing.assert_close(found, in_float32(model, head, hidden_NH).detach(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["plain", "LoRA"])
def test_over_quantised_weights_the_output_layer_stays_a_float32_product(tiny_base, encoder, words, batch, kind):
    model, head = network(tiny_base, kind, words, torch.bfloat16, quantised=True)
    with torch.no_grad():
        found, hidden_NH, _ = seen_by_output(model, batch, head, encoder)
        torch.testing.assert_close(found, in_float32(model, head, hidden_NH), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_in_float32_margins_and_gradients_are_those_of_the_whole_layer(
    tiny_base, encoder, words, batch, kind, tied, monkeypatch
):
    if tied and kind in ("score", "trained whole"):
        pytest.skip("a layer of its own is tied to nothing")

    def gradients():
        model, head = network(tiny_base, kind, words, tied=tied)
        output_of(model).train()
        for parameter in output_of(model).parameters():
            parameter.requires_grad_(kind == "plain" or parameter.requires_grad)
        found = margins(model, batch, head, encoder.layout)[0]
        found.square().sum().backward()
        named = {n: p.grad for n, p in model.named_parameters() if p.requires_grad}
        assert any("lm_head" in n or "score" in n or tied for n in named)
        return found, named

    ours, our_gradients = gradients()
    monkeypatch.setattr(forward, "float32_output", lambda *_: contextlib.nullcontext())
    whole, whole_gradients = gradients()
    torch.testing.assert_close(ours, whole, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(our_gradients, whole_gradients, rtol=1e-4, atol=1e-6)


def test_the_network_is_left_as_it_was(tiny_base, encoder, words, batch):
    model, head = network(tiny_base, "LoRA", words)
    margins(model, batch, head, encoder.layout)
    assert not [n for n, m in model.named_modules() if "forward" in vars(m) and "lm_head" in n]


def golden_margins(dtype, monkeypatch):
    """The shipped verifier's margins of its golden inputs."""
    verifier, found = Verifier.from_pretrained(VERIFIER, device="cpu", dtype=dtype, merge=False), []
    score = verifier.score_media

    def kept(*inputs):
        found.append(torch.as_tensor(score(*inputs)))
        return found[-1].numpy()

    monkeypatch.setattr(verifier, "score_media", kept)
    selftest(VERIFIER, verifier, dtype)
    return torch.cat(found)


def test_margins_of_the_shipped_verifier_in_bfloat16_stand_on_no_grid_and_nearer_to_float32(monkeypatch):
    exact = golden_margins("float32", monkeypatch)
    ours = golden_margins("bfloat16", monkeypatch)
    monkeypatch.setattr(forward, "float32_output", lambda *_: contextlib.nullcontext())
    rounded = golden_margins("bfloat16", monkeypatch)

    def on_grid(found):
        return int((found * 32 == (found * 32).round()).sum())

    errors = [(m - exact).abs().mean().item() for m in (ours, rounded)]
    print(f"on the grid: {on_grid(ours)}, rounded {on_grid(rounded)} of {len(ours)}; mean errors {errors}")
    assert on_grid(ours) == 0 < on_grid(rounded)
    assert errors[0] < errors[1]
