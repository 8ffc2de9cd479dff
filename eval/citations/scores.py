"""MURGAT-Score of judged responses (MuRGAt, section 3.3): coverage x F1 of attribution, one response or many.

    Coverage  = verifiable sentences with a citation / verifiable sentences                            (3.3.1)
    Precision = citations that are relevant / citations, over all facts of a response ("precision")    (3.3.2)
    Recall    = facts that their citations together support / facts
    F1        = 2 P R / (P + R),  MURGAT-Score = Coverage x F1                                         (3.3.3)

The authors' code takes the mean over facts of each fact's share of relevant citations: "precision_per_fact", with its
own "f1_per_fact" and "murgat_per_fact". A system's score is the mean over its responses, as in tables 1 and 5 (there
MURGAT-S is not the product of the means); `pooled` takes all its sentences as one response.

Where a judgment failed, a score has bounds. A sentence of which it is unknown whether it is verifiable, or that could
not be cut into facts, stands as one fact with its own citations and no verdicts: left out of a ratio it would lie
between the two bounds. Without a verifiable sentence no score is defined; with none that is cited, coverage and
MURGAT-Score are 0, and attribution is not defined.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core import CitedModality, RowError, parse_citations
from ..scores import Attribution, CitedFact, Score, attribution
from ..uncertainty import N_DRAWS, Interval, interval_of, resample

CITED_MODALITIES: tuple[CitedModality, ...] = ("visual", "audio", "ocr")
MURGAT_MEASURES = (
    "coverage",
    "precision",
    "precision_per_fact",
    "recall",
    "f1",
    "f1_per_fact",
    "murgat",
    "murgat_per_fact",
    *(f"precision_{modality}" for modality in CITED_MODALITIES),
    "over_citation",
)
"""Names of the scores. `precision_visual` and so on are table 13's; `over_citation` (appendix A.3) is the share of
sentences that are not verifiable and have a citation."""


@dataclass(frozen=True)
class FactCitation:
    """One citation of a fact.

    Attributes:
        text: as it was written.
        modality: None where it cannot be read.
        relevant: None: unknown.
        reason: why it is unknown, or why it counts as wrong unjudged.
        p_supported: that it supports the fact alone, by the judge; None: it gave none.
    """

    text: str
    modality: CitedModality | None
    relevant: bool | None
    reason: str | None = None
    p_supported: float | None = None


@dataclass(frozen=True)
class JudgedFact:
    """An atomic fact, its citations, and whether they support it together.

    Attributes:
        reason: why it is unknown.
        p_supported: by the judge; None: it gave none.
    """

    text: str
    citations: tuple[FactCitation, ...]
    supported: bool | None
    reason: str | None = None
    p_supported: float | None = None


@dataclass(frozen=True)
class JudgedSentence:
    """A sentence with its citations in it.

    Attributes:
        verifiable: None: unknown.
        facts: of a verifiable sentence with citations.
        error: what step failed, and why.
    """

    text: str
    verifiable: bool | None
    facts: tuple[JudgedFact, ...] = ()
    error: str | None = None

    @property
    def is_cited(self) -> bool:
        """Whether it has a citation that can be read."""
        return bool(parse_citations(self.text).citations)


@dataclass(frozen=True)
class JudgedResponse:
    """A response; responses with one `group` (the video) are resampled together."""

    id: str
    group: str
    sentences: tuple[JudgedSentence, ...]


@dataclass(frozen=True)
class MurgatScores:
    """The scores of one response, by the names in MURGAT_MEASURES."""

    response: JudgedResponse
    scores: Mapping[str, Score]


@dataclass(frozen=True)
class MurgatSystemScores:
    """The scores of a system.

    Attributes:
        mean: over responses in which a score is defined (`Score.n` counts those), with intervals over groups.
        pooled: of all sentences as if they were one response; no intervals.
        n_undefined: responses without the score.
    """

    responses: tuple[MurgatScores, ...]
    mean: Mapping[str, Score]
    pooled: Mapping[str, Score]
    n_undefined: Mapping[str, int]


@dataclass(frozen=True)
class MurgatComparison:
    """Second minus first system in each score, over responses of both in which both define it.

    Attributes:
        difference: with intervals over the same resamples of groups for both systems; `Score.n` counts responses.
        n_only_first, n_only_second: responses that the other system lacks.
    """

    difference: Mapping[str, Score]
    n_only_first: int
    n_only_second: int


def murgat_scores(response: JudgedResponse) -> MurgatScores:
    """Coverage, attribution and MURGAT-Score of one response."""
    facts = [fact for sentence in response.sentences for fact in _facts(sentence)]
    low, high = (_attribution(facts, value) for value in (False, True))
    cites = [cite for fact in facts for cite in fact.citations]
    n_cites, failed_cites = len(cites), sum(cite.relevant is None for cite in cites)
    n_facts, failed_facts = len(facts), sum(fact.supported is None for fact in facts)
    both, failed = n_cites + n_facts, failed_cites + failed_facts
    coverage = _coverage(response.sentences)
    n_all, failed_all = coverage.n + both, coverage.n_failed + failed
    scores = {
        "coverage": coverage,
        "precision": _score(low.precision_pooled, high.precision_pooled, n_cites, failed_cites),
        "precision_per_fact": _score(low.precision_per_fact, high.precision_per_fact, n_cites, failed_cites),
        "recall": _score(low.recall, high.recall, n_facts, failed_facts),
        "f1": _score(low.f1_pooled, high.f1_pooled, both, failed),
        "f1_per_fact": _score(low.f1_per_fact, high.f1_per_fact, both, failed),
    }
    for name, f1 in (("murgat", "f1"), ("murgat_per_fact", "f1_per_fact")):
        bounds = (_times(coverage.low, scores[f1].low), _times(coverage.high, scores[f1].high))
        scores[name] = _score(*bounds, n_all, failed_all)
    for modality in CITED_MODALITIES:
        relevant = [cite.relevant for cite in cites if cite.modality == modality]
        scores[f"precision_{modality}"] = _share(relevant)
    scores["over_citation"] = _over_citation(response.sentences)
    return MurgatScores(response, {name: scores[name] for name in MURGAT_MEASURES})


def murgat_system_scores(
    responses: Iterable[JudgedResponse], n_draws: int = N_DRAWS, seed: int = 0
) -> MurgatSystemScores:
    """The scores of a system: means over responses, with 95 % intervals over groups, and over all in one pool.

    Raises:
        RowError: two responses with one id, or none at all.
    """
    scored = tuple(murgat_scores(response) for response in responses)
    if not scored:
        raise RowError("murgat: a system needs responses, got none; check the file of responses")
    _by_id(scored)
    everything = JudgedResponse("", "", tuple(s for one in scored for s in one.response.sentences))
    groups = [one.response.group for one in scored]
    mean, undefined = {}, {}
    for name in MURGAT_MEASURES:
        values = [one.scores[name] for one in scored]
        defined = [(value, group) for value, group in zip(values, groups, strict=True) if not math.isnan(value.low)]
        mean[name] = mean_over_groups([v for v, _ in defined], [g for _, g in defined], n_draws, seed)
        undefined[name] = len(values) - len(defined)
    return MurgatSystemScores(scored, mean, murgat_scores(everything).scores, undefined)


def compare_murgat(
    first: MurgatSystemScores, second: MurgatSystemScores, n_draws: int = N_DRAWS, seed: int = 0
) -> MurgatComparison:
    """Second minus first, paired over the responses (by id) that both systems have.

    Raises:
        RowError: no response in common, or one whose group differs.
    """
    ours, theirs = _by_id(first.responses), _by_id(second.responses)
    common = [key for key in ours if key in theirs]
    if not common:
        raise RowError(
            f"murgat: two systems are compared on responses with equal ids, got none of {len(ours)} and {len(theirs)}; "
            "give both files the same ids, or the same videos and questions"
        )
    if other := [key for key in common if ours[key].response.group != theirs[key].response.group]:
        raise RowError(f"murgat: response {other[0]!r} has two groups; answer one video under one id")
    difference = {}
    for name in MURGAT_MEASURES:
        pairs = [(ours[key].scores[name], theirs[key].scores[name], ours[key].response.group) for key in common]
        pairs = [pair for pair in pairs if not (math.isnan(pair[0].low) or math.isnan(pair[1].low))]
        values = [_score(b.low - a.high, b.high - a.low, a.n + b.n, a.n_failed + b.n_failed) for a, b, _ in pairs]
        difference[name] = mean_over_groups(values, [group for *_, group in pairs], n_draws, seed)
    return MurgatComparison(difference, len(ours) - len(common), len(theirs) - len(common))


def mean_over_groups(values: Sequence[Score], groups: Sequence[str], n_draws: int = N_DRAWS, seed: int = 0) -> Score:
    """The mean of scores, with a 95 % interval that resamples whole groups.

    Where judgments failed, the interval runs from the lower bound's lower end to the upper bound's upper end.
    """
    lows, highs = ([getattr(value, side) for value in values] for side in ("low", "high"))
    if not values:
        return Score(math.nan, math.nan, math.nan, 0, 0)
    drawn = resample(np.asarray(groups), n_draws, seed)
    counts = np.bincount(drawn.group_of_row, minlength=drawn.n_groups)
    ends = []
    for side in (lows, highs):
        sums = np.bincount(drawn.group_of_row, weights=side, minlength=drawn.n_groups)
        draws: NDArray[np.float64] = (drawn.times_DG @ sums) / (drawn.times_DG @ counts)
        ends.append(_interval(draws, float(np.mean(side)), drawn.n_groups, drawn.largest_share))
    interval = dataclasses.replace(ends[0], high=ends[1].high)
    n_failed = sum(value.n_failed > 0 for value in values)
    mean = _score(math.fsum(lows) / len(lows), math.fsum(highs) / len(highs), len(values), n_failed)
    return dataclasses.replace(mean, interval=interval)


def _interval(draws: ArrayLike, estimate: float, n_groups: int, largest_share: float | None) -> Interval:
    return interval_of(draws, estimate, n_groups=n_groups, largest_share=largest_share)


def _facts(sentence: JudgedSentence) -> tuple[JudgedFact, ...]:
    """The cited facts that attribution counts: of verifiable cited sentences; a stand-in where they are not known."""
    if sentence.verifiable is False or not sentence.is_cited:
        return ()
    if sentence.verifiable is not None and sentence.facts:
        return tuple(fact for fact in sentence.facts if fact.citations)
    cited = parse_citations(sentence.text)
    cites = tuple(FactCitation(cite.text, cite.modality, None, sentence.error) for cite in cited.citations)
    return (JudgedFact(cited.text, cites, None, sentence.error),)


def _attribution(facts: Sequence[JudgedFact], failures: bool) -> Attribution:
    """Attribution if all failed judgments were `failures`."""

    def known(value: bool | None) -> bool:
        return failures if value is None else value

    return attribution(CitedFact([known(c.relevant) for c in f.citations], known(f.supported)) for f in facts)


def _coverage(sentences: Sequence[JudgedSentence]) -> Score:
    """A cited sentence raises coverage if it is verifiable, an uncited one lowers it."""
    cited = [s.is_cited for s in sentences if s.verifiable]
    unknown = [s.is_cited for s in sentences if s.verifiable is None]
    n_cited, n = sum(cited), len(cited)
    maybe_cited = sum(unknown)
    low = _ratio(n_cited, n + len(unknown) - maybe_cited)
    high = _ratio(n_cited + maybe_cited, n + maybe_cited)
    low, high = high if math.isnan(low) else low, low if math.isnan(high) else high
    return _score(low, high, n + len(unknown), len(unknown))


def _over_citation(sentences: Sequence[JudgedSentence]) -> Score:
    """As coverage, of the sentences that are not verifiable."""
    others = [dataclasses.replace(s, verifiable=None if s.verifiable is None else not s.verifiable) for s in sentences]
    return _coverage(others)


def _share(values: Sequence[bool | None]) -> Score:
    yes, failed = sum(bool(v) for v in values), sum(v is None for v in values)
    return _score(_ratio(yes, len(values)), _ratio(yes + failed, len(values)), len(values), failed)


def _score(low: float, high: float, n: int, n_failed: int) -> Score:
    return Score(low if low == high else math.nan, low, high, n, n_failed)


def _times(coverage: float, f1: float) -> float:
    return 0.0 if coverage == 0 else coverage * f1


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def _by_id(responses: Iterable[MurgatScores]) -> dict[str, MurgatScores]:
    by_id: dict[str, MurgatScores] = {}
    for one in responses:
        if by_id.setdefault(one.response.id, one) is not one:
            raise RowError(f"murgat: two responses have the id {one.response.id!r}; give each its own")
    return by_id


def as_json(value: Any) -> Any:
    """Results as JSON values: NaN is None, scores as `Score.to_dict`."""
    if isinstance(value, Score):
        return as_json(value.to_dict())
    if isinstance(value, Interval):
        return as_json([value.low, value.high])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: as_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
