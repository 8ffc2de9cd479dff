"""Teacher files: the mean of what teachers say of rows, in calibrated probabilities. Mining and distillation read them.

A teacher file is a predictions file whose margins are the log-odds of its probabilities: p is the mean over teachers of
each one's P(supported), the margin logit(p), with p clipped to [1e-6, 1 - 1e-6] so that it is finite. A row that any
teacher failed on is a failed row: the mean of the others would be another teacher.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from ...core import RowError
from ...data_prep.negatives import named_evidence
from ..metrics import Floats, brier, ece_event, roc_auc
from ..scoring import Prediction, labels_of, write_predictions
from .teachers import LABELS, UNCALIBRATED, Teacher

P_LEAST = 1e-6
"""Probabilities are clipped to [P_LEAST, 1 - P_LEAST] before their logit is taken: log-odds of 13.8 at most."""
DOUBTED_BELOW = 0.05
"""A teacher that gives a row's label less than this contradicts it: the label may be wrong."""


@dataclass(frozen=True)
class Joined:
    """The rows and source of a teacher file, and what each teacher said of them.

    Attributes:
        predictions, source: as they are written.
        p_TN: of each teacher, (teachers, rows) in the order of `predictions`; NaN where that teacher failed.
    """

    predictions: list[Prediction]
    source: dict[str, Any]
    p_TN: Floats


@dataclass(frozen=True)
class Agreement:
    """One column of probabilities against the labels of the rows that every teacher scored: AUC, ECE, Brier score.

    `n_contradicted` counts labels that get p < 0.05: the teacher is wrong there, or the label is.
    """

    name: str
    n: int
    auc: float
    ece: float
    brier: float
    n_contradicted: int


def join(teachers: Sequence[Teacher]) -> Joined:
    """The mean of the teachers' probabilities, in the order of the first one's rows; one teacher is the mean of one.

    Raises:
        RowError: other pairs, claims, evidence or labels than in the first file, or another data set.
    """
    first = teachers[0]
    places = [{p.pair_id: i for i, p in enumerate(t.predictions)} for t in teachers]
    for teacher, at in zip(teachers[1:], places[1:], strict=True):
        _check_same_rows(first, teacher, places[0], at)
    order_TN = [[at[p.pair_id] for p in first.predictions] for at in places]
    p_TN = np.stack([t.p[np.array(order, dtype=np.int64)] for t, order in zip(teachers, order_TN, strict=True)])
    p_N = p_TN.mean(axis=0)
    margins_N = clipped_log_odds(p_N)
    rows = []
    for i, row in enumerate(first.predictions):
        errors = [(t.name, t.predictions[order[i]].error) for t, order in zip(teachers, order_TN, strict=True)]
        error = "; ".join(f"{name}: {reason}" for name, reason in errors if reason is not None) or None
        rows.append(dataclasses.replace(row, margin=float(margins_N[i]), p_supported=float(p_N[i]), error=error))
    return Joined(rows, _source(teachers), p_TN)


def clipped_log_odds(p: Floats) -> NDArray[np.float32]:
    """logit(p) in float32, p clipped to [1e-6, 1 - 1e-6], same shape; NaN stays NaN."""
    return logit(np.clip(p, P_LEAST, 1 - P_LEAST)).astype(np.float32)


def agreements(teachers: Sequence[Teacher], joined: Joined) -> list[Agreement]:
    """Each teacher and their mean (one teacher: itself alone) against the labels; none where no row has one."""
    labels = labels_of(joined.predictions)
    mean = np.array([row.p_supported for row in joined.predictions], dtype=np.float64)
    used = ~np.isnan(labels) & ~np.isnan(mean)
    columns = list(zip([t.name for t in teachers], joined.p_TN, strict=True))
    columns += [("mean", mean)] if len(teachers) > 1 else []
    return [_agreement(name, p[used], labels[used]) for name, p in columns] if used.any() else []


