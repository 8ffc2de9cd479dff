"""Which rows a calibration was fitted on, kept beside it: a report can then prove its test rows were not among them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...core import CalibrationError
from ..scoring import Prediction

FITTED_ROWS_FILE = "fitted_rows.json"


def write_fitted_rows(directory: str | Path, predictions: Sequence[Prediction]) -> Path:
    """Write ids and groups (rows without a group have none) into `directory`; returns the path."""
    path = Path(directory) / FITTED_ROWS_FILE
    rows = {
        "pair_ids": sorted(p.pair_id for p in predictions),
        "groups": sorted({p.group for p in predictions if p.group}),
    }
    partial = path.with_name(f".{path.name}.tmp")  # the last file of a calibration: with it, all are whole
    partial.write_text(json.dumps(rows) + "\n", encoding="utf-8")
    partial.replace(path)
    return path


def read_fitted_rows(directory: str | Path) -> dict[str, list[str]] | None:
    """Ids and groups the calibration in `directory` was fitted on; None where they were not kept."""
    path = Path(directory) / FITTED_ROWS_FILE
    if not path.is_file():
        return None
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return {key: [str(value) for value in rows[key]] for key in ("pair_ids", "groups")}
    except (ValueError, KeyError, TypeError) as error:
        raise CalibrationError(f"{path}: is damaged, got {error!r}; run eval/calibrate.py again") from error


def overlaps(predictions: Sequence[Prediction], fitted_rows: Mapping[str, Sequence[str]]) -> list[str]:
    """One sentence for ids, and one for groups, that these predictions share with the fitted rows."""
    sentences = []
    for name, values in (("pair_ids", {p.pair_id for p in predictions}), ("groups", {p.group for p in predictions})):
        shared = sorted(values & set(fitted_rows[name]))
        if shared:
            what = name.replace("_", " ")
            sentences.append(f"{len(shared)} {what} were also used to fit the calibration, for example {shared[0]!r}.")
    return sentences
