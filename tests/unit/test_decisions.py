"""Stored decisions: exact through JSON, files of earlier versions still read, damaged ones are named."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from proofreel.core.errors import CalibrationError
from proofreel.models.decision.calibration import IDENTITY
from proofreel.models.decision.stored import Guarantee, StoredInterval
from proofreel.models.decision.thresholds import (
    THRESHOLDS_FILE,
    AbstainBand,
    Decision,
    OperatingPoint,
    read_decision,
    write_decision,
)

POINT = OperatingPoint("f1", "f1", 0.1 + 0.2, 2 / 3, tp=1, fp=1, tn=0, fn=0, positive_rate=0.5)
FULL = OperatingPoint(
    name="false_support_rate_0.1",
    objective="risk_control",
    threshold=0.7,
    metric=1 / 30,
    tp=8,
    fp=1,
    tn=19,
    fn=2,
    positive_rate=1 / 3,
    target=0.1,
    cost_fp=5.0,
    cost_fn=1.0,
    interval=StoredInterval(0.0, 0.1, 0.95),
    sensitivity_interval=StoredInterval(0.5, 1 / 1.1, 0.95),
    specificity_interval=StoredInterval(0.9, 1.0, 0.9),
    guarantee=Guarantee("false_support_rate", 0.1, 0.05, "learn_then_test", 24),
    n_groups=24,
)
BAND = AbstainBand(0.7, 0.3, "max_abstention", 0.2, 8, 1, 9, 2, 5, 5, coverage_interval=StoredInterval(0.5, 0.8, 0.95))


# Points --------------------------------------------------------------------------------------------------------------


def test_positive_means_at_or_above_the_threshold() -> None:
    assert POINT.decide([0.3, 0.1 + 0.2, 0.31, math.nan]).tolist() == [False, True, True, False]


def test_rates_are_those_of_the_counts_and_nan_without_the_class() -> None:
    assert (FULL.n, FULL.sensitivity, FULL.specificity) == (30, 0.8, 0.95)
    empty = dataclasses.replace(POINT, tp=0, fp=0)
    assert empty.n == 0
    assert math.isnan(empty.sensitivity)
    assert math.isnan(empty.specificity)


@pytest.mark.parametrize("point", [POINT, FULL, dataclasses.replace(FULL, guarantee=None, target=None)])
def test_a_point_survives_json_bit_for_bit(point: OperatingPoint) -> None:
    assert OperatingPoint.from_dict(json.loads(json.dumps(point.to_dict(), allow_nan=False))) == point


def test_a_point_without_the_newer_fields_is_written_as_it_was_before_them() -> None:
    assert list(POINT.to_dict()) == [
        "name",
        "objective",
        "threshold",
        "metric",
        "tp",
        "fp",
        "tn",
        "fn",
        "positive_rate",
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"objective": "accuracy"}, "unknown objective"),
        ({"objective": ["f1"]}, "unknown objective"),
        ({"threshold": math.nan}, "finite number >= 0"),
        ({"threshold": -0.1}, "finite number >= 0"),
        ({"threshold": "0.5"}, "finite number >= 0"),
        ({"tp": -1}, "tp must be a count"),
        ({"fn": 0.5}, "fn must be a count"),
        ({"fp": True}, "fp must be a count"),
        ({"n_groups": -3}, "n_groups must be a count"),
        ({"interval": {"low": 0.9, "high": 0.1, "level": 0.95}}, "interval.*low <= high"),
        ({"interval": {"low": 0.1, "high": 0.9, "level": 95}}, "level between 0 and 1"),
        ({"interval": {"low": None, "high": 0.9, "level": 0.95}}, "low <= high"),
        ({"interval": {"low": 0.1}}, "interval: keys are missing"),
        ({"sensitivity_interval": [0, 1]}, "sensitivity_interval: must be a JSON object"),
        ({"guarantee": {"risk": "x"}}, "guarantee: keys are missing"),
        ({"guarantee": {**FULL.to_dict()["guarantee"], "at_most": 1.5}}, "at_most must lie between 0 and 1"),
        ({"guarantee": {**FULL.to_dict()["guarantee"], "delta": 0}}, "delta must lie between 0 and 1"),
        ({"extra": 1}, "unknown keys"),
    ],
)
def test_a_damaged_point_is_refused(change: dict, says: str) -> None:
    with pytest.raises(CalibrationError, match=says):
        OperatingPoint.from_dict({**FULL.to_dict(), **change})


# Decisions -----------------------------------------------------------------------------------------------------------


def test_points_are_found_by_name() -> None:
    decision = Decision(IDENTITY, (POINT, dataclasses.replace(POINT, name="b")), "b")
    assert decision.point().name == "b"
    assert decision.point("f1") == POINT
    with pytest.raises(CalibrationError, match="no such operating point"):
        decision.point("c")
    with pytest.raises(CalibrationError, match="names must differ"):
        Decision(IDENTITY, (POINT, POINT), "f1")


def test_a_default_that_is_no_point_is_named_with_its_file(tmp_path: Path) -> None:
    _, path = write_decision(tmp_path, Decision(IDENTITY, (POINT,), "f1"))
    path.write_text(path.read_text().replace('"default": "f1"', '"default": ""'))
    with pytest.raises(CalibrationError, match=f"^{path}: names must differ and hold the default"):
        read_decision(tmp_path)


@pytest.mark.parametrize("abstain", [None, BAND])
def test_a_decision_survives_its_files_bit_for_bit(tmp_path: Path, abstain: AbstainBand | None) -> None:
    decision = Decision(IDENTITY, (POINT, FULL), FULL.name, abstain)
    write_decision(tmp_path, decision)
    again = read_decision(tmp_path)
    assert again == decision
    if abstain is not None:
        p = np.linspace(0, 1, 11)
        assert again.abstain is not None
        assert again.abstain.decide(p).tolist() == abstain.decide(p).tolist()


@pytest.mark.parametrize("old", ["kitchen-verifier"])
def test_files_of_earlier_versions_read_and_are_written_as_they_were(tmp_path: Path, old: str) -> None:
    folder = Path(__file__).resolve().parents[2] / "checkpoints" / old
    decision = read_decision(folder)
    assert decision.abstain is None
    assert decision.point().n == 1920
    write_decision(tmp_path, decision)
    assert json.loads((tmp_path / THRESHOLDS_FILE).read_text()) == json.loads((folder / THRESHOLDS_FILE).read_text())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read"),
        ("{", "is not JSON"),
        ('{"default": "f1", "points": []}', "points: .* should be non-empty"),
        ('{"default": "f1"}', "missing"),
        ('{"default": "f1", "points": 3}', "points: 3 is not of type 'array'"),
        ('{"default": "f1", "points": [3]}', r"points\[0\]: 3 is not of type 'object'"),
        ('{"default": "f1", "points": [{"name": "f1"}]}', "missing"),
        (json.dumps({"default": "f1", "points": [POINT.to_dict()], "abstain": {"target": 0.9}}), "abstain.*missing"),
        (
            json.dumps({"default": "f1", "points": [POINT.to_dict()], "abstain": 3}),
            "abstain: 3 is not of type 'object'",
        ),
        (json.dumps({"default": "f1", "points": [POINT.to_dict()], "more": 3}), "unknown keys"),
    ],
)
def test_a_damaged_thresholds_file_is_named(tmp_path: Path, text: str | None, says: str) -> None:
    write_decision(tmp_path, Decision(IDENTITY, (POINT,), "f1"))
    path = tmp_path / THRESHOLDS_FILE
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(CalibrationError, match=says) as caught:
        read_decision(tmp_path)
    assert THRESHOLDS_FILE in str(caught.value)
