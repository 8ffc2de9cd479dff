"""Split attention gives what sdpa gives under a dense mask, in every shape, and leaves no trace in saved files."""

import json
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_forward import dense_mask
from transformers import BitsAndBytesConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from proofreel.models.backbones.load import load_backbone
from proofreel.models.engine.packing import PREFIX_SPLIT, claim_blocks, claim_mask, prefix_split


def blocks(rows, prefix_len, tail_len):
    """(B, P+S) block ids of rows given as (prefix length, claim lengths)."""
    found = torch.full((len(rows), prefix_len + tail_len), -1)
    for b, (prefix, claims) in enumerate(rows):
        found[b, :prefix] = 0
        ids = torch.repeat_interleave(torch.arange(len(claims)) + 1, torch.tensor(claims, dtype=torch.long))
        found[b, prefix_len : prefix_len + len(ids)] = ids
    return found


def tensors(n_rows, length, heads, key_heads, seed=0, dim=8):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n_rows, h, length, dim, generator=generator) for h in (heads, key_heads, key_heads)]


def both(rows, heads, key_heads):
    """Split and dense attention of the same tensors: outputs (B, T, heads, D), and the inputs."""
    prefix_len, tail_len = max(p for p, _ in rows), max(sum(c) for _, c in rows)
    block = blocks(rows, prefix_len, tail_len)
    qkv = [t.requires_grad_() for t in tensors(len(rows), prefix_len + tail_len, heads, key_heads)]
    module: Any = SimpleNamespace(num_key_value_groups=heads // key_heads, is_causal=True, training=False)
    q, k, v = qkv
    split = prefix_split(module, q, k, v, claim_mask(block, prefix_len), prefix_len=prefix_len, scaling=0.3)[0]
    dense = sdpa_attention_forward(module, q, k, v, dense_mask(block), scaling=0.3)[0]
    return split, dense, qkv, block


ROWS = [
    [(9, [3, 4])],
    [(9, [3, 4]), (4, [2])],
    [(0, [3, 2]), (0, [1])],
    [(5, []), (7, [])],
    [(1, [1])],
    [(6, []), (2, [4, 1])],
]


@pytest.mark.parametrize("groups", [1, 2, 7])
@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_split_equals_dense_for_real_tokens_and_is_finite_for_all(rows, groups):
    split, dense, _, block = both(rows, heads=2 * groups, key_heads=2)
    assert split.shape == dense.shape
    assert torch.isfinite(split).all()
    assert torch.allclose(split[block >= 0], dense[block >= 0], atol=1e-6)


@pytest.mark.parametrize("groups", [1, 7])
def test_gradients_equal_those_of_the_dense_mask_and_none_flow_to_or_from_pads(groups):
    rows = [(9, [3, 4]), (4, [2])]
    split, dense, qkv, block = both(rows, heads=2 * groups, key_heads=2)
    weights = torch.randn(split.shape, generator=torch.Generator().manual_seed(1)) * (block >= 0)[..., None, None]
    found = torch.autograd.grad((split * weights).sum(), qkv)
    expected = torch.autograd.grad((dense * weights).sum(), qkv)
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, atol=1e-6)
        assert (a.transpose(1, 2)[block < 0] == 0).all()


def test_claims_after_a_cached_prefix_get_what_they_get_with_it():
    rows, prefix_len = [(9, [3, 4]), (4, [2])], 9
    split, _, (q, k, v), block = both(rows, 4, 2)
    module: Any = SimpleNamespace(num_key_value_groups=2, is_causal=True, training=False)
    mask = claim_mask(block, prefix_len)
    alone = prefix_split(module, q[:, :, prefix_len:], k, v, mask, prefix_len=prefix_len, scaling=0.3)[0]
    assert torch.equal(alone, split[:, prefix_len:])


def parts_of(rows, cuts):
    """Blocks of the claims region between these columns: last column of each, and where its first claim starts."""
    starts = [[sum(claims[:i]) for i in range(len(claims) + 1)] for _, claims in rows]
    return tuple((a, b, min(max(s for s in row if s <= a) for row in starts)) for a, b in pairwise(cuts))


@pytest.mark.parametrize("groups", [1, 7])
@pytest.mark.parametrize("rows", [rows for rows in ROWS if any(claims for _, claims in rows)], ids=str)
def test_claims_in_blocks_get_what_one_call_gives(rows, groups):
    split, _, (q, k, v), block = both(rows, 2 * groups, 2)
    prefix_len, tail_len = max(p for p, _ in rows), max(sum(c) for _, c in rows)
    mask = claim_mask(block, prefix_len)
    module: Any = SimpleNamespace(num_key_value_groups=groups, is_causal=True, training=False)
    for cuts in ([*range(tail_len + 1)], [0, *range(2, tail_len), tail_len]):  # within claims too
        known = {"prefix_len": prefix_len, "claim_blocks": parts_of(rows, sorted({*cuts})), "scaling": 0.3}
        whole, after = (prefix_split(module, x, k, v, mask, **known)[0] for x in (q, q[:, :, prefix_len:]))
        assert torch.allclose(whole[block >= 0], split[block >= 0], atol=1e-6)
        assert torch.allclose(after, whole[:, prefix_len:], atol=1e-6)


