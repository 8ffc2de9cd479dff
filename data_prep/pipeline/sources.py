"""The first step of a build: read the annotation files of any format into the staging database.

Media paths become relative to one root.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...core import (
    Audio,
    ConfigError,
    Evidence,
    VideoSegment,
    is_address,
    with_media_paths,
)
from ..importers import IMPORTERS, Rejected, Row
from ..language import LanguageModel, read_with_statements
from .config import BuildConfig, SourceConfig
from .sharding import Shard
from .staging import Staging
from .validate import check_contents

_BATCH = 10_000
_MOST_ITEMS = 1 << 40  # in one file
_CACHED_PLACES = 20_000
_MOST_NAME_CHARS = 200


@dataclass(frozen=True)
class SourceFile:
    """One annotation file of a config.

    Attributes:
        source: number of its source.
        at: number in its source.
        number: number over all sources.
        path: where it lies.
    """

    source: int
    at: int
    number: int
    path: str

    @property
    def step(self) -> str:
        """The name under which its progress is noted."""
        return f"import/{self.source}/{self.at}"

    @property
    def places(self) -> range:
        """The numbers of its annotations, over all files."""
        return range(self.number * _MOST_ITEMS, (self.number + 1) * _MOST_ITEMS)


def source_files(config: BuildConfig) -> list[SourceFile]:
    """Every annotation file a (resolved) config names, in its order."""
    named = [(number, at, path) for number, s in enumerate(config.sources) for at, path in enumerate(s.paths)]
    return [SourceFile(source, at, number, path) for number, (source, at, path) in enumerate(named)]


def import_sources(staging: Staging, config: BuildConfig, root: Path, model: LanguageModel | None = None) -> int:
    """Read every source of a (resolved) config into the staging database; media paths become relative to `root`.

    What was committed before a kill is not added again.

    Returns:
        How many repeated judgments were merged into one row.
    """
    merged = 0
    for number in range(len(config.sources)):
        for file in source_files(config):
            if file.source == number:
                _FileImport(staging, config, file, root).run(_reader(config, number, model))
        merged += merge_source(staging, config, number)
    return merged


def import_shard(staging: Staging, config: BuildConfig, root: Path, model: LanguageModel | None, shard: Shard) -> None:
    """Read what one shard of a build has of the sources. The rows are numbered by their places in the files."""
    for file in source_files(config):
        if shard.has_file(file.number):
            _FileImport(staging, config, file, root, shard).run(_reader(config, file.source, model))


def source_entries(staging: Staging, config: BuildConfig, digests: dict[str, str]) -> list[dict[str, Any]]:
    """Per annotation file its format, path, SHA-256 and number of rows, for the manifest."""
    entries = []
    for file in source_files(config):
        rows, name = staging.progress(file.step)["rows"], config.sources[file.source].format
        entries.append({"format": name, "path": file.path, "sha256": digests[file.path], "rows": rows})
    return entries


def other_files(config: BuildConfig, is_read: Callable[[int], bool] = lambda number: True) -> list[str]:
    """Files and folders a (resolved) config names besides annotations: transcripts, durations, word groups, ...

    `is_read`: whether the annotation file with this number is read here.
    """
    beside = {
        Path(file.path).parent / value
        for file in source_files(config)
        if is_read(file.number)
        for value in config.sources[file.source].options.values()
        if isinstance(value, str) and 0 < len(value) < _MOST_NAME_CHARS
    }
    files = {str(path) for path in beside if path.exists()}
    return sorted(files if config.negatives.word_groups is None else {*files, config.negatives.word_groups})


@dataclass(frozen=True)
class _FileImport:
    """An annotation file on its way into the staging database; of a build's shard, only what is the shard's."""

    staging: Staging
    config: BuildConfig
    file: SourceFile
    root: Path
    shard: Shard | None = None

    def run(self, read: Callable[[Path], Iterator[Row | Rejected]]) -> None:
        """Add the rows, a batch at a time, each batch committed with the number of items it ends at."""
        staging, path, step = self.staging, Path(self.file.path), self.file.step
        state = staging.progress(step) or {"items": 0, "rows": 0, "done": False}
        if state["done"]:
            return
        place = _Placer(self.config, path, self.root)
        with tqdm(desc=f"reading {path.name}", unit="row", mininterval=1.0) as bar:
            items = 0
            for batch in _batches(read(path)):
                start, items = items, items + len(batch)
                bar.update(len(batch))
                if items <= state["items"]:
                    continue
                rows = self._add(batch, self.file.places[start], place)
                state = {"items": items, "rows": state["rows"] + rows, "done": False}
                staging.note(step, state)
                staging.commit()
        staging.note(step, {**state, "done": True})
        staging.commit()

    def _add(self, batch: Sequence[Row | Rejected], first: int, place: _Placer) -> int:
        """Check and add a batch, annotation by annotation; returns how many rows it had."""
        good: list[Row] = []
        numbers: list[int] = []
        n_rows = 0
        for _, items in itertools.groupby(batch, lambda item: (item.file, item.line)):
            annotation = list(items)
            here, first = first, first + len(annotation)
            if self.shard is not None and not self.shard.has(annotation):
                continue
            rows = [item for item in annotation if isinstance(item, Row)]
            n_rows += len(rows)
            sound, bad = check_contents(rows)
            if bad or len(rows) < len(annotation):
                self.staging.reject([*(i for i in annotation if isinstance(i, Rejected)), *bad], here)
            good += sound
            numbers += range(here, here + len(sound))
        if (merge := IMPORTERS[self.config.sources[self.file.source].format].merge) is not None:
            self.staging.add_judgments(good, merge.key, place, numbers)
            for row in good if self.shard is not None else ():  # whose media the shard looks at
                self.staging.evidence_number(place(row.pair.evidence))
        else:
            self.staging.add(good, place, None if self.shard is None else numbers)
        return n_rows


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


def merge_source(staging: Staging, config: BuildConfig, number: int) -> int:
    """Make rows of a source's judgments, where its format has any; returns how many were merged into others."""
    source, step = config.sources[number], f"import/{number}"
    merge = IMPORTERS[source.format].merge
    if merge is None or (done := staging.progress(step)) is not None:
        return 0 if merge is None else done
    places = [file.places for file in source_files(config) if file.source == number]
    first, last, options = places[0].start, places[-1].stop - 1, _options(source, number)
    known, rejected = merge.known(staging.judgments(first, last), options)
    state = staging.progress(f"{step}/joined")
    if state is None:
        staging.reject(rejected)
        state = {"after": first - 1, "merged": 0}
    pending: list[Row] = []
    for n, same in tqdm(
        staging.joint_judgments(first, last, state["after"]), desc="joining judgments", unit="row", mininterval=1.0
    ):
        items = list(merge.join(same, options, known))
        rows, conflicts = [i for i in items if isinstance(i, Row)], [i for i in items if isinstance(i, Rejected)]
        merged = len(same) - len(rows) - sum(item.pairs or 0 for item in conflicts)
        state = {"after": n, "merged": state["merged"] + merged}
        staging.reject(conflicts)
        pending += rows
        if len(pending) >= _BATCH:
            staging.add(pending)
            staging.note(f"{step}/joined", state)
            staging.commit()
            pending.clear()
    staging.add(pending)
    staging.note(step, state["merged"])
    staging.commit()
    return state["merged"]


class _Placer:
    """Gives evidence of one file media paths relative to the data set's root, and marks media absent where they are."""

    def __init__(self, config: BuildConfig, path: Path, root: Path) -> None:
        self._absent = config.media == "absent"
        media_root = config.media_root or ""
        self._address = media_root.rstrip("/") if is_address(media_root) else None
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
        if isinstance(part, (VideoSegment, Audio)):  # 1 and 1.0 are the same time, and must be the same text
            end_s = None if part.end_s is None else float(part.end_s)
            part = dataclasses.replace(part, start_s=float(part.start_s), end_s=end_s)
        if self._address is not None or self._folder != self._root:
            part = with_media_paths(part, self._from_root)
        return dataclasses.replace(part, absent=True) if self._absent and isinstance(part, VideoSegment) else part

    def _from_root(self, path: str) -> str:
        if self._address is not None and not os.path.isabs(path):
            return f"{self._address}/{path}"
        return path if os.path.isabs(path) else os.path.relpath(self._folder / path, self._root)


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
