"""Fitted calibrations recover what was planted and agree with scikit-learn."""

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_margins import drawn_as
from nightly import first_of, only
from numpy.testing import assert_allclose
from sklearn.calibration import _SigmoidCalibration, _TemperatureScaling

from proofreel.core.errors import CalibrationError
from proofreel.eval import metrics
from proofreel.eval.calibrate import main, unpromised
from proofreel.eval.calibration import fit as calibrating
from proofreel.eval.calibration.fit import PerGroup
from proofreel.eval.scoring.predictions import Prediction, write_predictions
from proofreel.models.decision.calibrator import sigmoid
from proofreel.models.decision.calibrators import CALIBRATORS
from proofreel.models.decision.thresholds import read_decision


def _predictions(n_groups: int = 20, per_group: int = 6, split: str = "calibration", seed: int = 0) -> list[Prediction]:
    margins, labels = drawn_as(seed, n_groups * per_group, slope=0.4)
    return [
        Prediction(
            pair_id=f"p{i}",
            margin=float(np.float32(margin)),
            p_supported=float(sigmoid(margin)),
            label="supported" if label else "refuted",
            split=split,
            group=f"g{i % n_groups}",
            role="Action",
            origin="annotated",
            modality="visual",
        )
        for i, (margin, label) in enumerate(zip(margins, labels, strict=True))
    ]


# Fitting -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slope", [0.1, 0.5, 1.0, 4.0])
def test_temperature_recovers_a_planted_slope(slope: float) -> None:
    fitted: Any = calibrating.fit_calibration(*drawn_as(1, 20_000, slope), method="temperature")
    assert_allclose(fitted.slope, slope, rtol=0.06)
    assert not fitted.at_bound


@pytest.mark.parametrize(("slope", "intercept"), [(0.3, -2.0), (1.0, 0.0), (2.0, 1.5)])
def test_platt_recovers_a_planted_slope_and_intercept(slope: float, intercept: float) -> None:
    fitted: Any = calibrating.fit_calibration(*drawn_as(2, 20_000, slope, intercept), method="platt")
    assert_allclose([fitted.slope, fitted.intercept], [slope, intercept], rtol=0.08, atol=0.08)


@pytest.mark.parametrize("seed", first_of(range(4)))
def test_temperature_is_the_best_of_a_fine_grid_and_agrees_with_scikit_learn(seed: int) -> None:
    margins, labels = drawn_as(seed, 80, 0.4)
    fitted: Any = calibrating.fit_calibration(margins, labels, "temperature")
    best = metrics.nll(fitted.logits(margins), labels)
    grid = np.exp(np.linspace(-10, 10, 4001))
    assert best <= min(metrics.nll(slope * margins, labels) for slope in grid)
    reference = _TemperatureScaling().fit(margins.reshape(-1, 1), labels)
    assert_allclose(fitted.slope, 2 * reference.beta_, rtol=1e-4)  # it turns a binary x into (-x, x)


@pytest.mark.parametrize("seed", first_of(range(4)))
@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_platt_agrees_with_scikit_learn(seed: int, shift: float) -> None:
    margins, labels = drawn_as(seed, 80, 0.4, -1.0)
    margins = margins + shift
    fitted: Any = calibrating.fit_calibration(margins, labels, "platt")
    reference = _SigmoidCalibration().fit(margins, labels)
    assert_allclose(fitted.predict(margins), reference.predict(margins), atol=2e-5)


@pytest.mark.parametrize("method", ["none", "temperature", "platt", "auto"])
def test_calibration_never_changes_the_ranking(method) -> None:
    margins, labels = drawn_as(3, 500, 0.3, -1.0)
    p = calibrating.fit_calibration(margins, labels, method).predict(margins)
    assert metrics.roc_auc(p, labels) == metrics.roc_auc(margins, labels)


