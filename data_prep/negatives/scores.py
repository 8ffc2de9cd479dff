"""Read what a verifier or a zero-shot model said about rows, from Parquet (as eval/predict.py writes it) or JSON lines.

Only the columns that mining needs are looked at, so that any model's scores can be used: `pair_id`, `margin` or
`p_supported` or both, and, where given, `error`, `claim` and `evidence`.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...core import RowError
from ..importers import Record, Rejected, read_json_records

COLUMNS = ("pair_id", "margin", "p_supported", "error", "claim", "evidence")
_METADATA_KEY = b"proofreel.predictions"
_CONTROLS = ("mismatched-evidence", "mismatched-sound", "no-sound", "claim-only")
_LABELS = ("supported", "refuted")


@dataclass(frozen=True)
class Score:
    """What was said about one pair.

    Attributes:
        p_supported: probability in [0, 1]; 1 / (1 + exp(-margin)) where only a margin is given; NaN if unusable.
        margin: log-odds of supported; NaN if there is none.
        unusable: why there is no score; None where there is one.
        claim: the claim that was scored, where the file says it.
        evidence: what it was scored against (JSON of `rows.evidence_key`), where the file says it.
    """

    p_supported: float
    margin: float = math.nan
    unusable: str | None = None
    claim: str | None = None
    evidence: str | None = None


def read_scores(path: str | Path) -> tuple[dict[str, Score], dict[str, Any]]:
    """{pair id: score} of a `.parquet` or `.jsonl` file, and the file's own account of its source ({} if none).

    Raises:
        RowError: no such file, another suffix, damaged rows or columns, an id given twice, a probability outside
            [0, 1], scores of a control run, in which the evidence is not that of the pair, or margins that are the
            log-odds of another label than supported.
    """
    path = Path(path)
    if not path.is_file():
        raise RowError(f"{path}: no such predictions file, got nothing to read; score the train split first")
    if path.suffix not in (".parquet", ".jsonl"):
        raise RowError(f"{path}: predictions are .parquet or .jsonl, got {path.suffix!r}; rename the file")
    records, source = _parquet(path) if path.suffix == ".parquet" else (read_json_records(path), {})
    if (control := source.get("control")) in _CONTROLS:
        raise RowError(f"{path}: scores of a control run, got {control!r}; score the pairs with their own evidence")
    if not isinstance(labels := source.get("labels") or _LABELS, Sequence) or labels[0] != "supported":
        raise RowError(f"{path}: must be scores of supported, the first label, got {labels!r}; score again so")
    scores: dict[str, Score] = {}
    for record in records:
        if isinstance(record, Rejected):
            raise RowError(str(record))
        where = f"{record.file}:{record.line}"
        pair_id, score = _score(record.value, where)
        if pair_id in scores:
            raise RowError(f"{where}: pair_id occurs twice, got {pair_id!r}; score each pair once")
        scores[pair_id] = score
    return scores, source


@functools.lru_cache(maxsize=1024)
def named_evidence(evidence: str) -> str | None:
    """An evidence key with the names of media instead of their paths, which differ between machines.

    Seconds are read as floats: a Parquet file of pairs holds 2 as 2.0. None for what is no evidence key: a foreign file
    may write what it likes.
    """
    try:
        pieces = json.loads(evidence, parse_int=float)
        named = [{**piece, "path": Path(piece["path"]).name} if "path" in piece else piece for piece in pieces]
        return json.dumps(named, sort_keys=True)
    except (ValueError, TypeError):
        return None


def _parquet(path: Path) -> tuple[Iterator[Record], dict[str, Any]]:
    try:
        schema = pq.read_schema(path)
        names = [name for name in COLUMNS if name in schema.names]
        table = pq.read_table(path, columns=names)
        metadata = (schema.metadata or {}).get(_METADATA_KEY)
        source = json.loads(metadata)["source"] if metadata else {}
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise RowError(f"{path}: not a readable predictions file, got {error}; write it again") from error
    if "pair_id" not in names or not {"margin", "p_supported"} & set(names):
        raise RowError(f"{path}: columns are missing, got {schema.names}; give pair_id and margin or p_supported")
    rows = (row for batch in table.to_batches() for row in batch.to_pylist())
    return (Record(str(path), number, row) for number, row in enumerate(rows, start=1)), source


def _score(row: Any, where: str) -> tuple[str, Score]:
    if not isinstance(row, Mapping):
        raise RowError(f"{where}: a prediction must be an object, got {row!r}; write {{'pair_id': ..., 'margin': ...}}")
    pair_id, error, claim, evidence = (row.get(name) for name in ("pair_id", "error", "claim", "evidence"))
    if not isinstance(pair_id, str) or not pair_id:
        raise RowError(f"{where}: pair_id must be the id of a pair, got {pair_id!r}; give it as text")
    margin, p = _number(row, "margin", where), _number(row, "p_supported", where)
    for name in ("error", "claim", "evidence"):
        if row.get(name) is not None and not isinstance(row[name], str):
            raise RowError(f"{where}: {name} must be text or null, got {row[name]!r}; fix the value")
    if p is not None and not (math.isnan(p) or 0 <= p <= 1):
        raise RowError(f"{where}: p_supported must be a probability, got {p}; give a number in [0, 1]")
    unusable = _why_unusable(margin, p, error)
    if unusable is not None:
        return pair_id, Score(math.nan, math.nan, unusable, claim, evidence or None)
    margin = math.nan if margin is None else margin
    return pair_id, Score(_logistic(margin) if p is None else p, margin, None, claim, evidence or None)


def _number(row: Mapping[str, Any], name: str, where: str) -> float | None:
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:  # an integer beyond the floats
            pass
    raise RowError(f"{where}: {name} must be a number or null, got {str(value)[:40]!r}; fix the value")


def _why_unusable(margin: float | None, p: float | None, error: str | None) -> str | None:
    if error is not None:
        return f"scoring failed: {error}"
    if margin is None and p is None:
        return "neither margin nor p_supported is given"
    for name, value in (("margin", margin), ("p_supported", p)):
        if value is not None and not math.isfinite(value):
            return f"{name} is {value}"
    return None


def _logistic(margin: float) -> float:
    return 1 / (1 + math.exp(-margin)) if margin >= 0 else math.exp(margin) / (1 + math.exp(margin))
