"""Qwen3.5: claims that follow copies of a prefix get the margins and gradients of transformers' own classes."""

import json
import re

import numpy as np
import pytest
import torch
from random_drafts import random_draft
from reference_forward import plain_margins
from transformers import AutoModelForImageTextToText, AutoProcessor, Qwen3_5ForConditionalGeneration

from proofreel.core.errors import ConfigError, ModelInputError
from proofreel.core.pairs import Image, Pair, Passage, VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.models.backbones.base import attention_layer
from proofreel.models.backbones.families import BACKBONES, published_config, vision_layout
from proofreel.models.backbones.load import load_backbone, load_processor
from proofreel.models.backbones.lora import lora_targets
from proofreel.models.backbones.shapes import Parameters, kept_numbers
from proofreel.models.directory.adapters import write_merged
from proofreel.models.engine.forward import margins
from proofreel.models.engine.heads import NextToken
from proofreel.models.engine.packing import collate, collate_apart, pack
from proofreel.models.engine.prefix_cache import PrefixCache
from proofreel.models.engine.scorer import PrefixScorer, Segment
from proofreel.models.inputs.chat_text import LabelWords
from proofreel.models.inputs.encoder import Encoder, Media
from proofreel.models.verifier.verifier import Verifier
from proofreel.train.dataset import Collator, GroupDataset
from proofreel.train.plan import as_rows_of
from proofreel.train.settings import VerdictArguments

VIDEO = (VideoSegment("a.mp4", 0, 8),)
EVIDENCES = {
    "video": (VIDEO, (8,), 0),
    "image": ((Image("a.png"), Image("b.png")), (), 2),
    "mixed": ((Passage("It moves."), *VIDEO, Image("b.png"), VideoSegment("c.mp4", 0, 4)), (5, 4), 1),
    "text": ((Passage("A ball rolls."),), (), 0),
}

# Parameters in the safetensors files, as the hub counts them: the network's, and those of the `mtp` head.
ON_THE_HUB = {
    "Qwen3.5-0.8B": 873_438_784,
    "Qwen3.5-2B": 2_274_069_824,
    "Qwen3.5-4B": 4_659_865_088,
    "Qwen3.5-9B": 9_653_104_368,
    "Qwen3.5-27B": 27_781_427_952,
}


@pytest.fixture(scope="module")
def base(tiny_of):
    return tiny_of("qwen3_5")


@pytest.fixture(scope="module")
def model(base):
    return load_backbone(base).eval()


@pytest.fixture(scope="module")
def encoder(base, model, small_sampling):
    return Encoder(load_processor(base), vision_layout(model.config), Prompt(), small_sampling)


@pytest.fixture(scope="module")
def readout(encoder):
    return NextToken(LabelWords.of(Prompt(), encoder.tokenizer))


@pytest.fixture
def encode(encoder, make_media):
    def encoded(name):
        evidence, frames, images = EVIDENCES[name]
        return encoder.evidence(evidence, make_media(*frames, images=images))

    return encoded


def claims_of(encoder, k):
    """Claims of three lengths, so that rows of a batch are padded."""
    words = ("red", "a ball that rolls", "a long grey table at the far end of the room")
    return tuple(encoder.claim_ids(f"Object {i} is {words[i % 3]}.") for i in range(k))


def scorer_of(model, encoder, readout, gib=0.0, **options):
    return PrefixScorer(model, readout, encoder.layout, encoder.pad_id, PrefixCache(gib), **options)


def close(found, expected):
    return torch.allclose(torch.as_tensor(found), expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "k"), [("video", 1), ("video", 7), ("mixed", 33), ("image", 7), ("text", 1), ("text", 7)]
)
def test_margins_after_copies_are_those_of_one_plain_sequence_per_claim(model, encoder, readout, encode, name, k):
    evidence, claims = encode(name), claims_of(encoder, k)
    (found,) = scorer_of(model, encoder, readout).score([Segment(evidence, claims)])
    with torch.no_grad():
        assert close(found, plain_margins(model, evidence, claims, readout))
    assert len(set(found.tolist())) == k


def test_chunks_memory_and_company_change_no_margin(model, encoder, readout, encode):
    segments = [Segment(encode(name), claims_of(encoder, k)) for name, k in (("video", 7), ("text", 3))]
    expected = scorer_of(model, encoder, readout).score(segments)
    for options in ({"claims_per_chunk": 2}, {"claim_tokens": 30}, {"copy_bytes": 1}):
        found = scorer_of(model, encoder, readout, **options).score(segments)
        for one, other in zip(found, expected, strict=True):
            assert np.allclose(one, other, atol=1e-5)


