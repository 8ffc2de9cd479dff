"""OMD-Bench's measures of an answerer that is shown conflicting modalities: abstention, reliance, confidence.

Each instance has a condition `Cvat`, where 1 marks a corrupted modality (video, audio, text in this order): C000 is
clean, C101 has clean audio only. The corruption level k is the number of ones. Paper: OMD-Bench, section 4.3 and
appendix A; no code is published. Rates are shares in [0, 1] where the paper prints percent. What it abbreviates to ACE
keeps its full name here, since three other metrics share the letters.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ...core import RowError
from ..metrics import Floats

MODALITIES: tuple[str, ...] = ("video", "audio", "text")
CONDITIONS = ("C000", "C100", "C010", "C001", "C110", "C101", "C011", "C111")
LEVELS = range(4)
HUMAN_ABSTENTION: dict[str, tuple[float, ...]] = {
    "synthetic": (0.0, 0.0, 9 / 765, 249 / 255),
    "real": (0.0, 0.0, 14 / 765, 251 / 255),
}
"""Per split, how often annotators abstained at k = 0..3 (Table 13: 255 questions per condition)."""

ConfidenceMethod = Literal["restricted_softmax", "token_probability"]


@dataclass(frozen=True)
class Confidence:
    """Confidence in the answers given, shape (n,), with how it was read off the model.

    The two methods are on different scales (section 4.3): nothing here pools or compares them.
    """

    method: ConfidenceMethod
    values: Floats


@dataclass(frozen=True)
class LevelMeans:
    """Mean confidence and number of instances at k = 0..3, each shape (4,); the mean is NaN where there are none."""

    method: ConfidenceMethod
    mean: Floats
    n: Floats


def corrupted(condition: str) -> frozenset[str]:
    """The corrupted modalities of a condition: "C101" gives video and text. RowError for any other name."""
    if condition not in CONDITIONS:
        raise RowError(f"modality_reliance: no such condition, got {condition!r}; use one of {', '.join(CONDITIONS)}")
    return frozenset(m for m, digit in zip(MODALITIES, condition[1:], strict=True) if digit == "1")


def levels_of(conditions: Sequence[str]) -> Floats:
    """The corruption level of each instance, shape (n,)."""
    return np.array([len(corrupted(condition)) for condition in conditions], dtype=np.float64)


def condition_rates(conditions: Sequence[str], hits: ArrayLike) -> dict[str, float]:
    """Share of hits per condition, NaN where it has no instance: Acc(c) of section 4.3 where a hit is a right answer.

    Args:
        conditions: shape (n,). Leave invalid (unreadable) answers out, as the paper does.
        hits: 0 or 1, shape (n,): answered right, or abstained.
    """
    of, values = np.asarray(conditions, dtype=object), _zeros_and_ones(hits, len(conditions))
    for name in set(conditions):
        corrupted(name)
    return {name: _mean(values[of == name]) for name in CONDITIONS}


def level_rates(conditions: Sequence[str], hits: ArrayLike) -> Floats:
    """Share of hits at k = 0..3 over all instances of the level, shape (4,); NaN where a level has none."""
    return _level_means(levels_of(conditions), _zeros_and_ones(hits, len(conditions)))


def level_rates_over_conditions(rates: Mapping[str, float]) -> Floats:
    """Mean of the conditions' rates at k = 0..3, shape (4,): the k = 1 and k = 2 columns of Table 1.

    The same as `level_rates` where every condition has as many valid instances; not otherwise. NaN where one is NaN.
    """
    names = sorted(rates)
    return _level_means(levels_of(names), np.array([rates[name] for name in names], dtype=np.float64))


def abstention_calibration_error(observed: ArrayLike, target: ArrayLike) -> float:
    """Mean over k = 0..3 of |Abs_k - Abs*_k|; 0 = abstains as often as people do (section 4.3, "ACE").

    Args:
        observed: the model's abstention rates, shape (4,), from `level_rates`; NaN anywhere gives NaN.
        target: the annotators' rates, shape (4,), such as `HUMAN_ABSTENTION["real"]`.

    Raises:
        RowError: other shapes, or rates outside [0, 1].
    """
    both = [np.asarray(rates, dtype=np.float64) for rates in (observed, target)]
    for rates in both:
        if rates.shape != (len(LEVELS),) or np.any(rates < 0) or np.any(rates > 1):
            raise RowError(f"modality_reliance: four rates in [0, 1] are needed, got {rates}; divide percent by 100")
    return float(np.mean(np.abs(both[0] - both[1])))


def shapley(value_of: Mapping[frozenset[str], float], players: Collection[str]) -> dict[str, float]:
    """Shapley values (formula 1, appendix A.1): a player's mean contribution over all orders of joining.

    Args:
        value_of: the value of every subset of the players, the empty one included.

    Raises:
        RowError: a subset has no value.
    """
    n, result = len(players), {}
    subsets = [frozenset(s) for size in range(n + 1) for s in itertools.combinations(players, size)]
    if missing := [sorted(s) for s in subsets if s not in value_of]:
        raise RowError(f"modality_reliance: every subset needs a value, got none for {missing[:3]}; give all {2**n}")
    for player in players:
        without = [s for s in subsets if player not in s]
        weights = [math.factorial(len(s)) * math.factorial(n - len(s) - 1) / math.factorial(n) for s in without]
        gains = [value_of[s | {player}] - value_of[s] for s in without]
        result[player] = math.fsum(w * gain for w, gain in zip(weights, gains, strict=True))
    return result


def shapley_reliance(accuracy: Mapping[str, float]) -> dict[str, float]:
    """Shapley value of each modality, the clean modalities being the coalition and accuracy its value (appendix A.1).

    They add up to Acc(C000) - Acc(C111). Negative: a clean channel of this modality does harm.

    Args:
        accuracy: of each of the eight conditions, from `condition_rates`; NaN anywhere gives NaN.
    """
    by_clean = {frozenset(MODALITIES) - corrupted(condition): value for condition, value in accuracy.items()}
    return shapley(by_clean, MODALITIES)


def shapley_shares(values: Mapping[str, float]) -> dict[str, float]:
    """Each value's share of the total (the percentages of Table 4); all NaN where one is negative or the total is 0."""
    total = math.fsum(values.values())
    defined = total > 0 and min(values.values()) >= 0
    return {name: value / total if defined else math.nan for name, value in values.items()}


