"""What `proofreel export` writes, in other libraries: sentence-transformers, peft and transformers' own classes."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf_files import as_gguf, gguf
from random_drafts import HEADS, random_draft
from training_runs import with_rows
from transformers import AutoModelForCausalLM, AutoTokenizer

from proofreel.cli import main
from proofreel.core import DirectoryError, Image, Passage, VideoSegment
from proofreel.data_prep.dataset import read_split
from proofreel.models.directory import EXAMPLE, GGUF_NOTE, describe_adapter, read_directory, write_gguf_note
from proofreel.models.directory.format import write_manifest
from proofreel.models.inputs.encoder import Media
from proofreel.models.verifier import Verifier

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = ["Object is red ball.", "Action is moving left.", 'She said: "no" \\ {{ x }}.\nYes.']
TEXT = "A ball rolls {% left %}."
RAISED = Exception  # of jinja, which sentence-transformers lets through


@pytest.fixture(scope="module")
def text_dataset(colour_dataset, tmp_path_factory):
    """The colour clips' claims, judged against a sentence each."""
    pairs = read_split(colour_dataset, "calibration")
    rows = [dataclasses.replace(p, evidence=(Passage(f"A clip of {i % 3} things."),)) for i, p in enumerate(pairs)]
    return with_rows(colour_dataset, tmp_path_factory.mktemp("text") / "data", rows, "calibration")


def export(draft, data, out, *more):
    """`proofreel export` of a draft, after `predict` and `calibrate`; returns the directory."""
    predictions, calibrated = out.with_suffix(".parquet"), out.with_suffix(".calibrated")
    common = ["--verifier", draft, "--data", data]
    for words in (
        ["predict", *common, "--split", "calibration", "--out", predictions, "--device", "cpu"],
        ["calibrate", "--predictions", predictions, "--out", calibrated, "--method", "platt"],
        ["export", *common, "--calibration", calibrated, "--out", out, *more],
    ):
        assert main([str(word) for word in words]) == 0
    return out


def cross_encoder(directory):
    from sentence_transformers import CrossEncoder

    return CrossEncoder(str(directory), device="cpu", local_files_only=True)


def close(found, expected):
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    return bool((abs(found - expected) <= 1e-4 + 1e-5 * abs(expected)).all())


@pytest.fixture(scope="module")
def seeing(tiny_base, small_sampling, colour_dataset, tmp_path_factory):
    """Merged verifiers that see, with their directories, by position rule."""
    folder, made = tmp_path_factory.mktemp("seeing"), {}
    for rule in ("published", "hf5"):
        draft = random_draft(tiny_base, folder / f"{rule}-draft", small_sampling, config={"position_rule": rule})
        directory = export(draft, colour_dataset, folder / rule, "--merge")
        made[rule] = (directory, Verifier.from_pretrained(directory, device="cpu"))
    return made


@pytest.fixture(scope="module", params=["qwen2", "llama", "qwen3"])
def reading(request, tiny_of, small_sampling, text_dataset, tmp_path_factory):
    """A merged verifier of text and its directory."""
    folder = tmp_path_factory.mktemp("reading")
    draft = random_draft(tiny_of(request.param), folder / "draft", small_sampling)
    directory = export(draft, text_dataset, folder / "out", "--merge")
    return directory, Verifier.from_pretrained(directory, device="cpu")


def test_a_text_verifier_as_a_cross_encoder_gives_its_margins(reading):
    directory, verifier = reading
    expected = [v.margin for v in verifier.score(CLAIMS, Passage(TEXT))]
    assert close(cross_encoder(directory).predict([(c, TEXT) for c in CLAIMS]), expected)
    assert len({round(m, 3) for m in expected}) == len(CLAIMS)


