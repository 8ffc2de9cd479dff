"""From prediction files and a calibration to a written report: page, Markdown and numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..data_prep.errors import RowError
from ..models.decisions import read_decision
from . import plots
from .clips import make_clips
from .fitted_rows import read_fitted_rows
from .measuring import Scored, apply_decision, failures, leaks, remarks, rows_by, table_row
from .page import Report, html, markdown
from .predictions import read_predictions


def make_report(
    predictions_path: Path,
    calibration_dir: Path,
    controls: Sequence[tuple[str, Path]] = (),
    media_root: Path | None = None,
    title: str = "Proofreel report",
    clips_per_kind: int = 4,
) -> Report:
    """Measure predictions at a calibration's default operating point.

    Args:
        predictions_path: Parquet of the rows to report on, normally the test split.
        calibration_dir: holds calibration.json, thresholds.json and, from eval/calibrate.py, fitted_rows.json.
        controls: (name, predictions file) of further rows of the first table.
        media_root: what relative media paths start from.
        clips_per_kind: how many right, wrong and failed rows to show.

    Raises:
        RowError, CalibrationError: a file is missing or damaged.
    """
    decision, fitted_rows = read_decision(calibration_dir), read_fitted_rows(calibration_dir)
    predictions, source = read_predictions(predictions_path)
    scored = apply_decision(predictions, decision)
    first = table_row("this verifier", scored)
    others = [table_row(name, apply_decision(read_predictions(path)[0], decision)) for name, path in controls]
    return Report(
        title=title,
        rows=[first, *others],
        by_role=rows_by("role", scored, decision),
        by_origin=rows_by("origin", scored, decision),
        leaks=leaks(predictions, decision.calibration, fitted_rows),
        remarks=remarks(first, others, source, decision.calibration),
        failures=failures(predictions),
        calibration=decision.calibration,
        point=scored.point,
        source=source,
        figures=_figures(scored),
        clips=make_clips(scored, media_root, clips_per_kind),
    )


def write_report(out: Path, report: Report) -> list[Path]:
    """Write report.html, report.md and metrics.json into `out`; returns their paths."""
    numbers = {
        "title": report.title,
        "headline": report.rows[0],
        "controls": report.rows[1:],
        "by_role": report.by_role,
        "by_origin": report.by_origin,
        "warnings": report.leaks,
        "remarks": report.remarks,
        "failures": report.failures,
        "calibration": report.calibration.to_dict(),
        "operating_point": report.point.to_dict(),
        "source": report.source,
    }
    texts = {
        "report.html": html(report),
        "report.md": markdown(report),
        "metrics.json": json.dumps(jsonable(numbers), indent=2, ensure_ascii=False, allow_nan=False) + "\n",
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    return [out / name for name in texts]


def parse_control(text: str) -> tuple[str, Path]:
    """`name=path` of a --control option."""
    name, separator, path = text.partition("=")
    if not (name and separator and path):
        raise RowError(f"--control: must read name=path.parquet, got {text!r}; for example claim-only=blind.parquet")
    return name, Path(path)


def jsonable(value: Any) -> Any:
    """Strict JSON: NaN (undefined) becomes null, all the way down."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: jsonable(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(v) for v in value]
    return value


def _figures(scored: Scored) -> list[tuple[str, str]]:
    used = [i for i, p in enumerate(scored.predictions) if p.error is None and p.label is not None]
    margins, labels, p, p_raw = (column[used] for column in (scored.margins, scored.labels, scored.p, scored.p_raw))
    if not used:
        return []
    return [
        ("Reliability: on the dotted line, 70% of claims given 0.7 hold.", plots.reliability_figure(p_raw, p, labels)),
        ("ROC curve.", plots.roc_figure(margins, labels)),
        ("Precision and recall.", plots.pr_figure(margins, labels)),
        ("Calibrated probabilities by label.", plots.histogram_figure(p, labels, scored.point.threshold)),
    ]
