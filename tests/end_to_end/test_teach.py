"""Teacher files: probabilities calibrated on other rows, the mean of several, and nothing joined that differs."""

import dataclasses
import json
import math
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, roc_auc_score

from proofreel.cli import COMMANDS
from proofreel.core.errors import RowError
from proofreel.core.pairs import VideoSegment, evidence_key
from proofreel.core.storage import sha256_of
from proofreel.data_prep.negatives.scores import read_scores
from proofreel.eval.calibrate import main as calibrate
from proofreel.eval.report import main as report
from proofreel.eval.reports.compare import read_contender
from proofreel.eval.scoring.predictions import Prediction, read_predictions, write_predictions
from proofreel.eval.teach import main

MANIFEST, PAIRS, PROMPT = "d" * 64, "e" * 64, "c" * 64
FEW = ["--objective", "f1", "--method"]


def rows_of(seed: int, split: str, n: int = 400, sure: float = 3.0, spread: float = 1.0) -> list[Prediction]:
    """A teacher `sure` times too sure; truth, claims and evidence depend on the split alone, noise on the seed."""
    world, noise = np.random.default_rng(len(split)), np.random.default_rng(seed)
    rows = []
    for i in range(n):
        truth = float(world.normal(0, 2))
        label = "supported" if world.random() < expit(truth) else ["refuted", "not_enough"][i % 2]
        group, role = f"{split}-g{i % 40}", f"role{i % 2}"
        evidence = evidence_key((VideoSegment(f"/one/{group}.mp4", float(i), i + 1.0),))
        margin = float(np.float32(sure * (truth + noise.normal(0, spread))))
        row = Prediction(f"{split}{i}", margin, float(expit(margin)), label, split, group, role, "annotated", "visual")  # type: ignore[arg-type]
        rows.append(dataclasses.replace(row, claim=f"Claim {i}.", evidence=evidence))
    return rows


def source_of(fingerprint: str, **other: Any) -> dict[str, Any]:
    found = {
        "verifier_fingerprint": fingerprint * 64,
        "manifest_sha256": MANIFEST,
        "pairs_sha256": PAIRS,
        "prompt_sha256": PROMPT,
        "labels": ["supported", "refuted"],
        "calibrated": False,
        "control": None,
    }
    return {key: value for key, value in {**found, **other}.items() if value is not ...}


def write(path: Path, rows: list[Prediction], source: dict[str, Any]) -> Path:
    write_predictions(path, rows, source)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Teachers a (isotonic) and b (Platt): predictions of train, and calibrations fitted on the calibration split."""
    folder = tmp_path_factory.mktemp("teachers")
    for name, seed, method, spread in (("a", 1, "isotonic", 0.5), ("b", 2, "platt", 1.5)):
        fitted = write(folder / f"{name}-cal.parquet", rows_of(seed, "calibration", spread=spread), source_of(name))
        write(folder / f"{name}.parquet", rows_of(seed, "train", spread=spread), source_of(name))
        assert calibrate(["--predictions", str(fitted), "--out", str(folder / name), *FEW, method]) == 0
    return folder


def teach(out: Path, predictions: list[Path], calibrations: list[Any] = [], *words: str) -> int:  # noqa: B006
    found = ["--calibration", *map(str, calibrations)] if calibrations else []
    return main(["--predictions", *map(str, predictions), *found, "--out", str(out), *words])


def taught(out: Path, predictions: list[Path], calibrations: list[Any] = [], *words: str) -> Any:  # noqa: B006
    assert teach(out, predictions, calibrations, *words) == 0
    return read_predictions(out)


def refused(capsys: pytest.CaptureFixture[str], out: Path, *arguments: Any) -> str:
    """The one line that a refused call says; it wrote nothing."""
    before = out.read_bytes() if out.exists() else None
    assert teach(out, *arguments) == 1
    assert (out.read_bytes() if out.exists() else None) == before
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    return said.err


def p_of(rows: list[Prediction]) -> np.ndarray:
    return np.array([row.p_supported for row in rows])


def margins(rows: list[Prediction]) -> np.ndarray:
    return np.array([row.margin for row in rows])


def is_true(rows: list[Prediction]) -> np.ndarray:
    return np.array([float(row.label == "supported") for row in rows])


def isotonic_reference(fitted: list[Prediction], rows: list[Prediction]) -> np.ndarray:
    """Isotonic regression of scikit-learn, its levels clipped as docs/calibration.md says."""
    low = 1 / (len(fitted) + 2)
    model = IsotonicRegression(y_min=low, y_max=1 - low, out_of_bounds="clip")
    return model.fit(margins(fitted), is_true(fitted)).predict(margins(rows))


def platt_reference(fitted: list[Prediction], rows: list[Prediction]) -> np.ndarray:
    """Logistic regression of scikit-learn on Platt's smoothed targets: every row once as true and once as false."""
    y = is_true(fitted)
    target = np.where(y == 1, (y.sum() + 1) / (y.sum() + 2), 1 / ((1 - y).sum() + 2))
    x, twice = np.tile(margins(fitted), 2)[:, None], np.repeat([1, 0], len(y))
    model = LogisticRegression(C=1e12, tol=1e-12, max_iter=10_000)
    model.fit(x, twice, sample_weight=np.concatenate([target, 1 - target]))
    return model.predict_proba(margins(rows)[:, None])[:, 1]


