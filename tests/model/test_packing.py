"""Packing changes nothing: the same margins, loss and gradients as one sequence per claim."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nightly import FAMILIES, first_of, only
from reference_forward import dense_margins, label_loss_sum, plain_logits, plain_margins, verdict_loss_sum
from transformers import BitsAndBytesConfig, DynamicCache

from proofreel.core.errors import ModelInputError
from proofreel.core.pairs import Image, Passage, VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.models.backbones.families import vision_layout
from proofreel.models.backbones.load import load_backbone, load_processor
from proofreel.models.backbones.lora import attach_lora
from proofreel.models.engine.forward import margins, verdict_logits
from proofreel.models.engine.heads import THREE_LABELS, TWO_LABELS, NextToken, NLIHead, margin
from proofreel.models.engine.packing import IGNORED, claim_mask, collate, pack, to_device
from proofreel.models.engine.vision_features import run_tower
from proofreel.models.inputs.chat_text import LabelWords
from proofreel.models.inputs.encoder import Encoder, Media

CLAIMS = ["Object is red ball.", "Action is moving left.", "Location is the far end of a long grey table.", "No."]
VIDEO = (VideoSegment("a.mp4", 0, 2),)
MIXED = (Passage("It moves."), VideoSegment("a.mp4", 0, 2), Image("b.png"), VideoSegment("c.mp4", 0, 4))


@pytest.fixture(scope="module", params=first_of(FAMILIES))
def tiny_base(request, tiny_of):
    return tiny_of(request.param)


@pytest.fixture(scope="module")
def encoder(tiny_base, small_sampling):
    model = load_backbone(tiny_base)
    return Encoder(load_processor(tiny_base), vision_layout(model.config), Prompt(), small_sampling)


@pytest.fixture(scope="module")
def words(encoder):
    return LabelWords.of(Prompt(), encoder.tokenizer)


@pytest.fixture(scope="module")
def readout(words):
    return NextToken(words)


@pytest.fixture
def model(tiny_base):
    torch.manual_seed(0)
    return load_backbone(tiny_base).eval()


def tolerance(value):
    return 1e-4 + 1e-5 * abs(float(value))


def margins_of(model, encoder, readout, evidence, media, claims, together):
    encoded = encoder.evidence(evidence, media)
    ids = [encoder.claim_ids(c) for c in claims]
    rows = [pack(encoded, ids)] if together else [pack(encoded, [i]) for i in ids]
    with torch.no_grad():
        found = [margins(model, collate([r], encoder.pad_id), readout, encoder.layout)[0] for r in rows]
    return torch.cat(found)


@pytest.mark.parametrize("evidence_and_frames", [(VIDEO, (8,), 0), (MIXED, (4, 8), 1), ((Passage("Hi."),), (), 0)])
def test_packed_margins_equal_separate_ones(model, encoder, readout, make_media, evidence_and_frames):
    evidence, frames, images = evidence_and_frames
    media = make_media(*frames, images=images)
    packed = margins_of(model, encoder, readout, evidence, media, CLAIMS, together=True)
    alone = margins_of(model, encoder, readout, evidence, media, CLAIMS, together=False)
    assert torch.allclose(packed, alone, atol=1e-4, rtol=1e-5)
    assert len(set(packed.tolist())) == len(CLAIMS)  # the claims are told apart, or equality would prove nothing


def test_changing_one_claim_leaves_the_others_bit_identical(model, encoder, readout, make_media):
    ids = encoder.claim_ids(CLAIMS[0]).clone()
    ids[len(ids) // 2] = encoder.tokenizer.convert_tokens_to_ids("!")
    encoded = encoder.evidence(VIDEO, make_media(8))
    rest = [encoder.claim_ids(c) for c in CLAIMS[1:]]
    with torch.no_grad():
        before = margins(
            model, collate([pack(encoded, [encoder.claim_ids(CLAIMS[0]), *rest])], 0), readout, encoder.layout
        )
        after = margins(model, collate([pack(encoded, [ids, *rest])], 0), readout, encoder.layout)
    assert before[0, 0] != after[0, 0]
    assert torch.equal(before[0, 1:], after[0, 1:])


def test_order_of_claims_does_not_matter(model, encoder, readout, make_media):
    forward = margins_of(model, encoder, readout, VIDEO, make_media(8), CLAIMS, together=True)
    backward = margins_of(model, encoder, readout, VIDEO, make_media(8), CLAIMS[::-1], together=True)
    assert torch.allclose(forward, backward.flip(0), atol=1e-4, rtol=1e-5)


def test_rows_of_different_length_in_one_batch_keep_their_margins(model, encoder, readout, make_media):
    short = pack(encoder.evidence(VIDEO, make_media(4, seed=1)), [encoder.claim_ids(CLAIMS[0])])
    long = pack(encoder.evidence(VIDEO, make_media(8, seed=2)), [encoder.claim_ids(c) for c in CLAIMS])
    with torch.no_grad():
        both = margins(model, collate([short, long], encoder.pad_id), readout, encoder.layout)
        alone = [margins(model, collate([r], encoder.pad_id), readout, encoder.layout)[0] for r in (short, long)]
    assert torch.allclose(both[0, :1], alone[0], atol=1e-4)
    assert torch.isnan(both[0, 1:]).all()
    assert torch.allclose(both[1], alone[1], atol=1e-4)


READOUTS = {"next token": None, "two labels": NLIHead(TWO_LABELS), "three labels": NLIHead(THREE_LABELS)}


def prepared(base, words, head, how, checkpointing):
    """A network in training mode, and how its verdicts are read."""
    nf4 = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    torch.manual_seed(0)
    model = load_backbone(base, head=head, words=words, quantization_config=nf4 if how == "qlora" else None)
    if how != "full":
        from peft import LoraConfig

        model = attach_lora(model, LoraConfig(r=4, init_lora_weights=False))
    if checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    return model.train(), head or NextToken(words)


def gradients(model, loss):
    """The gradients of a loss, by parameter; the model's own are cleared."""
    model.zero_grad()
    loss.backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def loss_of(logits_BKC, labels_BK):
    """Sum of the two-way or three-way losses; labels are indices of classes."""
    if logits_BKC.shape[-1] == 3:
        return label_loss_sum(logits_BKC, labels_BK)
    supported = torch.where(labels_BK == IGNORED, IGNORED, 1 - labels_BK)
    return verdict_loss_sum(margin(logits_BKC), supported)


