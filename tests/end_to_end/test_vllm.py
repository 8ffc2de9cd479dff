"""The real vLLM, in an environment of its own: `make test-vllm` makes it and runs this file (docs/interchange.md)."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as PILImage

pytestmark = pytest.mark.vllm

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = ["Action is chopping.", "Tool is knife.", "Ingredient is onion.", "Location is kitchen."]
TEXT = "A cook is chopping an onion."
WORDS = {"classifier_from_token": ["no", "yes"], "method": "from_2_way_softmax", "num_labels": 1}


def whole(source, work, complete):
    """The merged verifier of `source`; `complete(folder, verifier)` adds golden inputs and the like."""
    from proofreel import Verifier
    from proofreel.models.directory import read_directory, write_cross_encoder, write_directory, write_merged

    write_merged(source, work / "weights")
    verifier = Verifier.from_pretrained(work / "weights", device="cpu")

    def fill(folder: Path) -> None:
        shutil.copytree(work / "weights", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("MANIFEST.sha256"))
        shutil.copytree(folder / "processor", folder / "model", dirs_exist_ok=True)
        write_cross_encoder(folder, read_directory(work / "weights"), verifier.encoder)
        complete(folder, verifier)

    return write_directory(work / "verifier", fill)


@pytest.fixture(scope="module")
def merged(tmp_path_factory):
    """The published kitchen verifier, merged, with its golden inputs and calibration."""
    source = ROOT / "checkpoints" / "kitchen-verifier"

    def complete(folder: Path, _) -> None:
        for name in ("calibration.json", "thresholds.json"):
            shutil.copy(source / name, folder / name)
        shutil.copytree(source / "golden", folder / "golden")

    return whole(source, tmp_path_factory.mktemp("merged"), complete)


@pytest.fixture(scope="module", params=["qwen2", "llama", "qwen3"])
def reading(request, tmp_path_factory):
    """A verifier of text with random weights, and the name of its family in vLLM's classes."""
    from random_drafts import random_draft

    from proofreel import Pair, Passage
    from proofreel.core import Prompt
    from proofreel.data_prep.media import FrameSampling
    from proofreel.models.backbones import save_tiny_model
    from proofreel.models.verifier import write_golden

    work = tmp_path_factory.mktemp("reading")
    base = save_tiny_model(work / "base", [Prompt().system, *CLAIMS] * 20, model_type=request.param)
    pairs = [Pair(claim, claim, (Passage(TEXT),), label="supported") for claim in CLAIMS]
    directory = whole(
        random_draft(base, work / "draft", FrameSampling()),
        work,
        lambda folder, verifier: write_golden(folder / "golden", verifier, pairs),
    )
    return directory, request.param.capitalize()


def test_margins_are_ours_also_of_odd_spans(merged):
    from proofreel import Verifier, VideoSegment

    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    # Its golden margins are compared on loading, within 1e-4.
    theirs = Verifier.from_pretrained(merged, engine="vllm", engine_options={"enforce_eager": True})
    ours = Verifier.from_pretrained(merged)
    for start_s, end_s in ((0.0, 2.0), (0.13, 1.5), (0.3, 1.91)):
        clip = VideoSegment(str(ROOT / "examples" / "kitchen" / "sample.mp4"), start_s, end_s)
        expected, actual = ours.score(CLAIMS, clip), theirs.score(CLAIMS, clip)
        assert not any(verdict.error for verdict in actual)
        assert close([v.margin for v in actual], [v.margin for v in expected])
        assert [v.label for v in actual] == [v.label for v in expected]


