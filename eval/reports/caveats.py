"""What a reader must know before believing a report: rows that were fitted on, and rows or groups that are missing.

Three strengths: a *watermark* marks every table and figure whose rows were fitted on (or might have been), a *leak* is
a sentence that says why, a *remark* tells what the numbers stand on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...models.decision import Calibration
from ..calibration import CrossFitted, overlaps
from ..scoring import CROSS_FITTED, Prediction

IN_SAMPLE, UNCHECKED = "IN-SAMPLE", "UNCHECKED"
_TRAINING_SPLITS = {"train", "validation"}


def leaks(
    predictions: Sequence[Prediction],
    calibration: Calibration,
    fitted_rows: Mapping[str, Sequence[str]] | None,
) -> list[str]:
    """Every reason not to take a report's numbers for numbers on unseen rows, as sentences."""
    reasons = _seen(predictions, calibration, fitted_rows) + _unchecked(predictions, calibration, fitted_rows)
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
    return UNCHECKED if _unchecked(predictions, calibration, fitted_rows) else ""


def remarks(
    row: Mapping[str, Any],
    controls: Sequence[Mapping[str, Any]],
    source: Mapping[str, Any],
    calibration: Calibration,
    differences: Sequence[Mapping[str, Any]] = (),
) -> list[str]:
    """What a reader of the headline must know to judge it, most important first.

    First what overturns the result (nothing measured, one class, no better than chance or a control, not calibrated),
    then failed rows, whose predictions these are, what else is missing, last what makes the intervals too narrow.

    Args:
        row: the headline.
        controls: their rows.
        source: of the predictions.
        calibration: that was applied.
        differences: this verifier minus each control.
    """
    reasons = []
    if row["n"] == 0:
        reasons.append("No row was both scored and labelled: nothing is measured.")
    else:
        reasons += _one_class(row) + against_chance(row) + _against_controls(differences)
    if row["n_failed"]:
        reasons.append(f"{row['n_failed']:,} of {row['n_rows']:,} rows failed and are in no metric.")
    reasons += _provenance(source, calibration)
    if row["n_unlabelled"]:
        reasons.append(f"{row['n_unlabelled']:,} scored rows have no label and are in no metric.")
    for control in controls:
        if control["n"] != row["n"]:
            reasons.append(f"Control {control['name']} stands on {control['n']} rows, the headline on {row['n']}.")
    return reasons + (row["cautions"] if row["n"] else [])


def _one_class(row: Mapping[str, Any]) -> list[str]:
    if 0 < row["positive_rate"] < 1:
        return []
    which = "supported" if row["positive_rate"] else "not supported"
    return [f"Every row is labelled {which}: how well the verifier tells claims apart is not measured."]


def _against_controls(differences: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences where a control ranks as well as the verifier: what the control lacks was not needed."""
    reasons = []
    for each in differences:
        low, high = interval_bounds(each["metrics"]["auc"]["interval"])
        if low <= 0:
            verdict = "No better" if high >= 0 else "Worse"
            between = f"{low:+.3f} to {high:+.3f}"
            reasons.append(f"{verdict} than the control {each['second']}: the AUC differs by {between}.")
    return reasons


def against_chance(row: Mapping[str, Any]) -> list[str]:
    """Sentences where a verifier's row shows no ranking beyond chance, or a calibration error beyond it."""
    reasons, (low, high) = [], interval_bounds(row.get("auc_interval"))
    if low <= 0.5:
        verdict, place = ("No better", "holds") if high >= 0.5 else ("Worse", "lies below")
        level = f"{row['auc_interval']['level']:.0%}"
        reasons.append(f"{verdict} than chance: the {level} interval of the AUC, {low:.3f} to {high:.3f}, {place} 0.5.")
    if miscalibration(row):
        reasons.append(
            f"Not calibrated on these rows: the calibration error is {row['ece_after']:.3f}; of calibrated verifiers "
            f"95 % would show {row['ece_after_floor_high']:.3f} or less."
        )
    return reasons


def miscalibration(row: Mapping[str, Any]) -> bool:
    """Whether a row's calibration error lies above what 95 % of calibrated verifiers would show."""
    found, chance = (row.get(name) for name in ("ece_after", "ece_after_floor_high"))
    return found is not None and chance is not None and found > chance


def interval_bounds(interval: Mapping[str, Any] | None) -> tuple[float, float]:
    """Low and high of a stored interval, NaN where undefined: nothing compares with them."""
    low, high = (None if interval is None else interval.get(end) for end in ("low", "high"))
    return math.nan if low is None else low, math.nan if high is None else high


def _seen(
    predictions: Sequence[Prediction], calibration: Calibration, fitted_rows: Mapping[str, Sequence[str]] | None
) -> list[str]:
    if isinstance(calibration, CrossFitted):  # which gives no row a map that was fitted on it
        return []
    reasons, splits = [], {str(p.split) for p in predictions}
    if calibration.fitted_on.get("split") in splits:
        reasons.append(
            f"The test rows are of the {calibration.fitted_on['split']} split, which the calibration was fitted on."
        )
    elif splits & _TRAINING_SPLITS:
        reasons.append(f"The reported rows are of split {', '.join(sorted(splits))}, not of test alone.")
    return reasons if fitted_rows is None else reasons + overlaps(predictions, fitted_rows)


def _unchecked(
    predictions: Sequence[Prediction], calibration: Calibration, fitted_rows: Mapping[str, Sequence[str]] | None
) -> list[str]:
    if isinstance(calibration, CrossFitted):
        return []
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
    theirs, ours = calibration.fitted_on.get(CROSS_FITTED), source.get(CROSS_FITTED)
    if isinstance(calibration, CrossFitted) and theirs and theirs == ours:
        reasons.append(
            f"Cross-fitted: the rows of each of {len(theirs['folds'])} folds were scored by a verifier that saw "
            "nothing of their groups, and calibrated on the other folds. The published verifier is another one, "
            "trained on all folds with the same settings: it was not tested itself. The operating point was chosen on "
            "these rows."
        )
    elif theirs != ours:
        reasons.append("The verifiers of the folds are not those whose predictions the calibration was fitted on.")
    return reasons + calibration.cautions()[int(calibration.at_bound) :]  # that it is at its bound is a leak already