def references(made: Path) -> np.ndarray:
    found = []
    for name, reference in (("a", isotonic_reference), ("b", platt_reference)):
        fitted, rows = (read_predictions(made / file)[0] for file in (f"{name}-cal.parquet", f"{name}.parquet"))
        found.append(reference(fitted, rows))
    return np.array(found)


# What is written ------------------------------------------------------------------------------------------------------


def test_one_teacher_is_calibrated_and_its_margins_are_the_logit_of_its_probabilities(made, tmp_path):
    raw, _ = read_predictions(made / "a.parquet")
    rows, source = taught(tmp_path / "t.parquet", [made / "a.parquet"], [made / "a"])
    assert p_of(rows) == pytest.approx(references(made)[0], abs=1e-9)
    assert np.array_equal(margins(rows), logit(p_of(rows)).astype(np.float32))
    same = [
        dataclasses.replace(new, margin=old.margin, p_supported=old.p_supported)
        for new, old in zip(rows, raw, strict=True)
    ]
    assert same == raw
    assert source == {
        "verifier_fingerprint": "a" * 64,
        "manifest_sha256": MANIFEST,
        "pairs_sha256": PAIRS,
        "prompt_sha256": PROMPT,
        "labels": ["supported", "refuted"],
        "calibrated": True,
        "control": None,
        "teachers": [
            {
                "predictions_sha256": sha256_of(made / "a.parquet"),
                "verifier_fingerprint": "a" * 64,
                "prompt_sha256": PROMPT,
                "calibration": sha256_of(made / "a" / "calibration.json"),
                "method": "isotonic",
            }
        ],
    }


def test_several_teachers_give_the_mean_of_their_calibrated_probabilities(made, tmp_path):
    both, folders = [made / "a.parquet", made / "b.parquet"], [made / "a", made / "b"]
    rows, source = taught(tmp_path / "t.parquet", both, folders)
    mean = references(made).mean(axis=0)
    assert p_of(rows) == pytest.approx(mean, abs=1e-6)
    assert margins(rows) == pytest.approx(logit(mean), abs=1e-4)
    assert [each["method"] for each in source["teachers"]] == ["isotonic", "platt"]
    assert [each["verifier_fingerprint"] for each in source["teachers"]] == ["a" * 64, "b" * 64]
    _, turned = taught(tmp_path / "u.parquet", both[::-1], folders[::-1])
    fingerprints = {source["verifier_fingerprint"], turned["verifier_fingerprint"], "a" * 64, "b" * 64}
    assert len(fingerprints) == 4  # the order counts, and neither is one of the teachers'


def test_rows_come_in_the_order_of_the_first_file_whatever_the_order_of_the_others(made, tmp_path):
    b, source = read_predictions(made / "b.parquet")
    order = np.random.default_rng(3).permutation(len(b))
    shuffled = write(tmp_path / "b.parquet", [b[i] for i in order], {**source, "pairs_sha256": "0" * 64})
    rows, said = taught(tmp_path / "t.parquet", [made / "a.parquet", shuffled], [made / "a", made / "b"])
    plain, _ = taught(tmp_path / "u.parquet", [made / "a.parquet", made / "b.parquet"], [made / "a", made / "b"])
    assert rows == plain
    assert said["pairs_sha256"] is None
    turned, _ = taught(tmp_path / "v.parquet", [shuffled, made / "a.parquet"], [made / "b", made / "a"])
    assert [row.pair_id for row in turned] == [b[i].pair_id for i in order]
    assert p_of(turned) == pytest.approx(p_of(plain)[order], abs=1e-15)


