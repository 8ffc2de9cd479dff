"""Every number of a report as one dictionary of plain values: what metrics.json holds, from Python.

Among them is what stored thresholds and the stored abstention band do on the rows of the report. The stored numbers
beside are those of the calibration rows that the threshold was chosen on, so they flatter; those of the report's rows
are what to expect. The share of supported claims that the verdicts estimate is given likewise.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ...core import CalibrationError, RowError
from ...models.decision import AbstainBand, Decision, OperatingPoint, Risk
from ..decisions import (
    Proportion,
    corrected_rows,
    criterion_of,
    criterion_value,
    group_risk,
    outcomes,
    selective_counts,
    soft_proportion,
)
from ..metrics import (
    N_BINS,
    Confusion,
    Confusions,
    Floats,
    Resamples,
    always_yes,
    bin_index,
    confusion,
    divide,
    f1,
    precision,
    predicted_positive_rate,
    recall,
    reliability_bins,
    specificity,
)
from ..scoring import Prediction
from ..uncertainty import N_DRAWS, interval_of, resample, share_interval
from .caveats import leaks, remarks, watermark
from .compare import Contender, adjust, compare, compare_pair, contender
from .table_rows import (
    Scored,
    against_own_positives,
    failures,
    full_row,
    rows_by,
    rows_by_size,
    table_row,
    worst_groups,
)

_STORED_DRAWS = 1_000
_BESIDE = (f1, precision, recall, specificity, predicted_positive_rate)  # what each point shows besides its objective


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
            "found": _measured(used, point, drawn),
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
    measured: dict[str, Any] = {
        "coverage": float(divide(n_decided, len(used.p))),
        "selective_accuracy": float(divide(n_right, n_decided)),
        **counts,
    }
    draws = {"coverage": divide(decided_D, n_D), "selective_accuracy": divide(right_D, decided_D)}
    measured["intervals"] = {name: _interval(values, measured[name], drawn) for name, values in draws.items()}
    stored = band.to_dict() | {"coverage": band.coverage, "selective_accuracy": band.selective_accuracy}
    return {"stored": stored, "found": measured}


def proportions_found(scored: Scored, decision: Decision) -> list[dict[str, Any]]:
    """The share of supported claims: counted, corrected for the verifier's errors, and from probabilities.

    One entry for the labelled rows, which know their true share, and one for the others, if there are any.
    """
    unlabelled = scored.take(~np.isnan(scored.margins) & np.isnan(scored.labels))
    samples = [("labelled rows", scored.used), ("unlabelled rows", unlabelled)]
    return [_shares(name, sample, decision) for name, sample in samples if len(sample.p)]


def _measured(used: Scored, point: OperatingPoint, drawn: Resamples) -> dict[str, Any]:
    is_supported = point.decide(used.p)
    counts = confusion(is_supported, used.labels)
    cells = outcomes(is_supported, used.labels)
    drawn_counts = Confusions(*drawn.sums(cells).T)
    values: dict[str, tuple[float, Floats]] = {
        metric.__name__: (metric(counts), np.asarray(metric(drawn_counts))) for metric in _BESIDE
    }
    row: dict[str, Any] = {**counts._asdict()}
    if point.guarantee is None:
        values["metric"] = _objective(point, counts), criterion_value(criterion_of(point), drawn_counts)
    else:
        risk = cast(Risk, point.guarantee.risk)
        any_rows = len(used.p) > 0
        row["metric"] = group_risk(used.p, used.labels, used.groups, point.threshold, risk) if any_rows else np.nan
    row |= {name: value for name, (value, _) in values.items()}
    rests_on = {"precision": is_supported, "recall": used.labels == 1, "specificity": used.labels == 0}
    row["intervals"] = {
        name: _interval(draws, value, drawn, rests_on.get(name)) for name, (value, draws) in values.items()
    }
    return row


def _objective(point: OperatingPoint, counts: Confusion) -> float:
    return float(criterion_value(criterion_of(point), counts))


def _interval(
    draws: Floats, value: float, drawn: Resamples, rests_on: NDArray[np.bool_] | None = None
) -> dict[str, Any]:
    """The interval of a share of all rows, or of those that it rests on."""
    n_groups = drawn.n_groups if rests_on is None else len(np.unique(drawn.group_of_row[rests_on]))
    of = interval_of if rests_on is None else share_interval
    return dataclasses.asdict(of(draws, value, n_groups=n_groups, largest_share=drawn.largest_share))


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


OURS = "this verifier"
_BAND_DRAWS = 1_000


def measure(
    predictions: Sequence[Prediction],
    decision: Decision,
    *,
    source: Mapping[str, Any] | None = None,
    fitted_rows: Mapping[str, Sequence[str]] | None = None,
    controls: Sequence[tuple[str, Sequence[Prediction]]] = (),
    compared: Sequence[Contender] = (),
    title: str = "Proofreel report",
) -> dict[str, Any]:
    """Measure predictions at a decision's default operating point; no files are read or written.

    Args:
        predictions: the rows to report on, normally the test split.
        source: where they come from, as `read_predictions` gives it.
        fitted_rows: ids and groups the calibration was fitted on, see `fitted_rows.read_fitted_rows`; without them
            the numbers are marked as unchecked.
        controls: (name, predictions) of the same pairs under another condition, judged by the same decision.
        compared: other verifiers, see `comparing.contender`.

    Returns:
        JSON values but for NaN, which is an undefined number (`reporting.jsonable` makes it null). Keys: `headline`
        (a row with `intervals`), `controls`, `control_differences`, `by_role`, `by_origin`, `by_modality`,
        `by_group_size`, `worst_groups`, `reliability`, `thresholds`, `abstention`, `proportions`, `compare` (None
        without other verifiers), `failures`, `warnings`, `watermark`, `remarks`, `calibration`, `operating_point`,
        `source`, `title`, `judged` (what the rows are of), `negatives_by_origin` (`against_own_positives`),
        `always_supported` (the metrics of a verifier that calls every claim supported).

    Raises:
        RowError: a pair's label or group differs between compared files, or two verifiers have one name.
    """
    ours = contender(OURS, predictions, decision, fitted_rows, source)
    scored, first = ours.scored, full_row(OURS, ours.scored)
    judged = [contender(name, rows, decision, fitted_rows) for name, rows in controls]
    others = [table_row(each.name, each.scored) for each in judged]
    differences, refused = _control_differences(ours, judged)
    notes = remarks(first, others, ours.source, decision.calibration, differences)
    n_supported = int(np.sum(scored.used.labels))
    return {
        "title": title,
        "watermark": watermark(predictions, decision.calibration, fitted_rows),
        "warnings": leaks(predictions, decision.calibration, fitted_rows),
        "remarks": notes + refused,
        "headline": first,
        "controls": others,
        "control_differences": differences,
        "judged": _judged(scored.used),
        "always_supported": always_yes(n_supported, first["n"] - n_supported),
        "negatives_by_origin": against_own_positives(predictions),
        "by_role": rows_by("role", scored),
        "by_origin": rows_by("origin", scored),
        "by_modality": rows_by("modality", scored),
        "by_group_size": rows_by_size(scored),
        "worst_groups": worst_groups(scored),
        "reliability": {"before": _reliability(scored, "p_raw"), "after": _reliability(scored, "p")},
        "thresholds": points_found(scored, decision),
        "abstention": band_found(scored, decision.abstain),
        "proportions": proportions_found(scored, decision),
        "compare": compare([ours, *compared]) if compared else None,
        "failures": failures(predictions),
        "calibration": decision.calibration.to_dict(),
        "operating_point": decision.point().to_dict(),
        "source": dict(source or {}),
    }


def _judged(used: Scored) -> dict[str, Any]:
    """What the measured rows are of: number, groups, splits, and different files or texts by kind of evidence."""
    pieces: set[tuple[str, str]] = set()
    for stored in {p.evidence for p in used.predictions}:
        try:
            pieces |= {(each["kind"], each.get("path") or each["text"]) for each in json.loads(stored or "[]")}
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # evidence that cannot be read is named where the row is shown
    return {
        "n": len(used.predictions),
        "n_groups": len(np.unique(used.groups)),
        "splits": sorted({p.split for p in used.predictions if p.split}),
        "evidence": dict(sorted(Counter(kind for kind, _ in pieces).items())),
    }


def _control_differences(ours: Contender, controls: Sequence[Contender]) -> tuple[list[dict[str, Any]], list[str]]:
    """This verifier minus each control on the pairs both hold; and why a control cannot be held against it."""
    differences, refused = [], []
    for control in controls:
        try:
            differences.append(compare_pair(ours, control, N_DRAWS))
        except RowError as error:
            refused.append(f"Control {control.name} is not of the same pairs: {error}")
    adjust(differences)
    return differences, refused


def _reliability(scored: Scored, column: str) -> list[dict[str, Any]]:
    """The bins of the reliability diagram that hold rows, each with a clustered interval of its share supported."""
    used = scored.used
    p: Floats = getattr(used, column)
    bins = reliability_bins(p, used.labels)
    drawn = resample(used.groups, _BAND_DRAWS)
    place = np.arange(N_BINS) == bin_index(p)[:, None]
    share = divide(drawn.sums(place * used.labels[:, None]), drawn.sums(place))
    rows = []
    for b in np.flatnonzero(bins.count):
        defined = share[~np.isnan(share[:, b]), b]
        trusted = drawn.n_groups > 1 and len(defined) > _BAND_DRAWS / 2
        low, high = np.quantile(defined, [0.025, 0.975]) if trusted else (np.nan, np.nan)
        rows.append(
            {
                "from": float(b / N_BINS),
                "to": float((b + 1) / N_BINS),
                "n": int(bins.count[b]),
                "mean_p": float(bins.mean_p[b]),
                "share_supported": float(bins.mean_y[b]),
                "low": float(low),
                "high": float(high),
            }
        )
    return rows
