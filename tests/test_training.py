"""train/sft.py: the loss is a mean over claims however they are batched; bad settings and rows stop it early."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from conftest import ROOT, sft_arguments
from safetensors.torch import load_file

from proofreel import VideoSegment
from proofreel.data_prep.dataset import read_split, sha256_of, shard_name, write_pairs
from proofreel.data_prep.errors import ConfigError, MediaError, RowError
from proofreel.models.directory import read_directory
from proofreel.models.verifier import Verifier
from proofreel.train.arguments import parse
from proofreel.train.groups import GroupDataset, target
from proofreel.train.lengths import group_pairs
from proofreel.train.recipe import run
from proofreel.train.sft import main


@pytest.fixture
def train(tiny_base, colour_dataset, tmp_path):
    """Run training with changes to the defaults; returns the run's folder."""

    def go(name="run", dataset=colour_dataset, **changes):
        run(*parse(sft_arguments(tiny_base, dataset, tmp_path / name, **changes)))
        return tmp_path / name

    return go


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def adapter(folder):
    return load_file(folder / "draft" / "adapter" / "adapter_model.safetensors")


def test_batch_eight_once_equals_batch_one_eight_times(train):
    """Rows hold different numbers of claims, so a mean of means would differ."""
    common = {"max_steps": 2, "claims_per_row": 3, "max_grad_norm": 0, "optim": "sgd", "learning_rate": 1.0}
    once = train("once", per_device_train_batch_size=8, **common)
    often = train("often", per_device_train_batch_size=1, gradient_accumulation_steps=8, **common)
    for (name, a), b in zip(adapter(once).items(), adapter(often).values(), strict=True):
        assert torch.allclose(a, b, atol=1e-5), name
    assert losses(once) == pytest.approx(losses(often), abs=1e-4)