STEPS = [(c, how, readout) for c in (True, False) for how in ("lora", "full", "qlora") for readout in READOUTS]


@pytest.mark.parametrize(
    ("checkpointing", "how", "readout_name"), only([s for s in STEPS if s[0] or s[2] == next(iter(READOUTS))], STEPS)
)
def test_packed_loss_and_gradients_equal_those_of_separate_sequences(
    tiny_base, encoder, words, make_media, how, checkpointing, readout_name
):
    """Two videos of different length in a batch, against one plain forward and backward per claim."""
    model, readout = prepared(tiny_base, words, READOUTS[readout_name], how, checkpointing)
    rows = [encoder.evidence(VIDEO, make_media(n, seed=n)) for n in (4, 8)]
    ids = [[encoder.claim_ids(c) for c in CLAIMS], [encoder.claim_ids(c) for c in CLAIMS[1:]]]
    labels = torch.tensor([[0, 1, 1, 0], [1, 0, 1, IGNORED]])
    if len(readout.labels) == 3:
        labels[0, 2] = 2
    batch = collate([pack(e, i) for e, i in zip(rows, ids, strict=True)], encoder.pad_id)
    loss = loss_of(verdict_logits(model, batch, readout, encoder.layout), labels)
    packed = gradients(model, loss)
    total, summed = 0.0, {}
    for b, k in (labels != IGNORED).nonzero().tolist():
        part = loss_of(plain_logits(model, rows[b], ids[b][k], readout)[None, None], labels[b : b + 1, k : k + 1])
        total += float(part.detach())
        for name, g in gradients(model, part).items():
            summed[name] = summed.get(name, 0) + g
    assert abs(float(loss.detach()) - total) / 7 <= 1e-6
    assert set(packed) == set(summed)
    assert any("visual" in n for n in packed) == (how == "full")  # only full fine-tuning reaches the vision tower here
    assert any("score" in n for n in packed) == (READOUTS[readout_name] is not None)
    for name, g in packed.items():
        assert torch.norm(g - summed[name]) <= 1e-4 * torch.norm(summed[name]) + 1e-7, name


