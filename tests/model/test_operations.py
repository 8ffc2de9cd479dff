"""Counted operations: linear layers as torch counts them, attention as pairs counted one by one."""

import pytest
import torch
from peft import LoraConfig
from torch.utils.flop_counter import FlopCounterMode

from proofreel.core.pairs import Image, Passage, VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.models.backbones.families import vision_layout
from proofreel.models.backbones.load import load_backbone, load_processor
from proofreel.models.backbones.lora import attach_lora
from proofreel.models.backbones.shapes import Operations, forward_operations, training_operations, vision_operations_of
from proofreel.models.engine.forward import margins
from proofreel.models.engine.heads import NextToken
from proofreel.models.engine.packing import collate, pack
from proofreel.models.inputs.chat_text import LabelWords
from proofreel.models.inputs.encoder import Encoder

EVIDENCE = (Passage("It moves."), VideoSegment("a.mp4", 0, 2), Image("b.png"), VideoSegment("c.mp4", 0, 2))
CLAIMS = ["Object is red ball.", "Action is moving left.", "No."]
LINEAR = ("mm", "addmm", "convolution")


@pytest.fixture
def model(tiny_base):
    return load_backbone(tiny_base).eval().requires_grad_(False)


@pytest.fixture
def packed(tiny_base, small_sampling, model, make_media):
    encoder = Encoder(load_processor(tiny_base), vision_layout(model.config), Prompt(), small_sampling)
    encoded = encoder.evidence(EVIDENCE, make_media(8, 4, images=1))
    claims = [encoder.claim_ids(c) for c in CLAIMS]
    batch, readout = (
        collate([pack(encoded, claims)], encoder.pad_id),
        NextToken(LabelWords.of(Prompt(), encoder.tokenizer)),
    )
    grids = [g for name in ("video_grid_thw", "image_grid_thw") for g in encoded.vision[name].tolist()]
    sizes = grids, len(encoded.ids_P), [len(c) for c in claims]
    return lambda: margins(model, batch, readout, encoder.layout), sizes


def linear_operations(work):
    with FlopCounterMode(display=False) as counter:
        work()
    counts = counter.get_flop_counts()["Global"]
    return sum(n for op, n in counts.items() if str(op).removeprefix("aten.").startswith(LINEAR))


def test_linear_layers_of_a_forward_are_counted_exactly(model, packed):
    work, sizes = packed
    with torch.no_grad():
        assert forward_operations(model.config, *sizes).linear == linear_operations(work)


def test_linear_layers_of_a_training_step_are_counted_but_for_the_last_product_of_a_recomputed_layer(model, packed):
    work, sizes = packed
    attach_lora(model, LoraConfig(r=2)).train()
    model.activation_checkpointing_enable({"use_reentrant": False})
    model.enable_input_require_grads()
    text, n_tokens = model.config.text_config, sizes[1] + sum(sizes[2])
    # Recomputing stops once everything the backward needs is there, which is before the last adapter's second half.
    unneeded = text.num_hidden_layers * 2 * n_tokens * 2 * text.hidden_size
    counted = training_operations(model.config, *sizes, lora_rank=2).linear
    assert counted - unneeded == linear_operations(lambda: work().sum().backward())


def pairs_of_windows(h, w, side):
    windows = {}
    for y in range(h):
        for x in range(w):
            windows.setdefault((y // side, x // side), []).append((y, x))
    return sum(len(window) ** 2 for window in windows.values())


@pytest.mark.parametrize("grid", [(1, 4, 4), (2, 6, 10), (3, 16, 18)])
def test_attention_of_the_tower_is_the_pairs_within_windows_and_frames(model, grid):
    config, (t, h, w) = model.config.vision_config, grid
    side = config.window_size // config.patch_size
    full = len(config.fullatt_block_indexes)
    pairs = full * t * (h * w) ** 2 + (config.depth - full) * t * pairs_of_windows(h, w, side)
    assert vision_operations_of(model.config, [grid]).attention == 4 * config.hidden_size * pairs


def test_attention_of_the_text_is_the_pairs_that_may_see_each_other(model, packed):
    _, (grids, prefix, claims) = packed
    text = model.config.text_config
    pairs = sum(i + 1 for i in range(prefix)) + sum(prefix + i + 1 for n in claims for i in range(n))
    seen = vision_operations_of(model.config, grids)
    counted = forward_operations(model.config, grids, prefix, claims).attention - seen.attention
    assert counted == text.num_hidden_layers * 4 * text.hidden_size * pairs


def test_sharing_saves_the_prefix_of_every_claim_but_one(model):
    together = forward_operations(model.config, [(2, 4, 4)], 20, [5, 7])
    apart = forward_operations(model.config, [(2, 4, 4)], 20, [5]) + forward_operations(
        model.config, [(2, 4, 4)], 20, [7]
    )
    prefix = forward_operations(model.config, [(2, 4, 4)], 20, [])
    assert apart == together + prefix
    assert prefix.total == Operations(prefix.linear, prefix.attention).linear + prefix.attention
