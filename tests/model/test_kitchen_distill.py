"""The kitchen's tables over seeds; of its distillation, what is hidden from the student and the base that is grown."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from sklearn.metrics import f1_score, roc_auc_score

from examples.kitchen.distill import QUARTER, hide
from examples.kitchen.distill_table import Row, auc_within_clips, judge, table, table_of_kinds
from examples.kitchen.grow import grow
from examples.kitchen.seeds import table as seeds_table
from examples.kitchen.table import RUNS
from examples.kitchen.table import table as kitchen_table
from proofreel.core.pairs import Pair, Passage
from proofreel.eval.calibrate import main as calibrate
from proofreel.eval.metrics import metric_rows
from proofreel.eval.scoring.predictions import Prediction, write_predictions
from proofreel.eval.uncertainty.bootstrap import resample
from proofreel.eval.uncertainty.headline import headline_values
from proofreel.models.backbones.load import load_backbone
from proofreel.models.decision.calibrator import sigmoid
from proofreel.models.decision.thresholds import read_decision
from proofreel.train.arguments import DistillArguments

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "checkpoints" / "kitchen-base"


def drawn(folder: Path, seed: int, skill: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A calibrated folder whose test rows are right with some skill: (margins, labels, groups) of its test split."""
    rng = np.random.default_rng(seed)
    labels = np.arange(400) % 2 == 0
    for split in ("calibration", "test"):
        margins = (skill * (2.0 * labels - 1) + rng.normal(0, 2, 400)).astype(np.float32)
        rows = [
            Prediction(
                f"{split}{i}", float(m), float(sigmoid(m)), "supported" if y else "refuted", split, *of(split, i)
            )  # type: ignore[arg-type]
            for i, (m, y) in enumerate(zip(margins.tolist(), labels.tolist(), strict=True))
        ]
        write_predictions(folder / f"{split}.parquet", rows, {"verifier_fingerprint": "v"})
    words = ["--predictions", str(folder / "calibration.parquet"), "--out", str(folder / "calibrated")]
    assert calibrate([*words, "--method", "platt"]) == 0
    return margins.astype(float), labels.astype(float), np.array([of("test", i)[0] for i in range(400)])


def of(split: str, i: int) -> tuple[str, str, str, str]:
    return f"{split}-{i // 8}", "Action", "annotated", "visual"  # type: ignore[return-value]


def test_a_line_s_numbers_are_the_mean_over_its_seeds_and_agree_with_the_references(tmp_path):
    data = [drawn(tmp_path / str(seed), seed, 1.5) for seed in (0, 1)]
    found = judge([Row("x", "", tmp_path / str(seed)) for seed in (0, 1)], 200)
    assert found.of_seeds["auc"] == pytest.approx([roc_auc_score(y, m) for m, y, _ in data])
    f1s = []
    for seed, (margins, labels, _) in enumerate(data):
        decision = read_decision(tmp_path / str(seed) / "calibrated")
        f1s.append(f1_score(labels, decision.calibration.predict(margins) >= decision.point().threshold))
    assert found.of_seeds["f1"] == pytest.approx(f1s)
    for name, values in found.of_seeds.items():
        assert found.observed[name] == pytest.approx(np.mean(values)), name
        assert found.drawn[name].shape == (200,), name


def test_the_resamples_of_one_seed_are_those_of_the_headline_intervals(tmp_path):
    margins, labels, groups = drawn(tmp_path / "a", 3, 1.0)
    found = judge([Row("x", "", tmp_path / "a")], 500)
    expected = headline_values(metric_rows(margins, sigmoid(margins), labels, 0.5), resample(groups, 500))
    for ours, theirs in (("auc", "auc"), ("ece_before", "ece_event")):
        assert found.drawn[ours] == pytest.approx(expected[theirs])


def test_a_verifier_against_itself_differs_by_nothing(tmp_path, monkeypatch):
    drawn(tmp_path / "a", 3, 1.0)
    monkeypatch.setattr("examples.kitchen.distill_table.claims_per_second", lambda folders, out: [1.0] * len(folders))
    row = Row("x", "told", tmp_path / "a")
    text = table([[row]] * 5, tmp_path, 100)
    assert "distilled minus labels alone: +0.000 (clips +0.000 to +0.000; seeds one alone), undecided" in text
    assert "over that of the teacher: 1.000 (clips 1.000 to 1.000; seeds one alone), undecided" in text
    assert "50 test clips" in text