@pytest.mark.parametrize("train_vision", [True, False])
@pytest.mark.parametrize("checkpointing", [True, False])
def test_the_vision_tower_runs_once_for_all_claims_and_frozen_keeps_no_graph(
    tiny_base, encoder, words, make_media, train_vision, checkpointing
):
    model, readout = prepared(tiny_base, words, None, "full" if train_vision else "lora", checkpointing)
    tower: Any = model.get_submodule("model.visual" if train_vision else "base_model.model.model.visual")
    seen, blocks = [], []
    tower.register_forward_hook(lambda _, args, out: seen.append((len(args[0]), out.pooler_output.requires_grad)))
    tower.blocks[0].attn.register_forward_hook(lambda *_: blocks.append(torch.is_grad_enabled()))
    rows = [
        pack(encoder.evidence(VIDEO, make_media(n, seed=n)), [encoder.claim_ids(c) for c in CLAIMS]) for n in (4, 8)
    ]
    batch = collate(rows, encoder.pad_id)
    margins(model, batch, readout, encoder.layout).sum().backward()
    assert seen == [(len(batch["pixel_values_videos"]), train_vision)]
    # Checkpointing recomputes a block in the backward pass, where the tower trains; a frozen one is left alone.
    assert len(blocks) == (2 if train_vision and checkpointing else 1)
    assert torch.is_grad_enabled()


def test_the_tower_hands_the_gradient_mode_back_after_an_error(model):
    with pytest.raises(Exception):  # noqa: B017, PT011 (whatever the tower makes of this)
        model.model.visual(None, grid_thw=None)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("readout_name", READOUTS)
@pytest.mark.parametrize("evidence_and_frames", [(VIDEO, (8,), 0), (MIXED, (4, 8), 1)])
def test_packed_margins_equal_plain_and_dense_ones(
    tiny_base, encoder, words, make_media, evidence_and_frames, readout_name
):
    evidence, frames, images = evidence_and_frames
    head = READOUTS[readout_name]
    model, readout = load_backbone(tiny_base, head=head, words=words).eval(), head or NextToken(words)
    long = encoder.evidence(evidence, make_media(*frames, images=images))
    short = encoder.evidence((Passage("Hi."),), make_media())
    ids = [encoder.claim_ids(c) for c in CLAIMS]
    batch = collate([pack(long, ids), pack(short, ids[:2])], encoder.pad_id)
    with torch.no_grad():
        found = margins(model, batch, readout, encoder.layout)
        dense = dense_margins(model, batch, readout)
        plain = [plain_margins(model, long, ids, readout), plain_margins(model, short, ids[:2], readout)]
    assert torch.allclose(found, dense, atol=1e-4, rtol=1e-5, equal_nan=True)
    assert torch.allclose(found[0], plain[0], atol=1e-4, rtol=1e-5)
    assert torch.allclose(found[1, :2], plain[1], atol=1e-4, rtol=1e-5)
    assert torch.isnan(found[1, 2:]).all()


shown = st.one_of(
    st.tuples(st.just("video"), st.integers(1, 3).map(lambda n: 2 * n), st.sampled_from([0.1, 0.5, 1.7])),
    st.tuples(st.just("image"), st.just(1), st.just(0.0)),
    st.tuples(st.just("text"), st.integers(1, 6), st.just(0.0)),
)
drawn_rows = st.lists(
    st.tuples(st.lists(shown, min_size=1, max_size=3), st.lists(st.integers(1, 9), min_size=0, max_size=5)),
    min_size=1,
    max_size=3,
)


