"""The choice of balanced swaps as it is defined: every list in full, every chain looked for from scratch."""

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence

from proofreel.data_prep.dataset.splits import rank


def spread(
    needs: Mapping[str, int], allowed: Mapping[str, Sequence[str]], positives: Counter[str], seed: int
) -> dict[str, set[str]]:
    """{claim: its target segments}, `needs[claim]` of those allowed: each segment is filled to its positives."""
    excess: Counter[str] = Counter({key: -count for key, count in positives.items()})
    targets: dict[str, set[str]] = {}
    for claim in sorted(needs, key=lambda c: (len(allowed[c]), rank(seed, "claim", c))):
        targets[claim] = set(heapq.nsmallest(needs[claim], allowed[claim], key=excess.__getitem__))
        excess.update(targets[claim])
    claims: dict[str, set[str]] = defaultdict(set)
    for claim, keys in targets.items():
        for key in keys:
            claims[key].add(claim)
    while chain := _chain(claims, targets, allowed, excess):
        for claim, source, target in chain:
            targets[claim] = targets[claim] - {source} | {target}
            claims[source].discard(claim)
            claims[target].add(claim)
        excess.subtract([chain[0][1]])
        excess.update([chain[-1][2]])
    return targets


def _chain(
    claims: Mapping[str, set[str]],
    targets: Mapping[str, set[str]],
    allowed: Mapping[str, Sequence[str]],
    excess: Counter[str],
) -> list[tuple[str, str, str]]:
    came: dict[str, tuple[str, str] | None] = {}
    followed: set[str] = set()
    for start in sorted((key for key in claims if claims[key]), key=lambda key: (-excess[key], key)):
        queue = deque([] if start in came else [start])
        came.setdefault(start, None)
        while queue:
            here = queue.popleft()
            if excess[here] <= excess[start] - 2:
                return _trace(here, came)
            for claim in sorted(claims.get(here, set()) - followed):
                followed.add(claim)
                for there in allowed[claim]:
                    if there not in came and there not in targets[claim]:
                        came[there] = (claim, here)
                        queue.append(there)
    return []


def _trace(end: str, came: Mapping[str, tuple[str, str] | None]) -> list[tuple[str, str, str]]:
    moves: list[tuple[str, str, str]] = []
    while (step := came[end]) is not None:
        moves.append((step[0], step[1], end))
        end = step[1]
    return moves[::-1]
