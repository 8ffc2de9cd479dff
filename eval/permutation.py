"""Are two verifiers different on the same pairs? A permutation test that respects groups.

If it made no difference which verifier spoke, swapping the two on all rows of a group would change nothing. So groups
are swapped at random (or, where they are few, in every possible way) and the difference seen is held against those.

Shape suffixes: _D ways of swapping, _G groups, _K columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from .bootstrap import Resamples, resample
from .headline_draws import HeadlineRows, summed_columns, values_of_sums
from .paired import check_same_rows

Floats = NDArray[np.float64]

_CELLS_AT_ONCE = 2_000_000
_ROUNDING = 1e-12  # differences this close are equal: the order of a sum is not evidence


@dataclass(frozen=True)
class PermutationTest:
    """A difference between two verifiers and how often chance alone makes one as large.

    Attributes:
        difference: first minus second; NaN where the metric is undefined.
        p_value: two-sided; (1 + as extreme) / (1 + tried) where sampled, so never 0. NaN with fewer than two groups.
        n_tried: ways of swapping looked at.
        is_exact: whether those are all there are.
    """

    difference: float
    p_value: float
    n_tried: int
    is_exact: bool
    n_groups: int


def cluster_permutation(
    first: HeadlineRows, second: HeadlineRows, groups: ArrayLike, n_tried: int = 10_000, seed: int = 0
) -> dict[str, PermutationTest]:
    """Test the differences in AUC, F1, balanced accuracy, Brier, NLL and ECE, swapping whole groups.

    AUC is tested on ranks within each verifier, so that verifiers whose margins have different scales can be swapped.
    Decisions are swapped as made, each at its verifier's own threshold.

    Args:
        first, second: the same rows in the same order, see `headline_rows`.
        groups: shape (n,).
        n_tried: ways of swapping to sample; all are tried instead where they are no more than this.
    """
    check_same_rows(first, second, groups)
    each = resample(groups, 0)
    sums_GK, other_GK = each.by_group(summed_columns(first)), each.by_group(summed_columns(second))
    auc_G = _auc_weights(first, second, each)
    observed = _differences(sums_GK, other_GK, auc_G, np.zeros((1, each.n_groups)))
    matters = np.any(sums_GK != other_GK, axis=1) | (auc_G != 0)
    is_exact = bool(matters.sum() <= np.log2(max(n_tried, 1)))
    extreme, tried = dict.fromkeys(observed, 0), 0
    for swapped_DG in _all_swaps(matters) if is_exact else _random_swaps(each.n_groups, n_tried, seed):
        tried += len(swapped_DG)
        for name, values in _differences(sums_GK, other_GK, auc_G, swapped_DG).items():
            extreme[name] += int(np.sum(np.abs(values) >= abs(observed[name][0]) - _ROUNDING))
    found = {}
    for name, (value,) in observed.items():
        found[name] = _tested(float(value), extreme[name], tried, is_exact, each.n_groups)
    return found


def permuted_auc(
    pairs: Sequence[tuple[HeadlineRows, HeadlineRows]], groups: ArrayLike, n_tried: int = 10_000, seed: int = 0
) -> PermutationTest:
    """Test the mean difference in AUC of several pairs of verifiers, such as one pair for each seed of training.

    A group is swapped in all pairs at once: chance is that of the rows, the verifiers are as they are. With one pair it
    is the test that `cluster_permutation` makes of its AUC.

    Args:
        pairs: at least one, all of the same rows in the same order, see `headline_rows`.
        groups: shape (n,).
        n_tried: ways of swapping to sample; all are tried instead where they are no more than this.
    """
    for rows in (each for pair in pairs for each in pair):
        check_same_rows(pairs[0][0], rows, groups)
    each = resample(groups, 0)
    auc_G = np.mean([_auc_weights(first, second, each) for first, second in pairs], axis=0)
    observed, matters = auc_G.sum(), auc_G != 0
    is_exact = bool(matters.sum() <= np.log2(max(n_tried, 1)))
    extreme = tried = 0
    for swapped_DG in _all_swaps(matters) if is_exact else _random_swaps(each.n_groups, n_tried, seed):
        tried += len(swapped_DG)
        extreme += int(np.sum(np.abs(observed - 2 * swapped_DG @ auc_G) >= abs(observed) - _ROUNDING))
    return _tested(float(observed), extreme, tried, is_exact, each.n_groups)


def _tested(difference: float, extreme: int, tried: int, is_exact: bool, n_groups: int) -> PermutationTest:
    p_value = extreme / tried if is_exact else (1 + extreme) / (1 + tried)
    can_be_made = np.isfinite(difference) and n_groups > 1
    return PermutationTest(difference, p_value if can_be_made else np.nan, tried, is_exact, n_groups)


def _differences(sums_GK: Floats, other_GK: Floats, auc_G: Floats, swapped_DG: Floats) -> dict[str, Floats]:
    """First minus second after each way of swapping, shape (ways,)."""
    moved_DK = swapped_DG @ (other_GK - sums_GK)
    one, other = values_of_sums(sums_GK.sum(axis=0) + moved_DK), values_of_sums(other_GK.sum(axis=0) - moved_DK)
    found = {"auc": auc_G.sum() - 2 * swapped_DG @ auc_G}
    with np.errstate(invalid="ignore"):
        return found | {name: one[name] - other[name] for name in one}


def _auc_weights(first: HeadlineRows, second: HeadlineRows, each: Resamples) -> Floats:
    """What each group adds to the difference of AUCs, and takes from it when swapped, shape (groups,).

    Let v be +1 for a group left alone, -1 for one swapped. Both AUCs are quadratic in v with the same quadratic part,
    so it cancels in their difference: what is left is linear. A row adds half its wins among the scores of both
    verifiers together (taken from it, for the second verifier's row), divided by the number of pairs.
    """
    y = first.labels
    pairs = y.sum() * (1 - y).sum()
    if not pairs:
        return np.full(each.n_groups, np.nan)
    scores = np.concatenate([rankdata(rows.margins) for rows in (first, second)])
    is_positive = np.concatenate([y, y]) == 1
    wins, among_all = np.empty(len(scores)), rankdata(scores)
    wins[is_positive] = among_all[is_positive] - rankdata(scores[is_positive])
    wins[~is_positive] = is_positive.sum() - (among_all[~is_positive] - rankdata(scores[~is_positive]))
    of_first, of_second = wins.reshape(2, -1)
    return each.by_group(of_first - of_second) / (2 * pairs)


def _all_swaps(matters: NDArray[np.bool_]) -> Iterator[Floats]:
    """Every way of swapping the groups that matter, some at a time, shape (ways, groups)."""
    which, n_ways = np.flatnonzero(matters), 2 ** int(matters.sum())
    at_once = max(1, _CELLS_AT_ONCE // max(1, len(matters)))
    for start in range(0, n_ways, at_once):
        way = np.arange(start, min(start + at_once, n_ways))[:, None]
        swapped = np.zeros((len(way), len(matters)))
        swapped[:, which] = way >> np.arange(len(which)) & 1
        yield swapped


def _random_swaps(n_groups: int, n_tried: int, seed: int) -> Iterator[Floats]:
    rng, at_once = np.random.default_rng(seed), max(1, _CELLS_AT_ONCE // max(1, n_groups))
    for start in range(0, n_tried, at_once):
        yield rng.integers(2, size=(min(at_once, n_tried - start), n_groups)).astype(np.float64)
