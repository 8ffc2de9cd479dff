"""Look over the finished rows of a build: the claim-only probe, and the numbers of the data set card."""

from __future__ import annotations

import random
from typing import Any

from tqdm import tqdm

from .card_statistics import CardStatistics
from .shortcut import MAX_ROWS, claim_only_probe, shortcut_table
from .spool import Spool

_KEPT = "FROM rows r JOIN groups g ON g.name = r.grp JOIN evidence v ON v.e = r.e WHERE r.out = 0"


def statistics_of(spool: Spool) -> CardStatistics:
    """Counts over all kept rows, in one pass."""
    statistics = CardStatistics()
    total = spool.value("SELECT COUNT(*) FROM rows WHERE out = 0")
    query = f"SELECT g.split, r.label, r.role, r.origin, r.modality, r.grp, r.claim, v.json {_KEPT} ORDER BY r.n"
    for row in tqdm(spool.db.execute(query), desc="counting", total=total, unit="row", mininterval=1.0):
        statistics.add_stored(*row)
    return statistics


def probe_spool(spool: Spool, seed: int) -> dict[str, Any]:
    """The claim-only probe on the kept rows, at most `MAX_ROWS` of them drawn by the seed; also prints its table."""
    numbers = [n for (n,) in spool.db.execute("SELECT n FROM rows WHERE out = 0 AND label IS NOT NULL ORDER BY n")]
    total = len(numbers)
    if total > MAX_ROWS:
        numbers = sorted(random.Random(seed).sample(numbers, MAX_ROWS))
    rows = [
        spool.db.execute(f"SELECT claim, label, grp, role, origin FROM rows WHERE n = {n}").fetchone() for n in numbers
    ]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * 5
    report = claim_only_probe(*columns, seed=seed)
    print(shortcut_table(report))
    return {**report.as_dict(), "rows": total}
