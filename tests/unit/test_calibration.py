"""Applying a calibration: stable, exact through JSON, never reversing a ranking, never turning a failure into a no."""

import dataclasses
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from nightly import first_of
from numpy.testing import assert_allclose

from proofreel.core.errors import CalibrationError
from proofreel.models.decision.calibration import (
    CALIBRATION_FILE,
    IDENTITY,
    Calibration,
    Correction,
    GroupCorrections,
    sigmoid,
)
from proofreel.models.decision.thresholds import Decision, OperatingPoint, read_decision, write_decision

POINT = OperatingPoint("f1", "f1", 0.1 + 0.2, 2 / 3, tp=1, fp=1, tn=0, fn=0, positive_rate=0.5)


def test_sigmoid_is_stable_and_keeps_nan() -> None:
    x = np.array([-1e308, -800.0, -1.0, 0.0, 1.0, 800.0, 1e308])
    with np.errstate(all="raise", under="ignore"):
        p = sigmoid(x)
    assert_allclose(p, [0, 0, 1 / (1 + math.e), 0.5, math.e / (1 + math.e), 1, 1], rtol=1e-15)
    assert_allclose(p + p[::-1], 1, rtol=1e-15)
    assert math.isnan(sigmoid(math.nan))


def test_a_failed_row_stays_a_failure() -> None:
    p = dataclasses.replace(IDENTITY, method="platt", slope=2.0, intercept=1.0).predict([math.nan, 0.0])
    assert math.isnan(p[0])
    assert p[1] == sigmoid(1.0)


@pytest.mark.parametrize("seed", first_of(range(20)))
def test_json_round_trip_is_exact(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    calibration = Calibration(
        "platt",
        slope=float(rng.lognormal(0, 5)),
        intercept=float(rng.normal(0, 1e3)),
        n=7,
        n_groups=3,
        positive_rate=float(rng.random()),
        fitted_on={"split": "calibration", "verifier_fingerprint": None},
        at_bound=bool(seed % 2),
    )
    points = (dataclasses.replace(POINT, threshold=float(rng.random())), dataclasses.replace(POINT, name="other"))
    decision = Decision(calibration, points, default="other")
    write_decision(tmp_path, decision)
    assert read_decision(tmp_path) == decision
    margins = rng.normal(0, 5, 50)
    np.testing.assert_array_equal(
        read_decision(tmp_path).calibration.predict(margins), calibration.predict(margins), strict=True
    )


def test_identity_survives_json_and_changes_nothing() -> None:
    assert Calibration.from_dict(json.loads(json.dumps(IDENTITY.to_dict()))) == IDENTITY
    assert_allclose(IDENTITY.predict([1.5, -2.0]), sigmoid([1.5, -2.0]), rtol=0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"method": "dirichlet"}, "unknown method"),
        ({"method": []}, "unknown method"),
        ({"method": "isotonic"}, r"missing, got no \['parameters'\]"),
        ({"parameters": {"a": 1.0}}, "not of this method"),
        ({"positive_rate": 1.5}, r"positive_rate must lie in \[0, 1\]"),
        ({"prior": 0.0}, "the prior must lie inside"),
        ({"by_group": {"key": "label", "corrections": {}}}, "groups are keyed by one of"),
        ({"by_group": {"key": "role", "corrections": {"A": {"slope": 1.0}}}}, "A: keys are missing"),
        ({"by_group": {"key": "role", "corrections": 3}}, "must be a JSON object"),
        ({"extra": 1}, "unknown keys"),
        ({"slope": -1.0}, "slope must be finite and > 0"),
        ({"slope": "2"}, "slope must be finite"),
        ({"slope": math.nan}, "slope must be finite"),
        ({"method": "none"}, "not of this method"),
        ({"method": "temperature", "intercept": 0.5}, "not of this method"),
    ],
)
def test_a_foreign_calibration_is_refused(change: dict, says: str) -> None:
    good = Calibration("temperature", 0.5, 0.0, 10, 2, 0.5).to_dict()
    with pytest.raises(CalibrationError, match=says):
        Calibration.from_dict({**good, **change})


def test_a_calibration_without_a_key_is_refused() -> None:
    values = IDENTITY.to_dict()
    del values["slope"]
    with pytest.raises(CalibrationError, match=r"missing, got no \['slope'\]"):
        Calibration.from_dict(values)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("calibration.json", None, "cannot be read"),
        ("calibration.json", "{", "is not JSON"),
        ("calibration.json", "[]", "the whole: .* is not of type 'object'"),
        ("thresholds.json", '{"default": "f1", "points": []}', "points: .* should be non-empty"),
        ("thresholds.json", '{"default": "f1"}', "missing"),
        ("thresholds.json", '{"default": "f1", "points": 3}', "points: 3 is not of type 'array'"),
        ("thresholds.json", '{"default": "f1", "points": [{"name": "f1"}]}', "missing"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, text: str | None, says: str) -> None:
    write_decision(tmp_path, Decision(IDENTITY, (POINT,), "f1"))
    (tmp_path / name).unlink() if text is None else (tmp_path / name).write_text(text)
    with pytest.raises(CalibrationError, match=says) as caught:
        read_decision(tmp_path)
    assert name in str(caught.value)


