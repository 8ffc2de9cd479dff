"""From probabilities to labels: operating points, abstain bands, and the files of a verifier directory that hold them.

An operating point gives two answers, supported or not. A band gives three: supported above one threshold, refuted below
another, no verdict between them. Positive means supported. They are fitted by `eval/decisions`. NumPy only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core import CalibrationError
from .calibration import CALIBRATION_FILE, Calibration
from .curve import Curve
from .stored import (
    Guarantee,
    StoredInterval,
    check_counts,
    check_keys,
    check_schema,
    finite,
    from_dict,
    read_json,
    with_nested,
    without_none,
)

State = Literal["supported", "refuted", "abstain"]
STATES: tuple[State, ...] = get_args(State)
BandCriterion = Literal["selective_accuracy", "selective_accuracy_guaranteed", "max_abstention"]
BAND_CRITERIA: tuple[BandCriterion, ...] = get_args(BandCriterion)
_COUNTS = ("tp", "fp", "tn", "fn", "abstained_positive", "abstained_negative")


@dataclass(frozen=True)
class AbstainBand:
    """Two thresholds on p_supported, and what they reached on the rows they were chosen on.

    Attributes:
        support_at_or_above: p at least this is `supported`; above 1, nothing is.
        refute_at_or_below: p at most this is `refuted`; below 0, nothing is. Strictly below the other threshold.
        objective: `selective_accuracy` (cover as much as possible at this accuracy or better on the fitting rows),
            `selective_accuracy_guaranteed` (the same, promised for other groups) or `max_abstention` (be as accurate as
            possible, abstaining on no more than this share).
        target: that accuracy, or that share.
        tp, fp: supported verdicts that are right and wrong. tn, fn: refuted verdicts that are right and wrong.
        abstained_positive, abstained_negative: rows without a verdict, by label.
        selective_accuracy_interval, coverage_interval: clustered by group, for these thresholds held fixed.
        prior: the share of supported rows that counts and intervals are stated for; None: that of the fitting rows.
        guarantee: where the accuracy is promised; its risk is `selective_error_rate`.
        caution: what does not hold of it, in a sentence; None nearly always.
    """

    support_at_or_above: float
    refute_at_or_below: float
    objective: BandCriterion
    target: float
    tp: int
    fp: int
    tn: int
    fn: int
    abstained_positive: int
    abstained_negative: int
    selective_accuracy_interval: StoredInterval | None = None
    coverage_interval: StoredInterval | None = None
    n_groups: int | None = None
    prior: float | None = None
    guarantee: Guarantee | None = None
    caution: str | None = None

    def __post_init__(self) -> None:
        """Refuse thresholds that are not numbers in order, and an unknown objective."""
        high, low = self.support_at_or_above, self.refute_at_or_below
        if not (finite(high) and finite(low) and low < high):
            raise CalibrationError(
                f"abstain band: must refute below where it supports, got support {high!r}, refute {low!r}; fit it again"
            )
        if self.objective not in BAND_CRITERIA:
            raise CalibrationError(
                f"abstain band: unknown objective, got {self.objective!r}; use one of {list(BAND_CRITERIA)}"
            )
        check_counts(self, _COUNTS, "abstain band", whole=self.prior is None)
        check_counts(self, ("n_groups",), "abstain band")

    @property
    def n(self) -> int:
        """Rows it was fitted on."""
        return round(sum(getattr(self, name) for name in _COUNTS))

    @property
    def n_decided(self) -> float:
        """Rows that got a verdict, as the stated share would have it."""
        return self.tp + self.fp + self.tn + self.fn

    @property
    def coverage(self) -> float:
        """Share of the fitting rows that got a verdict; NaN without rows."""
        return self.n_decided / self.n if self.n else math.nan

    @property
    def selective_accuracy(self) -> float:
        """Share of right ones among the verdicts on the fitting rows; NaN where there was none."""
        return (self.tp + self.tn) / self.n_decided if self.n_decided else math.nan

    @property
    def state_counts(self) -> dict[State, tuple[float, float]]:
        """(labelled supported, labelled otherwise) among the fitting rows, per state."""
        return {
            "supported": (self.tp, self.fp),
            "refuted": (self.fn, self.tn),
            "abstain": (self.abstained_positive, self.abstained_negative),
        }

    def decide(self, p: ArrayLike) -> NDArray[np.str_]:
        """`supported`, `refuted` or `abstain` for each probability, same shape as `p`.

        Raises:
            CalibrationError: NaN. A failed row is no abstention: leave it out and count it as failed.
        """
        p = np.asarray(p, dtype=np.float64)
        if np.isnan(p).any():
            raise CalibrationError(
                f"abstain band: a failed row has no state, got {int(np.isnan(p).sum())} NaN; leave failed rows out"
            )
        return np.where(
            p >= self.support_at_or_above, "supported", np.where(p <= self.refute_at_or_below, "refuted", "abstain")
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON values; `from_dict` gives an equal band back, bit for bit."""
        return without_none(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str) -> AbstainBand:
        """The band a dict describes; `CalibrationError` on unknown or missing keys."""
        nested: dict[str, type] = {"guarantee": Guarantee}
        nested |= dict.fromkeys(("selective_accuracy_interval", "coverage_interval"), StoredInterval)
        return from_dict(cls, with_nested(values, nested, where), where)


