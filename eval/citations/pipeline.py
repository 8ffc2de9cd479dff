"""MuRGAt's automatic evaluation (sections 3.2 and 4): what a response claims, by a language model; whether what it
cites supports that, by a verifier.

    sentences -> is each verifiable? -> those with citations: decontextualised -> atomic facts with citations
    -> each fact judged on its citations together, on each alone, and on the others without it

Where this departs from the paper: a sentence is decontextualised with the sentences before it alone in the question, so
that it cannot look forward (the paper shows the whole text and forbids it, figure 10); the citations of facts are by
default copied by code, as section 3.2 defines, not by the model (figure 9, "embedded"), which gets 14 to 20 % of them
wrong (table 3). An answer that cannot be read is asked for again, and then is an error of its sentence; the published
code counts it as "no". Prompts are in `prompts/`, in words of our own.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal

from ...core import Citation, Malformed, parse_citations
from ...data_prep.importers import bare_fact
from ...data_prep.language import Complete, LanguageModelError, ask, map_ordered, without_thoughts
from ...models.decision import Verdict, failed
from ...models.verifier import (
    Attributed,
    AttributionPairs,
    CitedClaim,
    EvidenceReader,
    JudgedCitation,
    ProblemKind,
    SetRule,
    Sources,
)
from ..scores import JudgePairs, Judgment, Judgments
from .answers import ANSWERS, Style, prompt, user_turn
from .responses import Cites, GivenFact, GivenResponse, GivenSentence
from .scores import FactCitation, JudgedFact, JudgedResponse, JudgedSentence

CitationRule = Literal["sentence", "embedded"]
"""Who cites what: every fact all of its sentence's citations (section 3.2), or those a model gave it (figure 9)."""
Relevance = Literal["alone", "necessary", "alce"]
"""When a citation is relevant: it supports the fact alone (section 3.3.2, and the authors' code); the fact is supported
and no longer without it (section 3.2); the fact is supported, and this citation supports it alone or the others do not
(Gao et al., 2023, which the paper follows)."""
UNUSABLE: tuple[ProblemKind, ...] = ("malformed", "beyond_end")
"""Citations that support nothing because nothing is there, rather than failing the judge."""


def is_verifiable(complete: Complete, sentence: str, style: Style = "json") -> bool:
    """Whether a sentence says something that can be seen or heard (subtask 1); LanguageModelError without an answer."""
    asked = prompt(f"murgat_verifiable_{style}", sentence=sentence)
    return ask(complete, user_turn(asked), ANSWERS[style])


def decontextualised(complete: Complete, sentence: str, before: Sequence[str]) -> str:
    """The sentence with its references named, by what stands before it alone; its citations must stay as they are."""
    if not before:
        return sentence
    wanted = Counter(parse_citations(sentence).citations)

    def parse(text: str) -> str:
        rewritten = without_thoughts(text)
        if not rewritten or "\n" in rewritten:
            raise ValueError(f"write the one sentence on one line and nothing else, got {rewritten[:120]!r}")
        if Counter(parse_citations(rewritten).citations) != wanted:
            raise ValueError(f"keep the citations of {sentence!r} as they are, got {rewritten[:200]!r}")
        return rewritten

    return ask(complete, user_turn(prompt("murgat_decontextualise", before=" ".join(before), sentence=sentence)), parse)


def atomic_facts(complete: Complete, sentence: str, propagation: CitationRule = "sentence") -> tuple[GivenFact, ...]:
    """The atomic facts of a sentence, with its citations (subtask 2)."""
    cited = parse_citations(sentence)
    allowed = set(cited.citations)

    def parse(text: str) -> tuple[GivenFact, ...]:
        lines = [line.strip() for line in without_thoughts(text).splitlines() if line.strip()]
        if not lines or any(not line.startswith(("-", "•", "*")) for line in lines):
            raise ValueError(f"write each fact on a line of its own that begins with '- ', got {text.strip()[:200]!r}")
        return tuple(_fact(line, cited.items, allowed, propagation) for line in lines)

    return ask(complete, user_turn(prompt("murgat_facts", sentence=sentence)), parse)


