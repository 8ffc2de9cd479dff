"""Laws of the rank tests over groups: SciPy's values, exact where they can be, ties and zeros as stated."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from proofreel.core.errors import RowError
from proofreel.eval.uncertainty.rank_tests import friedman, group_means, signed_rank


def test_group_means_are_means_of_groups_in_sorted_order() -> None:
    names, means = group_means([1, 0, 1, 1], ["b", "a", "b", "a"])
    assert names.tolist() == ["a", "b"]
    assert means.tolist() == [0.5, 1.0]
    assert len(group_means([], [])[0]) == 0
    with pytest.raises(RowError, match="group means"):
        group_means([np.nan], ["a"])


def test_without_ties_signed_rank_counts_every_sign_pattern() -> None:
    first, second = np.random.default_rng(0).normal(size=(2, 9))
    first += 0.8
    found = signed_rank(first, second)
    ranks = stats.rankdata(np.abs(first - second))
    sums = [np.dot(signs, ranks) for signs in itertools.product([0, 1], repeat=9)]
    positive = np.sum(ranks[first > second])
    smaller = min(positive, ranks.sum() - positive)
    assert found.method == "exact"
    assert found.statistic == smaller
    assert found.p_value == pytest.approx(min(1, 2 * np.mean(np.array(sums) <= smaller)))
    theirs: Any = stats.wilcoxon(first, second)
    assert found.p_value == pytest.approx(theirs.pvalue)
    assert found.rank_biserial == pytest.approx((2 * positive - ranks.sum()) / ranks.sum())
    assert found.mean_difference == pytest.approx(np.mean(first - second))


def test_groups_without_a_difference_are_left_out_and_counted() -> None:
    first, second = np.array([0.9, 0.8, 0.7, 0.4, 0.5]), np.array([0.8, 0.5, 0.1, 0.4, 0.5])
    found = signed_rank(first, second)
    only = signed_rank(first[:3], second[:3])
    assert (found.n_groups, found.n_zero) == (5, 2)
    assert (found.statistic, found.p_value, found.rank_biserial) == (only.statistic, only.p_value, only.rank_biserial)
    assert found.rank_biserial == 1.0
    assert found.mean_difference == pytest.approx(0.2)


def test_differences_equal_but_for_rounding_are_ties() -> None:
    """0.8 - 0.6 and 0.4 - 0.2 differ in the seventeenth digit; both are a fifth."""
    first, second = [0.8, 0.4, 0.9, 0.1], [0.6, 0.2, 0.1, 0.5]
    assert 0.8 - 0.6 != 0.4 - 0.2
    found = signed_rank(first, second)
    assert found.method == "asymptotic"
    expected: Any = stats.wilcoxon([1, 1, 4, -2], method="asymptotic")
    assert (found.statistic, found.p_value) == (expected.statistic, pytest.approx(expected.pvalue))


def test_many_groups_use_the_normal_approximation() -> None:
    first, second = np.random.default_rng(1).normal(size=(2, 51))
    found = signed_rank(first, second)
    assert found.method == "asymptotic"
    theirs: Any = stats.wilcoxon(first - second, method="asymptotic")
    assert found.p_value == pytest.approx(theirs.pvalue)


def test_no_difference_anywhere_is_no_evidence() -> None:
    same = signed_rank([0.5, 0.6], [0.5, 0.6])
    assert (same.p_value, same.n_zero, same.mean_difference) == (1.0, 2, 0.0)
    assert math.isnan(same.rank_biserial)
    nothing = signed_rank([], [])
    assert math.isnan(nothing.p_value)
    assert signed_rank([1.0], [0.0]).p_value == 1.0
    with pytest.raises(RowError, match="signed rank"):
        signed_rank([1.0, np.nan], [0.0, 1.0])


def test_friedman_is_the_hand_worked_one() -> None:
    """Three models ranked alike by all four groups: chi-square = n (k - 1), agreement 1."""
    found = friedman([[0.1, 0.5, 0.9]] * 4)
    assert found.statistic == pytest.approx(8)
    assert (found.degrees_of_freedom, found.kendall_w) == (2, pytest.approx(1))
    assert found.p_value == pytest.approx(math.exp(-4))  # chi-square with 2 degrees of freedom
    assert found.mean_rank_M.tolist() == [1, 2, 3]


def test_friedman_is_scipys_with_ties() -> None:
    values = np.round(np.random.default_rng(0).random((27, 10)), 1)
    found = friedman(values)
    theirs = stats.friedmanchisquare(*values.T)
    assert (found.statistic, found.p_value) == pytest.approx((theirs.statistic, theirs.pvalue))
    assert found.degrees_of_freedom == 9
    assert found.mean_rank_M.sum() == pytest.approx(10 * 11 / 2)


def test_groups_that_tie_all_models_say_nothing() -> None:
    found = friedman(np.full((5, 3), 0.7))
    assert math.isnan(found.statistic)
    assert math.isnan(found.p_value)
    for wrong in (np.zeros((1, 3)), np.zeros((5, 2)), np.zeros(5), [[np.nan, 1, 2]] * 3):
        with pytest.raises(RowError, match="friedman"):
            friedman(wrong)
