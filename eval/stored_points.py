"""What a calibration's stored thresholds do on the rows of a report, beside what they did where they were chosen.

The stored numbers are those of the calibration rows the threshold was chosen on, so they flatter; the found ones are
what to expect. The same for the abstention band, and for the share of supported claims that the verdicts estimate.
"""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import numpy as np

from ..core.errors import CalibrationError
from ..models.bands import AbstainBand
from ..models.decisions import Decision, OperatingPoint
from .abstention import selective_counts
from .bootstrap import Interval, Resamples, interval_of, resample
from .checks import Floats, divide
from .counts import Confusion, Confusions, called_rate, confusion, f1, precision, recall, specificity
from .measuring import Scored
from .objectives import goal_of, objective_value
from .proportions import Proportion, corrected_rows, soft_proportion
from .risk_control import Risk, group_risk
from .thresholds import outcomes

_STORED_DRAWS = 1_000
_BESIDE = (f1, precision, recall, specificity, called_rate)  # what each point shows besides its objective


def points_found(scored: Scored, decision: Decision) -> list[dict[str, Any]]:
    """Every stored operating point applied to the rows.

    Returns:
        Per point: what is stored (`OperatingPoint.to_dict`) under `stored`; under `found` its objective's value
        (`metric`), F1, precision, recall, specificity, share called supported, counts and clustered `intervals`; and
        `is_default`. Where the point is risk-controlled, `metric` is the risk that was promised, without interval.
    """
    used = scored.used
    drawn = resample(used.groups, _STORED_DRAWS)
    return [
        {
            "name": point.name,
            "is_default": point.name == decision.default,
            "stored": point.to_dict(),
            "found": _found(used, point, drawn),
        }
        for point in decision.points
    ]


def band_found(scored: Scored, band: AbstainBand | None) -> dict[str, Any] | None:
    """The abstention band applied to the rows: counts per state, coverage and selective accuracy with intervals."""
    if band is None:
        return None
    used = scored.used
    counts = selective_counts(band, used.p, used.labels)
    n_right, n_decided = counts["tp"] + counts["tn"], sum(counts[name] for name in ("tp", "fp", "tn", "fn"))
    state = band.decide(used.p)
    is_decided = state != "abstain"
    is_right = is_decided & ((state == "supported") == (used.labels == 1))
    drawn = resample(used.groups, _STORED_DRAWS)
    right_D, decided_D, n_D = drawn.sums(np.stack([is_right, is_decided, np.ones(len(used.p))], axis=1)).T
    found: dict[str, Any] = {
        "coverage": float(divide(n_decided, len(used.p))),
        "selective_accuracy": float(divide(n_right, n_decided)),
        **counts,
    }
    draws = {"coverage": divide(decided_D, n_D), "selective_accuracy": divide(right_D, decided_D)}
    found["intervals"] = {name: _interval(values, found[name], drawn) for name, values in draws.items()}
    stored = band.to_dict() | {"coverage": band.coverage, "selective_accuracy": band.selective_accuracy}
    return {"stored": stored, "found": found}


def proportions_found(scored: Scored, decision: Decision) -> list[dict[str, Any]]:
    """The share of supported claims: counted, corrected for the verifier's errors, and from probabilities.

    One entry for the labelled rows, which know their true share, and one for the others, if there are any.
    """
    unlabelled = scored.take(~np.isnan(scored.margins) & np.isnan(scored.labels))
    samples = [("labelled rows", scored.used), ("unlabelled rows", unlabelled)]
    return [_shares(name, sample, decision) for name, sample in samples if len(sample.p)]


def _found(used: Scored, point: OperatingPoint, drawn: Resamples) -> dict[str, Any]:
    said = point.decide(used.p)
    counts = confusion(said, used.labels)
    cells = outcomes(said, used.labels)
    drawn_counts = Confusions(*drawn.sums(cells).T)
    values: dict[str, tuple[float, Floats]] = {
        metric.__name__: (metric(counts), np.asarray(metric(drawn_counts))) for metric in _BESIDE
    }
    found: dict[str, Any] = {**counts._asdict()}
    if point.guarantee is None:
        values["metric"] = _objective(point, counts), objective_value(goal_of(point), drawn_counts)
    else:
        risk = cast(Risk, point.guarantee.risk)
        any_rows = len(used.p) > 0
        found["metric"] = group_risk(used.p, used.labels, used.groups, point.threshold, risk) if any_rows else np.nan
    found |= {name: value for name, (value, _) in values.items()}
    found["intervals"] = {name: _interval(draws, value, drawn) for name, (value, draws) in values.items()}
    return found


def _objective(point: OperatingPoint, counts: Confusion) -> float:
    return float(objective_value(goal_of(point), counts))


def _interval(draws: Floats, value: float, drawn: Resamples) -> dict[str, Any]:
    found: Interval = interval_of(draws, value, n_groups=drawn.n_groups, largest_share=drawn.largest_share)
    return dataclasses.asdict(found)


def _shares(name: str, sample: Scored, decision: Decision) -> dict[str, Any]:
    known = sample.labels[~np.isnan(sample.labels)]
    entry: dict[str, Any] = {
        "name": name,
        "n": len(sample.p),
        "n_groups": len(np.unique(sample.groups)),
        "true_share": float(divide(known.sum(), len(known))),
        "soft": dataclasses.asdict(soft_proportion(sample.p, sample.groups)),
        "corrected": [],
    }
    for point in decision.points:
        row: dict[str, Any] = {"point": point.name, "apparent": float(np.mean(point.decide(sample.p)))}
        try:
            estimate: Proportion = corrected_rows(sample.p, sample.groups, point)
            row |= dataclasses.asdict(estimate) | {"refused": None}
        except CalibrationError as error:  # no better than chance at this point
            row["refused"] = str(error)
        entry["corrected"].append(row)
    return entry
