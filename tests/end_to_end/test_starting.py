"""Training that begins where another verifier stands: its function at first, and nothing taken that does not fit."""

import json
import re
import shutil
from typing import Any

import pytest
import torch
from conftest import sft_arguments
from peft import LoraConfig
from random_drafts import HEADS, random_draft
from safetensors.torch import load_file
from training_runs import adapter

from proofreel.core.errors import ConfigError, DirectoryError
from proofreel.models.backbones.load import load_backbone, weights_sha256
from proofreel.models.backbones.lora import attach_lora
from proofreel.models.directory.adapters import check_start, start_from
from proofreel.models.directory.format import fingerprint, read_directory
from proofreel.models.engine.heads import NextToken
from proofreel.models.inputs.chat_text import LabelWords
from proofreel.train import recipe
from proofreel.train.nli import main as nli
from proofreel.train.sft import main

LORA = LoraConfig(r=2, lora_alpha=1)
NEXT_TOKEN = NextToken(LabelWords(1, 2))


def fresh(base, head=None, parts=("language_model",), **changes) -> Any:
    torch.manual_seed(9)
    lora: dict[str, Any] = {"r": 2, "lora_alpha": 1, "task_type": "CAUSAL_LM"}
    return attach_lora(load_backbone(base, head=head), LoraConfig(**lora | changes), parts)


@pytest.mark.parametrize("head", HEADS)
def test_every_tensor_of_the_adapter_and_the_head_is_taken_and_the_base_is_left_alone(
    tiny_base, small_sampling, tmp_path, head
):
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling, HEADS[head])
    model = fresh(tiny_base, HEADS[head])
    base = {n: p.clone() for n, p in model.named_parameters() if "base_layer" in n}
    assert start_from(model, draft) == fingerprint(draft)
    stored = load_file(draft / "adapter" / "adapter_model.safetensors")
    model.save_pretrained(tmp_path / "again")
    again = load_file(tmp_path / "again" / "adapter_model.safetensors")
    assert again.keys() == stored.keys()
    assert all(torch.equal(again[name], stored[name]) for name in stored)
    assert all(torch.equal(p, base[n]) for n, p in model.named_parameters() if n in base)


@pytest.mark.parametrize(
    ("ours", "message"),
    [
        ({"r": 4}, "lies elsewhere or has another head"),
        ({"use_dora": True}, "lies elsewhere or has another head"),
        ({"parts": ("language_model", "visual")}, "lies elsewhere or has another head"),
        ({"head": HEADS["two labels"]}, "another head, got 1 tensors that do not fit, e.g. .*score"),
    ],
)
def test_an_adapter_of_another_shape_place_or_head_is_refused_and_nothing_is_taken(
    tiny_base, small_sampling, tmp_path, ours, message
):
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling)
    model = fresh(tiny_base, **ours)
    before = {n: p.clone() for n, p in model.named_parameters()}
    with pytest.raises(ConfigError, match=message):
        start_from(model, draft)
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())


def test_another_base_a_full_model_and_no_verifier_are_refused(tiny_base, small_sampling, tmp_path):
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling)
    assert check_start(draft, weights_sha256(tiny_base), LORA, NEXT_TOKEN) == fingerprint(draft)
    with pytest.raises(ConfigError, match="stands on other weights than model_name_or_path"):
        check_start(draft, "f" * 64, LORA, NEXT_TOKEN)
    full = random_draft(tiny_base, tmp_path / "full", small_sampling, config={"weights": "full"})
    with pytest.raises(ConfigError, match="holds a full model"):
        check_start(full, weights_sha256(tiny_base), LORA, NEXT_TOKEN)
    with pytest.raises(DirectoryError):
        check_start(tmp_path / "nothing", weights_sha256(tiny_base), LORA, NEXT_TOKEN)


@pytest.mark.parametrize(
    ("ours", "message"),
    [
        ({"r": 4}, "lora_r is 2 in .*, got 4; set it to 2"),
        ({"lora_alpha": 2}, "lora_alpha is 1 in"),
        ({"use_rslora": True}, "use_rslora is False in"),
        ({"use_dora": True}, "use_dora is False in"),
    ],
)
def test_another_scale_is_refused_by_the_key_that_sets_it(tiny_base, small_sampling, tmp_path, ours, message):
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling)
    with pytest.raises(ConfigError, match=message):
        check_start(draft, weights_sha256(tiny_base), LoraConfig(**{"r": 2, "lora_alpha": 1} | ours), NEXT_TOKEN)


