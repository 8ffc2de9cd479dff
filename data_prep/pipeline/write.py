"""The last step of a build: Parquet shards, the manifest's contents, the claim-only probe and the card's numbers.

Rows that share evidence lie side by side, and each shard is written once.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import random
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...core import SPLITS, own_name
from ..dataset import MAX_ROWS, CardStatistics, claim_only_probe, shard_entry, shard_name, shortcut_table, write_columns
from ..media import media_table, run_guarded
from ..negatives import Grammar
from .staging import Staging
from .usable_splits import few_groups

_COLUMNS = f"""r.id, r.claim, v.json, r.label, r.context, r.soft_label,
    CASE WHEN g.split IN {SPLITS} THEN g.split END, r.grp, r.role, r.origin, r.modality,
    r.weight, r.teacher_margin, r.meta"""
_MANY = 8  # shards; for fewer, starting processes takes longer than it saves
_SHARD_LIMIT_S = 3600.0


@dataclass(frozen=True)
class _Plan:
    """A shard: its split, the first and last number of its evidence, and its rows."""

    split: str
    first_e: int
    last_e: int
    rows: int


def write_staging(
    staging: Staging, folder: Path, rows_per_shard: int, workers: int | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Write every shard that a build killed before has not written: {split: [{file, rows, sha256}]}.

    Many shards are written by `workers` processes (one per processor if None), a few in this one.
    """
    staging.index("rows_evidence")
    plans = list(_plans(staging, rows_per_shard))
    staging.commit()
    named: list[tuple[_Plan, str]] = []
    for split in staging.splits():
        mine = [plan for plan in plans if plan.split == split]
        named += [(plan, shard_name(split, number, len(mine))) for number, plan in enumerate(mine)]
    todo = [(plan, name) for plan, name in named if not (_entry(staging, name) and (folder / name).is_file())]
    with tqdm(total=sum(plan.rows for plan in plans), desc="writing shards", unit="row", mininterval=1.0) as bar:
        bar.update(sum(plan.rows for plan in plans) - sum(plan.rows for plan, _ in todo))
        for at, entry in _written(staging.path, folder, todo, workers or os.cpu_count() or 1):
            staging.note(f"shard/{todo[at][1]}", entry)
            staging.commit()
            bar.update(todo[at][0].rows)
    shards: dict[str, list[dict[str, Any]]] = {}
    for plan, name in named:
        shards.setdefault(plan.split, []).append(_entry(staging, name))
    return shards


def _entry(staging: Staging, name: str) -> Any:
    return staging.progress(f"shard/{name}")