def test_a_row_that_any_teacher_failed_is_failed_counted_and_listed(made, tmp_path, capsys):
    b, source = read_predictions(made / "b.parquet")
    b[7] = dataclasses.replace(b[7], margin=math.nan, p_supported=math.nan, error="clip.mp4: cannot be read")
    broken = write(tmp_path / "b.parquet", b, source)
    whole, _ = taught(tmp_path / "u.parquet", [made / "a.parquet", made / "b.parquet"], [made / "a", made / "b"])
    capsys.readouterr()
    rows, _ = taught(tmp_path / "t.parquet", [made / "a.parquet", broken], [made / "a", made / "b"])
    assert rows[7].error == "b.parquet: clip.mp4: cannot be read"
    assert math.isnan(rows[7].margin)
    assert math.isnan(rows[7].p_supported)
    assert [*rows[:7], *rows[8:]] == [*whole[:7], *whole[8:]]
    said = capsys.readouterr().out
    assert "rows         400, 1 failed\n  train7: b.parquet: clip.mp4: cannot be read\n" in said
    assert "on 399 rows" in said
    alone, _ = taught(tmp_path / "v.parquet", [broken], [made / "b"])
    assert alone[7].error == rows[7].error


def test_files_of_one_name_are_told_apart_in_failures(made, tmp_path):
    paths = []
    for name in ("a", "b"):
        rows, source = read_predictions(made / f"{name}.parquet")
        rows[0] = dataclasses.replace(rows[0], margin=math.nan, p_supported=math.nan, error="gone")
        paths.append(write(tmp_path / name / "train.parquet", rows, source))
    rows, _ = taught(tmp_path / "t.parquet", paths, [made / "a", made / "b"])
    assert rows[0].error == f"{paths[0]}: gone; {paths[1]}: gone"


def test_certainties_and_saturated_margins_stay_finite_and_ties_stay_ties(tmp_path):
    rows = rows_of(1, "train", 8)
    for i, p in enumerate([0.0, 1.0, 1e-9, 1 - 1e-9, 0.5, 0.5, 1e-6, 0.25]):
        rows[i] = dataclasses.replace(rows[i], p_supported=p, margin=900.0)
    path = write(tmp_path / "p.parquet", rows, source_of("a", calibrated=True))
    found, source = taught(tmp_path / "t.parquet", [path])
    assert p_of(found).tolist() == p_of(rows).tolist()
    edge = np.float32(logit(1e-6))
    assert margins(found).tolist() == [edge, -edge, edge, -edge, 0, 0, edge, np.float32(logit(0.25))]
    assert source["teachers"][0] | {"predictions_sha256": ""} == {
        "predictions_sha256": "",
        "verifier_fingerprint": "a" * 64,
        "prompt_sha256": PROMPT,
        "calibration": None,
        "method": "own",
    }
    extreme = [1e30, -1e30, 40, -40, 0, 0, 800, -800]
    rows = [dataclasses.replace(row, margin=m) for row, m in zip(rows, extreme, strict=True)]
    path = write(tmp_path / "m.parquet", rows, source_of("a"))
    found, _ = taught(tmp_path / "u.parquet", [path], [], "--allow-uncalibrated")
    assert margins(found).tolist() == [-edge, edge, -edge, edge, 0, 0, -edge, edge]


def test_labels_that_separate_perfectly_and_isotonic_steps_stay_finite(tmp_path):
    rows = [
        dataclasses.replace(row, margin=50.0 if row.label == "supported" else -50.0)
        for row in rows_of(1, "calibration")
    ]
    fitted = write(tmp_path / "c.parquet", rows, source_of("a"))
    assert calibrate(["--predictions", str(fitted), "--out", str(tmp_path / "c"), *FEW, "isotonic"]) == 0
    path = write(tmp_path / "p.parquet", rows_of(1, "train", sure=30.0), source_of("a"))
    found, _ = taught(tmp_path / "t.parquet", [path], [tmp_path / "c"])
    assert np.isfinite(margins(found)).all()
    assert p_of(found).max() == pytest.approx(401 / 402)


