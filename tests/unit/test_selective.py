"""Risk-coverage numbers against brute force over orders, stored values of two libraries, and worked examples."""

import math
import warnings
from itertools import permutations

import numpy as np
import pytest
from nightly import first_of
from numpy.testing import assert_allclose, assert_array_equal
from references.reading import reference
from sklearn.metrics import roc_auc_score

from proofreel.core.errors import RowError
from proofreel.eval.metrics import selective

RULES = ["mean", "trapezoid", "threshold"]


def _sample(seed: int, n: int = 200, decimals: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence = np.round(rng.uniform(0.5, 1, n), decimals)
    return confidence, rng.random(n) < confidence


def _risks_in_order(correct: np.ndarray) -> np.ndarray:
    return np.cumsum(1 - np.asarray(correct)) / np.arange(1, len(correct) + 1)


def _area_in_order(correct: np.ndarray, rule: str) -> float:
    risks, n = _risks_in_order(correct), len(correct)
    if rule == "mean":
        return float(np.mean(risks))
    if rule == "trapezoid":
        return float(np.trapezoid(risks, dx=1 / n) / (1 - 1 / n))
    return float(np.trapezoid(np.append(risks[0], risks), dx=1 / n))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", first_of(range(3)))
def test_without_ties_the_area_is_its_definition_row_by_row(seed: int, rule: selective.Rule) -> None:
    confidence, correct = _sample(seed)
    in_order = correct[np.argsort(-confidence)]
    assert_allclose(selective.aurc(confidence, correct, rule=rule), _area_in_order(in_order, rule), rtol=1e-10)
    best = _area_in_order(np.sort(correct)[::-1], rule)
    excess = selective.e_aurc(confidence, correct, rule=rule)
    assert_allclose(excess, _area_in_order(in_order, rule) - best, rtol=1e-9)


@pytest.mark.parametrize("rule", ["mean", "trapezoid"])
def test_a_tie_counts_with_the_mean_over_all_orders_of_its_rows(rule: selective.Rule) -> None:
    confidence, correct = np.array([0.9, 0.7, 0.7, 0.7, 0.7, 0.6, 0.6]), np.array([1, 0, 1, 1, 0, 0, 1])
    orders = [[0, *tie, *last] for tie in permutations([1, 2, 3, 4]) for last in permutations([5, 6])]
    expected = np.mean([_area_in_order(correct[order], rule) for order in orders])
    assert_allclose(selective.aurc(confidence, correct, rule=rule), expected, rtol=1e-12)


def _threshold_area(confidence: np.ndarray, correct: np.ndarray) -> float:
    points = []
    for cut in np.unique(confidence)[::-1]:
        kept = confidence >= cut
        points.append((kept.mean(), 1 - correct[kept].mean()))
    coverage, risk = np.array([(0, points[0][1]), *points]).T
    return float(np.trapezoid(risk, coverage))


@pytest.mark.parametrize("decimals", [8, 2, 1])
def test_the_threshold_rule_and_the_curve_look_only_at_reachable_coverages(decimals: int) -> None:
    confidence, correct = _sample(1, decimals=decimals)
    assert_allclose(selective.aurc(confidence, correct, rule="threshold"), _threshold_area(confidence, correct))
    curve = selective.risk_coverage(confidence, correct)
    for threshold, coverage, risk, generalised in zip(*curve, strict=True):
        kept = confidence >= threshold
        assert_allclose([coverage, risk], [kept.mean(), 1 - correct[kept].mean()], atol=1e-12)
        assert_allclose(generalised, np.mean(kept & ~correct), atol=1e-12)
    assert curve.coverage[-1] == 1
    assert len(curve.threshold) == len(np.unique(confidence))


@pytest.mark.parametrize("decimals", [8, 2, 1])
@pytest.mark.parametrize("seed", first_of(range(3)))
def test_augrc_is_the_formula_of_its_paper(seed: int, decimals: int) -> None:
    """(1 - AUROC of confidence for being right) acc (1 - acc) + (1 - acc)^2 / 2 (Traub et al., 2024)."""
    confidence, correct = _sample(seed, decimals=decimals)
    accuracy = correct.mean()
    expected = (1 - roc_auc_score(correct, confidence)) * accuracy * (1 - accuracy) + (1 - accuracy) ** 2 / 2
    assert_allclose(selective.augrc(confidence, correct), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["overconfident", "calibrated", "tied"])
def test_areas_equal_fd_shifts_and_torch_uncertainty(name: str) -> None:
    p, labels, values = reference(name)
    confidence, correct = selective.confidence_of(p), (p >= 0.5) == labels
    ours = {
        "aurc_threshold": selective.aurc(confidence, correct, rule="threshold"),
        "e_aurc_threshold_analytic": selective.e_aurc(confidence, correct, rule="threshold", optimum="analytic"),
        "augrc": selective.augrc(confidence, correct),
        "aurc_trapezoid": selective.aurc(confidence, correct, rule="trapezoid"),
        "risk_at_0.8": 1 - selective.accuracy_at_coverage(confidence, correct, 0.8),
    }
    theirs = values["fd-shifts"] | values["torch-uncertainty"]
    assert len(theirs) == (3 if name == "tied" else 5)
    for key, value in theirs.items():
        assert_allclose(ours[key], value, rtol=1e-7, err_msg=key)  # torch-uncertainty counts in float32


@pytest.mark.parametrize("decimals", [8, 1])
def test_no_number_depends_on_the_order_of_rows(decimals: int) -> None:
    confidence, correct = _sample(5, decimals=decimals)

    def numbers(confidence: np.ndarray, correct: np.ndarray) -> list[float]:
        areas = [selective.aurc(confidence, correct, rule=rule) for rule in ("mean", "trapezoid", "threshold")]
        points = [selective.accuracy_at_coverage(confidence, correct, c) for c in (0.1, 0.5, 0.8)]
        risks = [selective.coverage_at_risk(confidence, correct, r) for r in (0.1, 0.2)]
        return [float(v) for v in [*areas, *points, *risks, selective.augrc(confidence, correct)]]

    expected = numbers(confidence, correct)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(correct))
        assert numbers(confidence[order], correct[order]) == expected


