"""Values read from a verifier's JSON files: which keys a record must and may have, and numbers that are numbers."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..core.errors import CalibrationError

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


def finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