def test_corrections_per_group_are_applied(tmp_path):
    def turned(rows: list[Prediction]) -> list[Prediction]:
        return [dataclasses.replace(r, margin=r.margin + (4.0 if r.role == "role1" else 0.0)) for r in rows]

    fitted = write(tmp_path / "c.parquet", turned(rows_of(1, "calibration", 800)), source_of("a"))
    arguments = ["--predictions", str(fitted), "--out", str(tmp_path / "c"), *FEW, "platt", "--per-group", "role"]
    assert calibrate(arguments) == 0
    scored = write(tmp_path / "p.parquet", turned(rows_of(1, "train")), source_of("a"))
    found, _ = taught(tmp_path / "t.parquet", [scored], [tmp_path / "c"])
    raw, _ = read_predictions(scored)
    stored = json.loads((tmp_path / "c" / "calibration.json").read_text())
    corrections = stored["by_group"]["corrections"]
    assert set(corrections) == {"role0", "role1"}
    for row, old in zip(found, raw, strict=True):
        c = corrections[old.role]
        overall = stored["slope"] * old.margin + stored["intercept"]
        assert row.p_supported == pytest.approx(expit(c["slope"] * overall + c["intercept"]), rel=1e-12)


def test_labels_and_prompts_that_differ_are_not_claimed_for_the_mean(made, tmp_path):
    b, source = read_predictions(made / "b.parquet")
    other = {**source, "prompt_sha256": "9" * 64, "labels": ["supported", "refuted", "not_enough"]}
    path = write(tmp_path / "b.parquet", b, other)
    _, said = taught(tmp_path / "t.parquet", [made / "a.parquet", path], [made / "a", made / "b"])
    assert (said["prompt_sha256"], said["labels"]) == (None, ["supported", "refuted"])
    assert said["teachers"][1]["prompt_sha256"] == "9" * 64
    _, alone = taught(tmp_path / "u.parquet", [path], [made / "b"])
    assert (alone["prompt_sha256"], alone["labels"]) == ("9" * 64, ["supported", "refuted", "not_enough"])


def test_a_file_that_does_not_name_its_labels_counts_as_supported_then_refuted(made, tmp_path):
    rows, source = read_predictions(made / "a.parquet")
    older = {key: source[key] for key in ("verifier_fingerprint", "manifest_sha256")}
    _, said = taught(tmp_path / "t.parquet", [write(tmp_path / "a.parquet", rows, older)], [made / "a"])
    assert said["labels"] == ["supported", "refuted"]
    assert (said["prompt_sha256"], said["pairs_sha256"]) == (None, None)


def test_a_teacher_file_is_what_mining_reads_and_can_be_joined_again_but_not_calibrated_again(made, tmp_path, capsys):
    first = tmp_path / "t.parquet"
    rows, source = taught(first, [made / "a.parquet"], [made / "a"])
    scores, said = read_scores(first)
    assert {id: s.p_supported for id, s in scores.items()} == {row.pair_id: row.p_supported for row in rows}
    assert said == source
    capsys.readouterr()
    again, chained = taught(tmp_path / "u.parquet", [first, made / "b.parquet"], ["-", made / "b"])
    assert p_of(again) == pytest.approx(references(made).mean(axis=0), abs=1e-6)
    assert chained["teachers"][0]["teachers"] == source["teachers"]
    capsys.readouterr()
    message = refused(capsys, tmp_path / "v.parquet", [first], [made / "a"])
    assert "is a teacher file, whose margins are calibrated" in message


# What is refused ------------------------------------------------------------------------------------------------------


def test_no_command_calibrates_a_teacher_file_a_second_time(made, tmp_path, capsys):
    file = tmp_path / "t.parquet"
    taught(file, [made / "a.parquet"], [made / "a"])
    given = ["--predictions", str(file), "--out", str(tmp_path / "again")]
    for command, more in ((calibrate, []), (report, ["--calibration", str(made / "a")])):
        capsys.readouterr()
        assert command([*given, *more]) == 1
        assert "t.parquet: is calibrated already" in capsys.readouterr().err
    with pytest.raises(RowError, match="is calibrated already"):
        read_contender(f"t={file}:{made / 'a'}")
    assert not (tmp_path / "again").exists()


