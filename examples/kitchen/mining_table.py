"""What mining did to the verifiers: AUC on the whole test split and on its hard cases, and differences to random.

Which negatives are hard was decided when the kitchen dealt them out (examples/kitchen/negatives.py), not by a model.
Each number is the mean over the seeds, with intervals over clips and over seeds as examples/kitchen/over_seeds.py has
them. In a permutation a clip is swapped in all seeds at once, so that a p-value holds the chance of the clips alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from examples.kitchen.over_seeds import Judged, compare, judge, made_with, mean_text, metrics_of, rows_of, seeds_text
from proofreel.eval.scoring import Prediction, groups_of, labels_of
from proofreel.eval.uncertainty import PermutationTest, adjusted_p, permuted_auc

HARD = ("near_miss", "distractor", "neighbour")
CASES = {"whole": None, "hard": HARD, **{kind: (kind,) for kind in HARD}}
"""Name of a part of the test split -> kinds of its negatives; the positives are in all of them."""
TESTED = ("whole", "hard")


@dataclass(frozen=True)
class Case:
    """One part of the test split as the verifiers of every round and seed judged it.

    Attributes:
        rounds: by round, the metrics over its seeds.
        tests: by round after the first, the permutation test against the first.
    """

    n_negatives: int
    rounds: list[Judged]
    tests: list[PermutationTest]


def table(folders: Sequence[Sequence[Path]], n_draws: int = 10_000) -> str:
    """Markdown: AUCs, and differences of each round to the first.

    Args:
        folders: of each round its seeds; `test.parquet` lies in each.
        n_draws: of clips, and of ways to swap them.
    """
    rows = [[rows_of(folder / "test.parquet") for folder in seeds] for seeds in folders]
    cases = {name: case_of(rows, kinds, n_draws) for name, kinds in CASES.items()}
    titles = [f"{name} ({case.n_negatives} negatives)" for name, case in cases.items()]
    lines = [f"| negatives trained on | {' | '.join(titles)} |", "| --- |" + " --- |" * len(titles)]
    for number, _ in enumerate(folders):
        cells = [_auc(case.rounds[number]) for case in cases.values()]
        lines.append(f"| {_name(number)} | {' | '.join(cells)} |")
    adjusted = adjusted_p([[test.p_value for test in cases[name].tests] for name in TESTED])
    lines += ["", f"| mined minus random | {' | '.join(cases)} |", "| --- |" + " --- |" * len(cases)]
    for number in range(1, len(folders)):
        cells = [_difference(case.rounds[number], case.rounds[0]) for case in cases.values()]
        for place, name in enumerate(TESTED):
            test = cases[name].tests[number - 1]
            cells[place] += f"; p = {test.p_value:.4f}, adjusted {adjusted[place][number - 1]:.4f}"
        lines.append(f"| {_name(number)} | {' | '.join(cells)} |")
    drawn = "resamples and permutations of clips and videos"
    return "\n".join([*lines, "", made_with(cases["whole"].rounds[0], n_draws, drawn) + "\n"])


def case_of(rows: Sequence[Sequence[Sequence[Prediction]]], kinds: Sequence[str] | None, n_draws: int) -> Case:
    """One part of the test split; `rows` are the predictions by round and seed, `kinds` of negatives, None: all."""
    wanted = None if kinds is None else {f"negative_{kind}" for kind in kinds}
    used = [
        [[p for p in seed if p.label == "supported" or wanted is None or p.origin in wanted] for seed in seeds]
        for seeds in rows
    ]
    groups, labels = groups_of(used[0][0]), labels_of(used[0][0])
    scored = [[metrics_of(seed) for seed in seeds] for seeds in used]
    return Case(
        n_negatives=int((labels == 0).sum()),
        rounds=[judge(seeds, n_draws) for seeds in used],
        tests=[permuted_auc(list(zip(seeds, scored[0], strict=True)), groups, n_draws) for seeds in scored[1:]],
    )


def _name(number: int) -> str:
    return "random (round 0)" if number == 0 else f"mined (round {number})"


def _auc(judged: Judged) -> str:
    return f"{mean_text(judged, 'auc')}; {seeds_text(judged.of_seeds['auc'])}"


def _difference(mined: Judged, random: Judged) -> str:
    difference = compare(mined, random)
    return f"{difference}; {seeds_text(difference.of_seeds, '+')}"
