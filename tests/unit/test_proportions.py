"""Corrected shares are right on average, their intervals cover as often as they say, and hopeless ones are refused."""

import dataclasses
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from proofreel.core.errors import CalibrationError
from proofreel.eval.decisions.prevalence import (
    corrected_by_bootstrap,
    corrected_proportion,
    corrected_rows,
    effective_size,
    lang_reiczigel,
    rogan_gladen,
    soft_proportion,
)
from proofreel.eval.decisions.thresholds import fit_points
from proofreel.models.decision.calibrator import sigmoid
from proofreel.models.decision.stored import StoredInterval
from proofreel.models.decision.thresholds import OperatingPoint

# Sensitivity 0.8 of 100 rows, specificity 0.9 of 200.
POINT = OperatingPoint("f1", "f1", 0.5, 0.8, tp=80, fp=20, tn=180, fn=20, positive_rate=1 / 3)


# The estimate --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theta", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("se", "sp"), [(1.0, 1.0), (0.82, 0.687), (0.6, 0.5)])
def test_the_true_share_is_found_from_the_share_it_makes_appear(theta: float, se: float, sp: float) -> None:
    assert_allclose(rogan_gladen(theta * se + (1 - theta) * (1 - sp), se, sp), theta, atol=1e-15)


def test_a_hand_worked_correction() -> None:
    # 38 of 100 called supported: (0.38 + 0.9 - 1) / (0.8 + 0.9 - 1) = 0.28 / 0.7.
    found = corrected_proportion(38, 100, POINT)
    assert_allclose([found.value, found.unclipped, found.apparent], [0.4, 0.4, 0.38])
    assert found.low < 0.4 < found.high
    assert (found.n, found.method, found.n_effective) == (100, "lang_reiczigel", 100)


def test_a_share_beyond_what_the_errors_allow_is_clipped_and_its_raw_value_kept() -> None:
    few, many = corrected_proportion(5, 100, POINT), corrected_proportion(95, 100, POINT)
    assert few.value == 0.0
    assert_allclose(few.unclipped, -0.05 / 0.7)
    assert many.value == 1.0
    assert_allclose(many.unclipped, 0.85 / 0.7)
    for found in (few, many):
        assert 0 <= found.low <= found.high <= 1
    assert few.low == 0
    assert many.high == 1


@pytest.mark.parametrize(
    "change", [{"tn": 40, "fp": 160}, {"tn": 39, "fp": 161}, {"tp": 0, "fn": 0}, {"tn": 0, "fp": 0}]
)
def test_verdicts_that_say_nothing_are_refused(change: dict) -> None:
    point = dataclasses.replace(POINT, **change)
    with pytest.raises(CalibrationError, match="say nothing about the share"):
        corrected_proportion(38, 100, point)
    with pytest.raises(CalibrationError, match="say nothing about the share"):
        corrected_rows([0.2, 0.8], [0, 1], point)
    assert math.isnan(rogan_gladen(0.4, 0.5, 0.5))
    assert math.isnan(rogan_gladen(0.4, 0.2, 0.3))


@pytest.mark.parametrize(("n_supported", "n"), [(0, 0), (-1, 5), (6, 5)])
def test_counts_that_are_none_are_refused(n_supported: int, n: int) -> None:
    with pytest.raises(CalibrationError, match="count the verdicts again"):
        corrected_proportion(n_supported, n, POINT)


@pytest.mark.parametrize("p", [[], [math.nan, 0.5], [1.5, 0.5]])
def test_rows_without_probabilities_are_refused(p: list) -> None:
    for estimate in (soft_proportion, lambda p, groups: corrected_rows(p, groups, POINT)):
        with pytest.raises(CalibrationError, match="proportion"):
            estimate(p, list(range(len(p))))


# Intervals from counts -----------------------------------------------------------------------------------------------


def test_without_errors_the_interval_is_that_of_agresti_and_coull() -> None:
    z = norm.ppf(0.975)
    for k, n in ((0, 10), (3, 10), (500, 1000)):
        centre = (k + z**2 / 2) / (n + z**2)
        half = z * math.sqrt(centre * (1 - centre) / (n + z**2))
        expected = np.clip([centre - half, centre + half], 0, 1)
        assert_allclose(lang_reiczigel(k / n, n, 1.0, 1e12, 1.0, 1e12), expected, atol=1e-9)