@pytest.mark.parametrize("there", HEADS)
@pytest.mark.parametrize("here", HEADS)
def test_a_head_starts_from_its_own_kind(tiny_base, small_sampling, tmp_path, there, here):
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling, HEADS[there])
    readout = HEADS[here] or NEXT_TOKEN
    if there == here:
        check_start(draft, weights_sha256(tiny_base), LORA, readout)
        return
    with pytest.raises(ConfigError, match=r"has another head, .* train its head, or from a new adapter"):
        check_start(draft, weights_sha256(tiny_base), LORA, readout)


def test_a_run_that_learns_nothing_leaves_the_adapter_it_began_from_and_names_it(
    tiny_base, colour_dataset, trained_run, tmp_path
):
    start = trained_run / "draft"
    out = tmp_path / "run"
    words = sft_arguments(tiny_base, colour_dataset, out, adapter_from=start, learning_rate=0.0, max_steps=1)
    assert main(words) == 0
    one, other = adapter(trained_run), adapter(out)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert read_directory(out / "draft").trained["adapter_from"] == fingerprint(start)
    assert json.loads((out / "run.json").read_text())["arguments"]["adapter_from"] == str(start)


def test_a_wrong_start_is_refused_before_weights_are_loaded(tiny_base, colour_dataset, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(recipe, "load_model", lambda *_: pytest.fail("weights were loaded"))
    words = sft_arguments(tiny_base, colour_dataset, tmp_path / "run", adapter_from=tmp_path / "nothing")
    assert main(words) == 1
    assert "nothing" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("train", "wrong", "message"),
    [
        (main, {"lora_r": 8}, "adapter_from: lora_r is 4 in"),
        (main, {"lora_parts": "visual"}, "adapter_from: the adapter of .* lies elsewhere"),
        (nli, {}, "adapter_from: .* has another head, next_token of"),
    ],
)
def test_what_does_not_fit_is_found_by_a_dry_run_and_leaves_no_directory(
    tiny_base, colour_dataset, trained_run, tmp_path, monkeypatch, capsys, train, wrong, message
):
    monkeypatch.setattr(recipe, "load_model", lambda *_: pytest.fail("weights were loaded"))
    for only in (True, False):
        asked = {"adapter_from": trained_run / "draft", "validate_only": only} | wrong
        assert train(sft_arguments(tiny_base, colour_dataset, tmp_path / "run", **asked)) == 1
        assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "run").exists()


def test_a_run_goes_on_without_what_it_started_from_but_not_with_another(
    tiny_base, colour_dataset, trained_run, tmp_path, capsys
):
    start, out = tmp_path / "start", tmp_path / "run"
    shutil.copytree(trained_run / "draft", start)
    asked = {"adapter_from": start, "max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    assert main(sft_arguments(tiny_base, colour_dataset, out, **asked)) == 0
    whole = adapter(out)
    for made in ("checkpoint-2", "draft"):
        shutil.rmtree(out / made)
    again = sft_arguments(tiny_base, colour_dataset, out, **asked, resume_from_checkpoint=True)
    shutil.rmtree(start)
    shutil.copytree(out / "checkpoint-1", start)
    assert main(again) == 1
    assert "start: not a verifier directory" in capsys.readouterr().err
    shutil.rmtree(start)
    assert main(sft_arguments(tiny_base, colour_dataset, tmp_path / "other", max_steps=1)) == 0
    shutil.copytree(tmp_path / "other" / "draft", start)
    capsys.readouterr()
    assert main(again) == 1
    assert f"adapter_from_sha256: the run in {out} began with" in capsys.readouterr().err
    shutil.rmtree(start)
    assert main(again) == 0  # the checkpoint holds all that was taken
    assert all(torch.equal(value, adapter(out)[name]) for name, value in whole.items())
    assert read_directory(out / "draft").trained["adapter_from"] == fingerprint(trained_run / "draft")
    for left in ("checkpoint-1", "checkpoint-2", "draft"):
        shutil.rmtree(out / left)
    capsys.readouterr()
    assert main(again) == 1  # killed before its first checkpoint, it needs the adapter again
    assert "start: not a verifier directory" in capsys.readouterr().err


def test_full_fine_tuning_has_no_adapter_to_start_from(tiny_base, colour_dataset, trained_run, tmp_path, capsys):
    words = sft_arguments(
        tiny_base, colour_dataset, tmp_path / "run", adapter_from=trained_run / "draft", use_peft="false"
    )
    assert main(words) == 1
    assert "adapter_from: needs use_peft: true" in capsys.readouterr().err
