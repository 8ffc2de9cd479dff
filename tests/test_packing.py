"""Packing changes nothing: the same margins, loss and gradients as one sequence per claim."""

import pytest
import torch

from proofreel.data_prep.errors import ModelInputError
from proofreel.data_prep.rows import Image, Passage, VideoSegment
from proofreel.models.backbone import attach_lora, load_backbone, load_processor, vision_layout
from proofreel.models.encoding import Encoder
from proofreel.models.heads import NextToken
from proofreel.models.packing import IGNORED, claim_mask, collate, pack
from proofreel.models.prompt import LabelWords, Prompt
from proofreel.models.verdict import margins, verdict_loss_sum

CLAIMS = ["Object is red ball.", "Action is moving left.", "Location is the far end of a long grey table.", "No."]
VIDEO = (VideoSegment("a.mp4", 0, 2),)
MIXED = (Passage("It moves."), VideoSegment("a.mp4", 0, 2), Image("b.png"), VideoSegment("c.mp4", 0, 4))


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


@pytest.mark.parametrize("lora", [True, False])
@pytest.mark.parametrize("checkpointing", [True, False])
def test_packed_gradients_equal_those_of_separate_sequences(
    tiny_base, encoder, readout, make_media, lora, checkpointing
):
    model = load_backbone(tiny_base)
    if lora:
        from peft import LoraConfig

        torch.manual_seed(0)
        model = attach_lora(model, LoraConfig(r=4, init_lora_weights=False))
    if checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    model.train()
    rows = [encoder.evidence(VIDEO, make_media(n, seed=n)) for n in (4, 8)]
    ids = [encoder.claim_ids(c) for c in CLAIMS]
    labels = torch.tensor([[1.0, 0.0, 0.0, 1.0]])

    def gradients(packed_rows, labels_BK):
        model.zero_grad()
        found = margins(model, collate(packed_rows, encoder.pad_id), readout, encoder.layout)
        loss = verdict_loss_sum(found, labels_BK, torch.ones_like(labels_BK))
        loss.backward()
        return loss.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    loss, packed = gradients([pack(e, ids) for e in rows], labels.repeat(2, 1))
    total, summed = torch.tensor(0.0), {}
    for e in rows:
        for i, claim in enumerate(ids):
            part, grads = gradients([pack(e, [claim])], labels[:, i : i + 1])
            total += part
            for name, g in grads.items():
                summed[name] = summed.get(name, 0) + g
    assert abs(float(loss - total)) / 8 <= 1e-6
    assert set(packed) == set(summed)
    assert any("visual" in n for n in packed) != lora  # full fine-tuning reaches the vision tower, our LoRA does not
    for name, g in packed.items():
        assert torch.norm(g - summed[name]) <= 1e-4 * torch.norm(summed[name]) + 1e-7, name


def test_a_row_of_padding_makes_no_nan(model, encoder, readout, make_media):
    one = pack(encoder.evidence((Passage("Hi."),), make_media()), [encoder.claim_ids("No.")])
    batch = collate([one, one], encoder.pad_id)
    batch["block"][1], batch["verdicts"][1] = -1, -1
    with torch.no_grad():
        found = margins(model, batch, readout, encoder.layout)
    assert torch.isfinite(found[0]).all()
    assert torch.isnan(found[1]).all()


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


def test_loss_is_the_two_way_cross_entropy_of_the_label_words():
    logits = torch.tensor([[1.5, -0.25], [0.5, 2.0]])  # (supported, refuted)
    margins_BK = (logits[:, 0] - logits[:, 1])[None]
    labels = torch.tensor([[1.0, 0.0, IGNORED]])
    padded = torch.cat([margins_BK, torch.tensor([[float("nan")]])], 1)
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1]), reduction="sum")
    assert torch.allclose(verdict_loss_sum(padded, labels, torch.ones_like(labels)), expected)


@pytest.mark.parametrize("key", ["pixel_values_videos", "video_grid_thw"])
def test_placeholders_without_pixels_are_an_error(model, encoder, readout, make_media, key):
    batch = collate([pack(encoder.evidence(VIDEO, make_media(8)), [encoder.claim_ids("No.")])], encoder.pad_id)
    del batch[key]
    with pytest.raises(ModelInputError, match="never be asked about pixels"):
        margins(model, batch, readout, encoder.layout)