def test_a_hand_worked_interval() -> None:
    # z = 1.959964, z^2 = 3.841459. Sample 38 of 100: 39.920729 / 103.841459 = 0.384439. Se 81/102, Sp 181/202.
    # theta = (0.384439 + 0.896040 - 1) / (0.794118 + 0.896040 - 1) = 0.280479 / 0.690157 = 0.406399.
    # Var Se = 0.163495 / 102 = 0.00160289, Var Sp = 0.093153 / 202 = 0.00046115.
    # Shift = 7.682918 (0.406399 * 0.00160289 - 0.593601 * 0.00046115) = 0.0029017: centre 0.4093007.
    # Error = sqrt(0.00227894 + 0.165160 * 0.00160289 + 0.352363 * 0.00046115) / 0.690157 = 0.0753750.
    low, high = lang_reiczigel(0.38, 100, 0.8, 100, 0.9, 200)
    assert_allclose([low, high], [0.4093007 - 1.959964 * 0.0753750, 0.4093007 + 1.959964 * 0.0753750], atol=2e-6)


def test_a_handful_of_calibration_rows_leaves_every_share_possible() -> None:
    assert lang_reiczigel(0.4, 100, 0.6, 1, 0.5, 1) == (0.0, 1.0)


@pytest.mark.parametrize("theta", [0.02, 0.3, 0.9])
@pytest.mark.parametrize(("se", "sp"), [(0.9, 0.85), (0.7, 0.98)])
def test_the_interval_from_counts_covers_the_true_share(theta: float, se: float, sp: float) -> None:
    rng, tries, covered = np.random.default_rng(0), 2_000, 0
    for _ in range(tries):
        said = rng.binomial(200, theta * se + (1 - theta) * (1 - sp)) / 200
        low, high = lang_reiczigel(said, 200, rng.binomial(60, se) / 60, 60, rng.binomial(90, sp) / 90, 90)
        covered += low <= theta <= high
    assert covered / tries >= 0.93


def test_the_interval_takes_in_the_errors_of_sensitivity_and_specificity() -> None:
    def width(point: OperatingPoint) -> float:
        found = corrected_proportion(3_800, 10_000, point)
        return found.high - found.low

    certain = dataclasses.replace(POINT, tp=80_000, fn=20_000, tn=180_000, fp=20_000)
    assert width(POINT) > 3 * width(certain)
    clustered = dataclasses.replace(POINT, sensitivity_interval=StoredInterval(0.6, 1.0, 0.95), n_groups=10)
    assert width(clustered) > 1.3 * width(POINT)


def test_a_stored_interval_without_width_makes_each_group_worth_one_row() -> None:
    spotless = dataclasses.replace(POINT, tp=100, fn=0)
    known = dataclasses.replace(spotless, sensitivity_interval=StoredInterval(1.0, 1.0, 0.95), n_groups=8)
    assert corrected_proportion(60, 100, known).high > corrected_proportion(60, 100, spotless).high


# Groups --------------------------------------------------------------------------------------------------------------


def test_effective_size_is_n_for_independent_rows_and_the_number_of_groups_for_copies() -> None:
    values = np.random.default_rng(1).integers(0, 2, 4_000)
    assert effective_size(values, np.arange(4_000)) >= 4_000 * 0.999
    assert_allclose(effective_size(np.repeat(values[:200], 20), np.repeat(np.arange(200), 20)), 200, rtol=0.01)
    assert effective_size([1, 1, 1, 1], [0, 0, 1, 1]) == 2
    assert effective_size([0, 1, 1], [7, 7, 7]) == 1
    assert effective_size([1], [0]) == 1