def test_perfectly_separated_rows_flag_the_temperature_and_auto_stays_finite() -> None:
    margins, labels = np.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0] * 5), np.array([0, 0, 0, 1, 1, 1] * 5)
    assert calibrating.fit_calibration(margins, labels, "temperature").at_bound
    chosen = calibrating.fit_calibration(margins, labels, "auto")
    assert chosen.method != "temperature"
    assert 0.001 < chosen.predict(-1.0) < chosen.predict(1.0) < 0.999


@pytest.mark.parametrize("method", ["temperature", "platt"])
def test_margins_that_rank_the_wrong_way_are_flagged_and_flattened_not_reversed(method) -> None:
    margins, labels = drawn_as(4, 300, -1.0, 0.0)
    fitted: Any = calibrating.fit_calibration(margins, labels, method)
    assert fitted.at_bound
    assert fitted.slope > 0
    assert_allclose(fitted.predict(margins), np.mean(labels) if method == "platt" else 0.5, atol=0.01)


def test_equal_margins_give_the_positive_rate() -> None:
    fitted: Any = calibrating.fit_calibration(np.full(400, 5.0), np.arange(400) % 4 == 0, "platt")
    assert_allclose(fitted.predict(5.0), 0.25, atol=0.005)


@pytest.mark.parametrize(("slope", "intercept"), [(1.0, 0.0), (0.2, 0.0), (0.5, -1.5)])
def test_auto_comes_close_to_the_truth_whichever_method_it_takes(slope: float, intercept: float) -> None:
    fitted: Any = calibrating.fit_calibration(*drawn_as(5, 2_000, slope, intercept))
    some = np.array([-2.0, 0.0, 2.0])
    assert_allclose(fitted.predict(some), sigmoid(slope * some + intercept), atol=0.03)
    assert fitted.method == "platt" or intercept == 0


def test_auto_judges_by_groups_held_out() -> None:
    # Each group repeats one row: folds that part copies would reward the method that memorises them.
    margins, labels = drawn_as(6, 40, 0.5)
    groups = np.repeat(np.arange(40), 5)
    folds = calibrating.grouped_folds(np.repeat(labels, 5), groups)
    assert all(len(set(folds[groups == g])) == 1 for g in range(40))
    logits = calibrating.cross_fitted_logits(np.repeat(margins, 5), np.repeat(labels, 5), folds, "platt")
    for fold in set(folds):
        out = folds == fold
        alone = calibrating.fit_calibration(np.repeat(margins, 5)[~out], np.repeat(labels, 5)[~out], "platt")
        assert_allclose(logits[out], alone.logits(np.repeat(margins, 5)[out]), rtol=1e-12)


@pytest.mark.parametrize(
    ("margins", "labels", "says"),
    [
        ([], [], "got 0 and 0"),
        ([1.0], [1], "got 1 and 0"),
        ([1.0, 2.0, 3.0], [1, 1, 1], "got 3 and 0"),
        ([1.0, 2.0, 3.0], [1, 1, 0], "at least 2 supported and 2 other"),
        ([1.0, 2.0, math.nan, 0.0], [1, 1, 0, 0], "leave failed rows out"),
        ([1.0, 2.0, 0.0, 0.0], [1, 1, 0, math.nan], "leave unlabelled rows out"),
        ([1.0, 2.0], [1], "align"),
    ],
)
def test_rows_that_cannot_be_fitted_are_refused_with_the_remedy(margins: list, labels: list, says: str) -> None:
    with pytest.raises(CalibrationError, match=says):
        calibrating.fit_calibration(margins, labels)


def test_one_group_is_refused_because_nothing_can_be_held_out() -> None:
    margins, labels = drawn_as(7, 50)
    with pytest.raises(CalibrationError, match="more groups"):
        calibrating.fit_calibration(margins, labels, groups=np.zeros(50))


# Decisions ------------------------------------------------------------------------------------------------------------


