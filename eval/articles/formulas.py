"""MiRAGE: InfoF1 (is what a response says so, and is everything said) and CiteF1 (do its citations hold, all of them).

Paper: "Seeing Through the MiRAGE", section 4 and appendix B. Every one of its six shares is here one sum over items
(claims), each with the questions of which the best answer counts:

    share = sum over items of importance * max over the item's questions of (quality * supported) / number of items

| share | items | questions of one item | paper |
| --- | --- | --- | --- |
| InfoP, collection | predicted claims | each of the topic's sources, or all together | equations 7 and 6 |
| InfoP, reference | predicted claims | the reference text | 4.1.1 |
| InfoR | reference claims | the response | equations 2, 10 |
| CiteP, collection | predicted claims | each source its sentence cites, or all together | equations 3, 12 |
| CiteP, reference | predicted claims | the reference claims each cited source supports, or all together | equation 4 |
| CiteR | reference claims | what the response says citing each source that supports the claim | equations 5, 13 |

An item without a question (a claim without a citation, a cited source that supports no reference claim) is not
supported. Where the paper leaves a choice it is an option of `MirageOptions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...core import Evidence, Pair, Passage, RowError
from ..scores import JudgePairs, Judgment, Score, bounded, mean_over, n_undefined

SHARES = ("info_p_collection", "info_p_reference", "info_r", "cite_p_collection", "cite_p_reference", "cite_r")
F1S = {
    "info_f1_collection": ("info_p_collection", "info_r"),
    "info_f1_reference": ("info_p_reference", "info_r"),
    "cite_f1_collection": ("cite_p_collection", "cite_r"),
    "cite_f1_reference": ("cite_p_reference", "cite_r"),
}


@dataclass(frozen=True)
class Claim:
    """A claim of a response; its author's importance weighs it."""

    text: str
    importance: float = 1.0


@dataclass(frozen=True)
class Sentence:
    """A sentence of a response, the ids of sources it cites, and its claims (still to be extracted: `needs_claims`)."""

    text: str
    citations: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    needs_claims: bool = False


@dataclass(frozen=True)
class Response:
    """What a system wrote about a topic."""

    topic: str
    system: str
    text: str
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True)
class ReferenceClaim:
    """A claim of the reference, the ids of the sources that support it, and its sentence."""

    text: str
    sources: tuple[str, ...] = ()
    context: str | None = None
    importance: float = 1.0


@dataclass(frozen=True)
class Source:
    """A piece of evidence and its quality, a factor of at least 0."""

    evidence: Evidence
    quality: float = 1.0


@dataclass(frozen=True)
class Topic:
    """What responses about a topic are held against.

    Attributes:
        reference: its text; None: there is none, and only the collection form of precision can be had.
        sources: the collection, by id.
        others: sources outside the collection that responses cite.
    """

    name: str
    reference: str | None
    claims: tuple[ReferenceClaim, ...]
    sources: Mapping[str, Source]
    others: Mapping[str, Source] = field(default_factory=dict)


@dataclass(frozen=True)
class MirageOptions:
    """Choices the paper leaves, or that its code makes in another way.

    Attributes:
        sources: `single` asks about each source and takes the best (equation 7, what the paper ran); `joint` asks about
            all of them together (equation 6). Quality of joint sources is the mean of theirs; the paper gives none.
        duplicates: a claim that several sentences make counts once, with the citations of all of them (`any`) or of
            the first (`first`), as B.2.1 recommends; `keep` counts it each time, as the released InfoF1 does.
        weights: `mean` divides by the number of claims (equations 8, 9, 11: a claim of importance 0.5 can add half);
            `normalised` by the sum of importances.
        grounded_only: only reference claims that some source supports count, as in the released scores and human
            judgments; otherwise all.
    """

    sources: Literal["single", "joint"] = "single"
    duplicates: Literal["any", "first", "keep"] = "any"
    weights: Literal["mean", "normalised"] = "mean"
    grounded_only: bool = True


@dataclass(frozen=True)
class WeighedPair:
    """A pair to judge, and the quality of its sources."""

    pair: Pair
    quality: float = 1.0


@dataclass(frozen=True)
class Item:
    """One claim of a share: how much it matters, and the questions of which the best answer counts."""

    claim: str
    importance: float
    questions: tuple[WeighedPair, ...]


@dataclass(frozen=True)
class JudgedItem:
    """An item, what it adds (NaN where a failed judgment decides: low to high), and its judgments by pair id."""

    item: Item
    value: float
    low: float
    high: float
    judgments: Mapping[str, Judgment]


