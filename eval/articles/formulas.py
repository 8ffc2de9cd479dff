"""MiRAGE's scores of responses, and those it compares with: every judge is asked once, for all scores of all responses.

Every share (`shares.py`: InfoF1 and CiteF1; `textrag.py`: ALCE, ARGUE, RAGAS) is here one sum over items (claims,
sentences, citations, nuggets), each with questions to a judge and the rule by which their answers count:

    share = sum over items of importance * rule(answers to the item's questions) / number of items

An item whose answers failed adds something between its least and its most, and so does the share, and its F1.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ...core import Pair, RowError
from ..scores import JudgePairs, Judgment, Score, mean_over, n_undefined
from .records import Item, JudgedItem, MirageOptions, Response, Topic
from .shares import SHARES, share_items
from .textrag import TEXTRAG_SHARES, textrag_items

F1S = {
    "info_f1_collection": ("info_p_collection", "info_r"),
    "info_f1_reference": ("info_p_reference", "info_r"),
    "cite_f1_collection": ("cite_p_collection", "cite_r"),
    "cite_f1_reference": ("cite_p_reference", "cite_r"),
    "alce_citation_f1": ("alce_citation_precision", "alce_citation_recall"),
    "argue_f1": ("argue_sentence_support", "argue_nugget_coverage"),
}
_METRICS = ("info", "cite", "alce", "argue", "ragas")
ABOUT_SOURCES = {
    "info_p_collection",
    "cite_p_collection",
    "alce_citation_recall",
    "alce_citation_precision",
    "argue_sentence_support",
    "ragas_faithfulness",
}
"""Shares whose questions are about sources; those of the others are about texts."""
NEED_CLAIMS = {share for share in SHARES if "_p_" in share} | {"ragas_faithfulness"}
"""Shares of a response's claims."""
NEED_QUESTIONS = {"argue_nugget_coverage"}
"""Shares of reference claims with questions."""


@dataclass(frozen=True)
class Measurement:
    """A score of a response that no judge of claims gives, and what it was made of."""

    score: Score
    detail: Any = None


Measurements = Mapping[tuple[str, str], Mapping[str, Measurement]]
"""(System, topic) -> score's name -> measurement."""


@dataclass(frozen=True)
class MirageScores:
    """The scores of one response.

    Attributes:
        scores: by name: shares, their F1s, measurements; those that were asked for.
        items: of each share.
        details: of each measurement.
    """

    scores: dict[str, Score]
    items: dict[str, tuple[JudgedItem, ...]]
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MirageResult:
    """Scores of responses.

    Attributes:
        responses: system -> topic -> scores.
        systems: system -> score's name -> mean over topics, with its interval.
        undefined: system -> score's name -> topics that are not in the mean, as the score is not defined there.
        n_questions: different questions that were asked.
        n_passes: evidences that were encoded.
    """

    responses: dict[str, dict[str, MirageScores]]
    systems: dict[str, dict[str, Score]]
    undefined: dict[str, dict[str, int]]
    n_questions: int
    n_passes: int

    def units(self, system: str, name: str) -> dict[str, Score]:
        """A score of a system by topic."""
        return {topic: scores.scores[name] for topic, scores in self.responses[system].items() if name in scores.scores}


def mirage_scores(
    responses: Sequence[Response],
    topics: Mapping[str, Topic],
    judge_sources: JudgePairs,
    judge_texts: JudgePairs | None = None,
    shares: Sequence[str] = SHARES,
    options: MirageOptions | None = None,
    measured: Measurements | None = None,
) -> MirageResult:
    """Score responses, each judge asked once for all of them.

    Args:
        responses: of one system or several, at most one per topic each.
        topics: by name.
        judge_sources: of claims about sources (`ABOUT_SOURCES`).
        judge_texts: of claims about texts (everything else); None: `judge_sources`.
        shares: of `SHARES` and `TEXTRAG_SHARES`; an F1 comes with its two.
        options: choices that the paper leaves; None: the defaults.
        measured: further scores of the responses.

    Raises:
        RowError: a topic or a cited source that is not there, or two responses of one system on one topic.
    """
    options = options or MirageOptions()
    items = {(r.system, r.topic): items_of(r, topics, shares, options) for r in _distinct(responses, shares)}
    pairs: dict[bool, list[Pair]] = {True: [], False: []}
    for of_response in items.values():
        for share, its in of_response.items():
            pairs[share in ABOUT_SOURCES] += [question.pair for item in its for question in item.questions]
    answers: dict[str, Judgment] = {}
    n_questions = n_passes = 0
    for is_source, asked in pairs.items():
        if asked:
            judged = (judge_sources if is_source or judge_texts is None else judge_texts)(asked)
            answers |= judged.of
            n_questions, n_passes = n_questions + judged.n_questions, n_passes + judged.n_passes
    scored: dict[str, dict[str, MirageScores]] = {}
    for (system, topic), of_response in items.items():
        further = (measured or {}).get((system, topic), {})
        scored.setdefault(system, {})[topic] = scores_of(of_response, answers, options.weights, further)
    means: dict[str, dict[str, Score]] = {}
    undefined: dict[str, dict[str, int]] = {}
    for system, by_topic in scored.items():
        for name in next(iter(by_topic.values())).scores:
            units = {topic: each.scores[name] for topic, each in by_topic.items()}
            means.setdefault(system, {})[name] = mean_over(units)
            undefined.setdefault(system, {})[name] = n_undefined(units)
    return MirageResult(scored, means, undefined, n_questions, n_passes)


