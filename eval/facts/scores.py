"""MultiFactScore of judged captions (DualFact+, sections 5.2 to 5.4, appendix B.1), with bounds and intervals.

    MultiFactScore = supported facts / facts, of one caption (section 5.3); a system's is the mean over its captions

Scores are named by paths:

    visual/conceptual/multifact         mean over captions; a caption without a fact has no score and is counted
    visual/conceptual/mean_of_clips     Acc(v) of section 5.2: mean over clips of the mean over a clip's roles
    visual/conceptual/mean_of_roles     mean of the role columns: "Avg." of the textual rows of tables 6 and 8
    visual/conceptual/pooled            over all facts; the paper does not say what "Avg." of its other rows is
    visual/conceptual/role/Tool         over all facts of a role
    errors/caption_only/conceptual/Tool/omission    share of the errors (tables 7 and 9); "all" for all roles.
                                        Entities that are omitted are those of conceptual facts

`visual` holds predicted facts against the video, `textual_gold` gold facts against the generated caption, and
`textual_predicted` predicted facts against the gold caption. Where judgments failed, a score has bounds: all of them
no, all of them yes. A caption whose facts could not be extracted has one fact of each role without a verdict. Intervals
resample videos; two systems are paired over them, and their difference is that of the two printed scores.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...core import RowError
from ..metrics import Floats, Resamples
from ..scores import (
    Bounds,
    Correlations,
    JudgePairs,
    Score,
    Statistic,
    bounded,
    correlations,
    difference_over,
    ratio_of_sums,
    resampled,
    score_over,
    share,
)
from ..uncertainty import N_DRAWS
from .captions import LAYERS, Caption, Clip, Layer, entity_key
from .formulas import ErrorCounts, ErrorMode, PredictedFact, error_counts_by_role
from .judged import (
    CONDITIONS,
    Condition,
    FactOptions,
    Grounding,
    JudgedCaption,
    JudgedCaptions,
    JudgedGold,
    JudgedObject,
    judge_captions,
    label_judged,
)

ERROR_MODES: dict[ErrorMode, tuple[str, tuple[str, ...]]] = {
    "caption_only": ("textual", ("omission", "hallucination")),
    "caption_grounded": ("textual", ("omission", "hallucination", "saliency")),
    "video_grounded": ("visual", ("hallucination", "saliency")),
}
"""Who refuted the facts, and which kinds of errors share the whole."""


@dataclass(frozen=True)
class ScoredCaption:
    """A caption, its MultiFactScores by condition and layer, its errors by who refuted, layer and role."""

    judged: JudgedCaption
    scores: Mapping[str, Score]
    errors: Mapping[str, Mapping[str, ErrorCounts]]
    omitted: tuple[str, ...]


@dataclass(frozen=True)
class MultiFactScores:
    """The scores of a system.

    Attributes:
        scores: by the names that the module's docstring lists.
        n_undefined: captions without a fact to judge, by condition and layer.
        agreement: of captions' scores with those by people's labels, where the files have labels.
    """

    scores: Mapping[str, Score]
    n_undefined: Mapping[str, int]
    captions: tuple[ScoredCaption, ...]
    agreement: Mapping[str, Correlations]


@dataclass(frozen=True)
class MultiFactResult:
    """Systems, judges and what they were asked.

    Attributes:
        differences: each further system minus the first, paired over videos.
        judges: F_g+ and F_g- judged: `visual/conceptual/pooled`, `.../f1`, `.../role/Tool/accuracy`; the positive
            class of precision, recall and F1 is supported.
        objects: recall, specificity and accuracy of grounding (appendix B.1).
    """

    systems: Mapping[str, MultiFactScores]
    differences: Mapping[str, Mapping[str, Score]]
    judges: Mapping[str, Score]
    objects: Mapping[str, Score]
    judged: JudgedCaptions


@dataclass(frozen=True)
class _Measure:
    """A statistic of clips, the judgments it rests on, and how many of them failed."""

    statistic: Statistic
    n: int
    n_failed: int


Verdict = tuple[int, str, bool | None]
"""Number of the clip, role, and the verdict; None: failed."""


def multifact_scores(
    clips: Sequence[Clip],
    systems: Mapping[str, Sequence[Caption]],
    visual: JudgePairs | None = None,
    textual: JudgePairs | None = None,
    grounding: Grounding | Literal["labels"] | None = None,
    options: FactOptions | None = None,
    n_draws: int = N_DRAWS,
    seed: int = 0,
) -> MultiFactResult:
    """MultiFactScore and all that belongs to it, of one system or several.

    Args:
        clips: annotated; `read_clips`.
        systems: captions of each, one for each clip and in their order, with facts; `read_captions`, `with_facts`.
        visual, textual, grounding: see `judge_captions`.
        options: what is judged.
        n_draws, seed: of the resamples of videos.

    Raises:
        RowError: nothing can be scored: no judge, and no label in the files.
    """
    judged = judge_captions(clips, systems, visual, textual, grounding, options)
    drawn = resampled([clip.group for clip in clips], n_draws, seed)
    measures = {name: _system_measures(captions, judged.conditions) for name, captions in judged.systems.items()}
    if not judged.conditions:
        raise RowError("multifact: facts need a judge, got none and no label; give a verifier, or facts with `visual`")
    people = label_judged(judged.systems)
    by_judge = [c for c, judge in (("visual", visual), ("textual_predicted", textual)) if judge is not None]
    scored: dict[str, MultiFactScores] = {}
    for name, captions in judged.systems.items():
        each = tuple(_scored(one) for one in captions)
        agreement = _agreement(each, [_scored(one) for one in people[name]], by_judge)
        scored[name] = MultiFactScores(_over(drawn, measures[name]), _n_undefined(each), each, agreement)
    first, *others = measures
    differences = {name: _differences(drawn, measures[name], measures[first]) for name in others}
    number = {clip.id: place for place, clip in enumerate(clips)}
    judges = _over(drawn, _judge_measures(judged.gold, number))
    return MultiFactResult(scored, differences, judges, _over(drawn, _object_measures(judged.objects, number)), judged)


def _over(drawn: Resamples, measures: Mapping[str, _Measure]) -> dict[str, Score]:
    return {name: score_over((drawn, m.statistic), m.n, m.n_failed) for name, m in measures.items()}


def _differences(drawn: Resamples, later: Mapping[str, _Measure], first: Mapping[str, _Measure]) -> dict[str, Score]:
    return {
        name: difference_over(
            (drawn, m.statistic), (drawn, first[name].statistic), m.n + first[name].n, m.n_failed + first[name].n_failed
        )
        for name, m in later.items()
        if name in first
    }


def _system_measures(captions: Sequence[JudgedCaption], conditions: Sequence[Condition]) -> dict[str, _Measure]:
    measures: dict[str, _Measure] = {}
    for condition in conditions:
        for layer in LAYERS:
            roles = _roles(captions, layer)
            verdicts = [
                (number, role, supported)
                for number, one in enumerate(captions)
                for role, supported in _verdicts(one, condition, layer, roles)
            ]
            if verdicts:
                averages = _averages(verdicts, len(captions))
                measures |= {f"{condition}/{layer}/{name}": measure for name, measure in averages.items()}
    for mode, (refuter, kinds) in ERROR_MODES.items():
        for layer in LAYERS:
            if layer == "contextual":
                kinds = tuple(kind for kind in kinds if kind != "omission")
            if len(kinds) > 1 and f"{_CONDITION_OF[refuter]}/{layer}/pooled" in measures:
                counts = [_errors(one, refuter, layer, _roles(captions, layer)) for one in captions]
                shares = _error_measures(counts, mode, kinds)
                measures |= {f"errors/{mode}/{layer}/{name}": measure for name, measure in shares.items()}
    return measures


_CONDITION_OF = {"textual": "textual_predicted", "visual": "visual"}


def _roles(captions: Iterable[JudgedCaption], layer: Layer) -> list[str]:
    """The roles of gold and predicted facts: those of which a caption of unknown facts may have some."""
    facts = (f for one in captions for f in (*one.clip.gold, *(judged.fact for judged in one.facts)))
    return list(dict.fromkeys(fact.role for fact in facts if fact.layer == layer))


def _verdicts(
    one: JudgedCaption, condition: Condition, layer: Layer, roles: Sequence[str]
) -> list[tuple[str, bool | None]]:
    if condition == "textual_gold":
        return [(fact.role, judgment.supported) for fact, judgment in one.gold if fact.layer == layer]
    if layer in one.errors:
        return [(role, None) for role in roles]
    judged = [
        (f.fact.role, f.visual if condition == "visual" else f.textual) for f in one.facts if f.fact.layer == layer
    ]
    return [(role, judgment.supported) for role, judgment in judged if judgment is not None]


def _averages(verdicts: Sequence[Verdict], n_clips: int) -> dict[str, _Measure]:
    """Every average of verdicts: by clip, by clip and role, by role, and over all."""
    clip = np.array([number for number, _, _ in verdicts], dtype=np.int64)
    role = np.array([name for _, name, _ in verdicts], dtype=np.str_)
    low = np.array([bool(supported) for _, _, supported in verdicts], dtype=np.float64)
    failed = np.array([supported is None for _, _, supported in verdicts], dtype=np.float64)
    names = list(dict.fromkeys(role.tolist()))

    def sums(of: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
        """Of each clip: supported verdicts at least and at most, and verdicts."""
        at_least, at_most, n = (
            np.bincount(clip[of], weights=w[of], minlength=n_clips).astype(np.float64)
            for w in (low, low + failed, np.ones(len(clip)))
        )
        return at_least, at_most, n

    everything = np.ones(len(verdicts), dtype=np.bool_)
    by_role = {name: sums(role == name) for name in names}
    shares = [(share(a, n), share(b, n)) for a, b, n in by_role.values()]
    n_roles = sum(((n > 0).astype(np.float64) for _, _, n in by_role.values()), np.zeros(n_clips))
    of_clip = [sum((np.nan_to_num(each[end]) for each in shares), np.zeros(n_clips)) for end in (0, 1)]
    n_failed = int(failed.sum())
    of_role = {name: ratio_of_sums(*by_role[name]) for name in names}
    measures = {
        "multifact": _Measure(_mean_of_shares(*sums(everything)), len(verdicts), n_failed),
        "mean_of_clips": _Measure(_mean_of_shares(of_clip[0], of_clip[1], n_roles), len(verdicts), n_failed),
        "mean_of_roles": _Measure(_mean_of(list(of_role.values())), len(verdicts), n_failed),
        "pooled": _Measure(ratio_of_sums(*sums(everything)), len(verdicts), n_failed),
    }
    for name in names:
        of = role == name
        measures[f"role/{name}"] = _Measure(of_role[name], int(of.sum()), int(failed[of].sum()))
    return measures


def _mean_of_shares(low: Floats, high: Floats, n: Floats) -> Statistic:
    """The mean over clips of part / n, over those that have an n."""
    parts = [np.nan_to_num(share(part, n)) for part in (low, high)]
    return ratio_of_sums(parts[0], parts[1], n > 0)


def _mean_of(statistics: Sequence[Statistic]) -> Statistic:
    """The plain mean of several; not defined in draws where one of them is not."""

    def statistic(drawn: Resamples) -> Bounds:
        values = [each(drawn) for each in statistics]
        low, high = (np.mean([value[end] for value in values], axis=0) for end in (0, 1))
        return low, high

    return statistic


def _errors(one: JudgedCaption, refuter: str, layer: Layer, roles: Sequence[str]) -> dict[str, tuple[ErrorCounts, int]]:
    """By role: the errors of a caption, and how many entities nobody knows whether it omits.

    An entity of a conceptual gold fact is omitted if no predicted fact names it, in whatever role and layer (section
    5.4). Where facts are not known, those that no known fact names may be omitted.
    """
    facts = []
    for each in one.facts:
        judgment = each.visual if refuter == "visual" else each.textual
        if each.fact.layer == layer and judgment is not None:
            refuted = None if judgment.supported is None else not judgment.supported
            grounded = None if each.grounded is None else each.grounded.supported
            facts.append(PredictedFact(each.fact.role, refuted, grounded))
    if layer in one.errors:
        facts = [PredictedFact(role, None) for role in roles]
    named = {entity_key(name) for each in one.facts for name in each.fact.entities}
    required: dict[str, list[Hashable]] = {}
    for fact in one.clip.gold:
        if fact.layer == layer == "conceptual":
            required.setdefault(fact.role, []).extend(entity_key(name) for name in fact.entities)
    counts = error_counts_by_role(facts, required, {role: named for role in (*required, *(f.role for f in facts))})
    return {role: (count, count.omission if one.errors else 0) for role, count in counts.items()}


def omissions(one: JudgedCaption) -> tuple[str, ...]:
    """Values of gold facts that no predicted fact names."""
    named = {entity_key(name) for each in one.facts for name in each.fact.entities}
    gold = [name for fact in one.clip.gold if fact.layer == "conceptual" for name in fact.entities]
    return tuple(dict.fromkeys(name for name in gold if entity_key(name) not in named))


def _error_measures(
    counts: Sequence[Mapping[str, tuple[ErrorCounts, int]]], mode: ErrorMode, kinds: Sequence[str]
) -> dict[str, _Measure]:
    measures = {}
    for role in ["all", *dict.fromkeys(role for each in counts for role in each)]:
        table = np.zeros((len(counts), 6))
        n = 0
        for number, by_role in enumerate(counts):
            for name, (count, n_open) in by_role.items():
                if role in ("all", name):
                    known = (count.hallucination, count.saliency, count.unlocated, count.n_failed)
                    table[number] += (*known, count.omission - n_open, n_open)
                    n += count.n_facts + count.n_failed + count.omission
        unknown = table[:, [3, 5]].sum() if mode == "caption_only" else table[:, [2, 3, 5]].sum()
        for kind in kinds:
            measures[f"{role}/{kind}"] = _Measure(_error_share(table, mode, kind), n, int(unknown))
    return measures


def _error_share(table: Floats, mode: ErrorMode, kind: str) -> Statistic:
    """Share of the errors that are of a kind.

    Args:
        table: of each clip, shape (clips, 6): hallucinations, saliency errors, refuted facts of which nobody knows
            which of the two, facts without a verdict, omissions, and entities of which nobody knows.
    """

    def statistic(drawn: Resamples) -> Bounds:
        h, s, either, open_, o, open_o = drawn.sums(table).T
        if mode == "caption_only":  # nothing is grounded: every refuted fact is a hallucination
            h, s, either = h + s + either, 0 * s, 0 * either
        if mode == "video_grounded":
            o, open_o = 0 * o, 0 * open_o
        if kind == "omission":
            low = share(o, o + h + s + either + open_)
            high = share(o + open_o, o + open_o + h + s + either)
        else:
            mine, other = (h, s) if kind == "hallucination" else (s, h)
            rivals = 0 * open_ if mode == "caption_only" else open_  # there a refuted fact is of this kind alone
            low = share(mine, mine + other + either + rivals + o + open_o)
            high = share(mine + either + open_, mine + either + open_ + other + o)
        return low, np.where(np.isnan(high), low, high)

    return statistic


def _judge_measures(gold: Sequence[JudgedGold], number: Mapping[str, int]) -> dict[str, _Measure]:
    """Accuracy, precision, recall and F1 of the judges on F_g+ and F_g-, by layer and by role."""
    measures: dict[str, _Measure] = {}
    answers: dict[str, Callable[[JudgedGold], bool | None]] = {
        "visual": lambda each: None if each.visual is None else each.visual.supported,
        "textual": lambda each: None if each.textual is None else each.textual.supported,
    }
    for judge, answer in answers.items():
        asked = [each for each in gold if getattr(each, judge) is not None]
        for layer in LAYERS:
            rows = [each for each in asked if each.fact.layer == layer]
            if not rows:
                continue
            verdicts: list[Verdict] = []
            for each in rows:
                said = answer(each)
                verdicts.append((number[each.clip.id], each.fact.role, None if said is None else said == each.expected))
            averages = _averages(verdicts, len(number))
            del averages["multifact"]
            measures |= {
                f"{judge}/{layer}/{name}{'/accuracy' if name.startswith('role/') else ''}": measure
                for name, measure in averages.items()
            }
            for role in ["", *dict.fromkeys(each.fact.role for each in rows)]:
                some = [(number[e.clip.id], e.expected, answer(e)) for e in rows if role in ("", e.fact.role)]
                inside = f"role/{role}/" if role else ""
                for name, measure in _classification(some, len(number)).items():
                    measures[f"{judge}/{layer}/{inside}{name}"] = measure
    return measures


def _classification(rows: Sequence[tuple[int, bool, bool | None]], n_clips: int) -> dict[str, _Measure]:
    """Precision, recall and F1 of supported; a failed verdict is wrong at worst and right at best."""
    table = np.zeros((n_clips, 5))  # true yes, false yes, failed and true, failed and false, true
    for clip, expected, said in rows:
        table[clip] += (expected and said is True, not expected and said is True,
                        expected and said is None, not expected and said is None, expected)  # fmt: skip

    def measure(formula: Callable[[Floats, Floats, Floats], Floats]) -> _Measure:
        def statistic(drawn: Resamples) -> Bounds:
            yes, wrong, open_yes, open_no, true = drawn.sums(table).T
            low, high = formula(yes, wrong + open_no, true), formula(yes + open_yes, wrong, true)
            return np.where(np.isnan(low), high, low), np.where(np.isnan(high), low, high)

        return _Measure(statistic, len(rows), int(table[:, 2:4].sum()))

    return {
        "precision": measure(lambda yes, wrong, true: share(yes, yes + wrong)),
        "recall": measure(lambda yes, wrong, true: share(yes, true)),
        "f1": measure(lambda yes, wrong, true: share(2 * yes, yes + wrong + true)),
    }


def _object_measures(objects: Sequence[JudgedObject], number: Mapping[str, int]) -> dict[str, _Measure]:
    measures = {}
    parts: dict[str, Callable[[JudgedObject], bool]] = {
        "recall": lambda each: each.is_there,
        "specificity": lambda each: not each.is_there,
        "accuracy": lambda each: True,
    }
    for name, counts in parts.items():
        verdicts: list[Verdict] = []
        for each in objects:
            if counts(each):
                said = each.grounded.supported
                verdicts.append((number[each.clip.id], each.role, None if said is None else said == each.is_there))
        if verdicts:
            measures[name] = _averages(verdicts, len(number))["pooled"]
    return measures


def _scored(one: JudgedCaption) -> ScoredCaption:
    scores = {}
    for condition in CONDITIONS:
        for layer in LAYERS:
            failed = layer in one.errors and condition != "textual_gold"
            verdicts = [None] if failed else [said for _, said in _verdicts(one, condition, layer, ())]
            if verdicts:
                scores[f"{condition}/{layer}"] = bounded(lambda yes: float(np.mean(yes)), verdicts)
    errors = {
        f"{refuter}/{layer}": {role: count for role, (count, _) in _errors(one, refuter, layer, ()).items()}
        for refuter in _CONDITION_OF
        for layer in LAYERS
        if any(getattr(fact, refuter) is not None and fact.fact.layer == layer for fact in one.facts)
    }
    return ScoredCaption(one, scores, errors, omissions(one))


def _n_undefined(captions: Sequence[ScoredCaption]) -> dict[str, int]:
    n = Counter(name for one in captions for name in one.scores)
    return {name: len(captions) - count for name, count in n.items()}


def _agreement(
    ours: Sequence[ScoredCaption], people: Sequence[ScoredCaption], conditions: Sequence[str]
) -> dict[str, Correlations]:
    """Over captions whose score is known on both sides (table 11), in what a judge and not labels decided."""
    found = {}
    names = dict.fromkeys(name for one in people for name in one.scores)
    for name in (name for name in names if name.partition("/")[0] in conditions):
        pairs = [(a.scores[name].value, b.scores[name].value) for a, b in zip(ours, people, strict=True)
                 if name in a.scores and name in b.scores]  # fmt: skip
        known = np.array([pair for pair in pairs if not any(map(math.isnan, pair))]).reshape(-1, 2)
        if len(known):
            found[name] = correlations(known[:, 0], known[:, 1])
    return found
