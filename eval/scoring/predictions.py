"""What a verifier said about each row, as a Parquet file: the hand-over from scoring to calibration and reports.

One row per pair, failed rows included: a failure has NaN for margin and probability and says why in `error`. Where the
predictions come from (`source`) is stored in the file's own metadata. Keys of `source` that other programs look at:
`verifier_fingerprint`, `manifest_sha256` (of the data set), `calibrated` (is `p_supported` a calibrated probability?),
`prompt_sha256` (of the prompt asked with) and `labels` (in order; the margin is of the first against the rest).
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ...core import LABELS, Label, RowError

SCHEMA_VERSION = 1
_METADATA_KEY = b"proofreel.predictions"
_SCHEMA = pa.schema(
    [
        ("pair_id", pa.string()),
        ("margin", pa.float32()),
        ("p_supported", pa.float64()),
        ("label", pa.string()),
        ("split", pa.string()),
        ("group", pa.string()),
        ("role", pa.string()),
        ("origin", pa.string()),
        ("modality", pa.string()),
        ("error", pa.string()),
        ("claim", pa.string()),
        ("evidence", pa.string()),
    ]
)
FIELDS = tuple(_SCHEMA.names)
CROSS_FITTED = "cross_fitted"
"""Key of a file's source, and of a calibration's `fitted_on`: the verifiers of the folds and their recipe."""

_MAY_BE_NULL = {"label", "split", "error"}


@dataclass(frozen=True)
class Prediction:
    """One scored (or failed) row.

    Attributes:
        margin: log-odds of supported, float32 (stored so; other values are rounded to it). NaN where scoring failed.
        p_supported: probability in [0, 1]; NaN where scoring failed.
        label: None for a row without a judgment.
        group: what ties rows together statistically; rows with an empty group stand alone.
        error: why scoring failed; None where it did not.
        evidence: JSON of `rows.evidence_key`, so that a report can show it.
    """

    pair_id: str
    margin: float
    p_supported: float
    label: Label | None
    split: str | None
    group: str
    role: str
    origin: str
    modality: str
    error: str | None = None
    claim: str = ""
    evidence: str = ""


def write_predictions(path: str | Path, predictions: Sequence[Prediction], source: dict[str, Any]) -> None:
    """Write predictions and their source (JSON values) to a Parquet file, making its folder.

    Raises:
        RowError: a duplicate id, an unknown label, or a row that is neither a score nor a failure with a reason.
    """
    path = Path(path)
    _check(predictions, str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(with_source(as_table(predictions), source), path)


def as_table(predictions: Sequence[Prediction]) -> pa.Table:
    """The columns of a predictions file, without their source."""
    columns = {name: [getattr(p, name) for p in predictions] for name in _SCHEMA.names}
    return pa.Table.from_arrays([pa.array(columns[f.name], type=f.type) for f in _SCHEMA], schema=_SCHEMA)


def read_predictions(path: str | Path) -> tuple[list[Prediction], dict[str, Any]]:
    """The predictions of a Parquet file and their source.

    Raises:
        RowError: no such file, not Parquet, not predictions, written by a newer version, or holding a broken row.
    """
    path = Path(path)
    if not path.is_file():
        raise RowError(f"{path}: no such predictions file; write it with eval/predict.py")
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise RowError(f"{path}: not a Parquet file, got {error}; write it again with eval/predict.py") from error
    source = read_source(path, table.schema.metadata or {})
    _check_columns(path, table.schema)
    rows = table.select(_SCHEMA.names).cast(_SCHEMA).to_pylist()
    predictions = [Prediction(**row) for row in rows]
    _check(predictions, str(path))
    return predictions, source


def refuse_teacher_file(path: str | Path, source: dict[str, Any]) -> None:
    """A teacher file's margins are of calibrated probabilities: to calibrate them again would be to do it twice.

    Raises:
        RowError: the file was written by eval/teach.py.
    """
    if "teachers" in source:
        n = len(source["teachers"])
        raise RowError(
            f"{path}: is calibrated already, got a teacher file of {n} verifier(s); give the predictions of "
            "eval/predict.py that it was made of"
        )


def with_source(table: pa.Table, source: dict[str, Any]) -> pa.Table:
    """A table of predictions that says where they come from, as `write_predictions` stores it."""
    stored = json.dumps({"schema": SCHEMA_VERSION, "source": source}, ensure_ascii=False)
    return table.replace_schema_metadata({_METADATA_KEY: stored.encode()})


def margins_of(predictions: Iterable[Prediction]) -> NDArray[np.float64]:
    """Margins, shape (n,); NaN where scoring failed."""
    return np.array([p.margin for p in predictions], dtype=np.float32).astype(np.float64)


def labels_of(predictions: Iterable[Prediction]) -> NDArray[np.float64]:
    """The binary view, shape (n,): supported 1, refuted and not_enough 0, NaN without a label."""
    return np.array([math.nan if p.label is None else float(p.label == "supported") for p in predictions])


def groups_of(predictions: Iterable[Prediction]) -> NDArray[np.str_]:
    """Groups, shape (n,). A row without one is a group of its own."""
    return np.array([p.group or f"row {p.pair_id}" for p in predictions], dtype=np.str_)


def read_source(path: Path, metadata: dict[bytes, bytes]) -> dict[str, Any]:
    """Where predictions come from, out of a file's metadata; `RowError` for another file or version."""
    if _METADATA_KEY not in metadata:
        raise RowError(f"{path}: not a predictions file, got no such metadata; write it with eval/predict.py")
    stored = json.loads(metadata[_METADATA_KEY])
    if stored["schema"] != SCHEMA_VERSION:
        raise RowError(f"{path}: schema {SCHEMA_VERSION} is read here, got {stored['schema']}; upgrade proofreel")
    return stored["source"]


def _check_columns(path: Path, schema: pa.Schema) -> None:
    if missing := [name for name in _SCHEMA.names if name not in schema.names]:
        raise RowError(f"{path}: columns are missing, got no {missing}; write it again with eval/predict.py")
    if wrong := {f.name: str(schema.field(f.name).type) for f in _SCHEMA if schema.field(f.name).type != f.type}:
        raise RowError(f"{path}: columns have wrong types, got {wrong}; write it again with eval/predict.py")


def _check(predictions: Sequence[Prediction], where: str) -> None:
    seen: set[str] = set()
    for number, prediction in enumerate(predictions):
        at = f"{where}: row {number} ({prediction.pair_id!r})"
        if prediction.pair_id in seen:
            raise RowError(f"{at}: pair_id occurs twice, got {prediction.pair_id!r}; score each pair once")
        seen.add(prediction.pair_id)
        for problem in _problems(prediction):
            raise RowError(f"{at}: {problem}")


def _problems(row: Prediction) -> Iterable[str]:
    nulls = [f.name for f in dataclasses.fields(row) if getattr(row, f.name) is None and f.name not in _MAY_BE_NULL]
    if nulls:
        yield f"values are missing, got none for {nulls}; give them"
    elif row.label is not None and row.label not in LABELS:
        yield f"label is outside the vocabulary, got {row.label!r}; use one of {list(LABELS)}"
    elif row.error is not None and not (math.isnan(row.margin) and math.isnan(row.p_supported)):
        yield f"a failed row has no score, got margin {row.margin}, error {row.error!r}; store NaN"
    elif row.error is None and not (math.isfinite(row.margin) and 0 <= row.p_supported <= 1):
        yield (
            f"a scored row needs a finite margin and a probability, got {row.margin}, {row.p_supported}; "
            f"store NaN and say why in `error`"
        )
