"""Write the kept rows of the spool as Parquet shards, rows that share evidence side by side, each shard once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .dataset import shard_entry, shard_name, write_columns
from .rows import SPLITS
from .spool import Spool

_COLUMNS = """r.id, r.claim, v.json, r.label, r.context, r.soft_label, g.split, r.grp, r.role, r.origin, r.modality,
    r.weight, r.teacher_margin, r.meta"""


@dataclass(frozen=True)
class _Plan:
    """A shard: its split, the first and last number of its evidence, and its rows."""

    split: str
    first_e: int
    last_e: int
    rows: int


def write_spool(spool: Spool, folder: Path, rows_per_shard: int) -> dict[str, list[dict[str, Any]]]:
    """Write every shard that a build killed before has not written: {split: [{file, rows, sha256}]}."""
    spool.index("rows_evidence")
    plans = list(_plans(spool, rows_per_shard))
    shards: dict[str, list[dict[str, Any]]] = {}
    with tqdm(total=sum(plan.rows for plan in plans), desc="writing shards", unit="row", mininterval=1.0) as bar:
        for split in SPLITS:
            mine = [plan for plan in plans if plan.split == split]
            for number, plan in enumerate(mine):
                entry = _write(spool, folder / shard_name(split, number, len(mine)), plan)
                shards.setdefault(split, []).append(entry)
                bar.update(plan.rows)
    return shards


def _plans(spool: Spool, rows_per_shard: int) -> Iterator[_Plan]:
    """Stretches of evidence with at most `rows_per_shard` rows, or one piece of evidence with more."""
    spool.db.execute("DROP TABLE IF EXISTS temp.planned")
    spool.db.execute("CREATE TEMP TABLE planned (split TEXT, e INTEGER, rows INTEGER, PRIMARY KEY (split, e))")
    spool.db.execute("""INSERT INTO planned SELECT g.split, r.e, COUNT(*) FROM rows r JOIN groups g ON g.name = r.grp
        WHERE r.out = 0 GROUP BY g.split, r.e""")
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


def _write(spool: Spool, path: Path, plan: _Plan) -> dict[str, Any]:
    step = f"shard/{path.name}"
    if (entry := spool.progress(step)) is not None and path.is_file():
        return entry
    rows = spool.db.execute(
        f"""SELECT {_COLUMNS} FROM planned p CROSS JOIN rows r ON r.e = p.e JOIN groups g ON g.name = r.grp
        JOIN evidence v ON v.e = p.e WHERE p.split = ? AND p.e BETWEEN ? AND ? AND g.split = p.split AND r.out = 0
        ORDER BY p.e, r.n""",
        (plan.split, plan.first_e, plan.last_e),
    ).fetchall()
    temporary = path.with_suffix(".tmp")
    write_columns(temporary, list(zip(*rows, strict=True)))
    temporary.rename(path)
    entry = shard_entry(path, len(rows))
    spool.note(step, entry)
    spool.commit()
    return entry