CriterionName = Literal[
    "f1",
    "f1_macro",
    "balanced_accuracy",
    "mcc",
    "youden",
    "match_rate",
    "cost",
    "precision_at",
    "recall_at",
    "risk_control",
]
CRITERION_NAMES: tuple[CriterionName, ...] = get_args(CriterionName)
SIMPLE_CRITERIA: tuple[CriterionName, ...] = CRITERION_NAMES[:6]  # those that need neither target nor costs
THRESHOLDS_FILE = "thresholds.json"
_INTERVALS = ("interval", "sensitivity_interval", "specificity_interval")


@dataclass(frozen=True)
class OperatingPoint:
    """A named threshold on p_supported, and what it reached on the rows it was chosen on.

    Positive means p_supported >= threshold, everywhere. A threshold above 1 calls nothing supported.

    Attributes:
        name: how callers ask for it.
        objective: what it was chosen for; `criteria.py` defines each.
        threshold: on the calibrated probability, in [0, 1], or just above 1.
        metric: value of the objective on the fitting rows.
        tp, fp, tn, fn: confusion counts on the fitting rows; with a `prior` as so many rows of that share would have
            them, which need not be whole.
        positive_rate: share of supported rows among the fitting rows.
        target: the precision or recall asked for, or the risk allowed.
        cost_fp, cost_fn: price of a wrong `supported` and of a missed one, where the objective is `cost`.
        interval: of `metric`, clustered by group, for this threshold held fixed.
        sensitivity_interval, specificity_interval: likewise; what correcting a proportion needs.
        guarantee: where the threshold is risk-controlled.
        n_groups: independent groups among the fitting rows.
        prior: the share of supported rows that it was chosen for, and that metric, counts and intervals are stated
            for; None: that of the fitting rows.
        caution: what does not hold of it, in a sentence; None nearly always.
    """

    name: str
    objective: CriterionName
    threshold: float
    metric: float
    tp: int
    fp: int
    tn: int
    fn: int
    positive_rate: float
    target: float | None = None
    cost_fp: float | None = None
    cost_fn: float | None = None
    interval: StoredInterval | None = None
    sensitivity_interval: StoredInterval | None = None
    specificity_interval: StoredInterval | None = None
    guarantee: Guarantee | None = None
    n_groups: int | None = None
    prior: float | None = None
    caution: str | None = None

    def __post_init__(self) -> None:
        """Refuse an objective or threshold that cannot be applied, and counts that are none."""
        if self.objective not in CRITERION_NAMES:
            raise CalibrationError(
                f"operating point {self.name}: unknown objective, got {self.objective!r}; "
                f"use one of {list(CRITERION_NAMES)}"
            )
        if not (finite(self.threshold) and self.threshold >= 0):
            raise CalibrationError(
                f"operating point {self.name}: threshold must be a finite number >= 0, got {self.threshold!r}; "
                f"fit it again"
            )
        where = f"operating point {self.name}"
        check_counts(self, ("tp", "fp", "tn", "fn"), where, whole=self.prior is None)
        check_counts(self, ("n_groups",), where)

    @property
    def n(self) -> int:
        """Rows it was fitted on."""
        return round(self.tp + self.fp + self.tn + self.fn)

    @property
    def n_positive(self) -> int:
        """Supported rows among them, whatever share is stated."""
        return round(self.tp + self.fn if self.prior is None else self.n * self.positive_rate)

    @property
    def n_negative(self) -> int:
        """The other rows among them."""
        return self.n - self.n_positive

    @property
    def sensitivity(self) -> float:
        """Share of the supported rows that it calls supported, tp / (tp + fn); NaN without one."""
        return self.tp / (self.tp + self.fn) if self.tp + self.fn else math.nan

    @property
    def specificity(self) -> float:
        """Share of the other rows that it does not call supported, tn / (tn + fp); NaN without one."""
        return self.tn / (self.tn + self.fp) if self.tn + self.fp else math.nan

    def decide(self, p: ArrayLike) -> NDArray[np.bool_]:
        """True where p >= threshold.

        A failed row (NaN) gives False here, which is *not* a verdict: callers look for NaN first and report a failure.
        """
        return np.asarray(p, dtype=np.float64) >= self.threshold

    def to_dict(self) -> dict[str, Any]:
        """JSON values; `from_dict` gives an equal point back, bit for bit."""
        return without_none(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = THRESHOLDS_FILE) -> OperatingPoint:
        """The operating point a dict describes; `CalibrationError` on unknown or missing keys."""
        nested: dict[str, type] = {"guarantee": Guarantee, **dict.fromkeys(_INTERVALS, StoredInterval)}
        return from_dict(cls, with_nested(values, nested, where), where)