def test_a_kept_prefix_answers_the_next_question_and_is_never_written_to(model, encoder, readout, encode):
    evidence, claims = encode("mixed"), claims_of(encoder, 7)
    scorer = scorer_of(model, encoder, readout, gib=0.5)
    (first,) = scorer.score([Segment(evidence, claims[:1], key="k")])
    prefix = scorer.prefixes.get("k")
    assert prefix is not None
    before = [tuple(t.clone() for t in pair) for pair in prefix.layers]
    for _ in range(2):
        (again,) = scorer.score([Segment(prefix.evidence, claims, key="k", prefix=prefix)])
        with torch.no_grad():
            assert close(again, plain_margins(model, evidence, claims, readout))
        assert abs(float(first[0]) - float(again[0])) < 1e-4
    for pair, kept in zip(prefix.layers, before, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(pair, kept, strict=True))


def test_a_prefix_holds_keys_of_layers_that_attend_and_one_state_of_the_others(model, encoder, readout, encode):
    scorer, text = scorer_of(model, encoder, readout, gib=0.5), model.config.text_config
    for name in ("text", "video"):
        scorer.score([Segment(encode(name), claims_of(encoder, 1), key=name)])
    short, long = (scorer.prefixes.get(name) for name in ("text", "video"))
    assert short is not None
    assert long is not None
    for kind, one, other in zip(text.layer_types, short.layers, long.layers, strict=True):
        assert (one[0].shape == other[0].shape) == (kind == "linear_attention")
    assert set(text.layer_types) == {"linear_attention", "full_attention"}


def test_several_claims_in_a_row_are_refused_and_so_are_pads_before_a_claim(model, encoder, readout, encode):
    evidence, claims = encode("text"), claims_of(encoder, 2)
    with pytest.raises(ModelInputError, match=r"claims cannot branch .* got 2 in a row; .*claims_per_row: 1"):
        margins(model, collate([pack(evidence, claims)], encoder.pad_id), readout, encoder.layout)
    with pytest.raises(ModelInputError, match="claims cannot branch"):
        collate_apart([pack(evidence, claims)], encoder.pad_id)
    rows = [pack(evidence, claims[:1]), pack(encode("video"), claims[1:])]
    with pytest.raises(ModelInputError, match="pads before it"):
        margins(model, collate(rows, encoder.pad_id), readout, encoder.layout)


