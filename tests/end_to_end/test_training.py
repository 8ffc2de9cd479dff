"""train/sft.py: the loss is a mean over claims however they are batched; bad settings and rows stop it early."""

import dataclasses
import json
import shutil

import pytest
import torch
from conftest import sft_arguments
from safetensors.torch import load_file
from training_runs import adapter, all_groups, losses, with_rows
from transformers import TrainingArguments

from proofreel.core.errors import ConfigError, MediaError, RowError
from proofreel.core.pairs import Passage, VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.data_prep.dataset.shards import read_split
from proofreel.data_prep.media.frames import FrameSampling
from proofreel.models.backbones.families import vision_layout
from proofreel.models.backbones.load import load_backbone, load_processor
from proofreel.models.directory.format import read_directory
from proofreel.models.directory.load import Parts
from proofreel.models.engine.forward import verdict_logits
from proofreel.models.engine.heads import THREE_LABELS, NLIHead, margin
from proofreel.models.engine.packing import IGNORED
from proofreel.models.inputs.encoder import Encoder
from proofreel.models.verifier.verifier import Verifier
from proofreel.train.arguments import parse
from proofreel.train.batching import RowLength, TokenCounts, batches_of, group_pairs
from proofreel.train.dataset import Collator, GroupDataset, target
from proofreel.train.recipe import run
from proofreel.train.sft import main
from proofreel.train.trainer import VerdictTrainer


@pytest.fixture
def train(tiny_base, colour_dataset, tmp_path):
    """Run training with changes to the defaults; returns the run's folder."""

    def go(name="run", dataset=colour_dataset, **changes):
        run(*parse(sft_arguments(tiny_base, dataset, tmp_path / name, **changes)))
        return tmp_path / name

    return go


@pytest.fixture(scope="module")
def encoder(tiny_base, small_sampling):
    return Encoder(load_processor(tiny_base), vision_layout(load_backbone(tiny_base).config), Prompt(), small_sampling)


@pytest.fixture(scope="module")
def eight_rows(colour_dataset, tmp_path_factory):
    """A data set whose training split is eight packed rows of two or four claims."""
    groups = all_groups(colour_dataset)
    chosen = [p for g in [*groups[:4], *groups[-4:]] for p in g]
    rows = [dataclasses.replace(p, split="train") for p in chosen]
    assert sorted({len(g) for g in group_pairs(rows, 4)}) == [2, 4]
    return with_rows(colour_dataset, tmp_path_factory.mktemp("eight") / "data", rows)


def test_packing_does_not_change_what_is_learned(train, eight_rows):
    common = {"max_steps": 1, "max_grad_norm": 0, "optim": "sgd", "learning_rate": 1.0, "dataset": eight_rows}
    packed = train("packed", claims_per_row=16, per_device_train_batch_size=8, **common)
    single = train("single", claims_per_row=1, per_device_train_batch_size=24, **common)
    for (name, a), b in zip(adapter(packed).items(), adapter(single).values(), strict=True):
        assert torch.allclose(a, b, atol=1e-5), name


def test_a_token_budget_changes_the_batches_but_not_what_a_step_learns(train, eight_rows):
    """One epoch is one step here, so whatever rows share a batch, the mean is over the same claims."""
    common = {"max_steps": 1, "claims_per_row": 3, "max_grad_norm": 0, "optim": "sgd", "learning_rate": 1.0}
    common |= {"dataset": eight_rows}
    rows = train("rows", per_device_train_batch_size=16, **common)
    budget = {"tokens_per_batch": 400, "tokens_per_row": 120, "gradient_accumulation_steps": 64}
    tokens = train("tokens", per_device_train_batch_size=16, **(common | budget))
    for (name, a), b in zip(adapter(rows).items(), adapter(tokens).values(), strict=True):
        assert torch.allclose(a, b, atol=1e-5), name
    assert losses(rows) == pytest.approx(losses(tokens), abs=1e-4)


def test_cached_features_of_the_tower_teach_what_its_pixels_teach(train, tmp_path):
    common = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
    fresh = adapter(train("fresh", **common))
    filled = adapter(train("filled", vision_cache=tmp_path / "features", **common))
    kept = adapter(train("kept", vision_cache=tmp_path / "features", gradient_checkpointing=True, **common))
    for name, value in fresh.items():
        # The tower saw one segment at a time, which rounds differently from a batch of four.
        assert torch.allclose(value, filled[name], atol=1e-5), name
        assert torch.allclose(value, kept[name], atol=1e-5), name


