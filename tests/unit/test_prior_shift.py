"""Prior shift: a planted change of the positive rate is undone and found, by the formulas the papers give."""

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar

from proofreel.core.errors import CalibrationError
from proofreel.eval.calibration.fit import fit_calibration
from proofreel.eval.decisions.prevalence import estimate_prior, shift_prior
from proofreel.eval.metrics.calibration_error import ece_event
from proofreel.models.decision.calibration import IDENTITY, Calibration, prior_offset
from proofreel.models.decision.calibrator import sigmoid
from proofreel.models.decision.calibrators import CALIBRATORS


def _drawn(seed: int, n: int, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Margins of two overlapping classes, the same whatever the rate; at a rate of 0.5 they are log-odds over 2."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(n) < round(rate * n)).astype(float)
    return rng.normal(2 * labels - 1, 1.0), labels


@pytest.mark.parametrize("method", [m for m in CALIBRATORS if m not in ("none", "temperature")])
def test_a_planted_shift_is_corrected_whatever_the_map(method) -> None:
    calibration = fit_calibration(*_drawn(0, 20_000, 0.5), method=method)
    margins, labels = _drawn(1, 20_000, 0.1)
    assert ece_event(calibration.predict(margins), labels) > 0.1
    assert ece_event(calibration.with_prior(0.1).predict(margins), labels) < 0.02


def test_no_temperature_corrects_a_shift() -> None:
    margins, labels = _drawn(1, 20_000, 0.1)
    fitted = fit_calibration(margins, labels, method="temperature")
    assert ece_event(fitted.predict(margins), labels) > 0.1


@pytest.mark.parametrize("prior", [0.01, 0.3, 0.9])
def test_shifting_is_elkans_theorem(prior: float) -> None:
    p, rate = np.linspace(0.01, 0.99, 50), 0.6
    # Elkan (2001), theorem 2: p' = b' (p - p b) / (b - p b + b' p - b b').
    elkan = prior * (p - p * rate) / (rate - p * rate + prior * p - rate * prior)
    assert_allclose(shift_prior(p, rate, prior), elkan, rtol=1e-12)
    calibration = dataclasses.replace(IDENTITY, positive_rate=rate)
    logits = np.log(p) - np.log1p(-p)
    assert_allclose(calibration.with_prior(prior).predict(logits), elkan, rtol=1e-12)


def test_shifting_back_and_forth_changes_nothing_and_certainty_stays() -> None:
    p = np.array([0.0, 0.2, 0.7, 1.0, math.nan])
    assert_allclose(shift_prior(shift_prior(p, 0.5, 0.1), 0.1, 0.5), p, rtol=1e-12)
    calibration = fit_calibration(*_drawn(2, 200, 0.4), method="platt")
    assert calibration.with_prior(0.1).with_prior(None) == calibration
    assert calibration.with_prior(0.1).with_prior(0.7) == calibration.with_prior(0.7)
    assert_allclose(calibration.with_prior(calibration.positive_rate).predict(p), calibration.predict(p), rtol=1e-15)


def test_a_prior_travels_with_the_calibration() -> None:
    calibration = fit_calibration(*_drawn(3, 200, 0.4), method="platt").with_prior(0.15)
    again = Calibration.from_dict(json.loads(json.dumps(calibration.to_dict())))
    assert again == calibration
    assert again.logits(0.0) == calibration.map.apply(0.0) + prior_offset(0.4, 0.15)
    assert "from positive rate 0.4 to 0.15" in again.describe()


@pytest.mark.parametrize("prior", [0.0, 1.0, -0.1, math.nan, "0.5", True])
def test_a_prior_must_be_a_share(prior) -> None:
    calibration = fit_calibration(*_drawn(3, 200, 0.4), method="platt")
    with pytest.raises(CalibrationError, match="the prior must lie inside"):
        calibration.with_prior(prior)
    with pytest.raises(CalibrationError, match="the rate of the fit must lie inside"):
        IDENTITY.with_prior(0.5)


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.8])
def test_em_finds_a_planted_rate_and_the_maximum_of_the_likelihood(rate: float) -> None:
    margins, _ = _drawn(4, 20_000, rate)
    p = sigmoid(2 * margins)  # exact for half of the rows supported
    found = estimate_prior(p, 0.5)
    assert found.converged
    assert found.n == 20_000
    assert_allclose(found.prior, rate, atol=0.015)
    bounded: Any = minimize_scalar(
        lambda r: -np.sum(np.log(r * p / 0.5 + (1 - r) * (1 - p) / 0.5)),
        bounds=(1e-9, 1 - 1e-9),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert_allclose(found.prior, bounded.x, atol=1e-5)


def test_em_corrects_for_the_rate_of_the_fit() -> None:
    margins, _ = _drawn(5, 20_000, 0.3)
    p = shift_prior(sigmoid(2 * margins), 0.5, 0.8)
    assert_allclose(estimate_prior(p, 0.8).prior, estimate_prior(sigmoid(2 * margins), 0.5).prior, atol=1e-6)


def test_the_mean_of_restated_probabilities_is_the_estimate() -> None:
    margins, _ = _drawn(6, 500, 0.25)
    found = estimate_prior(sigmoid(2 * margins), 0.5)
    assert_allclose(np.mean(shift_prior(sigmoid(2 * margins), 0.5, found.prior)), found.prior, atol=1e-6)


def test_em_says_when_it_did_not_converge() -> None:
    found = estimate_prior(sigmoid(2 * _drawn(7, 500, 0.1)[0]), 0.5, max_steps=2)
    assert not found.converged
    assert found.steps == 2
    assert found.last_change > 1e-8


def test_em_on_rows_that_say_nothing_stays_and_on_certain_rows_counts_them() -> None:
    assert estimate_prior(np.full(10, 0.3), 0.3).prior == pytest.approx(0.3)
    assert estimate_prior([1.0, 1.0, 1.0, 0.0], 0.5).prior == pytest.approx(0.75)
    assert estimate_prior([0.0, 0.0], 0.5).prior == 0.0
    assert estimate_prior([1.0], 0.5).prior == 1.0


@pytest.mark.parametrize("p", [[], [0.5, math.nan], [-0.1], [1.1], [[0.5]]])
def test_em_needs_probabilities(p: list) -> None:
    with pytest.raises(CalibrationError, match="at least one probability"):
        estimate_prior(p, 0.5)
    with pytest.raises(CalibrationError, match="rate of the fit"):
        estimate_prior([0.5], 1.0)