@settings(deadline=None, max_examples=25)
@given(rows=drawn_rows, seed=st.integers(0, 99), rule=st.sampled_from(["published", "hf5"]))
def test_packed_margins_equal_plain_ones_whatever_is_packed(shared, make_media, rows, seed, rule):
    """Random numbers of videos, images and passages, of claims and of their tokens, under both position rules."""
    model, encoder, readout = shared
    encoder.rule = rule
    generator = torch.Generator().manual_seed(seed)
    encoded, claims = [], []
    for parts, lengths in rows:
        evidence = tuple(
            VideoSegment("a.mp4", 0, 1) if kind == "video" else Image("b.png") if kind == "image" else Passage("x" * n)
            for kind, n, _ in parts
        )
        videos = [
            make_media(n, seed=seed, side=56, step_s=step).videos[0] for kind, n, step in parts if kind == "video"
        ]
        images = make_media(images=sum(kind == "image" for kind, _, _ in parts), seed=seed, side=56).images_HWC
        encoded.append(encoder.evidence(evidence, Media(tuple(videos), images)))
        claims.append([torch.randint(30, 300, (n,), generator=generator) for n in lengths])
    batch = collate([pack(e, c) for e, c in zip(encoded, claims, strict=True)], encoder.pad_id)
    with torch.no_grad():
        found = margins(model, batch, readout, encoder.layout)
        for b, (e, c) in enumerate(zip(encoded, claims, strict=True)):
            assert torch.isnan(found[b, len(c) :]).all()
            if c:
                assert torch.allclose(found[b, : len(c)], plain_margins(model, e, c, readout), atol=1e-4, rtol=1e-5)


@pytest.fixture(scope="module")
def shared(tiny_base, small_sampling, words):
    model = load_backbone(tiny_base).eval()
    return (
        model,
        Encoder(load_processor(tiny_base), vision_layout(model.config), Prompt(), small_sampling),
        NextToken(words),
    )


def cached_batch(batch):
    """The claims region of a batch, for a cache that holds its prefixes."""
    tail = {k: v for k, v in batch.items() if k in ("block", "verdicts", "prefix_len")}
    prefix_len = batch["prefix_len"]
    return tail | {
        "input_ids": batch["input_ids"][:, prefix_len:],
        "position_ids": batch["position_ids"][..., prefix_len:],
    }


def test_state_on_the_model_and_earlier_caches_do_not_matter(model, encoder, readout, make_media):
    rows = [
        pack(encoder.evidence(VIDEO, make_media(n, seed=n)), [encoder.claim_ids(c) for c in CLAIMS]) for n in (4, 8)
    ]
    batch = collate(rows, encoder.pad_id)
    single = collate([pack(encoder.evidence(VIDEO, make_media(8)), [encoder.claim_ids("No.")])], encoder.pad_id)
    with torch.no_grad():
        fresh = [margins(model, b, readout, encoder.layout) for b in (batch, single)]
        for stale in (torch.tensor([[12345]]), torch.tensor([[-7], [9]])):
            model.model.rope_deltas = stale
            cache = DynamicCache(config=model.config)
            again = [
                margins(model, batch, readout, encoder.layout, cache),
                margins(model, single, readout, encoder.layout),
            ]
            assert all(
                torch.equal(a, b.nan_to_num()) for a, b in zip([f.nan_to_num() for f in fresh], again, strict=True)
            )
            assert cache.get_seq_length() == batch["input_ids"].shape[1]
            cache.crop(batch["prefix_len"] - cache.get_seq_length())
            after = margins(model, cached_batch(batch), readout, encoder.layout, cache)
            assert torch.allclose(after, fresh[0], atol=1e-4, rtol=1e-5)
        model.model.rope_deltas = None
        assert all(
            torch.equal(margins(model, b, readout, encoder.layout), f)
            for b, f in zip((batch, single), fresh, strict=True)
        )


def test_one_claim_after_a_cached_prefix_is_masked_like_many(model, encoder, readout, make_media):
    evidence = encoder.evidence(VIDEO, make_media(8))
    batch = collate([pack(evidence, [encoder.claim_ids(CLAIMS[2])])], encoder.pad_id)
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        whole = margins(model, batch, readout, encoder.layout, cache)
        cache.crop(batch["prefix_len"] - cache.get_seq_length())
        after = margins(model, cached_batch(batch), readout, encoder.layout, cache)
        plain = plain_margins(model, evidence, [encoder.claim_ids(CLAIMS[2])], readout)
    assert torch.allclose(whole[0], plain, atol=1e-4, rtol=1e-5)
    assert torch.allclose(after[0], plain, atol=1e-4, rtol=1e-5)


