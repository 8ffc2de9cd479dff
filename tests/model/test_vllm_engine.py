"""vLLM as an engine, against a stand-in of its offline interface that computes with transformers, one claim a row."""

from __future__ import annotations

import dataclasses
import importlib.machinery
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from random_drafts import HEADS, random_draft
from transformers import AutoModelForImageTextToText, AutoProcessor

from proofreel import Pair, Passage, Verifier, VideoSegment
from proofreel.core import ConfigError, DirectoryError, ModelInputError
from proofreel.models.backbones import vision_layout
from proofreel.models.directory import read_directory, write_directory, write_merged
from proofreel.models.directory.format import CONFIG
from proofreel.models.inputs import mrope_positions
from proofreel.models.verifier.self_test import write_golden
from proofreel.models.verifier.vllm_engine import _video

CLAIMS = [("Object is red ball.", None), ("Action is moving left.", None), ("No.", None)]
CLIP = (VideoSegment("a.mp4", 0, 2),)


class StandIn:
    """`vllm.LLM`, as far as it is called: every request is a row of its own, through the processor of its folder."""

    requests: list[dict[str, Any]]
    options: dict[str, Any]
    shift = 0.0
    drop = 0

    def __init__(self, model: str, **options: Any) -> None:
        type(self).options, type(self).requests = options, []
        self.model = AutoModelForImageTextToText.from_pretrained(model, dtype=torch.float32).eval()
        self.processor = AutoProcessor.from_pretrained(model)

    def generate(self, requests: list[dict[str, Any]], sampling: Any, use_tqdm: bool) -> list[Any]:
        self.requests.extend(requests)
        return [self._answer(request, sampling) for request in requests]

    def _answer(self, request: dict[str, Any], sampling: Any) -> Any:
        layout, ids, vision = vision_layout(self.model.config), request["prompt_token_ids"], {}
        seconds = []
        for frames, metadata in request.get("multi_modal_data", {}).get("video", ()):
            vision = self.processor.video_processor(
                videos=[torch.from_numpy(frames).permute(0, 3, 1, 2)],
                do_sample_frames=False,
                cap_pixels_per_frame=False,
                return_tensors="pt",
                **request["mm_processor_kwargs"],
            )
            n_tokens = int(vision["video_grid_thw"].prod()) // layout.spatial_merge_size**2
            ids = [i for one in ids for i in ([one] * n_tokens if one == layout.video_token_id else [one])]
            seconds.append(np.float32(2 / metadata["fps"]))
        row = torch.tensor(ids[self.drop :])
        grids = vision.get("video_grid_thw")
        seconds_N = torch.tensor(np.array(seconds, dtype=np.float64))
        positions, _ = mrope_positions(
            row, layout, video_grids_N3=grids, seconds_per_grid_N=seconds_N, rule="published", time_rule="truncated"
        )
        with torch.inference_mode():
            logits = self.model(input_ids=row[None], position_ids=positions[:, None], **vision).logits[0, -1]
        allowed = sampling.allowed_token_ids
        logprobs = logits[allowed].log_softmax(0)
        logprobs[0] += self.shift
        first = {i: types.SimpleNamespace(logprob=float(v)) for i, v in zip(allowed, logprobs, strict=True)}
        return types.SimpleNamespace(prompt_token_ids=row.tolist(), outputs=[types.SimpleNamespace(logprobs=[first])])


@pytest.fixture
def stand_in(monkeypatch):
    module = types.ModuleType("vllm")
    module.__spec__ = importlib.machinery.ModuleSpec("vllm", None)
    module.LLM = type("LLM", (StandIn,), {})  # type: ignore[attr-defined]
    module.SamplingParams = types.SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    return module.LLM  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def served(tiny_base, small_sampling, tmp_path_factory):
    """A merged next-token verifier with golden inputs, as export writes it."""
    work = tmp_path_factory.mktemp("served")
    write_merged(random_draft(tiny_base, work / "draft", small_sampling), work / "merged")
    golden = [Pair("p", "Object is red ball.", (Passage("A red ball rolls."),), label="supported")]

    def fill(folder: Path) -> None:
        shutil.copytree(work / "merged", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("MANIFEST.sha256"))
        shutil.copytree(folder / "processor", folder / "model", dirs_exist_ok=True)
        write_golden(folder / "golden", Verifier.from_pretrained(work / "merged"), golden)

    return write_directory(work / "served", fill)


def changed(directory: Path, out: Path, **values: Any) -> Path:
    """The same directory with another configuration."""
    config = dataclasses.replace(read_directory(directory), **values)

    def fill(folder: Path) -> None:
        shutil.copytree(directory, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("MANIFEST.sha256"))
        (folder / CONFIG).write_text(config.to_json())

    return write_directory(out, fill)


def test_margins_are_those_of_our_engine(served, stand_in, make_media):
    theirs, ours = Verifier.from_pretrained(served, engine="vllm"), Verifier.from_pretrained(served)
    for media, evidence in ((make_media(8), CLIP), (make_media(), (Passage("A red ball."),))):
        expected = ours.score_media(CLAIMS, evidence, media)
        actual = theirs.score_media(CLAIMS, evidence, media)
        assert (np.abs(actual - expected) <= 1e-4 + 1e-5 * np.abs(expected)).all()
    longest = theirs.model.config.get_text_config().max_position_embeddings
    assert stand_in.options["max_model_len"] == min(theirs.encoder.max_tokens + 1, longest)
    assert "margins are computed by vLLM" in theirs.notes
    assert "in vLLM" in repr(theirs)
    with pytest.raises(ConfigError, match="load it anew"):
        theirs.to("cpu")


