"""The fourth step of a build: put whole groups into splits, tied groups together, held-out combinations apart.

With `held_out_roles` a segment's combination is what is true of it in these roles, e.g. (Action is chopping.,
Ingredient is onion.). Calibration and test get every group that shows a held-out combination; train and validation get
the others. Each single value of a held-out combination still occurs in training, so only the composition is new.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core import SPLITS, ConfigError, RowError, Split
from ..dataset import assign_splits, rank
from ..negatives import normal_claim
from .config import BuildConfig, fractions_of
from .leakage import Ties, find_ties, torn
from .staging import LEFT_OUT, Staging
from .usable_splits import other_ways

Combination = tuple[str, ...]


@dataclass(frozen=True)
class HeldOut:
    """Which combinations are held out, and what follows.

    Attributes:
        combinations: the held-out ones, sorted.
        n_combinations: how many there are in all.
        groups: the groups of the held-out side.
        evidence: numbers of the segments there that show a held-out combination; the others are left out.
    """

    combinations: tuple[Combination, ...]
    n_combinations: int
    groups: frozenset[str]
    evidence: frozenset[int]


def hold_out(staging: Staging, roles: Sequence[str], share: float, seed: int, ties: Ties) -> HeldOut:
    """Hold out combinations of `roles`, drawn by the seed, until their groups hold at least `share` of the rows.

    Tied groups count as one. A combination stays in training where holding it out would take a value's last training
    group; then the share may not be reached.
    """
    shown = _combinations(staging, roles)
    of_group: dict[str, set[Combination]] = {}
    for (_, group), combinations in shown.items():
        of_group.setdefault(ties.of(group), set()).update(combinations)
    leaders = {group: ties.of(group) for (group,) in staging.db.execute("SELECT DISTINCT grp FROM rows WHERE out = 0")}
    sizes: Counter[str] = Counter()
    for group, rows in staging.db.execute("SELECT grp, COUNT(*) FROM rows WHERE out = 0 GROUP BY grp"):
        sizes[leaders[group]] += rows
    chosen, held = _draw(of_group, sizes, share, seed)
    groups = (group for group, leader in leaders.items() if leader in held)
    evidence = frozenset(e for (e, _), combinations in shown.items() if combinations & chosen)
    every = set().union(*of_group.values())
    return HeldOut(tuple(sorted(chosen)), len(every), frozenset(groups), evidence)


def _combinations(staging: Staging, roles: Sequence[str]) -> dict[tuple[int, str], set[Combination]]:
    """{(evidence, group): its combinations} of the segments for which every role has a true value."""
    marks = ", ".join("?" * len(roles))
    query = f"""SELECT e, grp, role, claim FROM rows
        WHERE out = 0 AND label = 'supported' AND role IN ({marks}) ORDER BY e, grp, role, n"""
    values: dict[tuple[int, str], dict[str, list[str]]] = {}
    for e, group, role, claim in staging.db.execute(query, tuple(roles)):
        values.setdefault((e, group), {}).setdefault(role, []).append(normal_claim(claim))
    return {
        place: _product([held[role] for role in roles]) for place, held in values.items() if len(held) == len(roles)
    }


def _product(values: Sequence[Sequence[str]]) -> set[Combination]:
    return set(itertools.product(*values))


def _draw(
    of_group: Mapping[str, set[Combination]], sizes: Mapping[str, int], share: float, seed: int
) -> tuple[set[Combination], set[str]]:
    showing: dict[Combination, set[str]] = {}
    for group, combinations in of_group.items():
        for combination in combinations:
            showing.setdefault(combination, set()).add(group)
    left = Counter(value for combinations in of_group.values() for value in _values(combinations))
    wanted, held = share * sum(sizes.values()), 0
    chosen: set[Combination] = set()
    groups: set[str] = set()
    for combination in sorted(showing, key=lambda c: rank(seed, "combination", *c)):
        if held >= wanted:
            break
        new = showing[combination] - groups
        loss = Counter(value for group in new for value in _values(of_group[group]))
        if all(left[value] > loss[value] for value in combination):
            left -= loss
            groups |= new
            chosen.add(combination)
            held += sum(sizes[group] for group in new)
    return chosen, groups


def _values(combinations: set[Combination]) -> set[str]:
    return {value for combination in combinations for value in combination}


_LISTED = 10


def divide(staging: Staging, config: BuildConfig) -> dict[str, Any]:
    """Give every group of the kept rows its split, noted in the staging database.

    Returns:
        What the manifest says of it: `leaks` (things found in several groups, tied sets and their largest share of the
        rows) and, for a compositional build, `held_out`. And `other_ways` of dividing few groups, by other shares.
    """
    sizes: dict[str, int] = dict(staging.db.execute("SELECT grp, COUNT(*) FROM rows WHERE out = 0 GROUP BY grp"))
    fixed: dict[str, Split] = dict(
        staging.db.execute("SELECT grp, split FROM rows WHERE out = 0 AND split IS NOT NULL GROUP BY grp")
    )
    ties, refused = find_ties(staging, config.leaks, "move"), find_ties(staging, config.leaks, "refuse")
    notes: dict[str, Any] = {"leaks": _leaks(ties, sizes)}
    if config.splits.cross is not None:
        splits = _folds(config, sizes, fixed, ties)
        notes["other_ways"] = []
    elif config.splits.held_out_roles:
        splits, notes["held_out"] = _compositional(staging, config, sizes, fixed, ties)
        notes["other_ways"] = []
    else:
        splits = _tied(sizes, fractions_of(config), config.seed, fixed, ties)
        n_free = 0 if fixed else len({ties.of(group) for group in sizes})
        notes["other_ways"] = other_ways(
            config, len(sizes), n_free, lambda shares: _tied(sizes, shares, config.seed, fixed, ties)
        )
    staging.db.executemany("INSERT OR REPLACE INTO groups VALUES (?, ?)", splits.items())
    for group_ties in (ties, refused):
        _refuse_torn(staging, group_ties, splits)
    return notes


def _folds(config: BuildConfig, sizes: Mapping[str, int], fixed: Mapping[str, Split], ties: Ties) -> dict[str, Split]:
    """Every group's fold, tied groups in one; the folds near one another in rows."""
    if fixed:
        group, split = next(iter(fixed.items()))
        raise ConfigError(
            f"splits.cross: the annotations fix splits themselves, got {split!r} for {group!r}; remove one"
        )
    shares = fractions_of(config)
    n_sets = len({ties.of(group) for group in sizes})
    if n_sets < len(shares):
        tied = f" ({len(sizes)} groups, of which the tied ones count as one)" if n_sets < len(sizes) else ""
        raise ConfigError(
            f"splits.cross: fewer groups than folds, got {n_sets} groups{tied} for {len(shares)} folds; use at most "
            f"{n_sets}, which leaves one group out at a time"
        )
    return _tied(sizes, shares, config.seed, fixed, ties)


