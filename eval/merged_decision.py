"""What becomes of a calibration when its verifier is merged: kept where the margins are the same, else fitted again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.errors import CalibrationError
from ..models.decisions import Decision, OperatingPoint
from ..models.golden import TOLERANCE
from .calibrating import PerGroup, fit_decision
from .fitting_groups import MIN_ROWS
from .objectives import goal_of
from .predictions import Prediction, margins_of


@dataclass(frozen=True)
class Comparison:
    """Margins of the same rows before and after merging.

    Attributes:
        n: rows scored both times.
        n_failed: rows that failed both times.
        max_difference: the largest |after - before| of these n.
        same: every difference is within the tolerance, and the same rows failed.
    """

    n: int
    n_failed: int
    max_difference: float
    same: bool


def compare(before: Sequence[Prediction], after: Sequence[Prediction], dtype: str) -> Comparison:
    """Whether merging changed the function, as far as these rows tell.

    Args:
        before: predictions of the verifier with its adapter.
        after: of the merged one, of the same rows in the same order.
        dtype: the precision the verifier was trained in; it decides the tolerance (`models.golden.TOLERANCE`).

    Raises:
        CalibrationError: other rows, or none that was scored both times: nothing is shown.
    """
    if [p.pair_id for p in before] != [p.pair_id for p in after]:
        raise CalibrationError("merging: margins must be of the same rows, got other pair ids; score one split twice")
    m, n = margins_of(before), margins_of(after)
    failed, both = np.isnan(m), ~np.isnan(m) & ~np.isnan(n)
    if not both.any():
        raise CalibrationError(
            f"merging: no row was scored before and after, got {len(m)} rows; give data whose media can be read"
        )
    difference = np.abs(n - m)[both]
    absolute, relative = TOLERANCE[dtype]
    within = bool((difference <= absolute + relative * np.abs(m[both])).all())
    same_failed = bool((failed == np.isnan(n)).all())
    return Comparison(int(both.sum()), int(failed.sum()), float(difference.max()), within and same_failed)


def refit(decision: Decision, predictions: Sequence[Prediction], fitted_on: dict[str, Any], where: str) -> Decision:
    """The same decision fitted again on other margins: method, objectives, default, band and guarantees as before.

    Raises:
        CalibrationError: as `fit_decision`; and for a point whose guarantee cannot be asked for again.
    """
    calibration = decision.calibration
    points = [decision.point(), *(p for p in decision.points if p.name != decision.default)]
    extra: dict[str, Any] = {}
    if controlled := [_risk(p) for p in points if p.guarantee is not None]:
        extra["risks"] = controlled
    if decision.abstain is not None:
        extra["abstain"] = (decision.abstain.objective, decision.abstain.target)
    if calibration.by_group is not None:
        corrected = calibration.by_group.corrections.values()
        extra["per_group"] = PerGroup(calibration.by_group.key, min([MIN_ROWS, *(c.n for c in corrected)]))
    goals: list[Any] = [goal_of(p) for p in points if p.guarantee is None]
    found = fit_decision(
        predictions,
        "auto" if "choice" in calibration.fitted_on else calibration.method,
        goals,
        fitted_on,
        where,
        prior=calibration.prior,
        aggregation=calibration.aggregation,
        **extra,
    )
    names = [p.name for p in found.points]
    return dataclasses.replace(found, default=decision.default if decision.default in names else found.default)


def _risk(point: OperatingPoint) -> tuple[str, float, float]:
    promise = point.guarantee
    if promise is None or promise.delta is None:
        raise CalibrationError(
            f"operating point {point.name}: a guarantee on average is not fitted again here; "
            "export the merged verifier without it"
        )
    return promise.risk, promise.at_most, promise.delta
