"""Corrections per group are shrunk as stated and left out where rows are few; weights and aggregation are honoured."""

import math
from typing import Any

import numpy as np
import pytest
from drawn_margins import drawn_as
from numpy.testing import assert_allclose

from proofreel.core.errors import CalibrationError
from proofreel.eval.calibration import fit as calibrating
from proofreel.eval.calibration.fit import PerGroup
from proofreel.models.decision.calibrator import sigmoid

# Corrections per group -----------------------------------------------------------------------------------------------


def _two_roles(n: int, n_small: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Role `a` follows the margin, `b` is shifted by -2; `few` has few rows and `all` one class."""
    rng = np.random.default_rng(14)
    keys = np.array(["a"] * n + ["b"] * n + ["few"] * n_small + ["all"] * 200)
    margins = rng.normal(0, 2, len(keys))
    labels = (rng.random(len(keys)) < sigmoid(margins - 2.0 * (keys == "b"))).astype(float)
    labels[keys == "all"] = 1
    return margins, labels, keys


def test_corrections_recover_a_planted_shift_and_leave_what_has_too_few_rows() -> None:
    margins, labels, keys = _two_roles(20_000)
    fitted: Any = calibrating.fit_calibration(margins, labels, "platt", keys=keys, per_group=PerGroup("role"))
    assert fitted.by_group is not None
    assert set(fitted.by_group.corrections) == {"a", "b"}
    assert "fewer than 100" in fitted.by_group.left["few"]
    assert "0 other rows" in fitted.by_group.left["all"]
    some = np.array([-1.0, 0.0, 1.0])
    assert_allclose(fitted.predict(some, ["a"] * 3), sigmoid(some), atol=0.02)
    assert_allclose(fitted.predict(some, ["b"] * 3), sigmoid(some - 2), atol=0.02)
    np.testing.assert_array_equal(fitted.predict(some, ["few", "all", "unseen"]), fitted.predict(some))
    assert fitted.fitted_on["per_group"]["nll_with"] < fitted.fitted_on["per_group"]["nll_without"] - 0.02


@pytest.mark.parametrize("n", [100, 1_000, 10_000])
def test_a_correction_lies_between_the_overall_map_and_the_groups_own_fit(n: int) -> None:
    margins, labels, keys = _two_roles(n)
    fitted: Any = calibrating.fit_calibration(margins, labels, "platt", keys=keys, per_group=PerGroup("role"))
    overall = fitted.logits(margins)
    for value in ("a", "b"):
        chosen = keys == value
        own: Any = calibrating.fit_calibration(overall[chosen], labels[chosen], "platt")
        c = fitted.by_group.corrections[value]
        assert c.weight == n / (n + 100)
        assert c.slope == pytest.approx(own.slope**c.weight)
        at = overall[chosen].mean()
        assert c.slope * at + c.intercept == pytest.approx(c.weight * own.logits(at) + (1 - c.weight) * at)


@pytest.mark.parametrize("keys", [None, ["a"]])
def test_corrections_need_a_key_per_row(keys) -> None:
    with pytest.raises(CalibrationError, match="needs a role per row"):
        calibrating.fit_calibration(*drawn_as(1, 50), "platt", keys=keys, per_group=PerGroup("role"))


# Weights and aggregation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [[1.0], np.zeros(50), np.full(50, -1.0), np.full(50, math.nan)])
def test_weights_must_be_weights(weights) -> None:
    with pytest.raises(CalibrationError, match="a finite weight > 0 per row"):
        calibrating.fit_calibration(*drawn_as(1, 50), "platt", sample_weight=weights)


def test_weights_count_towards_the_positive_rate() -> None:
    fitted: Any = calibrating.fit_calibration([0.0, 1, 2, 3], [0, 0, 1, 1], "platt", sample_weight=[1, 1, 1, 5])
    assert fitted.positive_rate == 6 / 8


def test_the_calibration_remembers_how_windows_were_aggregated() -> None:
    assert calibrating.fit_calibration(*drawn_as(1, 50), "platt", aggregation="max").aggregation == "max"
    assert "aggregation" not in calibrating.fit_calibration(*drawn_as(1, 50), "platt").to_dict()
