"""OMD-Bench's tables of one model's answers, each number with an interval over seed questions; and of several models.

Paper: section 4.3 (what is measured), appendix A.11 (resampling, tests). Named after its tables: 1 and 6 accuracy, 2
abstention, 3 confidence, 4 Shapley values, 5 normalised reliance, 8 and 15 abstention calibration error, 9 ECE and
RC-AUC, 14 signed-rank tests, 16 accuracy by anchor; Friedman, McNemar and permutation tests of A.11.

The paper leaves open what it resamples: here a seed question with all its conditions, or an anchor. Its RC-AUC has no
formula: here it is the mean selective risk over coverage (Geifman et al., 2019). Abs*, the rate at which people
abstain, is that of the answers' own targets, which is how the paper derives it (`HUMAN_ABSTENTION` on its own data).
Where answers failed, ECE is bounded by what each could change a bin's sum by, and RC-AUC by ranking them first.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ...core import RowError
from ..metrics import Floats, Resamples, aurc_draws, ece_draws
from ..scores import Bounds, Measured, Score, Statistic, difference_over, resampled, score_over, share
from ..uncertainty import N_DRAWS, Friedman, SignedRank, adjusted_p, as_observed, friedman, mcnemar, signed_rank
from .answers import ConditionAnswer
from .formulas import CONDITIONS, LEVELS, MODALITIES, ConfidenceMethod, corrupted, shapley_reliance, shapley_shares

Unit = Literal["question", "anchor"]
_LEVEL_OF = np.array([len(corrupted(name)) for name in CONDITIONS])
_IN_LEVEL = np.array([[float(level == k) for level in _LEVEL_OF] for k in LEVELS])
_MEAN_OF_LEVEL = _IN_LEVEL / _IN_LEVEL.sum(axis=1, keepdims=True)
_ALONE = {modality: CONDITIONS.index(name) for modality, name in zip(MODALITIES, ("C100", "C010", "C001"), strict=True)}
_SHAPLEY = {
    modality: np.array([shapley_reliance({c: float(c == one) for c in CONDITIONS})[modality] for one in CONDITIONS])
    for modality in MODALITIES
}
"""Weight of each condition's accuracy in each Shapley value, which is linear in them."""


@dataclass(frozen=True)
class OMDTables:
    """One model's tables on one kind of media. Shares are in [0, 1]; the paper prints percent.

    Attributes:
        n: answers; `n_invalid` of them could not be read and leave all rates, `n_failed` were never given.
        accuracy: pooled over all conditions.
        by_condition: accuracy in C000 to C111 (table 6).
        by_level: accuracy at k = 0..3, the mean of the level's conditions (table 1).
        abstention: share of abstaining answers at k = 0..3 over the level's instances (table 2).
        should_abstain: share of instances whose target abstains, at k = 0..3 (table 13).
        calibration_error: of abstention (tables 8 and 15).
        confidence: mean at k = 0..3 (table 3); None where the model gives none, as `ece` and `rc_auc` (table 9).
        shapley, shapley_shares: per modality (table 4).
        reliance: normalised, per modality (table 5).
        reliance_tests: per pair of modalities, the accuracy that corrupting the first alone costs less that of the
            second, per anchor (table 14).
        by_anchor: accuracy at k = 0 (table 16).
    """

    data: str
    n: int
    n_invalid: int
    n_failed: int
    accuracy: Score
    by_condition: dict[str, Score]
    by_level: tuple[Score, ...]
    abstention: tuple[Score, ...]
    should_abstain: tuple[float, ...]
    calibration_error: Score
    confidence_method: ConfidenceMethod | None
    confidence: tuple[Score, ...] | None
    ece: Score | None
    rc_auc: Score | None
    shapley: dict[str, Score]
    shapley_shares: dict[str, float]
    reliance: dict[str, Score]
    reliance_tests: dict[str, SignedRank]
    by_anchor: dict[str, float]


