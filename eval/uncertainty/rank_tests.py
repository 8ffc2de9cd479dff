"""Rank tests over groups, as OMD-Bench reports them: per-group accuracies are the observations, not rows.

OMD-Bench (appendix on statistical validation) asks with Wilcoxon's signed-rank test, per anchor, whether corrupting
one modality costs more accuracy than corrupting another; with Friedman's, anchors as blocks, whether models differ.
The tests are SciPy's; here are their conventions for ties and zeros, and effect sizes.

Shape suffixes: _G groups, _M models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from ...core import RowError
from ..metrics import Floats

_MOST_EXACT = 50  # groups up to which SciPy's exact distribution is used
_DECIMALS = 12  # differences closer than this are ties: 0.8 - 0.6 and 0.4 - 0.2 differ only by rounding


@dataclass(frozen=True)
class SignedRank:
    """Wilcoxon's signed-rank test of per-group differences.

    Attributes:
        n_groups, n_zero: groups, and those without a difference, which are left out (Wilcoxon, 1945).
        statistic: the smaller of the rank sums of positive and negative differences; tied sizes share their mean rank.
        p_value: two-sided; exact up to 50 groups without ties, else normal with correction for ties, see `method`.
            1 where no group differs.
        rank_biserial: effect size in [-1, 1]: (positive - negative rank sum) / both (Kerby, 2014).
        mean_difference: over all groups, zeros included.
    """

    n_groups: int
    n_zero: int
    statistic: float
    p_value: float
    method: str
    rank_biserial: float
    mean_difference: float


@dataclass(frozen=True)
class Friedman:
    """Friedman's test that all models rank alike within groups.

    Attributes:
        statistic: chi-square, corrected for ties; NaN (and p) where every group ties all its models.
        kendall_w: effect size in [0, 1], how far groups agree on the order of models: statistic / (n (models - 1)).
        mean_rank_M: mean rank of each model, 1 for the lowest value; shape (models,).
    """

    n_groups: int
    n_models: int
    statistic: float
    degrees_of_freedom: int
    p_value: float
    kendall_w: float
    mean_rank_M: Floats


def group_means(values: ArrayLike, groups: ArrayLike) -> tuple[NDArray[np.str_], Floats]:
    """Group names in sorted order and the mean of each group's values: what the tests below are given.

    Args:
        values: such as 1 for a right answer and 0 for a wrong one, shape (n,), no NaN.
        groups: shape (n,).
    """
    values, groups = np.asarray(values, dtype=np.float64), np.asarray(groups)
    if values.shape != groups.shape or values.ndim != 1 or np.isnan(values).any():
        raise RowError(f"group means: each row has a number and a group, got {values.shape}, {groups.shape} or NaN")
    names, group = np.unique(groups, return_inverse=True)
    return names.astype(np.str_), np.bincount(group, values, minlength=len(names)) / np.bincount(group)


def signed_rank(first_G: ArrayLike, second_G: ArrayLike) -> SignedRank:
    """Do two values of each group differ, such as the accuracy lost to corrupting text and to corrupting audio?

    Args:
        first_G, second_G: one value per group, in the same order, shape (groups,), no NaN.
    """
    first, second = np.asarray(first_G, dtype=np.float64), np.asarray(second_G, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1 or np.isnan(first).any() or np.isnan(second).any():
        raise RowError(
            f"signed rank: one number per group each, got {first.shape}, {second.shape} or NaN; leave NaN out"
        )
    differences = np.round(first - second, _DECIMALS)
    mean = float(np.mean(differences)) if len(differences) else np.nan
    sizes = np.abs(differences[differences != 0])
    n_zero = len(differences) - len(sizes)
    if not len(sizes):
        return SignedRank(len(first), n_zero, 0.0, 1.0 if len(first) else np.nan, "none", np.nan, mean)
    method = "exact" if len(sizes) <= _MOST_EXACT and len(np.unique(sizes)) == len(sizes) else "asymptotic"
    nonzero = differences[differences != 0]
    result: Any = stats.wilcoxon(nonzero, method=method)
    ranks = stats.rankdata(sizes)
    balance = float(np.sum(np.sign(nonzero) * ranks) / np.sum(ranks))
    return SignedRank(len(first), n_zero, float(result.statistic), float(result.pvalue), method, balance, mean)


def friedman(values_GM: ArrayLike) -> Friedman:
    """Do models differ, each judged on the same groups?

    Args:
        values_GM: value of each model in each group, no NaN, shape (groups, models), at least 2 groups and 3 models.
    """
    values = np.asarray(values_GM, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] < 2 or values.shape[1] < 3 or np.isnan(values).any():
        raise RowError(
            f"friedman: at least 2 groups of 3 numbers, got shape {values.shape} or NaN; use signed_rank for 2"
        )
    (n, k), values = values.shape, np.round(values, _DECIMALS)
    ranks = stats.rankdata(values, axis=1)
    if np.all(ranks == ranks[0, 0]):
        return Friedman(n, k, np.nan, k - 1, np.nan, np.nan, ranks.mean(axis=0))
    result = stats.friedmanchisquare(*values.T)
    statistic = float(result.statistic)
    return Friedman(n, k, statistic, k - 1, float(result.pvalue), statistic / (n * (k - 1)), ranks.mean(axis=0))
