"""A published directory in other libraries: sentence-transformers, peft and transformers' own classes."""

import json
import shutil

import numpy as np
import pytest
import torch
from random_drafts import HEADS, random_draft

from proofreel.core import DirectoryError, Image, Passage, VideoSegment
from proofreel.models.directory import (
    describe_adapter,
    read_directory,
    write_cross_encoder,
    write_merged,
)
from proofreel.models.directory.format import write_manifest
from proofreel.models.inputs.encoder import Media
from proofreel.models.verifier import Verifier

CLAIMS = ["Object is red ball.", "Action is moving left.", 'She said: "no" \\ {{ x }}.\nYes.']
TEXT = "A ball rolls {% left %}."
RAISED = Exception  # of jinja, which sentence-transformers lets through


def as_exported(draft, out):
    """The draft merged, with what export adds for other libraries; returns its verifier."""
    config = write_merged(draft, out)
    encoder = Verifier.from_pretrained(out, device="cpu").encoder
    shutil.copytree(out / "processor", out / "model", dirs_exist_ok=True)
    assert write_cross_encoder(out, config, encoder)
    write_manifest(out)
    return Verifier.from_pretrained(out, device="cpu")


def cross_encoder(directory):
    from sentence_transformers import CrossEncoder

    return CrossEncoder(str(directory), device="cpu", local_files_only=True)


def close(found, expected):
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    return bool((abs(found - expected) <= 1e-4 + 1e-5 * abs(expected)).all())


@pytest.fixture(scope="module")
def seeing(tiny_base, small_sampling, tmp_path_factory):
    """Verifiers that see, by position rule."""
    folder, made = tmp_path_factory.mktemp("seeing"), {}
    for rule in ("published", "hf5"):
        draft = random_draft(tiny_base, folder / f"{rule}-draft", small_sampling, config={"position_rule": rule})
        made[rule] = (folder / rule, as_exported(draft, folder / rule))
    return made


@pytest.mark.parametrize("family", ["qwen2", "llama", "qwen3"])
def test_a_text_verifier_as_a_cross_encoder_gives_its_margins(family, tiny_of, small_sampling, tmp_path):
    draft = random_draft(tiny_of(family), tmp_path / "draft", small_sampling)
    verifier = as_exported(draft, tmp_path / "out")
    expected = [v.margin for v in verifier.score(CLAIMS, Passage(TEXT))]
    assert close(cross_encoder(tmp_path / "out").predict([(c, TEXT) for c in CLAIMS]), expected)
    assert len({round(m, 3) for m in expected}) == len(CLAIMS)


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


def test_only_whole_next_token_verifiers_are_written_for_it(tiny_base, small_sampling, tmp_path):
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling)
    encoder = Verifier.from_pretrained(draft, device="cpu").encoder
    assert not write_cross_encoder(draft, read_directory(draft), encoder)
    assert not (draft / "modules.json").exists()


@pytest.mark.parametrize("family", ["qwen2", "llama", "qwen3"])
def test_a_text_head_is_transformers_own_classifier(family, tiny_of, small_sampling, tmp_path):
    from transformers import AutoModelForSequenceClassification

    draft = random_draft(tiny_of(family), tmp_path / "draft", small_sampling, head=HEADS["three labels"])
    write_merged(draft, out := tmp_path / "out")
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
def test_peft_opens_the_adapter_over_its_base(family, tiny_of, small_sampling, tmp_path, monkeypatch):
    from peft import AutoPeftModel, AutoPeftModelForCausalLM
    from transformers import Qwen2_5_VLForConditionalGeneration

    sees = family != "qwen2"
    draft = random_draft(tiny_of(family), tmp_path / "draft", small_sampling)
    expected = Verifier.from_pretrained(draft, device="cpu")
    network = Qwen2_5_VLForConditionalGeneration if sees else None
    describe_adapter(draft / "adapter", read_directory(draft).base.path, network)
    write_manifest(draft)
    verifier = Verifier.from_pretrained(draft, device="cpu")
    margins = [v.margin for v in verifier.score(CLAIMS, Passage(TEXT))]
    assert margins == [v.margin for v in expected.score(CLAIMS, Passage(TEXT))]

    monkeypatch.chdir(draft)  # peft resolves a base that is a folder from where its process runs
    adapted = (AutoPeftModel if sees else AutoPeftModelForCausalLM).from_pretrained(str(draft / "adapter")).eval()
    config, found = json.loads((draft / "verifier_config.json").read_text()), []
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
