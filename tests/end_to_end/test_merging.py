"""Merged is the same function: every kind of LoRA, every part and head, within the design's tolerance in float32."""

import json
import shutil
from typing import Any

import pytest
import torch
from nightly import only
from random_drafts import ATTENTION, HEADS, random_draft, tied_copy
from safetensors.torch import load_file

from proofreel.core.errors import ConfigError, DirectoryError
from proofreel.core.pairs import Pair, Passage, VideoSegment
from proofreel.models.backbones.tiny import TinySizes, save_tiny_text_model
from proofreel.models.directory.adapters import merged_network, write_merged
from proofreel.models.directory.format import fingerprint, read_directory, write_manifest
from proofreel.models.verifier.golden import GOLDEN
from proofreel.models.verifier.self_test import write_golden
from proofreel.models.verifier.verifier import Verifier

CLAIMS = [("Object is red ball.", None), ("Action is moving left.", None), ("No.", None)]
EVIDENCE = (VideoSegment("a.mp4", 0, 2),)
WAYS: dict[str, dict[str, Any]] = {
    "attention": {"target_modules": ATTENTION},
    "language model": {},
    "tower and merger": {"parts": ("language_model", "visual", "merger")},
    "output layer": {"parts": ("language_model", "lm_head")},
    "dora": {"use_dora": True},
    "rslora": {"use_rslora": True},
}
EVERY_CASE = [(h, w) for h in HEADS for w in WAYS if h == "next token" or w != "output layer"]
CASES = only([(h, w) for h, w in EVERY_CASE if "next token" in h or w == "language model"], EVERY_CASE)


def weights(directory):
    return {n: t for f in (directory / "model").glob("*.safetensors") for n, t in load_file(f).items()}


def tolerance(margins):
    return 1e-4 + 1e-5 * abs(margins)


@pytest.fixture(scope="module")
def margins(make_media):
    """Margins of three claims on noise, by the verifier of a directory."""
    media = make_media(8)

    def ask(directory, **options):
        verifier = Verifier.from_pretrained(directory, device="cpu", **options)
        return torch.from_numpy(verifier.score_media(CLAIMS, EVIDENCE, media))

    return ask


@pytest.mark.parametrize(("head", "way"), CASES)
def test_merged_margins_are_the_adapters(tiny_base, small_sampling, margins, tmp_path, head, way):
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling, HEADS[head], **WAYS[way])
    config = write_merged(draft, tmp_path / "merged")
    before, after = margins(draft), margins(tmp_path / "merged")
    assert (abs(after - before) <= tolerance(before)).all(), (before, after)
    if head == "next token":  # an NLI head without its adapter would be another one
        assert (abs(margins(draft, adapter=False) - before) > 1e-2).any()
    assert config == read_directory(tmp_path / "merged")
    assert (config.weights, config.quantization, config.dtype) == ("full", None, "float32")
    assert config.trained["merged"]["from_fingerprint"] == fingerprint(draft)
    stored = json.loads((tmp_path / "merged" / "model" / "config.json").read_text())
    expected = "Qwen2_5_VLForConditionalGeneration" if HEADS[head] is None else "Qwen2_5_VLForVerdicts"
    assert stored["architectures"] == [expected]
    assert not [n for n in weights(tmp_path / "merged") if "lora" in n or "base_layer" in n]
    assert any(n == "score.weight" for n in weights(tmp_path / "merged")) == (HEADS[head] is not None)


def test_a_merged_verifier_needs_neither_its_base_nor_peft(tiny_base, small_sampling, margins, tmp_path):
    base = shutil.copytree(tiny_base, tmp_path / "base")
    draft = random_draft(base, tmp_path / "draft", small_sampling)
    config = write_merged(draft, tmp_path / "merged")
    assert set(config.requirements) == {"torch", "transformers", "safetensors", "torchvision"}
    assert all(r.reason for r in config.requirements.values())
    before = margins(draft)
    shutil.rmtree(base)
    assert (abs(margins(tmp_path / "merged") - before) <= tolerance(before)).all()


def test_requirements_that_a_verifier_names_itself_are_kept(tiny_base, small_sampling, tmp_path):
    named = {"decord": {"versions": ">=0.6", "reason": "frames"}, "peft": {"versions": ">=0.1", "reason": "adapter"}}
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling, config={"requirements": named})
    requirements = write_merged(draft, tmp_path / "merged").requirements
    assert "peft" not in requirements
    assert requirements["decord"].reason == "frames"


@pytest.mark.parametrize("tied_head_adapted", [False, True])
def test_embeddings_stay_what_they_were_and_only_an_adapted_output_layer_is_untied(
    tiny_base, small_sampling, margins, tmp_path, tied_head_adapted
):
    base = tied_copy(tiny_base, tmp_path / "base")
    parts = ("language_model", "lm_head") if tied_head_adapted else ("language_model",)
    draft = random_draft(base, tmp_path / "draft", small_sampling, parts=parts)
    write_merged(draft, tmp_path / "merged")
    embeddings = "model.embed_tokens.weight"
    assert "lm_head.weight" not in load_file(base / "model.safetensors")
    before, after = load_file(base / "model.safetensors"), weights(tmp_path / "merged")
    assert torch.equal(after[embeddings], before[embeddings])
    config = json.loads((tmp_path / "merged" / "model" / "config.json").read_text())
    assert config["tie_word_embeddings"] is (not tied_head_adapted)
    assert config["text_config"].get("tie_word_embeddings", False) is (not tied_head_adapted)
    assert ("lm_head.weight" in after) is tied_head_adapted
    if tied_head_adapted:
        assert not torch.equal(after["lm_head.weight"], before[embeddings])
    found = margins(tmp_path / "merged")
    assert (abs(found - margins(draft)) <= tolerance(found)).all()


