"""Verifiers side by side on the same pairs: each difference with its interval, a test that respects groups, and checks.

Rows are matched by pair_id; what only one file holds and what either failed on is counted, never guessed. Every
verifier decides at its own threshold, on probabilities of its own calibration.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from ...core import RowError
from ...models.decision import IDENTITY, Decision, OperatingPoint
from ..calibration import read_fitted_rows, read_measuring
from ..metrics import MetricRows, metric_rows
from ..scoring import Prediction, read_predictions, refuse_teacher_file
from ..uncertainty import (
    N_DRAWS,
    adjusted_p,
    as_observed,
    cluster_permutation,
    delong_difference,
    difference_intervals,
    error_p_values,
    headline_names,
    headline_values,
    matched,
    mcnemar,
    resample,
)
from .caveats import leaks, watermark
from .table_rows import Scored, apply_decision, cautions_of, right, table_row

UNCALIBRATED = Decision(
    IDENTITY, (OperatingPoint("half", "balanced_accuracy", 0.5, float("nan"), 0, 0, 0, 0, float("nan")),), "half"
)


@dataclass(frozen=True)
class Contender:
    """A verifier in a comparison: its predictions as scored by its own decision.

    Attributes:
        leaks: why its numbers are not those of unseen rows. watermark: as `cautions.watermark`.
        about: how its probabilities and verdicts came about.
    """

    name: str
    scored: Scored
    leaks: Sequence[str] = ()
    watermark: str = ""
    about: str = ""
    source: Mapping[str, Any] = field(default_factory=dict)


def contender(
    name: str,
    predictions: Sequence[Prediction],
    decision: Decision,
    fitted_rows: Mapping[str, Sequence[str]] | None = None,
    source: Mapping[str, Any] | None = None,
) -> Contender:
    """A verifier with its own calibration and default operating point; `UNCALIBRATED` where it has none."""
    calibration, point = decision.calibration, decision.point()
    if decision is UNCALIBRATED:
        about, reasons, mark = "not calibrated: p = sigmoid(margin), supported if p >= 0.5", [], ""
    else:
        about = f"{calibration.describe()}; supported if p >= {point.threshold:.4f} ({point.name})"
        reasons, mark = leaks(predictions, calibration, fitted_rows), watermark(predictions, calibration, fitted_rows)
    return Contender(name, apply_decision(predictions, decision), reasons, mark, about, dict(source or {}))


def read_contender(text: str) -> Contender:
    """`name=predictions.parquet[:calibration folder]` of a --compare option. Without a folder: sigmoid and 0.5.

    Raises:
        RowError: the text reads otherwise, or the file is missing or damaged. CalibrationError: the folder is.
    """
    name, separator, rest = text.partition("=")
    if not (name and separator and rest):
        raise RowError(f"--compare: must read name=path.parquet[:calibration], got {text!r}; for example 7b=7b.parquet")
    path, calibration = Path(rest), ""
    if not path.is_file() and ":" in rest:
        before, _, calibration = rest.rpartition(":")
        path = Path(before)
    predictions, source = read_predictions(path)
    if not calibration:
        return contender(name, predictions, UNCALIBRATED, source=source)
    refuse_teacher_file(path, source)
    return contender(name, predictions, read_measuring(calibration), read_fitted_rows(calibration), source)


def side_by_side(contenders: Sequence[Contender]) -> list[dict[str, Any]]:
    """A `table_row` per verifier, on the pairs that all of them hold."""
    shared = set.intersection(*({p.pair_id for p in c.scored.predictions} for c in contenders))
    rows = []
    for each in contenders:
        mask = np.array([p.pair_id in shared for p in each.scored.predictions], dtype=bool)
        row = table_row(each.name, each.scored.take(mask))
        rows.append(row | {"about": each.about, "watermark": each.watermark, "leaks": list(each.leaks)})
    return rows


def compare(contenders: Sequence[Contender], n_draws: int = N_DRAWS) -> dict[str, Any]:
    """Every pair of verifiers compared; p-values adjusted over all tests made (Benjamini and Hochberg).

    Raises:
        RowError: fewer than two, one name twice, or a pair whose label or group differs between the files.
    """
    names = [each.name for each in contenders]
    if len(names) < 2 or len(set(names)) != len(names):
        raise RowError(f"compare: needs two or more verifiers of different names, got {names}; name each once")
    pairs = [compare_pair(*two, n_draws=n_draws) for two in combinations(contenders, 2)]
    n_tests = adjust(pairs)
    return {"verifiers": side_by_side(contenders), "comparisons": pairs, "n_tests": n_tests}


def adjust(comparisons: Sequence[Mapping[str, Any]]) -> int:
    """Write `adjusted_p` into every metric of every comparison; returns the number of tests."""
    cells = [metric for each in comparisons for metric in each["metrics"].values()]
    adjusted = adjusted_p([cell["p_value"] for cell in cells])
    for cell, value in zip(cells, adjusted, strict=True):
        cell["adjusted_p"] = float(value)
    return int(np.sum(~np.isnan(adjusted)))


def compare_pair(first: Contender, second: Contender, n_draws: int = N_DRAWS) -> dict[str, Any]:
    """First minus second on the pairs both scored.

    Returns:
        Counts of rows matched and not; under `metrics` for each of `headline_names` both values, the
        `difference`, its clustered `interval` and the `p_value` of the cluster permutation test (NaN for accuracy at
        coverage, which has none; for a calibration error that of its interval); `mcnemar` on the verdicts and `delong`
        on the AUCs as checks; `cautions`.

    Raises:
        RowError: a pair whose label or group differs between the two.
    """
    both = matched(first.scored.predictions, second.scored.predictions)
    counts = ("n_only_first", "n_only_second", "n_failed", "n_unlabelled")
    row: dict[str, Any] = {"first": first.name, "second": second.name, "n": len(both.pair_ids)}
    row |= {name: getattr(both, name) for name in counts}
    row["n_groups"] = len(np.unique(both.groups))
    if not both.pair_ids:
        undefined = dict.fromkeys(("first", "second", "difference", "p_value", "adjusted_p"), float("nan"))
        nothing = {"mcnemar": None, "delong": None, "cautions": ["No pair was scored by both: nothing is compared."]}
        return row | {"metrics": {name: {**undefined, "interval": None} for name in headline_names()}, **nothing}
    one, other = (_rows_of(each.scored, both.pair_ids) for each in (first, second))
    row["metrics"], row["cautions"] = _differences(_headline(one), _headline(other), both.groups, n_draws)
    row["mcnemar"] = dataclasses.asdict(mcnemar(right(one) == 1, right(other) == 1))
    row["delong"] = dataclasses.asdict(delong_difference(one.margins, other.margins, both.labels, both.groups))
    return row


def _rows_of(scored: Scored, pair_ids: Sequence[str]) -> Scored:
    """These pairs, in this order."""
    at = {p.pair_id: i for i, p in enumerate(scored.predictions)}
    return scored.take(np.array([at[pair_id] for pair_id in pair_ids], dtype=np.int64))


def _headline(scored: Scored) -> MetricRows:
    return metric_rows(scored.margins, scored.p, scored.labels, scored.point.threshold, log_odds=scored.logits)


def _differences(
    first: MetricRows, second: MetricRows, groups: Any, n_draws: int
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    intervals = difference_intervals(first, second, groups, n_draws)
    tests = cluster_permutation(first, second, groups, n_draws)
    errors = error_p_values(first, second, groups, n_draws)
    as_is = as_observed(resample(groups, 0))
    values = [headline_values(rows, as_is) for rows in (first, second)]
    metrics = {}
    for name in headline_names():
        one, other = (float(of[name][0]) for of in values)
        test = None if name in errors else tests.get(name)
        metrics[name] = {
            "first": one,
            "second": other,
            "difference": one - other,
            "interval": dataclasses.asdict(intervals[name]),
            "p_value": errors[name] if name in errors else float("nan") if test is None else test.p_value,
            "n_tried": 0 if test is None else test.n_tried,
            "is_exact": None if test is None else test.is_exact,
            "adjusted_p": float("nan"),
        }
    return metrics, cautions_of(intervals)
