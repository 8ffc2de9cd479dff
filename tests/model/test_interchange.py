"""A merged verifier outside of this package: in plain transformers, and its calibration on served log-probabilities."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from random_drafts import HEADS, random_draft
from transformers import AutoModelForImageTextToText, AutoProcessor, Qwen2_5_VLForConditionalGeneration

from proofreel.core.pairs import Passage, VideoSegment
from proofreel.eval.calibration.fit import fit_decision
from proofreel.eval.scoring.predictions import Prediction
from proofreel.models.decision.thresholds import write_decision
from proofreel.models.directory.adapters import write_merged
from proofreel.models.directory.format import read_directory, write_manifest
from proofreel.models.verifier.verifier import Verifier

CLAIMS = ["Object is red ball.", "Action is moving left.", "No."]
EVIDENCE = (VideoSegment("a.mp4", 0, 8), Passage("A ball rolls."))


def with_decision(directory):
    """The directory with a calibration and thresholds, as export leaves it."""
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 2
    rows = []
    for i, y in enumerate(labels):
        margin, label = float(np.float32(rng.normal() + y)), "supported" if y else "refuted"
        rows.append(Prediction(str(i), margin, 0.5, label, "calibration", f"g{i // 4}", "", "", "video"))
    write_decision(directory, fit_decision(rows, "platt", ["f1"]))
    write_manifest(directory)
    return directory


@pytest.fixture(scope="module")
def merged(tiny_base, small_sampling, tmp_path_factory):
    """Merged next-token verifiers by position rule, with a decision each."""
    folder, made = tmp_path_factory.mktemp("merged"), {}
    for rule in ("published", "hf5"):
        draft = random_draft(tiny_base, folder / f"{rule}-draft", small_sampling, config={"position_rule": rule})
        write_merged(draft, folder / rule)
        made[rule] = with_decision(folder / rule)
    return made


@pytest.fixture(scope="module")
def media(make_media):
    """Eight seconds of frames: more temporal positions than a frame is wide in tokens."""
    return make_media(8, step_s=1.0)


@pytest.fixture(scope="module")
def scored(merged, media):
    """Margins of the claims by the Verifier, and what the network was given, by position rule."""

    def score(rule):
        verifier = Verifier.from_pretrained(merged[rule], device="cpu")
        evidence = verifier.encoder.evidence(EVIDENCE, media)
        margins = verifier.score_media([(c, None) for c in CLAIMS], EVIDENCE, media)
        return margins, evidence, [verifier.encoder.claim_ids(c) for c in CLAIMS]

    return {rule: score(rule) for rule in merged}


def plain_margins(directory, evidence, claims, positions, network=Qwen2_5_VLForConditionalGeneration):
    """The same questions to plain transformers: one sequence per claim, two logits of its last position."""
    model = network.from_pretrained(directory / "model").eval()
    config, found = json.loads((directory / "verifier_config.json").read_text()), []
    for claim in claims:
        ids = torch.cat([evidence.ids_P, claim])[None]
        if positions == "given":
            tail = (torch.arange(len(claim)) + evidence.next_position).expand(3, -1)
            more = {"position_ids": torch.cat([evidence.positions_3P, tail], 1)[:, None]}
        else:  # as the processor tells the model where the video is
            more = {"mm_token_type_ids": (ids == model.config.video_token_id).int() * 2}
        with torch.inference_mode():
            logits = model(input_ids=ids, **more, **evidence.vision).logits[0, -1].float()
        found.append(float(logits[config["supported_id"]] - logits[config["refuted_id"]]))
    return np.array(found)


def close(found, expected):
    return bool((abs(found - expected) <= 1e-4 + 1e-5 * abs(expected)).all())


@pytest.mark.parametrize("network", [Qwen2_5_VLForConditionalGeneration, AutoModelForImageTextToText])
@pytest.mark.parametrize("rule", ["published", "hf5"])
def test_plain_transformers_given_the_same_positions_gives_the_same_margins(merged, scored, rule, network):
    margins, evidence, claims = scored[rule]
    assert close(plain_margins(merged[rule], evidence, claims, "given", network), margins)
    assert len({round(float(m), 3) for m in margins}) == len(CLAIMS)


def test_transformers_own_positions_are_those_of_the_rule_hf5_and_of_no_other(merged, scored):
    margins, evidence, claims = scored["hf5"]
    assert close(plain_margins(merged["hf5"], evidence, claims, "own"), margins)
    margins, evidence, claims = scored["published"]
    assert not close(plain_margins(merged["published"], evidence, claims, "own"), margins)


def test_the_rules_differ_by_where_text_goes_on_after_a_video_and_by_nothing_else(merged, scored):
    (_, published, _), (_, hf5, _) = scored["published"], scored["hf5"]
    assert torch.equal(published.ids_P, hf5.ids_P)
    video_token = json.loads((merged["hf5"] / "model" / "config.json").read_text())["video_token_id"]
    last = int((published.ids_P == video_token).nonzero().max())
    assert torch.equal(published.positions_3P[:, : last + 1], hf5.positions_3P[:, : last + 1])
    gap = published.positions_3P[:, last + 1 :] - hf5.positions_3P[:, last + 1 :]
    grid = published.vision["video_grid_thw"][0].tolist()
    seconds = float(published.vision["second_per_grid_ts"][0])
    resumes = int((grid[0] - 1) * seconds * 2) + 1  # two positions a second in the tiny model, as in the real ones
    assert gap.unique().tolist() == [resumes - max(grid[1:]) // 2]
    assert published.next_position - hf5.next_position == resumes - max(grid[1:]) // 2 > 0


def test_the_copied_processor_makes_the_same_prompt_and_pixels(merged, scored, media):
    _, evidence, claims = scored["published"]
    verifier = Verifier.from_pretrained(merged["published"], device="cpu")
    processor = AutoProcessor.from_pretrained(merged["published"] / "processor")
    text = verifier.encoder.chat.prefix(EVIDENCE) + verifier.encoder.chat.claim(CLAIMS[0], None)
    frames = torch.from_numpy(media.videos[0].pixels_FHWC).permute(0, 3, 1, 2)
    sampling = read_directory(merged["published"]).sampling
    made = processor(
        text=[text],
        videos=[frames],
        do_sample_frames=False,
        cap_pixels_per_frame=False,
        size={"shortest_edge": sampling.min_pixels, "longest_edge": sampling.max_pixels},
        return_tensors="pt",
    )
    assert made["input_ids"][0].tolist() == torch.cat([evidence.ids_P, claims[0]]).tolist()
    assert torch.equal(made["pixel_values_videos"], evidence.vision["pixel_values_videos"])


def test_served_log_probabilities_and_the_stored_calibration_give_p_supported_without_torch(merged, scored):
    """What a server returns are log-probabilities of the two words: their difference is the margin."""
    margins, evidence, claims = scored["published"]
    directory = merged["published"]
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(directory / "model").eval()
    config = read_directory(directory)
    served = []
    for claim in claims:
        tail = (torch.arange(len(claim)) + evidence.next_position).expand(3, -1)
        with torch.inference_mode():
            logits = model(
                input_ids=torch.cat([evidence.ids_P, claim])[None],
                position_ids=torch.cat([evidence.positions_3P, tail], 1)[:, None],
                **evidence.vision,
            ).logits[0, -1]
        whole = logits.float().log_softmax(-1)
        two = logits[[config.supported_id, config.refuted_id]].float().log_softmax(-1)  # allowed_token_ids
        served.append([whole[config.supported_id].item(), whole[config.refuted_id].item(), *two.tolist()])
    code = (
        "import json, sys\n"
        "from proofreel.models.decision.thresholds import read_decision\n"
        "decision = read_decision(sys.argv[1])\n"
        "rows = json.loads(sys.argv[2])\n"
        "p = [decision.calibration.predict([r[0] - r[1], r[2] - r[3]]).tolist() for r in rows]\n"
        "said = [bool(decision.point().decide(x[0])) for x in p]\n"
        "print(json.dumps([p, said, 'torch' in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(directory), json.dumps(served)], capture_output=True, text=True, check=True
    )
    p, said, torch_loaded = json.loads(done.stdout)
    verifier = Verifier.from_pretrained(directory, device="cpu")
    expected = [verifier.verdict(float(m)) for m in margins]
    for found, verdict in zip(p, expected, strict=True):
        assert found == pytest.approx([verdict.p_supported] * 2, abs=1e-4)
    assert said == [v.label == "supported" for v in expected]
    assert torch_loaded is False


@pytest.mark.parametrize("head", ["two labels", "three labels"])
def test_a_merged_head_is_no_language_model_to_plain_transformers(tiny_base, small_sampling, media, tmp_path, head):
    from proofreel.models.backbones import BACKBONES

    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling, HEADS[head])
    config = write_merged(draft, tmp_path / "merged")
    stored = json.loads((tmp_path / "merged" / "model" / "config.json").read_text())
    assert stored["architectures"] == ["Qwen2_5_VLForVerdicts"]
    assert list(stored["id2label"].values()) == list(config.labels)
    # Opened as a language model it lacks an output layer, and says so; nobody gets a margin by mistake.
    language_model: Any = Qwen2_5_VLForConditionalGeneration
    _, info = language_model.from_pretrained(tmp_path / "merged" / "model", output_loading_info=True)
    assert (info["missing_keys"], info["unexpected_keys"]) == ({"lm_head.weight"}, {"score.weight"})
    # Opened with its own class, the margin is logit supported minus the log-sum-exp of the others.
    model = BACKBONES["qwen2_5_vl"].network(scored=True).from_pretrained(tmp_path / "merged" / "model").eval()
    verifier = Verifier.from_pretrained(tmp_path / "merged", device="cpu")
    evidence, claim = verifier.encoder.evidence(EVIDENCE, media), verifier.encoder.claim_ids(CLAIMS[0])
    tail = (torch.arange(len(claim)) + evidence.next_position).expand(3, -1)
    with torch.inference_mode():
        logits = model(
            input_ids=torch.cat([evidence.ids_P, claim])[None],
            position_ids=torch.cat([evidence.positions_3P, tail], 1)[:, None],
            **evidence.vision,
        ).logits[0, -1]
    expected = verifier.score_media([(CLAIMS[0], None)], EVIDENCE, media)
    assert close(np.array([float(logits[0] - logits[1:].logsumexp(0))]), expected)