def test_a_resumed_run_meets_the_batches_it_would_have_met(train):
    common = {"max_steps": 6, "tokens_per_batch": 300, "per_device_train_batch_size": 3, "save_strategy": "steps"}
    common |= {"save_steps": 3, "lr_scheduler_type": "constant"}
    whole = train("whole", **common)
    half = train("half", **common)
    shutil.rmtree(half / "draft")
    shutil.rmtree(half / "checkpoint-6")
    resumed = train("half", resume_from_checkpoint=True, **common)
    for (name, a), b in zip(adapter(whole).items(), adapter(resumed).values(), strict=True):
        assert torch.equal(a, b), name


def test_gradient_checkpointing_changes_memory_not_results(train):
    common = {"max_steps": 2, "use_peft": False, "train_vision": True, "learning_rate": 1e-3}
    plain, checkpointed = train("plain", **common), train("checkpointed", gradient_checkpointing=True, **common)
    weights = [load_file(folder / "draft" / "model" / "model.safetensors") for folder in (plain, checkpointed)]
    assert all(torch.allclose(weights[0][n], weights[1][n], atol=1e-5) for n in weights[0])


@pytest.mark.parametrize("changes", [{}, {"dtype": "bfloat16", "bf16": True}], ids=["float32", "bfloat16"])
def test_what_was_trained_is_what_is_loaded(tiny_base, colour_dataset, tmp_path, monkeypatch, changes):
    """Margins of the network in the trainer's hands equal those of the draft read back from disk, bit for bit.

    In bfloat16 it trains float32 weights under autocast; the draft holds what autocast made of them.
    """
    from proofreel.train import recipe

    kept = {}

    def keep(trainer, encoder, config):
        trainer.model.eval()
        verifier = Verifier(Parts(trainer.model, encoder, trainer.head, config.claims_per_row))
        kept["margins"] = [v.margin for v in verifier.score_pairs(read_split(colour_dataset, "test"))]
        return save(trainer, encoder, config)

    save = recipe.save_draft
    monkeypatch.setattr(recipe, "save_draft", keep)
    draft = run(*parse(sft_arguments(tiny_base, colour_dataset, tmp_path / "run", **changes)))
    assert draft is not None
    assert ("cast_on_save" in read_directory(draft).trained) == bool(changes)
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
    words = sft_arguments(tiny_base, colour_dataset, tmp_path / "run", validate_only=True, card="a100", price=2.5)
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "steps" in said
    assert "seconds on 1 a100, 0.00 at 2.5 per card and hour" in said
    assert "estimate" in said
    assert main([*words, "--card", "abacus"]) == 1
    assert main([*words, "--max_tokens", "50"]) == 1
    message = capsys.readouterr().err
    assert "rows cannot be trained on" in message
    assert "of at most 50" in message
    assert read_split(colour_dataset, "train")[0].id in message
    assert not (tmp_path / "run").exists()


def damaged(colour_dataset, tmp_path, change):
    """A copy of the data set whose first training row is changed."""
    first, *rest = read_split(colour_dataset, "train")
    return with_rows(colour_dataset, tmp_path / "data", [change(first), *rest]), first.id


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


def test_an_unreadable_video_names_its_row(colour_dataset, encoder):
    pair = dataclasses.replace(read_split(colour_dataset, "train")[0], evidence=(VideoSegment("gone.mp4", 0, 1),))
    example = GroupDataset([pair], encoder, 4)[0]
    assert example.ids == (pair.id,)
    assert "gone.mp4" in (example.error or "")
    assert example.weights_K.sum() == 0


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


def test_rows_of_batches_are_every_row_once_within_the_budget_and_the_same_on_every_rank():
    random = torch.Generator().manual_seed(0)
    lengths = [RowLength(*torch.randint(5, 200, (2,), generator=random).tolist()) for _ in range(200)]
    batches = batches_of(lengths, most_rows=6, tokens_per_batch=900, seed=3)
    assert sorted(i for b in batches for i in b) == list(range(200))
    for batch in batches:
        padded = len(batch) * (max(lengths[i].prefix for i in batch) + max(lengths[i].claims for i in batch))
        assert len(batch) <= 6
        assert padded <= 900 or len(batch) == 1
    assert batches == batches_of(lengths, 6, 900, seed=3)
    spread = sum(max(lengths[i].prefix for i in b) - min(lengths[i].prefix for i in b) for b in batches) / len(batches)
    assert spread < 20  # of 195: rows of like length share a batch
    same = [RowLength(10, 5)] * 40
    assert batches_of(same, 4, 900, seed=1) != batches_of(same, 4, 900, seed=2)


def test_a_row_longer_than_the_budget_is_a_batch_of_its_own():
    lengths = [RowLength(10, 2), RowLength(500, 20), RowLength(10, 3)]
    assert sorted(map(sorted, batches_of(lengths, 8, 100, seed=0))) == [[0, 2], [1]]


