"""A teacher file is joined to the rows it is of; anything else is refused, by the file's name and with the remedy."""

import dataclasses
import json
import math
import shutil

import pytest
from teacher_files import believes_labels, failed, prediction, source_of, teacher_file
from training_runs import with_rows

from proofreel.core.errors import ConfigError, RowError
from proofreel.core.prompt import Prompt
from proofreel.core.storage import sha256_of
from proofreel.data_prep.dataset.shards import read_manifest, read_split
from proofreel.data_prep.negatives.hard_mining import MiningConfig
from proofreel.data_prep.pipeline.mine import MineConfig, mine_data_set
from proofreel.eval.scoring.predictions import write_predictions
from proofreel.eval.teachers.ensemble import P_LEAST
from proofreel.models.decision.calibrator import sigmoid
from proofreel.train.arguments import DistillArguments, VerdictArguments
from proofreel.train.distillation_loss import Distillation
from proofreel.train.teacher import join_teacher

CLAIM = Prompt().claim


@pytest.fixture
def data(colour_dataset, tmp_path):
    """A copy whose train split is eight labelled rows."""
    return with_rows(colour_dataset, tmp_path / "data", read_split(colour_dataset, "train")[:8])


def join(data, path, prompt=CLAIM, **settings):
    distill = DistillArguments(teacher=str(path), **settings)
    arguments = VerdictArguments(dataset_dir=str(data), claim_template=prompt)
    return join_teacher(read_split(data, "train"), distill, arguments)


def refused(data, path, **settings):
    """The message of a refusal: file, what is wrong, what there is, and what to do."""
    with pytest.raises(RowError) as caught:
        join(data, path, **settings)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert ", got " in message or "no such" in message
    assert "; " in message
    return message


def unlabelled(pair):
    return dataclasses.replace(pair, label=None)


# ---- What is joined ----


def test_every_row_gets_the_log_odds_of_its_calibrated_probability(data, tmp_path):
    """Not the margin itself: a calibration moves one and not the other."""

    def calibrated(said):
        return dataclasses.replace(said, p_supported=0.2 + said.p_supported / 2)

    taught = join(data, teacher_file(data, tmp_path / "t.parquet", change=calibrated))
    rows = read_split(data, "train")
    assert [p.id for p in taught.pairs] == [p.id for p in rows]
    for row, found in zip(rows, taught.pairs, strict=True):
        p = 0.2 + float(sigmoid(believes_labels(row))) / 2
        assert found.teacher_margin == pytest.approx(math.log(p / (1 - p)))
        assert dataclasses.replace(found, teacher_margin=None) == row


def test_a_file_in_another_order_is_joined_by_id(data, tmp_path):
    rows = read_split(data, "train")
    one = join(data, teacher_file(data, tmp_path / "a.parquet"))
    other = join(data, teacher_file(data, tmp_path / "b.parquet", rows=rows[::-1]))
    assert one.pairs == other.pairs


def test_probabilities_of_zero_and_one_are_finite_margins(data, tmp_path):
    path = teacher_file(
        data,
        tmp_path / "t.parquet",
        change=lambda said: dataclasses.replace(said, p_supported=float(said.label == "supported")),
    )
    most = math.log(1 - P_LEAST) - math.log(P_LEAST)
    for pair in join(data, path).pairs:
        assert pair.teacher_margin == pytest.approx(most if pair.label == "supported" else -most)


def test_margins_that_are_stored_with_the_rows_are_overwritten(data, tmp_path):
    rows = [dataclasses.replace(p, teacher_margin=77.0) for p in read_split(data, "train")]
    stored = with_rows(data, tmp_path / "stored", rows)
    path = teacher_file(
        stored, tmp_path / "t.parquet", change=lambda said: None if said.pair_id == rows[0].id else said
    )
    found = join(stored, path, missing_teacher="labels").pairs
    assert found[0].teacher_margin is None
    assert all(p.teacher_margin != 77.0 for p in found)


def test_rows_are_counted_by_what_they_learn_from(data, tmp_path):
    rows = read_split(data, "train")
    soft = dataclasses.replace(rows[2], label=None, soft_label=0.5)
    mixed = with_rows(data, tmp_path / "mixed", [*map(unlabelled, rows[:2]), soft, *rows[3:]])

    def margin(pair):  # wrong of the last row, and sure of it
        return (-9.0 if pair.label == "supported" else 9.0) if pair.id == rows[-1].id else 1.0

    def silent(said):
        return failed(said) if said.pair_id in (rows[1].id, rows[3].id) else said

    path = teacher_file(mixed, tmp_path / "t.parquet", margin, silent)
    taught = join(mixed, path, missing_teacher="labels", distrust=0.05)
    assert taught.counts == {"labelled": 5, "unlabelled": 1, "doubted": 1, "labels_alone": 1, "left_out": 1}
    assert rows[1].id not in {p.id for p in taught.pairs}
    assert len(taught.pairs) == 7
    for words in ("5 rows with labels, 1 without", "1 labels the teacher doubts", "1 rows on labels alone", "left out"):
        assert words in taught.line()
    assert taught.distillation == Distillation()


