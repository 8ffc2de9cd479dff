"""What mining did to the verifiers: AUC on the whole test split and on its hard cases, and differences to random.

Which negatives are hard was decided when the kitchen dealt them out (examples/kitchen/negatives.py), not by a model.
Each number is the mean over the seeds. In a resample clips are drawn once and every seed and round is judged on the
same ones; in a permutation a clip is swapped in all seeds at once. So intervals and p-values hold the chance of the
test clips, not that of the seeds, whose own numbers are told beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from proofreel.data_prep.pipeline import versions
from proofreel.eval.metrics import MetricRows, auc_draws, metric_rows
from proofreel.eval.scoring import Prediction, groups_of, labels_of, margins_of, read_predictions
from proofreel.eval.uncertainty import PermutationTest, adjusted_p, as_observed, interval_of, permuted_auc, resample
from proofreel.models.decision import sigmoid

HARD = ("near_miss", "distractor", "neighbour")
CASES = {"whole": None, "hard": HARD, **{kind: (kind,) for kind in HARD}}
"""Name of a part of the test split -> kinds of its negatives; the positives are in all of them."""
TESTED = ("whole", "hard")


@dataclass(frozen=True)
class Case:
    """One part of the test split as the verifiers of every round and seed judged it, shape suffix _D for draws.

    Attributes:
        of_seeds: by round, the AUC of each seed.
        drawn: by round, the mean over seeds in each draw of clips, shape (draws,).
        tests: by round after the first, the permutation test against the first.
    """

    n_negatives: int
    n_groups: int
    of_seeds: list[list[float]]
    drawn: list[np.ndarray]
    tests: list[PermutationTest]


def table(folders: Sequence[Sequence[Path]], n_draws: int = 10_000) -> str:
    """Markdown: AUCs, and differences of each round to the first.

    Args:
        folders: of each round its seeds; `test.parquet` lies in each.
        n_draws: of clips, and of ways to swap them.
    """
    rows = [[_scored(folder / "test.parquet") for folder in seeds] for seeds in folders]
    cases = {name: judge(rows, kinds, n_draws) for name, kinds in CASES.items()}
    titles = [f"{name} ({case.n_negatives} negatives)" for name, case in cases.items()]
    lines = [f"| negatives trained on | {' | '.join(titles)} |", "| --- |" + " --- |" * len(titles)]
    for number, _ in enumerate(folders):
        cells = [_auc(case, number) for case in cases.values()]
        lines.append(f"| {_name(number)} | {' | '.join(cells)} |")
    adjusted = adjusted_p([[test.p_value for test in cases[name].tests] for name in TESTED])
    lines += ["", f"| mined minus random | {' | '.join(cases)} |", "| --- |" + " --- |" * len(cases)]
    for number in range(1, len(folders)):
        cells = [_difference(case, number) for case in cases.values()]
        for place, name in enumerate(TESTED):
            found = cases[name].tests[number - 1]
            cells[place] += f"; p = {found.p_value:.4f}, adjusted {adjusted[place][number - 1]:.4f}"
        lines.append(f"| {_name(number)} | {' | '.join(cells)} |")
    n_groups = cases["whole"].n_groups
    told = ", ".join(f"{name} {number}" for name, number in versions().items())
    return "\n".join([*lines, "", f"{n_groups} test clips and videos, {n_draws} resamples and permutations; {told}\n"])


def judge(rows: Sequence[Sequence[Sequence[Prediction]]], kinds: Sequence[str] | None, n_draws: int) -> Case:
    """One part of the test split; `rows` are the predictions by round and seed, `kinds` of negatives, None: all."""
    wanted = None if kinds is None else {f"negative_{kind}" for kind in kinds}
    used = [
        [[p for p in seed if p.label == "supported" or wanted is None or p.origin in wanted] for seed in seeds]
        for seeds in rows
    ]
    groups, labels = groups_of(used[0][0]), labels_of(used[0][0])
    drawn = resample(groups, n_draws)
    scored = [[_headline(seed) for seed in seeds] for seeds in used]
    observed = as_observed(drawn)
    return Case(
        n_negatives=int((labels == 0).sum()),
        n_groups=drawn.n_groups,
        of_seeds=[[float(auc_draws(each.margins, each.labels, observed)[0]) for each in seeds] for seeds in scored],
        drawn=[np.mean([auc_draws(each.margins, each.labels, drawn) for each in seeds], axis=0) for seeds in scored],
        tests=[permuted_auc(list(zip(seeds, scored[0], strict=True)), groups, n_draws) for seeds in scored[1:]],
    )


def _scored(path: Path) -> list[Prediction]:
    """The rows of a file in the order of their ids, so that files can be compared."""
    return sorted(read_predictions(path)[0], key=lambda p: p.pair_id)


def _headline(rows: Sequence[Prediction]) -> MetricRows:
    margins = margins_of(rows)  # a row that failed is NaN, and refused: AUCs of other rows are no comparison
    return metric_rows(margins, sigmoid(margins), labels_of(rows), 0.5)


def _name(number: int) -> str:
    return "random (round 0)" if number == 0 else f"mined (round {number})"


def _auc(case: Case, number: int) -> str:
    seeds = case.of_seeds[number]
    by_seed = ", ".join(f"{value:.3f}" for value in seeds)
    return f"{_shown(float(np.mean(seeds)), case.drawn[number], case.n_groups)}; {by_seed}"


def _difference(case: Case, number: int) -> str:
    by_seed = [one - other for one, other in zip(case.of_seeds[number], case.of_seeds[0], strict=True)]
    told = _shown(float(np.mean(by_seed)), case.drawn[number] - case.drawn[0], case.n_groups, "+")
    return f"{told}; {', '.join(f'{value:+.3f}' for value in by_seed)}"


def _shown(value: float, draws: np.ndarray, n_groups: int, sign: str = "") -> str:
    found = interval_of(draws, value, n_groups=n_groups)
    return f"{value:{sign}.3f} ({found.low:{sign}.3f} to {found.high:{sign}.3f})"
