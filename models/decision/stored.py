"""Records of a verifier's JSON files: their keys and numbers are checked, and two that decisions store are defined.

A `StoredInterval` stands around a number, a `Guarantee` beside the threshold that was chosen under it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from ...core import CalibrationError, schema_problem

Risk = Literal["false_support_rate", "miss_rate", "false_discovery_rate", "error_rate"]
RISKS: tuple[Risk, ...] = get_args(Risk)
PER_CLASS: tuple[Risk, ...] = RISKS[:2]  # shares of the rows of one class, whatever the share of that class
T = TypeVar("T")


def from_dict(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    required = {f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING}
    check_keys(values, {f.name for f in fields}, required, where)
    try:
        return cls(**values)
    except CalibrationError as error:
        raise CalibrationError(f"{where}: {error}") from None


def check_keys(values: Any, known: set[str], required: set[str], where: str) -> None:
    if not isinstance(values, Mapping):
        raise CalibrationError(f"{where}: must be a JSON object, got {type(values).__name__}; fit it again")
    if unknown := sorted(set(values) - known):
        raise CalibrationError(f"{where}: unknown keys, got {unknown}; known are {sorted(known)}")
    if missing := sorted(required - set(values)):
        raise CalibrationError(f"{where}: keys are missing, got no {missing}; fit it again with eval/calibrate.py")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CalibrationError(f"{path}: cannot be read, got {error.strerror}; run eval/calibrate.py first") from error
    except ValueError as error:
        raise CalibrationError(f"{path}: is not JSON, got {error}; run eval/calibrate.py again") from error


def check_schema(values: Any, name: str, where: str) -> None:
    """`CalibrationError` unless `values` are what the file `name` of a verifier directory may hold."""
    if problem := schema_problem(values, Path(__file__).parent / "schemas" / name):
        raise CalibrationError(f"{where}: {problem}; fit it again, or fetch the directory again")


def finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class StoredInterval:
    """A confidence interval as a verifier directory carries it: bounds, and the share of samples it is meant to cover.

    One that could not be computed (fewer than two groups) is not stored at all.
    """

    low: float
    high: float
    level: float

    def __post_init__(self) -> None:
        """Refuse bounds that are not numbers in order, and a level outside (0, 1)."""
        numbers = finite(self.low) and finite(self.high) and finite(self.level)
        if not (numbers and self.low <= self.high and 0 < self.level < 1):
            raise CalibrationError(
                f"interval: needs low <= high and a level between 0 and 1, "
                f"got {self.low!r}, {self.high!r}, {self.level!r}; fit it again"
            )


@dataclass(frozen=True)
class Guarantee:
    """What is promised of a threshold for groups like those it was fitted on.

    Attributes:
        risk: the share that is bounded, one of `RISKS`; `eval/decisions/risk_control.py` defines them.
        at_most: its bound.
        delta: the chance, over draws of the fitting groups, that the bound does not hold; None where the promise is
            about the mean risk over such draws (conformal risk control).
        method: `learn_then_test` or `conformal_risk_control`.
        n_groups: independent groups the promise rests on.
    """

    risk: str
    at_most: float
    delta: float | None
    method: str
    n_groups: int

    def __post_init__(self) -> None:
        """Refuse a bound or chance outside (0, 1)."""
        for name, value in (("at_most", self.at_most), ("delta", self.delta)):
            if value is not None and not (finite(value) and 0 < value < 1):
                raise CalibrationError(
                    f"guarantee of {self.risk}: {name} must lie between 0 and 1, got {value!r}; fit it again"
                )


def without_none(record: Any) -> dict[str, Any]:
    """The JSON object of a record without what it does not have: files from before a field existed stay equal."""
    pairs = ((f.name, getattr(record, f.name)) for f in dataclasses.fields(record))
    return {
        name: dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
        for name, value in pairs
        if value is not None
    }


def with_nested(values: Any, kinds: Mapping[str, type], where: str) -> Any:
    """`values` with the objects under the keys of `kinds` read as records of that kind; anything else is left alone."""
    if not isinstance(values, Mapping):
        return values
    nested = {
        key: from_dict(kind, values[key], f"{where}: {key}")
        for key, kind in kinds.items()
        if values.get(key) is not None
    }
    return {**values, **nested}


def check_counts(record: Any, names: tuple[str, ...], where: str, whole: bool = True) -> None:
    """Refuse counts below 0 and, where they must be whole, others; a count of None is one that is not stored."""
    for name in names:
        count = getattr(record, name)
        if count is not None and not (finite(count) and count >= 0 and (isinstance(count, int) or not whole)):
            raise CalibrationError(f"{where}: {name} must be a count, got {count!r}; fit it again")