@pytest.mark.parametrize("decimals", [8, 1])
def test_a_weight_counts_as_that_many_copies_of_the_row(decimals: int) -> None:
    confidence, correct = _sample(6, n=60, decimals=decimals)
    times = np.random.default_rng(1).integers(0, 3, (20, 60))
    copies = [(np.repeat(confidence, t), np.repeat(correct, t)) for t in times]
    for rule in ("mean", "trapezoid", "threshold"):
        for function in (selective.aurc, selective.e_aurc):
            assert_allclose(
                function(confidence, correct, times, rule=rule),
                [function(*copy, rule=rule) for copy in copies],
                rtol=1e-9,
                atol=1e-12,
            )
    assert_allclose(selective.augrc(confidence, correct, times), [selective.augrc(*c) for c in copies])
    kept = selective.accuracy_at_coverage(confidence, correct, 0.7, times)
    assert_array_equal(kept, [selective.accuracy_at_coverage(*c, 0.7) for c in copies])


def test_a_ranking_that_puts_every_error_last_has_no_excess() -> None:
    correct = np.repeat([1, 0], [70, 30])
    for rule in ("mean", "trapezoid", "threshold"):
        assert_allclose(selective.e_aurc(-np.arange(100), correct, rule=rule), 0, atol=1e-12)
        assert selective.e_aurc(np.arange(100), correct, rule=rule) > 0.5
    assert_allclose(selective.augrc(-np.arange(100), correct), 0.3**2 / 2)


