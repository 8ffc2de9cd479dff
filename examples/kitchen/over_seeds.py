"""Numbers over training seeds: the mean, each seed's own, and whether a difference of methods is decided.

Two intervals answer two questions. The one over clips: would other test clips give the same? Clips are drawn once and
every seed and method is judged on the same ones, so that differences are paired. The one over seeds: would other first
weights and orders of rows give the same? It is Student's t of the differences seed by seed. A difference is *undecided*
while either interval holds the value of no difference, and always with one seed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import t as student_t

from proofreel.data_prep.pipeline import versions
from proofreel.eval.metrics import METRICS, BinGaps, DrawnRows, MetricRows, Resamples, metric_rows
from proofreel.eval.scoring import Prediction, groups_of, labels_of, margins_of, read_predictions
from proofreel.eval.uncertainty import as_observed, error_difference, error_interval, interval_of, resample
from proofreel.models.decision import read_decision, sigmoid

NAMES = ("auc", "ap", "f1", "f1_macro", "balanced_accuracy", "ece_before", "ece_event")
UNDECIDED = "undecided"


@dataclass(frozen=True)
class Judged:
    """Metrics of one method on a test split, over its seeds.

    Attributes:
        of_seeds: by metric, the value of each seed.
        drawn: by metric, the mean over the seeds in each draw of clips, shape (draws,).
        gaps: of each calibration error, the bins of all seeds; its interval is the report's.
        n_groups: clips and videos that were drawn from.
    """

    of_seeds: dict[str, list[float]]
    drawn: dict[str, np.ndarray]
    gaps: dict[str, BinGaps]
    n_groups: int

    @property
    def observed(self) -> dict[str, float]:
        """By metric, the mean over the seeds."""
        return {name: statistics.mean(values) for name, values in self.of_seeds.items()}


@dataclass(frozen=True)
class Difference:
    """One method against another, seed by seed.

    Attributes:
        of_seeds: the difference (or ratio) of each seed.
        clips: interval over test clips.
        seeds: interval over training seeds; infinite with one.
        null: the value of no difference.
    """

    value: float
    of_seeds: list[float]
    clips: tuple[float, float]
    seeds: tuple[float, float]
    null: float = 0.0

    @property
    def decided(self) -> bool:
        """Whether both intervals lie on one side of no difference."""
        return all(low > self.null or high < self.null for low, high in (self.clips, self.seeds))

    def __str__(self) -> str:
        sign = "+" if self.null == 0 else ""
        clips, seeds = (f"{low:{sign}.3f} to {high:{sign}.3f}" for low, high in (self.clips, self.seeds))
        text = f"{self.value:{sign}.3f} (clips {clips}; seeds {seeds if len(self.of_seeds) > 1 else 'one alone'})"
        return text if self.decided else f"{text}, {UNDECIDED}"


def judge(seeds: Sequence[Sequence[Prediction]], n_draws: int, decisions: Sequence[Path] = ()) -> Judged:
    """Metrics of one method.

    Args:
        seeds: of each seed, what it says of the same test rows (`rows_of`).
        decisions: of each seed, the folder of its calibration and threshold; empty: sigmoid and 0.5.
    """
    scored = [metrics_of(rows, folder) for rows, folder in zip(seeds, decisions or [None] * len(seeds), strict=True)]
    drawn = resample(groups_of(seeds[0]), n_draws)
    observed = [_values(rows, DrawnRows(rows, as_observed(drawn))) for rows in scored]
    draws = [_values(rows, DrawnRows(rows, drawn)) for rows in scored]
    return Judged(
        {name: [float(values[name][0]) for values in observed] for name in NAMES},
        {name: np.mean([values[name] for values in draws], axis=0) for name in NAMES},
        {name: _mean_gaps(of, scored, drawn) for name in NAMES if (of := METRICS[name].gaps) is not None},
        drawn.n_groups,
    )


def _mean_gaps(gaps: Callable[[DrawnRows], BinGaps], scored: Sequence[MetricRows], drawn: Resamples) -> BinGaps:
    """The bins of every seed side by side, each its part: their sum of |gaps| is the mean error over seeds."""
    found, draws, share = zip(*(gaps(DrawnRows(rows, drawn)) for rows in scored), strict=True)
    return BinGaps(*(np.concatenate(of, axis=-1) / len(scored) for of in (found, draws, share)))


def judge_folders(folders: Sequence[Path], n_draws: int) -> Judged:
    """Metrics of one method from the folders of its seeds, each with `test.parquet` and `calibrated`."""
    rows = [rows_of(folder / "test.parquet") for folder in folders]
    return judge(rows, n_draws, [folder / "calibrated" for folder in folders])


def rows_of(path: Path) -> list[Prediction]:
    """The judged rows of a file in the order of their ids, so that seeds and methods can be paired."""
    return sorted((p for p in read_predictions(path)[0] if p.label is not None), key=lambda p: p.pair_id)


def metrics_of(rows: Sequence[Prediction], decision: Path | None = None) -> MetricRows:
    """What metrics read of predictions; a row that failed is NaN, and refused: it is no comparison."""
    margins, labels = margins_of(rows), labels_of(rows)
    if decision is None:
        return metric_rows(margins, sigmoid(margins), labels, 0.5)
    read = read_decision(decision)
    return metric_rows(margins, read.calibration.predict(margins), labels, read.point().threshold)


def _values(rows: MetricRows, drawn: DrawnRows) -> dict[str, np.ndarray]:
    return {name: draws(drawn) for name in NAMES if (draws := METRICS[name].draws) is not None}


def compare(
    first: Judged, second: Judged, name: str = "auc", by: Callable[..., np.ndarray] = np.subtract, null: float = 0.0
) -> Difference:
    """The first method's metric minus the second's of the same seeds; over the second's, `by` np.divide with null 1."""
    of_seeds = [float(by(one, other)) for one, other in zip(first.of_seeds[name], second.of_seeds[name], strict=True)]
    value = float(by(first.observed[name], second.observed[name]))
    if name in first.gaps and by is np.subtract:
        found = error_difference(first.gaps[name], second.gaps[name], first.n_groups)
    else:
        found = interval_of(by(first.drawn[name], second.drawn[name]), value, n_groups=first.n_groups)
    return Difference(value, of_seeds, (found.low, found.high), seed_interval(of_seeds), null)


