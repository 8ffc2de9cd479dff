"""MiRAGE's files: generated responses with claims and citations, and topics with reference claims and videos.

Responses (`<system>_relevant_citations.json`): {topic: {"prediction", "sentences", "claims", "citations"}}, the last
three aligned by sentence; `claims` may be absent (a language model extracts them); `importance`, aligned with the
claims, weighs them; `context` lists the ids of the sources it was written from. Topics (`human_eval_subset.json`): see
`data_prep/importers/mirage.py`; of a claim's entry `importance`, and of a video `quality`, may weigh too; `query` of a
topic says what was asked for, if not its name, and `question` of a claim's entry is what the claim answers.

Claims are extracted from sentences with the prompt `prompts/mirage_claims.txt`. A sentence whose answer cannot be read
ends the run with that answer quoted: a share has no bounds where the number of claims is unknown.
"""

from __future__ import annotations

import dataclasses
import json
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from ...core import RowError, VideoSegment
from ...data_prep.importers import Record, Rejected, read_json_members, video_name
from ...data_prep.language import Complete, LanguageModelError, ask, map_ordered, parse_json
from .records import Claim, ReferenceClaim, Response, Sentence, Source, Topic


def read_responses(path: Path, system: str | None = None) -> list[Response]:
    """The responses of one system.

    Args:
        path: JSON object of topics.
        system: its name; None: that of the file.

    Raises:
        RowError: a topic that is not in the form above.
    """
    name = system or path.stem.removesuffix("_relevant_citations")
    responses = []
    for where, topic, value in _members(path):
        for key in ("sentences", "citations"):
            if not isinstance(value.get(key), list):
                got = reprlib.repr(value.get(key))
                raise RowError(f"{where}: {key} must be a list with one entry per sentence, got {got}; repair it")
        lists = {key: value[key] for key in ("sentences", "claims", "citations", "importance") if key in value}
        if len({len(items) for items in lists.values()}) != 1:
            lengths = {key: len(items) for key, items in lists.items()}
            raise RowError(f"{where}: lists must be aligned by sentence, got lengths {lengths}; repair the topic")
        sentences = tuple(_sentence(where, lists, i) for i in range(len(value["sentences"])))
        text = value.get("prediction") or " ".join(sentence.text for sentence in sentences)
        responses.append(Response(_spaced(topic), name, text, sentences, _context(where, value)))
    if not responses:
        raise RowError(f"{path}: file holds no response, got an empty object; write {{topic: {{'sentences': ...}}}}")
    return responses


def read_topics(path: Path, extension: str = ".mp4", written_ids: bool = False) -> dict[str, Topic]:
    """The topics that responses are scored against.

    Args:
        path: JSON object of topics.
        extension: of the video files.
        written_ids: keep `watch?v=ID` as it is written, as the authors' code does; otherwise it is ID.

    Raises:
        RowError: a topic that is not in the form above.
    """
    topics = {}
    for where, topic, value in _members(path):
        videos, judged = value.get("videos"), value.get("claims_to_supporting_videos", {})
        if not isinstance(videos, dict) or not isinstance(judged, dict):
            raise RowError(f"{where}: videos and claims_to_supporting_videos must be objects; see docs/formats.md")
        sources = {video_name(v): Source(_video(video_name(v), extension), _weight(where, "quality", about))
                   for v, about in videos.items()}  # fmt: skip
        contexts = _contexts(where, value)
        claims = []
        for text, entry in judged.items():
            supporting = entry.get("supporting_videos") if isinstance(entry, dict) else None
            if not isinstance(supporting, list) or not _is_texts(supporting):
                got = reprlib.repr(entry)
                raise RowError(f"{where}: supporting_videos must be a list of ids, got {got} for {text!r}; write [...]")
            ids = tuple(dict.fromkeys(v if written_ids else video_name(v) for v in supporting))
            weight, question = _weight(where, "importance", entry), _text(where, "question", entry)
            claims.append(ReferenceClaim(text, ids, contexts.get(text), weight, question))
        article, query, name = value.get("article"), _text(where, "query", value), _spaced(topic)
        topics[name] = Topic(name, article or None, tuple(claims), sources, query=query)
    return topics


def with_cited_videos(
    topics: Mapping[str, Topic], responses: Sequence[Response], extension: str = ".mp4"
) -> dict[str, Topic]:
    """The topics, with the videos outside their collections that responses cite or were written from."""
    known = dict(topics)
    for response in responses:
        if response.topic in known:
            topic = known[response.topic]
            cited = {name for sentence in response.sentences for name in sentence.citations} | {
                *(response.context or ())
            }
            others = {name: Source(_video(name, extension)) for name in sorted(cited - set(topic.sources))}
            known[response.topic] = dataclasses.replace(topic, others={**topic.others, **others})
    return known


def _video(name: str, extension: str) -> VideoSegment:
    return VideoSegment(name if Path(name).suffix else name + extension)


