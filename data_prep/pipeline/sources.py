"""The first step of a build: read the annotation files of any format into the staging database.

Media paths become relative to one root.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...core import ConfigError, Evidence, Image, VideoSegment, sha256_of
from ..importers import IMPORTERS, Rejected, Row
from ..language import LanguageModel, read_with_statements
from .config import BuildConfig, SourceConfig
from .staging import Staging
from .validate import check_contents

_BATCH = 10_000
_CACHED_PLACES = 20_000
_MOST_NAME_CHARS = 200


def import_sources(staging: Staging, config: BuildConfig, root: Path, model: LanguageModel | None = None) -> int:
    """Read every source of a (resolved) config into the staging database; media paths become relative to `root`.

    What was committed before a kill is not added again.

    Returns:
        How many repeated judgments were merged into one row.
    """
    merged = 0
    for number, source in enumerate(config.sources):
        step = f"import/{number}"
        if IMPORTERS[source.format].merge is not None:
            merged += _import_merged(staging, config, number, root)
            continue
        read = _reader(config, number, model)
        for place, path in enumerate(source.paths):
            _import_file(staging, read, Path(path), f"{step}/{place}", _Placer(config, Path(path), root))
    return merged


def source_entries(staging: Staging, config: BuildConfig, digests: dict[str, str]) -> list[dict[str, Any]]:
    """Per annotation file its format, path, SHA-256 and number of rows, for the manifest."""
    entries = []
    for number, source in enumerate(config.sources):
        for place, path in enumerate(source.paths):
            rows = staging.progress(f"import/{number}/{place}")["rows"]
            entries.append({"format": source.format, "path": path, "sha256": digests[path], "rows": rows})
    return entries


def annotation_files(config: BuildConfig) -> list[str]:
    """Every annotation file a (resolved) config names."""
    return [path for source in config.sources for path in source.paths]


def other_files(config: BuildConfig) -> list[str]:
    """Files and folders a (resolved) config names besides annotations: transcripts, durations, word groups, ..."""
    beside = {
        Path(path).parent / value
        for source in config.sources
        for path in source.paths
        for value in source.options.values()
        if isinstance(value, str) and 0 < len(value) < _MOST_NAME_CHARS
    }
    files = {str(path) for path in beside if path.exists()}
    return sorted(files if config.negatives.word_groups is None else {*files, config.negatives.word_groups})


def source_digest(path: Path, suffixes: tuple[str, ...] = ("",)) -> str:
    """SHA-256 of a file; of a folder, over the names and digests of the files in it that end so."""
    if path.is_file():
        return sha256_of(path)
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name.endswith(suffixes))
    names = "".join(f"{file.relative_to(path).as_posix()} {sha256_of(file)}\n" for file in files)
    return hashlib.sha256(names.encode("utf-8", "surrogateescape")).hexdigest()


def _import_file(
    staging: Staging, read: Callable[[Path], Iterator[Row | Rejected]], path: Path, step: str, place: _Placer
) -> None:
    """Add a file's rows, a batch at a time, each batch committed with the number of items it ends at."""
    state = staging.progress(step) or {"items": 0, "rows": 0, "done": False}
    if state["done"]:
        return
    with tqdm(desc=f"reading {path.name}", unit="row", mininterval=1.0) as bar:
        items = 0
        for batch in _batches(read(path)):
            items += len(batch)
            bar.update(len(batch))
            if items <= state["items"]:
                continue
            rows = [item for item in batch if isinstance(item, Row)]
            good, bad = check_contents(rows)
            staging.reject([*(item for item in batch if isinstance(item, Rejected)), *bad])
            staging.add(good, place)
            state = {"items": items, "rows": state["rows"] + len(rows), "done": False}
            staging.note(step, state)
            staging.commit()
    staging.note(step, {**state, "done": True})
    staging.commit()


def _batches(items: Iterable[Row | Rejected]) -> Iterator[list[Row | Rejected]]:
    """Batches that never divide the rows of one annotation."""
    batch: list[Row | Rejected] = []
    for item in items:
        if len(batch) >= _BATCH and (item.file, item.line) != (batch[-1].file, batch[-1].line):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


