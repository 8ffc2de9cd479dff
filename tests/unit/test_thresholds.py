"""Thresholds are exact, stay so through JSON, reproduce what they store, and say how sure their numbers are."""

import dataclasses
import json
import math

import numpy as np
import pytest
import sklearn.metrics as sk
from nightly import first_of
from numpy.testing import assert_allclose
from scipy import stats

from proofreel.core.errors import CalibrationError, ProofreelError
from proofreel.eval import metrics
from proofreel.eval.decisions.thresholds import fit_points, fit_threshold
from proofreel.models.decision.criteria import ALL_NEGATIVE, Criterion, criterion_of, criterion_value
from proofreel.models.decision.thresholds import SIMPLE_CRITERIA, OperatingPoint

GOALS = [*SIMPLE_CRITERIA, "cost:1:1", "cost:5:1", "cost:1:7", "precision_at:0.5", "recall_at:0.9", "recall_at:1"]


def _drawn(seed: int, n: int = 30, decimals: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.concatenate([[0, 0, 1, 1], rng.integers(0, 2, n)])
    return np.round(np.clip(rng.normal(0.4 + 0.2 * labels, 0.3), 0, 1), decimals), labels


def _reference(goal: Criterion, said: np.ndarray, labels: np.ndarray) -> float:
    """Each objective by scikit-learn, or by its definition in words; NaN where it is undefined."""
    if goal.objective == "mcc":
        return sk.matthews_corrcoef(labels, said) if 0 < said.sum() < len(said) else math.nan
    if goal.objective == "cost":
        assert goal.cost_fp is not None
        assert goal.cost_fn is not None
        return float(
            np.mean(np.where(said & (labels == 0), goal.cost_fp, 0) + np.where(~said & (labels == 1), goal.cost_fn, 0))
        )
    if goal.objective == "precision_at":
        return sk.precision_score(labels, said) if said.any() else math.nan
    return {
        "f1": lambda: sk.f1_score(labels, said),
        "f1_macro": lambda: sk.f1_score(labels, said, average="macro"),
        "balanced_accuracy": lambda: sk.balanced_accuracy_score(labels, said),
        "youden": lambda: sk.balanced_accuracy_score(labels, said, adjusted=True),
        "match_rate": lambda: said.mean() - labels.mean(),
        "recall_at": lambda: sk.recall_score(labels, said),
    }[goal.objective]()


def _value(goal: Criterion, said: np.ndarray, labels: np.ndarray) -> float:
    return float(criterion_value(goal, metrics.confusion(said, labels)))


def _best_of_all(goal: Criterion, p: np.ndarray, labels: np.ndarray) -> float:
    """The best value over every decision a threshold on p can make; the objective's own, for targets the other rate."""
    values = []
    for cut in np.concatenate([[0.0, 2.0], p, np.nextafter(p, 2)]):
        said = p >= cut
        value = _value(goal, said, labels)
        if goal.objective in ("precision_at", "recall_at"):
            assert goal.target is not None
            reached = value >= goal.target  # False for NaN
            other = Criterion("recall_at" if goal.objective == "precision_at" else "precision_at", goal.target)
            value = _value(other, said, labels) if reached else math.nan
        values.append({"match_rate": -abs(value), "cost": -value}.get(goal.objective, value))
    return float(np.nanmax(values))


@pytest.mark.parametrize("objective", GOALS)
def test_objectives_are_those_of_scikit_learn(objective: str) -> None:
    goal, rng = Criterion.parse(objective), np.random.default_rng(3)
    for share in (0.0, 0.2, 0.7, 1.0):
        labels = np.array([0, 1, *rng.integers(0, 2, 40)])
        said = rng.random(len(labels)) < share
        assert_allclose(_value(goal, said, labels), _reference(goal, said, labels), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("objective", GOALS)
@pytest.mark.parametrize("decimals", [8, 1, 0])
@pytest.mark.parametrize("seed", first_of(range(3)))
def test_a_threshold_is_the_best_of_all_decisions(seed: int, decimals: int, objective: str) -> None:
    p, labels = _drawn(seed, decimals=decimals)
    goal = Criterion.parse(objective)
    point = fit_threshold(p, labels, objective)
    said = point.decide(p)
    assert_allclose(point.metric, _reference(goal, said, labels), rtol=1e-12, atol=1e-15)
    reached = point.metric
    if goal.objective in ("precision_at", "recall_at"):
        assert point.metric >= (point.target or math.nan)
        other = Criterion("precision_at" if goal.objective == "recall_at" else "recall_at", 0.5)
        reached = _reference(other, said, labels)
    reached = {"match_rate": -abs(reached), "cost": -reached}.get(goal.objective, reached)
    assert_allclose(reached, _best_of_all(goal, p, labels), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("objective", GOALS)
@pytest.mark.parametrize("decimals", [8, 1])
@pytest.mark.parametrize("seed", first_of(range(5)))
def test_a_stored_point_reproduces_its_stored_metric_and_counts_exactly(
    seed: int, decimals: int, objective: str
) -> None:
    p, labels = _drawn(seed, 200, decimals)
    fitted = fit_threshold(p, labels, objective, name="x")
    point = OperatingPoint.from_dict(json.loads(json.dumps(fitted.to_dict(), allow_nan=False)))
    counts = metrics.confusion(point.decide(p), labels)
    assert counts == (point.tp, point.fp, point.tn, point.fn)
    assert criterion_value(criterion_of(point), counts) == point.metric
    assert (point.name, point.positive_rate, point.n) == ("x", labels.mean(), len(labels))
    if point.objective in ("f1", "balanced_accuracy"):  # the report's own functions agree to the last bit
        assert getattr(metrics, point.objective)(counts) == point.metric


def test_objectives_of_arrays_of_counts_are_those_of_each_count() -> None:
    rng = np.random.default_rng(0)
    table = rng.integers(0, 4, (200, 4))
    for goal in map(Criterion.parse, GOALS):
        together = criterion_value(goal, tuple(table.T))
        alone = np.array([criterion_value(goal, tuple(row)) for row in table])
        np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("goal", GOALS)
def test_objectives_are_nan_only_where_they_divide_by_nothing(goal: str) -> None:
    def value(tp: int, fp: int, tn: int, fn: int) -> float:
        return float(criterion_value(Criterion.parse(goal), (tp, fp, tn, fn)))

    needs_both = goal in ("f1_macro", "balanced_accuracy", "mcc", "youden")
    assert math.isnan(value(0, 0, 0, 0))
    assert math.isnan(value(1, 0, 0, 1)) == needs_both  # no negative row
    assert math.isnan(value(0, 1, 1, 0)) == (needs_both or goal == "f1" or goal.startswith("recall"))  # no positive row
    assert math.isnan(value(0, 0, 1, 1)) == (goal == "mcc" or goal.startswith("precision"))  # nothing called supported
    assert math.isnan(value(1, 1, 0, 0)) == (goal == "mcc")  # everything called supported


def test_mcc_of_very_many_rows_does_not_overflow() -> None:
    n = 3_000_000_000
    assert_allclose(criterion_value(Criterion("mcc"), (n, n // 3, n, n // 3)), 0.5)


# Which of the cuts ---------------------------------------------------------------------------------------------------


def test_a_threshold_never_parts_ties() -> None:
    # Going through rows one by one would claim F1 1.0 at 0.9, where applying 0.9 gives 2/3.
    point = fit_threshold([0.9, 0.9, 0.9, 0.9], [1, 1, 0, 0])
    assert point.metric == 2 / 3
    assert point.threshold == 0.0


def test_everything_positive_and_everything_negative_are_tried() -> None:
    wrong_way, labels = np.array([0.0, 0.1, 0.9, 1.0]), np.array([1, 1, 0, 0])
    assert fit_threshold(wrong_way, labels, "f1").threshold == 0.0
    assert fit_threshold(wrong_way, labels, "cost:9:1").threshold == ALL_NEGATIVE
    assert not fit_threshold(wrong_way, labels, "cost:9:1").decide(1.0)
    negative = fit_threshold([0.4, 1.0, 1.0, 1.0, 0.6], [1, 0, 0, 0, 1], "balanced_accuracy")
    assert negative.metric == 0.5
    assert {negative.tp + negative.fp, negative.tn + negative.fn} == {0, 5}


def test_a_threshold_lies_midway_in_the_widest_of_equally_good_gaps() -> None:
    assert fit_threshold([0.1, 0.2, 0.6, 0.8], [0, 0, 1, 1]).threshold == 0.4
    # BAcc 0.75 for both cuts 0.8|0.7 and 0.6|0.1; the second gap is wider.
    point = fit_threshold([0.8, 0.7, 0.6, 0.1], [1, 0, 1, 0], "balanced_accuracy")
    assert_allclose(point.threshold, 0.35)


def test_neighbouring_floats_are_still_parted() -> None:
    low, high = 0.5, math.nextafter(0.5, 1)
    point = fit_threshold([low, low, high, high], [0, 0, 1, 1])
    assert (point.metric, point.threshold) == (1.0, high)


def test_the_cost_threshold_of_calibrated_probabilities_is_the_share_of_the_prices() -> None:
    # Calling supported costs (1 - p) cost_fp and not calling it p cost_fn: worth it from cost_fp / (cost_fp + cost_fn).
    rng = np.random.default_rng(1)
    p = np.round(rng.random(200_000), 2)
    point = fit_threshold(p, rng.random(len(p)) < p, "cost:3:1")
    assert_allclose(point.threshold, 0.75, atol=0.03)


def test_match_rate_calls_as_many_supported_as_there_are() -> None:
    p, labels = _drawn(2, 500)
    point = fit_threshold(p, labels, "match_rate")
    assert point.tp + point.fp == labels.sum()
    assert point.metric == 0.0


def test_a_target_no_cut_reaches_is_refused_with_the_best_there_is() -> None:
    p, labels = [0.9, 0.9, 0.5, 0.1], [1, 0, 1, 0]
    with pytest.raises(CalibrationError, match=r"no cut reaches the target, got at most 0.6667 of 0.9; lower"):
        fit_threshold(p, labels, "precision_at:0.9")
    assert fit_threshold(p, labels, "recall_at:1").tp == 2


def test_an_objective_undefined_at_every_cut_is_refused() -> None:
    with pytest.raises(CalibrationError, match="mcc is undefined at every cut"):
        fit_threshold([0.5] * 4, [1, 1, 0, 0], "mcc")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("accuracy", "unknown, got 'accuracy'"),
        ("risk_control", "unknown"),
        ("precision_at", "take a target"),
        ("precision_at:1.5", "take a target"),
        ("f1:0.5", "take a target"),
        ("recall_at:high", "must be numbers"),
        ("recall_at:0.5:0.5", "too many numbers"),
        ("cost", "two positive prices"),
        ("cost:1", "take a target"),
        ("cost:1:0", "two positive prices"),
        ("cost:nan:1", "two positive prices"),
    ],
)
def test_objectives_that_are_none_are_refused(text: str, says: str) -> None:
    with pytest.raises(CalibrationError, match=says):
        Criterion.parse(text)


def test_points_are_named_by_their_goal() -> None:
    assert [Criterion.parse(t).name for t in ("f1", "precision_at:0.95", "cost:5:1")] == [
        "f1",
        "precision_at_0.95",
        "cost_5_1",
    ]


@pytest.mark.parametrize(
    ("p", "labels", "says"),
    [
        ([], [], "got 0 and 0"),
        ([1.0], [1], "got 1 and 0"),
        ([0.1, 0.2, 0.3], [1, 1, 1], "got 3 and 0"),
        ([0.1, 0.2, math.nan, 0.0], [1, 1, 0, 0], "leave failed rows out"),
        ([0.1, 0.2, 0.0, 0.0], [1, 1, 0, math.nan], "leave unlabelled rows out"),
        ([0.1, 0.2], [1], "align"),
        ([-1.0, 0.0, 1.0, 2.0], [0, 0, 1, 1], "must be probabilities"),
    ],
)
def test_rows_that_cannot_be_fitted_are_refused_with_the_remedy(p: list, labels: list, says: str) -> None:
    with pytest.raises(CalibrationError, match=says):
        fit_threshold(p, labels)
    with pytest.raises(CalibrationError, match=says):
        fit_points(p, labels, np.arange(len(p)))


# Intervals -----------------------------------------------------------------------------------------------------------


def test_fit_points_gives_each_threshold_of_fit_threshold_and_its_intervals() -> None:
    p, labels = _drawn(3, 400)
    groups = np.arange(len(p)) % 40
    points = fit_points(p, labels, groups, GOALS, n_draws=200, seed=1)
    for point, goal in zip(points, GOALS, strict=True):
        bare = dataclasses.replace(
            point, interval=None, sensitivity_interval=None, specificity_interval=None, n_groups=None
        )
        assert bare == fit_threshold(p, labels, goal)
        assert point.n_groups == 40
        assert OperatingPoint.from_dict(json.loads(json.dumps(point.to_dict(), allow_nan=False))) == point
    assert points == fit_points(p, labels, groups, GOALS, n_draws=200, seed=1)


@pytest.mark.parametrize("objective", ["f1", "mcc", "precision_at:0.5", "match_rate"])
def test_the_interval_is_that_of_resampling_groups_and_choosing_again_by_hand(objective: str) -> None:
    p, labels = _drawn(4, 120)
    groups = np.random.default_rng(5).integers(0, 12, len(p))
    (point,) = fit_points(p, labels, groups, [objective], n_draws=2_000)
    rng, fixed, gains = np.random.default_rng(9), [], []

    def value(at: OperatingPoint, rows: np.ndarray) -> float:
        return float(criterion_value(criterion_of(point), metrics.confusion(at.decide(p[rows]), labels[rows])))

    for _ in range(2_000):
        rows = np.concatenate([np.flatnonzero(groups == g) for g in rng.integers(0, 12, 12)])
        fixed.append(value(point, rows))
        if len(gains) < 400:
            again = fit_threshold(p[rows], labels[rows], objective)
            gains.append(value(again, rows) - value(again, np.arange(len(p))))
    assert point.interval is not None
    tail = stats.norm.cdf(stats.t.ppf(0.025, 11) * np.sqrt(12 / 11))  # as wide as t of 12 groups
    moved = np.nanquantile(fixed, [tail, 1 - tail]) - np.mean(gains)
    less = np.quantile(point.metric - np.array(gains), [tail, 1 - tail])
    bounds = min(moved[0], less[0], point.metric), max(moved[1], less[1], point.metric)
    width = point.interval.high - point.interval.low
    assert_allclose([point.interval.low, point.interval.high], bounds, atol=0.12 * width)


@pytest.mark.parametrize("objective", ["balanced_accuracy", "cost:1:1"])
def test_the_interval_holds_what_a_threshold_truly_reaches_though_it_was_chosen_on_these_rows(objective: str) -> None:
    # Scores that know nothing: every threshold truly has a balanced accuracy, and a price, of a half.
    held = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        (point,) = fit_points(rng.random(160), np.tile([0, 1], 80), np.arange(160) // 4, [objective], n_draws=200)
        assert point.interval is not None
        held.append(point.interval.low <= 0.5 <= point.interval.high)
    assert np.mean(held) >= 0.85  # with the threshold held fixed: 0.73


def test_repeating_every_row_within_its_group_does_not_narrow_the_interval() -> None:
    p, labels = _drawn(6, 200)
    groups = np.arange(len(p)) % 25
    once = fit_points(p, labels, groups, ["f1"])[0]
    again = fit_points(np.tile(p, 4), np.tile(labels, 4), np.tile(groups, 4), ["f1"])[0]
    assert again.interval == once.interval
    assert once.interval is not None
    assert once.interval.low < once.metric < once.interval.high


def test_one_group_gives_no_interval_rather_than_a_wrong_one() -> None:
    p, labels = _drawn(7)
    (point,) = fit_points(p, labels, np.zeros(len(p)), ["f1"])
    assert (point.interval, point.sensitivity_interval, point.n_groups) == (None, None, 1)


def test_groups_that_do_not_match_the_rows_are_refused() -> None:
    p, labels = _drawn(8)
    with pytest.raises(ProofreelError, match="per row"):
        fit_points(p, labels, [0, 1], ["f1"])
