"""Write the kept rows of the spool as Parquet shards, rows that share evidence side by side, each shard once."""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..core.pairs import SPLITS
from .dataset import shard_entry, shard_name, write_columns
from .guarded import run_guarded
from .spool import Spool

_COLUMNS = """r.id, r.claim, v.json, r.label, r.context, r.soft_label, g.split, r.grp, r.role, r.origin, r.modality,
    r.weight, r.teacher_margin, r.meta"""
_MANY = 8  # shards: fewer are not worth starting processes for
_SHARD_LIMIT_S = 3600.0


@dataclass(frozen=True)
class _Plan:
    """A shard: its split, the first and last number of its evidence, and its rows."""

    split: str
    first_e: int
    last_e: int
    rows: int


def write_spool(
    spool: Spool, folder: Path, rows_per_shard: int, workers: int | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Write every shard that a build killed before has not written: {split: [{file, rows, sha256}]}.

    Many shards are written by `workers` processes (one per processor if None), a few in this one.
    """
    spool.index("rows_evidence")
    plans = list(_plans(spool, rows_per_shard))
    spool.commit()
    named: list[tuple[_Plan, str]] = []
    for split in SPLITS:
        mine = [plan for plan in plans if plan.split == split]
        named += [(plan, shard_name(split, number, len(mine))) for number, plan in enumerate(mine)]
    todo = [(plan, name) for plan, name in named if not (_entry(spool, name) and (folder / name).is_file())]
    with tqdm(total=sum(plan.rows for plan in plans), desc="writing shards", unit="row", mininterval=1.0) as bar:
        bar.update(sum(plan.rows for plan in plans) - sum(plan.rows for plan, _ in todo))
        for at, entry in _written(spool.path, folder, todo, workers or os.cpu_count() or 1):
            spool.note(f"shard/{todo[at][1]}", entry)
            spool.commit()
            bar.update(todo[at][0].rows)
    shards: dict[str, list[dict[str, Any]]] = {}
    for plan, name in named:
        shards.setdefault(plan.split, []).append(_entry(spool, name))
    return shards


def _entry(spool: Spool, name: str) -> Any:
    return spool.progress(f"shard/{name}")


def _written(
    spool: Path, folder: Path, todo: list[tuple[_Plan, str]], workers: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number in `todo`, entry) of each shard as it is done."""
    write = functools.partial(_write, spool, folder)
    if len(todo) < _MANY or workers == 1:
        yield from ((at, write(item)) for at, item in enumerate(todo))
        return
    for outcome in run_guarded(write, todo, workers, _SHARD_LIMIT_S, lambda item: item[1]):
        if outcome.value is None:
            raise OSError(f"{folder}: a shard was not written, got {outcome.error}; run the build again to go on")
        yield outcome.index, outcome.value


def _plans(spool: Spool, rows_per_shard: int) -> Iterator[_Plan]:
    """Stretches of evidence with at most `rows_per_shard` rows, or one piece of evidence with more."""
    spool.db.execute("DROP TABLE IF EXISTS planned")
    spool.db.execute("CREATE TABLE planned (split TEXT, e INTEGER, rows INTEGER, PRIMARY KEY (split, e)) WITHOUT ROWID")
    spool.db.execute("""INSERT INTO planned SELECT g.split, r.e, COUNT(*) FROM rows r JOIN groups g ON g.name = r.grp
        WHERE r.out = 0 GROUP BY g.split, r.e""")
    spool.db.execute("CREATE INDEX planned_evidence ON planned (e)")
    for split in SPLITS:
        first, last, total = None, 0, 0
        for e, rows in spool.db.execute("SELECT e, rows FROM planned WHERE split = ? ORDER BY e", (split,)).fetchall():
            if first is not None and total + rows > rows_per_shard:
                yield _Plan(split, first, last, total)
                first, total = None, 0
            first = e if first is None else first
            last, total = e, total + rows
        if first is not None:
            yield _Plan(split, first, last, total)


def _write(spool: Path, folder: Path, item: tuple[_Plan, str]) -> dict[str, Any]:
    plan, name = item
    with contextlib.closing(sqlite3.connect(f"{spool.absolute().as_uri()}?mode=ro", uri=True)) as db:
        rows = db.execute(
            f"""SELECT {_COLUMNS} FROM planned p CROSS JOIN rows r ON r.e = p.e JOIN groups g ON g.name = r.grp
            JOIN evidence v ON v.e = p.e WHERE p.split = ? AND p.e BETWEEN ? AND ? AND g.split = p.split AND r.out = 0
            ORDER BY p.e, r.n""",
            (plan.split, plan.first_e, plan.last_e),
        ).fetchall()
    temporary = (folder / name).with_suffix(".tmp")
    write_columns(temporary, list(zip(*rows, strict=True)))
    temporary.rename(folder / name)
    return shard_entry(folder / name, len(rows))