def test_bfloat16_packed_margins_are_near_separate_ones(tiny_base, encoder, readout, make_media):
    """The bound is that of half precision itself, not of packing (benchmarks/results/engine.md)."""
    claims = [encoder.claim_ids(f"{CLAIMS[i % 4]} {i}") for i in range(16)]
    evidence = encoder.evidence(VIDEO, make_media(8))
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        model = load_backbone(tiny_base, dtype=dtype).eval()
        with torch.no_grad():
            packed = margins(model, collate([pack(evidence, claims)], 0), readout, encoder.layout)[0]
            found[dtype] = packed, plain_margins(model, evidence, claims, readout)
    assert all(m.dtype == torch.float32 for pair in found.values() for m in pair)
    between = (found[torch.bfloat16][0] - found[torch.bfloat16][1]).abs().max()
    precision = (found[torch.bfloat16][1] - found[torch.float32][1]).abs().max()
    spread = found[torch.float32][1].std()
    print(f"bfloat16: packed-separate {between:.5f}, separate-float32 {precision:.5f}, spread of margins {spread:.5f}")
    assert between <= 0.05 * (1 + spread)


@pytest.mark.parametrize("empty", ["no claim", "all padding"])
def test_a_row_of_padding_makes_no_nan_and_no_nan_in_gradients(tiny_base, encoder, words, make_media, empty):
    model, readout = prepared(tiny_base, words, None, "full", checkpointing=False)
    evidence = encoder.evidence(VIDEO, make_media(8))
    ids = [encoder.claim_ids(c) for c in CLAIMS[:2]]
    batch = collate([pack(evidence, ids), pack(evidence, [] if empty == "no claim" else ids)], encoder.pad_id)
    if empty == "all padding":
        batch["block"][1], batch["verdicts"][1] = -1, -1
    found = margins(model, batch, readout, encoder.layout)
    labels = torch.tensor([[1.0, 0.0], [IGNORED, IGNORED]])
    grads = gradients(model, verdict_loss_sum(found, labels))
    assert torch.isfinite(found[0]).all()
    assert torch.isnan(found[1]).all()
    assert grads
    assert all(torch.isfinite(g).all() for g in grads.values())


def test_columns_of_a_batch_are_prefixes_then_claims(encoder, make_media):
    short, long = (encoder.evidence(VIDEO, make_media(n, seed=n)) for n in (4, 8))
    ids = [encoder.claim_ids(c) for c in CLAIMS]
    batch = collate([pack(short, ids[:1]), pack(long, ids)], encoder.pad_id)
    prefix_len = batch["prefix_len"]
    assert type(prefix_len) is int
    assert prefix_len == len(long.ids_P)
    assert batch["block"][0, : len(short.ids_P)].eq(0).all()
    assert batch["block"][0, len(short.ids_P) : prefix_len].eq(-1).all()
    assert batch["block"][0, prefix_len : prefix_len + len(ids[0])].eq(1).all()
    for b, (evidence, claims) in enumerate([(short, ids[:1]), (long, ids)]):
        starts = batch["position_ids"][0, b][batch["block"][b] == 1][0]
        assert int(starts) == evidence.next_position
        for k, claim in enumerate(claims):
            at = batch["block"][b] == k + 1
            assert torch.equal(batch["input_ids"][b][at], claim)
            assert int(at.nonzero()[-1]) == int(batch["verdicts"][b, k])
    assert batch["verdicts"][0, 1:].eq(-1).all()
    assert to_device(batch, "cpu")["prefix_len"] == prefix_len


def test_mask_shows_a_claim_the_prefix_and_itself_only():
    mask = claim_mask(torch.tensor([[0, 0, -1, 1, 1, 2, -1]]), prefix_len=3)[0, 0]
    assert mask.int().tolist() == [
        [1, 1, 0, 1, 0, 0, 0],
        [1, 1, 0, 1, 1, 0, 0],
        [1, 1, 0, 0, 0, 1, 0],
        [1, 1, 0, 0, 0, 0, 1],
    ]