@dataclass(frozen=True)
class PairOfModels:
    """Two models on the same instances.

    Attributes:
        differences: first minus second in `accuracy`, `k=0` to `k=3`, `calibration_error`, `shapley video` and so on.
        mcnemar_p: per condition, exact, adjusted over all pairs of models (Benjamini and Hochberg).
        permutation_p: of the difference in accuracy, swapping the two models' answers to whole units.
        n_left_out: instances without an answer of both, left out of the two tests.
    """

    first: str
    second: str
    differences: dict[str, Score]
    mcnemar_p: dict[str, float]
    permutation_p: float
    n_left_out: int


@dataclass(frozen=True)
class OMDComparison:
    """Several models on one kind of media (appendix A.11).

    Attributes:
        friedman: per level "k=0" to "k=3", anchors as blocks; empty with fewer than three models.
    """

    data: str
    pairs: tuple[PairOfModels, ...]
    friedman: dict[str, Friedman]


class _Rows:
    """Answers as arrays, and every statistic of them. Suffixes: _N rows, _C conditions, _D draws."""

    def __init__(self, answers: Sequence[ConditionAnswer], unit: Unit, n_draws: int, seed: int) -> None:
        self.answers = [a for a in answers if a.answer is not None or a.error is not None]
        self.drawn = resampled([getattr(a, unit) for a in answers], n_draws, seed)
        is_in = np.array([a.answer is not None or a.error is not None for a in answers], dtype=bool)
        self.drawn = Resamples(self.drawn.group_of_row[is_in], self.drawn.times_DG)
        self.condition_N = np.array([CONDITIONS.index(a.condition) for a in self.answers], dtype=np.int64)
        self.in_condition_NC = np.eye(len(CONDITIONS))[self.condition_N]
        self.failed_N = np.array([a.error is not None for a in self.answers], dtype=bool)
        self.right_N = np.array([bool(a.is_right) for a in self.answers], dtype=np.float64)
        self.abstains_N = np.array([bool(a.abstains) for a in self.answers], dtype=np.float64)
        self.target_N = np.array([a.should_abstain for a in self.answers], dtype=np.float64)
        self.confidence_N = np.array([a.confidence for a in self.answers], dtype=np.float64)
        self.methods: set[ConfidenceMethod] = {a.method for a in self.answers if a.method is not None}

    def score(self, statistic: Statistic, n: int | None = None, n_failed: int | None = None) -> Score:
        n = len(self.answers) if n is None else n
        return score_over((self.drawn, statistic), n, int(self.failed_N.sum()) if n_failed is None else n_failed)

    def condition_rates(self, drawn: Resamples, hits_N: Floats) -> Bounds:
        """Share of hits in each condition, shape (draws, conditions)."""
        sums = [drawn.sums(self.in_condition_NC * x[:, None]) for x in (hits_N, self.failed_N, np.ones(len(hits_N)))]
        return share(sums[0], sums[2]), share(sums[0] + sums[1], sums[2])

    def weighted(self, weights_C: Floats) -> Statistic:
        """A weighted sum of the conditions' accuracies."""
        used = weights_C != 0
        plus_C, minus_C = np.maximum(weights_C, 0)[used], np.minimum(weights_C, 0)[used]

        def statistic(drawn: Resamples) -> Bounds:
            low_DC, high_DC = (rates[:, used] for rates in self.condition_rates(drawn, self.right_N))
            return low_DC @ plus_C + high_DC @ minus_C, high_DC @ plus_C + low_DC @ minus_C

        return statistic

    def accuracy(self, drawn: Resamples) -> Bounds:
        """Over all instances."""
        n_D, right_D, failed_D = drawn.sums(np.stack([np.ones(len(self.right_N)), self.right_N, self.failed_N], 1)).T
        return share(right_D, n_D), share(right_D + failed_D, n_D)

    def level_means(self, drawn: Resamples, low_N: Floats, high_N: Floats) -> Bounds:
        """Means over the instances at k = 0..3, shape (draws, 4)."""
        in_level_NK = (_LEVEL_OF[self.condition_N][:, None] == np.array(LEVELS)).astype(np.float64)
        n_DK = drawn.sums(in_level_NK)
        low_DK, high_DK = (drawn.sums(in_level_NK * values[:, None]) for values in (low_N, high_N))
        return share(low_DK, n_DK), share(high_DK, n_DK)

    def at_level(self, k: int, low_N: Floats, high_N: Floats) -> Statistic:
        def statistic(drawn: Resamples) -> Bounds:
            low_DK, high_DK = self.level_means(drawn, low_N, high_N)
            return low_DK[:, k], high_DK[:, k]

        return statistic

    def calibration_error(self, drawn: Resamples) -> Bounds:
        """Mean over levels of |observed - target abstention|: the nearest and farthest that failures allow."""
        low_DK, high_DK = self.level_means(drawn, self.abstains_N, self.abstains_N + self.failed_N)
        target_DK = self.level_means(drawn, self.target_N, self.target_N)[0]
        nearest_DK = np.maximum(0.0, np.maximum(low_DK - target_DK, target_DK - high_DK))
        farthest_DK = np.maximum(np.abs(low_DK - target_DK), np.abs(high_DK - target_DK))
        return nearest_DK.mean(axis=1), farthest_DK.mean(axis=1)

    def reliance(self, modality: str) -> Statistic:
        """(Acc(C000) - Acc(modality corrupted)) / Acc(C000)."""
        one, zero = _ALONE[modality], CONDITIONS.index("C000")

        def statistic(drawn: Resamples) -> Bounds:
            low_DC, high_DC = self.condition_rates(drawn, self.right_N)
            return 1 - share(high_DC[:, one], low_DC[:, zero]), 1 - share(low_DC[:, one], high_DC[:, zero])

        return statistic

    @property
    def unsure(self) -> NDArray[np.bool_]:
        """Rows that failed or came without a confidence."""
        return self.failed_N | np.isnan(self.confidence_N)

    def _known(self, drawn: Resamples) -> tuple[Resamples, Floats, Floats]:
        known = ~self.unsure
        return Resamples(drawn.group_of_row[known], drawn.times_DG), self.confidence_N[known], self.right_N[known]

    def ece(self, drawn: Resamples) -> Bounds:
        """A row more changes the sum of the bins' gaps by at most 1."""
        known, confidence, right = self._known(drawn)
        n_D, unsure_D = known.sums(np.ones(len(right))), drawn.sums(self.unsure.astype(np.float64))
        gaps_D = np.where(n_D > 0, ece_draws(confidence, right, known), 0.0) * n_D
        return (
            np.clip(share(gaps_D - unsure_D, n_D + unsure_D), 0.0, 1.0),
            np.clip(share(gaps_D + unsure_D, n_D + unsure_D), 0.0, 1.0),
        )

    def rc_auc(self, drawn: Resamples) -> Bounds:
        """A right row ranked first lowers the risk at every coverage, a wrong one raises it."""
        confidence = np.where(self.unsure, 2.0, np.nan_to_num(self.confidence_N))
        right = np.where(self.unsure, 1.0, self.right_N), np.where(self.unsure, 0.0, self.right_N)
        low_D, high_D = (aurc_draws(confidence, each, drawn) for each in right)
        return low_D, high_D

    def anchor_accuracy(self, columns: Sequence[int]) -> tuple[list[str], Floats]:
        """Names of the anchors that have answers in all these conditions, and their accuracies (anchors, columns)."""
        anchors = np.array([a.anchor for a in self.answers])
        names, rates = [], []
        for name in sorted(set(anchors)):
            here = [(anchors == name) & (self.condition_N == c) & ~self.failed_N for c in columns]
            if all(rows.any() for rows in here):
                names.append(str(name))
                rates.append([self.right_N[rows].mean() for rows in here])
        return names, np.array(rates, dtype=np.float64).reshape(len(names), len(columns))


