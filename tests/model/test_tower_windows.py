"""Windows of a vision tower in one call per length: the tower's own numbers, to the last bit."""

import itertools
from typing import Any

import pytest
import torch
from nightly import FAMILIES, first_of
from transformers import AttentionInterface

from proofreel.models.backbones.families import BACKBONES
from proofreel.models.engine import windows as subject
from proofreel.models.engine.windows import WINDOWS, use_windows

GRIDS = ([[4, 8, 8]], [[2, 10, 14]], [[1, 6, 22], [3, 12, 4]])  # whole windows; cut ones; a picture and a clip


@pytest.fixture(params=first_of(FAMILIES))
def network(request, tiny_of):
    from proofreel.models.backbones.load import load_backbone

    return load_backbone(tiny_of(request.param))


def features(network, grid, of):
    for block in network.get_encoder("image").blocks:
        block.attn.config._attn_implementation = of
    vision: Any = BACKBONES[network.config.model_type].vision_config(network.config)
    patch = vision.patch_size
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(int(torch.tensor(grid).prod(-1).sum()), 6 * patch**2, generator=generator)
    with torch.inference_mode():
        return network.get_encoder("image")(pixels, torch.tensor(grid), return_dict=True)


@pytest.mark.parametrize("grid", GRIDS, ids=["whole", "cut", "two"])
def test_features_are_those_of_a_call_per_window(network, grid):
    expected, found = (features(network, grid, of) for of in ("sdpa", WINDOWS))
    assert torch.equal(found.pooler_output, expected.pooler_output)
    assert torch.equal(found.last_hidden_state, expected.last_hidden_state)


def test_there_is_a_call_for_each_length_and_not_for_each_window(network, monkeypatch):
    calls = []
    plain = subject.sdpa_attention_forward

    def counted(*args, **kwargs):
        calls.append(args[1].shape)
        return plain(*args, **kwargs)

    monkeypatch.setattr(subject, "sdpa_attention_forward", counted)
    features(network, [[4, 8, 8]], WINDOWS)
    depth = len(network.get_encoder("image").blocks)
    assert len(calls) == depth  # every window, or every frame, is of one length
    assert all(shape[0] * shape[2] == 4 * 8 * 8 for shape in calls)


def test_a_loaded_backbone_attends_so_and_its_files_do_not_say_it(network, tmp_path):
    assert network.get_encoder("image").blocks[0].attn.config._attn_implementation == WINDOWS
    assert network.config.vision_config._attn_implementation == "sdpa"
    type(network)(network.config)  # a network like it can be made
    network.save_pretrained(tmp_path / "saved")
    assert WINDOWS not in (tmp_path / "saved" / "config.json").read_text()


@pytest.mark.parametrize("lengths", [[4], [4, 4, 4], [2, 4, 2, 6, 4], [6, 0, 1]])
def test_any_lengths_give_what_each_window_gives_alone(lengths):
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 3, sum(lengths), 8, generator=generator) for _ in range(3))
    bounds = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    found, _ = AttentionInterface()[WINDOWS](
        torch.nn.Module(), q, k, v, None, cu_seq_lens_q=bounds, scaling=0.3, dropout=0.0, is_causal=False
    )
    for start, length in zip(bounds.tolist(), lengths, strict=False):
        at = slice(start, start + length)
        alone = torch.nn.functional.scaled_dot_product_attention(q[:, :, at], k[:, :, at], v[:, :, at], scale=0.3)
        assert torch.allclose(found[:, at], alone.transpose(1, 2), atol=1e-6)


def test_gradients_pass(network):
    use_windows(network)
    network.requires_grad_(True)
    patch = network.config.vision_config.patch_size
    out = network.get_encoder("image")(torch.randn(140, 6 * patch**2), torch.tensor([[1, 10, 14]]), return_dict=True)
    out.pooler_output.sum().backward()
    assert all(p.grad is not None for name, p in network.get_encoder("image").named_parameters() if "qkv" in name)
