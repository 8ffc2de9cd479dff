"""Put whole groups into train, validation, calibration and test, near the asked shares of rows, by a seed.

A group (a video, a topic) in two splits would let a verifier be calibrated or tested on what it was trained on, so
groups are never divided. The same groups and seed give the same splits on every machine and Python version.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from ...core import SPLITS, ConfigError, Split

_MAX_IMPROVEMENTS = 1_000


def rank(seed: int, *parts: str) -> str:
    """A pseudo-random sort key that depends on the seed and the parts alone, not on order or Python version."""
    return hashlib.sha256("\0".join((str(seed), *parts)).encode("utf-8", "surrogatepass")).hexdigest()


def in_order(names: Iterable[str]) -> list[Split]:
    """Names of splits, or of folds, which stand where splits do, without repeats: the usual splits first."""
    distinct: Any = set(names)
    return [*(split for split in SPLITS if split in distinct), *sorted(distinct - set(SPLITS))]


def check_fractions(fractions: Mapping[Split, float], where: str = "splits") -> None:
    """Raise `ConfigError` unless the shares are >= 0 and sum to 1."""
    if min(fractions.values()) < 0 or abs(sum(fractions.values()) - 1) > 1e-6:
        shares = dict(fractions)
        raise ConfigError(f"{where}: shares must be >= 0 and sum to 1, got {shares}; write all four of {list(SPLITS)}")


def assign_splits(
    sizes: Mapping[str, int],
    fractions: Mapping[Split, float],
    seed: int = 0,
    fixed: Mapping[str, Split] | None = None,
) -> dict[str, Split]:
    """The split of every group.

    Args:
        sizes: rows per group.
        fractions: wanted share of rows per split or fold; one with share 0 only gets groups fixed to it.
        seed: another seed gives other splits.
        fixed: groups whose split is given; they count towards the shares.

    Returns:
        {group: split}. With at least as many free groups as splits that would be empty, no wanted split is empty.

    Raises:
        ConfigError: fractions that are negative or do not sum to 1.
    """
    check_fractions(fractions)
    fixed = dict(fixed or {})
    total = sum(sizes.values())
    names = in_order((*SPLITS, *fractions))
    wanted: list[Split] = [split for split in names if fractions.get(split, 0.0) > 0]
    target: dict[Split, float] = {split: fractions.get(split, 0.0) * total for split in names}
    filled: dict[Split, int] = dict.fromkeys(names, 0)
    for group, split in fixed.items():
        filled[split] += sizes.get(group, 0)
    free = sorted((group for group in sizes if group not in fixed), key=lambda group: rank(seed, "split", group))
    empty: list[Split] = [split for split in wanted if split not in fixed.values()]
    chosen: dict[str, Split] = {}
    for group in free:
        split: Split = empty.pop(0) if empty else max(wanted, key=lambda name: target[name] - filled[name])
        chosen[group] = split
        filled[split] += sizes[group]
    _improve(chosen, sizes, target, filled, wanted)
    return {group: fixed.get(group) or chosen[group] for group in sizes}


def _improve(
    chosen: dict[str, Split],
    sizes: Mapping[str, int],
    target: Mapping[Split, float],
    filled: dict[Split, int],
    wanted: Iterable[Split],
) -> None:
    """Move or exchange single groups while that brings the shares nearer to the targets. Changes `chosen`, `filled`."""
    holders: dict[Split, dict[int, list[str]]] = {split: {} for split in wanted}
    for group, split in chosen.items():
        holders[split].setdefault(sizes[group], []).append(group)
    for _ in range(_MAX_IMPROVEMENTS):
        step = _best_step(holders, target, filled)
        if step is None:
            return
        a, b, x, y = step
        _hand_over(chosen, holders, x, a, b)
        if y:
            _hand_over(chosen, holders, y, b, a)
        filled[a], filled[b] = filled[a] + y - x, filled[b] + x - y


def _hand_over(
    chosen: dict[str, Split], holders: dict[Split, dict[int, list[str]]], size: int, giver: Split, taker: Split
) -> None:
    group = holders[giver][size].pop(0)
    if not holders[giver][size]:
        del holders[giver][size]
    holders[taker].setdefault(size, []).append(group)
    chosen[group] = taker


def _best_step(
    holders: Mapping[Split, Mapping[int, list[str]]], target: Mapping[Split, float], filled: Mapping[Split, int]
) -> tuple[Split, Split, int, int] | None:
    """(a, b, x, y): give a group of x rows from a to b, for one of y rows (0: for none). None if nothing helps."""
    best: tuple[Split, Split, int, int] | None = None
    best_gain = 1e-9
    ways: list[tuple[Split, Split]] = [(a, b) for a in holders for b in holders if a != b]
    for a, b in ways:
        only = sum(map(len, holders[a].values())) == 1  # moving the only group would empty the split
        returns = sorted(holders[b] if only else [0, *holders[b]])
        # the gain is a downward parabola in x - y with its top here, so for each x the best y is a nearest one
        top = ((filled[a] - target[a]) - (filled[b] - target[b])) / 2
        for x in holders[a]:
            at = bisect.bisect_left(returns, x - top)
            for y in returns[max(at - 1, 0) : at + 1]:
                gain = _miss(a, 0, target, filled) + _miss(b, 0, target, filled)
                gain -= _miss(a, y - x, target, filled) + _miss(b, x - y, target, filled)
                if gain > best_gain:
                    best_gain = gain
                    best = a, b, x, y
    return best


def _miss(split: Split, change: int, target: Mapping[Split, float], filled: Mapping[Split, int]) -> float:
    return (filled[split] + change - target[split]) ** 2
