"""What a threshold can be chosen for, as functions of confusion counts: one definition for choosing, storing, checking.

Every value is computed the same way from one set of counts or from arrays of them, so that a stored value and one
recomputed from the stored counts are equal to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from ..core.errors import CalibrationError
from ..models.decisions import ALL_OBJECTIVES, Objective, OperatingPoint
from .checks import Floats, divide
from .counts import Confusions, CountMetric, balanced_accuracy, f1, f1_macro, mcc, precision, recall, youden

_FITTED: tuple[Objective, ...] = tuple(o for o in ALL_OBJECTIVES if o != "risk_control")
_COUNT_METRICS: dict[Objective, CountMetric] = {
    "f1": f1,
    "f1_macro": f1_macro,
    "balanced_accuracy": balanced_accuracy,
    "mcc": mcc,
    "youden": youden,
    "precision_at": precision,
    "recall_at": recall,
}


@dataclass(frozen=True)
class Goal:
    """An objective with what it needs: a target for `precision_at` and `recall_at`, two prices for `cost`.

    Written as text, for a command line: `f1`, `precision_at:0.95`, `cost:5:1` (a wrong `supported` costs five times a
    missed one).
    """

    objective: Objective
    target: float | None = None
    cost_fp: float | None = None
    cost_fn: float | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown objective, and one with too few or too many numbers."""
        if self.objective not in _FITTED:
            raise CalibrationError(f"objective: unknown, got {self.objective!r}; use one of {list(_FITTED)}")
        wants_target, wants_costs = self.objective in ("precision_at", "recall_at"), self.objective == "cost"
        if (self.target is not None) != wants_target or (wants_target and not 0 < cast(float, self.target) <= 1):
            raise CalibrationError(
                f"objective {self.objective}: precision_at and recall_at take a target in (0, 1], the others none, "
                f"got {self.target!r}; write it like precision_at:0.95"
            )
        costs = [c for c in (self.cost_fp, self.cost_fn) if c is not None]
        if len(costs) != 2 * wants_costs or not all(math.isfinite(c) and c > 0 for c in costs):
            raise CalibrationError(
                f"objective {self.objective}: cost takes two positive prices, the others none, got {costs}; "
                f"write it like cost:5:1"
            )

    @property
    def name(self) -> str:
        """The name its operating point gets: the objective, and its numbers where it has some."""
        numbers = [n for n in (self.target, self.cost_fp, self.cost_fn) if n is not None]
        return "_".join([self.objective, *(f"{n:g}" for n in numbers)])

    @classmethod
    def parse(cls, text: str | Goal) -> Goal:
        """The goal a text describes; a goal is given back as it is."""
        if isinstance(text, Goal):
            return text
        objective, *numbers = text.split(":")
        try:
            values = [float(n) for n in numbers]
        except ValueError:
            raise CalibrationError(
                f"objective: what follows the name must be numbers, got {text!r}; write it like precision_at:0.95"
            ) from None
        if objective == "cost" and len(values) == 2:
            return cls("cost", None, *values)
        if len(values) > 1:
            raise CalibrationError(f"objective: too many numbers, got {text!r}; write it like precision_at:0.95")
        return cls(cast(Objective, objective), *values)


def goal_of(point: OperatingPoint) -> Goal:
    """What a stored point was chosen for; not for risk-controlled points, whose risk is of `eval/risk_control.py`."""
    return Goal(point.objective, point.target, point.cost_fp, point.cost_fn)


def objective_value(goal: Goal, counts: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]) -> Floats:
    """The value an objective has at these counts (tp, fp, tn, fn): a scalar array, or their shape.

    f1, f1_macro, balanced_accuracy, mcc and youden are those of `counts.py`; precision_at and recall_at are the
    precision, the recall reached. Beside these:

    - match_rate: the share called supported minus the share that is, (fp - fn) / n; the best is 0.
    - cost: the mean price of a row, (cost_fp fp + cost_fn fn) / n; the best is the least.

    NaN where nothing is divided by nothing.
    """
    many = Confusions(*(np.asarray(c, dtype=np.float64) for c in counts))
    if goal.objective in _COUNT_METRICS:
        return np.asarray(_COUNT_METRICS[goal.objective](many))
    wrong = many.fp - many.fn
    if goal.objective == "cost":
        wrong = cast(float, goal.cost_fp) * many.fp + cast(float, goal.cost_fn) * many.fn
    return divide(wrong, many.tp + many.fp + many.tn + many.fn)


def preference(goal: Goal, counts: tuple[Floats, Floats, Floats, Floats]) -> tuple[Floats, Floats]:
    """What to maximise first and, among equals, second; -inf first where a set of counts is no candidate."""
    value, (tp, fp, _, fn) = objective_value(goal, counts), counts
    second = np.zeros_like(value)
    if goal.objective == "match_rate":
        first = -np.abs(fp - fn)
    elif goal.objective == "cost":
        first = -value
    elif goal.objective == "precision_at":
        first, second = np.where(value >= cast(float, goal.target), tp, np.nan), value
    elif goal.objective == "recall_at":
        first, second = np.where(value >= cast(float, goal.target), divide(tp, tp + fp), np.nan), value
    else:
        first = value
    return np.where(np.isnan(first), -np.inf, first), np.where(np.isnan(second), -np.inf, second)