def model_tables(
    answers: Sequence[ConditionAnswer], unit: Unit = "question", n_draws: int = N_DRAWS, seed: int = 0
) -> OMDTables:
    """All tables of one model's answers on one kind of media.

    Args:
        answers: of one model on one kind of media.
        unit: what is resampled as a whole.
        n_draws, seed: of the resampling.

    Raises:
        RowError: no answer, two kinds of media, or two ways to read confidence.
    """
    kinds = sorted({answer.data for answer in answers})
    if len(kinds) != 1:
        raise RowError(f"omd: one kind of media at a time, got {kinds}; part the answers by `data`")
    rows = _Rows(answers, unit, n_draws, seed)
    if len(rows.methods) > 1:
        raise RowError(f"omd: one way to read confidence, got {sorted(rows.methods)}; they cannot be pooled")
    in_condition = [int(n) for n in rows.in_condition_NC.sum(axis=0)]
    failed_in = [int(n) for n in (rows.in_condition_NC * rows.failed_N[:, None]).sum(axis=0)]
    shapley = {m: rows.score(rows.weighted(_SHAPLEY[m])) for m in MODALITIES}
    has_confidence, n_unsure = bool(rows.methods), int(rows.unsure.sum())
    certain_N, possible_N = np.nan_to_num(rows.confidence_N), np.where(rows.unsure, 1.0, rows.confidence_N)
    of_level = [(int(k @ in_condition), int(k @ failed_in)) for k in _IN_LEVEL]
    should = rows.level_means(as_observed(rows.drawn), rows.target_N, rows.target_N)[0][0]
    return OMDTables(
        data=kinds[0],
        n=len(answers),
        n_invalid=len(answers) - len(rows.answers),
        n_failed=int(rows.failed_N.sum()),
        accuracy=rows.score(rows.accuracy),
        by_condition={
            name: rows.score(rows.weighted(np.eye(len(CONDITIONS))[c]), in_condition[c], failed_in[c])
            for c, name in enumerate(CONDITIONS)
        },
        by_level=tuple(rows.score(rows.weighted(_MEAN_OF_LEVEL[k]), *of_level[k]) for k in LEVELS),
        abstention=tuple(
            rows.score(rows.at_level(k, rows.abstains_N, rows.abstains_N + rows.failed_N), *of_level[k]) for k in LEVELS
        ),
        should_abstain=tuple(float(rate) for rate in should),
        calibration_error=rows.score(rows.calibration_error),
        confidence_method=next(iter(rows.methods), None),
        confidence=tuple(rows.score(rows.at_level(k, certain_N, possible_N), of_level[k][0]) for k in LEVELS)
        if has_confidence
        else None,
        ece=rows.score(rows.ece, n_failed=n_unsure) if has_confidence else None,
        rc_auc=rows.score(rows.rc_auc, n_failed=n_unsure) if has_confidence else None,
        shapley=shapley,
        shapley_shares=shapley_shares({m: score.value for m, score in shapley.items()}),
        reliance={m: rows.score(rows.reliance(m)) for m in MODALITIES},
        reliance_tests=_reliance_tests(rows),
        by_anchor=dict(zip(*_column(rows.anchor_accuracy([0])), strict=True)),
    )


