"""What a reader must know before believing a report: rows that were fitted on, and rows or groups that are missing.

Three strengths: a *watermark* marks every table and figure whose rows were fitted on (or might have been), a *leak* is
a sentence that says why, a *remark* tells what the numbers stand on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...models.decision import Calibration
from ..calibration import overlaps
from ..scoring import Prediction

IN_SAMPLE, UNCHECKED = "IN-SAMPLE", "UNCHECKED"
_TRAINING_SPLITS = {"train", "validation"}


def leaks(
    predictions: Sequence[Prediction],
    calibration: Calibration,
    fitted_rows: Mapping[str, Sequence[str]] | None,
) -> list[str]:
    """Every reason not to take a report's numbers for numbers on unseen rows, as sentences."""
    reasons = _seen(predictions, calibration, fitted_rows) + _unchecked(predictions, fitted_rows)
    if calibration.at_bound:
        reasons.append("The calibration's slope stopped at its bound: its probabilities deserve no trust.")
    return reasons


def watermark(
    predictions: Sequence[Prediction],
    calibration: Calibration,
    fitted_rows: Mapping[str, Sequence[str]] | None,
) -> str:
    """`IN-SAMPLE` where a row was fitted on, `UNCHECKED` where that is unknown, nothing where rows are unseen."""
    if _seen(predictions, calibration, fitted_rows):
        return IN_SAMPLE
    return UNCHECKED if _unchecked(predictions, fitted_rows) else ""


def remarks(
    row: Mapping[str, Any],
    controls: Sequence[Mapping[str, Any]],
    source: Mapping[str, Any],
    calibration: Calibration,
) -> list[str]:
    """What a reader of the headline must know to judge it: too few groups, rows that are missing, unequal controls."""
    reasons = _provenance(source, calibration)
    if row["n"]:
        reasons += against_chance(row) + row["cautions"]
    if row["n_failed"]:
        reasons.append(f"{row['n_failed']} of {row['n_rows']} rows failed and are in no metric.")
    if row["n_unlabelled"]:
        reasons.append(f"{row['n_unlabelled']} scored rows have no label and are in no metric.")
    if row["n"] == 0:
        reasons.append("No row was both scored and labelled: nothing is measured.")
    for control in controls:
        if control["n"] != row["n"]:
            reasons.append(f"Control {control['name']} stands on {control['n']} rows, the headline on {row['n']}.")
    return reasons


def against_chance(row: Mapping[str, Any]) -> list[str]:
    """Sentences where a verifier's row shows no ranking beyond chance, or a calibration error beyond it."""
    reasons, auc = [], row.get("auc_interval") or {}
    low, high = (math.nan if auc.get(end) is None else auc[end] for end in ("low", "high"))
    if low <= 0.5 <= high:
        reasons.append(
            f"No better than chance: the {auc['level']:.0%} interval of the AUC, {low:.3f} to {high:.3f}, holds 0.5."
        )
    found, chance = (row.get(name) for name in ("ece_after", "ece_after_floor_high"))
    if found is not None and chance is not None and found > chance:
        reasons.append(
            f"Not calibrated on these rows: the calibration error is {found:.3f}; of calibrated verifiers 95 % would "
            f"show {chance:.3f} or less."
        )
    return reasons


def _seen(
    predictions: Sequence[Prediction], calibration: Calibration, fitted_rows: Mapping[str, Sequence[str]] | None
) -> list[str]:
    reasons, splits = [], {str(p.split) for p in predictions}
    if calibration.fitted_on.get("split") in splits:
        reasons.append(
            f"The test rows are of the {calibration.fitted_on['split']} split, which the calibration was fitted on."
        )
    elif splits & _TRAINING_SPLITS:
        reasons.append(f"The reported rows are of split {', '.join(sorted(splits))}, not of test alone.")
    return reasons if fitted_rows is None else reasons + overlaps(predictions, fitted_rows)


def _unchecked(predictions: Sequence[Prediction], fitted_rows: Mapping[str, Sequence[str]] | None) -> list[str]:
    reasons, splits = [], {str(p.split) for p in predictions}
    if fitted_rows is None:
        reasons.append(
            "Which rows the calibration was fitted on is not recorded: overlap with these rows is unchecked."
        )
    if len(splits) > 1 and not splits & (_TRAINING_SPLITS | {"calibration"}):
        reasons.append(f"The reported rows are of split {', '.join(sorted(splits))}, not of test alone.")
    elif splits == {"None"}:
        reasons.append("The rows do not say which split they are of: whether they are unseen is unchecked.")
    return reasons


def _provenance(source: Mapping[str, Any], calibration: Calibration) -> list[str]:
    """Sentences on predictions that are not those the calibration was made for."""
    reasons = []
    theirs, ours = calibration.fitted_on.get("verifier_fingerprint"), source.get("verifier_fingerprint")
    if theirs and ours and theirs != ours:
        reasons.append(
            f"These are predictions of verifier {ours[:12]}, the calibration was fitted on those of {theirs[:12]}: "
            f"it holds if one is an export of the other."
        )
    theirs, ours = calibration.aggregation, source.get("aggregation")
    if theirs != ours:
        reasons.append(
            f"Margins of several windows became one by {ours or 'nothing'} here and by {theirs or 'nothing'} where the "
            f"calibration was fitted: its probabilities need not hold."
        )
    return reasons + calibration.cautions()[int(calibration.at_bound) :]  # that it is at its bound is a leak already
