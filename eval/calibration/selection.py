"""Which calibration method: by log-loss on groups held out, the simplest of those that are not clearly worse.

The rule: cross-fit every candidate over folds that share no group; take the least mean log-loss; then take the simplest
method (in the order of `CALIBRATORS`) whose loss is within 0.002 nats of it. One standard error, which is wide where
rows are few, would leave margins twice too sure as they are at 100 rows (benchmarks/calibration_choice.py). A
calibrator is a candidate from its `fewest_rows` on. A temperature at its bound is none: on perfectly separated rows it
would promise certainty, and held-out rows as easy as these cannot contradict it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from ...core import CalibrationError
from ...models.decision import CALIBRATORS, GroupKey, calibrator_named
from ..metrics import Floats
from .per_group import fit_corrections

TOLERANCE = 0.002  # nats that a simpler method may lose on held-out groups


@dataclass(frozen=True)
class MethodScore:
    """What a method reached on held-out groups.

    Attributes:
        nll: mean cross-fitted log-loss in nats; NaN for a method that was not tried.
        se: standard error of the mean difference to the best candidate, clustered by group; 0 for the best.
        note: why it was not tried, else empty.
    """

    method: str
    nll: float
    se: float
    note: str = ""


@dataclass(frozen=True)
class Choice:
    """The chosen method and every candidate, simplest first."""

    method: str
    candidates: tuple[MethodScore, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON values; a method that was not tried has no loss."""
        tried = [c for c in self.candidates if not math.isnan(c.nll)]
        return {
            "rule": f"simplest within {TOLERANCE} nats of the least cross-fitted log-loss",
            "chosen": self.method,
            "candidates": [{"method": c.method, "nll": c.nll, "se_of_difference": c.se} for c in tried],
            "not_tried": {c.method: c.note for c in self.candidates if c.note},
        }


def choose_method(
    margins: Floats,
    labels: Floats,
    groups: NDArray,
    where: str = "calibration",
    weights: Floats | None = None,
) -> Choice:
    """The method by the module's rule; arguments (n,) each, checked."""
    weights = np.ones(len(margins)) if weights is None else weights
    folds = grouped_folds(labels, groups, where=where)
    notes = {m: _why_not(m, margins, labels, weights) for m in CALIBRATORS}
    losses_by: dict[str, Floats] = {
        m: row_losses(cross_fitted_logits(margins, labels, folds, m, weights), labels)
        for m in CALIBRATORS
        if not notes[m]
    }
    means: dict[str, float] = {m: float(np.average(losses, weights=weights)) for m, losses in losses_by.items()}
    best = min(means, key=means.__getitem__)  # the simpler of equals, because CALIBRATORS go from simple to rich

    def candidate(m: str) -> MethodScore:
        if notes[m]:
            return MethodScore(m, math.nan, math.nan, notes[m])
        return MethodScore(m, means[m], clustered_se(losses_by[m] - losses_by[best], groups, weights))

    candidates = tuple(candidate(m) for m in CALIBRATORS)
    chosen = next(c.method for c in candidates if c.nll <= means[best] + TOLERANCE)
    return Choice(chosen, candidates)


def cross_fitted_logits(
    margins: Floats,
    labels: Floats,
    folds: NDArray[np.int64],
    method: str,
    weights: Floats | None = None,
    correct: tuple[GroupKey, NDArray, int] | None = None,
) -> Floats:
    """Calibrated log-odds of each row by a map fitted on the other folds only, (n,).

    Args:
        margins, labels, folds, weights: (n,) each.
        correct: key, values (n,) and least rows of corrections per group, fitted on the other folds as well.
    """
    weights = np.ones(len(margins)) if weights is None else weights
    logits = np.empty(len(margins))
    for fold in np.unique(folds):
        out = folds == fold
        fitted, _ = calibrator_named(method).fit(margins[~out], labels[~out], weights[~out])
        logits[out] = fitted.apply(margins[out])
        if correct is not None:
            key, values, min_rows = correct
            corrections = fit_corrections(
                fitted, margins[~out], labels[~out], weights[~out], values[~out], key, min_rows
            )
            logits[out] = corrections.apply(logits[out], values[out])
    return logits


def row_losses(logits: Floats, labels: Floats) -> Floats:
    """Log-loss of each row in nats, from log-odds, (n,)."""
    return np.logaddexp(0, np.where(labels == 1, -logits, logits))


def clustered_se(values: Floats, groups: NDArray, weights: Floats | None = None) -> float:
    """Standard error of the weighted mean of `values` when rows of a group move together; NaN with one group."""
    weights = np.ones(len(values)) if weights is None else weights
    _, which = np.unique(groups, return_inverse=True)
    residual = weights * (values - np.average(values, weights=weights))
    sums = np.bincount(which, residual)
    n_groups = len(sums)
    if n_groups < 2:
        return math.nan
    return float(np.sqrt(n_groups / (n_groups - 1) * np.sum(sums**2)) / np.sum(weights))


def grouped_folds(
    labels: Floats, groups: NDArray, n_folds: int = 5, seed: int = 0, where: str = "calibration"
) -> NDArray[np.int64]:
    """A fold number per row, shape (n,): no group in two folds, both classes outside of each fold.

    Takes fewer folds where the data allow no more.

    Raises:
        CalibrationError: not even two folds are possible.
    """
    n_groups = len(np.unique(groups))
    n_smallest = int(min(np.sum(labels == 1), np.sum(labels == 0)))
    for k in range(min(n_folds, n_groups, n_smallest), 1, -1):
        folds = np.empty(len(labels), dtype=np.int64)
        # Rows that each stand alone need no search for a fair share of groups, which is slow for many.
        alone = n_groups == len(labels)
        splitter = (StratifiedKFold if alone else StratifiedGroupKFold)(n_splits=k, shuffle=True, random_state=seed)
        for fold, (_, held_out) in enumerate(splitter.split(labels, labels, None if alone else groups)):
            folds[held_out] = fold
        if all(len(np.unique(labels[folds != fold])) == 2 for fold in range(k)):
            return folds
    raise CalibrationError(
        f"{where}: rows cannot be cut into two folds by group with both classes outside each, "
        f"got {len(labels)} rows of {n_groups} groups; calibrate on more groups (videos)"
    )


def _why_not(method: str, margins: Floats, labels: Floats, weights: Floats) -> str:
    calibrator = CALIBRATORS[method]
    if len(margins) < calibrator.fewest_rows:
        return f"{len(margins)} rows, fewer than {calibrator.fewest_rows}"
    if not calibrator.sound_at_bound and calibrator.fit(margins, labels, weights)[1]:
        return "the slope stopped at its bound"
    return ""