def _sentence(where: str, lists: dict[str, list[Any]], i: int) -> Sentence:
    text, claims, citations = lists["sentences"][i], lists.get("claims", [None] * (i + 1))[i], lists["citations"][i]
    if not isinstance(text, str) or not _is_texts(citations) or not (claims is None or _is_texts(claims)):
        got = reprlib.repr([text, claims, citations])
        raise RowError(f"{where}: sentence {i} must be text with lists of claims and citations, got {got}; repair it")
    if empty := [claim for claim in claims or () if not claim.strip()]:
        raise RowError(f"{where}: sentence {i} has an empty claim, got {empty[0]!r}; remove it")
    importance = lists["importance"][i] if "importance" in lists else [1.0] * len(claims or ())
    if len(importance) != len(claims or ()):
        raise RowError(f"{where}: importance of sentence {i} must be one per claim, got {importance!r}; align them")
    weights = [_weight(where, "importance", {"importance": each}) for each in importance]
    names = _ids(citations)
    weighted = None if claims is None else tuple(Claim(*each) for each in zip(claims, weights, strict=True))
    return Sentence(text, names, weighted or (), needs_claims=claims is None)


def _ids(citations: Sequence[str]) -> tuple[str, ...]:
    """Ids without an extension; paths of the authors' machine end in them."""
    return tuple(dict.fromkeys(Path(video_name(citation)).stem for citation in citations))


def _context(where: str, value: dict[str, Any]) -> tuple[str, ...] | None:
    context = value.get("context")
    if context is None:
        return None
    if not _is_texts(context):
        raise RowError(f"{where}: context must be a list of ids, got {reprlib.repr(context)}; write [...]")
    return _ids(context)


def _text(where: str, key: str, about: Any) -> str | None:
    text = about.get(key) if isinstance(about, dict) else None
    if text is not None and not (isinstance(text, str) and text.strip()):
        raise RowError(f"{where}: {key} must be a text, got {reprlib.repr(text)}; write one or leave it out")
    return text


def _contexts(where: str, value: dict[str, Any]) -> dict[str, str]:
    """The first sentence each reference claim was taken from."""
    contexts: dict[str, str] = {}
    sentences, claims = value.get("original_article", []), value.get("claims", [])
    if not isinstance(sentences, list) or not isinstance(claims, list) or len(sentences) != len(claims):
        raise RowError(f"{where}: original_article and claims must be lists aligned by sentence; repair the topic")
    for sentence, texts in zip(sentences, claims, strict=True):
        for text in texts:
            contexts.setdefault(text, sentence)
    return contexts


def _weight(where: str, key: str, about: Any) -> float:
    weight = about.get(key, 1.0) if isinstance(about, dict) else 1.0
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < float("inf"):
        raise RowError(f"{where}: {key} must be a number of at least 0, got {weight!r}; give one in [0, 1]")
    return float(weight)


def _members(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    if not path.is_file():
        raise RowError(f"{path}: file is missing, got no such file; check the path")
    for record in read_json_members(path):
        if isinstance(record, Rejected):
            raise RowError(str(record))
        assert isinstance(record, Record)
        topic, value = record.value
        where = f"{record.file}:{record.line}: {topic}"
        if not isinstance(value, dict):
            raise RowError(f"{where}: topic must be an object, got {reprlib.repr(value)}; see docs/formats.md")
        yield where, topic, value


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _spaced(topic: str) -> str:
    return topic.replace("_", " ")


def with_claims(responses: Sequence[Response], complete: Complete, workers: int = 8) -> list[Response]:
    """The responses, with claims for every sentence that still needs them.

    Raises:
        RowError: sentences whose claims could not be had, each with the reason.
    """
    prompt = files("proofreel.eval.articles").joinpath("prompts/mirage_claims.txt").read_text(encoding="utf-8")
    wanted = [
        (r, i) for r, response in enumerate(responses) for i, s in enumerate(response.sentences) if s.needs_claims
    ]

    def claims_of(place: tuple[int, int]) -> list[str]:
        response = responses[place[0]]
        question = {"article": response.text, "sentence": response.sentences[place[1]].text}
        messages = [
            {"role": "system", "content": prompt},
            {"role": "user", "content": json.dumps(question, ensure_ascii=False)},
        ]
        return ask(complete, messages, _claims)

    sentences = [list(response.sentences) for response in responses]
    failures: list[str] = []
    for (r, i), answer in zip(wanted, map_ordered(claims_of, wanted, workers), strict=True):
        if isinstance(answer, LanguageModelError):
            failures.append(f"{responses[r].system}: {responses[r].topic!r}, sentence {i}: {answer}")
        else:
            claims = tuple(Claim(text) for text in answer)
            sentences[r][i] = Sentence(sentences[r][i].text, sentences[r][i].citations, claims)
    if failures:
        raise RowError(
            f"claims: {len(failures)} of {len(wanted)} sentences have none, got\n"
            + "\n".join(failures[:20])
            + "\nrun it "
            "again: what was answered is kept where the language model has a cache_dir"
        )
    return [dataclasses.replace(r, sentences=tuple(s)) for r, s in zip(responses, sentences, strict=True)]


def _claims(text: str) -> list[str]:
    value = parse_json(text)
    if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
        raise ValueError(f"the answer must be a list of texts, got {text.strip()[:200]!r}; write [text, ...]")
    return [item.strip() for item in value]
