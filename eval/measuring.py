"""The numbers of a report: tables by role and origin, controls, and whether the test rows were really unseen."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..models.calibration import Calibration, sigmoid
from ..models.decisions import Decision, OperatingPoint
from .fitted_rows import overlaps
from .intervals import clustered_interval
from .metrics import Floats, headline, nll, roc_auc
from .predictions import Prediction, groups_of, labels_of, margins_of

FEW_GROUPS = 20  # below this a bootstrap over groups is too narrow


@dataclass(frozen=True)
class Scored:
    """Predictions with a calibration applied: what every table and figure is computed from.

    Columns have shape (n,): margins and probabilities are NaN where scoring failed, labels (1 or 0) without a label.
    """

    predictions: Sequence[Prediction]
    margins: Floats
    labels: Floats
    p_raw: Floats
    p: Floats
    point: OperatingPoint
    calibration: Calibration


def apply_decision(predictions: Sequence[Prediction], decision: Decision) -> Scored:
    """Probabilities are recomputed from the margins, whatever the verifier that wrote them was calibrated with."""
    margins = margins_of(predictions)
    return Scored(
        predictions=predictions,
        margins=margins,
        labels=labels_of(predictions),
        p_raw=sigmoid(margins),
        p=decision.calibration.predict(margins),
        point=decision.point(),
        calibration=decision.calibration,
    )


def table_row(name: str, scored: Scored) -> dict[str, Any]:
    """One row of a table: `metrics.headline`, log-losses, and the group-clustered 95% interval of the AUC."""
    row: dict[str, Any] = {"name": name}
    row |= headline(scored.margins, scored.p_raw, scored.p, scored.labels, scored.point.threshold)
    used = [i for i, p in enumerate(scored.predictions) if p.error is None and p.label is not None]
    margins, labels = scored.margins[used], scored.labels[used]
    row["nll_before"], row["nll_after"] = nll(margins, labels), nll(scored.calibration.logits(margins), labels)
    groups = groups_of([scored.predictions[i] for i in used])
    row["n_groups"] = len(set(groups.tolist()))
    row["auc_interval"] = dataclasses.asdict(clustered_interval(roc_auc, margins, labels, groups))
    return row


def rows_by(attribute: str, scored: Scored, decision: Decision) -> list[dict[str, Any]]:
    """A table row per value of `role` or `origin`, most frequent first. Rows without one are named as such."""
    values = [getattr(p, attribute) or f"(no {attribute})" for p in scored.predictions]
    rows = []
    for value, _ in sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])):
        chosen = [p for p, v in zip(scored.predictions, values, strict=True) if v == value]
        rows.append(table_row(value, apply_decision(chosen, decision)))
    return rows


def failures(predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
    """How many rows failed for each reason, most frequent first."""
    counts = Counter(p.error for p in predictions if p.error is not None)
    return [{"reason": reason, "n": n} for reason, n in counts.most_common()]


def leaks(
    predictions: Sequence[Prediction],
    calibration: Calibration,
    fitted_rows: Mapping[str, Sequence[str]] | None,
) -> list[str]:
    """Every reason not to take the report's numbers for numbers on unseen rows, as sentences."""
    found = []
    splits = sorted({str(p.split) for p in predictions})
    if calibration.fitted_on.get("split") in splits:
        found.append(
            f"The test rows are of the {calibration.fitted_on['split']} split, which the calibration was fitted on."
        )
    elif len(splits) > 1 or splits in (["train"], ["validation"]):
        found.append(f"The reported rows are of split {', '.join(splits)}, not of test alone.")
    if fitted_rows is None:
        found.append("Which rows the calibration was fitted on is not recorded: overlap with these rows is unchecked.")
    else:
        found += overlaps(predictions, fitted_rows)
    if calibration.at_bound:
        found.append("The calibration's slope stopped at its bound: its probabilities deserve no trust.")
    return found


def remarks(
    row: Mapping[str, Any],
    controls: Sequence[Mapping[str, Any]],
    source: Mapping[str, Any],
    calibration: Calibration,
) -> list[str]:
    """What a reader of the headline must know to judge it: too few groups, rows that are missing, unequal controls."""
    found = []
    theirs, ours = calibration.fitted_on.get("verifier_fingerprint"), source.get("verifier_fingerprint")
    if theirs and ours and theirs != ours:
        found.append(
            f"These are predictions of verifier {ours[:12]}, the calibration was fitted on those of {theirs[:12]}: "
            f"it holds if one is an export of the other."
        )
    if row["n_groups"] < FEW_GROUPS:
        found.append(f"Only {row['n_groups']} groups: intervals are too narrow below {FEW_GROUPS}.")
    if row["n_failed"]:
        found.append(f"{row['n_failed']} of {row['n_rows']} rows failed and are in no metric.")
    if row["n_unlabelled"]:
        found.append(f"{row['n_unlabelled']} scored rows have no label and are in no metric.")
    if row["n"] == 0:
        found.append("No row was both scored and labelled: nothing is measured.")
    for control in controls:
        if control["n"] != row["n"]:
            found.append(f"Control {control['name']} stands on {control['n']} rows, the headline on {row['n']}.")
    return found