def test_thresholds_are_chosen_on_corrected_probabilities() -> None:
    rng = np.random.default_rng(17)
    rows = [dataclasses.replace(p, role=f"role{i % 2}") for i, p in enumerate(_predictions(60, 10))]
    is_so = [rng.random() < sigmoid(0.4 * p.margin + (2 if p.role == "role1" else -2)) for p in rows]
    rows = [dataclasses.replace(p, label="supported" if y else "refuted") for p, y in zip(rows, is_so, strict=True)]
    decision = calibrating.fit_decision(rows, "platt", per_group=PerGroup("role"))
    plain = calibrating.fit_decision(rows, "platt")
    assert decision.calibration.by_group is not None
    assert set(decision.calibration.by_group.corrections) == {"role0", "role1"}
    assert decision.point("balanced_accuracy").metric > plain.point("balanced_accuracy").metric


def test_a_prior_is_estimated_from_rows_whose_labels_are_not_looked_at() -> None:
    rows = _predictions(n_groups=200, per_group=10)
    # Of other rows, four in five supported ones are dropped: the rate falls, what rows look like does not.
    other = _predictions(n_groups=400, per_group=10, split="test", seed=1)
    other = [p for i, p in enumerate(other) if p.label != "supported" or i % 5 == 0]
    blind = [dataclasses.replace(p, label=None) for p in other]
    calibration = calibrating.fit_decision(rows, "platt", prior=blind).calibration
    assert calibration.fitted_on["prior_estimate"]["converged"]
    assert calibration.prior == pytest.approx(np.mean([p.label == "supported" for p in other]), abs=0.05)


@pytest.mark.parametrize("n", only([60], [60, 100, 400]))
def test_auto_corrects_small_sets_and_never_loses_much_to_the_best_single_method(n: int) -> None:
    """Margins twice too sure: what is left, in nats beyond the truth."""
    test = 1.5 * np.random.default_rng(0).normal(size=20_000)
    q = sigmoid(test)
    lost: dict[str, list[float]] = {}
    for seed in range(25):
        rng = np.random.default_rng(seed + 1)
        x = 1.5 * rng.normal(size=n)
        y = (rng.random(n) < sigmoid(x)).astype(float)
        for method in ("auto", "platt", "temperature"):
            logits = calibrating.fit_calibration(2 * x, y, method, np.arange(n) // 3).logits(2 * test)
            loss = np.mean(q * np.logaddexp(0, -logits) + (1 - q) * np.logaddexp(0, logits))
            least = np.mean(q * np.logaddexp(0, -test) + (1 - q) * np.logaddexp(0, test))
            lost.setdefault(method, []).append(float(loss - least))
    best = min(np.mean(lost["platt"]), np.mean(lost["temperature"]))
    assert np.mean(lost["auto"]) < best + 1.2 / n


def test_what_reaches_a_target_on_these_rows_alone_is_said_beside_what_can_be_promised() -> None:
    decision = calibrating.fit_decision(
        _predictions(), "platt", ["precision_at:0.7", "recall_at:0.9"], abstain=("selective_accuracy", 0.8)
    )
    assert [promised for _, promised in unpromised(decision)] == [
        "--control-risk false_discovery_rate:0.3:0.1",
        "--control-risk miss_rate:0.1:0.1",
        "--abstain selective_accuracy_guaranteed:0.8:0.1",
    ]


# The program ---------------------------------------------------------------------------------------------------------


def test_the_program_writes_what_can_be_applied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = dataclasses.replace(
        _predictions()[0], pair_id="failed", margin=math.nan, p_supported=math.nan, error="gone.mp4: missing"
    )
    predictions = [*_predictions(), failed]
    path, out = tmp_path / "calibration.parquet", tmp_path / "calibrated"
    write_predictions(path, predictions, {"verifier_fingerprint": "f00d"})
    assert main(["--predictions", str(path), "--out", str(out), "--objective", "balanced_accuracy"]) == 0
    decision = read_decision(out)
    assert (decision.calibration.n, decision.calibration.n_groups) == (120, 20)
    assert decision.calibration.fitted_on["verifier_fingerprint"] == "f00d"
    assert len(decision.calibration.fitted_on["predictions_sha256"]) == 64
    assert decision.default == "balanced_accuracy"
    assert json.loads((out / "fitted_rows.json").read_text())["pair_ids"] == sorted(p.pair_id for p in predictions)
    assert "120 of 121 rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("predictions", "got"),
    [
        (_predictions(split="test"), r"got rows of \['test'\]"),
        (
            [*_predictions(), dataclasses.replace(_predictions(split="train")[0], pair_id="x")],
            r"'calibration', 'train'",
        ),
        ([], r"got rows of \[\]"),
    ],
)
def test_only_the_calibration_split_is_fitted_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], predictions: list[Prediction], got: str
) -> None:
    path = tmp_path / "p.parquet"
    write_predictions(path, predictions, {})
    with pytest.raises(CalibrationError, match=got):
        calibrating.fit_decision(predictions)
    assert main(["--predictions", str(path), "--out", str(tmp_path / "out")]) == 1
    message = capsys.readouterr().err
    assert str(path) in message
    assert re.search(got, message)
    assert not (tmp_path / "out").exists()