def compare_models(
    answers: Mapping[str, Sequence[ConditionAnswer]], unit: Unit = "question", n_draws: int = N_DRAWS, seed: int = 0
) -> OMDComparison:
    """Every two models on the same instances, and all of them by anchor (appendix A.11).

    Raises:
        RowError: fewer than two models, or models with different instances.
    """
    names = list(answers)
    keys = [{(a.data, a.question, a.condition) for a in answers[name]} for name in names]
    if len(names) < 2 or any(each != keys[0] for each in keys):
        counts = dict(zip(names, map(len, keys), strict=True))
        raise RowError(
            f"omd: models are compared on the same instances, got {counts}; leave out what one of them lacks"
        )
    rows = {name: _Rows(answers[name], unit, n_draws, seed) for name in names}
    pairs = [_pair(one, other, answers, rows, unit, seed) for one, other in itertools.combinations(names, 2)]
    for condition in CONDITIONS:
        adjusted = adjusted_p([pair.mcnemar_p[condition] for pair in pairs])
        for pair, p_value in zip(pairs, adjusted, strict=True):
            pair.mcnemar_p[condition] = float(p_value)
    return OMDComparison(next(iter(keys[0]))[0], tuple(pairs), _friedman(list(rows.values())))


def _pair(
    first: str,
    second: str,
    answers: Mapping[str, Sequence[ConditionAnswer]],
    rows: Mapping[str, _Rows],
    unit: Unit,
    seed: int,
) -> PairOfModels:
    one, other = rows[first], rows[second]
    statistics = [_compared(each) for each in (one, other)]
    n, n_failed = len(one.answers), int(one.failed_N.sum() + other.failed_N.sum())
    differences = {
        what: difference_over(statistics[0][what], statistics[1][what], n, n_failed) for what in statistics[0]
    }
    right = [{(a.question, a.condition): a for a in answers[name]} for name in (first, second)]
    both = [(a, right[1][key]) for key, a in right[0].items()]
    judged = [(a, b) for a, b in both if a.is_right is not None and b.is_right is not None]
    p_values = {
        condition: mcnemar(
            [bool(a.is_right) for a, _ in judged if a.condition == condition],
            [bool(b.is_right) for _, b in judged if b.condition == condition],
        ).p_exact
        for condition in CONDITIONS
    }
    return PairOfModels(
        first, second, differences, p_values, _permutation_p(judged, unit, seed), len(both) - len(judged)
    )


