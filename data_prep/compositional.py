"""Hold out combinations of role values: the test asks for known words in combinations never trained on.

A segment's combination is what is true of it in the named roles, e.g. (Action is chopping., Ingredient is onion.). The
held-out side (calibration and test) gets every group that shows a held-out combination; train and validation get the
others. Each single value of a held-out combination still occurs in training, so it is the composition that is new.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .leaks import Ties
from .negatives import normal_claim
from .splits import rank
from .spool import Spool

Combination = tuple[str, ...]


@dataclass(frozen=True)
class HeldOut:
    """Which combinations are held out, and what follows.

    Attributes:
        combinations: the held-out ones, sorted.
        n_combinations: how many there are in all.
        groups: the groups of the held-out side.
        evidence: numbers of the segments there that show a held-out combination; the others are of no use there.
    """

    combinations: tuple[Combination, ...]
    n_combinations: int
    groups: frozenset[str]
    evidence: frozenset[int]


def hold_out(spool: Spool, roles: Sequence[str], share: float, seed: int, ties: Ties) -> HeldOut:
    """Hold out combinations of `roles`, drawn by the seed, until their groups hold at least `share` of the rows.

    Tied groups count as one. A combination stays in training where holding it out would take a value's last training
    group; then the share may not be reached.
    """
    shown = _combinations(spool, roles)
    of_group: dict[str, set[Combination]] = {}
    for (_, group), combinations in shown.items():
        of_group.setdefault(ties.of(group), set()).update(combinations)
    leaders = {group: ties.of(group) for (group,) in spool.db.execute("SELECT DISTINCT grp FROM rows WHERE out = 0")}
    sizes: Counter[str] = Counter()
    for group, rows in spool.db.execute("SELECT grp, COUNT(*) FROM rows WHERE out = 0 GROUP BY grp"):
        sizes[leaders[group]] += rows
    chosen, held = _draw(of_group, sizes, share, seed)
    groups = (group for group, leader in leaders.items() if leader in held)
    evidence = frozenset(e for (e, _), combinations in shown.items() if combinations & chosen)
    every = set().union(*of_group.values())
    return HeldOut(tuple(sorted(chosen)), len(every), frozenset(groups), evidence)


def _combinations(spool: Spool, roles: Sequence[str]) -> dict[tuple[int, str], set[Combination]]:
    """{(evidence, group): its combinations} of the segments for which every role has a true value."""
    marks = ", ".join("?" * len(roles))
    query = f"""SELECT e, grp, role, claim FROM rows
        WHERE out = 0 AND label = 'supported' AND role IN ({marks}) ORDER BY e, grp, role, n"""
    values: dict[tuple[int, str], dict[str, list[str]]] = {}
    for e, group, role, claim in spool.db.execute(query, tuple(roles)):
        values.setdefault((e, group), {}).setdefault(role, []).append(normal_claim(claim))
    return {
        place: _product([found[role] for role in roles]) for place, found in values.items() if len(found) == len(roles)
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
