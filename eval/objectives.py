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

from ..data_prep.errors import CalibrationError
from ..models.decisions import ALL_OBJECTIVES, Objective, OperatingPoint
from .metrics import Confusion, Floats

_FITTED: tuple[Objective, ...] = tuple(o for o in ALL_OBJECTIVES if o != "risk_control")


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


def objective_value(goal: Goal, counts: Confusion | tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]) -> Floats:
    """The value an objective has at these counts (tp, fp, tn, fn): a scalar array, or their shape.

    | objective | value |
    |---|---|
    | f1 | 2 tp / (2 tp + fp + fn) |
    | f1_macro | mean of f1 and of 2 tn / (2 tn + fp + fn) |
    | balanced_accuracy | (sensitivity + specificity) / 2 |
    | mcc | (tp tn - fp fn) / sqrt((tp + fp)(tp + fn)(tn + fp)(tn + fn)) |
    | youden | sensitivity + specificity - 1 |
    | match_rate | share called supported minus share that is, (fp - fn) / n; the best is 0 |
    | cost | (cost_fp fp + cost_fn fn) / n; the best is the least |
    | precision_at, recall_at | the precision, the recall reached |

    NaN where nothing is divided by nothing: f1, balanced accuracy and Youden without both classes, mcc also where every
    row gets the same verdict, precision where none is called supported.
    """
    tp, fp, tn, fn = (np.asarray(c, dtype=np.float64) for c in counts)
    n, pos, neg, said = tp + fp + tn + fn, tp + fn, tn + fp, tp + fp
    if goal.objective == "f1":
        return _ratio(2 * tp, np.where(pos > 0, 2 * tp + fp + fn, 0))
    if goal.objective == "f1_macro":
        both = (pos > 0) & (neg > 0)
        f1, f1_negative = _ratio(2 * tp, 2 * tp + fp + fn), _ratio(2 * tn, 2 * tn + fp + fn)
        return np.where(both, (f1 + f1_negative) / 2, np.nan)
    if goal.objective == "balanced_accuracy":
        return _ratio(tp * neg + tn * pos, 2 * pos * neg)
    if goal.objective == "mcc":
        return _ratio(tp * tn - fp * fn, np.sqrt(said * pos) * np.sqrt(neg * (tn + fn)))
    if goal.objective == "youden":
        return _ratio(tp * tn - fp * fn, pos * neg)
    if goal.objective == "match_rate":
        return _ratio(fp - fn, n)
    if goal.objective == "cost":
        return _ratio(cast(float, goal.cost_fp) * fp + cast(float, goal.cost_fn) * fn, n)
    return _ratio(tp, said) if goal.objective == "precision_at" else _ratio(tp, pos)


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
        first, second = np.where(value >= cast(float, goal.target), _ratio(tp, tp + fp), np.nan), value
    else:
        first = value
    return np.where(np.isnan(first), -np.inf, first), np.where(np.isnan(second), -np.inf, second)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    return np.divide(numerator, denominator, out=np.full(np.shape(numerator), np.nan), where=denominator > 0)
