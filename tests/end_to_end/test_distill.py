"""train/distill.py from end to end: what labels, teachers and both teach, and what a run records of its teacher."""

import dataclasses
import json
import math
import shutil

import pytest
import torch
from conftest import sft_arguments
from many_runs import one_run
from teacher_files import believes_labels, failed, teacher_file
from test_training_steps import ALL, SGD, THREE, arguments, assert_same_steps, two_processes, varied
from training_runs import adapter, all_groups, losses, metrics, with_rows
from transformers import TrainingArguments

from proofreel.core.errors import ConfigError, RowError
from proofreel.core.pairs import Passage
from proofreel.core.prompt import Prompt
from proofreel.core.storage import sha256_of
from proofreel.data_prep.dataset.shards import read_manifest, read_split
from proofreel.data_prep.media.frames import FrameSampling
from proofreel.eval import calibrate, export, predict, teach
from proofreel.eval.scoring.predictions import read_predictions
from proofreel.models.backbones.families import vision_layout
from proofreel.models.backbones.load import load_backbone, load_processor
from proofreel.models.decision.calibrator import sigmoid
from proofreel.models.directory.format import fingerprint, read_directory
from proofreel.models.engine.forward import verdict_logits
from proofreel.models.engine.heads import NLIHead, margin
from proofreel.models.inputs.encoder import Encoder
from proofreel.models.verifier.verifier import Verifier
from proofreel.train import recipe
from proofreel.train.arguments import parse, parse_distill
from proofreel.train.dataset import Collator, GroupDataset
from proofreel.train.distill import main
from proofreel.train.distillation_loss import Distillation, DistillationLoss
from proofreel.train.loss import Loss, balanced_weights

SHORT = SGD | {"max_steps": 2}
OBJECTIVES = {
    "labels and order": {"alpha": 0.3, "listwise_weight": 0.5, "temperature": 3.0, "balance_classes": True},
    "three labels, all of it": THREE | ALL | {"soft_loss": "margin_mse", "class_weights": "2.0 0.5 1.5", "head": "nli"},
}


def unsure(pair):
    """A teacher that is wrong of some rows, and of a few of them sure."""
    return math.sin(sum(map(ord, pair.id))) * 4


@pytest.fixture(scope="module")
def eight(colour_dataset, tmp_path_factory):
    """Eight packed rows of two or four claims of every kind of label, some of none; and its teacher file."""
    groups = all_groups(colour_dataset)
    chosen = [dataclasses.replace(p, split="train") for g in [*groups[:4], *groups[-4:]] for p in g]
    rows = [varied(pair, i) for i, pair in enumerate(chosen)]
    rows = [dataclasses.replace(p, label=None, soft_label=None) if i % 7 == 1 else p for i, p in enumerate(rows)]
    folder = with_rows(colour_dataset, tmp_path_factory.mktemp("eight") / "data", rows)
    return folder, teacher_file(folder, folder.parent / "teacher.parquet", unsure)


@pytest.fixture(scope="module")
def labelled(colour_dataset, tmp_path_factory):
    """The colour clips with a margin stored beside every row, which is nobody's; and their teacher file."""
    folder = tmp_path_factory.mktemp("labelled") / "data"
    for split in ("train", "validation"):
        rows = [dataclasses.replace(p, teacher_margin=50.0) for p in read_split(colour_dataset, split)]
        with_rows(colour_dataset, folder, rows, split)
    return folder, teacher_file(folder, folder.parent / "teacher.parquet", unsure)


def words(base, dataset, out, teacher, **changes):
    return arguments(base, dataset, out, teacher=teacher, **changes)["words"]


def distil(base, dataset, out, teacher, **changes):
    """One run in this process; its folder."""
    one_run(words(base, dataset, out, teacher, **changes), distills=True)
    return out


def assert_equal_adapters(one, other):
    mine, theirs = adapter(one), adapter(other)
    assert set(mine) == set(theirs)
    for name, value in mine.items():
        assert torch.equal(value, theirs[name]), name


# ---- What is learned ----


