"""Each benchmark's own score, as its paper and published code count: `PROTOCOLS` maps names to functions.

A function takes all answers and the number of resamples and gives scores by name. What the published codes read out of
a model's words is a verdict here: yes is supported at the verifier's threshold (of an untrained model: from 0.5 on).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...data_prep.benchmarks import DIMENSIONS, PAPER_PARTS
from ..scores import Score
from .answers import (
    Answer,
    accuracy,
    all_right,
    both,
    counted,
    f1,
    highest,
    mean,
    mean_of_shares,
    precision,
    recall,
    single,
    yes_ratio,
)

Protocol = Callable[[Sequence[Answer], int], dict[str, Score]]
_COUNTS = {"accuracy": accuracy, "precision": precision, "recall": recall, "F1": f1}


def videohallucer(answers: Sequence[Answer], n_draws: int) -> dict[str, Score]:
    """Basic, hallucinated and paired accuracy of each part (evaluations/evaluation_utils.py, cal_score).

    `overall` is the plain mean over the paper's five parts that are there (evaluations/evaluation.py).
    """
    parts = _by_meta(answers, "part")
    scores = {}
    kept = [parts[part] for part in PAPER_PARTS if part in parts]
    for name, items_of in (
        ("basic", lambda rows: single(_side(rows, "basic"))),
        ("hallucinated", lambda rows: single(_side(rows, "hallucination"))),
        ("paired", lambda rows: all_right(rows, _item)),
    ):
        if kept:
            scores[f"overall {name}"] = mean_of_shares([items_of(rows) for rows in kept], n_draws)
        for part, rows in parts.items():
            scores[f"{part} {name}"] = mean(items_of(rows), n_draws)
    return scores


def tempcompass(answers: Sequence[Answer], n_draws: int) -> dict[str, Score]:
    """Accuracy of each task by dimension; `average` is over all questions (utils/eval_utils.py, print_result).

    A caption-matching question is right where the right caption's margin is above the other's.
    """
    scores = {}
    for part, rows in _by_meta(answers, "part").items():
        kinds = _by_meta(rows, "kind")
        for name, of in [("average", rows), *((kind, kinds[kind]) for kind in DIMENSIONS if kind in kinds)]:
            items = highest(of, _item) if part == "caption_matching" else single(of)
            scores[f"{part} {name}"] = mean(items, n_draws)
    return scores


def vilma(answers: Sequence[Answer], n_draws: int) -> dict[str, Score]:
    """Pairwise accuracy of the proficiency test (P), the main test (T), and of both (P+T), sec. 4 of the paper.

    A test is right where the caption's margin is above every foil's (bin/eval.py, acc_r). Only examples that people
    found valid count; `all examples` counts the others, too.
    """
    scores = {}
    for part, rows in _by_meta(answers, "part").items():
        for which, of in (("", [a for a in rows if a.pair.meta["valid"]]), (" all examples", rows)):
            tests = _by_meta(of, "kind")
            main, proficiency = (highest(tests.get(kind, []), _item) for kind in ("main", "proficiency"))
            scores[f"{part} P{which}"] = mean(proficiency, n_draws)
            scores[f"{part} T{which}"] = mean(main, n_draws)
            scores[f"{part} P+T{which}"] = mean(both(proficiency, main), n_draws)
    return scores


def hallusionbench(answers: Sequence[Answer], n_draws: int) -> dict[str, Score]:
    """qAcc (pairs), fAcc (figures), easy and hard aAcc and aAcc (utils.py, get_eval_pair_all, _fig, _easy, _hard).

    A pair is one question about all figures of a set; a figure is right where all questions about it are. Questions
    without a figure are in no figure.
    """
    scores = {}
    kinds = _by_meta(answers, "kind")
    for name, rows in [("", answers), *((f" {kind}", kinds[kind]) for kind in kinds)]:
        scores[f"qAcc{name}"] = mean(all_right(rows, _item), n_draws)
        scores[f"fAcc{name}"] = mean(all_right(rows, lambda a: a.pair.meta["figure"]), n_draws)
        scores[f"easy aAcc{name}"] = mean(all_right([a for a in rows if a.pair.meta["easy"]], _item), n_draws)
        scores[f"hard aAcc{name}"] = mean(all_right([a for a in rows if not a.pair.meta["easy"]], _item), n_draws)
        scores[f"aAcc{name}"] = mean(single(rows), n_draws)
    return scores


def pope(answers: Sequence[Answer], n_draws: int) -> dict[str, Score]:
    """Accuracy, precision, recall, F1 (of yes) and the share of yes in each split (evaluate.py)."""
    scores = {}
    for part, rows in _by_meta(answers, "part").items():
        scores |= {f"{part} {name}": counted(rows, formula, n_draws) for name, formula in _COUNTS.items()}
        scores[f"{part} yes ratio"] = yes_ratio(rows, n_draws)
    return scores


def vsr(answers: Sequence[Answer], n_draws: int) -> dict[str, Score]:
    """Accuracy of each split (sec. 4 of the paper)."""
    return {f"{part} accuracy": mean(single(rows), n_draws) for part, rows in _by_meta(answers, "part").items()}


def amber(answers: Sequence[Answer], n_draws: int) -> dict[str, Score]:
    """Accuracy, precision, recall and F1 of the answer no, in all and by kind (inference.py).

    A hallucination is what is sought, so no is positive. The published F1 is computed from rounded percentages with a
    small constant in the denominator; here it is exact, which differs by less than 0.2 points.
    """
    kinds = _by_meta(answers, "kind")
    attributes = [a for kind in ("state", "number", "action") for a in kinds.get(kind, [])]
    scores = {}
    for name, rows in [("all", answers), ("attribute", attributes), *kinds.items()]:
        if rows:
            scores |= {f"{name} {s}": counted(rows, formula, n_draws, "refuted") for s, formula in _COUNTS.items()}
    return scores


PROTOCOLS: Mapping[str, Protocol] = {
    "videohallucer": videohallucer,
    "tempcompass": tempcompass,
    "vilma": vilma,
    "hallusionbench": hallusionbench,
    "pope": pope,
    "vsr": vsr,
    "amber": amber,
}


def _item(answer: Answer) -> str:
    return str(answer.pair.meta["item"])


def _side(answers: Sequence[Answer], side: str) -> list[Answer]:
    return [a for a in answers if a.pair.meta["side"] == side]


def _by_meta(answers: Sequence[Answer], key: str) -> dict[str, list[Answer]]:
    by: dict[str, list[Answer]] = {}
    for answer in answers:
        by.setdefault(str(answer.pair.meta[key]), []).append(answer)
    return by
