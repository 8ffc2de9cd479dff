"""Read the annotation files a build names, whatever their format, into rows with media paths under one root."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .build_config import BuildConfig
from .dataset import pair_from, read_pair_records, sha256_of
from .errors import RowError
from .importers.facts import read_facts
from .importers.grounding import merge_judgments, read_judgments
from .records import Record, Rejected, Row, reject
from .rows import Evidence, Image, VideoSegment


@dataclass
class Imported:
    """Everything the sources gave.

    Attributes:
        rows: in file order.
        rejected: what could not be read, or not as a row.
        sources: per file its format, path, SHA-256 and number of rows, for the manifest.
        merged: repeated judgments merged into one row.
    """

    rows: list[Row] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    sources: list[dict[str, Any]] = field(default_factory=list)
    merged: int = 0


def import_sources(config: BuildConfig, root: Path) -> Imported:
    """Read every source of a (resolved) config; media paths become relative to `root`."""
    found = Imported()
    for source in config.sources:
        rows: list[Row] = []
        for path in source.paths:
            items = list(_read(source.format, Path(path)))
            here = [item for item in items if isinstance(item, Row)]
            found.rejected.extend(item for item in items if isinstance(item, Rejected))
            digest = sha256_of(path)
            found.sources.append({"format": source.format, "path": path, "sha256": digest, "rows": len(here)})
            folder = Path(path).absolute().parent if config.media_root is None else root
            rows.extend(_placed(row, folder, root, config.media == "absent") for row in here)
        if source.format == "grounding":
            judgments = len(rows)
            rows, conflicts = merge_judgments(rows)
            found.rejected.extend(conflicts)
            found.merged += judgments - len(rows) - len(conflicts)
        found.rows.extend(rows)
    return found


def _read(kind: str, path: Path) -> Iterator[Row | Rejected]:
    if kind == "facts":
        return read_facts(path)
    return read_judgments(path) if kind == "grounding" else _read_pair_rows(path)


def _read_pair_rows(path: Path) -> Iterator[Row | Rejected]:
    for item in read_pair_records(path):
        if isinstance(item, Rejected):
            yield item
            continue
        try:
            pair = pair_from(item)
            yield Row(pair, item.file, item.line, pair.id)
        except RowError as error:
            yield _not_a_pair(item, error)


def _not_a_pair(item: Record, error: RowError) -> Rejected:
    message = str(error).removeprefix(f"{item.file}:{item.line}: ")
    name = item.value.get("id") if isinstance(item.value, dict) else None
    return reject(item, message, id=name if isinstance(name, str) else None)


def _placed(row: Row, folder: Path, root: Path, absent: bool) -> Row:
    """The row with media paths relative to the data set's media root, and marked absent where media is."""

    def place(evidence: Evidence) -> Evidence:
        if not isinstance(evidence, (VideoSegment, Image)) or not isinstance(evidence.path, str) or not evidence.path:
            return evidence
        if folder != root and not os.path.isabs(evidence.path):
            evidence = dataclasses.replace(evidence, path=os.path.relpath(folder / evidence.path, root))
        return dataclasses.replace(evidence, absent=True) if absent and isinstance(evidence, VideoSegment) else evidence

    pair = dataclasses.replace(row.pair, evidence=tuple(place(e) for e in row.pair.evidence))
    return dataclasses.replace(row, pair=pair)
