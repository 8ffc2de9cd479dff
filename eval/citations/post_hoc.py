"""Post-hoc attribution (MuRGAt, section 5.1 and figure 19): a response that is written gets citations.

Each atomic fact of a verifiable sentence is looked for in the video; the sentence then ends with what was found for its
facts. The text of the response is kept by construction. Two ways to look:

- a verifier over windows of the video and of its transcript (`moments_by_verifier`): the surest one;
- a language model that is shown the video and the facts (`moments_by_language_model`), as in the paper.

Where this departs from the paper: there one prompt gives the whole response back with citations added, corrected, and
times taken out of its prose; here citations are proposed for facts and written by code, citations that a sentence has
already are kept (or all replaced: `which="all"`), and times in its prose stay. A sentence of whose facts none is found
stays without citations: forcing each to some segment is the fault that the paper describes (appendix D.2).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...core import Citation, ProofreelError, parse_citation_list, parse_citations, render_citations, write_whole
from ...data_prep.language import Complete, LanguageModelError, ask, map_ordered, without_thoughts
from .answers import prompt
from .moments import FindMoments, Found, Moment, Search
from .pipeline import CitationRule
from .responses import GivenFact, GivenResponse, GivenSentence
from .views import Parts, View, message_of, text_part

Which = Literal["missing", "all"]
FACTS_PER_QUESTION = 30
_LINE = re.compile(r"(\d+)\s*[:.)]\s*(.*)")
_CLOSING = re.compile(r"[.!?]+[\"'”’)\]]*$")


@dataclass(frozen=True)
class Proposal:
    """What was found for one fact of a response."""

    response: str
    fact: str
    found: Found


def attributed_post_hoc(
    responses: Sequence[GivenResponse],
    find: FindMoments,
    which: Which = "missing",
    propagation: CitationRule = "sentence",
) -> tuple[list[GivenResponse], list[Proposal]]:
    """Responses with citations for the facts of their verifiable sentences, and what was found for each fact.

    Labels of people on these facts are dropped: they were about other citations.

    Args:
        responses: annotated, facts of uncited sentences included (`annotate(..., uncited=True)`).
        find: who proposes.
        which: sentences without citations, or all.
        propagation: facts cite all that their sentence cites, or what was found for themselves; a fact for which
            nothing was found is then not judged, as in the authors' code.
    """
    asked = [
        Search(response.video, fact.text)
        for response in responses
        for sentence in response.sentences
        for fact in _facts_of(sentence, which)
    ]
    found = iter(find(asked) if asked else [])
    proposals: list[Proposal] = []
    attributed = []
    for response in responses:
        sentences = []
        for sentence in response.sentences:
            given = [(fact, next(found)) for fact in _facts_of(sentence, which)]
            proposals += [Proposal(response.id, fact.text, each) for fact, each in given]
            sentences.append(_cited(sentence, given, propagation) if given else sentence)
        labelled = any(fact.supported is not None for s in sentences for fact in s.facts or ())
        attributed.append(dataclasses.replace(response, sentences=tuple(sentences), is_labelled=labelled))
    return attributed, proposals


def _facts_of(sentence: GivenSentence, which: Which) -> tuple[GivenFact, ...]:
    """Facts that are looked for."""
    if not sentence.verifiable or (sentence.is_cited and which == "missing"):
        return ()
    return sentence.facts or ()


def _cited(
    sentence: GivenSentence, given: Sequence[tuple[GivenFact, Found]], propagation: CitationRule
) -> GivenSentence:
    own = [tuple(moment.citation for moment in found.moments) for _, found in given]
    everything = tuple(sorted({cite for cites in own for cite in cites}, key=lambda c: (c.start_s, c.modality)))
    facts = tuple(
        GivenFact(fact.text, everything if propagation == "sentence" else cites)
        for (fact, _), cites in zip(given, own, strict=True)
    )
    text = with_citations(parse_citations(sentence.text).text, everything)
    return dataclasses.replace(sentence, text=text, facts=facts)


def with_citations(sentence: str, citations: Sequence[Citation]) -> str:
    """A sentence that ends with citations, before its full stop."""
    if not citations:
        return sentence
    closing = _CLOSING.search(sentence)
    end = closing.start() if closing else len(sentence)
    return f"{sentence[:end].rstrip()} {render_citations(citations)}{sentence[end:]}"


def moments_by_language_model(complete: Complete, view: View, workers: int = 8) -> FindMoments:
    """Find claims by a language model that is shown the whole video and names times, with its cache resumable.

    Args:
        complete: the model.
        view: what it is shown.
        workers: questions under way at once.
    """

    def questions(searches: Sequence[Search]) -> Iterator[tuple[list[str], Parts | str]]:
        for video, group in itertools.groupby(searches, key=lambda search: search.video):
            try:
                shown: Parts | str = view.whole(video)
            except ProofreelError as error:
                shown = str(error)
            facts = [search.claim for search in group]
            for start in range(0, len(facts), FACTS_PER_QUESTION):
                yield facts[start : start + FACTS_PER_QUESTION], shown

    def found(item: tuple[list[str], Parts | str]) -> list[Found]:
        facts, shown = item
        if isinstance(shown, str):
            return [Found(error=shown)] * len(facts)
        listed = "\n".join(f"{number}: {fact}" for number, fact in enumerate(facts, 1))
        question = message_of([*shown, text_part("\n" + prompt("murgat_cite", facts=listed))])
        try:
            return ask(complete, question, lambda text: _moments(text, len(facts)))
        except LanguageModelError as error:
            return [Found(error=str(error))] * len(facts)

    def find(searches: Sequence[Search]) -> list[Found]:
        everything: list[Found] = []
        for result in map_ordered(found, questions(searches), workers):
            assert isinstance(result, list)  # `found` catches what a model may raise
            everything += result
        return everything

    return find


def _moments(text: str, n: int) -> list[Found]:
    """The citations of facts 1 to n, one line each."""
    found: dict[int, Found] = {}
    for line in filter(None, map(str.strip, without_thoughts(text).splitlines())):
        match = _LINE.fullmatch(line)
        if match is None or not 1 <= int(match[1]) <= n or int(match[1]) in found:
            raise ValueError(f"write each number from 1 to {n} once, as `1: (visual, 0:05)`, got {line[:120]!r}")
        found[int(match[1])] = _moments_of(match[2])
    if missing := sorted(set(range(1, n + 1)) - set(found)):
        raise ValueError(f"write a line for each number, got none for {missing}: {text.strip()[:200]!r}")
    return [found[number] for number in range(1, n + 1)]


def _moments_of(text: str) -> Found:
    if text.strip(" .").lower() == "none":
        return Found()
    cites = parse_citation_list(text)
    good = [cite for cite in cites if isinstance(cite, Citation)]
    if len(good) < len(cites):
        raise ValueError(f"write citations such as (visual, 0:05-0:07; audio, 0:09), or none, got {text[:120]!r}")
    return Found(tuple(Moment(cite) for cite in good))


def write_murgat_responses(path: Path, responses: Sequence[GivenResponse]) -> None:
    """Responses with their facts and verifiability, in the layout of facts judged by people (docs/formats.md)."""
    text = json.dumps([_record(response) for response in responses], indent=1, ensure_ascii=False)
    write_whole(path.parent, path, f"{text}\n".encode())


def _record(response: GivenResponse) -> dict[str, Any]:
    facts = [
        {"fact": fact.text, "citations": [f"({cite.text})" for cite in fact.citations], "sentence": sentence.text}
        | ({} if fact.supported is None else {"supported": fact.supported})
        for sentence in response.sentences
        for fact in sentence.facts or ()
    ]
    # One sentence a line, so that it is cut there again.
    text = "\n".join(sentence.text for sentence in response.sentences) + response.answer
    verifiable = {sentence.text: sentence.verifiable for sentence in response.sentences}
    record = {"id": response.id, "video": response.video, "model_generation": text}
    return record | {"facts": facts, "verifiable": verifiable}
