"""Laws of comparing two verifiers on the same pairs: matching, McNemar, permutation by groups, paired intervals."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from nightly import first_of
from numpy.typing import NDArray
from scipy import stats
from sklearn.metrics import balanced_accuracy_score, brier_score_loss, f1_score, log_loss, roc_auc_score

from proofreel.core.errors import RowError
from proofreel.core.pairs import Label
from proofreel.eval.metrics import MetricRows, metric_rows
from proofreel.eval.metrics.calibration_error import ece_event
from proofreel.eval.metrics.catalogue import METRICS
from proofreel.eval.scoring.predictions import Prediction
from proofreel.eval.uncertainty.bootstrap import resample
from proofreel.eval.uncertainty.headline import headline_names, headline_values
from proofreel.eval.uncertainty.paired_tests import (
    adjusted_p,
    cluster_permutation,
    difference_intervals,
    matched,
    mcnemar,
    permuted_auc,
)

Floats = NDArray[np.float64]


def row(pair_id: str, margin: float, label: Label | None = "supported", group: str = "g") -> Prediction:
    failed = math.isnan(margin)
    p = math.nan if failed else 1 / (1 + math.exp(-margin))
    return Prediction(pair_id, margin, p, label, "test", group, "r", "o", "video", "broken" if failed else None)


def two_verifiers(
    seed: int, n: int, n_groups: int, better: float = 0.0
) -> tuple[MetricRows, MetricRows, NDArray[np.int64]]:
    """Two verifiers' rows with ties; `better` is how much more the first knows."""
    rng = np.random.default_rng(seed)
    groups, labels = rng.integers(n_groups, size=n), rng.permutation(np.arange(n) % 2)
    effect, found = rng.normal(size=n_groups)[groups], []
    for strength in (1 + better, 1.0):
        margins = np.round(strength * (2 * labels - 1) + effect + rng.normal(size=n), 1)
        found.append(metric_rows(margins, 1 / (1 + np.exp(-margins)), labels, threshold=0.55))
    return found[0], found[1], groups


def test_rows_are_matched_by_pair_and_the_rest_is_counted() -> None:
    first = [row("c", 0.3), row("a", 1.0, group="h"), row("b", math.nan), row("x", 0.0), row("u", 0.1, label=None)]
    second = [
        row("a", -1.0, group="h"),
        row("b", 2.0),
        row("c", 0.5),
        row("y", 0.0),
        row("z", 1.0),
        row("u", 0.2, None),
    ]
    both = matched(first, second)
    assert both.pair_ids == ("c", "a")
    np.testing.assert_allclose(both.margins_2N, [[0.3, 1.0], [0.5, -1.0]])
    np.testing.assert_allclose(both.p_2N, 1 / (1 + np.exp(-both.margins_2N)))
    assert both.labels.tolist() == [1.0, 1.0]
    assert both.groups.tolist() == ["g", "h"]
    assert (both.n_only_first, both.n_only_second, both.n_failed, both.n_unlabelled) == (1, 2, 1, 1)
    assert len(first) == len(both.labels) + both.n_only_first + both.n_failed + both.n_unlabelled
    nothing = matched([], second)
    assert (nothing.margins_2N.shape, nothing.n_only_second) == ((2, 0), 6)


def test_different_labels_or_groups_of_a_pair_are_refused_and_so_are_pairs_held_twice() -> None:
    with pytest.raises(RowError, match="two labels"):
        matched([row("a", 1.0)], [row("a", 1.0, label="refuted")])
    with pytest.raises(RowError, match="two labels"):
        matched([row("a", math.nan)], [row("a", 1.0, label=None)])
    with pytest.raises(RowError, match="two groups"):
        matched([row("a", 1.0)], [row("a", 1.0, group="other")])
    with pytest.raises(RowError, match="second predictions hold a pair twice"):
        matched([row("a", 1.0)], [row("a", 1.0), row("a", 1.0)])


@pytest.mark.parametrize(
    ("b", "c", "chi_square", "p_chi_square", "p_exact"),
    [
        # Worked by hand: exact is twice the smaller binomial tail at 1/2, at most 1.
        (10, 2, 49 / 12, math.erfc(math.sqrt(49 / 24)), 2 * (1 + 12 + 66) / 2**12),
        (0, 5, 16 / 5, math.erfc(math.sqrt(1.6)), 2 / 32),
        (3, 3, 0.0, 1.0, 1.0),
        (1, 0, 0.0, 1.0, 1.0),
    ],
)
def test_mcnemar_is_the_hand_worked_one(b: int, c: int, chi_square: float, p_chi_square: float, p_exact: float) -> None:
    first = [True] * b + [False] * c + [True] * 7 + [False] * 4
    second = [False] * b + [True] * c + [True] * 7 + [False] * 4
    found = mcnemar(first, second)
    assert (found.only_first_right, found.only_second_right) == (b, c)
    assert found.p_exact == pytest.approx(p_exact)
    assert (found.chi_square, found.p_chi_square) == pytest.approx((chi_square, p_chi_square))


