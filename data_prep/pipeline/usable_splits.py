"""Whether training, calibration and report can use the splits of a build, and shares by which they could.

Each split needs supported rows and others. A calibration is judged over folds of groups, and a result on a test split
has an interval over groups, so there both classes must occur in two groups or more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...core import SPLITS, Split
from ..dataset import fold_names, in_order
from .config import BuildConfig, fractions_of
from .staging import Staging

NEEDED: dict[Split, int] = {"train": 1, "validation": 1, "calibration": 2, "test": 2}
"""In how many groups each class must occur; in a fold in one, or two where there are two folds."""

FEW_GROUPS = 100
"""Below which results on a split say little (docs/evaluation.md)."""

USUAL_FOLDS, FEWEST_FOLDS = 5, 3
"""Folds that are proposed for cross-fitting: one of them tests, one validates, the others train."""

SHARES: tuple[dict[Split, float], ...] = (
    {"train": 0.7, "validation": 0.1, "calibration": 0.1, "test": 0.1},
    {"train": 0.6, "validation": 0.1, "calibration": 0.15, "test": 0.15},
    {"train": 0.4, "validation": 0.2, "calibration": 0.2, "test": 0.2},
)
"""Shares of the splits, the usual ones first."""


def other_ways(
    config: BuildConfig, n_groups: int, n_free: int, divide: Callable[[Mapping[Split, float]], Mapping[str, Split]]
) -> list[tuple[dict[Split, float], dict[str, Split]]]:
    """Other shares for the splits that have one, and what they would give; none for many groups.

    Last, folds for cross-fitting with two groups in each, where so many of `n_free` groups may go where they like.
    """
    if n_groups >= len(SPLITS) * FEW_GROUPS:
        return []
    ways = []
    for usual in SHARES:
        shares: dict[Split, float] = {s: usual[s] if share > 0 else 0.0 for s, share in fractions_of(config).items()}
        shares["train"] = round(1 - sum(share for split, share in shares.items() if split != "train"), 6)
        ways.append((shares, dict(divide(shares))))
    if (n_folds := min(USUAL_FOLDS, n_free // 2)) >= FEWEST_FOLDS:
        names: Any = fold_names(n_folds)
        folds: dict[Split, float] = dict.fromkeys(names, 1 / n_folds)
        ways.append((folds, dict(divide(folds))))
    return ways


def unusable_splits(staging: Staging, config: BuildConfig, ways: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """What is missing in which split (`problems`: {split: sentence}), and what to do (`remedy`); empty if nothing is.

    Args:
        staging: with its final rows.
        config: of the build; a split without a share and without rows is not wanted.
        ways: what `other_ways` gave when the groups were divided.
    """
    classes = _classes(staging)
    if not any(classes.values()):
        return {}  # no labels at all: rows for a teacher
    splits: dict[str, Split] = dict(staging.db.execute("SELECT name, split FROM groups"))
    shares = fractions_of(config)
    wanted: set[Split] = {splits[group] for group in classes}
    wanted.update(split for split, share in shares.items() if share > 0)
    problems = _problems(wanted, splits, classes)
    if not problems:
        return {}
    cross = ""
    for other_shares, others in reversed(list(ways)):
        if set(other_shares) - set(SPLITS) and not _problems(set(other_shares), others, classes):
            cross = f"cross-fit over all groups: splits.cross={len(other_shares)} (docs/cross-fitting.md)"
    for other_shares, others in ways:
        if not set(other_shares) - set(SPLITS) and not _problems(wanted, others, classes):
            keys = " ".join(f"splits.{split}={share:g}" for split, share in other_shares.items())
            groups = Counter(others[group] for group in classes)
            held = ", ".join(f"{split} {groups[split]}" for split in SPLITS)
            usable = f"with {keys} every split has what it needs (groups: {held})"
            return {"problems": problems, "remedy": f"{usable}{', or ' if cross else ''}{cross}"}
    one_class = {name for split in wanted for name, number in _groups_of(split, splits, classes).items() if not number}
    remedy = "annotate more groups (videos)"
    if "other" in one_class and not config.negatives.swapped_per_claim:
        remedy = "have negatives made (negatives.swapped_per_claim=1), or annotate claims that are not supported"
    if config.splits.cross is not None:
        fewer = "use fewer folds (splits.cross), or " if config.splits.cross > FEWEST_FOLDS else ""
        remedy = f"{fewer}{remedy}"
    else:
        remedy = f"no usual shares of the splits help; {cross}{', or ' if cross else ''}{remedy}"
    return {"problems": problems, "remedy": remedy}


def few_groups(counts: Mapping[str, Mapping[str, Any]]) -> str | None:
    """A sentence on splits whose results will be vague, from the manifest's `counts`."""
    judged = ("calibration", "test") if {*counts} & {*SPLITS} else ("all",)
    few = {split: counts[split]["groups"] for split in judged if split in counts}
    few = {split: number for split, number in few.items() if number < FEW_GROUPS}
    if not few:
        return None
    held = " and ".join(f"{split} {number}" for split, number in few.items())
    return f"few groups: {held}; below {FEW_GROUPS} intervals are wide, below 20 they say little (docs/uncertainty.md)"


def _classes(staging: Staging) -> dict[str, set[str]]:
    """Which classes the rows of each group have: "supported", "other", neither."""
    query = """SELECT grp, COALESCE(MAX(label = 'supported'), 0), COALESCE(MAX(label <> 'supported'), 0)
        FROM rows WHERE out = 0 GROUP BY grp"""
    kinds = ("supported", "other")
    return {
        group: {kind for kind, there in zip(kinds, has, strict=True) if there}
        for group, *has in staging.db.execute(query)
    }


def _problems(wanted: set[Split], splits: Mapping[str, Split], classes: Mapping[str, set[str]]) -> dict[Split, str]:
    problems: dict[Split, str] = {}
    for split in in_order(wanted):
        groups = _groups_of(split, splits, classes)
        needed = NEEDED.get(split, 2 if len(wanted) == 2 else 1)  # of two folds one alone is calibrated on
        if min(groups.values()) < needed:
            of = "a group" if needed == 1 else f"{needed} groups"
            problems[split] = (
                f"{split} cannot be used, got {groups['supported']} groups with supported rows and {groups['other']} "
                f"with others; it needs {of} with each"
            )
    return problems


def _groups_of(split: Split, splits: Mapping[str, Split], classes: Mapping[str, set[str]]) -> dict[str, int]:
    mine = [kinds for group, kinds in classes.items() if splits[group] == split]
    return {kind: sum(kind in kinds for kinds in mine) for kind in ("supported", "other")}
