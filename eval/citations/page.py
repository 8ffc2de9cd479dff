"""The page of MURGAT-Score: responses of one system or two, their facts by verdict, the frames that they cite."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ...core import parse_citation_list
from ...models.verifier import Sources, resolve
from ..scores import Judgment, PageCitation, PageClaim, PageResponse, PageSentence, ScorePage
from .scores import (
    FactCitation,
    JudgedFact,
    JudgedSentence,
    MurgatComparison,
    MurgatScores,
    MurgatSystemScores,
)
from .views import AnyEvidence

SHOWN = ("coverage", "precision", "recall", "f1", "murgat")
"""Scores of each response; all are in the table of the systems."""


def murgat_page(
    systems: Mapping[str, MurgatSystemScores],
    comparison: MurgatComparison | None,
    sources: Callable[[str], Sources],
    media_root: Path | None = None,
    notes: Iterable[str] = (),
) -> ScorePage:
    """The page of a result.

    Args:
        systems: by name; one or two.
        comparison: of two.
        sources: what the citations of a video's responses point into.
        media_root: where media lie; citations beyond a video's end are named.
        notes: who judged.
    """
    reader = AnyEvidence(media_root)
    names = list(systems)
    return ScorePage(
        title="MURGAT-Score",
        systems={name: system.mean for name, system in systems.items()},
        differences={} if comparison is None else {f"{names[1]} - {names[0]}": comparison.difference},
        responses=[
            _response(name, scored, sources(scored.response.group), reader)
            for name, system in systems.items()
            for scored in system.responses
        ],
        notes=("Mean over responses in percent [95 % interval over videos].", *notes),
    )


def _response(system: str, scored: MurgatScores, sources: Sources, reader: AnyEvidence) -> PageResponse:
    sentences = tuple(_sentence(sentence, sources, reader) for sentence in scored.response.sentences)
    scores = {name: scored.scores[name] for name in SHOWN if not math.isnan(scored.scores[name].low)}
    id, video = scored.response.id, scored.response.group
    return PageResponse(system, id if id.startswith(video) else f"{id} · {video}", sentences, scores)


def _sentence(sentence: JudgedSentence, sources: Sources, reader: AnyEvidence) -> PageSentence:
    kind = {True: "verifiable", False: "not verifiable", None: "not known whether verifiable"}[sentence.verifiable]
    note = kind if sentence.is_cited else f"{kind}, cites nothing"
    facts = tuple(_claim(fact, sources, reader) for fact in sentence.facts)
    return PageSentence(sentence.text, facts, "" if facts else note, sentence.error)


def _claim(fact: JudgedFact, sources: Sources, reader: AnyEvidence) -> PageClaim:
    citations = tuple(_citation(cite, len(fact.citations) > 1, sources, reader) for cite in fact.citations)
    together = _judgment(fact.supported, fact.p_supported, fact.reason)
    return PageClaim(fact.text, {"all that it cites": together} if citations else {}, citations)


def _citation(cite: FactCitation, is_one_of_many: bool, sources: Sources, reader: AnyEvidence) -> PageCitation:
    alone = _judgment(cite.relevant, cite.p_supported, cite.reason) if is_one_of_many else None
    resolved = [resolve(each, sources, reader) for each in parse_citation_list(cite.text)]
    evidence = tuple(each.evidence for each in resolved if each.evidence is not None)
    problems = [each.problem.message for each in resolved if each.problem is not None]
    return PageCitation(f"({cite.text})", evidence, alone, "; ".join(problems) or None)


def _judgment(supported: bool | None, p_supported: float | None, reason: str | None) -> Judgment:
    return Judgment(supported, math.nan if p_supported is None else p_supported, reason)