def test_mcnemar_exact_is_scipys_and_never_differing_is_no_evidence() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        first, second = rng.integers(2, size=(2, 40)).astype(bool)
        found = mcnemar(first, second)
        n = found.only_first_right + found.only_second_right
        assert found.p_exact == stats.binomtest(found.only_second_right, n).pvalue
        assert mcnemar(second, first).p_exact == pytest.approx(found.p_exact)
    for none in (mcnemar([], []), mcnemar([True], [True])):
        assert none.p_exact == 1.0
        assert math.isnan(none.p_chi_square)
    with pytest.raises(RowError, match="mcnemar"):
        mcnemar([True], [True, False])


def swapped_metrics(first: MetricRows, second: MetricRows, is_swapped: NDArray[np.bool_]) -> dict[str, float]:
    """First minus second by scikit-learn, after swapping the two on some rows; ranks are each verifier's own."""
    y, of_each = first.labels, []
    ranks = [stats.rankdata(rows.margins) for rows in (first, second)]
    for i in (0, 1):
        one, other = (first, second)[i], (first, second)[1 - i]
        p = np.where(is_swapped, other.p, one.p)
        said = p >= first.threshold
        of_each.append(
            {
                "auc": roc_auc_score(y, np.where(is_swapped, ranks[1 - i], ranks[i])),
                "f1": f1_score(y, said),
                "balanced_accuracy": balanced_accuracy_score(y, said),
                "brier": brier_score_loss(y, p),
                "nll": log_loss(y, p),
                "ece_event": ece_event(p, y),
            }
        )
    return {name: of_each[0][name] - of_each[1][name] for name in of_each[0]}


@pytest.mark.parametrize("seed", first_of(range(3)))
def test_few_groups_are_swapped_in_every_way(seed: int) -> None:
    first, second, groups = two_verifiers(seed, n=40, n_groups=6, better=0.5)
    found = cluster_permutation(first, second, groups)
    ways = [swapped_metrics(first, second, np.array(way)[groups]) for way in itertools.product([False, True], repeat=6)]
    for name, observed in ways[0].items():
        extreme = np.mean([abs(way[name]) >= abs(observed) - 1e-12 for way in ways])
        assert found[name].difference == pytest.approx(observed, abs=1e-12)
        assert found[name].p_value == pytest.approx(extreme), name
        assert found[name].is_exact
        assert found[name].n_tried == 64


def test_the_mean_over_seeds_is_tested_by_swapping_a_group_in_all_of_them() -> None:
    _, _, groups = two_verifiers(0, n=40, n_groups=5, better=0.5)
    pairs = [two_verifiers(0, n=40, n_groups=5, better=better)[:2] for better in (0.5, 1.5)]
    found = permuted_auc(pairs, groups)
    swaps = [np.array(way)[groups] for way in itertools.product([False, True], repeat=5)]
    ways = [np.mean([swapped_metrics(*pair, swap)["auc"] for pair in pairs]) for swap in swaps]
    assert found.difference == pytest.approx(ways[0])
    assert found.p_value == pytest.approx(np.mean(np.abs(ways) >= abs(ways[0]) - 1e-12))
    assert (found.n_tried, found.is_exact, found.n_groups) == (32, True, 5)
    assert permuted_auc(pairs[:1], groups) == cluster_permutation(*pairs[0], groups)["auc"]
    sampled = permuted_auc(pairs, groups, n_tried=25)
    assert not sampled.is_exact
    assert sampled.p_value == pytest.approx(found.p_value, abs=0.25)


def test_pairs_of_other_rows_are_not_averaged() -> None:
    *_, groups = two_verifiers(0, n=40, n_groups=6)
    pairs = [two_verifiers(seed, n=40, n_groups=6, better=0.5)[:2] for seed in (0, 1)]
    with pytest.raises(RowError, match="compare"):
        permuted_auc(pairs, groups)


def test_with_rows_as_groups_a_difference_of_means_is_scipys_exact_test() -> None:
    first, second, _ = two_verifiers(5, n=11, n_groups=11, better=1.0)
    losses = [(rows.p - rows.labels) ** 2 for rows in (first, second)]

    def difference(a: Floats, b: Floats, axis: int) -> Floats:
        return np.mean(a, axis=axis) - np.mean(b, axis=axis)

    asked: dict[str, Any] = {"permutation_type": "samples", "n_resamples": np.inf, "vectorized": True}
    theirs = stats.permutation_test(losses, difference, **asked)
    ours = cluster_permutation(first, second, np.arange(11))["brier"]
    assert ours.difference == pytest.approx(theirs.statistic)
    assert ours.p_value == pytest.approx(theirs.pvalue)


def test_sampled_swaps_find_what_all_swaps_find() -> None:
    first, second, groups = two_verifiers(8, n=120, n_groups=12, better=0.4)
    exact = cluster_permutation(first, second, groups)
    sampled = cluster_permutation(first, second, groups, n_tried=4_000)
    for name, test in exact.items():
        assert test.is_exact
        assert not sampled[name].is_exact
        assert sampled[name].p_value == pytest.approx(test.p_value, abs=0.035)  # four standard errors at p = 0.5


