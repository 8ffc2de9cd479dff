"""The scores and questions that a language model writes: ARGUE's nuggets, RAGAS's answer and context relevance.

MiRAGE, appendices E and F. Prompts of our own are in `prompts/`. An answer that cannot be read is a failure, with the
text quoted: the score it belongs to is bounded.

- Nuggets: a question is written for each reference claim, which is its answer.
- Answer relevance: a query is written for the response; the cosine of its embedding and that of the query in fact, from
  -1 to 1. One query is written, as in the paper (Es et al. take the mean over several).
- Context relevance: of each source that the response was written from, the sentences a model with eyes writes about it
  with the query, over those it writes without; the mean over sources. The two are written apart, so the share could be
  above 1; it is held to 1, which the paper leaves open. "Insufficient information" is no sentence.
"""

from __future__ import annotations

import dataclasses
import json
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...core import Evidence, ProofreelError, RowError, cited_sentences
from ...data_prep.language import Complete, LanguageModelError, ask, map_ordered, parse_json
from ...data_prep.media import FrameSampling
from ...models.zero_shot import evidence_parts
from ..scores import Score
from .formulas import Measurement
from .records import MirageOptions, ReferenceClaim, Response, Topic
from .shares import counted_claims, source_of
from .textrag import written_from

Embed = Callable[[Sequence[str]], NDArray[np.float64]]
"""Unit vectors of texts, shape (n, size)."""
Describe = Callable[[tuple[Evidence, ...], str], str]
"""A model's answer to an instruction about evidence that it is shown; LanguageModelError without one."""


def prompt(name: str, **values: str) -> str:
    """A prompt from its file, with `{name}`s filled in."""
    text = files("proofreel.eval.articles").joinpath(f"prompts/mirage_{name}.txt").read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    return text


def with_questions(
    topics: Mapping[str, Topic], complete: Complete, options: MirageOptions | None = None, workers: int = 8
) -> dict[str, Topic]:
    """The topics, with a question for every reference claim that counts and has none, or with why there is none."""
    wanted = [
        (topic, claim)
        for topic in topics.values()
        for claim in counted_claims(topic, options or MirageOptions())
        if claim.question is None
    ]

    def question_of(each: tuple[Topic, ReferenceClaim]) -> str:
        topic, claim = each
        return _written(complete, "question", "question", topic=topic.query or topic.name, claim=claim.text)

    written: dict[tuple[str, ReferenceClaim], ReferenceClaim] = {}
    for (topic, claim), answer in zip(wanted, map_ordered(question_of, wanted, workers), strict=True):
        failure = isinstance(answer, LanguageModelError)
        written[topic.name, claim] = dataclasses.replace(
            claim, question=None if failure else answer, question_error=str(answer) if failure else None
        )
    return {
        name: dataclasses.replace(
            topic, claims=tuple(written.get((topic.name, claim), claim) for claim in topic.claims)
        )
        for name, topic in topics.items()
    }


@dataclass(frozen=True)
class AnswerRelevance:
    """What an answer relevance was made of: the query in fact, and the one written for the response."""

    query: str
    written: str | None
    error: str | None = None


def answer_relevance(
    responses: Sequence[Response], topics: Mapping[str, Topic], complete: Complete, embed: Embed, workers: int = 8
) -> dict[tuple[str, str], Measurement]:
    """RAGAS's answer relevance by (system, topic); not defined for an empty response."""
    told = [response for response in responses if response.text.strip()]

    def query_of(response: Response) -> str:
        return _written(complete, "query", "query", article=response.text)

    written = dict(zip(((r.system, r.topic) for r in told), map_ordered(query_of, told, workers), strict=True))
    texts = dict.fromkeys(_query(response, topics) for response in told)
    texts |= dict.fromkeys(query for query in written.values() if isinstance(query, str))
    vectors = dict(zip(texts, embed(list(texts)), strict=True)) if texts else {}
    measured = {}
    for response in responses:
        key, query = (response.system, response.topic), _query(response, topics)
        answer = written.get(key)
        if answer is None:
            nothing = Score(math.nan, math.nan, math.nan, 0, 0)
            measured[key] = Measurement(nothing, AnswerRelevance(query, None, "the response is empty"))
        elif isinstance(answer, LanguageModelError):
            measured[key] = Measurement(Score(math.nan, -1.0, 1.0, 1, 1), AnswerRelevance(query, None, str(answer)))
        else:
            cosine = float(vectors[query] @ vectors[answer])
            measured[key] = Measurement(Score(cosine, cosine, cosine, 1, 0), AnswerRelevance(query, answer))
    return measured