def test_gradients_of_a_batch_of_rows_are_those_of_claims_one_by_one(base, encoder, readout, encode):
    network = load_backbone(base).eval()
    evidence, claims = encode("mixed"), claims_of(encoder, 3)
    other = encode("text")
    signs = torch.tensor([1.0, -1.0, 1.0])
    rows = [pack(evidence, claims[:1]), pack(evidence, claims[1:2]), pack(other, claims[2:])]
    found = []
    for together in (True, False):
        network.zero_grad()
        if together:
            batch = margins(network, collate_apart(rows, encoder.pad_id), readout, encoder.layout)[:, 0]
            (batch * signs).sum().backward()
        else:
            of_mixed = plain_margins(network, evidence, claims[:2], readout)
            of_text = plain_margins(network, other, claims[2:], readout)
            (torch.cat([of_mixed, of_text]) * signs).sum().backward()
        found.append({n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    assert any("linear_attn.A_log" in name for name in found[0])
    for name, gradient in found[0].items():
        assert torch.allclose(gradient, found[1][name], atol=1e-5, rtol=1e-4), name


@pytest.mark.parametrize("name", ON_THE_HUB)
def test_files_of_a_published_checkpoint_hold_the_network_and_its_mtp_head(name):
    config = published_config(name)
    text = config.text_config
    hidden = text.hidden_size
    layer = sum(i * o for i, o in attention_layer(text, gated=True)) + 2 * hidden + 2 * text.head_dim
    mtp = layer + 2 * hidden * hidden + 3 * hidden  # its layer, what joins two states, and three norms
    assert Parameters.of(config).total + mtp == ON_THE_HUB[name]


def test_lora_goes_to_what_states_are_made_of_too(model):
    pattern = re.compile(lora_targets(model, ["language_model"]))
    found = [name.rpartition(".")[2] for name, _ in model.named_modules() if pattern.fullmatch(name)]
    assert len(found) == len(BACKBONES["qwen3_5"].linears(model.config.text_config))
    assert found.count("in_proj_qkv") == model.config.text_config.layer_types.count("linear_attention")


@pytest.fixture(scope="module")
def merged(base, small_sampling, tmp_path_factory):
    folder = tmp_path_factory.mktemp("qwen3-5")
    draft = random_draft(base, folder / "draft", small_sampling)
    write_merged(draft, folder / "merged")
    return draft, folder / "merged"


@pytest.mark.parametrize("network", [Qwen3_5ForConditionalGeneration, AutoModelForImageTextToText])
def test_a_merged_verifier_opens_in_plain_transformers_with_its_own_positions(merged, make_media, network):
    _, directory = merged
    verifier, (evidence, frames, images) = Verifier.from_pretrained(directory, device="cpu"), EVIDENCES["mixed"]
    media, claims = make_media(*frames, images=images), ["Object is red ball.", "Action is moving left.", "No."]
    found = verifier.score_media([(claim, None) for claim in claims], evidence, media)
    encoded = verifier.encoder.evidence(evidence, media)
    plain = network.from_pretrained(directory / "model").eval()
    AutoProcessor.from_pretrained(directory / "processor")
    words = json.loads((directory / "verifier_config.json").read_text())
    for claim, margin in zip(claims, found, strict=True):
        ids = torch.cat([encoded.ids_P, verifier.encoder.claim_ids(claim)])
        kinds = (ids == verifier.encoder.layout.image_token_id).int()
        kinds += 2 * (ids == verifier.encoder.layout.video_token_id).int()
        with torch.inference_mode():
            logits = plain(input_ids=ids[None], mm_token_type_ids=kinds[None], **encoded.vision).logits[0, -1].float()
        other = float(logits[words["supported_id"]] - logits[words["refuted_id"]])
        assert abs(other - margin) <= 1e-4 + 1e-5 * abs(margin)


def test_the_merged_directory_scores_as_its_adapter(merged, make_media):
    evidence, frames, images = EVIDENCES["mixed"]
    media = make_media(*frames, images=images)
    one, two = (
        Verifier.from_pretrained(path, device="cpu").score_media([("No.", None)], evidence, media) for path in merged
    )
    assert np.allclose(one, two, atol=1e-4)


def test_a_run_trains_one_claim_a_row_and_refuses_a_loss_over_claims_of_a_row():
    config, asked = published_config("Qwen3.5-4B"), VerdictArguments(claims_per_row=16)
    assert as_rows_of(config, asked).claims_per_row == 1
    assert as_rows_of(published_config("Qwen3-VL-4B-Instruct"), asked) is asked
    with pytest.raises(ConfigError, match=r"paired_weight: claims of Qwen3\.5 never share a row .* got 0\.5"):
        as_rows_of(config, VerdictArguments(paired_weight=0.5))


def test_batches_of_a_run_are_padded_behind_their_claims(model, encoder, readout):
    evidence = (Passage("A ball rolls over a table."),), (Passage("It ends."),)
    pairs = [Pair(str(i), f"It is {'so ' * i}.", evidence[i % 2], label="supported") for i in range(3)]
    rows = GroupDataset(pairs, encoder, claims_per_row=1)
    batch = Collator(encoder.pad_id, encoder.layout.branches)([rows[i] for i in range(3)])
    with torch.no_grad():
        found = margins(model, batch, readout, encoder.layout)[:, 0]
        alone = [
            plain_margins(model, encoder.evidence(p.evidence, Media()), [encoder.claim_ids(p.claim)], readout)
            for (p,) in rows.groups
        ]
    assert close(found, torch.cat(alone))


def test_a_verifier_says_that_claims_follow_copies_and_what_is_copied(merged):
    verifier = Verifier.from_pretrained(merged[1], device="cpu")
    per_token, states = kept_numbers(verifier.model.config)
    verifier.prefixes.max_bytes = 2**30
    scorer = verifier.scorer
    evidence = verifier.encoder.evidence((Passage("A ball rolls."),), Media())
    scorer.score([Segment(evidence, claims_of(verifier.encoder, 2), key="k")])
    assert verifier.prefixes.n_bytes == 4 * (per_token * len(evidence.ids_P) + states)
    assert re.search(
        r"claims: each after a copy of what is kept of its evidence, [\d.]+ KiB a token and", repr(verifier)
    )
