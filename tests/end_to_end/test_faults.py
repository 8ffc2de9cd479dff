"""Faults in the middle of a run: the row is named, or left out and listed, and nothing is trained on in its place."""

import dataclasses
import json
import os
import signal
import time
from typing import Any

import pytest
import torch
from conftest import sft_arguments
from slow_reader import read_or_hang
from torch.utils.data import DataLoader
from training_runs import adapter, clip_of, losses, metrics, own_clips, with_rows
from transformers import Trainer, TrainingArguments

from proofreel.core.errors import MediaError
from proofreel.core.pairs import Image, Pair, Passage, VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.data_prep.dataset.shards import read_split
from proofreel.data_prep.media.frames import FrameSampling
from proofreel.data_prep.media.sandbox import GuardedReader, _Child
from proofreel.models.backbones.families import vision_layout
from proofreel.models.backbones.load import load_backbone, load_processor
from proofreel.models.engine.heads import NextToken
from proofreel.models.engine.packing import IGNORED
from proofreel.models.inputs.chat_text import LabelWords
from proofreel.models.inputs.encoder import Encoder
from proofreel.train import recipe
from proofreel.train.arguments import parse
from proofreel.train.dataset import IDLE, Collator, GroupDataset
from proofreel.train.faults import DeadlineReader, FileStamps, FirstGradients, RunError, blank
from proofreel.train.recipe import run
from proofreel.train.trainer import VerdictTrainer

SGD = {"max_grad_norm": 0, "optim": "sgd", "learning_rate": 1.0, "claims_per_row": 4}


@pytest.fixture(scope="module")
def encoder(tiny_base):
    sampling = FrameSampling(fps=4, min_frames=4, max_frames=4, min_pixels=84 * 84, max_pixels=84 * 84)
    return Encoder(load_processor(tiny_base), vision_layout(load_backbone(tiny_base).config), Prompt(), sampling)


@pytest.fixture
def clips(colour_dataset, tmp_path):
    """A data set of four training rows whose clips may be damaged, as (data set, paths of the clips)."""
    dataset = own_clips(colour_dataset, tmp_path / "own", 4)
    return dataset, sorted({clip_of(p) for p in read_split(dataset, "train")})


@pytest.fixture
def train(tiny_base, tmp_path):
    def go(name, dataset, **changes):
        run(*parse(sft_arguments(tiny_base, dataset, tmp_path / name, **changes)))
        return tmp_path / name

    return go


def strike(monkeypatch, action, epoch=0):
    """Let something happen after a run has checked its rows: as that epoch begins."""
    begin = VerdictTrainer.begin_epoch

    def begin_epoch(self):
        if int(self.state.epoch or 0) == epoch:
            action()
        begin(self)

    monkeypatch.setattr(VerdictTrainer, "begin_epoch", begin_epoch)


def ids_of(dataset, path):
    return [p.id for p in read_split(dataset, "train") if clip_of(p) == path]


def remove(path):
    return lambda: os.remove(path)


def cut(path):
    def action():
        with open(path, "r+b") as file:
            file.truncate(700)

    return action


def overwrite(path, other):
    """Another clip that can be read: the labels of the rows are not about it."""

    def action():
        with open(other, "rb") as good, open(path, "wb") as file:
            file.write(good.read() + b"\0")

    return action


@pytest.fixture
def reader_hangs(monkeypatch):
    """Readers whose child hangs over one of the clips."""
    monkeypatch.setattr(GuardedReader, "__init__", lambda self: setattr(self, "_child", _Child(read_or_hang)))