@pytest.mark.parametrize("tied", [False, True])
def test_text_backbones_merge_too(small_sampling, tmp_path, tied):
    base = save_tiny_text_model(
        tmp_path / "base", ["Object is red ball."] * 9, TinySizes(hidden=64, vocab=420), tied=tied
    )
    parts = ("language_model", "lm_head")
    draft = random_draft(base, tmp_path / "draft", small_sampling, parts=parts)
    config = write_merged(draft, tmp_path / "merged")
    assert "torchvision" not in config.requirements
    ask = [["Object is red ball.", "No."], Passage("A red ball lies there.")]
    found = [
        torch.tensor([v.margin for v in Verifier.from_pretrained(d, device="cpu").score(*ask)])
        for d in (draft, tmp_path / "merged")
    ]
    assert (abs(found[0] - found[1]) <= tolerance(found[0])).all()


def test_weights_are_rounded_once_from_a_merge_in_float32(tiny_base, small_sampling, tmp_path):
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling, dtype="bfloat16")
    half, full = (weights_of(draft, tmp_path / d, d) for d in ("bfloat16", "float32"))
    assert {t.dtype for t in half.values()} == {torch.bfloat16}
    assert {t.dtype for t in full.values()} == {torch.float32}
    assert all(torch.equal(half[n], full[n].bfloat16()) for n in half)
    q = next(n for n in full if n.endswith("layers.0.self_attn.q_proj.weight"))
    base = load_file(tiny_base / "model.safetensors")[q].bfloat16().float()
    lora = load_file(draft / "adapter" / "adapter_model.safetensors")
    stem = next(n for n in lora if "layers.0.self_attn.q_proj" in n and "lora_A" in n)
    delta = lora[stem.replace("lora_A", "lora_B")].float() @ lora[stem].float() * (1 / 2)
    assert torch.allclose(full[q], base + delta, rtol=0, atol=1e-6)


def weights_of(draft, out, dtype):
    write_merged(draft, out, dtype=dtype)
    assert read_directory(out).dtype == dtype
    return weights(out)


def test_an_adapter_over_nf4_merges_into_the_full_precision_base_and_is_another_function(
    tiny_base, small_sampling, margins, tmp_path
):
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling, quantised=True)
    twin = random_draft(tiny_base, tmp_path / "twin", small_sampling)
    write_merged(draft, tmp_path / "merged")
    write_merged(twin, tmp_path / "merged-twin")
    one, other = weights(tmp_path / "merged"), weights(tmp_path / "merged-twin")
    assert all(torch.equal(one[n], other[n]) for n in other)
    before = margins(draft)
    assert (abs(margins(tmp_path / "merged") - before) > tolerance(before)).any()
    assert "quantization_config" not in json.loads((tmp_path / "merged" / "model" / "config.json").read_text())


def test_what_cannot_be_merged_is_refused(tiny_base, small_sampling, tmp_path):
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling)
    write_merged(draft, tmp_path / "merged")
    with pytest.raises(DirectoryError, match="nothing to merge"):
        write_merged(tmp_path / "merged", tmp_path / "again")
    with pytest.raises(ConfigError, match="float32, bfloat16 or float16"):
        merged_network(draft, read_directory(draft), dtype="int8")  # type: ignore[arg-type]
    broken = random_draft(tiny_base, tmp_path / "broken", small_sampling, lora_alpha=1e300)
    with pytest.raises(DirectoryError, match="finite"):
        write_merged(broken, tmp_path / "no")
    assert not (tmp_path / "no").exists()


@pytest.fixture
def with_golden(tiny_base, small_sampling, tmp_path):
    """An uncalibrated verifier over text that has golden inputs, and one of its golden margins."""
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling)
    pairs = [Pair(str(i), claim, (Passage("The ball is red."),)) for i, (claim, _) in enumerate(CLAIMS)]
    write_golden(draft / "golden", Verifier.from_pretrained(draft, device="cpu"), pairs)
    write_manifest(draft)
    return draft, json.loads((draft / GOLDEN).read_text())


def has_lora(verifier):
    return any("lora_" in name for name, _ in verifier.model.named_parameters())


def test_golden_inputs_let_an_adapter_be_merged_at_load_and_an_option_keeps_it_apart(with_golden, make_media):
    draft, _ = with_golden
    together, apart = (Verifier.from_pretrained(draft, device="cpu", merge=merge) for merge in (True, False))
    assert (has_lora(together), has_lora(apart)) == (False, True)
    media = make_media(8)
    one, other = (torch.from_numpy(v.score_media(CLAIMS, EVIDENCE, media)) for v in (together, apart))
    assert (abs(one - other) <= tolerance(other)).all()
    assert (abs(one - other) > 0).any()  # another route, so not the same network twice
    assert together.fingerprint == apart.fingerprint
    assert not has_lora(Verifier.from_pretrained(draft, device="cpu", adapter=False))


@pytest.mark.parametrize("damage", ["margin", "claim"])
def test_an_adapter_stays_apart_where_golden_inputs_disagree_and_that_is_said(with_golden, caplog, damage):
    draft, cases = with_golden
    if damage == "margin":
        cases[0]["margins"][0] += 0.01
    else:
        del cases[0]["margins"][0]
    (draft / GOLDEN).write_text(json.dumps(cases))
    write_manifest(draft)
    assert has_lora(Verifier.from_pretrained(draft, device="cpu"))
    assert "its adapter stays apart" in caplog.text


def test_without_golden_inputs_an_adapter_stays_apart(tiny_base, small_sampling, tmp_path):
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling)
    assert has_lora(Verifier.from_pretrained(draft, device="cpu"))
