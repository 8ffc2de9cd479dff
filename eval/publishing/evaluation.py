"""The evaluation that travels with a verifier: its report, and a margin per reported row for whoever wants to check.

Apart from the export because it is about rows: it scores them, restates their probabilities, and keeps folders of the
scoring machine out of what is published. The export deals with weights and files.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from ...core import CalibrationError, RowError, sha256_of
from ...data_prep.dataset import read_split
from ...models.decision import Decision
from ...models.verifier import Verifier
from ..reports import against_chance, make_report, write_report
from ..scoring import CROSS_FITTED, Prediction, margins_of, predict, read_predictions, write_predictions

METRICS, PREDICTIONS = "metrics.json", "predictions.parquet"
_REPORT_FILES = (METRICS, "report.html", "report.md")


def score_split(verifier: Verifier, data: Path, split: str, path: Path) -> list[Prediction]:
    """Score one split and write the predictions to `path`, with where they come from."""
    predictions = predict(verifier, read_split(data, split))
    source = {
        "verifier_fingerprint": verifier.fingerprint,
        "manifest_sha256": sha256_of(data / "manifest.json"),
        "calibrated": verifier.decision is not None,
        "control": None,
    }
    if verifier.windowing is not None:
        source["aggregation"] = verifier.windowing.rule
    write_predictions(path, predictions, source)
    return predictions


def evaluate(verifier: Verifier, data: Path, split: str, calibration: Path, folder: Path) -> None:
    """Score a split and report on it at this calibration: predictions and report files in `folder`."""
    folder.mkdir(parents=True)
    score_split(verifier, data, split, folder / PREDICTIONS)
    write_report(folder, make_report(folder / PREDICTIONS, calibration))


def write_evaluation(
    folder: Path, fingerprint: str, decision: Decision, report: Path | None, predictions: Path | None
) -> None:
    """Fill the `eval/` folder of a verifier directory; made only if there is something to put there.

    Args:
        folder: to write to.
        fingerprint: of the verifier that was reported on.
        decision: what it ships with; probabilities are stated by its calibration, where it is cross-fitted by fold.
        report: folder of a report; its page, Markdown and numbers are taken over, those that are there.
        predictions: Parquet of the reported rows.

    Raises:
        CalibrationError: the report was made with another calibration.
        RowError: report or predictions are of another verifier, or damaged.
    """
    rows: list[Prediction] = []
    about = decision.calibration.fitted_on
    if predictions is not None:
        folder.mkdir(exist_ok=True)
        rows, source = read_predictions(predictions)
        _check_source(str(predictions), source, fingerprint, about)
        write_predictions(folder / PREDICTIONS, restated(rows, decision), source | {"calibrated": True})
    if report is not None:
        folder.mkdir(exist_ok=True)
        _check_report(report / METRICS, fingerprint, decision)
        # A reason for a failure names its file; where the file lay here is nobody's business.
        folders = {path: PurePath(path).name for row in rows if row.error for path in _absolute_paths(row)}
        for name in (n for n in _REPORT_FILES if (report / n).is_file()):
            text = (report / name).read_text(encoding="utf-8")
            for path, short in folders.items():
                text = text.replace(path, short)
            (folder / name).write_text(text, encoding="utf-8")


def shortcomings(directory: Path) -> list[str]:
    """Where the evaluation in a verifier directory found no ranking, or no calibration, beyond chance: sentences."""
    path = directory / "eval" / METRICS
    if not path.is_file():
        return []
    row = json.loads(path.read_text(encoding="utf-8")).get("headline") or {}
    return against_chance(row)


def restated(rows: Sequence[Prediction], decision: Decision) -> list[Prediction]:
    """The rows with probabilities by this calibration, and without folders of the machine they were scored on."""
    calibration = decision.calibration
    p = calibration.predict(margins_of(rows), calibration.group_keys(rows))
    return [_portable(dataclasses.replace(row, p_supported=float(x))) for row, x in zip(rows, p, strict=True)]


def _portable(row: Prediction) -> Prediction:
    """Absolute paths cut to the file's name, in the evidence and in the reason of a failure."""
    error, evidence = row.error, row.evidence
    for path in _absolute_paths(row):
        short = PurePath(path).name
        error = error and error.replace(path, short)
        evidence = evidence.replace(json.dumps(path, ensure_ascii=False), json.dumps(short, ensure_ascii=False))
    return dataclasses.replace(row, evidence=evidence, error=error)


def _absolute_paths(row: Prediction) -> list[str]:
    paths = [piece.get("path") for piece in json.loads(row.evidence or "[]")]
    return [path for path in paths if isinstance(path, str) and PurePath(path).is_absolute()]


def _check_report(path: Path, fingerprint: str, decision: Decision) -> None:
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
        source, calibration = metrics.get("source") or {}, metrics.get("calibration")
    except (OSError, ValueError, AttributeError) as error:
        raise RowError(f"{path}: not the numbers of a report, got {error}; write them with eval/report.py") from error
    _check_source(str(path), source, fingerprint, decision.calibration.fitted_on)
    if calibration is not None and calibration != json.loads(json.dumps(decision.calibration.to_dict())):
        raise CalibrationError(
            f"{path}: reports on another calibration than the one given, got {calibration.get('method')} fitted on "
            f"{calibration.get('n')} rows; run eval/report.py again with the calibration that is exported"
        )


def _check_source(where: str, source: dict[str, Any], fingerprint: str, fitted_on: Mapping[str, Any]) -> None:
    if source.get(CROSS_FITTED) != fitted_on.get(CROSS_FITTED):
        raise RowError(
            f"{where}: of other verifiers of folds than the calibration, got {source.get(CROSS_FITTED)}; run "
            "eval/join.py, eval/calibrate.py and eval/report.py again"
        )
    scored_by = source.get("verifier_fingerprint")
    if scored_by and scored_by != fingerprint:
        raise RowError(
            f"{where}: of another verifier, got fingerprint {str(scored_by)[:12]} instead of {fingerprint[:12]}; "
            "run eval/predict.py and eval/report.py with the verifier that is exported"
        )
