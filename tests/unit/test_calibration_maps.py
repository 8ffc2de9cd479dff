"""Each calibration map agrees with its reference, never reverses a ranking, and never claims certainty."""

import json
import math

import numpy as np
import pytest
from drawn_margins import GRID, drawn, fit, p_of
from netcal.scaling import BetaCalibration as NetcalBeta
from netcal.scaling import TemperatureScaling as NetcalTemperature
from nightly import first_of
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from proofreel.core.errors import CalibrationError
from proofreel.eval.calibration.fit import fit_calibration
from proofreel.models.decision.calibration import Calibration
from proofreel.models.decision.calibrator import log_odds, sigmoid
from proofreel.models.decision.calibrators import CALIBRATORS
from proofreel.models.decision.parametric import HIGH, LOW, Beta, beta_features, smoothed_targets

STEPS = [name for name, calibrator in CALIBRATORS.items() if calibrator.fewest_rows]

# What holds for every map --------------------------------------------------------------------------------------------

EDGE_CASES = {
    "random": drawn(0, 60),
    "ties": drawn(1, 60, decimals=0),
    "four rows": (np.array([0.5, -0.5, 1.0, -1.0]), np.array([1.0, 0.0, 1.0, 0.0])),
    "one margin": (np.full(8, 2.0), np.array([0, 1, 1, 1, 0, 1, 1, 1.0])),
    "separable": (np.array([-3.0, -2, -1, 1, 2, 3]), np.array([0, 0, 0, 1, 1, 1.0])),
    "reversed": (np.array([-3.0, -2, -1, 1, 2, 3]), np.array([1, 1, 1, 0, 0, 0.0])),
    "huge": (np.array([-1e4, -9e3, 1e4, 9e3, -1e4, 1e4]), np.array([0, 0, 1, 1, 1, 0.0])),
    "one side": (np.linspace(5, 9, 30), (np.arange(30) % 3 > 0).astype(float)),
}


@pytest.mark.parametrize("case", EDGE_CASES)
@pytest.mark.parametrize("method", CALIBRATORS)
def test_every_map_keeps_the_order_and_stays_finite(method, case: str) -> None:
    fitted = fit(method, *EDGE_CASES[case])
    margins = np.sort(GRID)
    logits = fitted.apply(margins)
    assert np.isfinite(logits).all()
    assert (np.diff(logits) >= 0).all()
    np.testing.assert_array_equal(np.isnan(fitted.apply([math.nan, 0.0])), [True, False])


@pytest.mark.parametrize("case", EDGE_CASES)
@pytest.mark.parametrize("method", STEPS)
def test_no_frequency_becomes_a_certainty(method, case: str) -> None:
    p = p_of(fit(method, *EDGE_CASES[case]), GRID)
    n = len(EDGE_CASES[case][0])
    assert p.min() > 0
    assert p.max() < 1
    if method != "venn_abers":
        assert p.min() >= (1 - 1e-12) / (n + 2)
        assert p.max() <= 1 - (1 - 1e-12) / (n + 2)


@pytest.mark.parametrize("case", EDGE_CASES)
@pytest.mark.parametrize("method", CALIBRATORS)
def test_every_calibration_survives_json_bit_for_bit(method, case: str) -> None:
    calibration = fit_calibration(*EDGE_CASES[case], method=method)
    again = Calibration.from_dict(json.loads(json.dumps(calibration.to_dict(), allow_nan=False)))
    assert again == calibration
    np.testing.assert_array_equal(again.logits(GRID), calibration.logits(GRID), strict=True)


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
@pytest.mark.parametrize("method", CALIBRATORS)
def test_every_map_gives_back_the_shape_of_its_margins(method, shape: tuple) -> None:
    assert np.shape(fit(method, *EDGE_CASES["random"]).apply(np.zeros(shape))) == shape


@pytest.mark.parametrize("method", CALIBRATORS)
def test_a_weight_of_two_is_the_row_twice(method) -> None:
    margins, labels = drawn(2, 80, decimals=1)
    weights = np.random.default_rng(3).integers(1, 4, 80)
    repeated = fit(method, np.repeat(margins, weights), np.repeat(labels, weights))
    assert_allclose(p_of(fit(method, margins, labels, weights), GRID), p_of(repeated, GRID), atol=1e-6)


@pytest.mark.parametrize("method", CALIBRATORS)
def test_the_order_of_rows_does_not_matter(method) -> None:
    margins, labels = drawn(4, 100, decimals=1)
    order = np.random.default_rng(5).permutation(100)
    assert_allclose(
        p_of(fit(method, margins[order], labels[order]), GRID), p_of(fit(method, margins, labels), GRID), atol=1e-7
    )


@pytest.mark.parametrize("method", [m for m in CALIBRATORS if m not in ("none", "temperature")])
def test_every_map_comes_to_a_planted_truth(method) -> None:
    rng = np.random.default_rng(6)
    margins = rng.normal(0, 3, 20_000)
    labels = (rng.random(20_000) < sigmoid(0.4 * margins - 0.5)).astype(float)
    some = np.array([-3.0, -1.0, 0.0, 1.0, 3.0])
    p = p_of(fit(method, margins, labels), some)
    assert_allclose(p, sigmoid(0.4 * some - 0.5), atol=0.06 if method in STEPS else 0.015)


# Beta ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", first_of(range(3)))
def test_beta_is_the_logistic_regression_its_definition_says(seed: int) -> None:
    margins, labels = drawn(seed, 300)
    targets = smoothed_targets(labels, np.ones(300))
    x = np.stack(beta_features(margins), axis=1)
    rows, y = np.concatenate([x, x]), np.repeat([1, 0], 300)
    reference = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000)
    reference.fit(rows, y, sample_weight=np.concatenate([targets, 1 - targets]))
    assert reference.coef_.min() > 0, "an active bound is another test"
    assert_allclose(p_of(fit("beta", margins, labels), margins), reference.predict_proba(x)[:, 1], atol=1e-4)