def test_uncalibrated_teachers_are_refused_unless_they_are_allowed_and_then_the_file_says_so(made, tmp_path, capsys):
    out, raw = tmp_path / "t.parquet", made / "a.parquet"
    for calibrations in ([], ["-"]):
        message = refused(capsys, out, [raw], calibrations)
        assert f"{raw}: the teacher is not calibrated on gold labels, got calibrated: false and no calib" in message
        assert "--allow-uncalibrated" in message
    rows, source = taught(out, [raw], [], "--allow-uncalibrated")
    assert p_of(rows) == pytest.approx(expit(margins(read_predictions(raw)[0])), abs=1e-15)
    assert (source["calibrated"], source["teachers"][0]["method"]) == (False, "uncalibrated")
    _, mixed = taught(tmp_path / "u.parquet", [raw, made / "b.parquet"], ["-", made / "b"], "--allow-uncalibrated")
    assert mixed["calibrated"] is False
    assert "not calibrated: p = sigmoid(margin)" in capsys.readouterr().out
    rows, _ = read_predictions(raw)
    unsaid = write(tmp_path / "unsaid.parquet", rows, source_of("a", calibrated=...))
    assert "got calibrated: null" in refused(capsys, tmp_path / "v.parquet", [unsaid])


@pytest.mark.parametrize(
    ("method", "more", "rate", "said"),
    [
        ("platt", (), 0.5, ()),
        ("centred_isotonic", (), 0.5, ()),
        ("none", (), 0.5, ("its calibration is `none`",)),
        ("isotonic", (), 0.5, ("gives many rows one probability",)),
        (
            "platt",
            (),
            0.2,
            ("supported rows, and 20% of the labelled ones here are; fit it with --prior 0.198",),
        ),
        ("platt", ("--prior", "0.2"), 0.2, ()),
    ],
)
def test_what_speaks_against_a_calibration_here_is_said(tmp_path, capsys, method, more, rate, said):
    fitted = write(tmp_path / "cal.parquet", rows_of(1, "calibration"), source_of("a"))
    rows = rows_of(1, "train")
    false, true = ([row for row in rows if row.label == name] for name in ("refuted", "supported"))
    kept = [*false, *true[: round(len(false) * rate / (1 - rate))]]
    file = write(tmp_path / "train.parquet", kept, source_of("a"))
    assert calibrate(["--predictions", str(fitted), "--out", str(tmp_path / "c"), *FEW, method, *more]) == 0
    capsys.readouterr()
    taught(tmp_path / "t.parquet", [file], [tmp_path / "c"])
    warnings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("WARNING")]
    here = [line for line in warnings if "follows noise" not in line]
    assert len(here) == len(said)
    for words, line in zip(said, here, strict=True):
        assert words in line


def test_a_calibration_of_another_verifier_is_refused_by_name(made, tmp_path, capsys):
    both = [made / "a.parquet", made / "b.parquet"]
    message = refused(capsys, tmp_path / "t.parquet", both, [made / "b", made / "a"])
    assert f"{made / 'b'}: was fitted on another verifier than {made / 'a.parquet'}, got bbbbbbbbbbbb" in message
    rows, _ = read_predictions(made / "a.parquet")
    for fingerprint in (None, "", ...):
        nobodys = write(tmp_path / "n.parquet", rows, source_of("a", verifier_fingerprint=fingerprint))
        assert "another verifier" in refused(capsys, tmp_path / "t.parquet", [nobodys], [made / "a"])


def test_a_calibration_fitted_on_the_scored_rows_or_groups_or_split_is_refused(made, tmp_path, capsys):
    out = tmp_path / "t.parquet"
    message = refused(capsys, out, [made / "a-cal.parquet"], [made / "a"])
    assert f"{made / 'a'}: was fitted on rows that {made / 'a-cal.parquet'} scores" in message
    assert "400 pair ids were also used" in message
    assert "40 groups were also used" in message
    assert "rows of the calibration split" in message
    rows, source = read_predictions(made / "a.parquet")
    rows[3] = dataclasses.replace(rows[3], group="calibration-g5")
    message = refused(capsys, out, [write(tmp_path / "g.parquet", rows, source)], [made / "a"])
    assert "got: 1 groups were also used to fit the calibration, for example 'calibration-g5'." in message
    rows[3] = dataclasses.replace(rows[3], group="", split="calibration")
    message = refused(capsys, out, [write(tmp_path / "s.parquet", rows, source)], [made / "a"])
    assert "got: rows of the calibration split. Calibrate" in message


