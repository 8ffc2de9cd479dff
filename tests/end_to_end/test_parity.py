"""What was trained is what is loaded: every head, with every kind of adapter, quantised and full, margin for margin."""

import json
import shutil
from typing import Any

import pytest
import torch
from conftest import sft_arguments
from nightly import only
from safetensors.torch import load_file, save_file

from proofreel.core.errors import ConfigError, DirectoryError
from proofreel.data_prep.dataset.shards import read_split
from proofreel.models.directory.format import read_directory, write_manifest
from proofreel.models.directory.load import Parts
from proofreel.models.verifier.verifier import Verifier
from proofreel.train import nli, recipe, sft
from proofreel.train.arguments import parse
from proofreel.train.recipe import run

NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "use_bnb_nested_quant": True}
WAYS: dict[str, dict[str, Any]] = {
    "attention": {"lora_target_modules": r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj)"},
    "language model": {},
    "tower as well": {"lora_parts": "language_model visual merger"},
    "output layer": {"lora_parts": "language_model lm_head"},
    "dora": {"use_dora": True},
    "quantised": NF4,
    "quantised, output layer": NF4 | {"lora_parts": "language_model lm_head"},
    "full": {"use_peft": False, "learning_rate": 1e-3},
}
HEADS: dict[str, dict[str, Any]] = {
    "next token": {},
    "two labels": {"labels": 2},
    "three labels": {"labels": 3},
    "random head": {"head_init": "random"},
}
CASES = [(h, w) for h in HEADS for w in WAYS if h == "next token" or "output layer" not in w]
# Every head and every way once; the other combinations are nightly.
CI = {
    ("next token", "attention"),
    ("next token", "output layer"),
    ("next token", "quantised, output layer"),
    ("two labels", "language model"),
    ("two labels", "quantised"),
    ("three labels", "tower as well"),
    ("three labels", "full"),
    ("random head", "dora"),
}


def words(base, dataset, out, **changes):
    """Command-line words; a list of parts is several words."""
    listed = [w for word in sft_arguments(base, dataset, out, **changes) for w in word.split(" ")]
    assert listed
    return listed


@pytest.fixture
def train(tiny_base, colour_dataset, tmp_path, monkeypatch):
    """Two steps of training, and the margins of the network in the trainer's hands on the test split."""

    def go(head, way, **changes):
        kept = {}

        def keep(trainer, encoder, config):
            trainer.model.eval()
            verifier = Verifier(Parts(trainer.model, encoder, trainer.head, config.claims_per_row))
            kept["margins"] = [v.margin for v in verifier.score_pairs(read_split(colour_dataset, "test"))]
            return save(trainer, encoder, config)

        save = recipe.save_draft
        monkeypatch.setattr(recipe, "save_draft", keep)
        settings = {"max_steps": 2} | WAYS[way] | HEADS[head] | changes
        run(
            *parse(words(tiny_base, colour_dataset, tmp_path / "run", **settings)),
            head_kind="next_token" if head == "next token" else "nli",
        )
        return tmp_path / "run" / "draft", kept["margins"]

    return go


@pytest.mark.parametrize(("head", "way"), only(CI, CASES))
def test_a_reloaded_draft_gives_the_trainers_margins_bit_for_bit(train, colour_dataset, head, way):
    draft, before = train(head, way)
    verifier = Verifier.from_pretrained(draft, device="cpu")
    pairs = read_split(colour_dataset, "test")
    assert [v.margin for v in verifier.score_pairs(pairs)] == before
    assert len(set(before)) > 4
    config = read_directory(draft)
    assert config.head == ("next_token" if head == "next token" else "nli")
    assert len(config.labels) == (3 if head == "three labels" else 2)
    assert config.trained["parameters"]["total"] > 0
    if way != "full":
        saved = load_file(draft / "adapter" / "adapter_model.safetensors")
        assert all("lora_" in name or "score" in name for name in saved)
        zero_shot = Verifier.from_pretrained(draft, device="cpu", adapter=False).score_pairs(pairs)
        assert [v.margin for v in zero_shot] != before