@dataclass(frozen=True)
class MirageScores:
    """The scores of one response: by name (`SHARES` and `F1S`, those that were asked for), and the items of shares."""

    scores: dict[str, Score]
    items: dict[str, tuple[JudgedItem, ...]]


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
    options: MirageOptions = MirageOptions(),
) -> MirageResult:
    """Score responses, each judge asked once for all of them.

    Args:
        responses: of one system or several, at most one per topic each.
        topics: by name.
        judge_sources: of claims about sources (collection form of precision).
        judge_texts: of claims about texts (everything else); None: `judge_sources`.
        shares: of `SHARES`; an F1 comes with its two.

    Raises:
        RowError: a topic or a cited source that is not there, or two responses of one system on one topic.
    """
    items = {(r.system, r.topic): _items(r, topics, shares, options) for r in _distinct(responses)}
    pairs: dict[bool, list[Pair]] = {True: [], False: []}
    for of_response in items.values():
        for share, its in of_response.items():
            pairs[share.endswith("p_collection")] += [question.pair for item in its for question in item.questions]
    answers: dict[str, Judgment] = {}
    n_questions = n_passes = 0
    for is_source, asked in pairs.items():
        if asked:
            judged = (judge_sources if is_source or judge_texts is None else judge_texts)(asked)
            answers |= judged.of
            n_questions, n_passes = n_questions + judged.n_questions, n_passes + judged.n_passes
    scored: dict[str, dict[str, MirageScores]] = {}
    for (system, topic), of_response in items.items():
        scored.setdefault(system, {})[topic] = scores_of(of_response, answers, options.weights)
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
) -> MirageScores:
    """The shares of one response, and the F1 of those that are there."""
    scores = {share: bounded(_share_of(its, weights), _supported(its, answers)) for share, its in items.items()}
    for name, (precision, recall) in F1S.items():
        if precision in items and recall in items:
            both = [*_supported(items[precision], answers), *_supported(items[recall], answers)]
            scores[name] = bounded(_f1_of(items[precision], items[recall], weights), both)
    judged = {share: tuple(_judged(item, answers) for item in its) for share, its in items.items()}
    return MirageScores(scores, judged)


def f1_of(precision: float, recall: float) -> float:
    """The harmonic mean; 0 where either is 0, NaN where one is undefined and the other is not 0."""
    if precision == 0 or recall == 0:
        return 0.0
    return 2 * precision * recall / (precision + recall)


def _supported(items: Sequence[Item], answers: Mapping[str, Judgment]) -> list[bool | None]:
    return [answers[question.pair.id].supported for item in items for question in item.questions]


def _share_of(items: Sequence[Item], weights: str) -> Callable[[NDArray[np.bool_]], float]:
    """The share as a function of its items' judgments, in the order of `_supported`."""
    qualities = np.array([question.quality for item in items for question in item.questions])
    ends = np.cumsum([len(item.questions) for item in items])
    importances = np.array([item.importance for item in items])
    out_of = importances.sum() if weights == "normalised" else len(items)

    def share(supported: NDArray[np.bool_]) -> float:
        if not out_of:
            return math.nan
        best = [part.max(initial=0.0) for part in np.split(supported * qualities, ends[:-1])]
        return float(importances @ best / out_of)

    return share


def _f1_of(predicted: Sequence[Item], reference: Sequence[Item], weights: str) -> Callable[[NDArray[np.bool_]], float]:
    precision, recall = _share_of(predicted, weights), _share_of(reference, weights)
    n = sum(len(item.questions) for item in predicted)
    return lambda supported: f1_of(precision(supported[:n]), recall(supported[n:]))


def _judged(item: Item, answers: Mapping[str, Judgment]) -> JudgedItem:
    judgments = {question.pair.id: answers[question.pair.id] for question in item.questions}
    gains = [(question.quality * item.importance, judgments[question.pair.id].supported) for question in item.questions]
    low = max((gain for gain, supported in gains if supported), default=0.0)
    high = max((gain for gain, supported in gains if supported is not False), default=0.0)
    return JudgedItem(item, low if low == high else math.nan, low, high, judgments)


def _distinct(responses: Sequence[Response]) -> Iterator[Response]:
    known: set[tuple[str, str]] = set()
    for response in responses:
        if (response.system, response.topic) in known:
            raise RowError(f"{response.system}: two responses on one topic, got {response.topic!r} twice; keep one")
        known.add((response.system, response.topic))
        if any(sentence.needs_claims for sentence in response.sentences):
            raise RowError(
                f"{response.system}: {response.topic!r}: sentences have no claims, got none; extract them first"
            )
        yield response


