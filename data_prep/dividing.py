"""Put the groups of a build into splits: whole, tied groups together, held-out combinations apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.errors import ConfigError, RowError
from ..core.pairs import SPLITS, Split
from .build_config import BuildConfig, fractions_of
from .compositional import hold_out
from .leaks import Ties, find_ties, torn
from .splits import assign_splits
from .spool import LEFT_OUT, Spool

_LISTED = 10


def divide(spool: Spool, config: BuildConfig) -> dict[str, Any]:
    """Give every group of the kept rows its split, noted in the spool.

    Returns:
        What the manifest says of it: `leaks` (things found in several groups, tied sets and their largest share of the
        rows) and, for a compositional build, `held_out`.
    """
    sizes: dict[str, int] = dict(spool.db.execute("SELECT grp, COUNT(*) FROM rows WHERE out = 0 GROUP BY grp"))
    fixed: dict[str, Split] = dict(
        spool.db.execute("SELECT grp, split FROM rows WHERE out = 0 AND split IS NOT NULL GROUP BY grp")
    )
    ties, refused = find_ties(spool, config.leaks, "move"), find_ties(spool, config.leaks, "refuse")
    said: dict[str, Any] = {"leaks": _leaks(ties, sizes)}
    if config.splits.held_out_roles:
        splits, said["held_out"] = _compositional(spool, config, sizes, fixed, ties)
    else:
        splits = _tied(sizes, fractions_of(config), config.seed, fixed, ties)
    spool.db.executemany("INSERT OR REPLACE INTO groups VALUES (?, ?)", splits.items())
    for found in (ties, refused):
        _refuse_torn(spool, found, splits)
    return said


def _leaks(ties: Ties, sizes: Mapping[str, int]) -> dict[str, Any]:
    tied: dict[str, int] = {}
    for group in ties.leader:
        tied[ties.of(group)] = tied.get(ties.of(group), 0) + sizes[group]
    share = max(tied.values(), default=0) / max(sum(sizes.values()), 1)
    return {**ties.found, "tied_sets": len(tied), "tied_groups": len(ties.leader), "largest_share": round(share, 4)}


def _tied(
    sizes: Mapping[str, int],
    fractions: Mapping[Split, float],
    seed: int,
    fixed: Mapping[str, Split],
    ties: Ties,
) -> dict[str, Split]:
    """As `assign_splits`, but tied groups go together; one whose split is fixed draws the others after it."""
    together: dict[str, int] = {}
    given: dict[str, Split] = {}
    for group, size in sizes.items():
        leader = ties.of(group)
        together[leader] = together.get(leader, 0) + size
        if group in fixed:
            given.setdefault(leader, fixed[group])
    chosen = assign_splits(together, fractions, seed, given)
    return {group: fixed.get(group, chosen[ties.of(group)]) for group in sizes}


def _compositional(
    spool: Spool, config: BuildConfig, sizes: Mapping[str, int], fixed: Mapping[str, Split], ties: Ties
) -> tuple[dict[str, Split], dict[str, Any]]:
    if fixed:
        group, split = next(iter(fixed.items()))
        raise ConfigError(
            f"splits.held_out_roles: the annotations fix splits themselves, got {split!r} for {group!r}; remove one"
        )
    roles, shares = config.splits.held_out_roles, fractions_of(config)
    outside = shares["calibration"] + shares["test"]
    held = hold_out(spool, roles, outside, config.seed, ties)
    if not held.combinations:
        raise ConfigError(
            f"splits.held_out_roles: no combination can be held out, got {held.n_combinations} combinations of "
            f"{list(roles)} whose values all occur in training; name other roles"
        )
    splits: dict[str, Split] = {}
    sides: tuple[tuple[tuple[Split, Split], bool], ...] = (
        (("calibration", "test"), True),
        (("train", "validation"), False),
    )
    for names, inside in sides:
        part = {group: size for group, size in sizes.items() if (group in held.groups) == inside}
        total = sum(shares[name] for name in names)
        fractions: dict[Split, float] = {split: shares[split] / total if split in names else 0.0 for split in SPLITS}
        splits.update(_tied(part, fractions, config.seed, {}, ties))
    spool.db.execute("CREATE TEMP TABLE shown (e INTEGER PRIMARY KEY)")
    spool.db.executemany("INSERT INTO shown VALUES (?)", ((e,) for e in held.evidence))
    spool.db.execute("CREATE TEMP TABLE held (name TEXT PRIMARY KEY)")
    spool.db.executemany("INSERT INTO held VALUES (?)", ((group,) for group in held.groups))
    useless = "out = 0 AND grp IN (SELECT name FROM held) AND e NOT IN (SELECT e FROM shown)"
    dropped = spool.db.execute(f"UPDATE rows SET out = {LEFT_OUT} WHERE {useless}").rowcount
    return splits, {
        "roles": list(roles),
        "combinations": [list(combination) for combination in held.combinations],
        "of": held.n_combinations,
        "rows_left_out": dropped,
    }


def _refuse_torn(spool: Spool, ties: Ties, splits: Mapping[str, Split]) -> None:
    """Raise for tied sets in several splits: the annotations fix them so, or the rules say refuse."""
    found = torn(ties, splits)
    if not found:
        return
    lines = []
    for groups in found[:_LISTED]:
        places = []
        for group in groups[:_LISTED]:
            first = "SELECT MIN(n) FROM rows WHERE out = 0 AND grp = ?"
            stored = next(spool.rows(f"r.n IN ({first})", (group,)))
            places.append(f"{group!r} ({stored.row.file}:{stored.row.line}) in {splits[group]}")
        lines.append(f"  {ties.examples[groups[0]]}: {', '.join(places)}")
    raise RowError(
        "\n".join(
            [
                f"splits: the same media or claims are in several splits, got {len(found)} sets of groups; give each "
                "set one split, or set leaks.media or leaks.claims to move (where the splits are drawn) or allow",
                *lines,
            ]
        )
    )
