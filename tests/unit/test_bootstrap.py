"""Laws of the clustered bootstrap: a draw is the metric on the rows it took; intervals cover, or say why not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from nightly import first_of
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy import stats
from sklearn.metrics import balanced_accuracy_score, brier_score_loss, f1_score, log_loss, roc_auc_score

from proofreel.core.errors import RowError
from proofreel.eval.metrics import METRICS, MetricRows, Resamples, metric_rows
from proofreel.eval.metrics import draws as auc_module
from proofreel.eval.metrics.calibration_error import ece_event
from proofreel.eval.metrics.draws import accuracy_at_coverage_draws
from proofreel.eval.metrics.ranking import roc_auc
from proofreel.eval.uncertainty.bootstrap import (
    Interval,
    as_observed,
    clustered_interval,
    interval_of,
    leaving_one_out,
    resample,
    share_interval,
    trust,
)
from proofreel.eval.uncertainty.headline import headline_intervals, headline_names, headline_values, intervals_of
from proofreel.eval.uncertainty.paired_tests import difference_intervals

Floats = NDArray[np.float64]


def clustered_rows(
    seed: int, n: int = 60, n_groups: int = 9, decimals: int = 1
) -> tuple[MetricRows, NDArray[np.int64]]:
    """Rows with group effects; few decimals make many ties, in margins and in probabilities."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(n_groups, size=n)
    labels = rng.integers(2, size=n)
    margins = np.round(labels - 0.5 + rng.normal(size=n_groups)[groups] + rng.normal(size=n), decimals)
    p = np.clip(np.round(1 / (1 + np.exp(-margins)), decimals + 1), 0.01, 0.99)
    return metric_rows(margins, p, labels, threshold=0.6, coverage=0.7), groups


def kept_most_confident(confidence: Floats, correct: Floats, coverage: float) -> float:
    """Accuracy of the shortest run of most confident rows, ties whole, that holds `coverage`: written as defined."""
    for cut in sorted(set(confidence), reverse=True):
        kept = confidence >= cut
        if kept.sum() >= coverage * len(confidence) - 1e-9:
            return float(correct[kept].mean())
    return math.nan


def recomputed(rows: MetricRows, taken: NDArray[np.int64]) -> dict[str, float]:
    """Every headline metric on the rows a draw took, by scikit-learn where it has the metric."""
    y, p, said = rows.labels[taken], rows.p[taken], rows.p[taken] >= rows.threshold
    has_both = 0 < y.sum() < len(y)
    right = (said == (y == 1)).astype(float)
    return {
        "auc": float(roc_auc_score(y, rows.margins[taken])) if has_both else math.nan,
        "f1": float(f1_score(y, said)) if y.sum() else math.nan,
        "balanced_accuracy": float(balanced_accuracy_score(y, said)) if has_both else math.nan,
        "brier": float(brier_score_loss(y, p)),
        "nll": float(log_loss(y, p, labels=[0, 1])),
        "ece_event": ece_event(p, y),
        "accuracy_at_coverage": kept_most_confident(np.abs(p - rows.threshold), right, rows.coverage),
    }