def seed_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Student's t interval of the mean of what each seed gives; everything is possible with one seed."""
    if len(values) < 2:
        return -math.inf, math.inf
    mean, error = statistics.mean(values), statistics.stdev(values) / math.sqrt(len(values))
    reach = float(student_t.ppf((1 + level) / 2, len(values) - 1)) * error
    return mean - reach, mean + reach


def mean_text(judged: Judged, name: str) -> str:
    """The mean over seeds with its interval over clips: `0.983 (0.980 to 0.986)`."""
    value = judged.observed[name]
    if name in judged.gaps:
        found = error_interval(judged.gaps[name], judged.n_groups)
    else:
        found = interval_of(judged.drawn[name], value, n_groups=judged.n_groups)
    return f"{value:.3f} ({found.low:.3f} to {found.high:.3f})"


def error_text(judged: Judged, name: str) -> str:
    """A calibration error's mean over seeds and each seed's own: resampled, it is larger than it is."""
    return f"{judged.observed[name]:.3f} ({seeds_text(judged.of_seeds[name])})"


def range_text(values: Sequence[float]) -> str:
    """The lowest and the highest of the seeds."""
    return f"{min(values):.3f} to {max(values):.3f}"


def seeds_text(values: Sequence[float], sign: str = "") -> str:
    """Each seed's own."""
    return ", ".join(f"{value:{sign}.3f}" for value in values)


def made_with(judged: Judged, n_draws: int, drawn: str = "resamples of clips") -> str:
    """The last line of a table: what was drawn from, and with which versions."""
    versions_text = ", ".join(f"{name} {number}" for name, number in versions().items())
    seeds = len(judged.of_seeds["auc"])
    return f"{seeds} training seeds, {judged.n_groups} test clips, {n_draws} {drawn}; {versions_text}"