def contradicted(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Rows whose label gets p < 0.05, the least first: candidates for wrong labels. None is unscored or unlabelled."""
    p = p_of_label(np.array([row.p_supported for row in predictions], dtype=np.float64), labels_of(predictions))
    return [predictions[i] for i in np.argsort(p, kind="stable").tolist() if p[i] < DOUBTED_BELOW]


def p_of_label(p: Floats, labels: Floats) -> Floats:
    """What is left to the label each row was given, shape (n,): p, or 1 - p where it is not supported."""
    return np.where(labels == 1, p, np.where(labels == 0, 1 - p, np.nan))


def write_teacher_file(path: str | Path, joined: Joined) -> None:
    """Write under a temporary name beside `path`, then rename: a teacher file is there whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        write_predictions(temporary, joined.predictions, joined.source)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_output(path: Path, inputs: Iterable[Path], overwrite: bool) -> None:
    """Refuse to replace an input ever, and an existing file unless that is asked for."""
    if path.resolve() in [each.resolve() for each in inputs]:
        raise RowError(f"{path}: is one of the predictions that are read, got it as the output too; name another file")
    if path.is_dir():
        raise RowError(f"{path}: must be a file to write, got a folder; name a file in it")
    if path.exists() and not overwrite:
        raise RowError(f"{path}: is there already, got no word to replace it; name another file or pass --overwrite")


def _agreement(name: str, p: Floats, labels: Floats) -> Agreement:
    n_contradicted = int(np.sum(p_of_label(p, labels) < DOUBTED_BELOW))
    return Agreement(name, len(p), float(roc_auc(p, labels)), ece_event(p, labels), brier(p, labels), n_contradicted)


def _check_same_rows(first: Teacher, other: Teacher, in_first: Mapping[str, int], in_other: Mapping[str, int]) -> None:
    ours, theirs = (t.source.get("manifest_sha256") for t in (first, other))
    if ours != theirs:
        raise RowError(
            f"{other.path}: scored another data set than {first.path}, got manifest {str(theirs)[:12]} instead of "
            f"{str(ours)[:12]}; score one data set with every teacher"
        )
    for what, ids in (("lacks", in_first.keys() - in_other.keys()), ("adds", in_other.keys() - in_first.keys())):
        if ids:
            raise RowError(
                f"{other.path}: holds other pairs than {first.path}, got {len(ids)} that it {what}, e.g. {min(ids)!r}; "
                "score the same split with every teacher"
            )
    for name in ("claim", "evidence", "label"):
        differ = [
            row.pair_id
            for row in first.predictions
            if not _same(name, row, other.predictions[in_other[row.pair_id]], names_only=ours is not None)
        ]
        if differ:
            raise RowError(
                f"{other.path}: another {name} than in {first.path}, got {len(differ)} of {len(first.predictions)} "
                f"pairs, e.g. {min(differ)!r}; score the same rows with every teacher"
            )


def _same(name: str, row: Prediction, other: Prediction, names_only: bool) -> bool:
    """Of media of one data set only the file's name counts: on another machine its folder is another."""
    one, two = getattr(row, name), getattr(other, name)
    if one == two or name != "evidence" or not names_only:
        return one == two
    return named_evidence(one) is not None and named_evidence(one) == named_evidence(two)


def _source(teachers: Sequence[Teacher]) -> dict[str, Any]:
    labels = _shared([t.labels for t in teachers])
    return {
        "verifier_fingerprint": _fingerprint([t.source.get("verifier_fingerprint") for t in teachers]),
        "manifest_sha256": teachers[0].source.get("manifest_sha256"),
        "pairs_sha256": _shared([t.source.get("pairs_sha256") for t in teachers]),
        "prompt_sha256": _shared([t.source.get("prompt_sha256") for t in teachers]),
        "labels": list(LABELS) if labels is None else labels,
        "calibrated": all(t.method != UNCALIBRATED for t in teachers),
        "control": None,
        "teachers": [t.entry() for t in teachers],
    }


def _fingerprint(fingerprints: Sequence[str | None]) -> str | None:
    """Of one teacher its own, of several a hash over them in order."""
    if len(fingerprints) == 1:
        return fingerprints[0]
    return hashlib.sha256(json.dumps(fingerprints).encode()).hexdigest()


def _shared(values: Sequence[Any]) -> Any:
    return values[0] if all(value == values[0] for value in values) else None