@pytest.mark.parametrize(
    ("n_prefix", "claim", "k", "n_blocks"),
    [
        (256, 25, 1, 1),
        (256, 25, 4, 1),
        (256, 25, 16, 3),
        (256, 25, 64, 12),
        (1024, 25, 64, 6),
        (4096, 25, 64, 3),
        (4096, 25, 16, 1),
        (16_384, 25, 64, 1),
        (256, 100, 16, 12),
        (256, 400, 4, 4),
        (256, 1600, 1, 1),
        (0, 25, 64, 51),
    ],
)
def test_claims_are_cut_by_the_lengths_of_prefix_and_claims(n_prefix, claim, k, n_blocks):
    found = claim_blocks([[claim] * k], n_prefix)
    assert len(found) == n_blocks
    assert (found[0][0], found[-1][1]) == (0, claim * k)
    assert all(a[1] == b[0] for a, b in pairwise(found))
    assert all(first == back and first % claim == 0 for first, _, back in found)  # between claims


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(st.lists(st.integers(1, 90), max_size=9), min_size=1, max_size=3), n_prefix=st.integers(0, 90))
def test_no_block_leaves_out_what_one_of_its_tokens_looks_at(rows, n_prefix):
    tail_len, found = max(map(sum, rows)), claim_blocks(rows, n_prefix)
    assert [(a, b) for a, b, _ in found] == [*pairwise(sorted({0, tail_len} | {a for a, *_ in found}))]
    mask = claim_mask(blocks([(n_prefix, row) for row in rows], n_prefix, tail_len), n_prefix)[:, 0]
    for first, last, back in found:
        seen = mask[:, first:last].any(1).any(0).nonzero()[:, 0] - n_prefix
        assert ((seen < 0) | ((seen >= back) & (seen < last))).all()


lengths = st.tuples(st.integers(0, 12), st.lists(st.integers(1, 5), max_size=4))


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(lengths, min_size=1, max_size=4), groups=st.sampled_from([1, 2, 3]))
def test_split_equals_dense_whatever_the_lengths(rows, groups):
    if not max(p + sum(c) for p, c in rows):
        return
    split, dense, _, block = both(rows, heads=2 * groups, key_heads=2)
    assert torch.isfinite(split).all()
    assert torch.allclose(split[block >= 0], dense[block >= 0], atol=1e-5)


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(lengths, min_size=1, max_size=3))
def test_the_mask_is_the_claims_part_of_the_dense_one_but_for_pads(rows):
    prefix_len, tail_len = max(p for p, _ in rows), max(sum(c) for _, c in rows)
    block = blocks(rows, prefix_len, tail_len)
    mask, dense = claim_mask(block, prefix_len)[:, 0], dense_mask(block)[:, 0, prefix_len:]
    real = block[:, prefix_len:] >= 0
    assert mask.any(-1).all()
    assert torch.equal(mask[real], dense[real])


@pytest.fixture(scope="module")
def model(tiny_base):
    return load_backbone(tiny_base).eval()


def test_only_the_language_model_uses_it(model):
    assert model.config.text_config._attn_implementation == PREFIX_SPLIT
    assert model.config.vision_config._attn_implementation == "sdpa"
    assert model.model.visual.config._attn_implementation == "sdpa"


@torch.no_grad()
def test_an_ordinary_call_with_a_padding_mask_is_plain_sdpa(model):
    ids = torch.arange(20).reshape(2, 10) + 30
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    ours = model(input_ids=ids, attention_mask=mask).logits
    model.set_attn_implementation({"text_config": "sdpa"})
    theirs = model(input_ids=ids, attention_mask=mask).logits
    unmasked = model(input_ids=ids).logits
    model.set_attn_implementation({"text_config": PREFIX_SPLIT})
    assert torch.equal(ours, theirs)
    assert not torch.allclose(ours[1], unmasked[1], atol=1e-3)  # the mask does something


def test_saved_checkpoints_do_not_name_it_and_load_anywhere(model, tmp_path):
    from transformers import Qwen2_5_VLForConditionalGeneration

    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert "attn" not in json.dumps(saved)
    assert saved["architectures"] == ["Qwen2_5_VLForConditionalGeneration"]
    other: Any = Qwen2_5_VLForConditionalGeneration.from_pretrained(tmp_path)
    assert other.config.text_config._attn_implementation == "sdpa"


@pytest.mark.parametrize("how", ["device_map", "quantised"])
def test_it_is_set_however_the_weights_are_loaded(tiny_base, how):
    nf4 = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    options = {"device_map": {"": "cpu"}, "quantization_config": nf4 if how == "quantised" else None}
    model: Any = load_backbone(tiny_base, **options)
    assert model.config.text_config._attn_implementation == PREFIX_SPLIT
    assert model.model.language_model.layers[0].self_attn.config._attn_implementation == PREFIX_SPLIT