def _fact(line: str, of_sentence: Cites, allowed: set[Citation], propagation: CitationRule) -> GivenFact:
    cited = parse_citations(bare_fact(line))
    if not cited.text:
        raise ValueError(f"a fact is a sentence, got {line!r}")
    if propagation == "sentence":
        return GivenFact(cited.text, of_sentence)
    if not cited.items or cited.malformed or not set(cited.citations) <= allowed:
        raise ValueError(f"a fact ends with citations copied from its sentence, got {line!r}")
    return GivenFact(cited.text, cited.items)


def annotate(
    responses: Sequence[GivenResponse],
    complete: Complete,
    style: Style = "json",
    propagation: CitationRule = "sentence",
    workers: int = 8,
    uncited: bool = False,
) -> list[GivenResponse]:
    """Responses with verifiability and facts by a language model, wherever the file does not give them.

    A sentence whose step failed keeps its error; what stands in a file is left as it is.

    Args:
        responses: as `read_murgat_responses` gives them.
        complete: the language model.
        style: how verifiability is asked for.
        propagation: how facts get their citations.
        workers: sentences under way at once.
        uncited: sentences without citations get facts, too: post-hoc attribution needs them.
    """
    work = [
        (sentence, [parse_citations(s.text).text for s in response.sentences[:number]])
        for response in responses
        for number, sentence in enumerate(response.sentences)
    ]

    def step(item: tuple[GivenSentence, list[str]]) -> GivenSentence:
        return _annotated(item[0], item[1], complete, style, propagation, uncited)

    done = iter(map_ordered(step, work, workers))
    annotated = []
    for response in responses:
        sentences = []
        for sentence in response.sentences:
            result = next(done)
            if isinstance(result, LanguageModelError):  # _annotated catches its own; this keeps the order in any case
                result = dataclasses.replace(sentence, error=str(result))
            sentences.append(result)
        annotated.append(dataclasses.replace(response, sentences=tuple(sentences), is_annotated=True))
    return annotated


def _annotated(
    sentence: GivenSentence,
    before: Sequence[str],
    complete: Complete,
    style: Style,
    propagation: CitationRule,
    uncited: bool,
) -> GivenSentence:
    step = "verifiable"
    try:
        if sentence.verifiable is None and sentence.facts is None:
            verifiable = is_verifiable(complete, parse_citations(sentence.text).text, style)
            sentence = dataclasses.replace(sentence, verifiable=verifiable)
        if not sentence.verifiable or sentence.facts or not (uncited or sentence.is_cited):
            return sentence
        step = "decontextualise"
        text = decontextualised(complete, sentence.text, before)
        step = "facts"
        rule: CitationRule = propagation if sentence.is_cited else "sentence"
        return dataclasses.replace(sentence, facts=atomic_facts(complete, text, rule))
    except LanguageModelError as error:
        return dataclasses.replace(sentence, error=f"{step}: {error}")


def judge_responses(
    responses: Sequence[GivenResponse],
    judge: JudgePairs,
    reader: EvidenceReader,
    sources: Callable[[str], Sources],
    relevance: Relevance = "alone",
    counts_as_wrong: Collection[ProblemKind] = UNUSABLE,
    sets: SetRule = "one_prompt",
) -> tuple[list[JudgedResponse], Judgments]:
    """Responses judged on what they cite (subtask 3), all in one call of the judge.

    Args:
        responses: annotated.
        judge: who answers, e.g. `by_verifier(verifier)`.
        reader: the verifier's: it tells which evidence it may be asked about, and where media lie.
        sources: of a video, by the name in its response.
        relevance: when a citation counts for precision.
        counts_as_wrong: problems of a citation that count against it; others are failures.
        sets: how several citations are judged together: as in MuRGAt, or "largest" or "pieces" for a verifier of single
            segments.
    """
    claims = [
        CitedClaim(fact.text, list(fact.citations), sources(response.video))
        for response in responses
        for sentence in response.sentences
        for fact in _judgeable(sentence)
    ]
    cited = AttributionPairs(claims, reader, sets)
    judgments = judge(cited.pairs) if cited.pairs else Judgments({}, 0, 0)
    attributed = iter(cited.attributions([verdict_of(judgments.of[pair.id]) for pair in cited.pairs]))
    judged = []
    for response in responses:
        sentences = []
        for s in response.sentences:
            facts = tuple(judged_fact(next(attributed), relevance, counts_as_wrong) for _ in _judgeable(s))
            sentences.append(JudgedSentence(s.text, s.verifiable, facts, s.error))
        judged.append(JudgedResponse(response.id, response.video, tuple(sentences)))
    return judged, judgments