def test_alpha_one_trains_the_weights_that_labels_alone_train_bit_for_bit(tiny_base, labelled, tmp_path):
    data, teacher = labelled
    one_run(sft_arguments(tiny_base, data, tmp_path / "sft", max_steps=3))
    distil(tiny_base, data, tmp_path / "distil", teacher, max_steps=3, alpha=1.0, distrust=0.0)
    assert_equal_adapters(tmp_path / "sft", tmp_path / "distil")
    distil(tiny_base, data, tmp_path / "half", teacher, max_steps=3, alpha=0.5, distrust=0.0)
    assert any(not torch.equal(v, adapter(tmp_path / "sft")[n]) for n, v in adapter(tmp_path / "half").items())


def test_a_teacher_alone_teaches_what_soft_labels_teach_and_evaluation_is_on_labels(tiny_base, labelled, tmp_path):
    """Its entropy apart, which has no gradient; and what it says of rows to validate on is not asked."""
    data, teacher = labelled
    margins = {p.id: unsure(p) for p in read_split(data, "train")}
    soft = [
        dataclasses.replace(p, label=None, soft_label=float(sigmoid(margins[p.id]))) for p in read_split(data, "train")
    ]
    taught = with_rows(data, tmp_path / "soft", soft)
    common = SHORT | {"eval_strategy": "steps", "eval_steps": 2, "eval_on_start": True}
    one_run(sft_arguments(tiny_base, taught, tmp_path / "sft", **common))
    distil(tiny_base, data, tmp_path / "distil", teacher, alpha=0.0, temperature=1.0, **common)
    for name, value in adapter(tmp_path / "sft").items():
        assert torch.allclose(value, adapter(tmp_path / "distil")[name], atol=1e-6), name
    one, two = ([m["eval_loss"] for m in metrics(tmp_path / n) if "eval_loss" in m] for n in ("sft", "distil"))
    assert len(one) == 2
    assert one[0] == two[0]
    assert one[1] == pytest.approx(two[1], abs=1e-5)


def test_labels_teachers_and_rows_with_one_of_them_have_their_shares_of_the_loss(colour_dataset, tiny_base, tmp_path):
    """The Trainer's loss, of a batch as a run makes it, against its terms written out."""
    given = [
        {"label": "supported", "teacher_margin": 1.5},
        {"label": None, "teacher_margin": -0.5, "weight": 2.0},
        {"label": "refuted", "teacher_margin": None},
        {"label": "refuted", "teacher_margin": 6.0},  # doubted
        {"label": None, "soft_label": 0.3, "teacher_margin": 0.0},
    ]
    pairs = [
        dataclasses.replace(p, evidence=(Passage("A clip."),), **change)
        for p, change in zip(read_split(colour_dataset, "train"), given, strict=False)
    ]
    head, distillation = NLIHead(), Distillation(alpha=0.25, temperature=2.0)
    model = load_backbone(tiny_base, head=head)
    encoder = Encoder(load_processor(tiny_base), vision_layout(model.config), Prompt(), FrameSampling())
    rows = GroupDataset(pairs, encoder, 8, distillation=distillation)
    batch = Collator(encoder.pad_id)([rows[0], GroupDataset(pairs[:2], encoder, 8, distillation=distillation)[0]])
    assert batch["hard_shares"].tolist() == [[0.25, 0.0, 1.0, 0.0, 0.25], [0.25, 0.0, 1.0, 1.0, 1.0]]
    assert batch["teacher"].isnan().sum() == 4
    trainer = recipe.VerdictTrainer(
        model=model,
        args=TrainingArguments(str(tmp_path), use_cpu=True, report_to="none"),
        head=head,
        layout=encoder.layout,
        loss=DistillationLoss(Loss(), distillation),
    )
    loss = trainer.compute_loss(model, batch)
    with torch.no_grad():
        m = margin(verdict_logits(model, batch, head, encoder.layout))[0].double()

    def cross_entropy(i, q):
        return -(q * m[i].sigmoid().log() + (1 - q) * (-m[i]).sigmoid().log())

    def kl(i, t):
        q, p = torch.tensor(t / 2).double().sigmoid(), (m[i] / 2).sigmoid()
        return 4 * (q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log())

    first = [0.25 * cross_entropy(0, 1.0) + 0.75 * kl(0, 1.5), 2 * kl(1, -0.5)]
    rest = [cross_entropy(2, 0.0), kl(3, 6.0), 0.25 * cross_entropy(4, 0.3) + 0.75 * kl(4, 0.0)]
    assert loss.item() == pytest.approx(float(2 * sum(first) + sum(rest)) / (2 * 3 + 3), rel=1e-4)
    loss.backward()
    assert all(torch.isfinite(w.grad).all() for w in model.parameters() if w.grad is not None)


