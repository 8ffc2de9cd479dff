"""Qwen3-VL: the prompt, positions and margins of transformers' own classes, and all that follows from the family."""

import json
import re

import numpy as np
import pytest
import torch
from random_drafts import random_draft
from reference_forward import plain_margins
from transformers import AutoModelForImageTextToText, AutoProcessor, Qwen3VLForConditionalGeneration

from proofreel.core.pairs import Image, Passage, VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.data_prep.media.frame_files import shown_times
from proofreel.data_prep.media.frames import FrameSampling, read_frames, target_size
from proofreel.models.backbones.families import BACKBONES, vision_layout
from proofreel.models.backbones.load import load_backbone, load_processor
from proofreel.models.backbones.lora import lora_targets
from proofreel.models.directory.adapters import write_merged
from proofreel.models.engine.forward import margins
from proofreel.models.engine.heads import NextToken
from proofreel.models.engine.packing import collate, pack
from proofreel.models.inputs.chat_text import LabelWords
from proofreel.models.inputs.encoder import Encoder
from proofreel.models.verifier.verifier import Verifier

VIDEO = (VideoSegment("a.mp4", 0, 8),)
EVIDENCES = {
    "video": (VIDEO, (8,), 0),
    "image": ((Image("a.png"), Image("b.png")), (), 2),
    "mixed": ((Passage("It moves."), *VIDEO, Image("b.png"), VideoSegment("c.mp4", 0, 4)), (5, 4), 1),
    "text": ((Passage("A ball rolls."),), (), 0),
}


@pytest.fixture(scope="module")
def base(tiny_of):
    return tiny_of("qwen3_vl")


@pytest.fixture(scope="module")
def model(base):
    return load_backbone(base).eval()


@pytest.fixture(scope="module")
def encoder(base, model, small_sampling):
    return Encoder(load_processor(base), vision_layout(model.config), Prompt(), small_sampling)


@pytest.fixture(scope="module")
def readout(encoder):
    return NextToken(LabelWords.of(Prompt(), encoder.tokenizer))


def claims_of(encoder, k):
    return [encoder.claim_ids(f"Object {i} is {'red' if i % 2 else 'a ball that rolls'}.") for i in range(k)]


def own_positions(model, encoder, ids_T, vision):
    """(3, 1, T) as transformers places tokens, from the kind of each."""
    kinds = (ids_T == encoder.layout.image_token_id).int() + 2 * (ids_T == encoder.layout.video_token_id).int()
    grids = {name: vision.get(name) for name in ("image_grid_thw", "video_grid_thw")}
    return model.model.get_rope_index(ids_T[None], mm_token_type_ids=kinds[None], **grids)[0]


@pytest.mark.parametrize("name", EVIDENCES)
def test_positions_are_transformers_own(model, encoder, make_media, name):
    evidence, frames, images = EVIDENCES[name]
    encoded = encoder.evidence(evidence, make_media(*frames, images=images))
    claim = encoder.claim_ids("No.")
    whole = own_positions(model, encoder, torch.cat([encoded.ids_P, claim]), encoded.vision)[:, 0]
    assert torch.equal(encoded.positions_3P, whole[:, : len(encoded.ids_P)])
    assert whole[:, len(encoded.ids_P)].tolist() == [encoded.next_position] * 3


@pytest.mark.parametrize(("name", "k"), [("video", 1), ("video", 7), ("mixed", 33), ("image", 7), ("text", 7)])
def test_packed_margins_are_those_of_one_plain_sequence_per_claim(model, encoder, readout, make_media, name, k):
    evidence, frames, images = EVIDENCES[name]
    encoded = encoder.evidence(evidence, make_media(*frames, images=images))
    claims = claims_of(encoder, k)
    with torch.no_grad():
        packed = margins(model, collate([pack(encoded, claims)], encoder.pad_id), readout, encoder.layout)[0]
        plain = plain_margins(model, encoded, claims, readout)
    assert torch.allclose(packed, plain, atol=1e-4, rtol=1e-5)
    assert len(set(packed.tolist())) == k