def judged_fact(
    attributed: Attributed, relevance: Relevance = "alone", counts_as_wrong: Collection[ProblemKind] = UNUSABLE
) -> JudgedFact:
    """A verifier's attribution of a fact as MURGAT-Score counts it: each evidence once, however often it is cited."""
    cites = [(cite, place) for place, cite in enumerate(attributed.citations) if cite.same_as is None]
    supported = _label(attributed.recall)
    reason = attributed.recall.error
    kept = [cite for cite, _ in cites if cite.problem is None or cite.problem.kind not in counts_as_wrong]
    if cites and not kept:
        supported, reason = False, "no citation leads to any evidence"
    elif any(cite.problem is not None for cite in kept):  # a citation that cannot be judged could have supported it
        supported = True if supported else None
        reason = attributed.recall.note or attributed.recall.error
    made = tuple(_citation(cite, attributed, supported, place, relevance, counts_as_wrong) for cite, place in cites)
    known = supported is not None and bool(kept)
    p_supported = _probability(attributed.recall) if known else None
    return JudgedFact(attributed.claim, made, supported, None if known else reason, p_supported)


def _citation(
    cite: JudgedCitation,
    attributed: Attributed,
    supported: bool | None,
    place: int,
    relevance: Relevance,
    counts_as_wrong: Collection[ProblemKind],
) -> FactCitation:
    given = cite.citation
    text = given.text if isinstance(given, (Citation, Malformed)) else str(given)
    modality = given.modality if isinstance(given, Citation) else None
    if cite.problem is not None:
        wrong = cite.problem.kind in counts_as_wrong
        return FactCitation(text, modality, False if wrong else None, cite.problem.message)
    alone, necessary = attributed.relevant[place], attributed.necessary[place]
    if relevance == "alone":
        relevant = alone
    elif relevance == "necessary":
        relevant = necessary
    else:
        relevant = _both(supported, _either(alone, necessary))
    reason = next((v.error for v in (cite.alone, cite.without, attributed.recall) if v is not None and v.error), None)
    p_supported = None if cite.alone is None else _probability(cite.alone)
    return FactCitation(text, modality, relevant, None if relevant is not None else reason or "no label", p_supported)


def _judgeable(sentence: GivenSentence) -> tuple[GivenFact, ...]:
    """Facts that are judged: of a sentence that is verifiable and cited, with citations of their own."""
    if not sentence.verifiable or not sentence.is_cited:
        return ()
    return tuple(fact for fact in sentence.facts or () if fact.citations)


def verdict_of(judgment: Judgment) -> Verdict:
    """A judgment as a verdict without a margin."""
    if judgment.supported is None:
        return failed(judgment.error or "no judgment")
    return Verdict(judgment.p_supported, 0.0, "supported" if judgment.supported else "not_supported")


def _label(verdict: Verdict) -> bool | None:
    return None if verdict.label is None else verdict.label == "supported"


def _probability(verdict: Verdict) -> float | None:
    return None if verdict.label is None or math.isnan(verdict.p_supported) else verdict.p_supported


def _both(a: bool | None, b: bool | None) -> bool | None:
    return False if a is False or b is False else None if a is None or b is None else True


def _either(a: bool | None, b: bool | None) -> bool | None:
    return True if a or b else None if a is None or b is None else False


def step_failures(responses: Iterable[GivenResponse]) -> list[tuple[str, str, str]]:
    """(response, sentence, error) of every sentence that a step failed on."""
    return [(r.id, s.text, s.error) for r in responses for s in r.sentences if s.error is not None]