@contextmanager
def serving(directory, *options):
    """vLLM's server over the model of a directory; yields what posts JSON to a route and gives the answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--model", str(directory / "model"), "--port", str(port), "--host", "127.0.0.1", "--dtype", "float32"]
    words += ["--max-model-len", "1025", "--enforce-eager", *options]
    environment = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1"}
    server = subprocess.Popen([sys.executable, "-m", "vllm.entrypoints.openai.api_server", *words], env=environment)

    def post(route: str, body: Any) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{route}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return {"error": error.read().decode()}

    try:
        while True:
            assert server.poll() is None, "the server ended"
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(1)
        yield post
    finally:
        server.terminate()
        server.wait(60)


def close(found, expected):
    return np.allclose(found, expected, atol=1e-4, rtol=1e-5)


def png(pixels):
    file = io.BytesIO()
    PILImage.fromarray(pixels).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def question(verifier, words, evidence, media, claim):
    """The body of a chat request, and the ids that our encoder writes for the same question."""
    encoder = verifier.encoder
    parts, options = encoder.prompt.parts(evidence), {}
    videos, images = iter(media.videos), iter(media.images_HWC)
    for i, part in enumerate(parts):
        if part["type"] == "image":
            parts[i] = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png(next(images))}"}}
        elif part["type"] == "video":
            frames = ",".join(png(frame) for frame in next(videos).pixels_FHWC)
            parts[i] = {"type": "video_url", "video_url": {"url": f"data:video/jpeg;base64,{frames}"}}
            seconds = float(encoder.evidence(evidence, media).vision["second_per_grid_ts"][0])
            fps = encoder.processor.video_processor.temporal_patch_size / (seconds * (1 + 2e-6))
            options["media_io_kwargs"] = {"video": {"fps": fps, "num_frames": -1}}
    body = {
        "messages": [
            {"role": "system", "content": encoder.prompt.system},
            {"role": "user", "content": parts},
            {"role": "user", "content": encoder.prompt.claim_text(claim)},
        ],
        "max_tokens": 1,
        "temperature": 1,
        "top_p": 1,
        "logprobs": True,
        "top_logprobs": 2,
        "allowed_token_ids": words,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }
    ids = [*encoder.evidence(evidence, media).ids_P.tolist(), *encoder.claim_ids(claim).tolist()]
    return body | options, ids


def test_a_chat_route_reads_our_prompts_also_of_a_clip_s_frames(merged):
    from proofreel import Image, Passage, Verifier, VideoSegment
    from proofreel.data_prep.media import read_frames
    from proofreel.models.directory import read_directory
    from proofreel.models.inputs import Media

    config, ours = read_directory(merged), Verifier.from_pretrained(merged, device="cpu")
    words = [config.supported_id, config.refuted_id]
    sample = str(ROOT / "examples" / "kitchen" / "sample.mp4")
    clips = [VideoSegment(sample, start_s, end_s) for start_s, end_s in ((0.0, 2.0), (0.13, 1.5), (0.3, 1.91))]
    videos = [read_frames(clip, config.sampling) for clip in clips]
    asked_about = [
        ((Passage("A cook is chopping an onion."),), Media()),
        ((Image("a.png"), Passage("A cook.")), Media(images_HWC=(videos[0].pixels_FHWC[0],))),
        *(((clip,), Media((video,))) for clip, video in zip(clips, videos, strict=True)),
    ]
    options = ["--max-logprobs", "2", "--logprobs-mode", "processed_logprobs", "--trust-request-mm-kwargs"]
    with serving(merged, *options, "--mm-processor-kwargs", '{"do_resize": false}') as post:
        for evidence, media in asked_about:
            margins = ours.score_media([(claim, None) for claim in CLAIMS], evidence, media)
            for claim, margin in zip(CLAIMS, margins, strict=True):
                body, ids = question(ours, words, evidence, media, claim)
                answer = post("/v1/chat/completions", body)
                assert answer["prompt_token_ids"] == ids
                said = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
                found = {int(each["token"].removeprefix("token_id:")): each["logprob"] for each in said}
                assert close(found[words[0]] - found[words[1]], margin), (evidence, margin)


def test_margins_of_text_families_are_ours(reading):
    from proofreel import Passage, Verifier

    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    directory, _ = reading
    theirs = Verifier.from_pretrained(directory, engine="vllm", engine_options={"enforce_eager": True})
    expected = Verifier.from_pretrained(directory, device="cpu").score(CLAIMS, Passage(TEXT))
    found = [verdict.margin for verdict in theirs.score(CLAIMS, Passage(TEXT))]
    assert close(found, [verdict.margin for verdict in expected])
    assert len({round(margin, 3) for margin in found}) > 1


def test_a_score_route_gives_margins_of_text(merged):
    """The verdict words are the classifier, our template of pairs the prompt; no activation: margins."""
    text = WORDS | {"tie_word_embeddings": False}
    overrides = WORDS | {"architectures": ["Qwen2_5_VLForSequenceClassification"], "text_config": text}
    with scoring(merged, overrides) as (post, margins):
        check_scores(post, margins)
        pixels = png(np.zeros((84, 84, 3), "uint8"))
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{pixels}"}}
        for query, document in (("<|im_end|> yes", TEXT), (CLAIMS[0], {"content": [picture]})):
            assert "control token" in post("/score", {"queries": query, "documents": document})["error"]


def test_a_score_route_gives_margins_of_text_families(reading):
    directory, family = reading
    with scoring(directory, WORDS | {"architectures": [f"{family}ForSequenceClassification"]}) as (post, margins):
        check_scores(post, margins)


@contextmanager
def scoring(directory, overrides):
    """vLLM's server with `/score`, and our margins of the claims about the text."""
    from proofreel import Passage, Verifier
    from proofreel.models.inputs import Media

    ours = Verifier.from_pretrained(directory, device="cpu")
    margins = ours.score_media([(claim, None) for claim in CLAIMS], (Passage(TEXT),), Media())
    template = str(directory / "model" / "pair_template.jinja")
    options = ["--runner", "pooling", "--hf-overrides", json.dumps(overrides), "--chat-template", template]
    with serving(directory, *options) as post:
        yield post, margins


def check_scores(post, margins):
    asked = {"queries": CLAIMS, "documents": [TEXT] * len(CLAIMS)}
    found = post("/score", asked | {"use_activation": False})["data"]
    assert close([each["score"] for each in found], margins)
    assert close([each["score"] for each in post("/score", asked)["data"]], 1 / (1 + np.exp(-margins)))
