"""Thresholds on calibrated probabilities: what one can be chosen for, and the exact choice.

A `Criterion` is a function of confusion counts, computed in the same way from one set of counts or from arrays of them,
so that a stored value and one recomputed from the stored counts are equal to the last bit. `fit_threshold` tries every
cut between distinct probabilities. Intervals hold the chosen threshold fixed and resample groups: they say how sure its
value is on rows like these, not how much the choice profited from them; a report measures it on other rows. Operating
points are applied by `models/decision/thresholds.py`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core import CalibrationError
from ...models.decision import CRITERION_NAMES, SIMPLE_CRITERIA, CriterionName, OperatingPoint, StoredInterval
from ..metrics import (
    Confusion,
    Confusions,
    CountMetric,
    Floats,
    Resamples,
    balanced_accuracy,
    checked,
    cumulative_counts,
    divide,
    f1,
    f1_macro,
    mcc,
    precision,
    recall,
    youden,
)
from ..metrics import specificity as true_negative_rate
from ..uncertainty import Interval, interval_of, resample

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


def fit_threshold(
    p: ArrayLike,
    labels: ArrayLike,
    objective: str | Criterion = "f1",
    name: str | None = None,
) -> OperatingPoint:
    """The threshold on p that serves `objective` best; positive means p >= threshold.

    Every distinct cut is tried, everything-positive (0) and everything-negative (just above 1) among them; equal
    probabilities are never parted. Cuts lie midway between neighbouring probabilities; of equally good cuts the one in
    the widest gap wins. Applying the point to the same rows gives exactly the stored metric and counts.

    `precision_at` takes the most recall among the cuts that reach the target, `recall_at` the most precision.

    Args:
        p: probabilities, shape (n,), cross-fitted if a calibrator was fitted on the same rows.
        labels: 1 or 0, shape (n,).
        objective: see `criterion_value`; `precision_at:0.95`, `recall_at:0.9`, `cost:5:1` carry numbers.
        name: of the point; that of the criterion where None.

    Raises:
        CalibrationError: no cut reaches the target, or the objective is defined at none.
    """
    criterion = Criterion.parse(objective)
    p, y = checked(p, labels, f"threshold {name or criterion.name}", probabilities=True, to_fit=True)
    return _best(criterion, all_cuts(p, y), name or criterion.name)


def fit_points(
    p: ArrayLike,
    labels: ArrayLike,
    groups: ArrayLike,
    objectives: Sequence[str | Criterion] = SIMPLE_CRITERIA,
    n_draws: int = 1_000,
    seed: int = 0,
    level: float = 0.95,
) -> tuple[OperatingPoint, ...]:
    """An operating point per criterion, each with group-clustered intervals of its metric, sensitivity, specificity.

    Args:
        p: probabilities, shape (n,), cross-fitted if a calibrator was fitted on the same rows.
        labels: 1 or 0, shape (n,).
        groups: shape (n,); rows of one group are drawn together. With fewer than two groups no interval is stored.

    Raises:
        CalibrationError: as `fit_threshold`.
    """
    criteria = [Criterion.parse(objective) for objective in objectives]
    p, y = checked(p, labels, "thresholds", probabilities=True, to_fit=True)
    cuts, resamples = all_cuts(p, y), resample(groups, n_draws, seed)
    return tuple(_with_intervals(_best(g, cuts, g.name), g, p, y, resamples, level) for g in criteria)


def all_cuts(p: Floats, labels: Floats) -> Cuts:
    """Every cut between distinct probabilities; equal ones stay together."""
    tp, fp = cumulative_counts(p, labels)
    descending = np.unique(p)[::-1]
    upper, lower = descending[:-1], descending[1:]
    middle = lower + (upper - lower) / 2
    middle = np.where(middle > lower, middle, upper)  # neighbouring floats have nothing between them
    thresholds = np.concatenate([[ALL_NEGATIVE], middle, [0.0]])
    gaps = np.concatenate([[1 - descending[0]], upper - lower, [descending[-1]]])
    return Cuts(thresholds, gaps, tp, fp)


def stored_interval(interval: Interval) -> StoredInterval | None:
    """An interval as it is stored: not at all where its bounds are undefined."""
    defined = math.isfinite(interval.low) and math.isfinite(interval.high)
    return StoredInterval(interval.low, interval.high, interval.level) if defined else None


def with_rate_intervals(
    point: OperatingPoint, p: Floats, labels: Floats, resamples: Resamples, level: float
) -> OperatingPoint:
    """The point with intervals of its sensitivity and specificity on these rows, and their number of groups."""
    drawn, n_groups = Confusions(*resamples.sums(outcomes(point.decide(p), labels)).T), resamples.n_groups
    sensitivity = interval_of(recall(drawn), point.sensitivity, level, n_groups=n_groups)
    specificity = interval_of(true_negative_rate(drawn), point.specificity, level, n_groups=n_groups)
    return dataclasses.replace(
        point,
        sensitivity_interval=stored_interval(sensitivity),
        specificity_interval=stored_interval(specificity),
        n_groups=n_groups,
    )


def outcomes(is_supported: NDArray[np.bool_], labels: Floats) -> Floats:
    """Which of tp, fp, tn, fn each row is, as 0 and 1, shape (n, 4)."""
    is_so = labels == 1
    return np.stack(
        [is_supported & is_so, is_supported & ~is_so, ~is_supported & ~is_so, ~is_supported & is_so], axis=1
    ).astype(np.float64)


def _best(criterion: Criterion, cuts: Cuts, name: str) -> OperatingPoint:
    n_pos, n_neg = cuts.tp[-1], cuts.fp[-1]
    counts = (cuts.tp, cuts.fp, n_neg - cuts.fp, n_pos - cuts.tp)
    first, second = preference(criterion, counts)
    best = int(np.lexsort((cuts.gaps, second, first))[-1])
    if first[best] == -np.inf:
        _refuse(criterion, counts, name)
    at_best = Confusion(*(int(c[best]) for c in counts))
    return OperatingPoint(
        name=name,
        objective=criterion.objective,
        threshold=float(cuts.thresholds[best]),
        metric=float(criterion_value(criterion, at_best)),
        positive_rate=float(n_pos / (n_pos + n_neg)),
        target=criterion.target,
        cost_fp=criterion.cost_fp,
        cost_fn=criterion.cost_fn,
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


def _with_intervals(
    point: OperatingPoint, criterion: Criterion, p: Floats, y: Floats, resamples: Resamples, level: float
) -> OperatingPoint:
    tp, fp, tn, fn = resamples.sums(outcomes(point.decide(p), y)).T
    interval = interval_of(
        criterion_value(criterion, (tp, fp, tn, fn)), point.metric, level, n_groups=resamples.n_groups
    )
    return dataclasses.replace(with_rate_intervals(point, p, y, resamples, level), interval=stored_interval(interval))