def normalised_reliance(accuracy: Mapping[str, float]) -> dict[str, float]:
    """(Acc(C000) - Acc(m alone corrupted)) / Acc(C000) of each modality m (section 4.3); NaN where Acc(C000) is 0."""
    if missing := [name for name in ("C000", "C100", "C010", "C001") if name not in accuracy]:
        raise RowError(f"modality_reliance: accuracies are missing, got none for {missing}; give C000 and k = 1")
    clean = accuracy["C000"]
    alone = {next(iter(corrupted(name))): accuracy[name] for name in ("C100", "C010", "C001")}
    return {m: (clean - value) / clean if clean else math.nan for m, value in alone.items()}


def restricted_softmax(option_logits: ArrayLike) -> Confidence:
    """Largest softmax probability over the answer options' logits only, shape (n, options) to (n,) (section 4.3).

    For the two options of a yes/no verifier this is max(p, 1 - p) with p the sigmoid of the margin.
    """
    logits = np.asarray(option_logits, dtype=np.float64)
    if logits.ndim != 2 or logits.shape[1] == 0 or not np.all(np.isfinite(logits)):
        raise RowError(
            f"modality_reliance: finite logits (n, options) are needed, got {logits.shape}; drop failed rows"
        )
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return Confidence("restricted_softmax", 1.0 / shifted.sum(axis=1))


def token_probability(answer_log_probabilities: ArrayLike) -> Confidence:
    """Full-vocabulary probability of the answer token that was chosen, from its log-probability, shape (n,)."""
    logs = np.asarray(answer_log_probabilities, dtype=np.float64)
    if logs.ndim != 1 or np.isnan(logs).any() or np.any(logs > 0):
        raise RowError(
            f"modality_reliance: natural log-probabilities (n,) are needed, got {logs[:5]}; drop failed rows"
        )
    return Confidence("token_probability", np.exp(logs))


def mean_confidence(conditions: Sequence[str], confidence: Confidence) -> LevelMeans:
    """Conf_k, the mean confidence at each corruption level (section 4.3, Table 3)."""
    levels, values = levels_of(conditions), confidence.values
    if values.shape != levels.shape:
        raise RowError(f"modality_reliance: one confidence per instance, got {values.shape} for {levels.shape}; align")
    n = np.array([np.sum(levels == k) for k in LEVELS], dtype=np.float64)
    return LevelMeans(confidence.method, _level_means(levels, values), n)


def by_method(columns: Mapping[str, Confidence]) -> dict[ConfidenceMethod, dict[str, Confidence]]:
    """Models' confidences parted by extraction method: one table each, as Tables 3 and 9 are; never one ranking."""
    parted: dict[ConfidenceMethod, dict[str, Confidence]] = {"restricted_softmax": {}, "token_probability": {}}
    for name, confidence in columns.items():
        parted[confidence.method][name] = confidence
    return parted


def _level_means(levels: Floats, values: Floats) -> Floats:
    return np.array([_mean(values[levels == k]) for k in LEVELS])


def _mean(values: Floats) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def _zeros_and_ones(hits: ArrayLike, n: int) -> Floats:
    values = np.asarray(hits, dtype=np.float64)
    if values.shape != (n,) or not np.isin(values, (0, 1)).all():
        raise RowError(f"modality_reliance: {n} hits of 0 or 1 are needed, got {values[:5]}; leave invalid answers out")
    return values