def test_a_file_and_its_teacher_are_recorded(data, tmp_path):
    teachers = [{"verifier_fingerprint": "a" * 64}, {"verifier_fingerprint": "b" * 64}]
    path = teacher_file(data, tmp_path / "t.parquet", teachers=teachers)
    taught = join(data, path, alpha=0.25)
    assert taught.record == {
        "file_sha256": sha256_of(path),
        "verifier_fingerprint": "f" * 64,
        "teachers": teachers,
        "calibrated": True,
        "prompt_sha256": Prompt().sha256,
        "rows": taught.counts,
    }
    assert json.loads(json.dumps(taught.record)) == taught.record
    assert taught.settings["teacher_sha256"] == sha256_of(path)
    assert taught.settings["alpha"] == 0.25


# ---- What is refused ----


def test_no_file_and_no_parquet(data, tmp_path):
    assert "no such predictions file" in refused(data, tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("margins")
    assert "not a Parquet file" in refused(data, tmp_path / "text.parquet")


def test_margins_of_another_data_set(data, tmp_path):
    path = teacher_file(data, tmp_path / "t.parquet", manifest_sha256="9" * 64)
    message = refused(data, path)
    assert "9" * 64 in message
    assert sha256_of(data / "manifest.json") in message
    assert str(data) in message
    assert "None" in refused(data, teacher_file(data, tmp_path / "u.parquet", manifest_sha256=None))


def test_other_claims_under_the_same_ids(data, tmp_path):
    first = read_split(data, "train")[0]
    path = teacher_file(
        data,
        tmp_path / "t.parquet",
        change=lambda said: dataclasses.replace(said, claim="Another.") if said.pair_id == first.id else said,
    )
    message = refused(data, path)
    assert "1 of 8" in message
    assert repr(first.id) in message
    assert "'Another.'" in message


def test_a_row_of_train_that_is_not_there_and_rows_of_other_splits_that_do_no_harm(data, tmp_path):
    first = read_split(data, "train")[0]
    stranger = dataclasses.replace(prediction(first, 1.0), pair_id="stranger")
    message = refused(data, teacher_file(data, tmp_path / "t.parquet", more=[stranger]))
    assert "1 of 9" in message
    assert "'stranger'" in message
    elsewhere = [dataclasses.replace(stranger, split="calibration")]
    assert len(join(data, teacher_file(data, tmp_path / "u.parquet", more=elsewhere)).pairs) == 8


def test_another_prompt_unless_allowed(data, tmp_path):
    path = teacher_file(data, tmp_path / "t.parquet")
    message = refused(data, path, prompt="Is it true: {claim}")
    assert Prompt().sha256 in message
    assert "other_prompt: true" in message
    assert len(join(data, path, prompt="Is it true: {claim}", other_prompt=True).pairs) == 8
    assert "other_prompt" in refused(data, teacher_file(data, tmp_path / "u.parquet", prompt_sha256=None))


@pytest.mark.parametrize(
    "labels",
    [["refuted", "supported"], ["supported", "maybe"], ["yes", "no"], ["supported"], ["supported"] * 2, {"a": 1}],
)
def test_labels_in_another_order_or_of_another_kind(data, tmp_path, labels):
    message = refused(data, teacher_file(data, tmp_path / "t.parquet", labels=labels))
    assert str(labels) in message


@pytest.mark.parametrize("labels", [None, ["supported", "refuted"], ["supported", "refuted", "not_enough"]])
def test_labels_whose_first_is_supported_are_taken(data, tmp_path, labels):
    assert len(join(data, teacher_file(data, tmp_path / "t.parquet", labels=labels)).pairs) == 8


@pytest.mark.parametrize("said", [False, None])
def test_an_uncalibrated_teacher_unless_allowed_and_then_its_margins_are_taken_as_they_are(data, tmp_path, said):
    def odd(said):
        return dataclasses.replace(said, p_supported=0.5)

    path = teacher_file(data, tmp_path / "t.parquet", margin=lambda pair: 2.5, change=odd, calibrated=said)
    message = refused(data, path)
    for words in ("eval/calibrate.py", "eval/teach.py", "uncalibrated_teacher: true"):
        assert words in message
    found = join(data, path, uncalibrated_teacher=True)
    assert {p.teacher_margin for p in found.pairs} == {2.5}
    assert found.record["calibrated"] is said


@pytest.mark.parametrize("control", ["mismatched-evidence", "zero-shot", "claim-only"])
def test_a_control_run(data, tmp_path, control):
    assert control in refused(data, teacher_file(data, tmp_path / "t.parquet", control=control))


def test_rows_that_failed_or_are_missing_unless_they_may_learn_from_labels_alone(data, tmp_path):
    first, second = read_split(data, "train")[:2]

    def change(said):
        if said.pair_id == second.id:
            return None
        return failed(said, "4096 tokens: over its context") if said.pair_id == first.id else said

    path = teacher_file(data, tmp_path / "t.parquet", change=change)
    message = refused(data, path)
    assert "2 of 8" in message
    assert f"{first.id!r} (4096 tokens: over its context)" in message
    assert f"{second.id!r} (not in the file)" in message
    assert "missing_teacher: labels" in message
    taught = join(data, path, missing_teacher="labels")
    assert [p.teacher_margin is None for p in taught.pairs] == [True, True, *[False] * 6]
    assert taught.counts["labels_alone"] == 2


def test_many_rows_without_a_margin_are_counted_and_a_few_shown(data, tmp_path):
    keep = read_split(data, "train")[-1].id
    path = teacher_file(
        data, tmp_path / "t.parquet", change=lambda said: said if said.pair_id == keep else failed(said)
    )
    message = refused(data, path)
    assert "7 of 8" in message
    assert message.count("gone.mp4") == 3


@pytest.mark.parametrize("missing", ["refuse", "labels"])
def test_a_file_without_any_usable_margin_is_refused_whatever_is_allowed(data, tmp_path, missing):
    message = refused(data, teacher_file(data, tmp_path / "t.parquet", change=failed), missing_teacher=missing)
    assert "0 of 8" in message
    assert "gone.mp4: cannot be read" in message
    others = [prediction(dataclasses.replace(p, split="validation"), 1.0) for p in read_split(data, "validation")]
    write_predictions(tmp_path / "u.parquet", others, source_of(data))
    assert "0 of 8" in refused(data, tmp_path / "u.parquet", missing_teacher=missing)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [({"missing_teacher": "skip"}, "missing_teacher"), ({"alpha": 2.0}, "alpha"), ({"soft_loss": "l1"}, "soft_loss")],
)
def test_settings_that_are_no_loss_are_named_before_the_file_is_read(data, tmp_path, wrong, name):
    with pytest.raises(ConfigError, match=f"^{name}: "):
        join(data, tmp_path / "none.parquet", **wrong)


