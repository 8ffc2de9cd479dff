"""The calibration of cross-fitted verifiers: fitted on all folds to be published, on the other folds to be measured.

A report must not apply a map to rows that it was fitted on. So beside the calibration of all rows lies one per fold,
fitted on the rows of the others (`cross_fitted.json`), and a report gives every row that of its own fold.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...core import CalibrationError
from ...models.decision import Calibration, Decision, read_decision
from ..metrics import Floats
from ..scoring import Prediction, groups_of, labels_of, margins_of
from .fit import PerGroup, fit_calibration, usable_rows

CROSS_FITTED_FILE = "cross_fitted.json"


@dataclass(frozen=True)
class CrossFitted(Calibration):
    """A calibration of all folds that gives each row the map fitted on the folds that the row is not of.

    Attributes:
        by_fold: {fold: the calibration of the others}; a row's fold is its `split`.
    """

    by_fold: dict[str, Calibration] = field(default_factory=dict)

    @classmethod
    def of(cls, calibration: Calibration, by_fold: Mapping[str, Calibration]) -> CrossFitted:
        """The calibration with those of the folds."""
        values = {f.name: getattr(calibration, f.name) for f in dataclasses.fields(Calibration)}
        return cls(**values, by_fold=dict(by_fold))

    def group_keys(self, rows: Iterable[Any]) -> list[Any]:
        """The rows themselves: their folds, and what a fold's own corrections go by."""
        return list(rows)

    def logits(self, margins: ArrayLike, keys: Any = None) -> Floats:
        """Calibrated log-odds (n,), each by its row's fold.

        Raises:
            CalibrationError: without rows, or with rows of no fold.
        """
        rows = list(keys or ())
        folds = np.array([row.split for row in rows], dtype=object)
        if foreign := sorted({str(fold) for fold in folds} - set(self.by_fold)):
            raise CalibrationError(
                f"cross-fitted calibration: holds for the rows of its folds {sorted(self.by_fold)}, got rows of "
                f"{foreign}; report on the joined predictions"
            )
        margins = np.asarray(margins, dtype=np.float64)
        logits = np.full(margins.shape, np.nan)
        for fold, calibration in self.by_fold.items():
            mine = folds == fold
            chosen = [row for row in rows if row.split == fold]
            logits[mine] = calibration.logits(margins[mine], calibration.group_keys(chosen))
        return logits

    def to_dict(self) -> dict[str, Any]:
        """Of the calibration of all folds: what is published."""
        return {name: value for name, value in super().to_dict().items() if name != "by_fold"}


def fit_folds(
    predictions: Sequence[Prediction], method: str, per_group: PerGroup | None, decision: Decision, where: str
) -> dict[str, Calibration]:
    """For each fold the calibration of the rows of all others, stated for the same prior.

    Raises:
        CalibrationError: the rows outside a fold cannot be calibrated on.
    """
    folds = sorted({str(row.split) for row in predictions})
    used = usable_rows(predictions, where, folds)
    by_fold = {}
    for fold in folds:
        rows = [row for row in used if row.split != fold]
        fitted = fit_calibration(
            margins_of(rows),
            labels_of(rows),
            method,
            groups_of(rows),
            {"split": f"all but {fold}"},
            f"{where}, without {fold}",
            aggregation=decision.calibration.aggregation,
            keys=None if per_group is None else [getattr(row, per_group.key) for row in rows],
            per_group=per_group,
        )
        by_fold[fold] = fitted.with_prior(decision.calibration.prior)
    return by_fold


def write_folds_fitted(directory: Path, by_fold: Mapping[str, Calibration]) -> list[Path]:
    """Write the calibrations of the folds; of none, see that none are left from before. Returns the paths."""
    path = directory / CROSS_FITTED_FILE
    if not by_fold:
        path.unlink(missing_ok=True)
        return []
    stored = {fold: calibration.to_dict() for fold, calibration in by_fold.items()}
    path.write_text(json.dumps({"folds": stored}, indent=1) + "\n", encoding="utf-8")
    return [path]


def read_measuring(directory: str | Path) -> Decision:
    """The decision in a calibration's folder, as it is to be measured: cross-fitted where it lies so there.

    Raises:
        CalibrationError: as `read_decision`, also of the calibrations of the folds.
    """
    decision, path = read_decision(directory), Path(directory) / CROSS_FITTED_FILE
    if not path.is_file():
        return decision
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))["folds"]
        by_fold = {fold: Calibration.from_dict(values, str(path)) for fold, values in stored.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, CalibrationError):
            raise
        raise CalibrationError(f"{path}: is damaged, got {error!r}; run eval/calibrate.py again") from error
    return dataclasses.replace(decision, calibration=CrossFitted.of(decision.calibration, by_fold))