def test_the_analytic_optimum_is_the_limit_of_the_finite_one() -> None:
    for n, tolerance in ((100, 2e-2), (100_000, 2e-5)):
        correct = np.repeat([1, 0], [7 * n // 10, 3 * n // 10])
        for rule in ("mean", "trapezoid", "threshold"):
            excess = selective.e_aurc(-np.arange(n), correct, rule=rule, optimum="analytic")
            assert abs(excess) < tolerance


def test_one_confidence_for_all_rows_risks_the_error_rate_at_every_coverage() -> None:
    correct = np.repeat([1, 0], [7, 3])
    for rule in ("mean", "trapezoid", "threshold"):
        assert_allclose(selective.aurc(np.full(10, 0.9), correct, rule=rule), 0.3)
    assert_allclose(selective.augrc(np.full(10, 0.9), correct), 0.15)
    assert_allclose(selective.accuracy_at_coverage(np.full(10, 0.9), correct, 0.1), 0.7)


def test_accuracy_at_coverage_by_hand() -> None:
    confidence = np.array([0.9, 0.8, 0.8, 0.8, 0.7, 0.7, 0.6, 0.6, 0.55, 0.5])
    correct = np.array([1, 1, 0, 1, 1, 1, 0, 1, 0, 0])
    expected = {0.1: 1.0, 0.11: 3 / 4, 0.4: 3 / 4, 0.5: 5 / 6, 0.6: 5 / 6, 0.7: 6 / 8, 0.8: 6 / 8, 0.81: 6 / 9, 1: 0.6}
    for coverage, accuracy in expected.items():
        assert_allclose(selective.accuracy_at_coverage(confidence, correct, coverage), accuracy)
    # 0.7 x 10 is a little above 7 in floating point: still seven rows
    assert selective.accuracy_at_coverage(-np.arange(10), np.repeat([1, 0], [7, 3]), 0.7) == 1


def test_coverage_at_risk_is_the_largest_a_threshold_reaches() -> None:
    confidence, correct = np.array([0.9, 0.8, 0.7, 0.6, 0.6, 0.5]), np.array([1, 0, 1, 1, 1, 0])
    # risks at 1/6 .. : 0, 1/2, 1/3, then both of the tie 1/5, 2/6
    assert_allclose(selective.coverage_at_risk(confidence, correct, 0.0), 1 / 6)
    assert_allclose(selective.coverage_at_risk(confidence, correct, 0.2), 5 / 6)
    assert selective.coverage_at_risk(confidence, correct, 0.34) == 1
    assert selective.coverage_at_risk(confidence, 1 - correct, 0.2) == 0


def test_confidence_is_the_likelier_label_or_the_distance_to_the_threshold() -> None:
    p = np.array([0.0, 0.3, 0.5, 0.7, 1.0])
    assert_allclose(selective.confidence_of(p), [1, 0.7, 0.5, 0.7, 1])
    assert_allclose(selective.confidence_of(p, 0.75), [0.75, 0.45, 0.25, 0.05, 0.25])
    drawn = np.random.default_rng(0).random(50)
    by_distance, by_label = selective.confidence_of(drawn, 0.5), selective.confidence_of(drawn)
    assert_array_equal(np.argsort(by_distance), np.argsort(by_label))


def test_without_rows_every_number_is_nan_and_with_one_what_is_defined() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nothing = [selective.aurc([], [], rule=r) for r in ("mean", "trapezoid", "threshold")]
        nothing += [selective.e_aurc([], [], optimum=o) for o in ("finite", "analytic")]
        nothing += [selective.augrc([], []), selective.accuracy_at_coverage([], [], 0.5)]
        assert np.isnan([*map(float, nothing), selective.coverage_at_risk([], [], 0.1)]).all()
        assert [len(column) for column in selective.risk_coverage([], [])] == [0, 0, 0, 0]
        for correct in (0, 1):
            assert selective.aurc([0.9], [correct]) == selective.aurc([0.9], [correct], rule="threshold") == 1 - correct
            assert math.isnan(selective.aurc([0.9], [correct], rule="trapezoid"))
            assert selective.e_aurc([0.9], [correct]) == 0
            assert selective.accuracy_at_coverage([0.9], [correct], 0.01) == correct
            assert selective.augrc([0.9], [correct]) == (1 - correct) / 2


@pytest.mark.parametrize("correct", [0, 1])
def test_all_right_or_all_wrong_has_no_excess(correct: int) -> None:
    for rule in ("mean", "trapezoid", "threshold"):
        for optimum in ("finite", "analytic"):
            excess = selective.e_aurc(np.arange(9), np.full(9, correct), rule=rule, optimum=optimum)
            assert_allclose(excess, 0, atol=1e-12)


def test_failed_rows_and_impossible_coverages_are_refused() -> None:
    with pytest.raises(RowError, match="failed row"):
        selective.aurc([0.9, math.nan], [1, 0])
    with pytest.raises(RowError, match="0 or 1"):
        selective.aurc([0.9, 0.8], [1, 0.5])
    for coverage in (0, 1.01, math.nan):
        with pytest.raises(RowError, match="within"):
            selective.accuracy_at_coverage([0.9], [1], coverage)
