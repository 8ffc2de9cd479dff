"""What a cascade does with the margins of its stages: who is asked, who is sure, and one scale for all. NumPy only.

A stage answers where its own calibrated probability lies outside its band, and passes the row on where it lies inside,
or where it failed. Each stage has a calibration of its own, fitted on the rows that reach it. This is enough for the
whole to be calibrated: whether stage s answers is decided by its p_s alone, so that P(supported | p_s, answered by s) =
P(supported | p_s, reached s) = p_s, and a mixture of calibrated answers is calibrated. A single map over the raw
margins of all stages would have to give one number to equal margins of different networks.

The margin of a cascade is the calibrated log-odds of whoever answered, so that rows of different stages rank together.
The fitting half is `eval/cascades/fit.py`. Shape suffixes: _S stages, _N rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core import EVIDENCE_KINDS, CalibrationError, ConfigError, Evidence, evidence_kinds
from ..decision import AbstainBand, Calibration, Decision, check_keys, finite, from_dict, sigmoid

NOBODY = -1  # the stage of a row that not even the last one could judge

_KINDS = set(EVIDENCE_KINDS) - {"frames"}  # which are shown and hidden as a video


@dataclass(frozen=True)
class View:
    """What a stage is shown of the evidence.

    Attributes:
        kinds: only evidence of these kinds, such as ("transcript", "passage"); None: all. Rows without any go on to the
            next stage.
        max_frames: at most so many frames of each video, even; None: as many as the verifier looks at.
    """

    kinds: tuple[str, ...] | None = None
    max_frames: int | None = None

    def __post_init__(self) -> None:
        """Refuse kinds that there are not, and frames that do not come in pairs."""
        if self.kinds is not None and (not self.kinds or not set(self.kinds) <= _KINDS):
            raise ConfigError(f"view: kinds must be some of {sorted(_KINDS)}, got {self.kinds}; None shows all")
        n = self.max_frames
        if n is not None and (type(n) is not int or n < 2 or n % 2):
            raise ConfigError(f"view: max_frames must be even and at least 2, got {n!r}; None leaves the sampling")

    @classmethod
    def parse(cls, text: str) -> View:
        """A view as commands write it: `all`, `frames:2`, `kinds:transcript,passage`, or two of these with a + between.

        Raises:
            ConfigError: other words.
        """
        view = cls()
        for word in () if text == "all" else text.split("+"):
            name, _, value = word.partition(":")
            if name == "kinds" and value:
                view = dataclasses.replace(view, kinds=tuple(value.split(",")))
            elif name == "frames" and value.isdecimal():
                view = dataclasses.replace(view, max_frames=int(value))
            else:
                raise ConfigError(f"view: unknown, got {text!r}; write all, frames:2, kinds:transcript,passage or both")
        return view

    def of(self, evidence: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
        """The evidence of the kinds shown, in order; perhaps none."""
        if self.kinds is None:
            return evidence
        return tuple(e for e in evidence if set(evidence_kinds((e,))) <= set(self.kinds))

    def describe(self) -> str:
        """A few words for a report."""
        parts = [] if self.kinds is None else [f"{' and '.join(self.kinds)} only"]
        return ", ".join(parts + ([] if self.max_frames is None else [f"at most {self.max_frames} frames"])) or "all"


@dataclass(frozen=True)
class Band:
    """Where a stage is not sure: strictly between these two probabilities, of which the first is the lower."""

    refute_at_or_below: float
    support_at_or_above: float

    def __post_init__(self) -> None:
        """Refuse what is not two numbers in order."""
        low, high = self.refute_at_or_below, self.support_at_or_above
        if not (finite(low) and finite(high) and low < high):
            raise CalibrationError(
                f"band: must be two probabilities, the lower first, got {low!r}, {high!r}; swap them"
            )

    @classmethod
    def of(cls, band: Band | AbstainBand | tuple[float, float]) -> Band:
        """A band given in any of these ways; of a tuple, the lower probability first."""
        if isinstance(band, AbstainBand):
            return cls(band.refute_at_or_below, band.support_at_or_above)
        return band if isinstance(band, cls) else cls(*band)  # type: ignore[misc]

    @classmethod
    def at_risk(cls, risk: float) -> Band:
        """Sure where the chance of being wrong is at most `risk` (Chow, 1970); below 0, never."""
        return cls(risk, 1.0 - risk) if risk >= 0 else cls(-1.0, 2.0)

    def sure(self, p: ArrayLike) -> NDArray[np.bool_]:
        """True where p lies outside the band; False for NaN, a stage that failed."""
        p = np.asarray(p, dtype=np.float64)
        return (p <= self.refute_at_or_below) | (p >= self.support_at_or_above)


class Settled(NamedTuple):
    """Who answered each row (`NOBODY` where all that were asked failed), and the cascade's margins (NaN there)."""

    stage_N: NDArray[np.int64]
    margins_N: NDArray[np.float32]


