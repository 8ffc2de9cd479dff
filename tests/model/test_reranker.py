"""Qwen3-VL-Reranker: its published scoring, restated with transformers alone, and what each order of it costs."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch
from conftest import sft_arguments
from nightly import first_of
from random_drafts import random_draft
from transformers import AutoProcessor, Qwen3VLForConditionalGeneration

from proofreel.core.config import from_mapping
from proofreel.core.errors import ConfigError, ModelInputError
from proofreel.core.pairs import AskedFirst, Image, Pair, Passage, VideoSegment, evidence_kinds
from proofreel.core.prompt import NAMED_PROMPTS, Prompt, named_prompt
from proofreel.data_prep.dataset.shards import read_split
from proofreel.models.backbones.families import vision_layout
from proofreel.models.backbones.load import load_processor, read_config
from proofreel.models.inputs.encoder import Encoder
from proofreel.models.verifier.verifier import Verifier
from proofreel.models.zero_shot.config import ZeroShotConfig, open_zero_shot
from proofreel.train.sft import main

ORDERS = ("reranker", "reranker_shared")
SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".'
)
INSTRUCTION = "Given a search query, retrieve relevant candidates that answer the query."
VIDEO = VideoSegment("a.mp4", 0, 8)
EVIDENCES = {
    "video": ((VIDEO,), (8,), 0),
    "image": ((Image("a.png"), Image("b.png")), (), 2),
    "mixed": ((Passage("It moves."), VIDEO, Image("b.png"), VideoSegment("c.mp4", 0, 4)), (5, 4), 1),
    "text": ((Passage("A ball rolls."), Passage(" It stops!")), (), 0),
}
CLAIMS = ["Object is red ball.", '"Left," it says.', "(1) No\n", " stop", ">: is it?"]


@pytest.fixture(scope="module")
def base(tiny_of):
    return tiny_of("qwen3_vl")


def opened(base, sampling, name, **values) -> Any:
    model = {"path": str(base), "dtype": "float32"}
    given = {"named_prompt": name, "sampling": dataclasses.asdict(sampling), "model": model} | values
    return open_zero_shot(from_mapping(ZeroShotConfig, given, where="test"), device="cpu")[0]


@pytest.fixture(scope="module")
def judges(base, small_sampling):
    return {name: opened(base, small_sampling, name) for name in ORDERS}


@pytest.fixture(scope="module")
def published(base):
    """P(yes) of one query and one document, each (texts, frames of videos, pictures), as the model card's code has it.

    Its steps: one user turn; media before texts on either side; the whole tokenised at once; the state of the last
    token of the body by the difference of the output layer's rows of yes and no; a sigmoid.
    """
    network = Qwen3VLForConditionalGeneration.from_pretrained(base).eval()
    processor = AutoProcessor.from_pretrained(base)
    vocabulary = processor.tokenizer.get_vocab()
    difference_H = network.lm_head.weight[vocabulary["yes"]] - network.lm_head.weight[vocabulary["no"]]

    def side(texts, videos, pictures):
        # transformers 5.23 leaves the template's marks around those of the frames; 4.57, of the card, replaces them.
        shown = "<|video_pad|>" * len(videos) + "<|vision_start|><|image_pad|><|vision_end|>" * len(pictures)
        return shown + "".join(texts)

    @torch.no_grad()
    def probability(query, document, sampling, instruction=INSTRUCTION):
        text = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n<Instruct>: {instruction}"
        text += f"<Query>:{side(*query)}\n<Document>:{side(*document)}<|im_end|>\n<|im_start|>assistant\n"
        videos, pictures = [*query[1], *document[1]], [*query[2], *document[2]]
        given = {"text": [text], "return_tensors": "pt"}
        if videos:
            most = max(len(v.times_s) for v in videos)
            given["videos"] = [torch.from_numpy(v.pixels_FHWC).permute(0, 3, 1, 2) for v in videos]
            given["video_metadata"] = [
                {"fps": 2.0, "frames_indices": list(range(len(v.times_s))), "total_num_frames": len(v.times_s)}
                for v in videos
            ]
            bounds = {"shortest_edge": sampling.min_pixels * 4, "longest_edge": sampling.max_pixels * most}
            given |= {"do_sample_frames": False, "videos_kwargs": {"size": bounds, "do_resize": False}}
        if pictures:
            given["images"] = [torch.from_numpy(p).permute(2, 0, 1) for p in pictures]
            given["images_kwargs"] = {"do_resize": False}
        inputs = processor(**given)
        state_H = network.model(**inputs).last_hidden_state[0, -1]
        return torch.sigmoid(state_H @ difference_H).item(), inputs["input_ids"][0].tolist()

    return probability


def shown_media(make_media, name):
    """Media of a final size in steps of 32, and them as a side of the published prompt."""
    evidence, frames, images = EVIDENCES[name]
    media = dataclasses.replace(make_media(*frames, images=images, side=64), sized=True)
    texts = [e.text for e in evidence if isinstance(e, Passage)]
    return evidence, media, (texts, media.videos, media.images_HWC)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", EVIDENCES)
def test_probabilities_are_those_of_the_published_steps(judges, published, make_media, small_sampling, order, name):
    evidence, media, side = shown_media(make_media, name)
    judge = judges[order]
    margins = judge.score_media([(claim, None) for claim in CLAIMS], evidence, media)
    for claim, margin in zip(CLAIMS, margins.tolist(), strict=True):
        asked = ([claim], (), ())
        sides = (asked, side) if order == "reranker" else (side, asked)
        expected, ids = published(*sides, small_sampling)
        bound = judge.encoder.prompt.bound(Pair("", claim, evidence))
        ours = torch.cat([judge.encoder.evidence(bound.evidence, media).ids_P, judge.encoder.claim_ids(claim)])
        assert ours.tolist() == ids
        odds = np.log(expected) - np.log1p(-expected)
        assert abs(margin - odds) <= 1e-4 + 1e-5 * abs(odds)
    assert len(set(margins.tolist())) == len(CLAIMS)


def test_pairs_are_answered_in_order_with_failures_of_their_own(judges):
    passages = [(Passage("A ball rolls."),), (Passage("It stops."),)]
    pairs = [Pair(str(i), claim, e) for i, (claim, e) in enumerate((c, e) for c in CLAIMS for e in passages)]
    pairs.insert(3, Pair("bad", "It <|im_end|> ends.", passages[0]))
    for judge in judges.values():
        verdicts = judge.score_pairs(pairs)
        assert "control token" in verdicts[3].error
        good = [v.margin for v in verdicts if v.error is None]
        single = [judge.score([p.claim], p.evidence)[0].margin for p in pairs if p.id != "bad"]
        assert np.allclose(good, single, atol=1e-4)


def test_evidence_as_the_query_is_encoded_once_and_as_the_document_once_a_claim(judges):
    found = {}
    for name, judge in judges.items():
        pairs = [Pair(str(i), f"Object {i} is red.", (Passage("A ball rolls."),)) for i in range(7)]
        found[name] = len(judge.reader.group(pairs))
    assert found == {"reranker": 7, "reranker_shared": 1}


def test_an_instruction_takes_the_place_of_the_published_one(base, published, small_sampling, make_media):
    evidence, media, side = shown_media(make_media, "text")
    judge = opened(base, small_sampling, "reranker", instruction="Find the passage that supports the claim.")
    expected, _ = published((["No."], (), ()), side, small_sampling, "Find the passage that supports the claim.")
    margin = float(judge.score_media([("No.", None)], evidence, media)[0])
    assert abs(1 / (1 + np.exp(-margin)) - expected) < 1e-5


def test_a_directory_records_the_prompt_and_scores_with_it(base, small_sampling, tmp_path, make_media):
    evidence, media, _ = shown_media(make_media, "mixed")
    for name in ORDERS:
        prompt = named_prompt(name)
        draft = random_draft(base, tmp_path / name, small_sampling, config={"prompt": prompt})
        assert json.loads((draft / "verifier_config.json").read_text())["prompt"]["opening"] == prompt.opening
        verifier = Verifier.from_pretrained(draft, device="cpu")
        plain = opened(base, small_sampling, name)
        claims = [(claim, None) for claim in CLAIMS]
        bare = Verifier.from_pretrained(draft, device="cpu", adapter=False)
        assert np.allclose(bare.score_media(claims, evidence, media), plain.score_media(claims, evidence, media))
        assert not np.allclose(
            verifier.score_media(claims, evidence, media), plain.score_media(claims, evidence, media)
        )


def test_prompts_in_two_turns_are_recorded_and_hashed_as_before_there_were_others():
    assert set(Prompt().as_recorded()) == {
        "system", "claim", "context", "transcript", "passage", "response_prefix", "supported_word", "refuted_word"
    }  # fmt: skip
    assert len({named_prompt(name).sha256 for name in NAMED_PROMPTS}) == len(NAMED_PROMPTS)


def test_a_claim_that_comes_first_is_no_kind_of_evidence_and_is_bound_once():
    prompt = named_prompt("reranker")
    bound = prompt.bound(Pair("", "No.", (VIDEO,), context="Then."))
    assert bound.evidence == (AskedFirst("Context: Then.\nNo."), VIDEO)
    assert prompt.bound(bound) == bound
    assert evidence_kinds(bound.evidence) == ("video",)
    assert named_prompt("reranker_shared").bound(Pair("", "No.", (VIDEO,))).evidence == (VIDEO,)


@pytest.mark.parametrize("order", first_of(reversed(ORDERS)))
def test_training_takes_either_order_and_records_it(base, colour_dataset, tmp_path, order):
    out = tmp_path / "run"
    words = sft_arguments(base, colour_dataset, out, named_prompt=order, max_steps=2, prompt_instruction="Find it.")
    assert main(words) == 0
    verifier = Verifier.from_pretrained(out / "draft", device="cpu")
    assert verifier.encoder.prompt == named_prompt(order, "Find it.")
    assert verifier.modalities == ("video",)
    rows = read_split(colour_dataset, "test")[:3]
    assert all(v.error is None for v in verifier.score_pairs(rows))


def test_claims_that_have_a_row_each_are_not_compared_within_one(base, colour_dataset, tmp_path, capsys):
    words = sft_arguments(base, colour_dataset, tmp_path / "run", named_prompt="reranker", paired_weight=0.5)
    assert main(words) == 1
    assert "reranker_shared" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"named_prompt": "rerank"}, "unknown"),
        ({"instruction": "Find it."}, "no place"),
        ({"named_prompt": "reranker", "prompt": {"system": "Is it?"}}, "got both"),
        ({"prompt": {"closing": "."}}, "opening"),
    ],
)
def test_prompts_that_cannot_be_are_refused(values, reason):
    with pytest.raises(ConfigError, match=reason):
        from_mapping(ZeroShotConfig, {"model": {"path": "x"}} | values, where="test")


def test_an_endpoint_is_not_asked_in_a_rerankers_turn():
    endpoint = {"base_url": "http://host/v1", "model": "m", "mode": "live"}
    with pytest.raises(ConfigError, match="local model"):
        from_mapping(ZeroShotConfig, {"endpoint": endpoint, "named_prompt": "reranker"}, where="test")


def test_control_tokens_of_a_claim_that_comes_first_are_refused(base, small_sampling):
    encoder = Encoder(load_processor(base), vision_layout(read_config(base)), named_prompt("reranker"), small_sampling)
    with pytest.raises(ModelInputError, match=r"^claim: holds"):
        encoder.count_prefix_tokens((AskedFirst("<|video_pad|>"), Passage("A.")))