def test_claims_about_one_evidence_follow_each_other_and_its_frames_are_named_once(served, stand_in, make_media):
    verifier = Verifier.from_pretrained(served, engine="vllm")
    stand_in.requests.clear()
    verifier.score_media(CLAIMS, CLIP, make_media(8))
    names = [request["multi_modal_uuids"]["video"] for request in stand_in.requests]
    assert len(names) == 3
    assert names[0] == names[1] == names[2]
    starts = {tuple(r["prompt_token_ids"][: len(r["prompt_token_ids"]) // 2]) for r in stand_in.requests}
    assert len({start[:20] for start in starts}) == 1
    verifier.score_media(CLAIMS[:1], CLIP, make_media(8, seed=1))
    assert stand_in.requests[-1]["multi_modal_uuids"]["video"] != names[0]


def test_calls_for_verdicts_go_the_same_way(served, stand_in):
    pairs = [Pair(str(i), claim, (Passage(f"Text {i // 2}."),)) for i, (claim, _) in enumerate(CLAIMS * 2)]
    theirs = Verifier.from_pretrained(served, engine="vllm").score_pairs(pairs)
    ours = Verifier.from_pretrained(served).score_pairs(pairs)
    assert np.allclose([v.margin for v in theirs], [v.margin for v in ours], atol=1e-4)
    assert not any(v.error for v in theirs)


def test_other_golden_margins_are_refused_with_the_numbers(served, stand_in, monkeypatch):
    monkeypatch.setattr(stand_in, "shift", 0.25)
    with pytest.raises(DirectoryError, match=r"differs by 0\.25 of at most 0\.0001"):
        Verifier.from_pretrained(served, engine="vllm")


def test_an_answer_about_other_tokens_is_no_verdict(served, stand_in, monkeypatch):
    verifier = Verifier.from_pretrained(served, engine="vllm")
    monkeypatch.setattr(stand_in, "drop", 1)
    verdict = verifier.score("Object is red ball.", Passage("A ball."))[0]
    assert np.isnan(verdict.p_supported)
    assert "other tokens" in (verdict.error or "")


@pytest.mark.parametrize(
    ("values", "got"), [({"position_rule": "hf5"}, "hf5"), ({"quantization": {"load_in_4bit": True}}, "quantised")]
)
def test_what_vllm_cannot_follow_is_refused_before_it_starts(served, stand_in, tmp_path, values, got):
    with pytest.raises(DirectoryError, match=got):
        Verifier.from_pretrained(changed(served, tmp_path / "other", **values), engine="vllm")


@pytest.mark.parametrize(("head", "got"), [("next token", "adapter.*--merge"), ("three labels", "adapter")])
def test_adapters_are_to_be_merged_first(tiny_base, small_sampling, stand_in, tmp_path, head, got):
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling, HEADS[head])
    with pytest.raises(DirectoryError, match=got):
        Verifier.from_pretrained(draft, engine="vllm")


def test_a_head_is_refused(tiny_base, small_sampling, stand_in, tmp_path):
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling, HEADS["three labels"])
    write_merged(draft, tmp_path / "merged")
    with pytest.raises(DirectoryError, match="head"):
        Verifier.from_pretrained(tmp_path / "merged", engine="vllm")


def test_a_model_folder_without_its_tokenizer_is_refused(tiny_base, small_sampling, stand_in, tmp_path):
    write_merged(random_draft(tiny_base, tmp_path / "draft", small_sampling), tmp_path / "merged")
    with pytest.raises(DirectoryError, match="without its tokenizer"):
        Verifier.from_pretrained(tmp_path / "merged", engine="vllm")


def test_frames_that_vllm_would_place_elsewhere_are_refused(served, make_media):
    encoder = Verifier.from_pretrained(served).encoder
    (video,) = make_media(8).videos
    frames, metadata = _video(video, 1.0, encoder)
    assert frames.shape == video.pixels_FHWC.shape
    assert metadata["fps"] == pytest.approx(2.0, rel=1e-5)
    encoder.time_rule = "truncated"
    with pytest.raises(ModelInputError, match="default engine"):
        _video(video, 1.0 - 1e-9, encoder)


def test_engines_are_named_and_need_their_package(served, monkeypatch):
    with pytest.raises(ConfigError, match="engine"):
        Verifier.from_pretrained(served, engine="tgi")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="engine"):
        Verifier.from_pretrained(served, engine_options={"seed": 1})
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ConfigError, match=r"proofreel\[vllm\]"):
        Verifier.from_pretrained(served, engine="vllm")
    for given in ({"base": served}, {"adapter": False}):
        with pytest.raises(ConfigError, match="whole models"):
            Verifier.from_pretrained(served, engine="vllm", **given)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="vision_cache"):
        Verifier.from_pretrained(served, engine="vllm", vision_cache="x")
