"""Verifiers are compared on the same pairs, each by its own decision, and what cannot be compared is counted."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest, false_discovery_control
from sklearn import metrics as sk

from proofreel.core.errors import ProofreelError
from proofreel.eval.calibrate import main as calibrate
from proofreel.eval.calibration.fit import fit_decision
from proofreel.eval.metrics import metric_rows
from proofreel.eval.report import main
from proofreel.eval.reports.compare import UNCALIBRATED, Contender, compare, compare_pair, contender, read_contender
from proofreel.eval.reports.numbers import measure
from proofreel.eval.reports.page import jsonable, measure_files
from proofreel.eval.scoring.predictions import Prediction, groups_of, labels_of, margins_of, write_predictions
from proofreel.eval.uncertainty.paired_tests import difference_intervals
from proofreel.models.decision.calibrator import sigmoid

DRAWS = 200


def _rows(noise: float, split: str = "test", n: int = 300, seed: int = 0, scale: float = 1.0) -> list[Prediction]:
    truth, rng = np.random.default_rng(7), np.random.default_rng(seed)
    positive, group = truth.random(n) < 0.45, truth.integers(30, size=n)
    margins = (scale * (2.0 * positive - 1 + noise * rng.normal(size=n))).astype(np.float32)
    return [
        Prediction(
            pair_id=f"{split}-{i}",
            margin=float(m),
            p_supported=float(sigmoid(m)),
            label="supported" if y else "refuted",
            split=split,
            group=f"{split}-v{g}",
            role="Action",
            origin="annotated",
            modality="visual",
        )
        for i, (m, y, g) in enumerate(zip(margins, positive, group, strict=True))
    ]


def _contender(name: str, noise: float, seed: int, scale: float = 1.0) -> Contender:
    decision = fit_decision(_rows(noise, "calibration", seed=seed + 50, scale=scale), "platt")
    return contender(name, _rows(noise, seed=seed, scale=scale), decision, {"pair_ids": [], "groups": []})


def test_values_and_differences_are_those_of_the_matched_rows() -> None:
    good, poor = _contender("good", 1.0, 1), _contender("poor", 2.0, 2, scale=9.0)
    found = compare_pair(good, poor, DRAWS)
    y = labels_of(good.scored.predictions)
    for side, each in (("first", good), ("second", poor)):
        said = each.scored.p >= each.scored.point.threshold
        expected = {
            "auc": sk.roc_auc_score(y, each.scored.margins),
            "f1": sk.f1_score(y, said),
            "balanced_accuracy": sk.balanced_accuracy_score(y, said),
            "brier": sk.brier_score_loss(y, each.scored.p),
            "nll": sk.log_loss(y, each.scored.p),
        }
        assert {k: found["metrics"][k][side] for k in expected} == pytest.approx(expected, rel=1e-9)
    auc = found["metrics"]["auc"]
    assert auc["difference"] == pytest.approx(auc["first"] - auc["second"])
    assert auc["interval"]["low"] > 0
    assert auc["p_value"] < 0.05
    one, other = (metric_rows(c.scored.margins, c.scored.p, y, c.scored.point.threshold) for c in (good, poor))
    again = difference_intervals(one, other, groups_of(good.scored.predictions), DRAWS)
    assert auc["interval"] == dataclasses.asdict(again["auc"])
    right = [(c.scored.p >= c.scored.point.threshold) == y for c in (good, poor)]
    b, c = int(np.sum(right[0] & ~right[1])), int(np.sum(right[1] & ~right[0]))
    test = found["mcnemar"]
    assert (test["only_first_right"], test["only_second_right"]) == (b, c)
    assert test["p_exact"] == pytest.approx(binomtest(b, b + c).pvalue)
    assert found["delong"]["value"] == pytest.approx(auc["difference"])


def test_a_verifier_does_not_differ_from_itself() -> None:
    one = _contender("one", 1.5, 3)
    found = compare_pair(one, dataclasses.replace(one, name="again"), DRAWS)
    for name, metric in found["metrics"].items():
        assert metric["difference"] == 0
        assert (metric["interval"]["low"], metric["interval"]["high"]) == (0, 0)
        assert metric["p_value"] == 1 or name == "accuracy_at_coverage"
    assert found["mcnemar"]["p_exact"] == 1


def test_rows_are_matched_by_pair_id_and_what_is_left_out_is_counted() -> None:
    first, second = _rows(1.0), _rows(2.0, seed=1)[::-1]
    first[0] = dataclasses.replace(first[0], margin=math.nan, p_supported=math.nan, error="gone")
    first[1] = dataclasses.replace(first[1], label=None)
    second = [dataclasses.replace(r, label=None) if r.pair_id == "test-1" else r for r in second]
    second = [r for r in second if r.pair_id not in {f"test-{i}" for i in range(5, 10)}]
    found = compare_pair(contender("a", first[:295], UNCALIBRATED), contender("b", second, UNCALIBRATED), DRAWS)
    assert (found["n_only_first"], found["n_only_second"]) == (5, 5)
    assert (found["n_failed"], found["n_unlabelled"], found["n"]) == (1, 1, 288)


def test_all_pairs_are_compared_and_p_values_adjusted_over_all_tests() -> None:
    contenders = [_contender("a", 1.0, 1), _contender("b", 1.2, 2), _contender("c", 3.0, 3)]
    found = compare(contenders, DRAWS)
    assert [(c["first"], c["second"]) for c in found["comparisons"]] == [("a", "b"), ("a", "c"), ("b", "c")]
    cells = [m for c in found["comparisons"] for m in c["metrics"].values() if not math.isnan(m["p_value"])]
    assert found["n_tests"] == len(cells) == 18
    expected = false_discovery_control([cell["p_value"] for cell in cells])
    assert [cell["adjusted_p"] for cell in cells] == pytest.approx(list(expected))
    assert [row["name"] for row in found["verifiers"]] == ["a", "b", "c"]


def test_side_by_side_rows_stand_on_the_pairs_all_hold() -> None:
    a, b = _rows(1.0)[:250], _rows(2.0, seed=1)[50:]
    found = compare([contender("a", a, UNCALIBRATED), contender("b", b, UNCALIBRATED)], DRAWS)
    assert [row["n"] for row in found["verifiers"]] == [200, 200]
    assert found["verifiers"][0]["auc"] == pytest.approx(sk.roc_auc_score(labels_of(a[50:]), margins_of(a[50:])))


def test_nothing_in_common_is_said_and_undefined() -> None:
    found = compare(
        [contender("a", _rows(1.0), UNCALIBRATED), contender("b", _rows(1.0, "other"), UNCALIBRATED)], DRAWS
    )
    (pair,) = found["comparisons"]
    assert pair["n"] == 0
    assert all(math.isnan(metric["difference"]) for metric in pair["metrics"].values())
    json.dumps(jsonable(found), allow_nan=False)


@pytest.mark.parametrize("change", [{"label": "refuted"}, {"label": "supported"}, {"group": "elsewhere"}])
def test_files_that_disagree_about_a_pair_are_refused(change: dict) -> None:
    rows = _rows(1.0)
    other = [dataclasses.replace(row, **change) for row in rows]
    with pytest.raises(ProofreelError, match="has two"):
        compare([contender("a", rows, UNCALIBRATED), contender("b", other, UNCALIBRATED)], DRAWS)


def test_names_must_differ() -> None:
    one = contender("a", _rows(1.0), UNCALIBRATED)
    with pytest.raises(ProofreelError, match="different names"):
        compare([one, one], DRAWS)


def test_a_control_of_other_pairs_is_measured_but_not_subtracted() -> None:
    decision = fit_decision(_rows(1.0, "calibration"), "platt")
    relabelled = [dataclasses.replace(row, label="refuted") for row in _rows(1.0)]
    same = _rows(8.0, seed=4)
    numbers = measure(_rows(1.0), decision, controls=[("relabelled", relabelled), ("blind", same)])
    assert [c["name"] for c in numbers["controls"]] == ["relabelled", "blind"]
    assert [c["second"] for c in numbers["control_differences"]] == ["blind"]
    assert any("relabelled is not of the same pairs" in text for text in numbers["remarks"])
    auc = numbers["control_differences"][0]["metrics"]["auc"]
    assert auc["interval"]["low"] > 0
    assert auc["adjusted_p"] < 0.05


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    for name, noise in (("ours", 1.0), ("other", 2.0)):
        write_predictions(folder / f"{name}.parquet", _rows(noise), {})
        write_predictions(folder / f"{name}-cal.parquet", _rows(noise, "calibration", seed=9), {})
        assert calibrate(["--predictions", str(folder / f"{name}-cal.parquet"), "--out", str(folder / name)]) == 0
    return folder


def test_the_command_compares_files_and_python_gives_the_same_numbers(files: Path, capsys) -> None:
    inputs = ["--predictions", str(files / "ours.parquet"), "--calibration", str(files / "ours")]
    texts = [f"other={files / 'other.parquet'}:{files / 'other'}", f"plain={files / 'other.parquet'}"]
    options = [word for text in texts for word in ("--compare", text)]
    assert main([*inputs, "--out", str(files / "out"), "--clips", "0", *options]) == 0
    stored = json.loads((files / "out" / "metrics.json").read_text())
    compared = [read_contender(text) for text in texts]
    assert jsonable(measure_files(files / "ours.parquet", files / "ours", compared=compared)) == stored
    pair = stored["compare"]["comparisons"][0]
    assert (pair["first"], pair["second"]) == ("this verifier", "other")
    plain = stored["compare"]["verifiers"][2]
    assert plain["brier_after"] == plain["brier_before"]
    assert "AUC" in capsys.readouterr().out
    page = (files / "out" / "report.html").read_text()
    assert "this verifier against other" in page
    assert "not calibrated: p = sigmoid(margin)" in page


def test_a_verifier_compared_on_rows_it_was_fitted_on_is_marked(files: Path) -> None:
    inputs = ["--predictions", str(files / "ours-cal.parquet"), "--calibration", str(files / "ours")]
    compare_with = ["--compare", f"other={files / 'other-cal.parquet'}:{files / 'other'}"]
    assert main([*inputs, "--out", str(files / "in"), "--clips", "0", *compare_with]) == 0
    text = (files / "in" / "report.md").read_text()
    headers = [b for a, b in zip(text.splitlines(), text.splitlines()[2:], strict=False) if a.startswith("## ")]
    tables = [line for line in headers if line.startswith("|")]
    assert len(tables) > 8
    assert all(line.startswith("| IN-SAMPLE") for line in tables)
    page = (files / "in" / "report.html").read_text()
    figures = page.split("<svg")[1:]
    assert len(figures) == 5
    assert all("IN-SAMPLE" in figure.split("</svg>")[0] for figure in figures)
    assert page.count("<table") == page.count('<span class="mark">IN-SAMPLE')


@pytest.mark.parametrize("text", ["nameless.parquet", "x=", "x=missing.parquet", "x=missing.parquet:folder"])
def test_what_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ProofreelError, match=r"--compare|missing"):
        read_contender(text)
