"""Variance of ROC-AUC without resampling, to check the bootstrap (DeLong et al., 1988; by ranks: Sun and Xu, 2014).

Each positive has a component, the share of negatives below it (ties half), each negative the share of positives above.
AUC is the mean of either; how the components vary says how AUC does. Plain DeLong takes rows as independent; with
groups the components are first summed by group (Obuchowski, 1997).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from ...core import RowError
from ..metrics import Floats, checked


@dataclass(frozen=True)
class DeLong:
    """An AUC, or a difference of two, with its normal approximation; NaN where a class has fewer than two rows.

    Attributes:
        value: the AUC, or first AUC minus second.
        low, high: value -+ z standard errors, an AUC's cut to [0, 1].
        p_value: two-sided, of an AUC of 0.5, or of no difference.
    """

    value: float
    standard_error: float
    low: float
    high: float
    p_value: float


def delong(scores: ArrayLike, labels: ArrayLike, groups: ArrayLike | None = None, level: float = 0.95) -> DeLong:
    """One AUC with its interval.

    Args:
        scores: shape (n,), no NaN.
        labels: 0 or 1, shape (n,).
        groups: shape (n,); None takes each row as independent.
    """
    values, y = checked(scores, labels, "delong")
    is_positive = y == 1
    components, auc = _components(values, is_positive)
    error = _standard_error(components, is_positive, groups)
    interval = _normal(auc, error, 0.5, level)
    return (
        DeLong(auc, error, max(interval.low, 0.0), min(interval.high, 1.0), interval.p_value)
        if error >= 0
        else interval
    )


def delong_difference(
    first: ArrayLike, second: ArrayLike, labels: ArrayLike, groups: ArrayLike | None = None, level: float = 0.95
) -> DeLong:
    """AUC of `first` minus AUC of `second` on the same rows, each of shape (n,)."""
    is_positive = checked(first, labels, "delong")[1] == 1
    both = [_components(checked(scores, labels, "delong")[0], is_positive) for scores in (first, second)]
    (of_first, auc_first), (of_second, auc_second) = both
    difference = auc_first - auc_second
    return _normal(difference, _standard_error(of_first - of_second, is_positive, groups), 0.0, level)


def _components(scores: Floats, is_positive: NDArray[np.bool_]) -> tuple[Floats, float]:
    """The structural component of each row, in order of the rows, and the AUC."""
    n_positive, n_negative = int(is_positive.sum()), int((~is_positive).sum())
    if not (n_positive and n_negative):
        return np.full(len(scores), np.nan), np.nan
    components, among_all = np.empty(len(scores)), rankdata(scores)
    components[is_positive] = (among_all[is_positive] - rankdata(scores[is_positive])) / n_negative
    components[~is_positive] = 1 - (among_all[~is_positive] - rankdata(scores[~is_positive])) / n_positive
    return components, float(components[is_positive].mean())


def _standard_error(components: Floats, is_positive: NDArray[np.bool_], groups: ArrayLike | None) -> float:
    """Obuchowski's sum over groups; with every row its own group it is DeLong's."""
    names = np.arange(len(components)) if groups is None else np.asarray(groups)
    if names.shape != components.shape:
        raise RowError(f"delong: each row has a group, got {names.shape} for {components.shape}; give one each")
    _, group = np.unique(names, return_inverse=True)
    n_groups = int(group.max()) + 1 if len(group) else 0
    pull, n_with = [], []
    for of_class in (is_positive, ~is_positive):
        n_with.append(len(np.unique(group[of_class])))
        if n_with[-1] < 2:
            return np.nan
        deviation = components[of_class] - components[of_class].mean()
        pull.append(np.bincount(group[of_class], deviation, minlength=n_groups) / of_class.sum())
    own = sum(k / (k - 1) * np.sum(of_class**2) for k, of_class in zip(n_with, pull, strict=True))
    shared = n_groups / (n_groups - 1) * np.sum(pull[0] * pull[1])
    return float(np.sqrt(max(own + 2 * shared, 0.0)))


def _normal(value: float, error: float, null: float, level: float) -> DeLong:
    if error == 0:  # every row has the same component: certain, as far as these rows can tell
        return DeLong(value, 0.0, value, value, 1.0 if value == null else 0.0)
    reach = float(ndtri((1 + level) / 2)) * error
    return DeLong(value, error, value - reach, value + reach, float(2 * ndtr(-abs(value - null) / error)))
