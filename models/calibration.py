"""Applying a calibration: margins to probabilities, probabilities to decisions, and both to and from JSON.

The fitting half is `eval/calibrating.py`. This half is NumPy only, so that a verifier directory can be applied, checked
and copied without scikit-learn or torch. Binary view throughout: positive means supported.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..data_prep.errors import CalibrationError

Method = Literal["none", "temperature", "platt"]
Objective = Literal["f1", "balanced_accuracy"]
METHODS: tuple[Method, ...] = get_args(Method)
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
CALIBRATION_FILE = "calibration.json"
THRESHOLDS_FILE = "thresholds.json"


def sigmoid(logits: ArrayLike) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)) in float64, without overflow at either end; NaN stays NaN."""
    x = np.asarray(logits, dtype=np.float64)
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class Calibration:
    """p_supported = sigmoid(slope * margin + intercept), with slope > 0 so that ranking never changes.

    Attributes:
        method: `none` (slope 1, intercept 0), `temperature` (intercept 0, slope = 1/T) or `platt`.
        n: rows it was fitted on.
        n_groups: independent groups among them.
        positive_rate: share of supported rows among them; the map holds for this rate. None where nothing was fitted.
        fitted_on: where it comes from: `split`, `predictions_sha256`, `verifier_fingerprint`.
        at_bound: the slope stopped at the edge of its range: the margins separate the labels perfectly, or rank them
            no better than chance. Such probabilities deserve no trust.
    """

    method: Method
    slope: float
    intercept: float
    n: int
    n_groups: int
    positive_rate: float | None
    fitted_on: dict[str, Any] = field(default_factory=dict)
    at_bound: bool = False

    def __post_init__(self) -> None:
        """Refuse a map that is no calibration: unknown method, not finite, or one that would reverse the ranking."""
        if self.method not in METHODS:
            raise CalibrationError(f"calibration: unknown method, got {self.method!r}; use one of {list(METHODS)}")
        if not (_finite(self.slope) and self.slope > 0 and _finite(self.intercept)):
            raise CalibrationError(
                f"calibration: slope must be finite and > 0 and intercept finite, "
                f"got {self.slope!r}, {self.intercept!r}; fit it again"
            )
        if (self.method == "none" and self.slope != 1) or (self.method != "platt" and self.intercept != 0):
            raise CalibrationError(
                f"calibration: these parameters are not of this method, "
                f"got {self.method} with slope {self.slope}, intercept {self.intercept}; fit it again"
            )

    def logits(self, margins: ArrayLike) -> NDArray[np.float64]:
        """Calibrated log-odds, same shape as `margins`: what a log-loss should be computed from."""
        return self.slope * np.asarray(margins, dtype=np.float64) + self.intercept

    def predict(self, margins: ArrayLike) -> NDArray[np.float64]:
        """Calibrated P(supported), same shape as `margins`; NaN (a failed row) stays NaN."""
        return sigmoid(self.logits(margins))

    def to_dict(self) -> dict[str, Any]:
        """JSON values; `from_dict` gives an equal calibration back, bit for bit."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = CALIBRATION_FILE) -> Calibration:
        """The calibration a dict describes; `CalibrationError` on unknown or missing keys or an unknown method."""
        return _from_dict(cls, values, where)


IDENTITY = Calibration(method="none", slope=1.0, intercept=0.0, n=0, n_groups=0, positive_rate=None)


@dataclass(frozen=True)
class OperatingPoint:
    """A named threshold on p_supported, and what it reached on the rows it was chosen on.

    Positive means p_supported >= threshold, everywhere. A threshold above 1 calls nothing supported.

    Attributes:
        name: how callers ask for it.
        objective: the metric it maximises.
        threshold: on the calibrated probability, in [0, 1], or just above 1.
        metric: value of the objective on the fitting rows.
        tp, fp, tn, fn: confusion counts on the fitting rows.
        positive_rate: share of supported rows among the fitting rows.
    """

    name: str
    objective: Objective
    threshold: float
    metric: float
    tp: int
    fp: int
    tn: int
    fn: int
    positive_rate: float

    def __post_init__(self) -> None:
        """Refuse an objective or threshold that cannot be applied."""
        if self.objective not in OBJECTIVES:
            raise CalibrationError(
                f"operating point {self.name}: unknown objective, got {self.objective!r}; use one of {list(OBJECTIVES)}"
            )
        if not (_finite(self.threshold) and self.threshold >= 0):
            raise CalibrationError(
                f"operating point {self.name}: threshold must be a finite number >= 0, got {self.threshold!r}; "
                f"fit it again"
            )

    def decide(self, p: ArrayLike) -> NDArray[np.bool_]:
        """True where p >= threshold.

        A failed row (NaN) gives False here, which is *not* a verdict: callers look for NaN first and report a failure.
        """
        return np.asarray(p, dtype=np.float64) >= self.threshold

    def to_dict(self) -> dict[str, Any]:
        """JSON values; `from_dict` gives an equal point back, bit for bit."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = THRESHOLDS_FILE) -> OperatingPoint:
        """The operating point a dict describes; `CalibrationError` on unknown or missing keys."""
        return _from_dict(cls, values, where)