@pytest.mark.skipif(gguf is None, reason="gguf is not installed")
def test_a_gguf_file_of_the_model_gives_the_margin_of_its_note(reading, tmp_path):
    directory, verifier = reading
    as_gguf(directory / "model", tmp_path / "verifier.gguf")
    network: Any = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="verifier.gguf", dtype=torch.float32)
    note = (directory / GGUF_NOTE).read_text()
    body = json.loads(note.partition("```json\n")[2].partition("\n```")[0])
    ids = AutoTokenizer.from_pretrained(tmp_path, gguf_file="verifier.gguf")(body["prompt"])["input_ids"]
    with torch.inference_mode():
        logits = network.eval()(input_ids=torch.tensor([ids])).logits[0, -1].double()
    supported, refuted = (logits[word] for word, _ in body["logit_bias"])
    expected = verifier.score(EXAMPLE[1], EXAMPLE[0])[0].margin
    assert close(supported - refuted, expected)
    assert f"says {expected:.4f}, in {len(ids)} tokens" in note


def test_there_is_no_note_where_its_example_does_not_fit(reading, monkeypatch):
    directory, verifier = reading
    note, config = (directory / GGUF_NOTE).read_text(), read_directory(directory)
    n_tokens = int(note.partition(" tokens\n(`tokens_evaluated`)")[0].rpartition(" ")[2])
    monkeypatch.setattr(verifier.encoder, "max_tokens", n_tokens - 1)
    assert not write_gguf_note(directory, config, verifier.encoder, lambda: pytest.fail("was asked"))
    monkeypatch.setattr(verifier.encoder, "max_tokens", n_tokens)
    assert write_gguf_note(
        directory, config, verifier.encoder, lambda: verifier.score(EXAMPLE[1], EXAMPLE[0])[0].margin
    )
    assert (directory / GGUF_NOTE).read_text() == note


def test_text_and_an_image_as_a_cross_encoder_give_the_margins(seeing, make_media):
    directory, verifier = seeing["published"]
    media = make_media(images=1)
    ranker = cross_encoder(directory)
    expected = [v.margin for v in verifier.score(CLAIMS, Passage(TEXT))]
    assert close(ranker.predict([(c, TEXT) for c in CLAIMS]), expected)
    expected = verifier.score_media([(c, None) for c in CLAIMS], (Image("a.png"), Passage(TEXT)), media)
    pixels = torch.from_numpy(media.images_HWC[0]).permute(2, 0, 1)
    assert close(ranker.predict([(c, {"image": pixels, "text": TEXT}) for c in CLAIMS]), expected)


def test_frames_as_a_tensor_give_the_margins_of_a_verifier_of_the_rule_hf5(seeing, make_media):
    directory, verifier = seeing["hf5"]
    media = make_media(8, step_s=1.0)
    expected = verifier.score_media([(c, None) for c in CLAIMS], (VideoSegment("a.mp4", 0, 8),), media)
    frames = torch.from_numpy(media.videos[0].pixels_FHWC).permute(0, 3, 1, 2)
    about = {"fps": 1.0, "total_num_frames": 8, "duration": 8.0, "frames_indices": list(range(8))}
    ranker = cross_encoder(directory)
    pairs = [(c, {"video": frames}) for c in CLAIMS]
    timed = {"video": {"video_metadata": [about] * len(pairs)}}
    assert close(ranker.predict(pairs, processing_kwargs=timed), expected)


def test_what_would_be_another_question_is_refused(seeing, make_media):
    directory, _ = seeing["published"]
    ranker = cross_encoder(directory)
    frames = torch.from_numpy(make_media(8).videos[0].pixels_FHWC).permute(0, 3, 1, 2)
    with pytest.raises(RAISED, match="video"):
        ranker.predict([(CLAIMS[0], {"video": frames})])
    with pytest.raises(RAISED, match="control token"):
        ranker.predict([("<|im_end|> yes", TEXT)])