def _import_merged(staging: Staging, config: BuildConfig, number: int, root: Path) -> int:
    """Add a source whose rows can only be distinguished together, in one go."""
    source, step, read = config.sources[number], f"import/{number}", _reader(config, number, None)
    if (done := staging.progress(step)) is not None:
        return done
    rows: list[Row] = []
    for place, path in enumerate(source.paths):
        items = list(read(Path(path)))
        here = [item for item in items if isinstance(item, Row)]
        staging.reject(item for item in items if isinstance(item, Rejected))
        staging.note(f"{step}/{place}", {"rows": len(here)})
        good, bad = check_contents(here)
        staging.reject(bad)
        place = _Placer(config, Path(path), root)
        rows.extend(
            dataclasses.replace(row, pair=dataclasses.replace(row.pair, evidence=place(row.pair.evidence)))
            for row in good
        )
    merge = IMPORTERS[source.format].merge
    assert merge is not None, "only formats with a merge are read together"
    together, conflicts = merge(rows, _options(source, number))
    staging.reject(conflicts)
    staging.add(together)
    merged = len(rows) - len(together) - sum(item.pairs or 0 for item in conflicts)
    staging.note(step, merged)
    staging.commit()
    return merged


class _Placer:
    """Gives evidence of one file media paths relative to the data set's root, and marks media absent where they are."""

    def __init__(self, config: BuildConfig, path: Path, root: Path) -> None:
        self._absent = config.media == "absent"
        self._folder = path.absolute().parent if config.media_root is None else root
        self._root = root
        self._placed: dict[tuple[Evidence, ...], tuple[Evidence, ...]] = {}
        self._latest: tuple[Any, Any] = (None, None)

    def __call__(self, evidence: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
        if evidence is self._latest[0]:
            return self._latest[1]
        placed = self._placed.get(evidence)
        if placed is None:
            if len(self._placed) >= _CACHED_PLACES:
                self._placed.clear()
            placed = self._placed[evidence] = tuple(self._place(part) for part in evidence)
        self._latest = (evidence, placed)
        return placed

    def _place(self, part: Evidence) -> Evidence:
        if not isinstance(part, (VideoSegment, Image)):
            return part
        if isinstance(part, VideoSegment):  # 1 and 1.0 are the same time, and must be the same text
            end_s = None if part.end_s is None else float(part.end_s)
            part = dataclasses.replace(part, start_s=float(part.start_s), end_s=end_s)
        if self._folder != self._root and not os.path.isabs(part.path):
            part = dataclasses.replace(part, path=os.path.relpath(self._folder / part.path, self._root))
        return dataclasses.replace(part, absent=True) if self._absent and isinstance(part, VideoSegment) else part


def check_options(config: BuildConfig) -> None:
    """Raise `ConfigError` unless every source's options are those of its format; touches no annotation file."""
    for number, source in enumerate(config.sources):
        _options(source, number)
        if source.statements != "template" and not IMPORTERS[source.format].writes_statements:
            known = sorted(name for name, importer in IMPORTERS.items() if importer.writes_statements)
            raise ConfigError(f"sources[{number}].statements: format writes none, got {source.format}; one of {known}")
        if source.statements != "template" and config.language_model is None:
            raise ConfigError(
                f"language_model: required for statements={source.statements}, got none; name the endpoint and model"
            )


def _options(source: SourceConfig, number: int) -> Any:
    return IMPORTERS[source.format].parse_options(source.options, f"sources[{number}].options")


def _reader(
    config: BuildConfig, number: int, model: LanguageModel | None
) -> Callable[[Path], Iterator[Row | Rejected]]:
    """What reads one annotation file of a source."""
    source = config.sources[number]
    read, options = IMPORTERS[source.format].read, _options(source, number)
    if source.statements == "template":
        return lambda path: read(path, options)
    assert model is not None, "check_options was not called"
    workers, fall_back = model.config.concurrency, source.statements == "model_or_template"
    return lambda path: read_with_statements(read, path, options, model, workers, fall_back)
