"""What a build says about its data set: the manifest's contents, and the table it ends with."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .records import Rejected
from .rows import SPLITS, Image, Pair, VideoSegment, evidence_key


def count_pairs(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Rows, groups and segments, and rows per label, role, origin and modality."""
    columns = ("label", "role", "origin", "modality")
    return {
        "rows": len(pairs),
        "groups": len({pair.group for pair in pairs}),
        "segments": len({evidence_key(pair.evidence) for pair in pairs}),
        **{name: dict(sorted(Counter(str(getattr(pair, name)) for pair in pairs).items())) for name in columns},
    }


def counts_per_split(pairs: Sequence[Pair]) -> dict[str, dict[str, Any]]:
    """`count_pairs` of every split that has rows, and of all rows together under "all"."""
    parts = {split: [pair for pair in pairs if pair.split == split] for split in SPLITS}
    return {name: count_pairs(rows) for name, rows in {**parts, "all": pairs}.items() if rows}


def count_rejected(rejected: Iterable[Rejected]) -> dict[str, int]:
    """How many were rejected for which kind of reason."""
    return dict(sorted(Counter(item.kind for item in rejected).items()))


def media_in_several_splits(pairs: Iterable[Pair]) -> list[str]:
    """Media files that different groups carried into different splits: a leak that only annotators can judge."""
    splits: dict[str, set[str | None]] = {}
    for pair in pairs:
        for evidence in pair.evidence:
            if isinstance(evidence, (VideoSegment, Image)):
                splits.setdefault(evidence.path, set()).add(pair.split)
    return sorted(path for path, found in splits.items() if len(found) > 1)


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
    if manifest["media"] == "absent":
        lines.append("media: absent (annotation-only: these rows can be counted and split, not trained on)")
    return "\n".join([*lines, f"wrote {output}"])
