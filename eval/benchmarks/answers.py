"""Answers to a benchmark's statements, and the statistics its scores are made of.

An answer that failed is neither yes nor no: every score is bounded by what it would be if all failed answers were
wrong, and right. Accuracy, precision, recall and F1 never fall when one more answer is right, so these are their ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...core import Pair
from ..metrics import Confusions, Floats, Resamples
from ..scores import Bounds, Score, Statistic, ratio_of_sums, resampled, score_over, share
from ..scoring import Prediction


@dataclass(frozen=True)
class Answer:
    """What was said of one statement.

    Attributes:
        pair: the statement, with what its protocol needs in `meta`.
        margin: log-odds of supported; NaN where scoring failed.
        yes: whether it was called supported; None where scoring failed.
    """

    pair: Pair
    margin: float
    yes: bool | None

    @property
    def right(self) -> bool | None:
        """None where scoring failed."""
        return None if self.yes is None else self.yes == (self.pair.label == "supported")


@dataclass(frozen=True)
class Item:
    """What is right or wrong as a whole: a question, a pair of them, a figure, a caption against its foils.

    Attributes:
        group: what it is resampled with.
        right: None where that depends on failed answers.
        n, n_failed: answers it rests on.
    """

    group: str
    right: bool | None
    n: int = 1
    n_failed: int = 0


def answers_of(
    pairs: Sequence[Pair], predictions: Iterable[Prediction], decide: Callable[[float, Pair], bool]
) -> list[Answer]:
    """An answer for each pair, in the order of the pairs; `decide` says of a margin whether it means supported."""
    by_id = {prediction.pair_id: prediction for prediction in predictions}
    answers = []
    for pair in pairs:
        margin = by_id[pair.id].margin
        answers.append(Answer(pair, margin, None if math.isnan(margin) else decide(margin, pair)))
    return answers


def single(answers: Iterable[Answer]) -> list[Item]:
    """Each answer by itself."""
    return [Item(a.pair.group, a.right, 1, int(a.right is None)) for a in answers]


def all_right(answers: Iterable[Answer], key: Callable[[Answer], str | None]) -> list[Item]:
    """Answers with one key, right if all of them are; those without a key are left out."""
    return [
        Item(same[0].pair.group, _all(a.right for a in same), len(same), sum(a.right is None for a in same))
        for same in _by(answers, key)
    ]


def highest(answers: Iterable[Answer], key: Callable[[Answer], str | None]) -> list[Item]:
    """Statements with one key, of which one is true: right if its margin is above those of all others."""
    items = []
    for same in _by(answers, key):
        true = [a.margin for a in same if a.pair.label == "supported"]
        others = [a.margin for a in same if a.pair.label != "supported"]
        failed = sum(a.yes is None for a in same)
        lost = bool(others) and not math.isnan(true[0]) and any(other >= true[0] for other in others)  # NaN is never >=
        right = False if lost else (None if failed else True)
        items.append(Item(same[0].pair.group, right, len(same), failed))
    return items


def both(first: Sequence[Item], second: Sequence[Item]) -> list[Item]:
    """Items that are right where both are, in the order given."""
    return [
        Item(one.group, _all((one.right, other.right)), one.n + other.n, one.n_failed + other.n_failed)
        for one, other in zip(first, second, strict=True)
    ]


def mean(items: Sequence[Item], n_draws: int) -> Score:
    """The share of items that are right."""
    return mean_of_shares([items], n_draws)


def mean_of_shares(parts: Sequence[Sequence[Item]], n_draws: int) -> Score:
    """The plain mean of the share right of each part, however many items the parts have."""
    rows = [(item, place) for place, items in enumerate(parts) for item in items]
    if not rows:
        return Score(math.nan, math.nan, math.nan, 0, 0)
    place = np.array([p for _, p in rows])
    low, high = (np.array([float(bound if i.right is None else i.right) for i, _ in rows]) for bound in (0, 1))
    shares = [
        ratio_of_sums(low * (place == p), high * (place == p), (place == p).astype(float)) for p in range(len(parts))
    ]

    def statistic(drawn: Resamples) -> Bounds:
        bounds = [each(drawn) for each in shares]
        return np.mean([b[0] for b in bounds], axis=0), np.mean([b[1] for b in bounds], axis=0)

    return _over(statistic, [i.group for i, _ in rows], [i for i, _ in rows], n_draws)


def counted(
    answers: Sequence[Answer], formula: Callable[[Confusions], Floats], n_draws: int, positive: str = "supported"
) -> Score:
    """A formula of confusion counts; `positive` is the label that counts as positive."""
    truth = np.array([(a.pair.label == "supported") == (positive == "supported") for a in answers])
    cells = []
    for bound in (False, True):
        right = np.array([bound if a.right is None else a.right for a in answers])
        said = right == truth
        cells.append(np.stack([truth & said, ~truth & said, ~truth & ~said, truth & ~said], axis=1).astype(float))

    def statistic(drawn: Resamples) -> Bounds:
        low, high = (np.asarray(formula(Confusions(*drawn.sums(each).T))) for each in cells)
        return low, high

    return _over(statistic, [a.pair.group for a in answers], single(answers), n_draws)


def yes_ratio(answers: Sequence[Answer], n_draws: int) -> Score:
    """The share of statements called supported."""
    low, high = ([float(bound if a.yes is None else a.yes) for a in answers] for bound in (0, 1))
    return _over(ratio_of_sums(low, high), [a.pair.group for a in answers], single(answers), n_draws)


def accuracy(counts: Confusions) -> Floats:
    """(tp + tn) / n."""
    return share(counts.tp + counts.tn, counts.tp + counts.tn + counts.fp + counts.fn)


def precision(counts: Confusions) -> Floats:
    """tp / (tp + fp), not defined where nothing is called positive."""
    return share(counts.tp, counts.tp + counts.fp)


def recall(counts: Confusions) -> Floats:
    """tp / (tp + fn)."""
    return share(counts.tp, counts.tp + counts.fn)


def f1(counts: Confusions) -> Floats:
    """2 tp / (2 tp + fp + fn): the harmonic mean of precision and recall."""
    return share(2 * counts.tp, 2 * counts.tp + counts.fp + counts.fn)


def _over(statistic: Statistic, groups: Sequence[str], items: Sequence[Item], n_draws: int) -> Score:
    drawn = resampled(groups, n_draws)
    return score_over((drawn, statistic), sum(i.n for i in items), sum(i.n_failed for i in items))


def _by(answers: Iterable[Answer], key: Callable[[Answer], str | None]) -> Iterable[list[Answer]]:
    same: dict[str, list[Answer]] = {}
    for answer in answers:
        if (name := key(answer)) is not None:
            same.setdefault(name, []).append(answer)
    return same.values()


def _all(values: Iterable[bool | None]) -> bool | None:
    """False where one is, None where one of the others is not known."""
    known = list(values)
    return False if False in known else (None if None in known else True)
