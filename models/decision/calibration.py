"""`Calibration`: from margins to probabilities of a verifier, with corrections per group and a shift of the prior.

Positive means supported. NumPy only, so that a verifier directory can be applied, checked and copied without
scikit-learn or torch. A correction for one modality, role or origin works on the log-odds of the overall map, so it
goes with any map; values without one, unknown values among them, keep the overall map. Which calibrator is chosen, and
how corrections are fitted, is `eval/calibration`; decisions are `thresholds.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core import CalibrationError
from .calibrator import Calibrator, Floats, log_odds, sigmoid
from .calibrators import calibrator_named
from .parametric import Affine, Platt
from .stored import check_keys, finite, from_dict

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
        Platt(self.slope, self.intercept)


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
                f"calibration: groups are keyed by one of {list(GROUP_KEYS)}, got {self.key!r}; fit it again"
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


CALIBRATION_FILE = "calibration.json"


@dataclass(frozen=True)
class Calibration:
    """p_supported = sigmoid(map(margin)), the map non-decreasing so that ranking is never reversed.

    In order: the map, the correction of the row's group where there is one, the shift to another positive rate.

    Attributes:
        method: a name of `CALIBRATORS`.
        slope, intercept: of `none`, `temperature` and `platt`; None for the others.
        n: rows it was fitted on.
        n_groups: independent groups among them.
        positive_rate: share of supported rows among them; the map holds for this rate. None where nothing was fitted.
        fitted_on: where it comes from: `split`, `predictions_sha256`, `verifier_fingerprint`, and `choice`, the
            cross-fitted losses among which `auto` chose.
        at_bound: the slope stopped at the edge of its range: the margins separate the labels perfectly, or rank them
            no better than chance. Such probabilities deserve no trust.
        parameters: of the other calibrators: the fields of the map, as `Calibrator.to_dict` gives them.
        aggregation: how margins of several windows became the one it was fitted on; None for one window.
        prior: the positive rate p_supported is stated for; None: the rate of the fit.
        by_group: corrections for some values of a column.
    """

    method: str
    slope: float | None
    intercept: float | None
    n: int
    n_groups: int
    positive_rate: float | None
    fitted_on: dict[str, Any] = field(default_factory=dict)
    at_bound: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)
    aggregation: str | None = None
    prior: float | None = None
    by_group: GroupCorrections | None = None

    def __post_init__(self) -> None:
        """Refuse a map that is no calibration: unknown method, not finite, or one that would reverse the ranking."""
        affine = issubclass(calibrator_named(self.method), Affine)
        if self.parameters if affine else (self.slope, self.intercept) != (None, None):
            raise CalibrationError(
                f"calibration: these parameters are not of this method, got {self.method} with slope {self.slope}, "
                f"intercept {self.intercept}, parameters {sorted(self.parameters)}; fit it again"
            )
        _ = self.map  # refuses numbers that are no map of this method
        if not (self.positive_rate is None or (finite(self.positive_rate) and 0 <= self.positive_rate <= 1)):
            raise CalibrationError(
                f"calibration: positive_rate must lie in [0, 1], got {self.positive_rate!r}; fit it again"
            )
        _ = self.offset  # refuses a prior that cannot be corrected to

    @cached_property
    def map(self) -> Calibrator:
        """From margins to log-odds, before groups and prior. `venn_abers` also has `map.pair(margins)`."""
        calibrator = calibrator_named(self.method)
        if issubclass(calibrator, Affine):
            return calibrator(self.slope, self.intercept)  # type: ignore[arg-type]  # None is refused there
        return calibrator.from_dict(self.parameters)

    @cached_property
    def offset(self) -> float:
        """What is added to every log-odds: logit(prior) - logit(positive_rate), 0 without a prior."""
        return 0.0 if self.prior is None else prior_offset(self.positive_rate, self.prior)

    def logits(self, margins: ArrayLike, keys: ArrayLike | None = None) -> Floats:
        """Calibrated log-odds, same shape as `margins`: what a log-loss should be computed from.

        Finite for every finite margin. NaN (a failed row) stays NaN.

        Args:
            margins: of any shape.
            keys: what `group_keys` gives for the rows, of that shape; None takes the overall map for every row.
        """
        logits = self.map.apply(margins)
        if self.by_group is not None and keys is not None:
            logits = self.by_group.apply(logits, keys)
        return logits + self.offset

    def predict(self, margins: ArrayLike, keys: ArrayLike | None = None) -> Floats:
        """Calibrated P(supported), same shape as `margins`; arguments and NaN as `logits`."""
        return sigmoid(self.logits(margins, keys))

    def group_keys(self, rows: Iterable[Any]) -> list[str] | None:
        """The value of each row (a pair or prediction) that tells its correction; None without corrections."""
        return None if self.by_group is None else [getattr(row, self.by_group.key) for row in rows]

    def with_prior(self, prior: float | None) -> Calibration:
        """The same calibration stated for another positive rate (Elkan, 2001); None goes back to the rate of the fit.

        Holds where only the share of supported rows differs, not what supported and other rows look like.

        Raises:
            CalibrationError: a rate outside (0, 1), or a calibration that does not know the rate of its fit.
        """
        return dataclasses.replace(self, prior=prior)

    def describe(self) -> str:
        """One line for a report: method, formula, corrections, prior."""
        parts = [f"{self.method}: {self.map.formula()}"]
        if self.by_group is not None:
            parts.append(f"corrected for {len(self.by_group.corrections)} values of {self.by_group.key}")
        if self.prior is not None:
            parts.append(f"shifted from positive rate {self.positive_rate:.4g} to {self.prior:.4g}")
        return "; ".join(parts)

    def cautions(self) -> list[str]:
        """Every reason to doubt these probabilities that the calibration itself knows, as sentences."""
        reasons, fewest = [], self.map.fewest_rows
        if self.at_bound:
            reasons.append("The slope is at its bound: these rows cannot tell how sure the verifier may be.")
        if self.n < fewest:
            reasons.append(f"{self.method} was fitted on {self.n} rows; below {fewest} it follows noise.")
        return reasons

    def to_dict(self) -> dict[str, Any]:
        """JSON values; `from_dict` gives an equal calibration back, bit for bit. What does not apply is left out."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["by_group"] = None if self.by_group is None else self.by_group.to_dict()
        optional = {"slope", "intercept", "parameters", "aggregation", "prior", "by_group"}
        return {name: value for name, value in values.items() if name not in optional or value not in (None, {})}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = CALIBRATION_FILE) -> Calibration:
        """The calibration a dict describes; `CalibrationError` on unknown or missing keys or an unknown method."""
        known = {f.name for f in dataclasses.fields(cls)}
        check_keys(values, known, {"method", "n", "n_groups", "positive_rate"}, where)
        try:
            affine = issubclass(calibrator_named(values["method"]), Affine)
        except CalibrationError as error:
            raise CalibrationError(f"{where}: {error}") from None
        check_keys(values, known, {"slope", "intercept"} if affine else {"parameters"}, where)
        stored = {"slope": None, "intercept": None, **values}
        if stored.get("by_group") is not None:
            stored["by_group"] = GroupCorrections.from_dict(stored["by_group"], f"{where}: by_group")
        try:
            return cls(**stored)
        except CalibrationError as error:
            raise CalibrationError(f"{where}: {error}") from None


def calibration_of(fitted: Calibrator, **about: Any) -> Calibration:
    """A calibration around a fitted map; `about` are its other attributes."""
    if isinstance(fitted, Affine):
        return Calibration(fitted.name, fitted.slope, fitted.intercept, **about)
    return Calibration(fitted.name, None, None, parameters=fitted.to_dict(), **about)


def prior_offset(positive_rate: float | None, prior: float) -> float:
    """logit(prior) - logit(positive_rate): what a change of the positive rate adds to every log-odds (Elkan, 2001).

    Raises:
        CalibrationError: a rate that is not inside (0, 1).
    """
    for name, rate in (("the rate of the fit", positive_rate), ("the prior", prior)):
        if not (finite(rate) and 0 < rate < 1):  # type: ignore[operator]  # finite refuses None
            raise CalibrationError(f"prior shift: {name} must lie inside (0, 1), got {rate!r}; state it as a share")
    return float(log_odds(prior) - log_odds(positive_rate))  # type: ignore[arg-type]


IDENTITY = Calibration(method="none", slope=1.0, intercept=0.0, n=0, n_groups=0, positive_rate=None)