def test_students_of_other_kinds_are_compared_with_their_own_teacher_and_their_own_start(tmp_path, monkeypatch):
    data = {name: drawn(tmp_path / name, 3, skill) for name, skill in (("low", 0.5), ("mid", 1.0), ("high", 3.0))}
    auc = {name: roc_auc_score(labels, margins) for name, (margins, labels, _) in data.items()}
    speeds = {"low": 4.0, "mid": 3.0, "high": 2.0}
    monkeypatch.setattr(
        "examples.kitchen.distill_table.claims_per_second", lambda folders, out: [speeds[f.name] for f in folders]
    )
    named = {"low": "labels alone", "mid": "distilled", "high": "teacher"}
    low, mid, high = ([Row(named[name], f"the {name} one", tmp_path / name)] for name in named)
    text = table_of_kinds([[high, low, mid], [high, mid]], tmp_path, 100)
    first, second = text.split("the mid one, after the high one:")[1:]
    for part in (first, second):
        assert f"over that of the teacher: {auc['mid'] / auc['high']:.3f} (" in part
        assert "those of the teacher: 1.50" in part
    assert f"minus labels alone: {auc['mid'] - auc['low']:+.3f} (" in first
    assert "minus labels alone" not in second
    assert text.count("| teacher | the high one |") == 1


def test_the_demo_s_table_shows_mean_and_range_of_the_seeds(tmp_path):
    aucs = []
    for seed in (0, 1):
        margins, labels, _ = drawn(tmp_path / str(seed), seed, 1.5)
        shutil.copy(tmp_path / str(seed) / "test.parquet", tmp_path / str(seed) / "test-mismatched-evidence.parquet")
        aucs.append(roc_auc_score(labels, margins))
    text = seeds_table([tmp_path / str(seed) for seed in (0, 1)], 100)
    assert f"| this verifier, mean of 2 seeds | 400 | {np.mean(aucs):.3f} (" in text
    assert f"| lowest to highest seed | | {min(aucs):.3f} to {max(aucs):.3f} |" in text
    assert "| Action | 400 |" in text
    assert "2 training seeds, 50 test clips" in text


@pytest.mark.nightly  # sixteen runs; tables of single runs are checked below
def test_kitchen_runs_are_compared_where_they_differ_in_one_thing(tmp_path):
    for number, run in enumerate(RUNS):
        for seed in (0, 1):
            folder = tmp_path / f"{run.name}-{seed}"
            drawn(folder, seed, 1.0 + (number % 2))
            shutil.copy(folder / "test.parquet", folder / "test-zero-shot.parquet")
    text = kitchen_table(RUNS, tmp_path, (0, 1), {run.name: "python" for run in RUNS}, 100)
    differences = [line for line in text.splitlines() if line.startswith("- AUC, ")]
    assert len(differences) == 12  # the edges of a cube
    assert all(line.endswith(", undecided") is ("LoRA minus QLoRA" not in line) for line in differences)


def test_the_auc_within_clips_is_the_mean_of_theirs(tmp_path):
    margins, labels, groups = drawn(tmp_path / "a", 3, 1.0)
    theirs = [roc_auc_score(labels[groups == g], margins[groups == g]) for g in np.unique(groups)]
    assert auc_within_clips(tmp_path / "a") == pytest.approx(np.mean(theirs))


def test_labels_are_hidden_clip_by_clip_and_in_the_train_split_alone():
    passage = (Passage("x"),)
    pairs = [
        Pair(f"{split}{i}", "c", passage, "refuted", split=split, group=f"clip{i // 4}")  # type: ignore[arg-type]
        for split in ("train", "validation", "calibration", "test")
        for i in range(4000)
    ]
    hidden = [hide(pair) for pair in pairs]
    assert [dataclasses.replace(h, label=p.label) for h, p in zip(hidden, pairs, strict=True)] == pairs
    kept = {p.group for p in hidden if p.split == "train" and p.label}
    assert not kept & {p.group for p in hidden if p.split == "train" and not p.label}
    assert 0.07 < len(kept) / 1000 < 0.13
    assert all(p.label for p in hidden if p.split != "train")


def test_the_student_s_settings_are_the_kitchen_s_but_for_frames_teacher_and_the_choice_of_checkpoint():
    student, plain = (yaml.safe_load((ROOT / "configs" / f"kitchen_{n}.yaml").read_text()) for n in ("distill", "sft"))
    of_teacher = {f.name for f in dataclasses.fields(DistillArguments)}
    frames = dict(zip([str(k)[2:] for k in QUARTER[::2]], QUARTER[1::2], strict=True))
    chosen = {"save_strategy", "save_steps", "save_total_limit", "load_best_model_at_end", "metric_for_best_model"}
    assert {key: student[key] for key in frames} == frames
    differs = {key for key in {*student, *plain} if student.get(key) != plain.get(key)} - of_teacher
    assert differs == {*frames, *chosen, "eval_steps", "dataset_dir", "output_dir"} - {"min_frames"}


def test_a_grown_base_has_twice_the_layers_and_begins_as_the_function_it_was_grown_from(tmp_path):
    grow(BASE, tmp_path / "large")
    small, large = load_backbone(BASE).float().eval(), load_backbone(tmp_path / "large").eval()
    assert large.config.text_config.num_hidden_layers == 2 * small.config.text_config.num_hidden_layers
    ids_BT = torch.randint(0, 540, (2, 24), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(large(ids_BT).logits, small(ids_BT).logits, rtol=0, atol=0)
    new = [p for name, p in large.named_parameters() if ".layers.1." in name and "language_model" in name]
    assert sum(bool(p.any()) for p in new) == len(new) - 2  # all but its two output matrices can learn from the start