def test_batch_eight_once_equals_batch_one_eight_times_and_claims_packed_equal_claims_alone(tiny_base, eight, tmp_path):
    once = distil(tiny_base, eight[0], tmp_path / "once", eight[1], per_device_train_batch_size=8, **SHORT)
    sizes = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}
    often = distil(tiny_base, eight[0], tmp_path / "often", eight[1], **sizes, **SHORT)
    alone = distil(
        tiny_base,
        eight[0],
        tmp_path / "alone",
        eight[1],
        per_device_train_batch_size=24,
        **(SHORT | {"claims_per_row": 1}),
    )
    assert_same_steps(once, often)
    assert_same_steps(once, alone)


def test_two_processes_and_accumulation_learn_what_one_batch_does_with_every_objective(tiny_base, eight, tmp_path):
    runs, pairs = [], []
    data, teacher = eight
    for i, objective in enumerate(OBJECTIVES.values()):
        common = SHORT | {k: v for k, v in objective.items() if k != "nli"}
        one = distil(tiny_base, data, tmp_path / f"{i}-1", teacher, per_device_train_batch_size=8, **common)
        sizes = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "ddp_backend": "gloo"}
        two = tmp_path / f"{i}-2"
        runs.append({"words": words(tiny_base, data, two, str(teacher), **sizes, **common), "distills": True})
        pairs.append((one, two))
    two_processes(runs, tmp_path)
    for one, two in pairs:
        assert_same_steps(one, two)


def test_a_student_of_an_nli_head_over_four_bits_comes_to_say_what_its_teacher_says(
    tiny_base, colour_dataset, tmp_path
):
    """No row has a label here: all it knows is that the teacher calls everything supported, with a margin of 2."""
    rows = [dataclasses.replace(p, label=None) for p in read_split(colour_dataset, "train")]
    data = with_rows(colour_dataset, tmp_path / "data", rows)
    teacher = teacher_file(data, tmp_path / "t.parquet", lambda _: 2.0)
    quantised = {"load_in_4bit": True, "use_bnb_nested_quant": True}
    settings = {"head": "nli", "max_steps": 8, "per_device_train_batch_size": 8, "learning_rate": 2e-3}
    out = distil(tiny_base, data, tmp_path / "run", teacher, **quantised, **settings)
    config = read_directory(out / "draft")
    assert config.head == "nli"
    assert config.quantization
    assert config.quantization["load_in_4bit"]
    found = Verifier.from_pretrained(out / "draft", device="cpu").score_pairs(rows)
    assert [v.margin for v in found] == pytest.approx([2.0] * len(rows), abs=0.5)
    assert losses(out)[-1] < losses(out)[0] / 10


# ---- Teacher, student and what is recorded ----


def test_the_whole_chain_with_a_teacher_of_more_frames_and_a_student_that_says_who_taught_it(
    tiny_base, trained_run, colour_dataset, tmp_path
):
    """predict, calibrate, teach, distil, and then predict, calibrate and export the student."""
    draft, said = trained_run / "draft", {}
    for split in ("calibration", "train"):
        said[split] = tmp_path / f"{split}.parquet"
        asked = ["--verifier", str(draft), "--data", str(colour_dataset), "--split", split]
        assert predict.main([*asked, "--out", str(said[split]), "--device", "cpu"]) == 0
    calibrated, teacher = tmp_path / "calibrated", tmp_path / "teacher.parquet"
    assert calibrate.main(["--predictions", str(said["calibration"]), "--out", str(calibrated)]) == 0
    taught = ["--predictions", str(said["train"]), "--calibration", str(calibrated), "--out", str(teacher)]
    assert teach.main(taught) == 0
    fewer = {"fps": 2, "min_frames": 2, "max_frames": 2, "head": "nli"}
    student = words(tiny_base, colour_dataset, tmp_path / "student", str(teacher), **fewer)
    assert main(student) == 0
    config = read_directory(tmp_path / "student" / "draft")
    assert read_directory(draft).sampling.max_frames == 4
    assert config.sampling.max_frames == 2
    assert config.trained["teacher"]["file_sha256"] == sha256_of(teacher)
    assert config.trained["teacher"]["verifier_fingerprint"] == fingerprint(draft)

    own = tmp_path / "student.parquet"
    asked = ["--verifier", str(tmp_path / "student" / "draft"), "--data", str(colour_dataset)]
    assert predict.main([*asked, "--split", "calibration", "--out", str(own), "--device", "cpu"]) == 0
    assert calibrate.main(["--predictions", str(own), "--out", str(tmp_path / "own")]) == 0
    out = tmp_path / "published"
    assert export.main([*asked, "--calibration", str(tmp_path / "own"), "--out", str(out)]) == 0
    assert read_directory(out).trained["teacher"] == config.trained["teacher"]
    assert f"margins of verifier `{fingerprint(draft)[:12]}`" in (out / "README.md").read_text()


