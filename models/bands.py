"""Three answers instead of two: supported above one threshold, refuted below another, no verdict between them.

The fitting half is `eval/decisions/abstention.py`. NumPy only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.errors import CalibrationError
from .bounds import StoredInterval, check_counts, with_nested, without_none
from .stored import finite, from_dict

State = Literal["supported", "refuted", "abstain"]
STATES: tuple[State, ...] = get_args(State)
BandObjective = Literal["selective_accuracy", "max_abstention"]
_COUNTS = ("tp", "fp", "tn", "fn", "abstained_positive", "abstained_negative")


@dataclass(frozen=True)
class AbstainBand:
    """Two thresholds on p_supported, and what they reached on the rows they were chosen on.

    Attributes:
        support_at_or_above: p at least this is `supported`; above 1, nothing is.
        refute_at_or_below: p at most this is `refuted`; below 0, nothing is. Strictly below the other threshold.
        objective: `selective_accuracy` (cover as much as possible at this accuracy or better) or `max_abstention`
            (be as accurate as possible, abstaining on no more than this share).
        target: that accuracy, or that share.
        tp, fp: supported verdicts that are right and wrong. tn, fn: refuted verdicts that are right and wrong.
        abstained_positive, abstained_negative: rows without a verdict, by label.
        selective_accuracy_interval, coverage_interval: clustered by group, for these thresholds held fixed.
    """

    support_at_or_above: float
    refute_at_or_below: float
    objective: BandObjective
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

    def __post_init__(self) -> None:
        """Refuse thresholds that are not numbers in order, and an unknown objective."""
        high, low = self.support_at_or_above, self.refute_at_or_below
        if not (finite(high) and finite(low) and low < high):
            raise CalibrationError(
                f"abstain band: must refute below where it supports, got support {high!r}, refute {low!r}; fit it again"
            )
        if self.objective not in get_args(BandObjective):
            raise CalibrationError(
                f"abstain band: unknown objective, got {self.objective!r}; use one of {list(get_args(BandObjective))}"
            )
        check_counts(self, (*_COUNTS, "n_groups"), "abstain band")

    @property
    def n(self) -> int:
        """Rows it was fitted on."""
        return sum(getattr(self, name) for name in _COUNTS)

    @property
    def n_decided(self) -> int:
        """Rows that got a verdict."""
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
    def state_counts(self) -> dict[State, tuple[int, int]]:
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
        nested: dict[str, type] = dict.fromkeys(("selective_accuracy_interval", "coverage_interval"), StoredInterval)
        return from_dict(cls, with_nested(values, nested, where), where)
