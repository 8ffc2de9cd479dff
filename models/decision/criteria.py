"""What a threshold can be chosen for, and the exact choice among all cuts of labelled rows; NumPy only.

A `Criterion` is a function of confusion counts, computed in the same way from one set of counts or from arrays of them,
so that a stored value and one recomputed from the stored counts are equal to the last bit. Where a share of supported
claims is stated (`prior`), counts are first restated for it, so that what is chosen serves where that share holds.
`eval/decisions` fits thresholds on rows; a decision that keeps its `Curve` chooses again for another share at use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from ...core import CalibrationError
from .calibrator import Floats
from .counts import (
    Confusion,
    Confusions,
    CountMetric,
    at_prior,
    balanced_accuracy,
    divide,
    f1,
    f1_macro,
    mcc,
    precision,
    recall,
    youden,
)
from .thresholds import CRITERION_NAMES, CriterionName, OperatingPoint

_FITTED: tuple[CriterionName, ...] = tuple(o for o in CRITERION_NAMES if o != "risk_control")
_COUNT_METRICS: dict[CriterionName, CountMetric] = {
    "f1": f1,
    "f1_macro": f1_macro,
    "balanced_accuracy": balanced_accuracy,
    "mcc": mcc,
    "youden": youden,
    "precision_at": precision,
    "recall_at": recall,
}


@dataclass(frozen=True)
class Criterion:
    """What a threshold is chosen for: a name, a target for `precision_at` and `recall_at`, two prices for `cost`.

    Written as text, for a command line: `f1`, `precision_at:0.95`, `cost:5:1` (a wrong `supported` costs five times a
    missed one).
    """

    objective: CriterionName
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
    def parse(cls, text: str | Criterion) -> Criterion:
        """The criterion that a text describes; one that is parsed already is returned as it is."""
        if isinstance(text, Criterion):
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
        return cls(cast(CriterionName, objective), *values)


def criterion_of(point: OperatingPoint) -> Criterion:
    """What a stored point was chosen for; not for risk-controlled points, see `risk_control`."""
    return Criterion(point.objective, point.target, point.cost_fp, point.cost_fn)


def criterion_value(criterion: Criterion, counts: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]) -> Floats:
    """The value of a criterion at these counts (tp, fp, tn, fn): a scalar array, or their shape.

    f1, f1_macro, balanced_accuracy, mcc and youden are those of `eval.metrics`; precision_at and recall_at are the
    precision, the recall reached. Beside these:

    - match_rate: the share called supported minus the share that is, (fp - fn) / n; the best is 0.
    - cost: the mean price of a row, (cost_fp fp + cost_fn fn) / n; the best is the least.

    NaN where nothing is divided by nothing.
    """
    many = Confusions(*(np.asarray(c, dtype=np.float64) for c in counts))
    if criterion.objective in _COUNT_METRICS:
        return np.asarray(_COUNT_METRICS[criterion.objective](many))
    wrong = many.fp - many.fn
    if criterion.objective == "cost":
        wrong = cast(float, criterion.cost_fp) * many.fp + cast(float, criterion.cost_fn) * many.fn
    return divide(wrong, many.tp + many.fp + many.tn + many.fn)


def preference(criterion: Criterion, counts: tuple[Floats, Floats, Floats, Floats]) -> tuple[Floats, Floats]:
    """What to maximise first and, among equals, second; -inf first where a set of counts is no candidate."""
    value, (tp, fp, _, fn) = criterion_value(criterion, counts), counts
    second = np.zeros_like(value)
    if criterion.objective == "match_rate":
        first = -np.abs(fp - fn)
    elif criterion.objective == "cost":
        first = -value
    elif criterion.objective == "precision_at":
        first, second = np.where(value >= cast(float, criterion.target), tp, np.nan), value
    elif criterion.objective == "recall_at":
        first, second = np.where(value >= cast(float, criterion.target), divide(tp, tp + fp), np.nan), value
    else:
        first = value
    return np.where(np.isnan(first), -np.inf, first), np.where(np.isnan(second), -np.inf, second)


ALL_NEGATIVE = math.nextafter(1.0, 2.0)  # above every probability


class Cuts(NamedTuple):
    """Every way to cut rows by probability, from all-negative down to all-positive, shape (1 + distinct,) each."""

    thresholds: Floats
    gaps: Floats  # between the probabilities on either side
    tp: Floats
    fp: Floats


def cuts_between(p: Floats, tp: Floats, fp: Floats) -> Cuts:
    """Every cut between distinct probabilities, descending, from the counts at or above each: a 0, then one each."""
    upper, lower = p[:-1], p[1:]
    middle = lower + (upper - lower) / 2
    middle = np.where(middle > lower, middle, upper)  # neighbouring floats have nothing between them
    thresholds = np.concatenate([[ALL_NEGATIVE], middle, [0.0]])
    gaps = np.concatenate([[1 - p[0]], upper - lower, [p[-1]]])
    return Cuts(thresholds, gaps, tp, fp)


def best_point(criterion: Criterion, cuts: Cuts, name: str, prior: float | None = None) -> OperatingPoint:
    """The operating point at the best cut; where a `prior` is stated, best and counted as that share would have it.

    Raises:
        CalibrationError: no cut reaches the target, or the objective is defined at none.
    """
    n_pos, n_neg = cuts.tp[-1], cuts.fp[-1]
    counts: tuple[Floats, Floats, Floats, Floats] = (cuts.tp, cuts.fp, n_neg - cuts.fp, n_pos - cuts.tp)
    if prior is not None:
        counts = at_prior(counts, prior)
    first, second = preference(criterion, counts)
    best = int(np.lexsort((cuts.gaps, second, first))[-1])
    if first[best] == -np.inf:
        _refuse(criterion, counts, name)
    at_best = Confusion(*(int(c[best]) if prior is None else float(c[best]) for c in counts))  # type: ignore[arg-type]
    return OperatingPoint(
        name=name,
        objective=criterion.objective,
        threshold=float(cuts.thresholds[best]),
        metric=float(criterion_value(criterion, at_best)),
        positive_rate=float(n_pos / (n_pos + n_neg)),
        target=criterion.target,
        cost_fp=criterion.cost_fp,
        cost_fn=criterion.cost_fn,
        prior=prior,
        **at_best._asdict(),
    )


def _refuse(criterion: Criterion, counts: tuple[Floats, Floats, Floats, Floats], name: str) -> None:
    values = criterion_value(criterion, counts)
    if np.isnan(values).all():
        raise CalibrationError(
            f"threshold {name}: {criterion.objective} is undefined at every cut, got one probability for all rows; "
            f"leave this objective out"
        )
    raise CalibrationError(
        f"threshold {name}: no cut reaches the target, got at most {np.nanmax(values):.4f} of {criterion.target}; "
        f"lower the target"
    )
