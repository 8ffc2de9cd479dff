"""Teachers: what a verifier said of rows, as calibrated probabilities.

A predictions file is calibrated already (an exported verifier wrote it) or gets a calibration that eval/calibrate.py
fitted: on predictions of the same verifier, on other rows. Several are averaged by `ensemble.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...core import CalibrationError, RowError, sha256_of
from ...models.decision import CALIBRATION_FILE, Calibration, read_decision, sigmoid
from ..calibration import overlaps, read_fitted_rows
from ..metrics import Floats
from ..reports import apply_decision
from ..scoring import Prediction, labels_of, margins_of, read_predictions

LABELS = ("supported", "refuted")
"""Of a file that does not name its labels: older ones, and foreign ones."""
OWN, UNCALIBRATED = "own", "uncalibrated"
RATES_APART = 0.1
"""Positive rates of calibration and scored rows that differ by more are reported: probabilities hold for one rate."""


@dataclass(frozen=True)
class Teacher:
    """One verifier's probabilities of rows.

    Attributes:
        path, sha256: of its predictions file.
        name: what it is called in failures and tables.
        predictions, source: what the file holds.
        p: P(supported), shape (n,), in the order of `predictions`; NaN where scoring failed.
        calibration: SHA-256 of the calibration applied here; None where there was none to apply.
        method: of that calibration; `own`: the file was calibrated before; `uncalibrated`: p = sigmoid(margin).
        remarks: why its probabilities may not be what they should.
    """

    path: Path
    sha256: str
    name: str
    predictions: Sequence[Prediction]
    source: Mapping[str, Any]
    p: Floats
    calibration: str | None
    method: str
    remarks: tuple[str, ...] = ()

    @property
    def labels(self) -> list[str]:
        """Names of its labels, in its order."""
        return list(self.source.get("labels") or LABELS)

    def entry(self) -> dict[str, Any]:
        """What a teacher file says of it."""
        return {
            "predictions_sha256": self.sha256,
            "verifier_fingerprint": self.source.get("verifier_fingerprint"),
            "prompt_sha256": self.source.get("prompt_sha256"),
            "calibration": self.calibration,
            "method": self.method,
            **({"teachers": self.source["teachers"]} if "teachers" in self.source else {}),
        }


def read_teachers(
    paths: Sequence[Path], calibrations: Sequence[Path | None] = (), allow_uncalibrated: bool = False
) -> list[Teacher]:
    """Teachers from their predictions files and, in the same order, the folders of their calibrations.

    Args:
        calibrations: a folder written by eval/calibrate.py, or None for a file that is calibrated already; empty: none.
        allow_uncalibrated: take sigmoid(margin) where there is neither.

    Raises:
        RowError: a missing or damaged file, one given twice, a control run, or log-odds of another label.
        CalibrationError: an uncalibrated teacher that is not allowed; a calibration that is missing, or of another
            verifier, or fitted on rows that are scored here.
    """
    if calibrations and len(calibrations) != len(paths):
        raise CalibrationError(
            f"calibrations: must be one for each predictions file, got {len(calibrations)} for {len(paths)}; "
            "write - for a file that needs none"
        )
    names = [path.name for path in paths]
    names = [str(path) if names.count(path.name) > 1 else path.name for path in paths]
    folders = calibrations or [None] * len(paths)
    teachers = [_read(*each, allow_uncalibrated) for each in zip(paths, names, folders, strict=True)]
    seen: dict[str, Teacher] = {}
    for each in teachers:
        if (other := seen.setdefault(each.sha256, each)) is not each:
            raise RowError(f"{each.path}: the same predictions as {other.path}, got one teacher twice; name each once")
    return teachers


def _read(path: Path, name: str, folder: Path | None, allow_uncalibrated: bool) -> Teacher:
    predictions, source = read_predictions(path)
    _check_source(path, source)
    read = (path, sha256_of(path), name, predictions, source)
    if folder is not None:
        return Teacher(*read, *_calibrated(path, predictions, source, folder))
    if source.get("calibrated") is True:
        p = np.array([row.p_supported for row in predictions], dtype=np.float64)
        remark = "calibrated before, on rows unknown here: name its verifier's folder as --calibration to check them"
        return Teacher(*read, p, None, OWN, () if "teachers" in source else (remark,))
    if not allow_uncalibrated:
        raise CalibrationError(
            f"{path}: the teacher is not calibrated on gold labels, got calibrated: "
            f"{json.dumps(source.get('calibrated'))} and no calibration; fit one on its predictions of the calibration "
            "split (eval/calibrate.py) and name the folder by --calibration, or pass --allow-uncalibrated"
        )
    remark = "not calibrated: p = sigmoid(margin)"
    return Teacher(*read, sigmoid(margins_of(predictions)), None, UNCALIBRATED, (remark,))


def _check_source(path: Path, source: Mapping[str, Any]) -> None:
    if (control := source.get("control")) is not None:
        raise RowError(
            f"{path}: predictions of a control run, got {control!r}; score the pairs as they are, and a base model as "
            "a verifier of its own"
        )
    labels = source.get("labels") or LABELS
    if not isinstance(labels, Sequence) or labels[0] != "supported":
        raise RowError(
            f"{path}: margins must be log-odds of supported, the first label, got {labels!r}; score with that order"
        )


def _calibrated(
    path: Path, predictions: Sequence[Prediction], source: Mapping[str, Any], folder: Path
) -> tuple[Floats, str, str, tuple[str, ...]]:
    """p, SHA-256 and method of the calibration, and remarks; p by role, modality or origin where it does so."""
    decision, fitted_rows = read_decision(folder), read_fitted_rows(folder)
    calibration = decision.calibration
    _check_belongs(path, source, folder, calibration)
    if overlap := _in_sample(predictions, calibration, fitted_rows):
        raise CalibrationError(
            f"{folder}: was fitted on rows that {path} scores, got: {' '.join(overlap)} Calibrate on another split, or "
            "leave these rows out"
        )
    remarks = [*calibration.cautions(), *_cautions_here(predictions, calibration)]
    if fitted_rows is None:
        remarks.append("which rows its calibration was fitted on is not recorded: overlap with these is unchecked")
    if not source.get("verifier_fingerprint"):
        remarks.append("neither predictions nor calibration name a verifier: that they are of one is unchecked")
    p, sha256 = apply_decision(predictions, decision).p, sha256_of(folder / CALIBRATION_FILE)
    return p, sha256, calibration.method, tuple(remarks)


def _cautions_here(predictions: Sequence[Prediction], calibration: Calibration) -> list[str]:
    """Why a sound calibration may not suit these rows."""
    cautions = []
    if calibration.method == "none":
        cautions.append("its calibration is `none`: p = sigmoid(margin)")
    if calibration.map.ties_margins:
        cautions.append(
            f"{calibration.method} gives many rows one probability: which of them is harder is lost; platt, beta or "
            "centred_isotonic keep the order"
        )
    labels, fitted_for = labels_of(predictions), calibration.prior or calibration.positive_rate
    if fitted_for is not None and np.isfinite(labels).any():
        rate = float(np.nanmean(labels))
        if abs(rate - fitted_for) > RATES_APART:
            cautions.append(
                f"holds for {fitted_for:.0%} supported rows, and {rate:.0%} of the labelled ones here are; fit it with "
                f"--prior {rate:.4f} if that is their true share"
            )
    return cautions


def _check_belongs(path: Path, source: Mapping[str, Any], folder: Path, calibration: Calibration) -> None:
    if "teachers" in source:
        raise CalibrationError(
            f"{path}: is a teacher file, whose margins are calibrated, got {folder} to calibrate them again; write - "
            "instead of the folder"
        )
    ours, theirs = source.get("verifier_fingerprint"), calibration.fitted_on.get("verifier_fingerprint")
    if ours != theirs and not (ours and ours == _published(folder)):
        raise CalibrationError(
            f"{folder}: was fitted on another verifier than {path}, got {str(theirs)[:12]} instead of "
            f"{str(ours)[:12]}; give the folders in the order of the predictions, and - to a file calibrated already"
        )
    if calibration.aggregation != source.get("aggregation"):
        raise CalibrationError(
            f"{folder}: was fitted on margins of windows joined by {calibration.aggregation or 'nothing'}, got "
            f"{source.get('aggregation') or 'nothing'} in {path}; score both splits with one --windowing"
        )


def _published(folder: Path) -> str:
    """The fingerprint of a folder that is an exported verifier, whose own calibration lies in it."""
    from ...models.directory import MANIFEST, fingerprint  # pulls in torch, and is seldom asked

    return fingerprint(folder) if (folder / MANIFEST).is_file() else ""


def _in_sample(
    predictions: Sequence[Prediction], calibration: Calibration, fitted_rows: Mapping[str, Sequence[str]] | None
) -> list[str]:
    """One sentence for each thing that these rows share with those the calibration was fitted on."""
    sentences = [] if fitted_rows is None else overlaps(predictions, fitted_rows)
    split = calibration.fitted_on.get("split")
    if split is not None and split in {p.split for p in predictions}:
        sentences.insert(0, f"rows of the {split} split.")
    return sentences