def test_the_folder_of_an_exported_verifier_shows_that_its_own_rows_are_new(made, tmp_path, capsys):
    published = tmp_path / "published"
    shutil.copytree(made / "a", published)
    (published / "MANIFEST.sha256").write_text("what eval/export.py lists\n")
    source = source_of("a", verifier_fingerprint=sha256_of(published / "MANIFEST.sha256"), calibrated=True)
    raw, _ = read_predictions(made / "a.parquet")
    rows = [dataclasses.replace(row, p_supported=p) for row, p in zip(raw, references(made)[0].tolist(), strict=True)]
    path = write(tmp_path / "p.parquet", rows, source)
    unchecked, _ = taught(tmp_path / "t.parquet", [path])
    assert "WARNING      p.parquet: calibrated before, on rows unknown here" in capsys.readouterr().out
    checked, about = taught(tmp_path / "u.parquet", [path], [published])
    assert "unknown here" not in capsys.readouterr().out
    assert p_of(checked) == pytest.approx(p_of(unchecked), abs=1e-9)
    assert (about["teachers"][0]["method"], about["calibrated"]) == ("isotonic", True)
    rows[3] = dataclasses.replace(rows[3], group="calibration-g5")
    seen = write(tmp_path / "seen.parquet", rows, source)
    assert "1 groups were also used" in refused(capsys, tmp_path / "v.parquet", [seen], [published])
    (published / "MANIFEST.sha256").write_text("of another export\n")
    assert "another verifier" in refused(capsys, tmp_path / "v.parquet", [path], [published])


def test_where_the_fitted_rows_are_not_recorded_that_is_said(made, tmp_path, capsys):
    for name in ("calibration.json", "thresholds.json"):
        (tmp_path / name).write_bytes((made / "a" / name).read_bytes())
    taught(tmp_path / "t.parquet", [made / "a.parquet"], [tmp_path])
    assert "WARNING      a.parquet: which rows its calibration was fitted on is not recorded" in capsys.readouterr().out


def test_margins_of_windows_need_a_calibration_of_such_margins(made, tmp_path, capsys):
    rows, source = read_predictions(made / "a.parquet")
    windowed = write(tmp_path / "w.parquet", rows, {**source, "aggregation": "max:8:4"})
    message = refused(capsys, tmp_path / "t.parquet", [windowed], [made / "a"])
    assert "margins of windows joined by nothing, got max:8:4" in message


@pytest.mark.parametrize("control", ["mismatched-evidence", "claim-only", "zero-shot"])
def test_control_runs_are_refused(made, tmp_path, capsys, control):
    rows, source = read_predictions(made / "a.parquet")
    path = write(tmp_path / "p.parquet", rows, {**source, "control": control})
    message = refused(capsys, tmp_path / "t.parquet", [path], [made / "a"])
    assert f"{path}: predictions of a control run, got '{control}'" in message


@pytest.mark.parametrize("labels", [["refuted", "supported"], ["yes", "no"], "supported"])
def test_another_order_of_labels_is_refused(made, tmp_path, capsys, labels):
    rows, source = read_predictions(made / "b.parquet")
    path = write(tmp_path / "p.parquet", rows, {**source, "labels": labels})
    message = refused(capsys, tmp_path / "t.parquet", [made / "a.parquet", path], [made / "a", made / "b"])
    assert f"{path}: margins must be log-odds of supported, the first label, got {labels!r}" in message


def changed(rows: list[Prediction], at: list[int], **values: Any) -> list[Prediction]:
    return [dataclasses.replace(row, **values) if i in at else row for i, row in enumerate(rows)]


OTHER_TIME = evidence_key((VideoSegment("/one/train-g5.mp4", 0.0, 1.0),))