@dataclass(frozen=True)
class Decision:
    """Everything between a margin and a label: one calibration and its operating points, `default` among them."""

    calibration: Calibration
    points: tuple[OperatingPoint, ...]
    default: str

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
    points = [point.to_dict() for point in decision.points]
    files = {
        CALIBRATION_FILE: decision.calibration.to_dict(),
        THRESHOLDS_FILE: {"default": decision.default, "points": points},
    }
    for name, values in files.items():
        text = json.dumps(values, indent=2, allow_nan=False) + "\n"
        (directory / name).write_text(text, encoding="utf-8")
    return [directory / name for name in files]


def read_decision(directory: str | Path) -> Decision:
    """Read calibration.json and thresholds.json from a directory.

    Raises:
        CalibrationError: a file is missing, not JSON, or holds unknown or missing keys; the message names the file.
    """
    calibration_path, thresholds_path = Path(directory) / CALIBRATION_FILE, Path(directory) / THRESHOLDS_FILE
    calibration = Calibration.from_dict(_read_json(calibration_path), str(calibration_path))
    thresholds = _read_json(thresholds_path)
    _check_keys(thresholds, {"default", "points"}, {"default", "points"}, str(thresholds_path))
    if not isinstance(thresholds["points"], Sequence):
        raise CalibrationError(f"{thresholds_path}: points must be a list, got {thresholds['points']!r}; fit it again")
    points = tuple(OperatingPoint.from_dict(point, str(thresholds_path)) for point in thresholds["points"])
    return Decision(calibration, points, thresholds["default"])


T = TypeVar("T", Calibration, OperatingPoint)


def _from_dict(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    fields = dataclasses.fields(cls)
    required = {f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING}
    _check_keys(values, {f.name for f in fields}, required, where)
    try:
        return cls(**values)
    except CalibrationError as error:
        raise CalibrationError(f"{where}: {error}") from None


def _check_keys(values: Any, known: set[str], required: set[str], where: str) -> None:
    if not isinstance(values, Mapping):
        raise CalibrationError(f"{where}: must be a JSON object, got {type(values).__name__}; fit it again")
    if unknown := sorted(set(values) - known):
        raise CalibrationError(f"{where}: unknown keys, got {unknown}; known are {sorted(known)}")
    if missing := sorted(required - set(values)):
        raise CalibrationError(f"{where}: keys are missing, got no {missing}; fit it again with eval/calibrate.py")


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CalibrationError(f"{path}: cannot be read, got {error.strerror}; run eval/calibrate.py first") from error
    except ValueError as error:
        raise CalibrationError(f"{path}: is not JSON, got {error}; run eval/calibrate.py again") from error
