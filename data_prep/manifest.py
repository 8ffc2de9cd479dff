"""What a build says about its data set: the manifest's contents, and the table it ends with."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from ..core.pairs import SPLITS
from .card_statistics import CardStatistics
from .probing import media_table
from .spool import Spool


def spool_counts(spool: Spool, statistics: CardStatistics) -> dict[str, dict[str, Any]]:
    """Rows, groups, segments, and rows per label, role, origin and modality: of every split with rows, and of "all".

    Wants the shards to be planned (`shards.write_spool`).
    """
    columns = ("label", "role", "origin", "modality")
    counts: dict[str, dict[str, Any]] = {}
    for cell, rows in statistics.cells.items():
        for part in (cell.split, "all"):
            mine = counts.setdefault(str(part), {"rows": 0, **{name: Counter() for name in columns}})
            mine["rows"] += rows
            for name in columns:
                mine[name][str(getattr(cell, name))] += rows
    groups = Counter(spool.split_of(statistics.group_rows))
    segments = dict(spool.db.execute("SELECT split, COUNT(*) FROM planned GROUP BY split"))
    segments["all"] = spool.value("SELECT COUNT(DISTINCT e) FROM planned")
    groups["all"] = len(statistics.group_rows)
    for part, mine in counts.items():
        sorted_ = {name: dict(sorted(mine[name].items())) for name in columns}
        counts[part] = {"rows": mine["rows"], "groups": groups[part], "segments": segments[part], **sorted_}
    return {part: counts[part] for part in (*SPLITS, "all") if part in counts}


def media_in_several_splits(spool: Spool) -> list[str]:
    """Media files that different groups carried into different splits, where the rules allow it."""
    query = """SELECT m.path FROM media m JOIN planned p ON p.e = m.e
        GROUP BY m.path HAVING COUNT(DISTINCT p.split) > 1 ORDER BY m.path"""
    return [path for (path,) in spool.db.execute(query)]


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


def versions() -> dict[str, str]:
    """Versions of what a data set depends on."""
    names = ("proofreel", "av", "decord", "numpy", "pyarrow", "scikit-learn")
    found = {"python": platform.python_version()}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def summary(manifest: dict[str, Any], output: Path) -> str:
    """The table and the notes a build ends with."""
    lines = [f"{'split':<12}{'rows':>8}{'supported':>11}{'groups':>8}{'segments':>10}"]
    for name, counts in manifest["counts"].items():
        share = counts["label"].get("supported", 0) / counts["rows"]
        lines.append(f"{name:<12}{counts['rows']:>8}{share:>11.1%}{counts['groups']:>8}{counts['segments']:>10}")
    if absent := [split for split in SPLITS if manifest["config"]["splits"][split] and split not in manifest["counts"]]:
        lines.append(f"empty splits: {', '.join(absent)} (too few groups)")
    notes = {"rejected": manifest["rejected"], "left out": manifest["left_out"]}
    for title, counts in notes.items():
        lines.extend(f"{title}: {number} x {reason}" for reason, number in counts.items() if number)
    if manifest["merged_repeats"]:
        lines.append(f"merged: {manifest['merged_repeats']} x repeat of a judged pair")
    if leaks := manifest["media_in_several_splits"]:
        lines.append(f"warning: {len(leaks)} media files are in several splits, e.g. {leaks[0]}; give them one group")
    if manifest["media_files"]:
        lines.append(media_table(manifest["media_files"]))
    if manifest["media"] == "absent":
        lines.append("media: absent (annotation-only: these rows can be counted and split, not trained on)")
    return "\n".join([*lines, f"wrote {output}"])