@pytest.mark.parametrize("seed", first_of(range(4)))
def test_every_draw_is_the_metric_on_the_rows_it_took(seed: int) -> None:
    rows, groups = clustered_rows(seed)
    drawn = resample(groups, n_draws=40, seed=seed)
    for each in (drawn, leaving_one_out(drawn), as_observed(drawn)):
        values = headline_values(rows, each)
        assert set(values) == set(headline_names())
        for draw in range(each.n_draws):
            times = each.times_DG[draw].astype(int)[each.group_of_row]
            expected = recomputed(rows, np.repeat(np.arange(len(groups)), times))
            of_draw = {name: values[name][draw] for name in headline_names()}
            assert of_draw == pytest.approx(expected, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("kind", ["ties", "one long tie", "no ties", "all tied", "long ties in a row"])
@pytest.mark.parametrize("n_groups", [3, 40, 900])
def test_auc_of_groups_is_auc_of_rows(kind: str, n_groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(n_groups)
    n = 1_000
    scores, labels, groups = (
        rng.normal(size=n),
        rng.integers(2, size=n).astype(np.float64),
        rng.integers(n_groups, size=n),
    )
    scores = {
        "ties": np.round(scores, 1),
        "one long tie": np.where(np.abs(scores) < 0.5, 0.0, scores),
        "no ties": scores,
        "all tied": np.zeros(n),
        "long ties in a row": np.round(scores),
    }[kind]
    drawn = resample(groups, n_draws=5)
    expected = roc_auc(scores, labels, drawn.times_DG.astype(float)[:, drawn.group_of_row])
    for faster in (0, 10**9):  # by rows, by groups
        monkeypatch.setattr(auc_module, "_FORM_IS_FASTER", faster)
        np.testing.assert_allclose(auc_module.auc_draws(scores, labels, drawn), expected, atol=1e-12)
    monkeypatch.setattr(auc_module, "_EXACT_IN_FLOAT32", 0)  # float64 throughout
    np.testing.assert_allclose(auc_module.auc_draws(scores, labels, drawn), expected, atol=1e-12)


@pytest.mark.parametrize("coverage", [0.001, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
@pytest.mark.parametrize("decimals", [0, 1, 9])
def test_accuracy_at_coverage_is_that_of_the_rows_kept(coverage: float, decimals: int) -> None:
    rng = np.random.default_rng(decimals)
    confidence, correct = np.round(rng.random(300), decimals), rng.integers(2, size=300).astype(np.float64)
    drawn = resample(rng.integers(30, size=300), n_draws=30)
    found = accuracy_at_coverage_draws(confidence, correct, drawn, coverage)
    for value, times in zip(found, drawn.times_DG, strict=True):
        taken = np.repeat(np.arange(300), times.astype(int)[drawn.group_of_row])
        assert value == pytest.approx(kept_most_confident(confidence[taken], correct[taken], coverage), abs=1e-12)


def test_a_coverage_that_is_a_whole_number_of_rows_keeps_that_many() -> None:
    """0.7 x 10 and 0.29 x 100 are not whole in floating point; 7 and 29 rows are meant."""
    for n, coverage in [(10, 0.7), (100, 0.29), (1000, 0.57)]:
        correct = (np.arange(n) < round(n * coverage)).astype(float)
        whole = as_observed(resample(np.arange(n), 1))
        assert accuracy_at_coverage_draws(-np.arange(n, dtype=float), correct, whole, coverage)[0] == 1.0


def test_sums_over_rows_are_sums_of_the_rows_taken() -> None:
    rng = np.random.default_rng(3)
    groups, values = rng.choice(["a", "b", "c", "d"], size=50), rng.normal(size=(50, 3))
    drawn = resample(groups, n_draws=20)
    taken = drawn.times_DG[:, drawn.group_of_row]
    np.testing.assert_allclose(drawn.sums(values), taken @ values, rtol=1e-12)
    np.testing.assert_allclose(drawn.sums(values[:, 0]), taken @ values[:, 0], rtol=1e-12)
    np.testing.assert_allclose(drawn.observed(values), values.sum(axis=0), rtol=1e-12)
    assert float(drawn.observed(values[:, 0])) == pytest.approx(values[:, 0].sum())


def test_a_draw_takes_as_many_groups_as_there_are_each_equally_often() -> None:
    drawn = resample(np.repeat(np.arange(12), 3), n_draws=20_000)
    assert drawn.times_DG.shape == (drawn.n_draws, drawn.n_groups) == (20_000, 12)
    assert (drawn.times_DG.sum(axis=1) == 12).all()
    # A group's count is Binomial(12, 1/12): mean 1, variance 11/12; six standard errors of the means.
    assert np.abs(drawn.times_DG.mean(axis=0) - 1).max() < 6 * math.sqrt(1 / 20_000)
    assert np.abs(drawn.times_DG.var(axis=0) - 11 / 12).max() < 0.1


def test_draws_are_those_of_the_seed_whatever_the_order_of_rows() -> None:
    groups = np.array(["x", "y", "z", "x", "w", "y"])
    first, again, other = resample(groups, 50), resample(groups[::-1], 50), resample(groups, 50, seed=1)
    assert np.array_equal(first.times_DG, again.times_DG)
    assert not np.array_equal(first.times_DG, other.times_DG)


def test_many_groups_are_drawn_in_bags_with_the_variance_of_groups() -> None:
    packed = resample(np.arange(20_000), n_draws=4_000)
    assert packed.times_DG.dtype == np.uint8
    n = 200_000
    groups, values = np.arange(n), np.random.default_rng(0).normal(size=n)
    drawn = resample(groups, n_draws=4_000)
    assert drawn.times_DG.nbytes < 2**28
    spread = np.std(drawn.sums(values) / drawn.sums(np.ones(n)))
    assert spread == pytest.approx(values.std() / np.sqrt(n), rel=0.05)
    shuffled = np.random.default_rng(1).permutation(n)
    again = resample(groups[shuffled], n_draws=4_000)
    np.testing.assert_allclose(again.sums(values[shuffled]), drawn.sums(values), atol=1e-6)


def test_nan_and_wrong_lengths_are_refused() -> None:
    drawn = resample(["a", "a", "b"], 5)
    with pytest.raises(RowError, match="NaN"):
        drawn.sums([1.0, np.nan, 2.0])
    with pytest.raises(RowError, match="one value"):
        drawn.sums([1.0, 2.0])
    good: dict[str, Any] = {"margins": [0.1, 0.2], "p": [0.5, 0.6], "labels": [0, 1], "threshold": 0.5}
    for wrong in ({"margins": [np.nan, 1]}, {"p": [0.5, 1.2]}, {"labels": [0, 2]}, {"p": [0.5]}):
        columns: dict[str, Any] = good | wrong
        with pytest.raises(RowError, match="headline"):
            metric_rows(**columns)
    with pytest.raises(RowError, match="group"):
        headline_intervals(**good, groups=["a"])
    with pytest.raises(RowError, match="coverage"):
        accuracy_at_coverage_draws(np.ones(3), np.ones(3), drawn, 0.0)


def test_percentiles_are_numpys_and_undefined_draws_are_left_out() -> None:
    draws = np.append(np.random.default_rng(0).normal(size=500), [np.nan] * 7)
    interval = interval_of(draws, 0.0, level=0.9, n_groups=30, widened=False)
    assert (interval.low, interval.high) == tuple(np.quantile(draws[:500], [0.05, 0.95]))
    assert (interval.n_draws, interval.n_undefined, interval.method) == (507, 7, "percentile")


def test_bca_is_scipys() -> None:
    """The mean of one value per group, so that SciPy's bootstrap over values is ours over groups."""
    values = np.random.default_rng(1).exponential(size=40)
    ours = resample(np.arange(40), n_draws=20_000)
    means = ours.sums(values) / 40
    without = leaving_one_out(ours).sums(values) / 39
    found = interval_of(means, values.mean(), 0.95, "bca", without, n_groups=40, widened=False)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="BCa", rng=0).confidence_interval
    assert found.method == "bca"
    assert found.note is None
    plain = interval_of(means, values.mean(), 0.95, n_groups=40, widened=False)
    # Both are random; the bounds' own noise is about 0.004 here, the correction several times that.
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=0.015)
    assert found.high - plain.high > 0.02


def test_bca_without_asymmetry_is_the_percentile_interval() -> None:
    draws = np.concatenate([-np.arange(1, 501), np.arange(1, 501)]) / 100
    symmetric = interval_of(draws, 0.0, method="bca", leave_one_out=[-1, 0, 1], n_groups=3)
    plain = interval_of(draws, 0.0, n_groups=3)
    assert (symmetric.low, symmetric.high) == pytest.approx((plain.low, plain.high))


@pytest.mark.parametrize(
    ("without", "estimate", "reason"),
    [
        (None, 0.0, "no leave-one-out"),
        ([0.1, np.nan, 0.2], 0.0, "undefined without"),
        ([0.1, 0.1, 0.1], 0.0, "no single group"),
        ([0.1, 0.2, 0.4], 99.0, "one side"),
    ],
)
def test_bca_that_cannot_be_is_a_percentile_interval_that_says_why(
    without: list[float] | None, estimate: float, reason: str
) -> None:
    draws = np.random.default_rng(0).normal(size=200)
    found = interval_of(draws, estimate, method="bca", leave_one_out=without, n_groups=3)
    plain = interval_of(draws, estimate, n_groups=3)
    assert (found.low, found.high, found.method) == (plain.low, plain.high, "percentile")
    assert reason in str(found.note)


def test_bca_of_two_groups_is_a_percentile_interval_that_says_why() -> None:
    drawn = resample(["a", "a", "b", "b"], n_draws=50)
    values = np.array([0.1, 0.2, 0.7, 0.9])
    means, without = (of.sums(values) / of.sums(np.ones(4)) for of in (drawn, leaving_one_out(drawn)))
    found = interval_of(means, float(values.mean()), 0.95, "bca", without, n_groups=2)
    assert (found.method, found.note) == ("percentile", "too few groups for a correction")
    assert (found.low, found.high) == (pytest.approx(0.15), pytest.approx(0.8))


def test_the_two_ways_to_an_interval_of_auc_are_one() -> None:
    rows, groups = clustered_rows(11, n=200, n_groups=25)
    for method in ("percentile", "bca"):
        fast = headline_intervals(rows.margins, rows.p, rows.labels, groups, 0.6, n_draws=300, method=method)["auc"]
        slow = clustered_interval(roc_auc, rows.margins, rows.labels, groups, n_draws=300, method=method)
        assert (fast.low, fast.high, fast.method) == pytest.approx((slow.low, slow.high, slow.method), abs=1e-12)


def test_fewer_than_two_groups_give_no_interval() -> None:
    nothing = headline_intervals([], [], [], [], 0.5)
    one = headline_intervals([0.3], [0.6], [1], ["a"], 0.5)
    for intervals, n_groups in ((nothing, 0), (one, 1)):
        assert set(intervals) == set(headline_names())
        for interval in intervals.values():
            assert math.isnan(interval.low)
            assert math.isnan(interval.high)
            assert interval.n_groups == n_groups
            assert "No interval" in trust(interval)[0]


def test_one_class_leaves_ranking_undefined_and_probabilities_defined() -> None:
    found = headline_intervals([1, 2, 3, 4], [0.6, 0.7, 0.8, 0.9], [0, 0, 0, 0], list("abcd"), 0.5, n_draws=50)
    for name in ("auc", "f1", "balanced_accuracy"):
        assert math.isnan(found[name].low)
        assert found[name].n_undefined == 50
    for name in ("brier", "nll", "ece_event", "accuracy_at_coverage"):
        assert found[name].low <= found[name].high
        assert found[name].n_undefined == 0


def test_a_certain_and_wrong_probability_costs_infinitely_unless_its_log_odds_are_known() -> None:
    columns = {"margins": [2.0, -1.0, 40.0], "p": [0.9, 0.2, 1.0], "labels": [1, 0, 0], "threshold": 0.5}
    assert headline_values(metric_rows(**columns), as_observed(resample(list("abc"), 1)))["nll"][0] == math.inf
    known = metric_rows(**columns, log_odds=[math.log(9), math.log(0.25), 40.0])
    value = headline_values(known, as_observed(resample(list("abc"), 1)))["nll"][0]
    assert value == pytest.approx((-math.log(0.9) - math.log(0.8) + 40) / 3)
    interval = headline_intervals(**columns, groups=list("abc"), n_draws=200)["nll"]
    assert interval.high == math.inf
    assert not math.isnan(interval.low)


def test_intervals_say_when_they_cannot_be_trusted() -> None:
    good = Interval(0.1, 0.2, 0.95, 100, 1_000, 3, largest_share=0.1)
    assert trust(good) == []
    few = Interval(0.1, 0.2, 0.95, 19, 1_000, 0, largest_share=0.1)
    assert len(trust(few)) == 1
    assert "19 groups" in trust(few)[0]
    for n_groups in (20, 99):
        assert "below 100" in trust(Interval(0.1, 0.2, 0.95, n_groups, 1_000, 0))[0]
    (never,) = trust(Interval(1.0, 1.0, 0.95, 100, 1_000, 0))
    assert "3.0% of groups" in never
    rare = Interval(0.1, 0.2, 0.95, 100, 1_000, 200, largest_share=0.1)
    assert len(trust(rare)) == 1
    assert "20%" in trust(rare)[0]
    big = Interval(0.1, 0.2, 0.95, 100, 1_000, 0, largest_share=0.6)
    assert len(trust(big)) == 1
    assert "60%" in trust(big)[0]


def test_the_largest_group_is_known() -> None:
    groups = ["big"] * 6 + ["small"] * 2 + ["other"] * 2
    rows = headline_intervals(np.arange(10), np.linspace(0.1, 0.9, 10), [0, 1] * 5, groups, 0.5, n_draws=20)
    assert rows["brier"].largest_share == 0.6
    assert any("60%" in sentence for sentence in trust(rows["brier"]))


def simulated(rng: np.random.Generator, n_groups: int) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Margins and labels that lean, each its own way, with the group, as claims about one video do."""
    groups = np.repeat(np.arange(n_groups), 20)
    labels = (rng.random(len(groups)) < rng.random(n_groups)[groups]).astype(np.float64)
    return 1.5 * labels - 0.75 + 2 * rng.normal(size=n_groups)[groups] + rng.normal(size=len(groups)), labels, groups


def test_clustered_intervals_cover_as_they_say_and_those_of_independent_rows_do_not() -> None:
    """Brier score and AUC of 300 simulated data sets against their values on very many groups."""
    rng = np.random.default_rng(0)

    def values(drawn: Resamples, margins: Floats, labels: Floats) -> Floats:
        losses = (1 / (1 + np.exp(-margins)) - labels) ** 2
        return np.stack([auc_module.auc_draws(margins, labels, drawn), drawn.sums(losses) / len(losses)])

    margins, labels, groups = simulated(rng, 4_000)
    truth = values(as_observed(resample(groups, 1)), margins, labels)[:, 0]
    covered, n_sets = {"clustered": np.zeros(2), "rows": np.zeros(2)}, {"clustered": 300, "rows": 80}
    for seed in range(n_sets["clustered"]):
        margins, labels, groups = simulated(rng, 80)
        for kind, names in (("clustered", groups), ("rows", np.arange(len(groups)))):
            if seed < n_sets[kind]:
                low, high = np.quantile(values(resample(names, 200, seed), margins, labels), [0.025, 0.975], axis=1)
                covered[kind] += (low <= truth) & (truth <= high)
    share = {kind: covered[kind] / n_sets[kind] for kind in covered}
    # Three standard errors of a share of 300 are 0.038; percentile intervals of 80 groups fall a little short of 0.95.
    assert (share["clustered"] > 0.90).all(), share
    assert (share["clustered"] < 0.99).all(), share
    assert (share["rows"] < 0.75).all(), share


def test_a_share_rests_on_the_groups_with_such_rows_and_never_ends_at_none_or_all() -> None:
    # 40 groups of two rows; six rows in three groups are called supported, and all of these are right.
    groups = np.arange(80) // 2
    p = np.where(groups < 3, 0.9, 0.1)
    labels = np.where(groups < 3, 1.0, np.arange(80) % 2)
    intervals = headline_intervals(p, p, labels, groups, 0.5, n_draws=200)
    assert intervals["f1"].n_groups == 40
    rows = metric_rows(p, p, labels, 0.5)
    named = intervals_of([METRICS[name] for name in ("precision", "specificity")], rows, resample(groups, 200))
    assert (named["precision"].n_groups, named["specificity"].n_groups) == (3, 37)
    assert_allclose([named["precision"].low, named["precision"].high], [0.05 ** (1 / 3), 1])
    assert_allclose([named["specificity"].low, named["specificity"].high], [0.05 ** (1 / 37), 1])
    assert any("3 groups" in reason for reason in trust(named["precision"]))
    none = share_interval(np.zeros(100), 0.0, 0.95, 10)
    assert_allclose([none.low, none.high], [0, 1 - 0.05**0.1])


def test_a_difference_of_decisions_rests_on_the_groups_that_differ() -> None:
    rng = np.random.default_rng(0)
    groups, labels = np.arange(200) // 4, rng.integers(0, 2, 200).astype(float)
    p = np.clip(0.5 + 0.3 * (labels - 0.5) + 0.2 * rng.normal(size=200), 0.01, 0.99)
    other = np.where(groups < 5, 1 - p, p)
    found = difference_intervals(metric_rows(p, p, labels, 0.5), metric_rows(other, other, labels, 0.5), groups, 200)
    assert (found["f1"].n_groups, found["auc"].n_groups) == (5, 50)
    same = difference_intervals(metric_rows(p, p, labels, 0.5), metric_rows(p, p, labels, 0.5), groups, 200)
    assert (same["f1"].low, same["f1"].high, same["f1"].n_groups) == (0, 0, 50)