@pytest.mark.parametrize(
    ("change", "source", "words"),
    [
        (lambda rows: rows[2:], {}, "got 2 that it lacks, e.g. 'train0'"),
        (lambda rows: [*rows, dataclasses.replace(rows[0], pair_id="x")], {}, "got 1 that it adds, e.g. 'x'"),
        (
            lambda rows: changed(rows, [5], claim="No."),
            {},
            "another claim than in .*, got 1 of 400 pairs, e.g. 'train5'",
        ),
        (
            lambda rows: changed(rows, [5, 6], evidence=OTHER_TIME),
            {},
            "another evidence than in .*, got 2 of 400 pairs",
        ),
        (lambda rows: changed(rows, [5], evidence="none"), {}, "another evidence than in .*, got 1 of 400 pairs"),
        (lambda rows: changed(rows, [5], label=None), {}, "another label than in .*, got 1 of 400 pairs"),
        (lambda rows: rows, {"manifest_sha256": "0" * 64}, "got manifest 000000000000 instead of dddddddddddd"),
        (lambda rows: rows, {"manifest_sha256": None}, "got manifest None instead of dddddddddddd"),
    ],
)
def test_teachers_of_other_rows_are_refused_with_file_number_and_example(made, tmp_path, capsys, change, source, words):
    rows, said = read_predictions(made / "b.parquet")
    path = write(tmp_path / "p.parquet", change(rows), {**said, **source})
    message = refused(capsys, tmp_path / "t.parquet", [made / "a.parquet", path], [made / "a", made / "b"])
    assert message.startswith(f"error: {path}: ")
    assert str(made / "a.parquet") in message
    assert re.search(words, message)


def test_media_of_one_data_set_may_lie_elsewhere_but_those_of_unknown_ones_may_not(made, tmp_path, capsys):
    rows, source = read_predictions(made / "b.parquet")
    moved = [dataclasses.replace(row, evidence=row.evidence.replace("/one/", "/another/place/")) for row in rows]
    path = write(tmp_path / "b.parquet", moved, source)
    found, _ = taught(tmp_path / "t.parquet", [made / "a.parquet", path], [made / "a", made / "b"])
    assert found[0].evidence == read_predictions(made / "a.parquet")[0][0].evidence
    unknown = {**source, "manifest_sha256": None}
    capsys.readouterr()
    paths = [write(tmp_path / "x.parquet", rows, unknown), write(tmp_path / "y.parquet", moved, unknown)]
    message = refused(capsys, tmp_path / "u.parquet", paths, [made / "b", made / "b"])
    assert "another evidence" in message


def test_one_teacher_twice_and_a_wrong_number_of_calibrations_are_refused(made, tmp_path, capsys):
    a, out = made / "a.parquet", tmp_path / "t.parquet"
    assert "got one teacher twice" in refused(capsys, out, [a, a], [made / "a", made / "a"])
    assert "got 1 for 2; write -" in refused(capsys, out, [a, made / "b.parquet"], [made / "a"])
    assert "no such predictions file" in refused(capsys, out, [tmp_path / "none.parquet"], [made / "a"])
    assert "calibration.json" in refused(capsys, out, [a], [tmp_path / "none"])


def test_nothing_is_replaced_without_a_word_and_never_an_input(made, tmp_path, capsys):
    out, a = tmp_path / "t.parquet", made / "a.parquet"
    taught(out, [a], [made / "a"])
    first = out.read_bytes()
    capsys.readouterr()
    assert "is there already" in refused(capsys, out, [made / "b.parquet"], [made / "b"])
    taught(out, [made / "b.parquet"], [made / "b"], "--overwrite")
    assert out.read_bytes() != first
    taught(out, [a], [made / "a"], "--overwrite")
    assert out.read_bytes() == first
    capsys.readouterr()
    assert "got it as the output too" in refused(capsys, a, [a], [made / "a"], "--overwrite")
    assert teach(tmp_path, [a], [made / "a"], "--overwrite") == 1
    assert "got a folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


KILLED = """
import os, signal, sys
from proofreel.eval.teachers import ensemble
from proofreel.eval.teach import main
whole = ensemble.write_predictions
def half(path, rows, source):
    whole(path, rows, source)
    os.truncate(path, path.stat().st_size // 2)
    os.kill(os.getpid(), signal.SIGKILL)
ensemble.write_predictions = half
main(sys.argv[1:])
"""