def _population(rng: np.random.Generator, n_groups: int, rate: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities, labels and groups; groups differ in how many claims hold and in how they are judged."""
    groups = np.repeat(np.arange(n_groups), 10)
    share = rng.beta(2 * rate, 2 * (1 - rate), n_groups)[groups]
    labels = (rng.random(len(groups)) < share).astype(float)
    return sigmoid(rng.normal(3 * labels - 1.5, 1) + rng.normal(0, 1, n_groups)[groups]), labels, groups


def test_with_groups_both_intervals_cover_and_that_of_independent_rows_does_not() -> None:
    covered, tries = np.zeros(3), 120
    for seed in range(tries):
        rng = np.random.default_rng(seed)
        other = _population(rng, 60, 0.5)
        p, _, groups = _population(rng, 60, 0.3)
        (point,) = fit_points(*other, ["f1"], n_draws=200)
        point = _at_half(point, *other)
        naive = dataclasses.replace(point, sensitivity_interval=None, specificity_interval=None)
        found = (
            corrected_rows(p, groups, point),
            corrected_by_bootstrap(p, groups, 0.5, *other, n_draws=200),
            corrected_proportion(int(np.sum(p >= 0.5)), len(p), naive),
        )
        covered += [f.low <= 0.3 <= f.high for f in found]
    from_counts, from_rows, naive_rows = covered / tries
    assert from_counts >= 0.91
    assert from_rows >= 0.91
    assert naive_rows < 0.85


def _at_half(point: OperatingPoint, p: np.ndarray, labels: np.ndarray, groups: np.ndarray) -> OperatingPoint:
    """The point moved to a threshold of 0.5, chosen without looking at the labels."""
    from proofreel.eval.decisions.thresholds import with_rate_intervals
    from proofreel.eval.uncertainty.bootstrap import resample
    from proofreel.models.decision.counts import confusion

    counts = confusion(p >= 0.5, labels)._asdict()
    return with_rate_intervals(
        dataclasses.replace(point, threshold=0.5, **counts), p, labels, resample(groups, 200), 0.95
    )


def test_from_rows_or_from_the_stored_point_the_share_is_the_same() -> None:
    rng = np.random.default_rng(3)
    other = _population(rng, 80, 0.5)
    p, labels, groups = _population(rng, 80, 0.2)
    (point,) = fit_points(*other, ["balanced_accuracy"])
    from_point, from_rows = corrected_rows(p, groups, point), corrected_by_bootstrap(p, groups, point.threshold, *other)
    assert_allclose(from_rows.unclipped, from_point.unclipped, rtol=1e-12)
    assert_allclose([from_rows.low, from_rows.high], [from_point.low, from_point.high], atol=0.05)
    assert abs(from_point.value - labels.mean()) < abs(from_point.apparent - labels.mean())
    assert (from_point.n, from_point.n_groups, from_rows.n_groups) == (800, 80, 80)
    assert from_rows == corrected_by_bootstrap(p, groups, point.threshold, *other)


def test_one_group_of_calibration_rows_gives_a_share_but_no_interval() -> None:
    p, labels, _ = _population(np.random.default_rng(4), 20, 0.5)
    found = corrected_by_bootstrap(p, np.arange(len(p)), 0.5, p, labels, np.zeros(len(p)))
    assert math.isfinite(found.value)
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_calibration_rows_that_do_not_fit_are_refused() -> None:
    p, groups = [0.1, 0.9, 0.8, 0.2], [0, 1, 2, 3]
    with pytest.raises(CalibrationError, match="label of 0 or 1"):
        corrected_by_bootstrap(p, groups, 0.5, p, [0, 1, math.nan, 0], groups)
    with pytest.raises(CalibrationError, match="say nothing"):
        corrected_by_bootstrap(p, groups, 0.5, p, [1, 0, 0, 1], groups)
    with pytest.raises(CalibrationError, match="say nothing"):
        corrected_by_bootstrap(p, groups, 0.5, p, [1, 1, 1, 1], groups)


# The soft score ------------------------------------------------------------------------------------------------------


def test_the_mean_of_calibrated_probabilities_is_the_share() -> None:
    rng = np.random.default_rng(5)
    p = rng.beta(0.5, 2, 20_000)
    found = soft_proportion(p, np.arange(len(p)) // 10)
    assert found.value == found.unclipped == p.mean()
    assert_allclose(np.mean(rng.random(len(p)) < p), found.value, atol=0.01)
    assert found.low < 0.2 < found.high


def test_copies_of_a_row_within_its_group_do_not_narrow_the_soft_interval() -> None:
    p = np.random.default_rng(6).random(60)
    once, again = soft_proportion(p, np.arange(60)), soft_proportion(np.repeat(p, 7), np.repeat(np.arange(60), 7))
    assert_allclose([again.low, again.high], [once.low, once.high], rtol=1e-12)
    half = norm.ppf(0.975) * p.std() / math.sqrt(60)
    assert_allclose([once.low, once.high], [p.mean() - half, p.mean() + half], atol=0.01)
    assert math.isnan(soft_proportion([0.4], ["only"]).low)