def test_groups_longer_than_the_token_budget_are_split_and_keep_their_order(colour_dataset, encoder):
    pairs = read_split(colour_dataset, "train") * 3
    counts = TokenCounts(encoder)
    budget = counts.prefix(pairs[0].evidence) + 2 * max(counts.claim(p) for p in pairs)
    groups = group_pairs(pairs, 100, budget, counts)
    assert len(groups) > len(group_pairs(pairs, 100))
    for group in groups:
        length = counts.row(group)
        assert length.prefix + length.claims <= budget
    whole = {g[0].evidence: g for g in group_pairs(pairs, 100)}
    for evidence, claims in whole.items():
        assert [p.id for g in groups if g[0].evidence == evidence for p in g] == [p.id for p in claims]
    assert all(len(g) == 1 for g in group_pairs(pairs, 100, 1, counts))  # a row has at least one claim
    assert all(len(g) <= 2 for g in group_pairs(pairs, 2, 10**6, counts))  # and never more than claims_per_row


def test_prefixes_counted_together_are_those_counted_alone_and_a_bad_file_waits_for_its_turn(
    colour_dataset, encoder, tmp_path, monkeypatch
):
    (tmp_path / "bad.mp4").write_bytes(b"no video")
    bad = (VideoSegment(str(tmp_path / "bad.mp4"), 0.0, 1.0),)
    evidences = [pair.evidence for pair in read_split(colour_dataset, "train")]
    together, alone = TokenCounts(encoder), TokenCounts(encoder)
    together.count_all([*evidences, bad])
    expected = [(alone.prefix(e), alone.grids(e)) for e in evidences]
    with pytest.raises(MediaError, match=r"bad\.mp4"):
        together.prefix(bad)
    monkeypatch.setattr(Encoder, "grid", None)  # nothing is asked twice
    assert [(together.prefix(e), together.grids(e)) for e in evidences] == expected


def test_counted_lengths_are_those_of_the_packed_rows(eight_rows, encoder):
    rows = GroupDataset(read_split(eight_rows, "train"), encoder, 3)
    counts = TokenCounts(encoder)
    for i in range(3):
        length, row = counts.row(rows.groups[i]), rows[i].row
        assert (length.prefix, length.prefix + length.claims) == (row.prefix_len, len(row.ids_T))


@pytest.mark.parametrize("name", ["tokens_per_row", "tokens_per_batch", "claims_per_row"])
def test_a_budget_below_one_is_refused(tiny_base, colour_dataset, tmp_path, name):
    with pytest.raises(ConfigError, match=f"{name}: must be at least 1"):
        parse(sft_arguments(tiny_base, colour_dataset, tmp_path, **{name: 0}))


def test_a_head_of_three_labels_learns_classes_where_known_and_margins_from_soft_labels(
    colour_dataset, tiny_base, tmp_path
):
    """The Trainer's loss against the two losses written out, on hard, soft and absent labels."""
    pairs = read_split(colour_dataset, "train")[:3]
    pairs = [dataclasses.replace(p, evidence=(Passage("A clip."),)) for p in pairs]
    changes = [{"label": "supported"}, {"label": "not_enough"}, {"soft_label": 0.3, "label": None, "weight": 2.0}]
    pairs = [dataclasses.replace(p, **change) for p, change in zip(pairs, changes, strict=True)]
    head = NLIHead(THREE_LABELS)
    model = load_backbone(tiny_base, head=head)
    encoder = Encoder(load_processor(tiny_base), vision_layout(model.config), Prompt(), FrameSampling())
    rows = GroupDataset(pairs, encoder, 8, labels=head.labels)
    batch = Collator(encoder.pad_id)([rows[0]])
    assert batch["classes"].tolist() == [[0, 2, IGNORED]]
    trainer = VerdictTrainer(
        model=model,
        args=TrainingArguments(str(tmp_path), use_cpu=True, report_to="none"),
        head=head,
        layout=encoder.layout,
    )
    loss = trainer.compute_loss(model, batch)
    with torch.no_grad():
        logits = verdict_logits(model, batch, head, encoder.layout)[0]
    p = margin(logits[2]).sigmoid()
    soft = -(0.3 * p.log() + 0.7 * (1 - p).log())
    expected = (-logits[0].log_softmax(0)[0] - logits[1].log_softmax(0)[2] + 2 * soft) / 4
    assert torch.allclose(loss, expected, atol=1e-6)
    loss.backward()
    assert all(torch.isfinite(w.grad).all() for w in model.parameters() if w.grad is not None)


def test_targets_fold_not_enough_into_not_supported(colour_dataset):
    pair = read_split(colour_dataset, "train")[0]
    values = [target(dataclasses.replace(pair, label=x)) for x in ("supported", "refuted", "not_enough")]
    assert values == [1.0, 0.0, 0.0]
    assert target(dataclasses.replace(pair, soft_label=0.25)) == 0.25
