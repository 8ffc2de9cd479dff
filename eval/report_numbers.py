"""Every number of a report as one dictionary of plain values: what metrics.json holds, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core.errors import RowError
from ..models.decisions import Decision
from .bootstrap import N_DRAWS, resample
from .calibration_error import N_BINS, bin_index, reliability_bins
from .cautions import leaks, remarks, watermark
from .checks import Floats, divide
from .comparing import Contender, adjust, compare, compare_pair, contender
from .every_metric import full_row
from .measuring import Scored, failures, rows_by, rows_by_size, table_row, worst_groups
from .predictions import Prediction
from .stored_points import band_found, points_found, proportions_found

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
        `source`, `title`.

    Raises:
        RowError: a pair's label or group differs between compared files, or two verifiers have one name.
    """
    ours = contender(OURS, predictions, decision, fitted_rows, source)
    scored, first = ours.scored, full_row(OURS, ours.scored)
    judged = [contender(name, rows, decision, fitted_rows) for name, rows in controls]
    others = [table_row(each.name, each.scored) for each in judged]
    differences, refused = _control_differences(ours, judged)
    notes = remarks(first, others, ours.source, decision.calibration)
    return {
        "title": title,
        "watermark": watermark(predictions, decision.calibration, fitted_rows),
        "warnings": leaks(predictions, decision.calibration, fitted_rows),
        "remarks": notes + refused,
        "headline": first,
        "controls": others,
        "control_differences": differences,
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


def _control_differences(ours: Contender, controls: Sequence[Contender]) -> tuple[list[dict[str, Any]], list[str]]:
    """This verifier minus each control on the pairs both hold; and why a control cannot be held against it."""
    found, refused = [], []
    for control in controls:
        try:
            found.append(compare_pair(ours, control, N_DRAWS))
        except RowError as error:
            refused.append(f"Control {control.name} is not of the same pairs: {error}")
    adjust(found)
    return found, refused


def _reliability(scored: Scored, column: str) -> list[dict[str, Any]]:
    """The bins of the reliability diagram that hold rows, each with a clustered interval of its share supported."""
    used = scored.used
    p: Floats = getattr(used, column)
    bins = reliability_bins(p, used.labels)
    drawn = resample(used.groups, _BAND_DRAWS)
    place = np.arange(N_BINS) == bin_index(p)[:, None]
    share = divide(drawn.sums(place * used.labels[:, None]), drawn.sums(place))
    found = []
    for b in np.flatnonzero(bins.count):
        defined = share[~np.isnan(share[:, b]), b]
        trusted = drawn.n_groups > 1 and len(defined) > _BAND_DRAWS / 2
        low, high = np.quantile(defined, [0.025, 0.975]) if trusted else (np.nan, np.nan)
        found.append(
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
    return found
