"""How a metric of responses correlates with people's scores (MuRGAt, section 4.5, tables 4 and 12), with intervals.

Pearson's r, Spearman's rho and Kendall's tau-b over responses, by SciPy; 95 % intervals resample whole groups (videos).
A draw is a weighting of responses, so the three are computed for all draws at once; tests hold this against SciPy on
repeated rows. Shape suffixes: _N responses, _D draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core import RowError
from ...data_prep.importers import Rejected, missing_columns, tables
from ..scores import correlations
from ..uncertainty import N_DRAWS, Interval, interval_of, resample
from .scores import MURGAT_MEASURES, MurgatScores, MurgatSystemScores

Floats = NDArray[np.float64]
_DRAWS_AT_ONCE = 1000
_CONSTANT = 1e-9  # of the largest value: a spread below this is rounding


@dataclass(frozen=True)
class MetricCorrelations:
    """Correlation over `n` responses; NaN below two of them or where one side is constant.

    `intervals` have the names of the coefficients; `n_left_out` responses lack one of the two scores.
    """

    pearson: float
    spearman: float
    kendall: float
    n: int
    n_left_out: int
    intervals: Mapping[str, Interval]


def metric_correlations(
    metric: Mapping[str, float], human: MurgatSystemScores, n_draws: int = N_DRAWS, seed: int = 0
) -> dict[str, MetricCorrelations]:
    """Correlation of any metric with each of people's scores.

    Args:
        metric: by the id of the response; NaN or absent where there is none.
        human: scores from people's labels.
        n_draws, seed: resamples of groups.
    """
    found = {}
    for measure in MURGAT_MEASURES:
        rows = [(metric.get(one.response.id, math.nan), one) for one in human.responses]
        found[measure] = _over_responses(rows, measure, n_draws, seed)
    return found


def murgat_agreement(
    scored: MurgatSystemScores, human: MurgatSystemScores, n_draws: int = N_DRAWS, seed: int = 0
) -> dict[str, MetricCorrelations]:
    """Correlation of each score with the same score from people's labels.

    Responses in which either is undefined or rests on failed judgments are left out.
    """
    ours = {one.response.id: one.scores for one in scored.responses}
    found = {}
    for measure in MURGAT_MEASURES:
        rows = [(ours[one.response.id][measure].value, one) for one in human.responses if one.response.id in ours]
        found[measure] = _over_responses(rows, measure, n_draws, seed)
    return found


def _over_responses(
    rows: Sequence[tuple[float, MurgatScores]], measure: str, n_draws: int, seed: int
) -> MetricCorrelations:
    values = [(value, one.scores[measure].value, one.response.group) for value, one in rows]
    known = [row for row in values if not (math.isnan(row[0]) or math.isnan(row[1]))]
    x_N, y_N = (np.array([row[side] for row in known], dtype=np.float64) for side in (0, 1))
    at = correlations(x_N, y_N)
    estimates = {"pearson": at.pearson, "spearman": at.spearman, "kendall": at.kendall}
    intervals: dict[str, Interval] = {}
    if not math.isnan(at.pearson):
        drawn = resample(np.array([group for *_, group in known]), n_draws, seed)
        draws = correlations_of_draws(x_N, y_N, drawn.times_DG[:, drawn.group_of_row])
        for name, estimate in estimates.items():
            intervals[name] = interval_of(
                draws[name], estimate, n_groups=drawn.n_groups, largest_share=drawn.largest_share
            )
    return MetricCorrelations(**estimates, n=len(known), n_left_out=len(values) - len(known), intervals=intervals)


def correlations_of_draws(x: ArrayLike, y: ArrayLike, times: ArrayLike) -> dict[str, Floats]:
    """The three coefficients of rows (x, y) that are each taken so many times, shape (D,); NaN where undefined.

    Args:
        x, y: shape (N,).
        times: shape (D, N).
    """
    x_N, y_N, times_DN = (np.asarray(values, dtype=np.float64) for values in (x, y, times))
    pieces = [
        _coefficients(x_N, y_N, times_DN[start : start + _DRAWS_AT_ONCE])
        for start in range(0, len(times_DN), _DRAWS_AT_ONCE)
    ]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def _coefficients(x_N: Floats, y_N: Floats, times_DN: Floats) -> dict[str, Floats]:
    signs_x, signs_y = (np.sign(values[:, None] - values[None, :]) for values in (x_N, y_N))

    def of_pairs(signs_NN: Floats) -> Floats:
        return ((times_DN @ signs_NN) * times_DN).sum(1)

    with np.errstate(invalid="ignore", divide="ignore"):
        untied_D = np.sqrt(of_pairs(np.abs(signs_x)) * of_pairs(np.abs(signs_y)))
        kendall_D = np.where(untied_D > 0, of_pairs(signs_x * signs_y) / untied_D, np.nan)
    return {
        "pearson": _pearson(x_N, y_N, times_DN),
        "spearman": _pearson(_ranks(signs_x, times_DN), _ranks(signs_y, times_DN), times_DN),
        "kendall": kendall_D,
    }


def _ranks(signs_NN: Floats, times_DN: Floats) -> Floats:
    """(D, N) mean ranks among rows taken so many times; signs[i, j] = sign(x_i - x_j)."""
    return times_DN @ (signs_NN.T > 0) + (times_DN @ (signs_NN == 0) + 1) / 2


def _pearson(x: Floats, y: Floats, times_DN: Floats) -> Floats:
    total_D1 = times_DN.sum(1, keepdims=True)
    x_DN, y_DN = (values - (times_DN * values).sum(1, keepdims=True) / total_D1 for values in (x, y))
    squares = [(times_DN * values**2).sum(1) for values in (x_DN, y_DN)]
    varies_D = np.ones(len(times_DN), dtype=bool)
    for square_D, values in zip(squares, (x, y), strict=True):
        varies_D &= np.sqrt(square_D / total_D1[:, 0]) > _CONSTANT * max(1e-300, float(np.abs(values).max()))
    with np.errstate(invalid="ignore", divide="ignore"):
        r_D = (times_DN * x_DN * y_DN).sum(1) / np.sqrt(squares[0] * squares[1])
    return np.where(varies_D, r_D, np.nan)


def read_metrics(path: str | Path) -> dict[str, dict[str, float]]:
    """Metrics of responses from a table with a column `id` and one for each metric: by metric, by id.

    Raises:
        RowError: no table, no `id`, an id twice, or a value that is neither a number nor empty.
    """
    metrics: dict[str, dict[str, float]] = {}
    for table in tables(Path(path)):
        if isinstance(table, Rejected):
            raise RowError(table.reason)
        missing, known = missing_columns(table, ["id"])
        if missing:
            raise RowError(f"{table.file}: a column is missing, got {sorted(known)} without 'id'; add it")
        names = sorted(known - {"id"})
        for record in table.records({"id", *names}):
            if isinstance(record, Rejected):
                raise RowError(f"{record.file}:{record.line}: {record.reason}")
            where, id = f"{record.file}:{record.line}", str(record.value.get("id") or "")
            for name in names:
                of_metric = metrics.setdefault(name, {})
                if not id or id in of_metric:
                    raise RowError(f"{where}: each response has one row and an id, got {id!r}; correct it")
                of_metric[id] = _number(record.value.get(name), f"{where}: {name}")
    if not metrics:
        raise RowError(f"{path}: no metrics, got no column beside `id` or no row; add one")
    return metrics


def _number(value: object, where: str) -> float:
    if value is None or value == "":
        return math.nan
    try:
        return float(str(value))
    except ValueError:
        raise RowError(f"{where}: must be a number or empty, got {value!r}; correct it") from None