def test_margin_is_the_difference_of_the_two_label_logits(model, encoder, readout, words, make_media):
    """Against the backbone's own unpacked forward, with full logits and its own causal mask."""
    encoded = encoder.evidence(VIDEO, make_media(8))
    ids = torch.cat([encoded.ids_P, encoder.claim_ids(CLAIMS[0])])
    tail = torch.arange(len(ids) - len(encoded.ids_P)) + encoded.next_position
    position_ids = torch.cat([encoded.positions_3P, tail.expand(3, -1)], 1)[:, None]
    with torch.no_grad():
        logits = model(input_ids=ids[None], position_ids=position_ids, **encoded.vision).logits[0, -1]
    expected = float(logits[words.supported_id] - logits[words.refuted_id])
    found = margins_of(model, encoder, readout, VIDEO, make_media(8), CLAIMS[:1], together=True)
    assert abs(float(found) - expected) <= tolerance(expected)


def features_of(model, batch):
    """A batch whose pixels are replaced by what the vision tower makes of them."""
    pixels = ("pixel_values_videos", "pixel_values")
    video = run_tower(model, {k: batch[k] for k in ("pixel_values_videos", "video_grid_thw")})
    image = run_tower(model, {k: batch[k] for k in ("pixel_values", "image_grid_thw")})
    rest = {k: v for k, v in batch.items() if k not in pixels}
    return rest | {"video_features": torch.cat(video), "image_features": torch.cat(image)}


def test_features_in_place_of_pixels_give_the_same_margins(model, encoder, readout, make_media):
    encoded = encoder.evidence(MIXED, make_media(4, 8, images=1))
    batch = collate([pack(encoded, [encoder.claim_ids(c) for c in CLAIMS])] * 2, encoder.pad_id)
    with torch.no_grad():
        fresh = margins(model, batch, readout, encoder.layout)
        seen = margins(model, features_of(model, batch), readout, encoder.layout)
    assert torch.equal(fresh, seen)


def test_features_that_do_not_fit_their_placeholders_or_stand_beside_pixels_are_refused(
    model, encoder, readout, make_media
):
    encoded = encoder.evidence(MIXED, make_media(4, 8, images=1))
    batch = collate([pack(encoded, [encoder.claim_ids("No.")])], encoder.pad_id)
    good = features_of(model, batch)
    mixed = {k: v for k, v in good.items() if k != "image_features"} | {"pixel_values": batch["pixel_values"]}
    for bad in (good | {"video_features": good["video_features"][1:]}, mixed):
        with pytest.raises(ModelInputError, match=r"never be asked about pixels|pixels or features, not both"):
            margins(model, bad, readout, encoder.layout)


def test_features_survive_what_wrappers_do_to_arguments(model, encoder, make_media):
    """DDP rebuilds the arguments it is given, dictionaries and all."""
    from torch.distributed.utils import _recursive_to

    from proofreel.models.engine.forward import _vision

    encoded = encoder.evidence(MIXED, make_media(4, 8, images=1))
    batch = features_of(model, collate([pack(encoded, [encoder.claim_ids("No.")])], encoder.pad_id))
    given = _vision(batch, encoder.layout.levels)
    (moved,) = _recursive_to(given, torch.device("cpu"), use_side_stream_for_tensor_copies=False)
    video = moved["mm_encoder_outputs"]["video"]
    levels = [video.pooler_output, *(getattr(video, "deepstack_features", None) or ())]
    assert torch.equal(torch.cat([part for (part,) in levels], -1), batch["video_features"])


@pytest.mark.parametrize("key", ["pixel_values_videos", "video_grid_thw"])
def test_placeholders_without_pixels_are_an_error(model, encoder, readout, make_media, key):
    batch = collate([pack(encoder.evidence(VIDEO, make_media(8)), [encoder.claim_ids("No.")])], encoder.pad_id)
    del batch[key]
    with pytest.raises(ModelInputError, match="never be asked about pixels"):
        margins(model, batch, readout, encoder.layout)