def test_beta_agrees_with_netcal() -> None:
    margins, labels = drawn(7, 4_000)
    reference = NetcalBeta().fit(sigmoid(margins), labels.astype(int)).transform(sigmoid(margins))
    assert_allclose(p_of(fit("beta", margins, labels), margins), reference, atol=2e-3)


def test_beta_recovers_planted_parameters() -> None:
    rng = np.random.default_rng(8)
    margins = rng.normal(0, 2, 60_000)
    truth = Beta(0.4, 1.6, -0.3)
    labels = (rng.random(60_000) < sigmoid(truth.apply(margins))).astype(float)
    fitted = fit("beta", margins, labels)
    assert_allclose([fitted.a, fitted.b, fitted.c], [0.4, 1.6, -0.3], atol=0.06)


def test_beta_does_not_saturate() -> None:
    # On probabilities 1e4 and 40 are the same number, 1.0.
    assert_allclose(Beta(2.0, 3.0, 0.5).apply([1e4, 40.0, -40.0, -1e4]), [3e4 + 0.5, 120.5, -79.5, -2e4 + 0.5])
    assert_allclose(Beta(1.0, 1.0, 0.0).apply(GRID), GRID, atol=1e-14)


def test_beta_never_slopes_down_where_the_data_do() -> None:
    # Above 0 the data fall, below they rise: unconstrained, b would be negative.
    rng = np.random.default_rng(9)
    margins = rng.normal(0, 3, 2_000)
    labels = (rng.random(2_000) < sigmoid(-np.abs(margins))).astype(float)
    fitted, at_bound = Beta.fit(margins, labels, np.ones(2_000))
    assert isinstance(fitted, Beta)
    assert fitted.b == pytest.approx(LOW, rel=1e-6)
    assert not at_bound
    alone = beta_features(margins)[0][:, None]  # Kull et al. drop the side that slopes down and fit again
    reference = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(alone, labels)
    assert_allclose(fitted.a, reference.coef_[0, 0], rtol=0.01)
    assert Beta.fit(margins, (margins < 0).astype(float), np.ones(2_000))[1]


def test_beta_extends_a_side_without_rows_by_the_slope_of_the_other() -> None:
    rng = np.random.default_rng(10)
    margins = rng.uniform(20, 30, 3_000)
    labels = (rng.random(3_000) < sigmoid(0.5 * (margins - 25))).astype(float)
    fitted = fit("beta", margins, labels)
    assert_allclose([fitted.a, fitted.b], 0.5, atol=0.06)
    assert fitted.a < HIGH / 100


def test_temperature_agrees_with_netcal() -> None:
    margins, labels = drawn(11, 3_000)
    reference = NetcalTemperature().fit(sigmoid(margins), labels.astype(int)).transform(sigmoid(margins))
    assert_allclose(p_of(fit("temperature", margins, labels), margins), reference, atol=2e-3)


# Foreign maps --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "change", "says"),
    [
        ("beta", {"a": 0.0}, "beta needs finite a > 0"),
        ("beta", {"b": math.nan}, "beta needs finite"),
        ("beta", {"d": 1.0}, "unknown keys"),
        ("isotonic", {"p": [0.5, 0.2]}, "p must increase"),
        ("isotonic", {"p": [0.0, 0.2]}, r"inside \(0, 1\)"),
        ("isotonic", {"p": [0.1]}, "needs 2 values"),
        ("isotonic", {"margins": [2.0, 2.0]}, "margins must increase"),
        ("isotonic", {"margins": ["1", "2"]}, "list of finite numbers"),
        ("isotonic", {"margins": 3.0}, "list of finite numbers"),
        ("isotonic", {"margins": [], "p": []}, "at least one knot"),
        ("histogram", {"edges": [1.0]}, "needs 2 values"),
        ("venn_abers", {"p0": [0.0, 1.0]}, "p0 in"),
        ("venn_abers", {"p1": [0.0, 1.0]}, "p1 in"),
        ("venn_abers", {"p1": [1.0]}, "one value more"),
    ],
)
def test_a_map_that_is_none_is_refused(method, change: dict, says: str) -> None:
    good: dict = {
        "beta": {"a": 1.0, "b": 2.0, "c": 0.0},
        "isotonic": {"margins": [0.0, 1.0], "p": [0.2, 0.8]},
        "histogram": {"edges": [], "p": [0.4]},
        "venn_abers": {"p0_from": [0.0], "p0": [0.0, 0.4], "p1_upto": [0.0], "p1": [0.6, 1.0]},
    }
    values = {"method": method, "parameters": good[method], "n": 4, "n_groups": 4, "positive_rate": 0.5}
    Calibration.from_dict(values)
    with pytest.raises(CalibrationError, match=says):
        Calibration.from_dict({**values, "parameters": {**good[method], **change}})


def test_parameters_are_plain_numbers() -> None:
    for method in list(CALIBRATORS)[3:]:
        for value in fit(method, *EDGE_CASES["ties"]).to_dict().values():
            assert all(type(v) is float for v in (value if isinstance(value, list) else [value]))


def test_log_odds_undo_the_sigmoid() -> None:
    x = np.linspace(-30, 30, 61)
    assert_allclose(log_odds(sigmoid(x)), x, rtol=1e-3)
    with np.errstate(divide="ignore"):
        assert_allclose(log_odds([0.0, 0.5, 1.0]), [-np.inf, 0, np.inf])