def _written(
    staging: Path, folder: Path, todo: list[tuple[_Plan, str]], workers: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number in `todo`, entry) of each shard as it is done."""
    write = functools.partial(_write, staging, folder)
    if len(todo) < _MANY or workers == 1:
        yield from ((at, write(item)) for at, item in enumerate(todo))
        return
    for outcome in run_guarded(write, todo, workers, _SHARD_LIMIT_S, lambda item: item[1]):
        if outcome.value is None:
            raise OSError(f"{folder}: a shard was not written, got {outcome.error}; run the build again to go on")
        yield outcome.index, outcome.value


def _plans(staging: Staging, rows_per_shard: int) -> Iterator[_Plan]:
    """Stretches of evidence with at most `rows_per_shard` rows, or one piece of evidence with more."""
    staging.db.execute("DROP TABLE IF EXISTS planned")
    staging.db.execute(
        "CREATE TABLE planned (split TEXT, e INTEGER, rows INTEGER, PRIMARY KEY (split, e)) WITHOUT ROWID"
    )
    staging.db.execute("""INSERT INTO planned SELECT g.split, r.e, COUNT(*) FROM rows r JOIN groups g ON g.name = r.grp
        WHERE r.out = 0 GROUP BY g.split, r.e""")
    staging.db.execute("CREATE INDEX planned_evidence ON planned (e)")
    for split in staging.splits():
        first, last, total = None, 0, 0
        for e, rows in staging.db.execute(
            "SELECT e, rows FROM planned WHERE split = ? ORDER BY e", (split,)
        ).fetchall():
            if first is not None and total + rows > rows_per_shard:
                yield _Plan(split, first, last, total)
                first, total = None, 0
            first = e if first is None else first
            last, total = e, total + rows
        if first is not None:
            yield _Plan(split, first, last, total)


def _write(staging: Path, folder: Path, item: tuple[_Plan, str]) -> dict[str, Any]:
    plan, name = item
    with contextlib.closing(sqlite3.connect(f"{staging.absolute().as_uri()}?mode=ro", uri=True)) as db:
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


def staging_counts(staging: Staging, statistics: CardStatistics) -> dict[str, dict[str, Any]]:
    """Rows, groups, segments, and rows per label, role, origin and modality: of every split with rows, and of "all".

    Wants the shards to be planned (`shards.write_staging`).
    """
    columns = ("label", "role", "origin", "modality")
    counts: dict[str, dict[str, Any]] = {}
    for stratum, rows in statistics.strata.items():
        for part in (stratum.split, "all"):
            mine = counts.setdefault(str(part), {"rows": 0, **{name: Counter() for name in columns}})
            mine["rows"] += rows
            for name in columns:
                mine[name][str(getattr(stratum, name))] += rows
    groups = Counter(staging.split_of(statistics.group_rows))
    segments = dict(staging.db.execute("SELECT split, COUNT(*) FROM planned GROUP BY split"))
    segments["all"] = staging.value("SELECT COUNT(DISTINCT e) FROM planned")
    groups["all"] = len(statistics.group_rows)
    for part, mine in counts.items():
        sorted_ = {name: dict(sorted(mine[name].items())) for name in columns}
        counts[part] = {"rows": mine["rows"], "groups": groups[part], "segments": segments[part], **sorted_}
    return {part: counts[part] for part in (*staging.splits(), "all") if part in counts}


def media_in_several_splits(staging: Staging) -> list[str]:
    """Media files that different groups carried into different splits, where the rules allow it; copies too."""
    query = """WITH shown AS (SELECT m.path, p.split, COALESCE(f.content, s.content, m.path) AS content
            FROM media m JOIN planned p ON p.e = m.e LEFT JOIN files f ON f.path = m.path
            LEFT JOIN sounds s ON s.path = m.path)
        SELECT DISTINCT path FROM shown WHERE content IN
            (SELECT content FROM shown GROUP BY content HAVING COUNT(DISTINCT split) > 1) ORDER BY path"""
    return [path for (path,) in staging.db.execute(query)]


def git_revision() -> str | None:
    """The commit of this code; None where it is not a tracked file of a git work tree (e.g. an installed wheel)."""
    here = Path(__file__).resolve()

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", here.name)
        return git("rev-parse", "HEAD")
    except (OSError, subprocess.SubprocessError):
        return None


def versions(further: Sequence[str] = ()) -> dict[str, str]:
    """Versions of what a data set depends on; `further` names packages that not every build uses."""
    names = ("proofreel", "av", "decord", "numpy", "pyarrow", "scikit-learn", *further)
    numbers = {"python": platform.python_version()}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            numbers[name] = importlib.metadata.version(name)
    return numbers


def summary(manifest: dict[str, Any], output: Path) -> str:
    """The table and the notes a build ends with."""
    lines = [f"{'split':<12}{'rows':>8}{'supported':>11}{'groups':>8}{'segments':>10}"]
    for name, counts in manifest["counts"].items():
        share = counts["label"].get("supported", 0) / counts["rows"]
        lines.append(f"{name:<12}{counts['rows']:>8}{share:>11.1%}{counts['groups']:>8}{counts['segments']:>10}")
    wanted = [] if "cross" in manifest else [split for split in SPLITS if manifest["config"]["splits"][split]]
    if absent := [split for split in wanted if split not in manifest["counts"]]:
        lines.append(f"empty splits: {', '.join(absent)} (too few groups)")
    unusable = manifest["unusable_splits"]
    if unusable:
        lines.extend(f"warning: {problem}" for problem in unusable["problems"].values())
        lines.append(f"  {unusable['remedy']}")
    elif note := few_groups(manifest["counts"]):
        lines.append(f"note: {note}")
    notes = {"rejected": manifest["rejected"], "left out": manifest["left_out"]}
    for title, counts in notes.items():
        lines.extend(f"{title}: {number} x {reason}" for reason, number in counts.items() if number)
    if by := manifest.get("altered_by"):
        used = (f"{name} {manifest['versions'][name]}" for name in Grammar.PACKAGES if name in manifest["versions"])
        lines.append(f"claims altered by: {by}" + (f" ({', '.join(used)})" if by != "rules" else ""))
    if manifest["merged_repeats"]:
        lines.append(f"merged: {manifest['merged_repeats']} x repeat of a judged pair")
    if leaks := manifest["media_in_several_splits"]:
        lines.append(f"warning: {len(leaks)} media files are in several splits, e.g. {leaks[0]}; give them one group")
    if manifest["media_files"]:
        lines.append(media_table(manifest["media_files"]))
    if manifest["media"] == "absent":
        lines.append("media: absent (annotation-only: these rows can be counted and split, not trained on)")
    return "\n".join([*lines, f"wrote {output}"])


def training_command(manifest: dict[str, Any], output: Path | str) -> tuple[str, ...]:
    """What trains on a data set, in a folder or at an address, by the preset for what it shows."""
    files = (manifest.get("media_files") or {}).get("files", {"videos": 1, "images": 0})
    preset = "qwen25vl_7b_lora" if files["videos"] + files["images"] else "qwen25_7b_text_lora"
    beside = output.parent if isinstance(output, Path) else Path("runs")
    run = beside / f"{own_name(str(output))}-run"
    return ("sft", "--config", f"configs/{preset}.yaml", "--dataset_dir", str(output), "--output_dir", str(run))


_KEPT = "FROM rows r JOIN groups g ON g.name = r.grp JOIN evidence v ON v.e = r.e WHERE r.out = 0"


def statistics_of(staging: Staging) -> CardStatistics:
    """Counts over all kept rows, in one pass."""
    statistics = CardStatistics()
    total = staging.value("SELECT COUNT(*) FROM rows WHERE out = 0")
    query = f"SELECT g.split, r.label, r.role, r.origin, r.modality, r.grp, r.claim, v.json {_KEPT} ORDER BY r.n"
    for row in tqdm(staging.db.execute(query), desc="counting", total=total, unit="row", mininterval=1.0):
        statistics.add_stored(*row)
    return statistics


_MADE_FROM = "json_extract(meta, '$.claim_of')"


def probe_staging(staging: Staging, seed: int) -> dict[str, Any]:
    """The claim-only probe on the kept rows, at most `MAX_ROWS` of them drawn by the seed; also prints its table."""
    numbers = [n for (n,) in staging.db.execute("SELECT n FROM rows WHERE out = 0 AND label IS NOT NULL ORDER BY n")]
    total = len(numbers)
    if total > MAX_ROWS:
        numbers = sorted(random.Random(seed).sample(numbers, MAX_ROWS))
    rows = [
        staging.db.execute(f"SELECT claim, label, grp, role, origin, {_MADE_FROM} FROM rows WHERE n = {n}").fetchone()
        for n in numbers
    ]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * 6
    names = {name for name in columns[5] if name is not None}
    claim_of = {name: claim for name, claim in staging.db.execute("SELECT id, claim FROM rows") if name in names}
    columns[5] = [claim_of.get(name) for name in columns[5]]
    report = claim_only_probe(*columns, seed=seed)
    print(shortcut_table(report))
    return {**report.as_dict(), "rows": total}