@dataclass(frozen=True)
class CascadePlan:
    """All numbers of a cascade.

    Attributes:
        calibrations: one per stage.
        bands: one per stage but the last, which always answers.
        decision: over the cascade's margins, which are log-odds already: its calibration is the identity, and knows the
            positive rate of all rows, so that another prior shifts the answers of every stage alike. It changes no
            band: who is asked is the same under every prior, as it was when the stages were calibrated.
    """

    calibrations: tuple[Calibration, ...]
    bands: tuple[Band, ...]
    decision: Decision

    def __post_init__(self) -> None:
        """Refuse numbers that do not fit together."""
        if len(self.calibrations) != len(self.bands) + 1 or len(self.calibrations) < 2:
            raise CalibrationError(
                f"cascade: needs two stages or more and a band for each but the last, got {len(self.calibrations)} "
                f"calibrations and {len(self.bands)} bands; give one band less than stages"
            )
        if self.decision.calibration.method != "none":
            raise CalibrationError(
                f"cascade: its margins are calibrated already, got {self.decision.calibration.method} on top; fit it "
                "with eval/cascades/fit.py"
            )

    def margins(self, stage: int, margins: ArrayLike, rows: Sequence[Any] | None = None) -> NDArray[np.float32]:
        """The cascade's margins if this stage answered: its calibrated log-odds, (n,) float32; NaN stays NaN.

        Args:
            stage: from 0.
            margins: of the stage's verifier, (n,).
            rows: pairs or predictions, for a calibration with corrections; None takes the overall map.
        """
        calibration = self.calibrations[stage]
        keys = None if rows is None else calibration.group_keys(rows)
        return calibration.logits(np.asarray(margins, dtype=np.float32).astype(np.float64), keys).astype(np.float32)

    def answers(self, stage: int, margins: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Which rows end at this stage, by what `margins` gave."""
        if stage == len(self.bands):
            return ~np.isnan(margins)
        return self.bands[stage].sure(sigmoid(margins))

    def settle(self, margins_SN: ArrayLike, rows: Sequence[Any] | None = None) -> Settled:
        """What the cascade would have said, from what every stage said of every row; NaN where a stage failed."""
        given_SN = np.asarray(margins_SN, dtype=np.float32)
        stage_N = np.full(given_SN.shape[1], NOBODY)
        margins_N = np.full(given_SN.shape[1], np.nan, dtype=np.float32)
        for stage, given_N in enumerate(given_SN):
            own_N = self.margins(stage, given_N, rows)
            ends_N = (stage_N == NOBODY) & self.answers(stage, own_N)
            stage_N[ends_N], margins_N[ends_N] = stage, own_N[ends_N]
        return Settled(stage_N, margins_N)

    def to_dict(self) -> dict[str, Any]:
        """JSON values of bands and calibrations; the decision has files of its own."""
        return {
            "bands": [dataclasses.asdict(band) for band in self.bands],
            "calibrations": [calibration.to_dict() for calibration in self.calibrations],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], decision: Decision, where: str) -> CascadePlan:
        """The plan that `to_dict` wrote, bit for bit; `CalibrationError` on unknown or missing keys."""
        check_keys(values, {"bands", "calibrations"}, {"bands", "calibrations"}, where)
        for name in ("bands", "calibrations"):
            if not isinstance(values[name], list):
                raise CalibrationError(f"{where}: {name} must be a list, got {values[name]!r}; fit it again")
        bands = []
        for band in values["bands"]:
            keys = {f.name for f in dataclasses.fields(Band)}
            check_keys(band, keys, keys, f"{where}: bands")
            bands.append(from_dict(Band, band, f"{where}: bands"))
        return cls(tuple(Calibration.from_dict(c, where) for c in values["calibrations"]), tuple(bands), decision)


def reached(stage_N: NDArray[np.int64], stage: int) -> NDArray[np.bool_]:
    """Rows that a stage was asked about: those that no earlier one answered."""
    return (stage_N >= stage) | (stage_N == NOBODY)
