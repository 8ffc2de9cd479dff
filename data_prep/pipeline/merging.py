"""The first step of a merge: the rows of all shards in the order of the annotation files, as one build would have read
them.

Rows are copied as they are stored, without making pairs of them. Evidence and rows get the numbers that one build would
give, so every later step, and every byte that it writes, is the same.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import sqlite3
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...core import RowError
from .config import BuildConfig
from .sharding import ROWS
from .sources import SourceFile, merge_source, source_files
from .staging import JUDGMENT_COLUMNS, KEPT, REJECTED_COLUMNS, ROW_COLUMNS, Staging, evidence_of

_BATCH = 20_000
_CACHED_EVIDENCE = 20_000


def import_shards(staging: Staging, config: BuildConfig, directories: Sequence[Path]) -> int:
    """Copy what the shards hold into the staging database of the merge; what was committed is not copied again.

    Returns:
        How many repeated judgments were merged into one row.
    """
    merged = 0
    with contextlib.ExitStack() as stack:
        shards = [stack.enter_context(contextlib.closing(_Shard(path))) for path in directories]
        _copy_probed(staging, shards)
        files = source_files(config)
        for number in range(len(config.sources)):
            for file in files:
                if file.source == number:
                    _copy_file(staging, shards, file)
            merged += merge_source(staging, config, number)
    return merged


class _Shard:
    """The database of one shard, read in order."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.db = sqlite3.connect(f"{(directory / ROWS).absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        self.files = {number: file for file, number in (self.progress("files") or {}).items()}
        self._evidence: dict[int, int] = {}

    def close(self) -> None:
        """Close the database."""
        self.db.close()

    def progress(self, step: str) -> Any:
        """What the shard noted of a step, None if nothing."""
        row = self.db.execute("SELECT value FROM progress WHERE step = ?", (step,)).fetchone()
        return None if row is None else json.loads(row[0])

    def between(self, table: str, columns: str, by: str, first: int, last: int) -> Iterator[tuple[Any, ...]]:
        """The rows of a table whose `by` is one of these numbers, in its order."""
        query = f"SELECT {by}, {columns} FROM {table} WHERE {by} BETWEEN ? AND ? ORDER BY {by}, rowid"
        return self.db.execute(query, (first, last))

    def evidence(self, staging: Staging, e: int) -> int:
        """The number that evidence of this shard has in the merge."""
        number = self._evidence.get(e)
        if number is None:
            if len(self._evidence) >= _CACHED_EVIDENCE:
                self._evidence.clear()
            (text,) = self.db.execute("SELECT json FROM evidence WHERE e = ?", (e,)).fetchone()
            number = self._evidence[e] = staging.evidence_number(evidence_of(text))
        return number


def _copy_probed(staging: Staging, shards: Sequence[_Shard]) -> None:
    """What the media files are; two shards that show a file must have found the same."""
    if staging.progress("probed") is not None:
        return
    for shard in shards:
        for kind, path, text in shard.db.execute("SELECT kind, path, json FROM probed"):
            known = staging.db.execute("SELECT json FROM probed WHERE kind = ? AND path = ?", (kind, path)).fetchone()
            if known is None:
                staging.db.execute("INSERT INTO probed VALUES (?, ?, ?)", (kind, path, text))
            elif known[0] != text:
                raise RowError(
                    f"{shard.directory}: the media file differs from what another shard found, got {path!r}; give "
                    "every machine the same file and build the shards that show it again"
                )
    staging.note("probed", True)
    staging.commit()


def _copy_file(staging: Staging, shards: Sequence[_Shard], file: SourceFile) -> None:
    """Copy what the shards hold of one annotation file, a batch at a time."""
    first, last = file.places.start, file.places.stop - 1
    state = staging.progress(file.step)
    if state is None:
        rejected = _in_order(shards, "rejected", REJECTED_COLUMNS, "place", first, last)
        staging.reject_copies(columns for _, _, *columns in rejected)
        judgments = _in_order(shards, "judgments", JUDGMENT_COLUMNS, "n", first, last)
        staging.judge_copies((place, *columns) for place, _, *columns in judgments)
        n_rows = sum((shard.progress(file.step) or {"rows": 0})["rows"] for shard in shards)
        state = {"after": first - 1, "rows": n_rows, "done": False}
        staging.note(file.step, state)
        staging.commit()
    if state["done"]:
        return
    rows = _in_order(shards, "rows", ROW_COLUMNS, "n", state["after"] + 1, last)
    rows = iter(tqdm(rows, desc=f"merging {Path(file.path).name}", unit="row", mininterval=1.0))
    while batch := list(itertools.islice(rows, _BATCH)):
        copies: list[tuple[Any, ...]] = []
        for _, at, key, e, _, number, *rest in batch:
            shard = shards[at]
            place = staging.file_number(shard.files[number])
            copies.append((key, shard.evidence(staging, e), KEPT, place, *rest))
        staging.add_copies(copies)
        state = {**state, "after": batch[-1][0]}
        staging.note(file.step, state)
        staging.commit()
    staging.note(file.step, {**state, "done": True})
    staging.commit()


def _in_order(
    shards: Sequence[_Shard], table: str, columns: str, by: str, first: int, last: int
) -> Iterator[tuple[Any, ...]]:
    """(place, number of the shard, columns ...) of what all shards hold between two places, by place."""

    def of(number: int, shard: _Shard) -> Iterator[tuple[Any, ...]]:
        return ((place, number, *rest) for place, *rest in shard.between(table, columns, by, first, last))

    return heapq.merge(*itertools.starmap(of, enumerate(shards)), key=itemgetter(0))