@pytest.mark.parametrize("existed", [False, True])
def test_killed_half_way_it_leaves_the_file_that_was_there_or_none(made, tmp_path, existed):
    out, a = tmp_path / "t.parquet", made / "a.parquet"
    if existed:
        taught(out, [made / "b.parquet"], [made / "b"])
    before = out.read_bytes() if existed else None
    words = ["--predictions", str(a), "--calibration", str(made / "a"), "--out", str(out), "--overwrite"]
    done = subprocess.run([sys.executable, "-c", KILLED, *words], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (out.read_bytes() if out.exists() else None) == before
    rows, _ = taught(out, [a], [made / "a"], "--overwrite")
    assert len(rows) == 400


# What is said ---------------------------------------------------------------------------------------------------------


def table_of(text: str) -> dict[str, list[float]]:
    lines = text.split("labels it gives p < 0.05\n")[1].splitlines()
    found = {}
    for words in map(str.split, lines):
        if len(words) != 5 or words[0].endswith(":"):
            break
        found[words[0]] = [float(word) for word in words[1:]]
    return found


def ece_reference(p: np.ndarray, y: np.ndarray) -> float:
    """Fifteen bins of equal width, row by row."""
    total = 0.0
    for k in range(15):
        chosen = [i for i in range(len(p)) if min(int(p[i] * 15), 14) == k]
        total += abs(sum(p[i] - y[i] for i in chosen)) / len(p)
    return total


def test_each_teacher_and_the_mean_are_measured_on_the_labels(made, tmp_path, capsys):
    taught(tmp_path / "t.parquet", [made / "a.parquet", made / "b.parquet"], [made / "a", made / "b"])
    said = table_of(capsys.readouterr().out)
    y, each = is_true(read_predictions(made / "a.parquet")[0]), references(made)
    for name, p in (("a.parquet", each[0]), ("b.parquet", each[1]), ("mean", each.mean(axis=0))):
        doubted = sum((1 - q if t == 0 else q) < 0.05 for q, t in zip(p, y, strict=True))
        assert said[name] == pytest.approx(
            [roc_auc_score(y, p), ece_reference(p, y), brier_score_loss(y, p), doubted], abs=6e-5
        )
    taught(tmp_path / "u.parquet", [made / "a.parquet"], [made / "a"])
    assert list(table_of(capsys.readouterr().out)) == ["a.parquet"]


def test_labels_that_the_teacher_contradicts_are_listed_the_most_doubtful_first(tmp_path, capsys):
    rows = rows_of(1, "train", 20)
    for i, (p, label) in enumerate([(0.04, "supported"), (0.97, "refuted"), (0.05, "supported"), (0.01, None)] * 5):
        rows[i] = dataclasses.replace(rows[i], p_supported=p, label=label)  # type: ignore[arg-type]
    taught(tmp_path / "t.parquet", [write(tmp_path / "p.parquet", rows, source_of("a", calibrated=True))])
    said = capsys.readouterr().out
    assert "on 15 rows" in said
    assert table_of(said)["p.parquet"][-1] == 10
    listed = [line.strip() for line in said.splitlines() if "labelled " in line and "P(supported)" in line]
    assert listed[:6] == [
        *(f"train{i}: labelled refuted, P(supported) 0.9700" for i in (1, 5, 9, 13, 17)),
        "train0: labelled supported, P(supported) 0.0400",
    ]
    assert len(listed) == 10


def test_claims_that_nobody_judged_are_taught_without_a_comparison(tmp_path, capsys):
    rows = [dataclasses.replace(row, label=None) for row in rows_of(1, "train", 5)]
    found, _ = taught(tmp_path / "t.parquet", [write(tmp_path / "p.parquet", rows, source_of("a", calibrated=True))])
    assert [row.label for row in found] == [None] * 5
    assert "none on the scored rows" in capsys.readouterr().out
    empty, _ = taught(tmp_path / "u.parquet", [write(tmp_path / "q.parquet", [], source_of("a", calibrated=True))])
    assert empty == []


def test_teach_is_a_command_and_explains_itself_without_torch():
    assert COMMANDS["teach"][0] == "proofreel.eval.teach"
    code = (
        "import sys, proofreel.cli\n"
        "try: proofreel.cli.main(['teach', '--help'])\n"
        "except SystemExit as e: sys.exit(e.code or ('torch' in sys.modules) * 3)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--allow-uncalibrated" in done.stdout