def _compared(rows: _Rows) -> dict[str, Measured]:
    statistics: dict[str, Statistic] = {
        "accuracy": rows.accuracy,
        **{f"k={k}": rows.weighted(_MEAN_OF_LEVEL[k]) for k in LEVELS},
        "calibration_error": rows.calibration_error,
        **{f"shapley {m}": rows.weighted(_SHAPLEY[m]) for m in MODALITIES},
    }
    return {name: (rows.drawn, statistic) for name, statistic in statistics.items()}


def _permutation_p(judged: Sequence[tuple[ConditionAnswer, ConditionAnswer]], unit: Unit, seed: int) -> float:
    """Two-sided, of the sum of differences over units, whose signs chance flips."""
    by_unit: dict[str, float] = {}
    for one, other in judged:
        name = getattr(one, unit)
        by_unit[name] = by_unit.get(name, 0.0) + float(bool(one.is_right)) - float(bool(other.is_right))
    differences = np.array(list(by_unit.values()))
    if len(differences) < 2:
        return float("nan")
    if not np.any(differences):
        return 1.0
    tested = stats.permutation_test(
        (differences,), np.sum, permutation_type="samples", n_resamples=9_999, rng=np.random.default_rng(seed)
    )
    return float(tested.pvalue)


def _friedman(rows: Sequence[_Rows]) -> dict[str, Friedman]:
    if len(rows) < 3:
        return {}
    tests = {}
    for k in LEVELS:
        columns = [c for c in range(len(CONDITIONS)) if _LEVEL_OF[c] == k]
        by_model = [
            dict(zip(names, rates.mean(axis=1), strict=True))
            for names, rates in (each.anchor_accuracy(columns) for each in rows)
        ]
        shared = sorted(set.intersection(*(set(each) for each in by_model)))
        if len(shared) > 1:
            tests[f"k={k}"] = friedman([[each[name] for each in by_model] for name in shared])
    return tests


def _reliance_tests(rows: _Rows) -> dict[str, SignedRank]:
    """What corrupting each modality alone costs each anchor, compared modality by modality."""
    _, rates = rows.anchor_accuracy([0, *_ALONE.values()])
    drops = {m: rates[:, 0] - rates[:, i] for i, m in enumerate(_ALONE, start=1)}
    pairs = (("text", "video"), ("text", "audio"), ("video", "audio"))
    return {f"{one} - {other}": signed_rank(drops[one], drops[other]) for one, other in pairs}


def _column(named: tuple[list[str], Floats]) -> tuple[list[str], list[float]]:
    return named[0], [float(value) for value in named[1][:, 0]]