def test_the_same_predictions_give_the_same_files(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    write_predictions(path, _predictions(), {})
    for name in ("a", "b"):
        main(["--predictions", str(path), "--out", str(tmp_path / name)])
    for name in ("calibration.json", "thresholds.json", "fitted_rows.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_program_says_what_it_chose_from_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [dataclasses.replace(p, role=f"role{i % 2}") for i, p in enumerate(_predictions(n_groups=100))]
    write_predictions(tmp_path / "c.parquet", rows, {"aggregation": "max of 3 windows"})
    write_predictions(tmp_path / "t.parquet", _predictions(seed=5, split="test"), {})
    command = ["--predictions", str(tmp_path / "c.parquet"), "--out", str(tmp_path / "out")]
    command += ["--objective", "precision_at:0.6", "f1", "--per-group", "role", "--min-group-n", "50"]
    assert main([*command, "--prior-from", str(tmp_path / "t.parquet")]) == 0
    said = capsys.readouterr().out
    for words in ("chosen", "nats, difference ±", "not tried: 600 rows", "per group", "by EM on 120 rows, converged"):
        assert words in said
    decision = read_decision(tmp_path / "out")
    assert decision.default == "precision_at_0.6"
    assert decision.calibration.aggregation == "max of 3 windows"
    assert decision.calibration.by_group is not None
    assert decision.calibration.prior == decision.calibration.fitted_on["prior_estimate"]["prior"]


@pytest.mark.parametrize("method", CALIBRATORS)
def test_the_program_takes_every_method(tmp_path: Path, capsys: pytest.CaptureFixture[str], method) -> None:
    path, out = tmp_path / "c.parquet", tmp_path / "out"
    write_predictions(path, _predictions(), {})
    assert main(["--predictions", str(path), "--out", str(out), "--method", method, "--prior", "0.2"]) == 0
    calibration = read_decision(out).calibration
    assert (calibration.method, calibration.prior) == (method, 0.2)
    assert ("WARNING" in capsys.readouterr().out) == (CALIBRATORS[method].fewest_rows > 0)


@pytest.mark.parametrize("extra", [["--objective", "f7"], ["--prior", "1.5"], ["--prior-from", "nowhere.parquet"]])
def test_the_program_refuses_what_it_cannot_do(tmp_path: Path, capsys: pytest.CaptureFixture[str], extra) -> None:
    write_predictions(tmp_path / "c.parquet", _predictions(), {})
    assert main(["--predictions", str(tmp_path / "c.parquet"), "--out", str(tmp_path / "out"), *extra]) == 1
    assert capsys.readouterr().err.startswith("error: ")
    assert not (tmp_path / "out").exists()
