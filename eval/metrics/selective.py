"""Selective prediction: how the error rate falls as the least confident verdicts are withheld.

Rows are accepted in descending confidence. K rows accepted with E errors among them are at coverage K / n, at
selective risk E / K and at generalised risk E / n. Rows of equal confidence cannot be ordered, so no result depends
on their order.

`aurc` knows three rules, which differ in the third decimal at n = 1,000; papers print them times 100 or 1,000:
- "mean": mean over k = 1..n of the selective risk of the k most confident rows (Geifman et al., 2019);
- "trapezoid": trapezoids between coverage 1/n and 1, divided by 1 - 1/n (torch-uncertainty);
- "threshold": trapezoids between the distinct confidences, flat from the first of them down to coverage 0 (fd-shifts).
By the first two, every row is a step; a tie counts with the mean over all orders of its rows. By the third, a tie is
one step.

Weights, where taken, are whole numbers of shape (n,) or (draws, n): how often each row counts, as a bootstrap draws it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ...core import RowError
from ...models.decision import divide
from .base import Floats
from .ranking import cumulative_counts

Rule = Literal["mean", "trapezoid", "threshold"]
Optimum = Literal["finite", "analytic"]
_ROUNDING = 1e-9  # of a row: 0.7 of 10 rows are 7, whatever floating point says


class RiskCoverage(NamedTuple):
    """Coverage, selective and generalised risk when confidence >= threshold is accepted, thresholds descending."""

    threshold: Floats
    coverage: Floats
    selective_risk: Floats
    generalised_risk: Floats


def confidence_of(p: ArrayLike, threshold: float | None = None) -> Floats:
    """Confidence of binary verdicts from probabilities, shape (n,).

    Without a threshold max(p, 1 - p), the probability of the likelier label; this ranks verdicts cut at 0.5. Verdicts
    cut elsewhere are ranked by their distance |p - threshold|: a p of 0.7 below a threshold of 0.75 is a doubtful no,
    not a confident yes. At 0.5 the two rank alike.
    """
    p = np.asarray(p, dtype=np.float64)
    return np.maximum(p, 1 - p) if threshold is None else np.abs(p - threshold)


def risk_coverage(confidence: ArrayLike, correct: ArrayLike) -> RiskCoverage:
    """The risk-coverage curve at the distinct confidences, shape (distinct,) each; coverage ends at 1.

    Args:
        confidence: shape (n,), no NaN.
        correct: 1 or True where the verdict was right, shape (n,).
    """
    accepted, errors = _accepted(confidence, correct, None)
    threshold = np.unique(np.asarray(confidence, dtype=np.float64))[::-1]
    n = accepted[-1]
    return RiskCoverage(threshold, *(divide(a[1:], b) for a, b in ((accepted, n), (errors, accepted[1:]), (errors, n))))


def aurc(confidence: ArrayLike, correct: ArrayLike, weights: ArrayLike | None = None, rule: Rule = "mean") -> Floats:
    """Area under the selective risk over coverage by one of three rules; lower is better.

    Returns a scalar array, or shape (draws,) for weights of shape (draws, n). NaN for n = 0, and for n = 1 by the
    trapezoid rule.
    """
    accepted, errors = _accepted(confidence, correct, weights)
    risk, n = divide(errors, accepted), accepted[..., -1]
    gained = np.diff(accepted, axis=-1)
    if rule == "threshold":
        # Coverage 0 has no risk: it takes that of the first confidence, as do confidences that no row was drawn with.
        before = np.where(accepted[..., :-1] > 0, risk[..., :-1], risk[..., 1:])
        return divide(np.sum(np.where(gained > 0, gained * (before + risk[..., 1:]) / 2, 0), axis=-1), n)
    return _by_rows(_sum_of_risks(accepted, errors), _first_risk(accepted, errors), risk[..., -1], n, rule)


def e_aurc(
    confidence: ArrayLike,
    correct: ArrayLike,
    weights: ArrayLike | None = None,
    rule: Rule = "mean",
    optimum: Optimum = "finite",
) -> Floats:
    """Excess area: `aurc` less that of a ranking that puts every error last (Geifman et al., 2019).

    Optimum "finite" is that of these n rows by the same rule, each with a confidence of its own; "analytic" is the
    limit of many rows e + (1 - e) ln(1 - e) at error rate e, which papers and fd-shifts use. Shapes and NaN as `aurc`.
    By the threshold rule ties can make it negative: fewer steps can hide errors.
    """
    accepted, errors = _accepted(confidence, correct, weights)
    n, n_errors = accepted[..., -1], errors[..., -1]
    rate = divide(n_errors, n)
    if optimum == "analytic":
        right = 1 - rate
        best = rate + right * np.log(np.where(right > 0, right, 1))
    else:
        n_right = n - n_errors
        harmonic = harmonic_numbers(n)
        total = n_errors - n_right * (harmonic[n.astype(np.int64)] - harmonic[n_right.astype(np.int64)])
        best = _by_rows(total, np.where(n_right > 0, 0.0, 1.0), rate, n, rule)
    return aurc(confidence, correct, weights, rule) - best


def augrc(confidence: ArrayLike, correct: ArrayLike, weights: ArrayLike | None = None) -> Floats:
    """Area under the generalised risk over coverage (Traub et al., 2024), from coverage 0; lower is better.

    The best possible value at error rate e is e^2 / 2. Shapes as `aurc`; NaN for n = 0.
    """
    accepted, errors = _accepted(confidence, correct, weights)
    twice = np.sum(np.diff(accepted, axis=-1) * (errors[..., 1:] + errors[..., :-1]), axis=-1)
    return divide(twice, 2 * accepted[..., -1] ** 2)


def accuracy_at_coverage(
    confidence: ArrayLike, correct: ArrayLike, coverage: float, weights: ArrayLike | None = None
) -> Floats:
    """Accuracy among the fewest most confident rows that are at least `coverage` of all, ties kept or left whole.

    What a confidence threshold can really reach: with ties the share kept may exceed `coverage`. Shapes as `aurc`; NaN
    for n = 0.

    Args:
        coverage: in (0, 1].
    """
    if not 0 < coverage <= 1:
        raise RowError(f"accuracy at coverage: a coverage is within (0, 1], got {coverage}; give one that is")
    accepted, errors = _accepted(confidence, correct, weights)
    needed = np.ceil(coverage * accepted[..., -1:] - _ROUNDING)
    cut = np.argmax(accepted >= needed, axis=-1)[..., None]
    risk = divide(np.take_along_axis(errors, cut, axis=-1), np.take_along_axis(accepted, cut, axis=-1))
    return 1 - risk[..., 0]


def coverage_at_risk(confidence: ArrayLike, correct: ArrayLike, max_risk: float) -> float:
    """Largest coverage that a confidence threshold reaches at selective risk <= `max_risk`.

    0 where no threshold does, as then nothing may be accepted (torch-uncertainty gives NaN there). NaN for n = 0.
    """
    curve = risk_coverage(confidence, correct)
    if not len(curve.coverage):
        return np.nan
    return float(np.max(curve.coverage[curve.selective_risk <= max_risk], initial=0.0))


def _accepted(confidence: ArrayLike, correct: ArrayLike, weights: ArrayLike | None) -> tuple[Floats, Floats]:
    """Rows and errors accepted at each distinct confidence, both starting with 0, shape (..., 1 + distinct)."""
    right, errors = cumulative_counts(confidence, correct, weights)
    return right + errors, errors


def _sum_of_risks(accepted: Floats, errors: Floats) -> Floats:
    """Sum over k = 1..n of the expected selective risk of the k first rows, shape (...).

    In a tie of m rows with error share r, begun after K rows with E errors, the risk at K + i is (E + i r) / (K + i) =
    r + (E - K r) / (K + i), and the sum of 1 / (K + i) a difference of harmonic numbers.
    """
    before, after = accepted[..., :-1], accepted[..., 1:]
    rows, wrong = after - before, np.diff(errors, axis=-1)
    share = np.divide(wrong, rows, out=np.zeros(rows.shape), where=rows > 0)
    harmonic = harmonic_numbers(accepted[..., -1])
    inverses = harmonic[after.astype(np.int64)] - harmonic[before.astype(np.int64)]
    return np.sum(wrong + (errors[..., :-1] - before * share) * inverses, axis=-1)


def _first_risk(accepted: Floats, errors: Floats) -> Floats:
    """Expected risk of the most confident row: the error share of the first tie that holds rows; NaN for n = 0."""
    first = np.argmax(accepted > 0, axis=-1)[..., None]
    return divide(np.take_along_axis(errors, first, axis=-1), np.take_along_axis(accepted, first, axis=-1))[..., 0]


def _by_rows(total: Floats, first: Floats, last: Floats, n: Floats, rule: Rule) -> Floats:
    """The area from the sum of the risks of k = 1..n, the first of them and the last."""
    if rule == "mean":
        return divide(total, n)
    if rule == "trapezoid":
        return divide(total - (first + last) / 2, np.where(n > 0, n - 1, 0))
    return divide(total + (first - last) / 2, n)


def harmonic_numbers(n: Floats) -> Floats:
    """Harmonic numbers H_0 .. H_max(n)."""
    return np.concatenate([[0.0], np.cumsum(1 / np.arange(1, int(np.max(n, initial=0)) + 1))])