def test_a_plan_tells_of_the_teacher_and_begins_nothing(tiny_base, eight, tmp_path, capsys):
    data, teacher = eight
    assert main(words(tiny_base, data, tmp_path / "run", str(teacher), validate_only=True)) == 0
    plan = capsys.readouterr().out
    rows = read_split(data, "train")
    without = sum(p.label is None and p.soft_label is None for p in rows)
    assert f"teacher       {len(rows) - without} rows with labels, {without} without, " in plan
    assert "labels the teacher doubts, left to it" in plan
    assert not (tmp_path / "run").exists()


def test_a_wrong_teacher_file_is_refused_before_weights_are_loaded(
    tiny_base, colour_dataset, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(recipe, "load_model", lambda *_: pytest.fail("weights were loaded"))
    wrong = {
        "no.parquet": lambda path: None,
        "data.parquet": lambda path: teacher_file(colour_dataset, path, manifest_sha256="0" * 64),
        "prompt.parquet": lambda path: teacher_file(colour_dataset, path, prompt_sha256="0" * 64),
        "order.parquet": lambda path: teacher_file(colour_dataset, path, labels=["refuted", "supported"]),
        "failed.parquet": lambda path: teacher_file(colour_dataset, path, change=failed),
        "raw.parquet": lambda path: teacher_file(colour_dataset, path, calibrated=False),
    }
    for name, write in wrong.items():
        write(tmp_path / name)
        assert main(words(tiny_base, colour_dataset, tmp_path / "run", str(tmp_path / name))) == 1
        assert f"error: {tmp_path / name}: " in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"teacher": ""}, "teacher: is required"), ({"head": "lm"}, "head: must be one of"), ({"alpha": 3}, "alpha: ")],
)
def test_wrong_settings_are_named(tiny_base, labelled, tmp_path, capsys, wrong, message):
    asked = {"teacher": str(labelled[1])} | wrong
    assert main(arguments(tiny_base, labelled[0], tmp_path / "run", **asked)["words"]) == 1
    assert f"error: {message}" in capsys.readouterr().err


def test_rows_without_a_label_train_only_where_a_teacher_judged_them(tiny_base, eight, labelled, tmp_path):
    data, _ = eight
    with pytest.raises(RowError, match="neither label nor soft_label"):
        recipe.run(*sft_parsed(tiny_base, data, tmp_path / "sft"))
    stored = [dataclasses.replace(p, teacher_margin=1.0) for p in read_split(data, "train")]
    with pytest.raises(RowError, match="neither label nor soft_label"):
        recipe.run(*sft_parsed(tiny_base, with_rows(data, tmp_path / "stored", stored), tmp_path / "sft"))
    rows = [dataclasses.replace(p, label=None, teacher_margin=1.0) for p in read_split(labelled[0], "validation")]
    judged = with_rows(labelled[0], tmp_path / "validation", rows, "validation")
    teacher = teacher_file(judged, tmp_path / "t.parquet")
    with pytest.raises(RowError, match=r"validation: row .*neither label nor soft_label"):
        distil(tiny_base, judged, tmp_path / "run", teacher, eval_strategy="epoch")


