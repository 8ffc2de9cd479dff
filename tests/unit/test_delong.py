"""Laws of DeLong: its variance is the pairwise definition's, and the bootstrap over rows, or groups, finds the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
from nightly import first_of
from numpy.typing import NDArray
from scipy import stats
from sklearn.metrics import roc_auc_score

from proofreel.core.errors import RowError
from proofreel.eval.metrics.draws import auc_draws
from proofreel.eval.uncertainty.auc_covariance import delong, delong_difference
from proofreel.eval.uncertainty.bootstrap import resample

Floats = NDArray[np.float64]


def rows(seed: int, n: int = 80, decimals: int = 1) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Two verifiers' scores of the same rows, with ties, and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % 3 > 0).astype(np.int64)
    shared = rng.normal(size=n) + labels
    first, second = (np.round(shared + rng.normal(size=n), decimals) for _ in range(2))
    return first, second, labels


def wins(scores: Floats, labels: NDArray[np.int64]) -> Floats:
    """Every positive against every negative, as defined: shape (positives, negatives)."""
    above, below = scores[labels == 1][:, None], scores[labels == 0]
    return (above > below) + (above == below) / 2


@pytest.mark.parametrize("seed", first_of(range(5)))
def test_variance_is_that_of_the_structural_components(seed: int) -> None:
    """DeLong et al. (1988), equations 5 to 7, written out over all pairs."""
    first, second, labels = rows(seed)
    each = [wins(scores, labels) for scores in (first, second)]
    covariance = np.cov([w.mean(axis=1) for w in each]) / each[0].shape[0]
    covariance += np.cov([w.mean(axis=0) for w in each]) / each[0].shape[1]
    one, difference = delong(first, labels), delong_difference(first, second, labels)
    assert one.value == pytest.approx(roc_auc_score(labels, first))
    assert one.standard_error**2 == pytest.approx(covariance[0, 0])
    contrast = np.array([1, -1])
    assert difference.value == pytest.approx(roc_auc_score(labels, first) - roc_auc_score(labels, second))
    assert difference.standard_error**2 == pytest.approx(contrast @ covariance @ contrast)
    assert difference.p_value == pytest.approx(
        2 * stats.norm.sf(abs(difference.value) / math.sqrt(contrast @ covariance @ contrast))
    )


def test_the_auc_is_scipys_mann_whitney_u() -> None:
    first, _, labels = rows(9)
    u = stats.mannwhitneyu(first[labels == 1], first[labels == 0]).statistic
    assert delong(first, labels).value == pytest.approx(u / (np.sum(labels == 1) * np.sum(labels == 0)))


def test_the_interval_is_the_normal_one_cut_to_what_an_auc_can_be() -> None:
    first, _, labels = rows(2)
    found = delong(first, labels, level=0.9)
    reach = stats.norm.ppf(0.95) * found.standard_error
    assert (found.low, found.high) == pytest.approx((found.value - reach, found.value + reach))
    high = delong([0, 1, 5, 2, 6, 7], [0, 0, 0, 1, 1, 1])
    assert high.value + 1.96 * high.standard_error > 1
    assert high.high == 1.0


def test_the_bootstrap_with_every_row_its_own_group_finds_the_same_spread() -> None:
    first, second, labels = rows(3, n=400, decimals=2)
    drawn = resample(np.arange(len(labels)), n_draws=4_000)
    draws = [auc_draws(scores, labels.astype(np.float64), drawn) for scores in (first, second)]
    # The bootstrap's own error at 4,000 draws is about 1 %; the two definitions differ by order 1/n.
    assert np.std(draws[0]) == pytest.approx(delong(first, labels).standard_error, rel=0.06)
    assert np.std(draws[0] - draws[1]) == pytest.approx(
        delong_difference(first, second, labels).standard_error, rel=0.06
    )


def test_with_groups_the_clustered_bootstrap_finds_the_same_spread_and_plain_delong_does_not() -> None:
    rng = np.random.default_rng(4)
    groups = np.repeat(np.arange(150), 12)
    labels = (rng.random(len(groups)) < rng.random(150)[groups]).astype(np.float64)
    scores = labels + 2 * rng.normal(size=150)[groups] + rng.normal(size=len(groups))
    spread = np.std(auc_draws(scores, labels, resample(groups, n_draws=4_000)))
    assert delong(scores, labels, groups).standard_error == pytest.approx(spread, rel=0.06)
    assert delong(scores, labels).standard_error < 0.7 * spread


def test_rows_that_are_groups_of_one_change_nothing() -> None:
    first, _, labels = rows(5)
    names = [f"row {i}" for i in range(len(labels))]
    assert delong(first, labels, names).standard_error == pytest.approx(delong(first, labels).standard_error)


def test_the_same_verifier_twice_is_no_difference_at_all() -> None:
    first, _, labels = rows(6)
    same = delong_difference(first, 3 * first + 1, labels)
    assert (same.value, same.standard_error, same.p_value) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("scores", "labels"),
    [([], []), ([0.5], [1]), ([0.1, 0.2, 0.3], [1, 1, 1]), ([0.1, 0.2, 0.3], [0, 0, 1])],
    ids=["n=0", "n=1", "one class", "one positive"],
)
def test_too_few_rows_of_a_class_have_no_spread(scores: list[float], labels: list[int]) -> None:
    found = delong(scores, labels)
    assert math.isnan(found.standard_error)
    assert math.isnan(found.low)
    assert math.isnan(found.p_value)
    assert math.isnan(delong_difference(scores, scores, labels).standard_error)


def test_a_perfect_ranking_is_certain_as_far_as_its_rows_can_tell() -> None:
    found = delong([1, 2, 3, 4], [0, 0, 1, 1])
    assert (found.value, found.standard_error, found.low, found.high, found.p_value) == (1.0, 0.0, 1.0, 1.0, 0.0)


def test_nan_scores_strange_labels_and_wrong_lengths_are_refused() -> None:
    for scores, labels, groups in [([np.nan, 1], [0, 1], None), ([1, 2], [0, 2], None), ([1, 2], [0], None)]:
        with pytest.raises(RowError, match="delong"):
            delong(scores, labels, groups)
    with pytest.raises(RowError, match="group"):
        delong([1, 2, 3], [0, 1, 1], ["a"])