@dataclass(frozen=True)
class ReadSource:
    """What a model wrote about a source with the query and without it, and the share of sentences; or why not."""

    source: str
    relevant: str | None = None
    everything: str | None = None
    share: float = math.nan
    error: str | None = None


def context_relevance(
    responses: Sequence[Response], topics: Mapping[str, Topic], describe: Describe, workers: int = 8
) -> dict[tuple[str, str], Measurement]:
    """RAGAS's context relevance by (system, topic); not defined for a response without sources. Each source of a topic
    is read once for all systems."""
    wanted = dict.fromkeys((response.topic, source) for response in responses for source in written_from(response))

    def read(each: tuple[str, str]) -> ReadSource:
        topic, source = topics[each[0]], each[1]
        evidence = (source_of(source, topic).evidence,)
        return _read(source, describe, evidence, topic.query or topic.name)

    done = dict(zip(wanted, map_ordered(read, wanted, workers), strict=True))
    measured = {}
    for response in responses:
        sources = [done[response.topic, source] for source in written_from(response)]
        rows = [source for source in sources if isinstance(source, ReadSource)]
        measured[response.system, response.topic] = Measurement(_mean_share(rows), rows)
    return measured


def describe_with(
    complete: Complete, media_root: str | Path | None = None, sampling: FrameSampling | None = None
) -> Describe:
    """Show evidence to a language model with eyes: frames as pictures, texts as text, then the instruction."""

    decoder = threading.Lock()  # one thread at a time

    def describe(evidence: tuple[Evidence, ...], instruction: str) -> str:
        try:
            with decoder:
                parts = evidence_parts(evidence, sampling or FrameSampling(), media_root)
        except ProofreelError as error:
            raise LanguageModelError(f"evidence: cannot be shown, got {error}") from error
        messages = [{"role": "user", "content": [*parts, {"type": "text", "text": instruction}]}]
        return ask(complete, messages, _some_text)

    return describe


def _query(response: Response, topics: Mapping[str, Topic]) -> str:
    topic = topics.get(response.topic)
    if topic is None:
        raise RowError(f"{response.system}: topic is not among the topics, got {response.topic!r}; add it there")
    return topic.query or topic.name


def _written(complete: Complete, name: str, key: str, **question: str) -> str:
    """The text under `key` of the JSON object that a model answers."""

    def parse(text: str) -> str:
        value = parse_json(text)
        answer = value.get(key) if isinstance(value, dict) else None
        if not isinstance(answer, str) or not answer.strip():
            raise ValueError(f'the answer must be {{"{key}": text}}, got {text.strip()[:200]!r}; write the one object')
        return answer.strip()

    messages = [
        {"role": "system", "content": prompt(name)},
        {"role": "user", "content": json.dumps(question, ensure_ascii=False)},
    ]
    return ask(complete, messages, parse)


def _read(source: str, describe: Describe, evidence: tuple[Evidence, ...], query: str) -> ReadSource:
    try:
        relevant = describe(evidence, prompt("relevant_sentences", query=query))
        everything = describe(evidence, prompt("all_sentences"))
    except LanguageModelError as error:
        return ReadSource(source, error=str(error))
    nothing = relevant.strip().casefold().startswith("insufficient information")
    n_relevant = 0 if nothing else len(cited_sentences(relevant))
    return ReadSource(source, relevant, everything, min(1.0, n_relevant / len(cited_sentences(everything))))


def _mean_share(sources: Iterable[ReadSource]) -> Score:
    shares = np.array([source.share for source in sources])
    if not len(shares):
        return Score(math.nan, math.nan, math.nan, 0, 0)
    failed = np.isnan(shares)
    low, high = (float(np.where(failed, end, shares).mean()) for end in (0.0, 1.0))
    return Score(math.nan if failed.any() else low, low, high, len(shares), int(failed.sum()))


def _some_text(text: str) -> str:
    """The answer without thoughts; ValueError if nothing is left, or no sentence."""
    answer = text.rpartition("</think>")[2].strip()
    if not cited_sentences(answer):
        raise ValueError(f"the answer must be at least one sentence, got {text.strip()[:200]!r}; write one")
    return answer