OLD_FILE = """{
  "method": "platt",
  "slope": 0.6514400464029956,
  "intercept": 0.3843275277617824,
  "n": 1920,
  "n_groups": 120,
  "positive_rate": 0.5,
  "fitted_on": {
    "split": "calibration",
    "predictions_sha256": "b35a",
    "verifier_fingerprint": "9d38"
  },
  "at_bound": false
}"""


def test_calibrations_written_before_there_were_other_methods_still_read_and_are_written_alike() -> None:
    calibration = Calibration.from_dict(json.loads(OLD_FILE))
    assert json.dumps(calibration.to_dict(), indent=2) == OLD_FILE
    margins = np.linspace(-20, 20, 101)
    np.testing.assert_array_equal(
        calibration.predict(margins), sigmoid(0.6514400464029956 * margins + 0.3843275277617824), strict=True
    )


def test_shipped_calibrations_are_read_and_written_back_alike() -> None:
    paths = list((Path(__file__).parents[2] / "checkpoints").glob(f"*/{CALIBRATION_FILE}"))
    assert paths
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert json.dumps(Calibration.from_dict(json.loads(text)).to_dict(), indent=2) + "\n" == text


CORRECTIONS = GroupCorrections(
    "role", {"Action": Correction(2.0, 1.0, 300, 0.5, 0.75)}, {"Object": "12 rows, fewer than 100"}
)


def test_corrections_hold_for_their_group_and_the_overall_map_for_all_others() -> None:
    overall = Calibration("platt", 0.5, 0.25, 10, 2, 0.5)
    calibration = dataclasses.replace(overall, by_group=CORRECTIONS)
    margins, keys = np.array([1.0, 1.0, 1.0, math.nan]), ["Action", "Object", "never seen", "Action"]
    assert_allclose(calibration.logits(margins, keys), [2.5, 0.75, 0.75, math.nan])
    np.testing.assert_array_equal(CORRECTIONS.known(keys), [True, False, False, True])
    np.testing.assert_array_equal(calibration.predict(margins), overall.predict(margins))  # no keys: the overall map
    np.testing.assert_array_equal(overall.predict(margins, keys), overall.predict(margins))  # no corrections
    assert_allclose(calibration.with_prior(0.1).logits(1.0, "Action"), 2.5 - math.log(9))


def test_rows_tell_their_keys_themselves() -> None:
    rows = [SimpleNamespace(role="Action", modality="visual"), SimpleNamespace(role="Object", modality="text")]
    assert IDENTITY.group_keys(rows) is None
    assert dataclasses.replace(IDENTITY, by_group=CORRECTIONS).group_keys(rows) == ["Action", "Object"]


def test_keys_must_align() -> None:
    with pytest.raises(CalibrationError, match="needs a role per margin"):
        dataclasses.replace(IDENTITY, by_group=CORRECTIONS).predict([1.0, 2.0], ["Action"])


def test_corrections_aggregation_and_prior_survive_json(tmp_path: Path) -> None:
    calibration = Calibration(
        "temperature", 0.3, 0.0, 10, 2, 0.4, aggregation="max of 5 windows", prior=0.1, by_group=CORRECTIONS
    )
    write_decision(tmp_path, Decision(calibration, (POINT,), "f1"))
    again = read_decision(tmp_path).calibration
    assert again == calibration
    np.testing.assert_array_equal(
        again.predict([1.0, 2.0], ["Action", "x"]), calibration.predict([1.0, 2.0], ["Action", "x"])
    )


def test_a_calibration_describes_itself_and_says_what_to_doubt() -> None:
    plain = Calibration("platt", 0.5, -0.25, 10, 2, 0.4)
    assert plain.describe() == "platt: p = sigmoid(0.5 × margin -0.25)"
    assert plain.cautions() == []
    rich = dataclasses.replace(plain, prior=0.1, by_group=CORRECTIONS, at_bound=True)
    assert rich.describe().endswith("corrected for 1 values of role; shifted from positive rate 0.4 to 0.1")
    assert "bound" in rich.cautions()[0]
    few = Calibration("isotonic", None, None, 999, 50, 0.5, parameters={"margins": [0.0], "p": [0.5]})
    assert "999 rows" in few.cautions()[0]
    assert dataclasses.replace(few, n=1_000).cautions() == []