# ---- Mined data sets ----


@pytest.fixture
def family(colour_dataset, tmp_path):
    """A data set, one that was mined out of it, and one out of that."""
    kept = shutil.copytree(colour_dataset, tmp_path / "parent")
    manifest = read_manifest(kept)
    (kept / "manifest.json").write_text(json.dumps(manifest | {"media_root": str(colour_dataset.parent)}))
    parts = [kept]
    for name, hard in (("child", 1.0), ("grandchild", 0.0)):
        path = teacher_file(parts[-1], tmp_path / f"{name}.parquet")
        mining = MiningConfig(hard_share=hard, positives=8 if name == "child" else 4)
        mine_data_set(MineConfig(str(parts[-1]), str(path), str(tmp_path / name), mining=mining))
        parts.append(tmp_path / name)
    return parts


def test_a_mined_data_set_is_taught_by_the_file_it_was_mined_with_and_so_are_its_children(family, tmp_path):
    parent, child, grandchild = family
    path = teacher_file(parent, tmp_path / "t.parquet")
    sizes = [len(join(folder, path).pairs) for folder in family]
    assert sizes == [len(read_split(folder, "train")) for folder in family]
    assert sizes[0] > sizes[1] > sizes[2] > 0
    margins = {p.id: p.teacher_margin for p in join(parent, path).pairs}
    assert all(p.teacher_margin == margins[p.id] for p in join(grandchild, path).pairs)
    assert len(join(grandchild, teacher_file(child, tmp_path / "c.parquet")).pairs) == sizes[2]


def test_a_file_of_a_mined_data_set_is_not_one_of_its_parent(family, tmp_path):
    parent, child, _ = family
    assert "another data set" in refused(parent, teacher_file(child, tmp_path / "c.parquet"))
