"""A data set on disk: Parquet shards of pairs, one or more per split, and a manifest that says what they are.

Training, evaluation and reports read data only through `read_split` and `read_manifest`; lone files of pairs (Parquet
or JSON lines) go through `read_pairs` and `write_pairs`. The format is described in docs/data.md.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...core import (
    SPLITS,
    Evidence,
    Pair,
    RowError,
    VideoSegment,
    evidence_key,
    media_path,
    sha256_of,
    with_media_paths,
)
from ..importers import Rejected, pair_from, pairs_suffix, read_pair_records

SCHEMA_VERSION = 2
MANIFEST = "manifest.json"
_NUMBER_COLUMNS = ("soft_label", "weight", "teacher_margin")
_PIECE = pa.struct(
    [
        *[("kind", pa.string()), ("path", pa.string()), ("start_s", pa.float64()), ("end_s", pa.float64())],
        *[("absent", pa.bool_()), ("text", pa.string())],
        *[("paths", pa.list_(pa.string())), ("times_s", pa.list_(pa.float64())), ("sound", pa.bool_())],
    ]
)
"""A piece of evidence of any kind; fields that its kind does not have are null."""


def _schema() -> pa.Schema:
    types: dict[str, pa.DataType] = {"evidence": pa.list_(_PIECE)} | dict.fromkeys(_NUMBER_COLUMNS, pa.float64())
    return pa.schema([(f.name, types.get(f.name, pa.string())) for f in dataclasses.fields(Pair)])


def write_pairs(path: str | Path, pairs: Iterable[Pair]) -> None:
    """Write pairs to a `.parquet` or `.jsonl` file; equal pairs give equal bytes.

    In Parquet evidence is a nested column, which pandas and `datasets` open as it is, and meta is JSON text: its keys
    differ from row to row.

    Raises:
        RowError: a pair that cannot be stored (meta that is not JSON, a wrong type), or another suffix.
    """
    path = Path(path)
    rows = [_storable(pair, path) for pair in pairs]
    if pairs_suffix(path) == ".jsonl":
        path.write_text("".join(_json(row) + "\n" for row in rows), encoding="utf-8", newline="\n")
        return
    for row in rows:
        row["meta"] = _json(row["meta"])
    try:
        table = pa.Table.from_pylist(rows, schema=_schema())
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise RowError(
            f"{path}: a row has a value of the wrong type, got {error}; check rows with problems_of"
        ) from error
    pq.write_table(table, path, compression="zstd")


def read_pairs(path: str | Path) -> list[Pair]:
    """The pairs of a `.parquet` or `.jsonl` file, in order. A null means the default of an optional key.

    Raises:
        RowError: no such file, or the first row that is no pair, with the file and its line (Parquet: row number).
    """
    pairs = []
    for item in read_pair_records(path):
        if isinstance(item, Rejected):
            raise RowError(str(item))
        pairs.append(pair_from(item))
    return pairs


def read_manifest(dataset_dir: str | Path, any_version: bool = False) -> dict[str, Any]:
    """The manifest of a data set directory; `any_version` only asks whether it is one.

    Raises:
        RowError: no data set there, a damaged manifest, or one of a newer schema version.
    """
    path = Path(dataset_dir) / MANIFEST
    if not path.is_file():
        raise RowError(f"{dataset_dir}: not a data set directory, got no {MANIFEST}; build one with data_prep/build.py")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        version = manifest["schema_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise RowError(f"{path}: the manifest is damaged, got {error!r}; build the data set again") from error
    if version != SCHEMA_VERSION and not any_version:
        raise RowError(f"{path}: schema version is not {SCHEMA_VERSION}, got {version!r}; build the data set again")
    return manifest


def train_shards(dataset_dir: str | Path) -> list[str]:
    """SHA-256 of each shard of the train split: which rows they hold."""
    return [shard["sha256"] for shard in read_manifest(dataset_dir)["shards"].get("train", [])]


def read_split(dataset_dir: str | Path, split: str) -> list[Pair]:
    """The pairs of one split; see `iter_split`."""
    return list(iter_split(dataset_dir, split))


def iter_split(dataset_dir: str | Path, split: str) -> Iterator[Pair]:
    """The pairs of one split, rows that share evidence side by side, media paths absolute; one shard at a time.

    Media marked absent keep their stored path: nothing lies there.

    Raises:
        RowError: no data set, no such split in it, or a shard that differs from the manifest's SHA-256 (all shards are
            checked before the first pair is given).
    """
    directory = Path(dataset_dir)
    manifest = read_manifest(directory)
    shards = manifest["shards"]
    if split not in shards:
        raise RowError(f"{directory}: split is not in this data set, got {split!r}; it has {sorted(shards)}")
    for shard in shards[split]:
        path = directory / shard["file"]
        if not path.is_file() or sha256_of(path) != shard["sha256"]:
            state = "other bytes" if path.is_file() else "no file"
            raise RowError(
                f"{path}: the shard differs from its manifest, got {state}; build or copy the data set again"
            )
    root = Path(os.path.normpath(directory.resolve() / manifest["media_root"]))
    for shard in shards[split]:
        for item in read_pair_records(directory / shard["file"]):
            if isinstance(item, Rejected):
                raise RowError(str(item))
            pair = pair_from(item)
            yield dataclasses.replace(pair, split=split, evidence=tuple(_absolute(e, root) for e in pair.evidence))


def shard_name(split: str, number: int = 0, of: int = 1) -> str:
    """The file name of a shard, e.g. `train-00000-of-00001.parquet`, as the datasets library finds splits by."""
    return f"{split}-{number:05d}-of-{of:05d}.parquet"


def write_shards(directory: Path, pairs: Iterable[Pair]) -> dict[str, list[dict[str, Any]]]:
    """Write one shard per split that has pairs, rows of equal evidence side by side: {split: [{file, rows, sha256}]}.

    For rows that fit in memory; a build writes its shards from the staging database.
    """
    by_split: dict[str, dict[str, list[Pair]]] = {split: {} for split in SPLITS}
    for pair in pairs:
        assert pair.split is not None, pair.id
        by_split[pair.split].setdefault(evidence_key(pair.evidence), []).append(pair)
    shards = {}
    for split, segments in by_split.items():
        if segments:
            rows = [pair for same in segments.values() for pair in same]
            path = directory / shard_name(split)
            write_pairs(path, rows)
            shards[split] = [shard_entry(path, len(rows))]
    return shards


def shard_entry(path: Path, rows: int) -> dict[str, Any]:
    """What the manifest says of a shard."""
    return {"file": path.name, "rows": rows, "sha256": sha256_of(path)}


def write_columns(path: Path, columns: Sequence[Sequence[Any]]) -> None:
    """Write stored values, one sequence per field of `Pair` in its order, evidence and meta given as JSON text."""
    schema = _schema()
    arrays = [
        pa.array(_pieces(values) if field.name == "evidence" else values, type=field.type)
        for values, field in zip(columns, schema, strict=True)
    ]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path, compression="zstd")


def _pieces(texts: Iterable[str]) -> Iterator[list[dict[str, Any]]]:
    """Evidence out of JSON text; rows that share it lie side by side, and it is read once."""
    last, pieces = "", []
    for text in texts:
        if text != last:
            last, pieces = text, json.loads(text)
        yield pieces


def _absolute(evidence: Evidence, root: Path) -> Evidence:
    if isinstance(evidence, VideoSegment) and evidence.absent:
        return evidence
    return with_media_paths(evidence, lambda path: str(media_path(path, root)))


def _storable(pair: Pair, path: Path) -> dict[str, Any]:
    row = pair.to_dict()
    try:
        _json(row).encode("utf-8")
    except (TypeError, ValueError) as error:  # UnicodeEncodeError, from half a surrogate pair, is a ValueError
        raise RowError(f"{path}: pair {pair.id!r} is not JSON, got {error}; meta may hold JSON values only") from error
    return row


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