def test_rows_that_learn_otherwise_are_listed_with_their_reasons_and_counted_in_the_draft(
    tiny_base, labelled, tmp_path
):
    data, _ = labelled
    teacher = teacher_file(
        data, tmp_path / "t.parquet", change=lambda said: failed(said) if "contextual" in said.pair_id else said
    )
    out = distil(tiny_base, data, tmp_path / "run", teacher, missing_teacher="labels", max_steps=1)
    listed = [json.loads(line) for line in (out / "teacher_rows.jsonl").read_text().splitlines()]
    counts = json.loads((out / "draft" / "verifier_config.json").read_text())["trained"]["teacher"]["rows"]
    for kind in ("labels_alone", "left_out", "doubted"):
        assert sum(each["kind"] == kind for each in listed) == counts[kind]
    rows = {p.id: p for p in read_split(data, "train")}
    said = {p.pair_id: p for p in read_predictions(teacher)[0]}
    silent = [each for each in listed if each["kind"] != "doubted"]
    assert silent
    for each in silent:
        assert each["reason"] == said[each["pair_id"]].error
        pair = rows[each["pair_id"]]
        judged = pair.label is not None or pair.soft_label is not None
        assert each["kind"] == ("labels_alone" if judged else "left_out")
    assert sum(counts[name] for name in ("labelled", "unlabelled", "labels_alone", "left_out")) == len(rows)


def test_balanced_classes_leave_out_the_labels_that_the_teacher_doubts(tiny_base, labelled, tmp_path, monkeypatch):
    data, _ = labelled
    rows = read_split(data, "train")
    doubted = next(p.id for p in rows if p.label == "refuted")

    def against_one(pair):
        return 6.0 if pair.id == doubted else believes_labels(pair)

    teacher, made = teacher_file(data, tmp_path / "t.parquet", against_one), []
    plain = recipe.make_loss
    monkeypatch.setattr(recipe, "make_loss", lambda *args: made.append(plain(*args)) or made[-1])
    distil(tiny_base, data, tmp_path / "run", teacher, balance_classes=True, max_steps=1)
    kept = [p for p in rows if p.id != doubted]
    assert made[0].class_weights == balanced_weights(kept, made[0].labels) != balanced_weights(rows, made[0].labels)


def sft_parsed(base, dataset, out):
    return parse(sft_arguments(base, dataset, out, validate_only=True))


def test_a_run_goes_on_with_the_same_teacher_file_wherever_it_lies_and_with_no_other(tiny_base, labelled, tmp_path):
    data, teacher = labelled
    kept = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    out = distil(tiny_base, data, tmp_path / "run", teacher, **kept)
    record = json.loads((out / "run.json").read_text())
    assert record["arguments"]["teacher_sha256"] == sha256_of(teacher)
    assert record["arguments"]["alpha"] == Distillation().alpha
    whole = adapter(out)
    other = teacher_file(data, tmp_path / "other.parquet", believes_labels)
    resumed = {"resume_from_checkpoint": True, **kept}
    with pytest.raises(ConfigError, match=f"^teacher_sha256: .*{sha256_of(other)}"):
        distil(tiny_base, data, out, other, **resumed)
    with pytest.raises(ConfigError, match=r"^temperature: "):
        distil(tiny_base, data, out, teacher, temperature=3.0, **resumed)
    with pytest.raises(ConfigError, match=r"^alpha: "):
        one_run(sft_arguments(tiny_base, data, out, **resumed))
    shutil.rmtree(out / "checkpoint-2")
    shutil.rmtree(out / "draft")
    moved = shutil.copy(teacher, tmp_path / "moved.parquet")
    distil(tiny_base, data, out, moved, **resumed)
    assert all(torch.equal(value, adapter(out)[name]) for name, value in whole.items())
    assert read_manifest(data)["shards"] == record["dataset"]


def test_what_a_run_is_told_is_parsed_from_one_yaml_with_the_rest(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("model_name_or_path: m\ndataset_dir: d\nteacher: t.parquet\nalpha: 0.2\nhead: nli\nuse_cpu: true\n")
    distill, given, _, model = parse_distill(["--config", str(path), "--temperature", "3", "--output_dir", "o"])
    assert (distill.teacher, distill.alpha, distill.head, distill.temperature) == ("t.parquet", 0.2, "nli", 3.0)
    assert (given.dataset_dir, model.model_name_or_path) == ("d", "m")
    with pytest.raises(ConfigError, match=r"a key of train/distill\.py, got teacher; launch that script"):
        parse(["--config", str(path), "--output_dir", "o"])
