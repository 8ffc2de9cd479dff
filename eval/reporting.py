"""From prediction files and a calibration to a written report: page, Markdown and numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import RowError
from ..models.decisions import Decision, read_decision
from . import plots
from .clips import make_clips
from .comparing import Contender
from .fitted_rows import read_fitted_rows
from .measuring import Scored, apply_decision, right
from .page import Report, html, markdown
from .predictions import Prediction, read_predictions, refuse_teacher_file
from .report_numbers import measure


def measure_files(
    predictions_path: Path,
    calibration_dir: Path,
    controls: Sequence[tuple[str, Path]] = (),
    compared: Sequence[Contender] = (),
    title: str = "Proofreel report",
) -> dict[str, Any]:
    """The numbers of a report from its files: the dictionary of metrics.json, with NaN where that has null.

    Arguments and errors as `make_report`.
    """
    return _measured(predictions_path, calibration_dir, controls, compared, title)[0]


def make_report(
    predictions_path: Path,
    calibration_dir: Path,
    controls: Sequence[tuple[str, Path]] = (),
    media_root: Path | None = None,
    title: str = "Proofreel report",
    clips_per_kind: int = 4,
    compared: Sequence[Contender] = (),
) -> Report:
    """Measure predictions at a calibration's default operating point.

    Args:
        predictions_path: Parquet of the rows to report on, normally the test split.
        calibration_dir: holds calibration.json, thresholds.json and, from eval/calibrate.py, fitted_rows.json.
        controls: (name, predictions file) of the same pairs under other conditions, judged by the same calibration.
        media_root: what relative media paths start from.
        clips_per_kind: how many right, wrong and failed rows to show.
        compared: other verifiers on the same pairs, see `comparing.read_contender`.

    Raises:
        RowError, CalibrationError: a file is missing or damaged, or compared files disagree about a pair.
    """
    numbers, predictions, decision = _measured(predictions_path, calibration_dir, controls, compared, title)
    scored = apply_decision(predictions, decision)
    return Report(
        numbers=numbers,
        calibration=decision.calibration,
        point=scored.point,
        figures=_figures(scored.used, numbers),
        clips=make_clips(scored, media_root, clips_per_kind),
    )


def write_report(out: Path, report: Report) -> list[Path]:
    """Write report.html, report.md and metrics.json into `out`; returns their paths."""
    texts = {
        "report.html": html(report),
        "report.md": markdown(report),
        "metrics.json": json.dumps(jsonable(report.numbers), indent=2, ensure_ascii=False, allow_nan=False) + "\n",
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


def _measured(
    predictions_path: Path,
    calibration_dir: Path,
    controls: Sequence[tuple[str, Path]],
    compared: Sequence[Contender],
    title: str,
) -> tuple[dict[str, Any], list[Prediction], Decision]:
    decision, fitted_rows = read_decision(calibration_dir), read_fitted_rows(calibration_dir)
    predictions, source = read_predictions(predictions_path)
    refuse_teacher_file(predictions_path, source)
    others = [(name, read_predictions(path)[0]) for name, path in controls]
    about: dict[str, Any] = {"source": source, "fitted_rows": fitted_rows, "controls": others, "title": title}
    return measure(predictions, decision, **about, compared=compared), predictions, decision


def _figures(used: Scored, numbers: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(caption, SVG) of each figure; none without rows."""
    if not len(used.p):
        return []
    row, bins, mark = numbers["headline"], numbers["reliability"], numbers["watermark"]
    ece = (row["ece_before"], row["ece_after"])
    captions = (
        "Reliability: on the dotted line, 70 % of claims given 0.7 hold. Below: rows per bin.",
        "ROC curve.",
        "Precision and recall.",
        "Calibrated probabilities by label.",
        "Risk and coverage: errors among the verdicts kept as the least confident are withheld.",
    )
    drawn = (
        plots.reliability_figure(bins["before"], bins["after"], ece, mark),
        plots.roc_figure(used.margins, used.labels, mark),
        plots.pr_figure(used.margins, used.labels, mark),
        plots.histogram_figure(used.p, used.labels, used.point.threshold, mark),
        plots.risk_figure(used.confidence, right(used), row, mark),
    )
    return [(f"{mark}: {text}" if mark else text, svg) for text, svg in zip(captions, drawn, strict=True)]