def test_two_label_heads_start_as_the_zero_shot_next_token_verifier(train, colour_dataset):
    pairs, found = read_split(colour_dataset, "test"), {}
    for head in ("next token", "two labels"):
        draft, _ = train(head, "language model", max_steps=1)
        found[head] = [
            v.margin for v in Verifier.from_pretrained(draft, device="cpu", adapter=False).score_pairs(pairs)
        ]
        shutil.rmtree(draft.parent)
    assert found["next token"] == pytest.approx(found["two labels"], abs=1e-4)


@pytest.mark.parametrize("lost", ["score", "lora_A"])
def test_an_adapter_that_lost_weights_is_refused_rather_than_filled_with_noise(train, lost):
    draft, _ = train("two labels", "language model", max_steps=1)
    path = draft / "adapter" / "adapter_model.safetensors"
    weights = {n: w for n, w in load_file(path).items()}
    weights.pop(next(n for n in weights if lost in n))
    save_file(weights, path, {"format": "pt"})
    write_manifest(draft)
    with pytest.raises(DirectoryError, match="missing"):
        Verifier.from_pretrained(draft, device="cpu")


def test_labels_that_the_stored_head_does_not_have_are_refused(train):
    draft, _ = train("three labels", "full", max_steps=1)
    path = draft / "verifier_config.json"
    values = json.loads(path.read_text()) | {"labels": ["supported", "refuted"]}
    path.write_text(json.dumps(values))
    write_manifest(draft)
    with pytest.raises(DirectoryError, match="its head has the labels"):
        Verifier.from_pretrained(draft, device="cpu")


@pytest.mark.parametrize(
    ("entry", "changes", "reason"),
    [
        (sft, {"labels": 3}, "train an NLI head"),
        (nli, {"labels": 4}, "labels: must be one of"),
        (nli, {"head_init": "zeros"}, "head_init: must be one of"),
        (nli, {"lora_parts": "language_model lm_head"}, "a score head stands in place of lm_head"),
        (sft, {"lora_parts": "vision"}, "unknown part"),
    ],
)
def test_settings_that_do_not_fit_stop_a_run_before_it_writes_anything(
    tiny_base, colour_dataset, tmp_path, capsys, entry, changes, reason
):
    assert entry.main(words(tiny_base, colour_dataset, tmp_path / "run", **changes)) == 1
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("way", ["language model", "quantised", "tower as well", "full"])
@pytest.mark.parametrize("entry", [sft, nli])
def test_a_dry_run_says_what_the_run_will_be_and_writes_nothing(
    tiny_base, colour_dataset, tmp_path, capsys, entry, way
):
    settings = WAYS[way] | {"validate_only": True}
    assert entry.main(words(tiny_base, colour_dataset, tmp_path / "run", **settings)) == 0
    said = capsys.readouterr().out
    lines = {line.split()[0]: line for line in said.splitlines()}
    assert set(lines) >= {"train", "validation", "step", "steps", "tokens", "verdict", "trainable", "memory"}
    assert ("NLI head of 2 labels" if entry is nli else "next token, 'yes'") in lines["verdict"]
    assert "per GPU" in lines["memory"]
    assert not (tmp_path / "run").exists()


def test_a_plan_counts_the_visual_tokens_there_are(tiny_base, colour_dataset, tmp_path, capsys):
    assert sft.main(words(tiny_base, colour_dataset, tmp_path / "run", validate_only=True)) == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("tokens"))
    assert "18 visual per evidence (at most 18)" in line  # two pairs of frames of 84 x 84: 3 x 3 tokens each


def test_a_plan_that_the_network_does_not_keep_is_an_error(tiny_base, colour_dataset, tmp_path, monkeypatch):
    def surprise(model, config, parts):
        model.requires_grad_(False)
        return model

    monkeypatch.setattr(recipe, "attach_lora", surprise)
    with pytest.raises(ConfigError, match="not what was planned"):
        run(*parse(words(tiny_base, colour_dataset, tmp_path / "run")))
    assert torch.is_grad_enabled()
