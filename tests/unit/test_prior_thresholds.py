"""Laws of thresholds under a stated share of supported claims: what is promised is what rows of that share show."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from nightly import nightly
from numpy.testing import assert_allclose

from proofreel.core.errors import CalibrationError
from proofreel.eval.calibration.fit import fit_decision
from proofreel.eval.decisions.prevalence import corrected_proportion
from proofreel.eval.decisions.thresholds import fit_points
from proofreel.eval.scoring.predictions import Prediction
from proofreel.models.decision.counts import confusion
from proofreel.models.decision.criteria import criterion_of, criterion_value
from proofreel.models.decision.restated import with_prior
from proofreel.models.decision.thresholds import AbstainBand, Decision, OperatingPoint, read_decision, write_decision

GOALS = ["f1", "precision_at:0.9", "cost:5:1", "recall_at:0.8"]
BAND = ("selective_accuracy", 0.9)


def _rows(seed: int, n_positive: int, n_negative: int, split: str = "calibration") -> list[Prediction]:
    rng = np.random.default_rng(seed)
    y = np.r_[np.ones(n_positive), np.zeros(n_negative)]
    margins = rng.normal(2.5 * y - 1.25, 1.0)
    group = np.r_[np.arange(n_positive), np.arange(n_negative)] // 4
    return [
        Prediction(f"{i}", float(m), 0.5, "supported" if is_so else "refuted", split, f"v{g}", "r", "o", "video")
        for i, (m, is_so, g) in enumerate(zip(margins, y, group, strict=True))
    ]


def _found(decision: Decision, rows: list[Prediction], name: str) -> float:
    point = decision.point(name)
    p = decision.calibration.predict(np.array([r.margin for r in rows]))
    y = np.array([r.label == "supported" for r in rows])
    return float(criterion_value(criterion_of(point), confusion(point.decide(p), y)))


@pytest.fixture(scope="module")
def fitted() -> Decision:
    return fit_decision(_rows(0, 1500, 1500), "platt", GOALS, abstain=BAND)


@pytest.fixture(scope="module")
def elsewhere() -> list[Prediction]:
    """Rows of which one in ten is supported."""
    return _rows(1, 3_000, 27_000, "test")


@pytest.mark.parametrize("way", ["at export", "at use", nightly("at use, back and forth")])
def test_what_is_printed_for_a_share_is_what_rows_of_that_share_show(way, fitted: Decision, elsewhere) -> None:
    if way == "at export":
        decision = fit_decision(_rows(0, 1500, 1500), "platt", GOALS, prior=0.1, abstain=BAND)
    else:
        decision = with_prior(fitted if way == "at use" else with_prior(fitted, 0.6), 0.1)
    for goal in ("precision_at_0.9", "cost_5_1", "f1", "recall_at_0.8"):
        point = decision.point(goal)
        assert point.prior == 0.1
        assert (point.tp + point.fn) / point.n == pytest.approx(0.1)
        assert point.metric == pytest.approx(float(criterion_value(criterion_of(point), point_counts(point))))
        assert _found(decision, elsewhere, goal) == pytest.approx(point.metric, abs=0.06), goal
    p = decision.calibration.predict(np.array([r.margin for r in elsewhere]))
    y = np.array([r.label == "supported" for r in elsewhere])
    best = min(np.mean(5.0 * (said & ~y) + (~said & y)) for said in (p >= t for t in np.linspace(0, 1, 400)))
    assert _found(decision, elsewhere, "cost_5_1") < best + 0.005
    band = decision.abstain
    assert band is not None
    state = band.decide(p)
    decided = state != "abstain"
    assert np.mean((state == "supported")[decided] == y[decided]) == pytest.approx(band.selective_accuracy, abs=0.03)
    assert decided.mean() == pytest.approx(band.coverage, abs=0.03)


def point_counts(point: OperatingPoint) -> tuple[float, float, float, float]:
    return point.tp, point.fp, point.tn, point.fn


def _found_cost(said: np.ndarray, rows: list[Prediction]) -> float:
    y = np.array([r.label == "supported" for r in rows])
    return float(np.mean(5.0 * (said & ~y) + (~said & y)))


def test_weighting_to_the_rate_of_the_rows_changes_no_choice() -> None:
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 300)
    p, groups = rng.beta(1 + y, 2 - y), np.arange(300) // 3
    for plain, stated in zip(
        fit_points(p, y, groups, GOALS), fit_points(p, y, groups, GOALS, prior=float(y.mean())), strict=True
    ):
        assert stated.threshold == plain.threshold
        assert_allclose(point_counts(stated), point_counts(plain))
        assert stated.metric == pytest.approx(plain.metric)
        assert plain.prior is None
        assert isinstance(plain.tp, int)


def test_an_interval_for_a_stated_share_covers_what_is_there(elsewhere) -> None:
    decision = fit_decision(_rows(0, 1500, 1500), "platt", "cost:5:1", prior=0.1)
    interval = decision.point().interval
    assert interval is not None
    assert interval.low - 0.005 < _found(decision, elsewhere, "cost_5_1") < interval.high + 0.005


def test_going_back_is_the_decision_as_fitted_and_the_file_keeps_the_curve(fitted: Decision, tmp_path: Path) -> None:
    assert with_prior(with_prior(fitted, 0.1), None) == fitted
    write_decision(tmp_path, fitted)
    assert with_prior(read_decision(tmp_path), 0.1) == with_prior(fitted, 0.1)
    stated = with_prior(fitted, 0.1)
    write_decision(tmp_path, stated)
    assert read_decision(tmp_path).points == stated.points


def test_a_target_out_of_reach_at_a_share_calls_nothing_supported_and_says_so() -> None:
    rows = _rows(0, 1500, 1500)
    rows[-1] = dataclasses.replace(rows[-1], margin=50.0)  # the surest of all is wrong
    point = with_prior(fit_decision(rows, "platt", GOALS), 1e-6).point("precision_at_0.9")
    assert not point.decide([0.0, 0.5, 1.0]).any()
    assert "out of reach" in str(point.caution)


def test_promises_about_one_class_carry_over_and_others_are_withdrawn() -> None:
    risks = [("false_support_rate", 0.1, 0.1), ("miss_rate", 0.2, 0.1), ("false_discovery_rate", 0.2, 0.1)]
    rows = _rows(0, 1500, 1500)
    fitted = fit_decision(rows, "platt", risks=risks)  # type: ignore[arg-type]
    moved, margins = with_prior(fitted, 0.1), np.array([r.margin for r in rows])
    for name, *_ in risks:
        old, new = (next(p for p in d.points if p.name.startswith(name)) for d in (fitted, moved))
        said = [point.decide(d.calibration.predict(margins)) for point, d in ((old, fitted), (new, moved))]
        assert np.array_equal(said[0], said[1])
        assert new.sensitivity == pytest.approx(old.sensitivity)
        assert (new.guarantee is None) == (name == "false_discovery_rate")
        assert (new.caution is not None) == (name == "false_discovery_rate")
    with pytest.raises(CalibrationError, match="does not carry over"):
        fit_decision(rows, "platt", prior=0.1, risks=risks[2:])  # type: ignore[arg-type]
    assert fit_decision(rows, "platt", prior=0.1, risks=risks[:2]).points[-1].guarantee  # type: ignore[arg-type]


def test_a_directory_without_a_curve_keeps_its_thresholds_and_says_so(fitted: Decision, tmp_path: Path) -> None:
    write_decision(tmp_path, fitted)
    path = tmp_path / "thresholds.json"
    values = json.loads(path.read_text())
    del values["curve"]
    path.write_text(json.dumps(values))
    old = with_prior(read_decision(tmp_path), 0.1)
    assert [p.threshold for p in old.points] == [p.threshold for p in fitted.points]
    assert all("calibrate again" in str(p.caution) for p in old.points)
    assert old.calibration.prior == 0.1


def test_a_proportion_rests_on_the_rows_there_are_whatever_share_is_stated(fitted: Decision) -> None:
    bare = {"sensitivity_interval": None, "specificity_interval": None}
    plain = dataclasses.replace(fitted.point(), **bare)  # type: ignore[arg-type]
    n = 3000
    counts = {"tp": plain.tp * 0.2, "fn": plain.fn * 0.2, "fp": plain.fp * 1.8, "tn": plain.tn * 1.8}
    stated = dataclasses.replace(plain, prior=0.1, **counts)  # type: ignore[arg-type]
    assert stated.n == n
    one, other = (corrected_proportion(300, 1000, point) for point in (plain, stated))
    assert (other.value, other.low, other.high) == pytest.approx((one.value, one.low, one.high))


def test_a_band_without_a_share_counts_whole_rows(fitted: Decision) -> None:
    assert isinstance(fitted.abstain, AbstainBand)
    assert isinstance(fitted.abstain.tp, int)
