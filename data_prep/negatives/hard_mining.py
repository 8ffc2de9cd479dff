"""Hard-negative mining: a balanced training set whose negatives are mostly those that a model takes for supported.

The recipe is MiRAGE's (appendix H.2): all true pairs and as many false ones, 75% of them hard by the predictions of a
strong model, 25% drawn at random. What is added here: negatives come from the group and role of the positives where
there are enough, and a negative without a human judgment that the model scores very high is reviewed, not trained on.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...core import ConfigError, Pair, RowError, evidence_key
from ..dataset import rank
from .scores import Score, named_evidence
from .swapped import normal_claim

SHOWN = 5
MiningCell = tuple[str, ...]  # (group or claim, role), then (role,), then ()
DRAWN_FROM = ("same group and role", "same role", "anywhere")  # or the same claim, where claims are balanced
_UNSCORED = Score(math.nan, unusable="there is no prediction")


@dataclass(frozen=True)
class MiningConfig:
    """The mix of a mined training set.

    Attributes:
        hard_share: share of the negatives taken by highest P(supported); the others are drawn at random.
        negatives_per_positive: how many negatives for every positive.
        guard_p: a negative of an origin not trusted with P(supported) at or above it is reviewed, not trained on.
        trusted_origins: origins whose negatives a person judged: the guard leaves them alone.
        unscored: `refuse` rows whose prediction is missing, or `keep` them, to be drawn at random only.
        positives: how many positives are kept; null: all.
        positive_share_hard: the share of the kept positives taken by lowest P(supported), the others at random.
        uncalibrated: `refuse` predictions that do not say that they are calibrated, or `allow` them.
        balance: which rows get as many negatives as they have positives: those of a `group`, or of a `claim`, so that
            no sentence is mostly false and the text alone does not predict the label.

    Raises:
        ConfigError: a share or probability outside [0, 1], a negative number, or a share of all positives.
    """

    hard_share: float = 0.75
    negatives_per_positive: int = 1
    guard_p: float = 0.95
    trusted_origins: tuple[str, ...] = ("annotated", "negative_annotated")
    unscored: Literal["refuse", "keep"] = "refuse"
    positives: int | None = None
    positive_share_hard: float | None = None
    uncalibrated: Literal["refuse", "allow"] = "refuse"
    balance: Literal["group", "claim"] = "group"

    def __post_init__(self) -> None:
        for name in ("hard_share", "guard_p", "positive_share_hard"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ConfigError(f"{name}: must be in [0, 1], got {value}; 0.75 is three quarters")
        for name, least in (("negatives_per_positive", 0), ("positives", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name}: must be at least {least}, got {value}; fix the number")
        if self.positive_share_hard is not None and self.positives is None:
            share = self.positive_share_hard
            raise ConfigError(f"positive_share_hard: all positives are kept, got {share}; say how many by `positives`")


@dataclass(frozen=True)
class Review:
    """A row for human review: a negative that may be true (`too_certain`), or one `unscored`."""

    kind: Literal["too_certain", "unscored"]
    reason: str
    p_supported: float | None
    pair: Pair

    def to_dict(self) -> dict[str, Any]:
        """JSON values, the pair as it is stored."""
        return {**vars(self), "pair": self.pair.to_dict()}


@dataclass(frozen=True)
class Mined:
    """The chosen pairs, unchanged and in their order; what to review; and counts (docs/negatives.md)."""

    pairs: list[Pair]
    review: list[Review]
    counts: dict[str, Any]


def mine(
    pairs: Sequence[Pair],
    scores: Mapping[str, Score] | None,
    config: MiningConfig,
    seed: int = 0,
    where: str = "mining",
) -> Mined:
    """Positives and mined negatives out of the labelled pairs of a train split; `where` opens error messages.

    Refuted and not_enough are both negative; rows without a label are left out. Which rows are chosen depends on their
    ids, scores and the seed, not on their order. With `scores` None, all are drawn at random.

    Raises:
        ConfigError: no scores, and a share of hard rows above 0.
        RowError: scores of unknown pairs, claims or evidence; rows without a usable score, unless these are kept.
    """
    if is_blind := scores is None:
        _check_random(config, where)
    scores = scores or {}
    _check_same_rows(pairs, scores, where)
    positives, n_hard = _positives([pair for pair in pairs if pair.label == "supported"], scores, config, seed)
    negatives = [pair for pair in pairs if pair.label not in (None, "supported")]
    needed = negatives if config.positive_share_hard is None else [p for p in pairs if p.label is not None]
    unscored = [] if is_blind else [pair for pair in needed if _of(pair, scores).unusable is not None]
    _check_scored(unscored, len(needed), scores, config, where)
    guarded = [pair for pair in negatives if _is_too_certain(pair, scores, config)]
    barred = {pair.id for pair in guarded}
    candidates = [pair for pair in negatives if pair.id not in barred]
    drawn, counts = _draw(positives, candidates, scores, config, seed)
    chosen = {pair.id for pair in positives} | drawn
    review = [*_too_certain(guarded, scores, config), *_unscored(unscored, scores)]
    counts |= {
        "too_certain": len(guarded),
        "unscored": len(unscored),
        "not_drawn": len(candidates) - len(drawn),
        "unlabelled": sum(pair.label is None for pair in pairs),
    }
    of_positives = {
        "positives": len(positives),
        "positives_hard": n_hard,
        "positives_missing": max(0, (config.positives or 0) - len(positives)),
    }
    return Mined([pair for pair in pairs if pair.id in chosen], review, of_positives | counts)


def _check_random(config: MiningConfig, where: str) -> None:
    for name in ("hard_share", "positive_share_hard"):
        if share := getattr(config, name):
            raise ConfigError(f"{where}: hard rows need predictions, got none and {name} {share}; set it to 0")


def _check_same_rows(pairs: Iterable[Pair], scores: Mapping[str, Score], where: str) -> None:
    claims = {pair.id: pair.claim for pair in pairs}
    if unknown := sorted(set(scores) - set(claims)):
        got = f"{len(unknown)} of {len(scores)} unknown, e.g. {unknown[0]!r}"
        raise RowError(f"{where}: predictions are not of these rows, got {got}; score this data set's train split")
    if other := sorted(id for id, score in scores.items() if score.claim not in (None, claims[id])):
        got = f"{len(other)} of {len(scores)}, e.g. {other[0]!r}: {scores[other[0]].claim!r}"
        raise RowError(f"{where}: other claims were scored, got {got}; score this data set's train split")
    other = [pair.id for pair in pairs if pair.id in scores and _is_of_other_evidence(pair, scores[pair.id])]
    if other:
        got = f"{len(other)} of {len(scores)}, e.g. {min(other)!r}: {scores[min(other)].evidence}"
        raise RowError(f"{where}: other evidence was scored, got {got}; score this data set's train split")


def _is_of_other_evidence(pair: Pair, score: Score) -> bool:
    """Media are distinguished by name alone: on another machine their folder is another."""
    scored = named_evidence(score.evidence) if score.evidence else None
    return scored is not None and scored != named_evidence(evidence_key(pair.evidence))


def _check_scored(
    unscored: Sequence[Pair], total: int, scores: Mapping[str, Score], config: MiningConfig, where: str
) -> None:
    if unscored and config.unscored == "refuse":
        shown = "; ".join(f"{pair.id!r} ({_of(pair, scores).unusable})" for pair in unscored[:SHOWN])
        raise RowError(
            f"{where}: rows have no usable prediction, got {len(unscored)} of {total}, e.g. {shown}; "
            "score them, or set unscored: keep to draw them at random only"
        )


def _of(pair: Pair, scores: Mapping[str, Score]) -> Score:
    return scores.get(pair.id, _UNSCORED)


def _is_too_certain(pair: Pair, scores: Mapping[str, Score], config: MiningConfig) -> bool:
    return pair.origin not in config.trusted_origins and _of(pair, scores).p_supported >= config.guard_p


def _too_certain(guarded: Iterable[Pair], scores: Mapping[str, Score], config: MiningConfig) -> list[Review]:
    reviews = []
    for pair in sorted(guarded, key=lambda pair: (-scores[pair.id].p_supported, pair.id)):
        p = scores[pair.id].p_supported
        reason = f"made {pair.label} as {pair.origin!r}, never judged, and P(supported) {p:.4g} >= {config.guard_p}"
        reviews.append(Review("too_certain", reason, p, pair))
    return reviews


def _unscored(pairs: Iterable[Pair], scores: Mapping[str, Score]) -> list[Review]:
    ordered = sorted(pairs, key=lambda pair: pair.id)
    return [Review("unscored", _of(pair, scores).unusable or "", None, pair) for pair in ordered]


def _positives(
    pairs: Sequence[Pair], scores: Mapping[str, Score], config: MiningConfig, seed: int
) -> tuple[list[Pair], int]:
    """The positives that are kept, and how many of them were taken as hard ones."""
    if config.positives is None or config.positives >= len(pairs):
        return list(pairs), 0
    lowest = [pair for pair in _hardest_first(pairs, scores, seed, sign=-1)]
    hard = lowest[: _rounded(config.positives * (config.positive_share_hard or 0.0))]
    taken = {pair.id for pair in hard}
    others = [pair for pair in _shuffled(pairs, seed) if pair.id not in taken]
    return [*hard, *others[: config.positives - len(hard)]], len(hard)


def _hardest_first(pairs: Iterable[Pair], scores: Mapping[str, Score], seed: int, sign: int = 1) -> list[Pair]:
    """Scored pairs by falling P(supported) (rising with sign -1); the margin decides where that is saturated."""

    def key(pair: Pair) -> tuple[float, float, str]:
        score = scores[pair.id]
        margin = 0.0 if math.isnan(score.margin) else score.margin
        return -sign * score.p_supported, -sign * margin, rank(seed, "tie", pair.id)

    return sorted((pair for pair in pairs if _of(pair, scores).unusable is None), key=key)


def _shuffled(pairs: Iterable[Pair], seed: int) -> list[Pair]:
    return sorted(pairs, key=lambda pair: rank(seed, "random", pair.id))


def _rounded(number: float) -> int:
    return math.floor(number + 0.5)


def _draw(
    positives: Sequence[Pair], candidates: Sequence[Pair], scores: Mapping[str, Score], config: MiningConfig, seed: int
) -> tuple[set[str], dict[str, Any]]:
    """Ids of the negatives, hard ones before random ones at each distance from the positives; and counts."""
    cells: dict[str, MiningCell] = {pair.id: _cell(pair, config) for pair in (*positives, *candidates)}
    wanted = Counter(cells[pair.id] for pair in positives)
    needs: dict[MiningCell, int] = {cell: number * config.negatives_per_positive for cell, number in wanted.items()}
    hard = _apportioned(needs, config.hard_share, seed)
    open_needs = {"hard": hard, "random": {cell: needs[cell] - hard[cell] for cell in needs}}
    order = {"hard": _hardest_first(candidates, scores, seed), "random": _shuffled(candidates, seed)}
    taken: dict[str, str] = {}
    drawn_from: dict[str, int] = {}
    for depth, name in enumerate((f"same {config.balance} and role", *DRAWN_FROM[1:])):
        before = len(taken)
        for way in ("hard", "random"):
            open_needs[way] = _take(order[way], cells, open_needs[way], way, depth, taken)
        drawn_from[name] = len(taken) - before
    before = len(taken)
    still_open = _take(order["random"], cells, open_needs["hard"], "random", len(DRAWN_FROM) - 1, taken)
    drawn_from[DRAWN_FROM[-1]] += len(taken) - before
    ways = Counter(taken.values())
    fooled = sum(way == "hard" and scores[id].p_supported >= 0.5 for id, way in taken.items())
    counts = {
        "negatives": len(taken),
        "hard": ways["hard"],
        "hard_called_supported": fooled,
        "random": ways["random"],
        "hard_replaced_by_random": len(taken) - before,
        "missing": sum(still_open.values()) + sum(open_needs["random"].values()),
        "drawn_from": drawn_from,
    }
    return set(taken), counts


def _cell(pair: Pair, config: MiningConfig) -> MiningCell:
    return (pair.group if config.balance == "group" else normal_claim(pair.claim), pair.role)


def _apportioned(needs: Mapping[MiningCell, int], share: float, seed: int) -> dict[MiningCell, int]:
    """A share of every cell's number, rounded such that the total is exact to rounding too."""
    parts: dict[MiningCell, int] = {}
    total = done = 0
    for cell in sorted(needs, key=lambda cell: rank(seed, "cell", *cell)):
        total += needs[cell]
        parts[cell] = min(_rounded(share * total) - done, needs[cell])
        done += parts[cell]
    return parts


def _take(
    order: Iterable[Pair],
    cells: Mapping[str, MiningCell],
    needs: Mapping[MiningCell, int],
    way: str,
    depth: int,
    taken: dict[str, str],
) -> dict[MiningCell, int]:
    """Take pairs in `order` for cells widened by `depth`, noting them in `taken`; returns what is still needed."""
    left: dict[MiningCell, int] = defaultdict(int)
    for cell, number in needs.items():
        left[_widened(cell, depth)] += number
    for pair in order:
        cell = _widened(cells[pair.id], depth)
        if left.get(cell, 0) and pair.id not in taken:
            taken[pair.id] = way
            left[cell] -= 1
    return dict(left)


def _widened(cell: MiningCell, depth: int) -> MiningCell:
    """Of a full cell its role, then nothing: a cell that was widened before is shorter already."""
    return cell[len(cell) - (2 - depth) :] if len(cell) > 2 - depth else cell