def _leaks(ties: Ties, sizes: Mapping[str, int]) -> dict[str, Any]:
    tied: dict[str, int] = {}
    for group in ties.leader:
        tied[ties.of(group)] = tied.get(ties.of(group), 0) + sizes[group]
    share = max(tied.values(), default=0) / max(sum(sizes.values()), 1)
    return {**ties.counts, "tied_sets": len(tied), "tied_groups": len(ties.leader), "largest_share": round(share, 4)}


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
    staging: Staging, config: BuildConfig, sizes: Mapping[str, int], fixed: Mapping[str, Split], ties: Ties
) -> tuple[dict[str, Split], dict[str, Any]]:
    if fixed:
        group, split = next(iter(fixed.items()))
        raise ConfigError(
            f"splits.held_out_roles: the annotations fix splits themselves, got {split!r} for {group!r}; remove one"
        )
    roles, shares = config.splits.held_out_roles, fractions_of(config)
    outside = shares["calibration"] + shares["test"]
    held = hold_out(staging, roles, outside, config.seed, ties)
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
    staging.db.execute("CREATE TEMP TABLE shown (e INTEGER PRIMARY KEY)")
    staging.db.executemany("INSERT INTO shown VALUES (?)", ((e,) for e in held.evidence))
    staging.db.execute("CREATE TEMP TABLE held (name TEXT PRIMARY KEY)")
    staging.db.executemany("INSERT INTO held VALUES (?)", ((group,) for group in held.groups))
    useless = "out = 0 AND grp IN (SELECT name FROM held) AND e NOT IN (SELECT e FROM shown)"
    dropped = staging.db.execute(f"UPDATE rows SET out = {LEFT_OUT} WHERE {useless}").rowcount
    return splits, {
        "roles": list(roles),
        "combinations": [list(combination) for combination in held.combinations],
        "of": held.n_combinations,
        "rows_left_out": dropped,
    }


def _refuse_torn(staging: Staging, ties: Ties, splits: Mapping[str, Split]) -> None:
    """Raise for tied sets in several splits: the annotations fix them so, or the rules say refuse."""
    sets = torn(ties, splits)
    if not sets:
        return
    lines = []
    for groups in sets[:_LISTED]:
        places = []
        for group in groups[:_LISTED]:
            first = "SELECT MIN(n) FROM rows WHERE out = 0 AND grp = ?"
            stored = next(staging.rows(f"r.n IN ({first})", (group,)))
            places.append(f"{group!r} ({stored.row.file}:{stored.row.line}) in {splits[group]}")
        lines.append(f"  {ties.examples[groups[0]]}: {', '.join(places)}")
    raise RowError(
        "\n".join(
            [
                f"splits: the same media or claims are in several splits, got {len(sets)} sets of groups; give each "
                "set one split, or set leaks.media or leaks.claims to move (where the splits are drawn) or allow",
                *lines,
            ]
        )
    )