def _items(
    response: Response, topics: Mapping[str, Topic], shares: Sequence[str], options: MirageOptions
) -> dict[str, tuple[Item, ...]]:
    topic = topics.get(response.topic)
    if topic is None:
        raise RowError(f"{response.system}: topic is not among the topics, got {response.topic!r}; add it there")
    if unknown := set(shares) - set(SHARES):
        raise RowError(f"shares: must be of {list(SHARES)}, got {sorted(unknown)}; choose among them")
    return {share: tuple(_share_items(share, response, topic, options)) for share in SHARES if share in shares}


def _share_items(share: str, response: Response, topic: Topic, options: MirageOptions) -> Iterator[Item]:
    if share.endswith("_r"):
        claims = [c for c in topic.claims if c.sources or not options.grounded_only]
        made = [(c.text, c.context, c.importance, c.sources) for c in claims]
    else:
        made = [
            (claim.text, sentence.text, claim.importance, citations)
            for claim, sentence, citations in predicted_claims(response, options.duplicates)
        ]
    for number, (text, context, importance, sources) in enumerate(made):
        name = f"{response.system}/{response.topic}/{share}/{number}"
        asked = [(key, evidence, quality) for key, evidence, quality in _evidences(share, sources, response, topic)]
        if options.sources == "joint" and asked:
            asked = [_joined(share, asked)]
        questions = tuple(
            WeighedPair(_pair(f"{name}/{key}", text, evidence, context, response.topic), quality)
            for key, evidence, quality in asked
        )
        yield Item(text, importance, questions)


def predicted_claims(
    response: Response, duplicates: Literal["any", "first", "keep"] = "any"
) -> list[tuple[Claim, Sentence, tuple[str, ...]]]:
    """The claims that count, each with its (first) sentence and the sources cited for it."""
    made = [(claim, sentence) for sentence in response.sentences for claim in sentence.claims]
    if duplicates == "keep":
        return [(claim, sentence, sentence.citations) for claim, sentence in made]
    first: dict[str, tuple[Claim, Sentence, tuple[str, ...]]] = {}
    for claim, sentence in made:
        if claim.text not in first:
            first[claim.text] = claim, sentence, sentence.citations
        elif duplicates == "any":
            known = first[claim.text]
            first[claim.text] = known[0], known[1], tuple(dict.fromkeys([*known[2], *sentence.citations]))
    return list(first.values())


Asked = tuple[str, tuple[Evidence, ...], float]
"""A question's key, evidence and quality."""


def _evidences(share: str, sources: Iterable[str], response: Response, topic: Topic) -> Iterator[Asked]:
    if share == "info_p_collection":
        yield from ((key, (source.evidence,), source.quality) for key, source in topic.sources.items())
    elif share == "info_p_reference":
        yield "reference", (Passage(_reference(topic)),), 1.0
    elif share == "info_r":
        if response.text.strip():
            yield "response", (Passage(response.text),), 1.0
    elif share == "cite_p_collection":
        yield from ((key, (_source(key, topic).evidence,), _source(key, topic).quality) for key in sources)
    elif share == "cite_p_reference":
        for key in sources:
            if supported := [claim.text for claim in topic.claims if key in claim.sources]:
                yield key, (Passage("\n".join(supported)),), _source(key, topic).quality
    else:
        for key in sources:
            if citing := [sentence.text for sentence in response.sentences if key in sentence.citations]:
                yield key, (Passage("\n".join(citing)),), _source(key, topic).quality


def _joined(share: str, asked: Sequence[Asked]) -> Asked:
    """All evidence of an item as one; texts without the lines that several of them hold."""
    quality = sum(each[2] for each in asked) / len(asked)
    evidence = tuple(piece for each in asked for piece in each[1])
    if not share.endswith("p_collection"):
        lines = dict.fromkeys(
            line for piece in evidence if isinstance(piece, Passage) for line in piece.text.split("\n")
        )
        evidence = (Passage("\n".join(lines)),)
    return "+".join(each[0] for each in asked), evidence, quality


def _reference(topic: Topic) -> str:
    if topic.reference is None:
        raise RowError(f"{topic.name}: topic has no reference text, got None; add it, or ask for the collection form")
    return topic.reference


def _source(key: str, topic: Topic) -> Source:
    source = topic.sources.get(key) or topic.others.get(key)
    if source is None:
        raise RowError(f"{topic.name}: cited source is unknown, got {key!r}; add it to the topic's sources or others")
    return source


def _pair(name: str, claim: str, evidence: tuple[Evidence, ...], context: str | None, group: str) -> Pair:
    modality = "text" if all(isinstance(piece, Passage) for piece in evidence) else "visual"
    return Pair(name, claim, evidence, context=context, group=group, origin="prediction", modality=modality)
