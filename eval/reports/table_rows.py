"""The rows of a report's tables: predictions with a calibration applied, measured whole and by part.

Metrics stand on rows that were scored and are labelled; failed and unlabelled rows are counted beside. Intervals
resample whole groups, 10,000 times for the headline metrics and 1,000 times for the rest. A part of the rows with too
few groups gets no interval rather than a wrong one.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from ...models.decision import Calibration, Decision, OperatingPoint, sigmoid
from ..metrics import (
    COVERAGE,
    METRICS,
    Floats,
    MetricRows,
    confidence_of,
    headline,
    metric_rows,
    probability_metrics,
)
from ..scoring import Prediction, groups_of, labels_of, margins_of
from ..uncertainty import (
    FEWEST_GROUPS,
    N_DRAWS,
    Interval,
    adjusted_p,
    delong,
    headline_intervals,
    headline_names,
    interval_of,
    intervals_of,
    resample,
    trust,
)

__all__ = ["FEWEST_GROUPS", "Scored", "apply_decision", "failures", "rows_by", "rows_by_size", "table_row"]

PART_DRAWS = 1_000
_SIZES = (1, 2, 5, 10, 20, 50)  # where classes of group size begin


@dataclass(frozen=True)
class Scored:
    """Predictions with a calibration applied: what every table and figure is computed from.

    Columns have shape (n,): margins, log-odds and probabilities are NaN where scoring failed, labels (1 or 0) without a
    label. `groups` are numbers; a row without a group has one of its own.
    """

    predictions: Sequence[Prediction]
    margins: Floats
    labels: Floats
    groups: NDArray[np.int64]
    p_raw: Floats
    logits: Floats
    p: Floats
    point: OperatingPoint
    calibration: Calibration

    @cached_property
    def is_used(self) -> NDArray[np.bool_]:
        """True where a row was scored and is labelled, shape (n,)."""
        return ~np.isnan(self.margins) & ~np.isnan(self.labels)

    @cached_property
    def used(self) -> Scored:
        """The rows that metrics stand on."""
        return self.take(self.is_used)

    @property
    def confidence(self) -> Floats:
        """How sure each verdict is: distance of p from the threshold, shape (n,)."""
        return confidence_of(self.p, self.point.threshold)

    def take(self, chosen: NDArray) -> Scored:
        """Some of the rows, by a mask or by numbers."""
        rows = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        columns = {name: getattr(self, name)[rows] for name in ("margins", "labels", "groups", "p_raw", "logits", "p")}
        return dataclasses.replace(self, predictions=[self.predictions[i] for i in rows.tolist()], **columns)


def apply_decision(predictions: Sequence[Prediction], decision: Decision) -> Scored:
    """Probabilities are recomputed from the margins, whatever the verifier that wrote them was calibrated with.

    Rows are corrected by role, modality or origin where the calibration does so.
    """
    margins, calibration = margins_of(predictions), decision.calibration
    logits = calibration.logits(margins, calibration.group_keys(predictions))
    return Scored(
        predictions=predictions,
        margins=margins,
        labels=labels_of(predictions),
        groups=np.unique(groups_of(predictions), return_inverse=True)[1].astype(np.int64),
        p_raw=sigmoid(margins),
        logits=logits,
        p=sigmoid(logits),
        point=decision.point(),
        calibration=calibration,
    )


def table_row(name: str, scored: Scored, n_draws: int = N_DRAWS, fewest_groups: int = 2) -> dict[str, Any]:
    """One row of a table.

    Args:
        n_draws: resamples behind each interval.
        fewest_groups: with fewer groups no interval is given.

    Returns:
        `metrics.headline`, log-losses, accuracy at coverage, the ECE a calibrated model would show
        (`ece_after_floor`, `ece_after_floor_high`), `intervals` by metric of `headline_names`
        (`auc_interval` is one of them), and `cautions`: why these should not be trusted.
    """
    used, threshold = scored.used, scored.point.threshold
    row: dict[str, Any] = {"name": name}
    row |= headline(scored.margins, scored.p, scored.labels, threshold, scored.logits, scored.groups) | {
        "coverage": COVERAGE
    }
    row["n_groups"] = len(np.unique(used.groups))
    if row["n_groups"] < max(fewest_groups, 2):
        none = dataclasses.replace(interval_of([], np.nan), n_groups=row["n_groups"])
        intervals: dict[str, Interval] = {name: none for name in headline_names()}
        row["cautions"] = trust(intervals["auc"]) if fewest_groups <= 2 else []
    else:
        columns = (used.margins, used.p, used.labels, used.groups, threshold)
        intervals = headline_intervals(*columns, n_draws=n_draws, log_odds=used.logits)
        row["cautions"] = cautions_of(intervals)
    return row | with_intervals(intervals)


def right(scored: Scored) -> Floats:
    """1 where the verdict at the threshold agrees with the label, 0 elsewhere, shape (n,)."""
    return (scored.point.decide(scored.p) == (scored.labels == 1)).astype(np.float64)


def with_intervals(intervals: dict[str, Interval]) -> dict[str, Any]:
    """Intervals as a row carries them."""
    stored = {name: dataclasses.asdict(interval) for name, interval in intervals.items()}
    return {"intervals": stored, "auc_interval": stored["auc"]}


def cautions_of(intervals: dict[str, Interval]) -> list[str]:
    """Why these intervals should not be trusted, each reason once, naming the metrics if not all share it.

    A metric that no resample defines, such as the AUC of one class, is a dash already and has none.
    """
    reasons: dict[str, list[str]] = {}
    intervals = {name: each for name, each in intervals.items() if each.n_undefined < each.n_draws or not each.n_draws}
    for name, interval in intervals.items():
        for reason in trust(interval):
            reasons.setdefault(reason, []).append(name)
    return [
        reason if len(names) == len(intervals) else f"{', '.join(map(_label, names))}: {reason[0].lower()}{reason[1:]}"
        for reason, names in reasons.items()
    ]


def _label(name: str) -> str:
    metric = METRICS.get(name)
    return name if metric is None else metric.column or metric.line


def rows_by(attribute: str, scored: Scored, n_draws: int = PART_DRAWS) -> list[dict[str, Any]]:
    """A table row per value of `role`, `origin` or `modality`, most frequent first, and one for rows without a value.

    Intervals where there are at least `FEWEST_GROUPS` groups.
    """
    names = [getattr(p, attribute) or f"(no {attribute})" for p in scored.predictions]
    order = [name for name, _ in sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))]
    return _parts(scored, np.array(names), order, n_draws)


def against_own_positives(predictions: Sequence[Prediction], n_draws: int = PART_DRAWS) -> list[dict[str, Any]]:
    """AUC of each origin's negatives against the supported rows of the same groups, most frequent origin first.

    Against the supported rows of all groups, an origin that only some groups have would be ranked by its groups.

    Returns:
        Per origin with negatives: `name`, `n` (negatives), `n_supported`, `n_groups`, `auc` by margin, and its
        clustered `interval`, which has no bounds with fewer than `FEWEST_GROUPS` groups.
    """
    margins, labels = margins_of(predictions), labels_of(predictions)
    groups = np.unique(groups_of(predictions), return_inverse=True)[1]
    origins = np.array([p.origin or "(no origin)" for p in predictions])
    is_used = ~np.isnan(margins) & ~np.isnan(labels)
    is_supported, is_other = is_used & (labels == 1), is_used & (labels == 0)
    counts = Counter(origins[is_other].tolist())
    rows = []
    for name in sorted(counts, key=lambda origin: (-counts[origin], origin)):
        is_negative = is_other & (origins == name)
        is_positive = is_supported & np.isin(groups, groups[is_negative])
        both = is_negative | is_positive
        columns = metric_rows(margins[both], sigmoid(margins[both]), labels[both], 0.5)
        drawn = resample(groups[both], n_draws)
        auc = METRICS["auc"]
        if drawn.n_groups < FEWEST_GROUPS:
            interval = dataclasses.replace(interval_of([], np.nan), n_groups=drawn.n_groups)
        else:
            interval = intervals_of([auc], columns, drawn)["auc"]
        row = {"name": name, "n": int(is_negative.sum()), "n_supported": int(is_positive.sum())}
        row |= {"n_groups": drawn.n_groups, "auc": auc.value(columns), "interval": dataclasses.asdict(interval)}
        rows.append(row)
    return rows


def rows_by_size(scored: Scored, n_draws: int = PART_DRAWS) -> list[dict[str, Any]]:
    """A table row per class of group size (rows of the group, failed ones included), small groups first."""
    size = np.bincount(scored.groups)[scored.groups] if len(scored.groups) else scored.groups
    number = np.searchsorted(_SIZES, size, side="right") - 1
    ends = [*(str(after - 1) for after in _SIZES[1:]), ""]
    names = [
        f"{low}+ rows" if not high else f"{low} row{'s' * (high != '1')}" if str(low) == high else f"{low}–{high} rows"
        for low, high in zip(_SIZES, ends, strict=True)
    ]
    sizes = [names[i] for i in np.unique(number)]
    return _parts(scored, np.array(names)[number], sizes, n_draws)


def worst_groups(scored: Scored, most: int = 10) -> list[dict[str, Any]]:
    """The groups with most errors beyond what the overall error rate would give on as many rows.

    `p_value` is the chance of so many errors in a group of that size if every row erred alike and independently,
    `adjusted_p` the same for the number of groups (Benjamini and Hochberg): the worst of many groups looks bad by luck.
    Rows without a group are left out.
    """
    named = np.array([bool(p.group) for p in scored.predictions], dtype=bool)
    used = scored.take(scored.is_used & named)
    if not len(used.margins):
        return []
    _, first, group = np.unique(used.groups, return_index=True, return_inverse=True)
    n, wrong = np.bincount(group), np.bincount(group, 1 - right(used))
    rate = wrong.sum() / n.sum()
    p_values = np.asarray(binom.sf(wrong - 1, n, rate))
    adjusted, excess = adjusted_p(p_values), wrong - rate * n
    sums_p, sums_y = np.bincount(group, used.p), np.bincount(group, used.labels)
    order = np.lexsort((first, -excess))[:most].tolist()
    return [
        {
            "name": used.predictions[int(first[g])].group,
            "n": int(n[g]),
            "n_wrong": int(wrong[g]),
            "excess_errors": float(excess[g]),
            "accuracy": float(1 - wrong[g] / n[g]),
            "mean_p": float(sums_p[g] / n[g]),
            "positive_rate": float(sums_y[g] / n[g]),
            "p_value": float(p_values[g]),
            "adjusted_p": float(adjusted[g]),
        }
        for g in order
        if excess[g] > 0
    ]


def failures(predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
    """How many rows failed for each reason, most frequent first."""
    counts = Counter(p.error for p in predictions if p.error is not None)
    return [{"reason": reason, "n": n} for reason, n in counts.most_common()]


def _parts(scored: Scored, name_of_row: NDArray, names: Sequence[str], n_draws: int) -> list[dict[str, Any]]:
    return [table_row(name, scored.take(name_of_row == name), n_draws, FEWEST_GROUPS) for name in names]


REST_DRAWS = 1_000


def full_row(name: str, scored: Scored) -> dict[str, Any]:
    """`table_row` with every other number, and their intervals beside those of the headline.

    Adds the rest of `METRICS`, `probability_metrics` of the calibrated probabilities (with noise floors) and DeLong's
    interval of the AUC. `auc_after` differs from `auc` only where parts of the rows have corrections of their own.
    """
    used = scored.used
    row: dict[str, Any] = table_row(name, scored) | probability_metrics(used.p, used.labels, groups=used.groups)
    rows = _rows_of(used)
    row |= {name: metric.value(rows) for name, metric in METRICS.items() if name not in row}
    row["delong"] = dataclasses.asdict(delong(used.margins, used.labels, used.groups))
    rest = {name: dataclasses.asdict(interval) for name, interval in rest_intervals(used).items()}
    return row | {"intervals": rest | row["intervals"]}


def rest_intervals(used: Scored, n_draws: int = REST_DRAWS) -> dict[str, Interval]:
    """Intervals of the metrics that are not of the headline; none with fewer than two groups.

    Args:
        used: rows scored and labelled.
    """
    drawn = resample(used.groups, n_draws)
    if drawn.n_groups < 2:
        return {}
    return intervals_of([metric for metric in METRICS.values() if not metric.is_headline], _rows_of(used), drawn)


def _rows_of(used: Scored) -> MetricRows:
    return metric_rows(used.margins, used.p, used.labels, used.point.threshold, log_odds=used.logits)