def scores_of(
    items: Mapping[str, Sequence[Item]],
    answers: Mapping[str, Judgment],
    weights: Literal["mean", "normalised"] = "mean",
    measured: Mapping[str, Measurement] | None = None,
) -> MirageScores:
    """The shares of one response, the F1 of those that are there, and its measurements."""
    measured = measured or {}
    judged = {share: tuple(_judged(item, answers) for item in its) for share, its in items.items()}
    scores = {share: _share(its, weights) for share, its in judged.items()}
    for name, (precision, recall) in F1S.items():
        if precision in scores and recall in scores:
            scores[name] = _f1(scores[precision], scores[recall])
    scores |= {name: measurement.score for name, measurement in measured.items()}
    ordered = sorted(scores, key=lambda name: [not name.startswith(metric) for metric in _METRICS])
    return MirageScores(
        {name: scores[name] for name in ordered}, judged, {name: each.detail for name, each in measured.items()}
    )


def f1_of(precision: float, recall: float) -> float:
    """The harmonic mean; 0 where either is 0, NaN where one is undefined and the other is not 0."""
    if precision == 0 or recall == 0:
        return 0.0
    return 2 * precision * recall / (precision + recall)


def items_of(
    response: Response, topics: Mapping[str, Topic], shares: Collection[str], options: MirageOptions
) -> dict[str, tuple[Item, ...]]:
    """What is asked about a response, by share.

    Raises:
        RowError: an unknown share, topic or source.
    """
    topic = topics.get(response.topic)
    if topic is None:
        raise RowError(f"{response.system}: topic is not among the topics, got {response.topic!r}; add it there")
    if unknown := set(shares) - {*SHARES, *TEXTRAG_SHARES}:
        raise RowError(f"shares: must be of {[*SHARES, *TEXTRAG_SHARES]}, got {sorted(unknown)}; choose among them")
    items = {share: tuple(share_items(share, response, topic, options)) for share in SHARES if share in shares}
    for share in TEXTRAG_SHARES:
        if share in shares:
            items[share] = tuple(textrag_items(share, response, topic, options))
    return items


def _share(items: Sequence[JudgedItem], weights: str) -> Score:
    out_of = sum(judged.item.importance for judged in items) if weights == "normalised" else len(items)
    low, high = (
        sum(getattr(judged, end) for judged in items) / out_of if out_of else math.nan for end in ("low", "high")
    )
    n = sum(len(judged.item.questions) or (judged.item.error is not None) for judged in items)
    n_failed = sum(
        (judged.item.error is not None) + sum(answer.supported is None for answer in judged.judgments.values())
        for judged in items
    )
    return Score(low if low == high else math.nan, low, high, n, n_failed)


def _f1(precision: Score, recall: Score) -> Score:
    """It rises with both, so its ends are those of theirs."""
    low, high = f1_of(precision.low, recall.low), f1_of(precision.high, recall.high)
    low = math.nan if math.isnan(high) else low
    n, n_failed = precision.n + recall.n, precision.n_failed + recall.n_failed
    return Score(low if low == high else math.nan, low, high, n, n_failed)


def _judged(item: Item, answers: Mapping[str, Judgment]) -> JudgedItem:
    judgments = {question.pair.id: answers[question.pair.id] for question in item.questions}
    if item.error is not None:
        return JudgedItem(item, math.nan, 0.0, item.importance, judgments)
    said = [answer.supported for answer in judgments.values()]
    low, high = (item.importance * value for value in _ends(item, said))
    return JudgedItem(item, low if low == high else math.nan, low, high, judgments)


def _ends(item: Item, said: Sequence[bool | None]) -> tuple[float, float]:
    """What an item's rule gives at least and at most, whatever the answers that are None would have been.

    The answers about one citation alone, and about the others of another one, may be to the same question. Each item is
    bounded by itself, so the bounds of a sum over such items may be wider than need be.
    """
    if not said:
        return 0.0, 0.0
    sure, possible = [answer is True for answer in said], [answer is not False for answer in said]
    if item.rule == "best":
        qualities = [question.quality for question in item.questions]
        return (
            max(quality * yes for quality, yes in zip(qualities, sure, strict=True)),
            max(quality * yes for quality, yes in zip(qualities, possible, strict=True)),
        )
    if item.rule == "every" or len(said) == 1:
        return float(all(sure)), float(all(possible))
    low, high = not possible[-1], not sure[-1]  # the others do not support the sentence
    if item.rule == "relevant":
        low, high = sure[1] or low, possible[1] or high
    return float(sure[0] and low), float(possible[0] and high)


def _distinct(responses: Sequence[Response], shares: Collection[str]) -> Iterator[Response]:
    known: set[tuple[str, str]] = set()
    for response in responses:
        if (response.system, response.topic) in known:
            raise RowError(f"{response.system}: two responses on one topic, got {response.topic!r} twice; keep one")
        known.add((response.system, response.topic))
        if NEED_CLAIMS & set(shares) and any(sentence.needs_claims for sentence in response.sentences):
            raise RowError(
                f"{response.system}: {response.topic!r}: sentences have no claims, got none; extract them first"
            )
        yield response