def test_swapping_the_verifiers_turns_the_difference_round_and_keeps_the_p_value() -> None:
    first, second, groups = two_verifiers(1, n=60, n_groups=7, better=0.3)
    one, other = cluster_permutation(first, second, groups), cluster_permutation(second, first, groups)
    for name, test in one.items():
        assert other[name].difference == pytest.approx(-test.difference)
        assert other[name].p_value == pytest.approx(test.p_value)


def test_a_margin_on_another_scale_is_no_difference_in_auc() -> None:
    first, _, groups = two_verifiers(2, n=300, n_groups=40)
    stretched = metric_rows(10 * first.margins + 3, first.p, first.labels, 0.55)
    for test in cluster_permutation(first, stretched, groups).values():
        assert test.difference == pytest.approx(0)
        assert test.p_value == 1.0


def test_no_difference_is_found_rarely_and_a_real_one_nearly_always() -> None:
    """At the 10 % level, over 200 pairs of verifiers that are alike but for group effects, then unlike."""
    alike = [cluster_permutation(*two_verifiers(seed, 160, 16), n_tried=200) for seed in range(200)]
    for name in ("auc", "brier", "balanced_accuracy"):
        share = np.mean([found[name].p_value <= 0.1 for found in alike])
        assert share < 0.1 + 3 * math.sqrt(0.09 / 200), name
    unlike = [cluster_permutation(*two_verifiers(seed, 400, 40, better=1.0), n_tried=200) for seed in range(20)]
    assert np.mean([found["auc"].p_value <= 0.05 for found in unlike]) > 0.8


def test_one_group_one_class_and_no_rows_are_no_test() -> None:
    first, second, groups = two_verifiers(3, n=30, n_groups=5)
    assert all(math.isnan(test.p_value) for test in cluster_permutation(first, second, np.zeros(30)).values())
    ones = [metric_rows(rows.margins, rows.p, np.ones(30), 0.5) for rows in (first, second)]
    found = cluster_permutation(ones[0], ones[1], groups)
    assert math.isnan(found["auc"].difference)
    assert math.isnan(found["auc"].p_value)
    assert 0 < found["brier"].p_value <= 1
    empty = metric_rows([], [], [], 0.5)
    assert all(math.isnan(test.p_value) for test in cluster_permutation(empty, empty, []).values())
    with pytest.raises(RowError, match="same labelled rows"):
        cluster_permutation(first, ones[0], groups)


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_the_interval_of_a_difference_looks_at_both_on_the_same_resamples(method: str) -> None:
    first, second, groups = two_verifiers(4, n=200, n_groups=30, better=0.5)
    found = difference_intervals(first, second, groups, n_draws=200, method="bca" if method == "bca" else "percentile")
    drawn = resample(groups, 200)
    differ = len(np.unique(groups[first.decisions != second.decisions]))
    for name in headline_names():
        if METRICS[name].gaps is not None:  # a calibration error has an interval of its own
            continue
        n = differ if METRICS[name].of_counts else 30  # groups that it rests on
        tail = stats.norm.cdf(stats.t.ppf(0.025, n - 1) * np.sqrt(n / (n - 1)))  # as wide as t of so many
        draws = headline_values(first, drawn)[name] - headline_values(second, drawn)[name]
        assert min(draws) <= found[name].low < found[name].high <= max(draws)
        if method == "percentile":
            assert (found[name].low, found[name].high) == pytest.approx(tuple(np.quantile(draws, [tail, 1 - tail])))
        assert found[name].n_groups == n


def test_the_same_verifier_twice_differs_by_exactly_nothing() -> None:
    first, _, groups = two_verifiers(6, n=100, n_groups=20)
    for method in ("percentile", "bca"):
        for interval in difference_intervals(first, first, groups, n_draws=50, method=method).values():
            assert (interval.low, interval.high) == (0.0, 0.0)
    one_group = difference_intervals(first, first, np.zeros(100))
    assert all(math.isnan(interval.low) for interval in one_group.values())


def test_adjusted_p_values_are_the_hand_worked_ones() -> None:
    """Benjamini and Hochberg: p times m over its rank, made monotone from the largest down."""
    np.testing.assert_allclose(adjusted_p([0.01, 0.04, 0.03, 0.5]), [0.04, 0.16 / 3, 0.16 / 3, 0.5])
    some = np.random.default_rng(0).random((4, 5))
    np.testing.assert_allclose(adjusted_p(some), stats.false_discovery_control(some.ravel()).reshape(4, 5))


def test_tests_that_could_not_be_made_are_not_counted() -> None:
    np.testing.assert_allclose(adjusted_p([0.01, np.nan, 0.04]), [0.02, np.nan, 0.04])
    assert adjusted_p([]).shape == (0,)
    assert np.isnan(adjusted_p([np.nan])).all()