@dataclass(frozen=True)
class Decision:
    """Everything between a margin and a label: one calibration and its operating points, `default` among them.

    `abstain`, where fitted, is the band for callers who want a third answer. `curve` is what thresholds for another
    share of supported claims are chosen on; directories from before have none. `fitted` is the decision as stored, of
    one that was restated at use.
    """

    calibration: Calibration
    points: tuple[OperatingPoint, ...]
    default: str
    abstain: AbstainBand | None = None
    curve: Curve | None = None
    fitted: Decision | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse two points of one name, and a default that is not among them."""
        names = [point.name for point in self.points]
        if len(set(names)) != len(names) or self.default not in names:
            raise CalibrationError(
                f"{THRESHOLDS_FILE}: names must differ and hold the default, got {names}, default {self.default!r}; "
                f"name each point once"
            )

    def point(self, name: str | None = None) -> OperatingPoint:
        """The operating point called `name` (None: the default)."""
        name = self.default if name is None else name
        for point in self.points:
            if point.name == name:
                return point
        raise CalibrationError(
            f"{THRESHOLDS_FILE}: no such operating point, got {name!r}; use one of {[p.name for p in self.points]}"
        )


def write_decision(directory: str | Path, decision: Decision) -> list[Path]:
    """Write calibration.json and thresholds.json into `directory` (made if need be); returns both paths."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    thresholds: dict[str, Any] = {"default": decision.default, "points": [p.to_dict() for p in decision.points]}
    if decision.abstain is not None:
        thresholds["abstain"] = decision.abstain.to_dict()
    if decision.curve is not None:
        thresholds["curve"] = decision.curve.to_dict()
    files = {CALIBRATION_FILE: decision.calibration.to_dict(), THRESHOLDS_FILE: thresholds}
    for name, values in files.items():
        text = json.dumps(values, indent=2, allow_nan=False) + "\n"
        if name == THRESHOLDS_FILE:  # the curve: a list of numbers takes a line
            text = re.sub(r"\[[\s\d.,e+-]+\]", lambda numbers: " ".join(numbers[0].split()), text)
        (directory / name).write_text(text, encoding="utf-8")
    return [directory / name for name in files]


def read_decision(directory: str | Path) -> Decision:
    """Read calibration.json and thresholds.json from a directory.

    Raises:
        CalibrationError: a file is missing, not JSON, or holds unknown or missing keys; the message names the file.
    """
    calibration_path, thresholds_path = Path(directory) / CALIBRATION_FILE, Path(directory) / THRESHOLDS_FILE
    stored, thresholds = read_json(calibration_path), read_json(thresholds_path)
    check_schema(stored, CALIBRATION_FILE, str(calibration_path))
    check_schema(thresholds, THRESHOLDS_FILE, str(thresholds_path))
    calibration = Calibration.from_dict(stored, str(calibration_path))
    check_keys(thresholds, {"default", "points", "abstain", "curve"}, {"default", "points"}, str(thresholds_path))
    points = tuple(OperatingPoint.from_dict(point, str(thresholds_path)) for point in thresholds["points"])
    band = thresholds.get("abstain")
    abstain = None if band is None else AbstainBand.from_dict(band, f"{thresholds_path}: abstain")
    above = thresholds.get("curve")
    curve = None if above is None else Curve.from_dict(above, f"{thresholds_path}: curve")
    try:
        return Decision(calibration, points, thresholds["default"], abstain, curve)
    except CalibrationError as error:
        raise CalibrationError(f"{directory}/{error}") from error