@pytest.mark.slow
def test_two_processes_learn_what_one_does(train, tiny_base, colour_dataset, tmp_path):
    # Eight rows of two or four claims: a step is an epoch, and no rank is handed a row twice to fill up its batch.
    common = {"max_steps": 3, "claims_per_row": 4, "max_grad_norm": 0, "optim": "sgd", "learning_rate": 1.0}
    one = train("one", per_device_train_batch_size=8, **common)
    words = sft_arguments(tiny_base, colour_dataset, tmp_path / "two", per_device_train_batch_size=4, **common)
    script = [str(ROOT / "train" / "sft.py"), *words, "--ddp_backend", "gloo"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "29547"]
    subprocess.run([*launcher, *script], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    for (name, a), b in zip(adapter(one).items(), adapter(tmp_path / "two").values(), strict=True):
        assert torch.allclose(a, b, atol=1e-5), name
    assert losses(one) == pytest.approx(losses(tmp_path / "two"), abs=1e-4)


def test_packing_does_not_change_what_is_learned(train):
    common = {"max_steps": 1, "max_grad_norm": 0, "optim": "sgd", "learning_rate": 1.0}
    packed = train("packed", claims_per_row=16, per_device_train_batch_size=8, **common)
    single = train("single", claims_per_row=1, per_device_train_batch_size=24, **common)
    for (name, a), b in zip(adapter(packed).items(), adapter(single).values(), strict=True):
        assert torch.allclose(a, b, atol=1e-5), name


def test_same_seed_same_adapter(train):
    first, second = adapter(train("a", max_steps=2)), adapter(train("b", max_steps=2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_what_was_trained_is_what_is_loaded(tiny_base, colour_dataset, tmp_path, monkeypatch):
    """Margins of the network in the trainer's hands equal those of the draft read back from disk, bit for bit."""
    from proofreel.train import recipe

    kept = {}

    def keep(trainer, encoder, config):
        trainer.model.eval()
        verifier = Verifier(trainer.model, encoder, trainer.readout.words, config.claims_per_row)
        kept["margins"] = [v.margin for v in verifier.score_pairs(read_split(colour_dataset, "test"))]
        return save(trainer, encoder, config)

    save = recipe.save_draft
    monkeypatch.setattr(recipe, "save_draft", keep)
    draft = run(*parse(sft_arguments(tiny_base, colour_dataset, tmp_path / "run")))
    assert draft is not None
    reloaded = Verifier.from_pretrained(draft, device="cpu").score_pairs(read_split(colour_dataset, "test"))
    assert [v.margin for v in reloaded] == kept["margins"]


def test_full_fine_tuning_reaches_the_vision_tower_only_if_asked(train, tiny_base):
    frozen = train("frozen", use_peft=False, max_steps=1)
    whole = train("whole", use_peft=False, train_vision=True, max_steps=1)
    base = load_file(tiny_base / "model.safetensors")
    changed = {}
    for name, folder in (("frozen", frozen), ("whole", whole)):
        weights = load_file(folder / "draft" / "model" / "model.safetensors")
        changed[name] = {n for n in weights if not torch.equal(weights[n], base[n])}
        assert read_directory(folder / "draft").weights == "full"
    assert any(n.startswith("visual") for n in base)
    assert not any(n.startswith("visual") for n in changed["frozen"])
    assert any(n.startswith("visual") for n in changed["whole"])


def test_lora_touches_the_language_model_only_and_every_layer_of_it(train):
    names = set(adapter(train(max_steps=1)))
    assert names
    assert all("language_model" in n for n in names)
    for layer in range(2):
        for part in ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"):
            assert any(f"layers.{layer}." in n and part in n for n in names), (layer, part)


@pytest.mark.slow
def test_qlora_trains_on_the_cpu_and_reloads(train, colour_dataset):
    folder = train("nf4", load_in_4bit=True, use_bnb_nested_quant=True, max_steps=2)
    config = read_directory(folder / "draft")
    assert config.quantization
    assert config.quantization["load_in_4bit"]
    verifier = Verifier.from_pretrained(folder / "draft", device="cpu")
    kinds = {type(m).__name__ for n, m in verifier.model.named_modules() if "visual" in n or n.endswith("lm_head")}
    assert "Linear4bit" not in kinds
    assert any(type(m).__name__ == "Linear4bit" for m in verifier.model.modules())
    assert all(v.error is None for v in verifier.score_pairs(read_split(colour_dataset, "test")))


def test_a_run_directory_in_use_is_refused(train):
    folder = train(max_steps=1)
    with pytest.raises(ConfigError, match="not empty"):
        train(folder.name, max_steps=1)


def test_the_run_is_recorded_and_leaves_no_pickle(train):
    folder = train(max_steps=2)
    record = json.loads((folder / "run.json").read_text())
    assert record["training"]["max_steps"] == 2
    assert record["dataset"]
    assert record["versions"]["torch"] == torch.__version__.split("+")[0]
    assert len(losses(folder)) == 2
    assert not [p for p in folder.rglob("*") if p.suffix in {".bin", ".pt", ".pkl"}]


def test_validate_only_names_rows_too_long_and_trains_nothing(tiny_base, colour_dataset, tmp_path, capsys):
    words = sft_arguments(tiny_base, colour_dataset, tmp_path / "run", validate_only=True)
    assert main(words) == 0
    assert "steps" in capsys.readouterr().out
    assert main([*words, "--max_tokens", "50"]) == 1
    message = capsys.readouterr().err
    assert "rows cannot be trained on" in message
    assert "of at most 50" in message
    assert read_split(colour_dataset, "train")[0].id in message
    assert not (tmp_path / "run").exists()


def damaged(colour_dataset, tmp_path, change):
    """A copy of the data set whose first training row is changed."""
    folder = shutil.copytree(colour_dataset, tmp_path / "data")
    first, *rest = read_split(colour_dataset, "train")
    shard = folder / shard_name("train")
    write_pairs(shard, [change(first), *rest])
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["shards"]["train"][0]["sha256"] = sha256_of(shard)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder, first.id


def test_a_video_that_vanished_since_the_build_stops_the_run_before_it_starts(train, colour_dataset, tmp_path):
    def vanish(pair):
        return dataclasses.replace(pair, evidence=(VideoSegment("gone.mp4", 0, 1),))

    folder, name = damaged(colour_dataset, tmp_path, vanish)
    with pytest.raises(RowError, match=r"gone\.mp4") as caught:
        train(dataset=folder)
    assert name in str(caught.value)


def test_an_unlabelled_row_is_refused(train, colour_dataset, tmp_path):
    folder, _ = damaged(colour_dataset, tmp_path, lambda p: dataclasses.replace(p, label=None))
    with pytest.raises(RowError, match="neither label nor soft_label"):
        train(dataset=folder)


def test_an_unreadable_video_names_its_row(colour_dataset, published):
    pair = dataclasses.replace(read_split(colour_dataset, "train")[0], evidence=(VideoSegment("gone.mp4", 0, 1),))
    encoder = Verifier.from_pretrained(published, device="cpu").encoder
    with pytest.raises(MediaError, match=pair.id):
        GroupDataset([pair], encoder, 4)[0]


def test_an_unknown_config_key_names_the_nearest(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("learning_rat: 1.0e-4\n")
    with pytest.raises(ConfigError, match=r"unknown key, got learning_rat; did you mean learning_rate\?"):
        parse(["--config", str(path)])


def test_a_missing_model_or_dataset_is_named(tmp_path):
    with pytest.raises(ConfigError, match="dataset_dir"):
        parse(["--output_dir", str(tmp_path)])


def test_attention_that_ignores_the_mask_is_refused(train):
    with pytest.raises(ValueError, match="use sdpa"):
        train(attn_implementation="eager")


def test_groups_keep_every_row_once_and_respect_the_limit(colour_dataset):
    pairs = read_split(colour_dataset, "train")
    groups = group_pairs(pairs * 3, claims_per_row=4)
    assert sorted(p.id for g in groups for p in g) == sorted(p.id for p in pairs * 3)
    assert all(len(g) <= 4 and len({p.evidence for p in g}) == 1 for g in groups)


def test_targets_fold_not_enough_into_not_supported(colour_dataset):
    pair = read_split(colour_dataset, "train")[0]
    values = [target(dataclasses.replace(pair, label=x)) for x in ("supported", "refuted", "not_enough")]
    assert values == [1.0, 0.0, 0.0]
    assert target(dataclasses.replace(pair, soft_label=0.25)) == 0.25
