"""Fitting calibrations and thresholds on a split of their own. The applying half is `models/decision/calibration.py`.

Inputs are margins (log-odds), never probabilities: a sigmoid fitted on probabilities cannot undo overconfidence.
Anything chosen by looking at labels is judged on rows whose group was held out while it was fitted: the method by
cross-fitted log-loss, the threshold on cross-fitted probabilities. Where verdicts of several windows are aggregated,
the margins given here are the aggregated ones, and the calibration remembers how they came about.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core import CalibrationError
from ...models.decision import (
    SIMPLE_CRITERIA,
    AbstainBand,
    Calibration,
    Curve,
    Decision,
    GroupKey,
    OperatingPoint,
    Risk,
    calibration_of,
    calibrator_named,
    sigmoid,
)
from ..decisions import (
    GUARANTEED,
    BandTarget,
    Criterion,
    control_risk,
    estimate_prior,
    fit_band,
    fit_points,
    guaranteed_band,
    margin_grid,
)
from ..metrics import Floats, checked
from ..scoring import Prediction, groups_of, labels_of, margins_of
from .per_group import MIN_ROWS, fit_corrections
from .selection import choose_method, cross_fitted_logits, grouped_folds, row_losses


@dataclass(frozen=True)
class PerGroup:
    """Corrections per value of a column: which column, and the least rows a value needs for one of its own."""

    key: GroupKey
    min_rows: int = MIN_ROWS


def fit_decision(
    predictions: Sequence[Prediction],
    method: str = "auto",
    objective: str | Sequence[str] = "f1",
    fitted_on: dict[str, Any] | None = None,
    where: str = "predictions",
    *,
    per_group: PerGroup | None = None,
    prior: float | Sequence[Prediction] | None = None,
    aggregation: str | None = None,
    abstain: BandTarget | None = None,
    risks: Sequence[tuple[Risk, float, float]] = (),
    splits: Sequence[str] = ("calibration",),
) -> Decision:
    """Calibration and operating points from calibration-split predictions.

    Failed and unlabelled rows are left out. Thresholds are chosen on cross-fitted probabilities, so that they do not
    profit from the calibrator having seen the row. There is a point for each of `SIMPLE_CRITERIA` and
    for each of `objective`.

    Args:
        objective: the first is the default point; numbers as `thresholds.fit_threshold` reads them.
        per_group: corrections for some modalities, roles or origins.
        prior: the positive rate to state probabilities for, or predictions (labels are not looked at) to estimate it
            from. Thresholds are chosen for it, and their values, counts and intervals stated for it.
        aggregation: how margins of several windows became one.
        abstain: objective and target of a band of probabilities that get no verdict (`abstention.fit_band`); for
            `selective_accuracy_guaranteed` also delta (`guaranteed_bands.guaranteed_band`).
        risks: (risk, bound, delta) of points with a guarantee (`risk_control.control_risk`).
        splits: what the rows must be of: the folds, where verifiers were cross-fitted.

    Raises:
        CalibrationError: rows of another split or of several, one class, too few rows or groups, or a bound or target
            that these rows cannot reach.
    """
    used = usable_rows(predictions, where, splits)
    margins, labels, groups = margins_of(used), labels_of(used), groups_of(used)
    keys = None if per_group is None else np.array([getattr(p, per_group.key) for p in used], dtype=str)
    calibration = fit_calibration(
        margins, labels, method, groups, fitted_on, where, aggregation=aggregation, keys=keys, per_group=per_group
    )
    calibration = _with_prior(calibration, prior)
    folds = grouped_folds(labels, groups, where=where)
    correct = None if per_group is None or keys is None else (per_group.key, keys, per_group.min_rows)
    logits = cross_fitted_logits(margins, labels, folds, calibration.method, correct=correct)
    p = sigmoid(logits + calibration.offset)
    criteria = _criteria(objective, p)
    points = fit_points(p, labels, groups, criteria, prior=calibration.prior)
    points += tuple(_controlled(calibration, margins, labels, groups, *risk) for risk in risks)
    band = None if abstain is None else _band(calibration, margins, p, labels, groups, abstain)
    return Decision(calibration, points, default=criteria[0].name, abstain=band, curve=Curve.of(logits, labels))


def fit_calibration(
    margins: ArrayLike,
    labels: ArrayLike,
    method: str = "auto",
    groups: ArrayLike | None = None,
    fitted_on: dict[str, Any] | None = None,
    where: str = "calibration",
    *,
    sample_weight: ArrayLike | None = None,
    aggregation: str | None = None,
    keys: ArrayLike | None = None,
    per_group: PerGroup | None = None,
) -> Calibration:
    """Fit a map from margins to probabilities.

    Args:
        margins: log-odds of supported, shape (n,), finite.
        labels: 1 or 0, shape (n,).
        method: a name of `CALIBRATORS`, or `auto`, which chooses by log-loss on held-out groups (`selection.py`
            states the rule) and stores what it chose from as `fitted_on["choice"]`.
        groups: shape (n,); every row alone where None.
        fitted_on: stored with the calibration.
        sample_weight: how often each row counts, shape (n,), > 0.
        aggregation: stored with the calibration.
        keys, per_group: each row's value of the column `per_group.key`, shape (n,); corrections are fitted per value.

    Raises:
        CalibrationError: fewer than two rows of a class, too few groups for `auto`, or values that are not margins.
    """
    m, y = checked(margins, labels, where, to_fit=True)
    weights = _checked_weights(sample_weight, len(m), where)
    groups = _aligned("group", np.arange(len(m)) if groups is None else groups, len(m), where)
    about = dict(fitted_on or {})
    if method == "auto":
        choice = choose_method(m, y, groups, where, weights)
        about["choice"] = choice.to_dict()
        method = choice.method
    fitted, at_bound = calibrator_named(method).fit(m, y, weights)
    corrections = None
    if per_group is not None:
        values = _aligned(per_group.key, [] if keys is None else keys, len(m), where)
        corrections = fit_corrections(fitted, m, y, weights, values, per_group.key, per_group.min_rows)
        about["per_group"] = _gain(m, y, groups, weights, method, values, per_group, where)
    return calibration_of(
        fitted,
        n=len(m),
        n_groups=len(np.unique(groups)),
        positive_rate=float(np.average(y, weights=weights)),
        fitted_on=about,
        at_bound=at_bound,
        aggregation=aggregation,
        by_group=corrections,
    )


def _controlled(
    calibration: Calibration, margins: Floats, labels: Floats, groups: NDArray, risk: Risk, at_most: float, delta: float
) -> OperatingPoint:
    """A point with a guarantee. Its thresholds are fixed margins, seen through the map: no look at these labels."""
    p, grid = _seen_through(calibration, margins, f"threshold {risk}")
    return control_risk(p, labels, groups, risk, at_most, delta, thresholds=grid, prior=calibration.prior)


def _band(
    calibration: Calibration, margins: Floats, p: Floats, labels: Floats, groups: NDArray, target: BandTarget
) -> AbstainBand:
    """On cross-fitted probabilities p, or, with a guarantee, between fixed margins."""
    if len(target) == 2:
        return fit_band(p, labels, groups, *target, prior=calibration.prior)
    p, grid = _seen_through(calibration, margins, f"abstain band {GUARANTEED}")
    return guaranteed_band(p, labels, groups, *target[1:], thresholds=grid, prior=calibration.prior)


def _seen_through(calibration: Calibration, margins: Floats, where: str) -> tuple[Floats, Floats]:
    """Probabilities of the margins and of their grid, by a map under which cuts on either are the same."""
    if calibration.by_group is not None or calibration.map.ties_margins:
        raise CalibrationError(
            f"{where}: a guarantee needs a map that keeps every margin apart, got {calibration.method}"
            f"{' with corrections per group' if calibration.by_group else ''}; use temperature, platt or beta without"
        )
    return calibration.predict(margins), calibration.predict(margin_grid(margins))


def usable_rows(predictions: Sequence[Prediction], where: str, splits: Sequence[str]) -> list[Prediction]:
    """The rows that were scored and are labelled; `CalibrationError` unless they are of these splits."""
    held = sorted({str(p.split) for p in predictions})
    if held != sorted(splits):
        raise CalibrationError(
            f"{where}: a calibration is fitted on the {' and '.join(splits)} split alone, got rows of {held}; "
            f"predict on the calibration split and pass that file"
        )
    return [p for p in predictions if p.error is None and p.label is not None]


def _aligned(name: str, values: ArrayLike, n: int, where: str) -> NDArray:
    values = np.asarray(values)
    if values.shape != (n,):
        raise CalibrationError(f"{where}: needs a {name} per row, got shape {values.shape} for {n} rows; align them")
    return values


def _with_prior(calibration: Calibration, prior: float | Sequence[Prediction] | None) -> Calibration:
    """Stated for `prior`; where that is predictions, the estimate is stored as `fitted_on["prior_estimate"]`."""
    if not isinstance(prior, Sequence):
        return calibration.with_prior(prior)
    rows = [p for p in prior if p.error is None]
    p = calibration.predict(margins_of(rows), calibration.group_keys(rows))
    estimate = estimate_prior(p, calibration.positive_rate or 0.0)
    about = calibration.fitted_on | {"prior_estimate": dataclasses.asdict(estimate)}
    return dataclasses.replace(calibration, fitted_on=about, prior=estimate.prior)


def _criteria(objective: str | Sequence[str], p: Floats) -> list[Criterion]:
    """What to fit points for, the default first, none twice. Where all rows get one p, mcc is defined at no cut."""
    requested = [Criterion.parse(o) for o in ([objective] if isinstance(objective, str) else objective)]
    usual = [Criterion(o) for o in SIMPLE_CRITERIA if o != "mcc" or len(np.unique(p)) > 1]
    return list(dict.fromkeys([*requested, *usual]))


def _gain(
    margins: Floats,
    labels: Floats,
    groups: NDArray,
    weights: Floats,
    method: str,
    values: NDArray,
    per_group: PerGroup,
    where: str,
) -> dict[str, float]:
    """Cross-fitted log-loss without and with corrections: are they worth having?"""
    folds = grouped_folds(labels, groups, where=where)
    plain = cross_fitted_logits(margins, labels, folds, method, weights)
    correct = (per_group.key, values, per_group.min_rows)
    corrected = cross_fitted_logits(margins, labels, folds, method, weights, correct)
    logits = {"nll_without": plain, "nll_with": corrected}
    return {name: float(np.average(row_losses(x, labels), weights=weights)) for name, x in logits.items()}


def _checked_weights(weights: ArrayLike | None, n: int, where: str) -> Floats:
    """How much each row counts, (n,): all 1 where None. A weight of 2 is the same as the row twice."""
    if weights is None:
        return np.ones(n)
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != (n,) or not (np.isfinite(weights) & (weights > 0)).all():
        raise CalibrationError(
            f"{where}: needs a finite weight > 0 per row, got shape {weights.shape} for {n} rows, "
            f"or other values; leave rows that do not count out"
        )
    return weights