def test_gradients_of_a_packed_row_are_those_of_its_claims_one_by_one(base, encoder, readout, make_media):
    network = load_backbone(base).eval()
    evidence, frames, images = EVIDENCES["mixed"]
    encoded, claims = encoder.evidence(evidence, make_media(*frames, images=images)), claims_of(encoder, 7)
    signs = torch.tensor([1.0, -1.0] * 4)[:7]
    found = []
    for one in (True, False):
        network.zero_grad()
        if one:
            packed = margins(network, collate([pack(encoded, claims)], encoder.pad_id), readout, encoder.layout)[0]
            (packed * signs).sum().backward()
        else:
            (plain_margins(network, encoded, claims, readout) * signs).sum().backward()
        found.append({n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    assert any("deepstack_merger_list" in name for name in found[0])
    for name, gradient in found[0].items():
        assert torch.allclose(gradient, found[1][name], atol=1e-5, rtol=1e-4), name


def test_a_prompt_and_its_pixels_are_those_of_the_familys_processor(encoder, make_media):
    media = make_media(5, step_s=0.6)
    encoded = encoder.evidence(VIDEO, media)
    text, marked = encoder.chat.prefix(VIDEO), "<|vision_start|><|video_pad|><|vision_end|>"
    assert marked in text
    sampling = encoder.sampling
    made = encoder.processor(
        # transformers 5.23 leaves the template's marks around those of the frames; 4.57 and vLLM replace them.
        text=[text.replace(marked, "<|video_pad|>")],
        videos=[torch.from_numpy(media.videos[0].pixels_FHWC).permute(0, 3, 1, 2)],
        video_metadata=[{"fps": 1 / 0.6, "frames_indices": list(range(5)), "total_num_frames": 5}],
        do_sample_frames=False,
        cap_pixels_per_frame=False,
        size={"shortest_edge": sampling.min_pixels * 5, "longest_edge": sampling.max_pixels * 5},
        return_tensors="pt",
    )
    assert made["input_ids"][0].tolist() == encoded.ids_P.tolist()
    assert torch.equal(made["pixel_values_videos"], encoded.vision["pixel_values_videos"])
    assert re.findall("<([0-9.]+) seconds>", encoder.tokenizer.decode(encoded.ids_P)) == ["0.3", "1.5", "2.4"]


def test_frames_are_a_multiple_of_32_pixels_by_the_rule_of_its_processor():
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize

    sampling = FrameSampling(min_pixels=128 * 32 * 32, max_pixels=256 * 32 * 32, side_step=32)
    rng = np.random.default_rng(0)
    for height, width in rng.integers(40, 1500, (300, 2)).tolist():
        expected = smart_resize(4, height, width, 2, 32, 4 * sampling.min_pixels, 4 * sampling.max_pixels)
        assert target_size(height, width, sampling) == expected


def test_times_are_known_from_packets_before_anything_is_decoded(colour_dataset, small_sampling):
    segment = VideoSegment(str(colour_dataset.parent / "clip3.mp4"), 0.2, 0.9)
    assert shown_times(segment, small_sampling).tolist() == read_frames(segment, small_sampling).times_s.tolist()


def test_lora_goes_to_the_mergers_of_inner_layers_too(model):
    for part, expected in (("visual", 2 * 4), ("merger", 2 * 3), ("language_model", 2 * 7)):
        pattern = re.compile(lora_targets(model, [part]))
        assert sum(bool(pattern.fullmatch(name)) for name, _ in model.named_modules()) == expected


@pytest.fixture(scope="module")
def merged(base, small_sampling, tmp_path_factory):
    folder = tmp_path_factory.mktemp("qwen3-vl")
    draft = random_draft(base, folder / "draft", small_sampling)
    write_merged(draft, folder / "merged")
    return draft, folder / "merged"


@pytest.mark.parametrize("network", [Qwen3VLForConditionalGeneration, AutoModelForImageTextToText])
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


def test_the_merged_directory_scores_as_its_adapter_and_files_record_no_step(merged, make_media):
    evidence, frames, images = EVIDENCES["mixed"]
    media = make_media(*frames, images=images)
    one, two = (
        Verifier.from_pretrained(path, device="cpu").score_media([("No.", None)], evidence, media) for path in merged
    )
    assert np.allclose(one, two, atol=1e-4)
    for directory in merged:
        assert "side_step" not in json.loads((directory / "verifier_config.json").read_text())["sampling"]
        assert Verifier.from_pretrained(directory, device="cpu").encoder.sampling.side_step == 32


def test_the_layout_follows_from_the_configuration(model):
    layout = BACKBONES["qwen3_vl"].vision_layout(model.config)
    assert (layout.patch_step, layout.levels) == (32, 1 + len(model.config.vision_config.deepstack_visual_indexes))