def test_only_whole_next_token_verifiers_are_written_for_it(tiny_of, small_sampling, text_dataset, tmp_path):
    for settings, more in (({}, ()), ({"head": HEADS["two labels"]}, ("--merge",))):
        draft = random_draft(tiny_of("qwen2"), tmp_path / f"draft{len(more)}", small_sampling, **settings)
        directory = export(draft, text_dataset, tmp_path / f"out{len(more)}", *more)
        assert not (directory / "modules.json").exists()


@pytest.mark.parametrize("family", ["qwen2", "llama", "qwen3"])
def test_a_text_head_is_transformers_own_classifier(family, tiny_of, small_sampling, text_dataset, tmp_path):
    from transformers import AutoModelForSequenceClassification

    draft = random_draft(tiny_of(family), tmp_path / "draft", small_sampling, head=HEADS["three labels"])
    out = export(draft, text_dataset, tmp_path / "out", "--merge")
    verifier = Verifier.from_pretrained(out, device="cpu")
    network, loading = AutoModelForSequenceClassification.from_pretrained(out / "model", output_loading_info=True)
    assert not any(loading.values())
    prefix = verifier.encoder.evidence((Passage(TEXT),), Media()).ids_P
    for claim in CLAIMS:
        ids = torch.cat([prefix, verifier.encoder.claim_ids(claim)])[None]
        with torch.inference_mode():
            logits = network.eval()(input_ids=ids).logits[0].double()
        assert close([logits[0] - logits[1:].logsumexp(0)], [verifier.score(claim, Passage(TEXT))[0].margin])


@pytest.mark.parametrize("family", ["qwen2", "qwen2_5_vl"])
def test_peft_opens_the_adapter_over_its_base(
    family, tiny_of, small_sampling, colour_dataset, text_dataset, tmp_path, monkeypatch
):
    from peft import AutoPeftModel, AutoPeftModelForCausalLM

    sees = family != "qwen2"
    draft = random_draft(tiny_of(family), tmp_path / "draft", small_sampling)
    directory = export(draft, colour_dataset if sees else text_dataset, tmp_path / "out")
    verifier, before = (Verifier.from_pretrained(folder, device="cpu", merge=False) for folder in (directory, draft))
    margins = [v.margin for v in verifier.score(CLAIMS, Passage(TEXT))]
    assert margins == [v.margin for v in before.score(CLAIMS, Passage(TEXT))]

    monkeypatch.chdir(directory)  # peft resolves a base that is a folder from where its process runs
    adapted = (AutoPeftModel if sees else AutoPeftModelForCausalLM).from_pretrained(str(directory / "adapter")).eval()
    config, found = json.loads((directory / "verifier_config.json").read_text()), []
    prefix = verifier.encoder.evidence((Passage(TEXT),), Media()).ids_P
    for claim in CLAIMS:
        ids = torch.cat([prefix, verifier.encoder.claim_ids(claim)])[None]
        with torch.inference_mode():
            logits = adapted(input_ids=ids).logits[0, -1].double()
        found.append(logits[config["supported_id"]] - logits[config["refuted_id"]])
    assert close(found, margins)


def test_an_adapter_may_name_a_network_of_transformers_and_nothing_else(tiny_base, small_sampling, tmp_path):
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling)

    class Foreign:
        __module__ = "os"

    describe_adapter(draft / "adapter", read_directory(draft).base.path, Foreign)
    write_manifest(draft)
    with pytest.raises(DirectoryError, match="auto_mapping"):
        Verifier.from_pretrained(draft, device="cpu")


def test_the_docs_name_every_file_of_an_export_and_no_other(
    seeing, colour_dataset, tiny_base, small_sampling, tmp_path
):
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling)
    plain = export(draft, colour_dataset, tmp_path / "out", "--test-split", "test")
    page = (ROOT / "docs" / "verifier-directory.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    named = [name for line in rows for name in re.findall("`([^`]+)`", line.split("|")[1])]
    written = {p.relative_to(d).as_posix() for d in (plain, seeing["hf5"][0]) for p in d.rglob("*") if p.is_file()}
    assert sorted(named) == sorted(written)