FAULTS = {
    "vanished": lambda paths: (remove(paths[1]), "1.mp4"),
    "cut": lambda paths: (cut(paths[1]), "1.mp4"),
    "replaced": lambda paths: (overwrite(paths[1], paths[2]), "changed since the run began"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_breaks_in_mid_run_stops_it_with_the_row_named(train, clips, monkeypatch, fault):
    dataset, paths = clips
    action, reason = FAULTS[fault](paths)
    strike(monkeypatch, action, epoch=1)
    with pytest.raises(RunError, match=reason) as caught:
        train("run", dataset, num_train_epochs=3, max_steps=-1, per_device_train_batch_size=2, cache_gib=0)
    assert ids_of(dataset, paths[1])[0] in str(caught.value)


def test_a_reader_that_hangs_is_a_row_that_cannot_be_read(train, clips, reader_hangs):
    dataset, paths = clips
    with pytest.raises(RunError, match=r"hung for 1\.5 s") as caught:
        train("run", dataset, max_steps=1, cache_gib=0, read_timeout_s=1.5)
    assert ids_of(dataset, paths[1])[0] in str(caught.value)


def test_a_row_left_out_is_listed_and_the_step_is_that_of_the_other_rows(train, clips, colour_dataset, monkeypatch):
    """One step over all rows: with a row unreadable it must be the step of a data set without that row."""
    dataset, paths = clips
    kept = [p for p in read_split(dataset, "train") if clip_of(p) != paths[1]]
    rest = with_rows(colour_dataset, dataset.parent / "rest", kept)
    without = train("without", rest, max_steps=1, **SGD)
    strike(monkeypatch, remove(paths[1]))
    skipped = train("skipped", dataset, max_steps=1, bad_rows="skip", **SGD)
    assert losses(skipped) == pytest.approx(losses(without), abs=1e-5)
    for (name, a), b in zip(adapter(skipped).items(), adapter(without).values(), strict=True):
        assert torch.allclose(a, b, atol=1e-5), name
    listed = [json.loads(line) for line in (skipped / "bad_rows.jsonl").read_text().splitlines()]
    assert [line["ids"] for line in listed] == [ids_of(dataset, paths[1])]
    assert paths[1] in listed[0]["error"]
    assert listed[0]["split"] == "train"
    assert [line["bad_rows"] for line in metrics(skipped) if "loss" in line] == [1]
    assert not (without / "bad_rows.jsonl").exists()


def test_a_step_of_rows_that_all_cannot_be_read_teaches_nothing(train, clips, tiny_base, monkeypatch):
    dataset, paths = clips
    strike(monkeypatch, lambda: [os.remove(path) for path in paths])
    folder = train("run", dataset, max_steps=1, bad_rows="skip", **SGD)
    assert losses(folder) == [0.0]
    assert all((w == 0).all() for n, w in adapter(folder).items() if "lora_B" in n)
    assert len((folder / "bad_rows.jsonl").read_text().splitlines()) == len(paths)


def test_rows_of_the_validation_split_that_cannot_be_read_are_left_out_of_its_metrics(
    train, clips, monkeypatch, tmp_path
):
    dataset, paths = clips
    rows = read_split(dataset, "train")
    learned = [p for p in rows if clip_of(p) == paths[3]]
    judged = [dataclasses.replace(p, split="validation") for p in rows if p not in learned]
    some = [p for p in judged if clip_of(p) != paths[1]]
    whole, part = (tmp_path / name for name in ("whole", "part"))
    for folder, validation in ((whole, judged), (part, some)):
        with_rows(with_rows(dataset, folder, learned), folder, validation, "validation")
    evaluates = {"max_steps": 1, "eval_strategy": "steps", "eval_steps": 1, "learning_rate": 0}
    expected = train("expected", part, **evaluates)
    strike(monkeypatch, lambda: os.path.exists(paths[1]) and os.remove(paths[1]))
    with pytest.raises(RunError, match=r"1\.mp4"):
        train("stopped", whole, **evaluates)
    overwrite(paths[1], paths[2])()
    found = train("skipped", whole, bad_rows="skip", **evaluates)
    want, got = (next(m for m in metrics(f) if "eval_auc" in m) for f in (expected, found))
    for name in ("eval_auc", "eval_ap", "eval_f1", "eval_ece", "eval_loss", "eval_positive_rate"):
        assert got[name] == pytest.approx(want[name], abs=1e-5), name
    listed = [json.loads(line) for line in (found / "bad_rows.jsonl").read_text().splitlines()]
    assert [line["split"] for line in listed] == ["validation"]


class KillsItsWorker(GroupDataset):
    """Reads as a data set does, until row 1 is asked for: then the process that reads it is killed."""

    def _encode(self, evidence):
        if torch.utils.data.get_worker_info() is not None and evidence == self.groups[1][0].evidence:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        return super()._encode(evidence)


@pytest.mark.parametrize("bad_rows", ["stop", "skip"])
def test_a_loader_worker_that_dies_is_blamed_on_the_row_it_read(train, clips, monkeypatch, bad_rows):
    dataset, paths = clips
    monkeypatch.setattr("proofreel.train.recipe.GroupDataset", KillsItsWorker)
    common = {"num_train_epochs": 2, "max_steps": -1, "per_device_train_batch_size": 1, "dataloader_num_workers": 2}
    if bad_rows == "stop":
        with pytest.raises(RunError, match="a loader worker died while it read this") as caught:
            train("run", dataset, **common)
        assert ids_of(dataset, paths[1])[0] in str(caught.value)
        return
    folder = train("run", dataset, bad_rows="skip", **common)
    assert len(losses(folder)) == 2 * len(paths)
    listed = [json.loads(line) for line in (folder / "bad_rows.jsonl").read_text().splitlines()]
    assert [line["ids"] for line in listed] == [ids_of(dataset, paths[1])] * 2  # once in each epoch


def test_a_loss_that_is_not_a_number_names_the_row_it_came_from(encoder, tiny_base, tmp_path):
    trainer, rows = text_trainer(encoder, tiny_base, tmp_path, [["supported"], ["refuted"]])
    batch = Collator(encoder.pad_id)([rows[0], rows[1]])
    batch["weights"][1] = float("inf")
    with pytest.raises(RunError, match=rf"row {rows[1].ids[0]}: the loss is not a number") as caught:
        trainer.compute_loss(trainer.model, batch, num_items_in_batch=torch.tensor(2.0))
    assert rows[0].ids[0] not in str(caught.value)


def test_a_gradient_that_is_not_a_number_stops_before_it_reaches_the_weights(train, clips, monkeypatch):
    dataset, _ = clips
    norm = Trainer._get_grad_norm

    def overflow(self, model, grad_norm=None):
        norm(self, model, grad_norm)
        return torch.tensor(float("inf")) if self.state.global_step == 1 else torch.tensor(1.0)

    monkeypatch.setattr(Trainer, "_get_grad_norm", overflow)
    with pytest.raises(RunError, match=r"step 2, row .*the gradient is not a number"):
        train("run", dataset, max_steps=3)


def text_trainer(encoder, tiny_base, out, labels, **changes):
    """A trainer and rows of text evidence, one row for each list of labels."""
    pairs = [
        Pair(id=f"r{i}c{k}", claim=f"Claim {k}.", evidence=(Passage(f"Text {i}."),), label=label)
        for i, group in enumerate(labels)
        for k, label in enumerate(group)
    ]
    model = load_backbone(tiny_base)
    rows = GroupDataset(pairs, encoder, 8)
    trainer: Any = VerdictTrainer(
        model=model,
        args=TrainingArguments(str(out), use_cpu=True, report_to="none", **changes),
        head=NextToken(LabelWords.of(encoder.prompt, encoder.tokenizer)),
        layout=encoder.layout,
    )
    return trainer, rows


def test_a_stand_in_beside_a_row_changes_neither_its_loss_nor_its_gradients(encoder, tiny_base, tmp_path):
    trainer, rows = text_trainer(encoder, tiny_base, tmp_path, [["supported", "refuted"], ["refuted"]])
    collate = Collator(encoder.pad_id)
    found = []
    for items in ([rows[0]], [rows[0], rows[IDLE]], [rows[IDLE], rows[0]]):
        trainer.model.zero_grad()
        loss = trainer.compute_loss(trainer.model, collate(items), num_items_in_batch=torch.tensor(2.0))
        loss.backward()
        found.append(
            (loss.detach(), {n: p.grad.clone() for n, p in trainer.model.named_parameters() if p.grad is not None})
        )
    for loss, grads in found[1:]:
        torch.testing.assert_close(loss, found[0][0])
        assert grads.keys() == found[0][1].keys()
        for name, grad in grads.items():
            assert torch.allclose(grad, found[0][1][name], atol=1e-5), name


def test_a_stand_in_shows_as_many_videos_and_images_and_touches_no_file(encoder):
    clip, picture = VideoSegment("gone.mp4", 0, 9), Image("gone.png")
    for evidence, videos, images in (
        ((clip,), 1, 0),
        ((picture, picture), 0, 2),
        ((clip, Passage("text"), picture), 1, 1),
        ((Passage("text"),), 0, 0),
    ):
        vision = blank(evidence, encoder, text_only=False).vision
        assert len(vision.get("video_grid_thw", ())) == videos
        assert len(vision.get("image_grid_thw", ())) == images
        assert not blank(evidence, encoder, text_only=True).vision
    example = GroupDataset([Pair(id="a", claim="x", evidence=(clip,), label="supported")], encoder, 4)[0]
    assert example.ids == ("a",)
    assert "gone.mp4" in (example.error or "")
    assert example.weights_K.tolist() == [0.0]
    assert example.labels_K.tolist() == example.classes_K.tolist() == [IGNORED]


def test_stamps_tell_a_changed_file_from_one_that_is_as_it_was(tmp_path):
    file, later = tmp_path / "a.mp4", tmp_path / "later.mp4"
    file.write_bytes(b"one")
    evidence = (VideoSegment(str(file), 0, 1), Passage("x"), Image(str(later)))
    stamps = FileStamps([evidence])
    stamps.check(evidence)
    file.chmod(0o600)
    later.write_bytes(b"was not there: reading it is what fails")
    stamps.check(evidence)
    os.utime(file, ns=(0, 0))
    with pytest.raises(MediaError, match="changed since the run began"):
        stamps.check(evidence)
    file.unlink()
    with pytest.raises(MediaError, match="is gone"):
        stamps.check(evidence)


def test_a_deadline_holds_in_loader_workers_too(clips, encoder, reader_hangs):
    dataset, _ = clips
    rows = GroupDataset(read_split(dataset, "train"), encoder, 8, 0.0, DeadlineReader(1.5))  # type: ignore[arg-type]
    loader = DataLoader(rows, batch_size=None, num_workers=2)  # type: ignore[arg-type]
    errors = [example.error for example in loader]
    assert [e is not None and "hung for 1.5 s" in e for e in errors] == [False, True, False, False]


def test_a_trainable_parameter_without_a_gradient_is_an_error_that_names_it(train, clips, monkeypatch):
    load = recipe.load_model

    def with_a_stray_parameter(*args):
        model = load(*args)
        model.stray = torch.nn.Parameter(torch.zeros(2))
        return model

    monkeypatch.setattr(recipe, "load_model", with_a_stray_parameter)
    monkeypatch.setattr(recipe, "trainable_line", lambda _: "")  # the plan is right to object too
    with pytest.raises(RunError, match=r"1 trainable parameters.*no gradient for stray"):
        train("run", clips[0], max_steps=2)


def test_parameters_of_the_tower_are_due_when_there_are_pixels():
    model = torch.nn.ModuleDict({"visual": torch.nn.Linear(2, 2), "language": torch.nn.Linear(2, 2)})
    watch = FirstGradients(model)
    watch.see({"input_ids": 1})
    model["language"](torch.zeros(1, 2)).sum().backward()  # gradients of zeros are gradients
    watch.check()
    watch.see({"pixel_values_videos": 1})
    with pytest.raises(RunError, match=r"2 trainable parameters.*visual\.bias, visual\.weight"):
        watch.check()
    model["visual"](torch.zeros(1, 2)).sum().backward()
    watch.check()
    assert not model["visual"].weight._post_accumulate_grad_hooks


def test_a_disk_that_is_full_says_so_and_leaves_the_last_checkpoint_whole(train, clips, monkeypatch):
    """/dev/full refuses every byte, with the error of a full disk."""
    dataset, _ = clips
    save = VerdictTrainer._save_checkpoint

    def fill_up(self, model, trial):
        if self.state.global_step == 2:
            monkeypatch.setattr("transformers.trainer.OPTIMIZER_NAME", "/dev/full")
        save(self, model, trial)

    monkeypatch.setattr(VerdictTrainer, "_save_checkpoint", fill_up)
    saves = {"max_steps": 3, "save_strategy": "steps", "save_steps": 1, "save_total_limit": 1}
    with pytest.raises(RunError, match=r"checkpoint-2: cannot be written, got .* GiB free.*resume from checkpoint-1"):
        train("run", dataset, **saves)
    folder = dataset.parent.parent / "run"
    assert [f.name for f in folder.glob("checkpoint-*")] == ["checkpoint-1"]
    monkeypatch.undo()
    resumed = train("run", dataset, resume_from_checkpoint=True, **saves)
    straight = train("straight", dataset, **saves)
    assert losses(resumed) == losses(straight)
    for (name, a), b in zip(adapter(resumed).items(), adapter(straight).values(), strict=True):
        assert torch.equal(a, b), name
