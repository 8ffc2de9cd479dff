"""Verdicts: what a verifier's decision makes of a margin: probability, label, three-state answer. NumPy only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...core import CalibrationError, Evidence, Frames, VideoSegment
from .calibration import IDENTITY, Calibration
from .thresholds import Decision, OperatingPoint, State

Route = Literal["whole", "windows", "sources"]


@dataclass(frozen=True)
class Verdict:
    """What a verifier says of one claim.

    Attributes:
        p_supported: calibrated probability; of an uncalibrated verifier, sigmoid of the margin. NaN on failure.
        margin: log-odds of supported before calibration, float32. NaN on failure.
        label: by an operating point; None on failure and for a verifier without thresholds.
        error: why there is no verdict, else None.
        answer: by the abstain band; None on failure and where the verifier has no band.
        note: what was out of the ordinary, such as memory that ran out on the way; None nearly always.
        route: how the evidence was asked about (see `verifier/long_video.py`): `whole`, in `windows` or by `sources`.
        windows: of the other routes, what was said of each part, in order; also where the verdict failed.
    """

    p_supported: float
    margin: float
    label: Literal["supported", "not_supported"] | None
    error: str | None = None
    answer: State | None = None
    note: str | None = None
    route: Route = "whole"
    windows: tuple[JudgedWindow, ...] = ()


@dataclass(frozen=True)
class JudgedWindow:
    """A window of a video, or one of several videos, and what the verifier says of it alone."""

    segment: VideoSegment | Frames
    verdict: Verdict


@dataclass(frozen=True)
class Ranked:
    """One of several evidences for a claim: its place in the input, what it is, and what the verifier says of it."""

    index: int
    evidence: Evidence | tuple[Evidence, ...]
    verdict: Verdict


@dataclass(frozen=True)
class Judge:
    """A decision, applied at one of its operating points; `decision=None` is that of an uncalibrated verifier."""

    decision: Decision | None
    operating_point: str | None = None

    def __post_init__(self) -> None:
        """`CalibrationError` for an operating point that there is not."""
        if self.decision is not None:
            self.decision.point(self.operating_point)
        elif self.operating_point is not None:
            raise CalibrationError(
                f"operating point: an uncalibrated verifier has none, got {self.operating_point!r}; calibrate it first"
            )

    @property
    def point(self) -> OperatingPoint | None:
        """The operating point that labels; None for an uncalibrated verifier."""
        return None if self.decision is None else self.decision.point(self.operating_point)

    @property
    def calibration(self) -> Calibration:
        """The map from margins to probabilities; for an uncalibrated verifier the identity on log-odds."""
        return IDENTITY if self.decision is None else self.decision.calibration

    def verdict(self, margin: float, row: Any = None, note: str | None = None) -> Verdict:
        """The verdict on one margin.

        Args:
            margin: float32 log-odds.
            row: the pair it belongs to, where its column of the calibration's groups is known; None takes the overall
                map.
            note: goes into the verdict.
        """
        if math.isnan(margin):
            return failed("the network returned NaN; check dtype and weights", note)
        keys = None if row is None else self.calibration.group_keys([row])
        p = float(self.calibration.predict(np.full(1, margin, dtype=np.float64), keys)[0])
        if self.decision is None:
            return Verdict(p, margin, None, note=note)
        label = "supported" if self.decision.point(self.operating_point).decide(p) else "not_supported"
        band = self.decision.abstain
        answer: Any = None if band is None else str(band.decide(p))
        return Verdict(p, margin, label, answer=answer, note=note)


def failed(reason: str, note: str | None = None) -> Verdict:
    """No verdict, and why."""
    return Verdict(math.nan, math.nan, None, reason, note=note)


def by_p(verdict: Verdict) -> tuple[bool, float, float]:
    """Sort key: the most probable first, margins break the ties of a calibration with steps, failures last."""
    if verdict.error is not None:
        return True, 0.0, 0.0
    return False, -verdict.p_supported, -verdict.margin


def ranked(evidences: Sequence[tuple[Evidence, ...]], verdicts: Sequence[Verdict]) -> list[Ranked]:
    """Evidences with their verdicts, the most probable support first, failures last."""
    given = [Ranked(i, e[0] if len(e) == 1 else e, v) for i, (e, v) in enumerate(zip(evidences, verdicts, strict=True))]
    return sorted(given, key=lambda each: by_p(each.verdict))


def prior_notes(notes: tuple[str, ...], decision: Decision) -> tuple[str, ...]:
    """The notes with the sentence on the prior, and on what does not hold at it, made right for this decision."""
    calibration = decision.calibration
    kept = tuple(note for note in notes if not note.startswith(_PRIOR))
    cautious = (*decision.points, *([decision.abstain] if decision.abstain is not None else []))
    reasons = dict.fromkeys(each.caution for each in cautious if each.caution)
    cautions = tuple(f"{_PRIOR} where {reason}" for reason in reasons)
    if calibration.prior is None:
        return (*kept, *cautions)
    return (*kept, f"{_PRIOR} {calibration.prior:.4g}; fitted at {calibration.positive_rate:.4g}", *cautions)


_PRIOR = "p_supported is stated for a positive rate of"
