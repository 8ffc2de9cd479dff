"""The verdict on several pieces of evidence together, from verdicts on each piece and on all in one prompt.

A verifier that was trained on single segments has not learned to look for the one that matters among others: company
that has nothing to do with the claim makes it say no. By the rule `largest` a set supports a claim as much as the
surest of its pieces, or as all in one prompt where those are surer, so company cannot refute. `pieces` leaves the
prompt out: n questions about a claim with n pieces, not 2n + 1, for claims that one piece shows. `one_prompt` asks
about all at once, as MuRGAt does; it suits verifiers trained on rows of several pieces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core import CalibrationError, ConfigError
from ..decision import Verdict, by_p, finite, from_dict, sigmoid

SetRule = Literal["largest", "pieces", "one_prompt"]
SET_RULES: tuple[SetRule, ...] = get_args(SetRule)
UNFITTED = "p_supported is the calibration's answer to one piece; see SetCalibration"


@dataclass(frozen=True)
class SetCalibration:
    """p of a set of n > 1 pieces judged by the surest: sigmoid(slope * margin + intercept + per_log_n * log(n)).

    The largest of many margins is large by chance alone, the more the more pieces there are. Fitted by
    `proofreel.eval.calibration.fit_sets`, on sets apart from those that are judged.

    Attributes:
        slope, intercept, per_log_n: above.
        n: sets it was fitted on.
        sizes: the fewest and the most pieces of one of them.
        positive_rate: share of supported sets among them.
    """

    slope: float
    intercept: float
    per_log_n: float
    n: int
    sizes: tuple[int, int]
    positive_rate: float

    def __post_init__(self) -> None:
        """Refuse numbers that are no such map, or one that would reverse the ranking."""
        object.__setattr__(self, "sizes", tuple(self.sizes) if isinstance(self.sizes, (list, tuple)) else self.sizes)
        numbers = self.slope, self.intercept, self.per_log_n, self.positive_rate
        if not (all(finite(x) for x in numbers) and self.slope > 0 and 0 < self.positive_rate < 1):
            raise CalibrationError(
                "set calibration: needs finite numbers, a slope above 0 and a rate inside (0, 1), "
                f"got {numbers}; fit again"
            )
        counts = isinstance(self.sizes, tuple) and len(self.sizes) == 2 and all(isinstance(n, int) for n in self.sizes)
        if not (counts and 1 < self.sizes[0] <= self.sizes[1]):
            raise CalibrationError(f"set calibration: sizes must be two counts above 1, got {self.sizes!r}; fit again")

    def predict(self, margins: ArrayLike, sizes: ArrayLike) -> NDArray[np.float64]:
        """P(supported) of sets, from their margins and numbers of pieces, of one shape."""
        log_n = np.log(np.asarray(sizes, dtype=np.float64))
        return sigmoid(self.slope * np.asarray(margins, dtype=np.float64) + self.intercept + self.per_log_n * log_n)

    def to_dict(self) -> dict[str, Any]:
        """JSON values; `from_dict` gives an equal calibration back."""
        return dataclasses.asdict(self) | {"sizes": list(self.sizes)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "set calibration") -> SetCalibration:
        """The calibration a dict describes; `CalibrationError` on unknown or missing keys and on other values."""
        return from_dict(cls, values, where)


def check_sets(sets: SetRule, calibration: SetCalibration | None, prior: float | None = None) -> None:
    """`ConfigError` for what does not go together."""
    if sets not in SET_RULES:
        raise ConfigError(f"attribute: unknown rule for sets, got sets={sets!r}; use one of {list(SET_RULES)}")
    if calibration is not None and (sets == "one_prompt" or prior is not None):
        raise ConfigError(
            f"attribute: a set calibration is for the surest piece and the share it was fitted at, got sets={sets!r} "
            f"and prior={prior!r}; leave one of them out"
        )


def set_verdict(
    pieces: Sequence[Verdict],
    one_prompt: Verdict | None,
    sets: SetRule = "largest",
    calibration: SetCalibration | None = None,
) -> Verdict:
    """The verdict on a set of evidence.

    Args:
        pieces: on each piece alone.
        one_prompt: on all of them in one prompt; None by the rule `pieces`. Where it alone failed (too long, say), the
            pieces decide.
        sets: the rule.
        calibration: of the probability; the label is that of the surest piece, by the operating point.
    """
    if len(pieces) == 1:
        return pieces[0]
    if sets == "one_prompt":
        assert one_prompt is not None
        return one_prompt
    if broken := next((each for each in pieces if each.error is not None), None):
        return broken
    known = [each for each in (*pieces, one_prompt) if each is not None and each.error is None]
    largest = sorted(known, key=by_p)[0]
    p, notes = largest.p_supported, [f"the surest of {len(pieces)} pieces"]
    if one_prompt is not None and one_prompt.error is not None:
        notes.append(f"in one prompt they could not be judged: {one_prompt.error}")
    if calibration is None:
        notes.append(UNFITTED)
    else:
        p = float(calibration.predict(largest.margin, len(pieces)))
        low, high = calibration.sizes
        notes += [] if low <= len(pieces) <= high else [f"sets of {low} to {high} pieces were calibrated"]
    return dataclasses.replace(largest, p_supported=p, note="; ".join([*notes, *filter(None, [largest.note])]))


def contradiction(pieces: Sequence[Verdict], one_prompt: Verdict | None) -> str | None:
    """What the pieces say and all in one prompt deny, or the other way round; None where they agree."""
    if len(pieces) < 2 or one_prompt is None or one_prompt.label is None or any(each.label is None for each in pieces):
        return None
    alone = [place for place, each in enumerate(pieces, start=1) if each.label == "supported"]
    said = f"all {len(pieces)} in one prompt (p = {one_prompt.p_supported:.3f})"
    if alone and one_prompt.label != "supported":
        which = ", ".join(f"{place} (p = {pieces[place - 1].p_supported:.3f})" for place in alone)
        return f"alone, evidence {which} supports the claim; {said} does not"
    if not alone and one_prompt.label == "supported":
        surest = max(each.p_supported for each in pieces)
        return f"{said} supports the claim; no piece alone does (p = {surest:.3f} at most)"
    return None
