"""Corrections of a calibration for one kind of row: a modality, a role, an origin. NumPy only.

A correction works on the overall map's log-odds, so it goes with any map. Values without one, unknown values among
them, keep the overall map. The fitting half is `eval/calibration/per_group.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.errors import CalibrationError
from .calibration_maps import Affine, Floats
from .stored import check_keys, from_dict

GroupKey = Literal["modality", "role", "origin"]
GROUP_KEYS: tuple[GroupKey, ...] = get_args(GroupKey)


@dataclass(frozen=True)
class Correction:
    """log-odds = slope * overall log-odds + intercept for the rows of one value, already shrunk.

    Attributes:
        slope, intercept: 1 and 0 leave the overall map as it is.
        n: rows of this value it was fitted on.
        positive_rate: share of supported rows among them.
        weight: how far it went from the overall map (0) towards the value's own fit (1).
    """

    slope: float
    intercept: float
    n: int
    positive_rate: float
    weight: float

    def __post_init__(self) -> None:
        """Refuse a correction that would reverse the ranking."""
        Affine(self.slope, self.intercept)


@dataclass(frozen=True)
class GroupCorrections:
    """A correction per value of `key`.

    Attributes:
        key: which column of a row tells its value.
        corrections: by value.
        left: values seen while fitting that keep the overall map, and why.
    """

    key: GroupKey
    corrections: dict[str, Correction]
    left: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a column that is not known when a row is scored."""
        if self.key not in GROUP_KEYS:
            raise CalibrationError(
                f"calibration: groups are told by one of {list(GROUP_KEYS)}, got {self.key!r}; fit it again"
            )

    def apply(self, logits: ArrayLike, keys: ArrayLike) -> Floats:
        """Corrected log-odds, same shape as `logits`; `keys` are the rows' values of `key`, of that shape."""
        logits, keys = np.asarray(logits, dtype=np.float64), np.asarray(keys, dtype=object)
        if keys.shape != logits.shape:
            raise CalibrationError(
                f"calibration: needs a {self.key} per margin, got shapes {keys.shape} and {logits.shape}; align them"
            )
        corrected = logits.copy()
        for value, c in self.corrections.items():
            chosen = keys == value
            corrected[chosen] = c.slope * logits[chosen] + c.intercept
        return corrected

    def known(self, keys: ArrayLike) -> NDArray[np.bool_]:
        """True where a row's value has a correction of its own, same shape as `keys`; elsewhere the overall map."""
        return np.isin(np.asarray(keys, dtype=str), list(self.corrections))

    def to_dict(self) -> dict[str, Any]:
        """JSON values; `from_dict` gives equal corrections back, bit for bit."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str) -> GroupCorrections:
        """The corrections a dict describes; `CalibrationError` on unknown or missing keys."""
        check_keys(values, {"key", "corrections", "left"}, {"key", "corrections"}, where)
        stored = values["corrections"]
        left = values.get("left", {})
        for name, each in (("corrections", stored), ("left", left)):
            check_keys(each, set(each) if isinstance(each, Mapping) else set(), set(), f"{where}: {name}")
        corrections = {name: from_dict(Correction, c, f"{where}: {name}") for name, c in stored.items()}
        return cls(values["key"], corrections, dict(left))
