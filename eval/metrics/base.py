"""What metrics are made of: `Metric`, the columns it reads, the resamples it is drawn over, and one check of both.

A `Metric` says everything a report, a card or a page of the docs needs to know about one number. `METRICS` in
`catalogue` lists them; to add one is to write its function and one line there.

Shape suffixes: _D draws, _G groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core import CalibrationError, RowError

Floats = NDArray[np.float64]
CELLS_AT_ONCE = 2_000_000  # counts turned to float64 at once: 16 MB
MIN_PER_CLASS = 2
T = TypeVar("T")


def checked(
    scores: ArrayLike, labels: ArrayLike, where: str = "metrics", *, probabilities: bool = False, to_fit: bool = False
) -> tuple[Floats, Floats]:
    """Scores and labels as float64 columns, shape (n,).

    Args:
        where: named by errors.
        probabilities: whether scores must lie within [0, 1]; log-odds are refused, never turned into probabilities.
        to_fit: whether something is fitted on them, which takes finite scores and `MIN_PER_CLASS` rows of either class.

    Raises:
        RowError: the lengths differ, a score is NaN or out of range, or a label is neither 0 nor 1.
        CalibrationError: the same, and too few rows, where something is to be fitted.
    """
    error = CalibrationError if to_fit else RowError
    scores, labels = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if scores.shape != labels.shape or scores.ndim != 1:
        raise error(
            f"{where}: scores and labels must be rows of one length, got shapes {scores.shape} and {labels.shape}; "
            "align them, a label per score"
        )
    bad = ~np.isfinite(scores) if to_fit else np.isnan(scores)
    if bad.any():
        wanted = "scores must be finite" if to_fit else "a failed row has no score"
        raise error(f"{where}: {wanted}, got {np.sum(bad)} that are not; leave failed rows out")
    if not ((labels == 0) | (labels == 1)).all():
        raise error(f"{where}: labels must be 0 or 1, got {np.unique(labels)[:5]}; leave unlabelled rows out")
    n_pos, n_neg = int(np.sum(labels == 1)), int(np.sum(labels == 0))
    if to_fit and min(n_pos, n_neg) < MIN_PER_CLASS:
        raise error(
            f"{where}: needs at least {MIN_PER_CLASS} supported and {MIN_PER_CLASS} other rows that were scored, "
            f"got {n_pos} and {n_neg}; label more rows, or see why scoring failed"
        )
    if probabilities and np.any((scores < 0) | (scores > 1)):
        raise error(
            f"{where}: p must be probabilities, got {scores.min()} to {scores.max()}; apply a sigmoid or calibration"
        )
    return scores, labels


@dataclass(frozen=True)
class MetricRows:
    """The columns that metrics read, checked; each array of shape (n,). `metric_rows` makes them.

    Attributes:
        margins: log-odds before calibration: what AUC ranks by.
        p_raw: sigmoid of the margins.
        log_odds: after calibration.
        p: calibrated P(supported): decisions (p >= threshold), Brier, ECE, and by default confidence.
        labels: 0 or 1.
        loss: log-loss of p in nats; infinite where p is 0 or 1 and wrong.
        confidence: what coverage ranks by.
        coverage: share of the rows at which accuracy is read.
    """

    margins: Floats
    p_raw: Floats
    log_odds: Floats
    p: Floats
    labels: Floats
    threshold: float
    loss: Floats
    confidence: Floats
    coverage: float

    @property
    def decisions(self) -> NDArray[np.bool_]:
        """True where a row is called supported, shape (n,)."""
        return self.p >= self.threshold

    @property
    def correct(self) -> Floats:
        """1 where the decision agrees with the label, 0 elsewhere, shape (n,)."""
        return (self.decisions == (self.labels == 1)).astype(np.float64)

    @property
    def loss_raw(self) -> Floats:
        """Log-loss of the margins, in nats, shape (n,)."""
        return np.logaddexp(0, np.where(self.labels == 1, -self.margins, self.margins))


@dataclass(frozen=True)
class Resamples:
    """How often each draw takes each group.

    Attributes:
        group_of_row: number of each row's group, shape (n,).
        times_DG: counts, shape (draws, groups); whole numbers, stored as float32, or uint8 where they are very many.
    """

    group_of_row: NDArray[np.int64]
    times_DG: NDArray[np.float32] | NDArray[np.uint8]

    @property
    def n_draws(self) -> int:
        return self.times_DG.shape[0]

    @property
    def n_groups(self) -> int:
        return self.times_DG.shape[1]

    @property
    def largest_share(self) -> float | None:
        """Part of the rows that the largest group holds; None without rows."""
        n = len(self.group_of_row)
        return float(np.max(np.bincount(self.group_of_row)) / n) if n else None

    def sums(self, per_row: ArrayLike) -> Floats:
        """Sums over the rows of each draw, a row counting as often as its group was taken.

        Args:
            per_row: shape (n,) or (n, k), no NaN.

        Returns:
            Shape (draws,) or (draws, k).
        """
        return self.over_groups(self.by_group(per_row))

    def over_groups(self, per_group: Floats) -> Floats:
        """Sums over the groups of each draw: shape (groups,) or (groups, k) in, (draws,) or (draws, k) out."""
        return np.concatenate([times @ per_group for times in self.blocks()])

    def observed(self, per_row: ArrayLike) -> Floats:
        """Sums over the rows as they are: a scalar array or shape (k,)."""
        return self.by_group(per_row).sum(axis=0)

    def by_group(self, per_row: ArrayLike) -> Floats:
        """Sums over the rows of each group, shape (groups,) or (groups, k)."""
        values = np.asarray(per_row, dtype=np.float64)
        if values.ndim not in (1, 2) or len(values) != len(self.group_of_row):
            raise RowError(
                f"bootstrap: one value (or row of values) per row is summed, got shape {values.shape} for "
                f"{len(self.group_of_row)} rows; give each row its own"
            )
        if np.isnan(values).any():
            raise RowError(f"bootstrap: NaN cannot be summed, got {np.isnan(values).sum()}; leave failed rows out")
        sums = np.zeros((self.n_groups, *values.shape[1:]))
        if values.ndim == 1:
            return np.bincount(self.group_of_row, values, minlength=self.n_groups).astype(np.float64)
        for column in range(values.shape[1]):
            sums[:, column] = np.bincount(self.group_of_row, values[:, column], minlength=self.n_groups)
        return sums

    def blocks(self) -> Iterator[Floats]:
        """The counts a few draws at a time, float64, shape (some draws, groups): whole they might not fit in memory."""
        at_once = max(1, CELLS_AT_ONCE // max(1, self.n_groups))
        for start in range(0, max(1, self.n_draws), at_once):
            yield self.times_DG[start : start + at_once].astype(np.float64)


@dataclass(frozen=True)
class DrawnRows:
    """Rows in many resamples of their groups; what several metrics need of them is computed once."""

    rows: MetricRows
    resamples: Resamples
    _known: dict[Callable[[DrawnRows], Any], Any] = field(default_factory=dict, repr=False)

    def once(self, function: Callable[[DrawnRows], T]) -> T:
        """The function of these rows, computed the first time only."""
        if function not in self._known:
            self._known[function] = function(self)
        return self._known[function]


class BinGaps(NamedTuple):
    """What the equal-width ECE is a sum over: of each bin, the sum of hits - p over the number of rows.

    found_K are those of the rows, drawn_DK of each draw, share_K the part of the rows in each bin.
    """

    found_K: Floats
    drawn_DK: Floats
    share_K: Floats


@dataclass(frozen=True)
class Hub:
    """How a model card shows a metric.

    Attributes:
        type: the identifier that model hubs know it by.
        name: how the card calls it.
        place: among the card's metrics, lowest first; those of one place stand in the order of `METRICS`.
    """

    type: str
    name: str
    place: int = 100


@dataclass(frozen=True)
class Metric:
    """A number about one verifier: what it means, its value, and where it is shown.

    Attributes:
        name: its name in the table of every number, in metrics.json and for its interval.
        definition: one sentence.
        value: of rows; NaN where undefined.
        draws: in each of many resamples, shape (draws,); without them it has no interval.
        gaps: of a binned calibration error: its bins in each of many resamples, for the interval that it needs.
        label: its line in the table of every number; not a line of its own where empty.
        setting: said after the label there, where one metric is shown at several settings.
        column: its heading in the tables of verifiers, controls and parts; no column where empty.
        chance_column: heading of the column with its noise floor; none where empty.
        format: how it is printed.
        row_key: its key in the rows of those tables where it is not the name.
        before: the metric that is the same before calibration; none where empty.
        in_parts: whether rows of parts hold it too; they do where it has a column.
        is_headline: whether it has 10,000 draws, an interval in every table and a test against other verifiers.
        of_counts: of a metric of decisions: its function of confusion counts.
        share_of: which rows it is a share of, such as those called supported; all where None.
        statistic: of a calibration error: its function of (p, labels) and options, for its noise floor.
        hub: its place on a model card; none where None.
    """

    name: str
    definition: str
    value: Callable[[MetricRows], float]
    draws: Callable[[DrawnRows], Floats] | None = None
    gaps: Callable[[DrawnRows], BinGaps] | None = None
    label: str = ""
    setting: str = ""
    column: str = ""
    chance_column: str = ""
    format: str = ".3f"
    row_key: str = ""
    before: str = ""
    in_parts: bool = False
    is_headline: bool = False
    of_counts: Callable[..., Any] | None = None
    share_of: Callable[[MetricRows], NDArray[np.bool_]] | None = None
    statistic: tuple[Callable[..., float], dict[str, Any]] | None = None
    hub: Hub | None = None

    @property
    def key(self) -> str:
        """Its key in a row of a table."""
        return self.row_key or self.name

    @property
    def line(self) -> str:
        """Its label and setting."""
        return f"{self.label}, {self.setting}" if self.setting else self.label
