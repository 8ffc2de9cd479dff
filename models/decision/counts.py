"""Metrics of decisions, each a formula of the four confusion counts; positive means supported.

Every metric takes one `Confusion` and gives a float, or `Confusions` (arrays that broadcast against each other: one
entry per bootstrap draw or threshold) and gives an array; the two agree to the last bit. Counts may be weighted.

A metric is NaN where its definition needs a class, or a decision, that is not there. scikit-learn's `zero_division`
gives 0 and a warning instead; and where no row is labelled positive but some are called so, its F1 is 0 and ours NaN,
because no threshold could have done better.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, overload

import numpy as np
from numpy.typing import ArrayLike

from .calibrator import Floats


def divide(numerator: ArrayLike, denominator: ArrayLike) -> Floats:
    """numerator / denominator, NaN (and no warning) where the denominator is 0."""
    numerator, denominator = np.broadcast_arrays(np.asarray(numerator, dtype=np.float64), denominator)
    return np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator != 0)


class Confusion(NamedTuple):
    """Counts of decisions against labels; positive means supported."""

    tp: int
    fp: int
    tn: int
    fn: int


class Confusions(NamedTuple):
    """Many confusions at once: four arrays that broadcast against each other."""

    tp: Floats
    fp: Floats
    tn: Floats
    fn: Floats


class CountMetric(Protocol):
    """A metric of confusion counts: a float of one, an array of many."""

    __name__: str

    @overload
    def __call__(self, counts: Confusion) -> float: ...
    @overload
    def __call__(self, counts: Confusions) -> Floats: ...


def at_prior(counts: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike], prior: float) -> Confusions:
    """Counts (tp, fp, tn, fn) as as many rows would show them of which a share of `prior` is supported.

    Each class is weighted by how much more often it occurs there: sensitivity and specificity stay as they are.
    """
    tp, fp, tn, fn = (np.asarray(count, dtype=np.float64) for count in counts)
    n = tp + fp + tn + fn
    supported, other = divide(prior * n, tp + fn), divide((1 - prior) * n, fp + tn)
    return Confusions(tp * supported, fp * other, tn * other, fn * supported)


def stated(counts: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike], prior: float | None) -> Confusion:
    """One set of counts as it is stored: whole as counted where no share is stated, else restated for it."""
    values = counts if prior is None else at_prior(counts, prior)
    kind = int if prior is None else float
    return Confusion(*(kind(count) for count in values))  # type: ignore[arg-type]  # restated counts need not be whole


def _of_counts(formula: Callable[[Floats, Floats, Floats, Floats], Floats]) -> CountMetric:
    """A metric of counts from its formula of (tp, fp, tn, fn)."""

    def metric(counts: Confusion | Confusions) -> float | Floats:
        value = formula(*(np.asarray(count, dtype=np.float64) for count in counts))
        return value if np.ndim(value) else float(value)

    metric.__name__ = metric.__qualname__ = formula.__name__
    metric.__doc__ = formula.__doc__
    return metric  # type: ignore[return-value]  # the overloads of the protocol are its two cases


def confusion(decisions: ArrayLike, labels: ArrayLike) -> Confusion:
    """Confusion counts of boolean decisions against labels, both shape (n,)."""
    positive, is_so = np.asarray(decisions, dtype=bool), np.asarray(labels) == 1
    cells = (positive & is_so, positive & ~is_so, ~positive & ~is_so, ~positive & is_so)
    return Confusion(*(int(np.sum(cell)) for cell in cells))


@_of_counts
def f1(tp: Floats, fp: Floats, tn: Floats, fn: Floats) -> Floats:
    """F1 of the positive class, 2 tp / (2 tp + fp + fn); NaN where nothing is labelled positive."""
    return divide(2 * tp, np.where(tp + fn > 0, 2 * tp + fp + fn, 0))


@_of_counts
def f1_negative(tp: Floats, fp: Floats, tn: Floats, fn: Floats) -> Floats:
    """F1 of the negative class, 2 tn / (2 tn + fp + fn); NaN where nothing is labelled negative."""
    return divide(2 * tn, np.where(tn + fp > 0, 2 * tn + fp + fn, 0))


@_of_counts
def f1_macro(tp: Floats, fp: Floats, tn: Floats, fn: Floats) -> Floats:
    """Mean of the two classes' F1; NaN where a class is absent (scikit-learn averages the classes it saw)."""
    many = Confusions(tp, fp, tn, fn)
    return np.asarray((f1(many) + f1_negative(many)) / 2)


@_of_counts
def f1_micro(tp: Floats, fp: Floats, tn: Floats, fn: Floats) -> Floats:
    """F1 of both classes' counts pooled, which for one label per row is the accuracy; NaN for n = 0."""
    return divide(tp + tn, tp + fp + tn + fn)


@_of_counts
def f1_weighted(tp: Floats, fp: Floats, tn: Floats, fn: Floats) -> Floats:
    """Mean of the two classes' F1, each counted as often as its label occurs; NaN where a class is absent."""
    many = Confusions(tp, fp, tn, fn)
    return divide(f1(many) * (tp + fn) + f1_negative(many) * (tn + fp), tp + fp + tn + fn)


@_of_counts
def accuracy(tp: Floats, fp: Floats, tn: Floats, fn: Floats) -> Floats:
    """Share of right decisions, (tp + tn) / n; NaN for n = 0."""
    return divide(tp + tn, tp + fp + tn + fn)


@_of_counts
def balanced_accuracy(tp: Floats, fp: Floats, tn: Floats, fn: Floats) -> Floats:
    """(TPR + TNR) / 2, rounded once; NaN where a class is absent. It is the ROC-AUC of the hard decisions."""
    positives, negatives = tp + fn, tn + fp
    return divide(tp * negatives + tn * positives, 2 * positives * negatives)


@_of_counts
def youden(tp: Floats, fp: Floats, tn: Floats, fn: Floats) -> Floats:
    """Youden's J, TPR + TNR - 1 = TPR - FPR; NaN where a class is absent."""
    return divide(tp * tn - fp * fn, (tp + fn) * (tn + fp))


@_of_counts
def mcc(tp: Floats, fp: Floats, tn: Floats, fn: Floats) -> Floats:
    """Matthews' correlation of decisions and labels; NaN where either is constant (0 / 0; scikit-learn says 0)."""
    return divide(tp * tn - fp * fn, np.sqrt((tp + fp) * (tp + fn)) * np.sqrt((tn + fp) * (tn + fn)))


@_of_counts
def precision(tp: Floats, fp: Floats, tn: Floats, fn: Floats) -> Floats:
    """tp / (tp + fp); NaN where nothing is called positive."""
    return divide(tp, tp + fp)


@_of_counts
def recall(tp: Floats, fp: Floats, tn: Floats, fn: Floats) -> Floats:
    """Sensitivity, TPR, tp / (tp + fn); NaN where nothing is labelled positive."""
    return divide(tp, tp + fn)


@_of_counts
def specificity(tp: Floats, fp: Floats, tn: Floats, fn: Floats) -> Floats:
    """TNR, tn / (tn + fp); NaN where nothing is labelled negative."""
    return divide(tn, tn + fp)


@_of_counts
def predicted_positive_rate(tp: Floats, fp: Floats, tn: Floats, fn: Floats) -> Floats:
    """Share of rows called positive, (tp + fp) / n; NaN for n = 0."""
    return divide(tp + fp, tp + fp + tn + fn)
