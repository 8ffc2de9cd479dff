"""Import MuRGAt: one pair per atomic fact, with the moments it cites, taken together, as its evidence.

Three layouts, recognised per record (docs/formats.md): facts judged by people (`facts`), files scored by the published
evaluation (`evaluations`), and bare generations (`model_generation` alone), whose cited sentences become claims. A fact
is a claim and its citations; what is no fact becomes a message that says why.

Support by the union of the citations is the paper's recall (MuRGAt, section 3.2, subtask 3). It does not tell
"contradicted" from "not shown", so a fact that is not supported is labelled `not_enough`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ...core import (
    Audio,
    Citation,
    Cited,
    ConfigError,
    Evidence,
    Label,
    Malformed,
    MediaError,
    Modality,
    Pair,
    Transcript,
    VideoSegment,
    cited_sentences,
    parse_citation_list,
    parse_citations,
)
from .base import ClaimFormat, Importer, Record, Rejected, Row, kind_of, read_json_records, reject
from .transcripts import Transcripts, transcript_of

_LISTED = ("fact", "citations", "supported")
_FACT_KEYS = {*_LISTED, "verifiable", "needed", "sentence"}
_TEXT_KEYS = ("model_generation", "original_full_generation")
_ANSWER = re.compile(r"(?:^|\s)\**Answer\**\s*:")


@dataclass(frozen=True)
class Fact:
    """The text of a claim and what it cites. `edited`: written by people, who can repair it."""

    number: str
    claim: str
    cites: tuple[Citation | Malformed, ...]
    context: str | None
    label: Label | None = None
    origin: str = "generated"
    edited: bool = False
    meta: dict[str, Any] = field(default_factory=dict)


def facts_of(item: dict[str, Any], recall: bool) -> Iterator[Fact | str]:
    """The facts of a record; a message for each entry that is none."""
    generation = murgat_reasoning(next((item[key] for key in _TEXT_KEYS if item.get(key)), ""))
    sentences = [parse_citations(sentence) for sentence in cited_sentences(generation)]
    if item.get("evaluations") is not None:
        for number, (sentence, evaluation) in enumerate(item["evaluations"].items()):
            yield from _scored(number, sentence, evaluation, recall)
    if item.get("facts") is not None:
        contexts = [(set(sentence.citations), sentence.text) for sentence in sentences]
        yield from (_judged(number, fact, contexts) for number, fact in enumerate(item["facts"]))
    if item.get("evaluations") is None:
        bare = item.get("facts") is None
        if bare and not sentences:
            yield f"generation failed, got no text but {item.get('error') or item.get('program_error')!r}; repeat it"
        yield from _generated(sentences, parse_citations(generation).text if bare else None)


def _generated(sentences: list[Cited], context: str | None) -> Iterator[Fact | str]:
    """The cited sentences of a generation as facts, or, without a context, only what no fact can come from."""
    for number, sentence in enumerate(sentences):
        if not sentence.items:
            yield f"sentence without citations, got {sentence.text[:80]!r}; it cannot be judged"
        elif context is not None:
            yield Fact(f"s{number}", sentence.text, sentence.items, context)
        else:
            yield from (unreadable(cite) for cite in sentence.malformed)


def unreadable(cite: Malformed) -> str:
    return f"citation cannot be read, got {cite.text[:80]!r}: {cite.reason}; write (visual, 0:15-0:18)"


def _judged(number: int, fact: Any, contexts: list[tuple[set[Citation], str]]) -> Fact:
    """A fact judged by people: [fact, citations, supported] or an object with these and more."""
    values: dict[str, Any] = dict(zip(_LISTED, fact, strict=True)) if isinstance(fact, list) else fact
    cited = parse_citations(bare_fact(values["fact"]))
    listed = (cite for text in values["citations"] for cite in parse_citation_list(text))
    cites = (*cited.items, *listed)
    wanted = {cite for cite in cites if isinstance(cite, Citation)}
    fitting = [text for citations, text in contexts if wanted and wanted <= citations]
    context = values.get("sentence") or (fitting[0] if len(fitting) == 1 else None)
    context = parse_citations(context).text if context else None
    meta = {key: values[key] for key in ("verifiable", "needed") if values.get(key) is not None}
    label: Label | None = None if values.get("supported") is None else _label(values["supported"])
    return Fact(f"f{number}", cited.text, cites, context, label, "annotated", edited=True, meta=meta)


def _scored(number: int, sentence: str, evaluation: dict[str, Any], recall: bool) -> Iterator[Fact | str]:
    """The facts of one sentence of a scored file. Sentences judged not worth checking, without facts, give nothing."""
    worthy = (evaluation.get("verification_worthy") or {}).get("prediction")
    facts = evaluation.get("atomic_facts") or []
    if not facts and worthy is not False:
        what = "check-worthy sentence without facts" if worthy else "sentence was never judged check-worthy or not"
        yield f"{what}, got {sentence[:80]!r}; it cannot be judged"
    for position, fact in enumerate(facts):
        cited = parse_citations(bare_fact(fact["fact"]))
        scores = fact.get("scores") or {}
        judged = scores.get("recall") if recall else None
        yield Fact(
            number=f"s{number}.{position}",
            claim=cited.text,
            cites=cited.items,
            context=parse_citations(sentence).text,
            label=None if judged is None else _label(judged),
            origin="generated" if judged is None else "model_judged",
            meta={"verification_worthy": worthy, "scores": scores},
        )


def _label(supported: Any) -> Label:
    return "supported" if supported else "not_enough"


def bare_fact(fact: str) -> str:
    """A fact without the sign of a list item before it."""
    return re.sub(r"^\s*[-•*]\s+", "", fact)


def murgat_reasoning(generation: str) -> str:
    """The part of "Reasoning: ... Answer: X" that describes the video."""
    answers = list(_ANSWER.finditer(generation))
    if answers and not parse_citations(generation[answers[-1].start() :]).items:
        generation = generation[: answers[-1].start()]
    return re.sub(r"^\s*\**Reasoning\**\s*:\s*\**", "", generation)


def murgat_problem(item: Any) -> str | None:
    """The first thing wrong with a record's keys and types."""
    if not isinstance(item, dict):
        return f"record must be an object, got {type(item).__name__}; write {{'video': ...}}"
    if not isinstance(item.get("video"), str) or not item["video"]:
        return f"video must be a file name, got {item.get('video')!r}; name the video"
    if not isinstance(item.get("id", ""), (str, type(None))):
        return f"id must be text, got {item['id']!r}; quote it"
    if bad := [item[key] for key in _TEXT_KEYS if not isinstance(item.get(key), (str, type(None)))]:
        return f"model_generation must be text, got {bad[0]!r:.60}; quote it"
    facts, evaluations = item.get("facts"), item.get("evaluations")
    if facts is None and evaluations is None and not {*_TEXT_KEYS, "error", "program_error"} & set(item):
        return f"record holds neither text nor facts, got {sorted(item)}; see docs/formats.md for the layouts"
    if facts is not None and not (isinstance(facts, list) and all(_is_fact(fact) for fact in facts)):
        return f"facts must be [fact, [citation, ...], true|false|null] each, got {facts!r:.80}; see docs/formats.md"
    if evaluations is not None and not isinstance(evaluations, dict):
        return f"evaluations must map sentences to judgments, got {evaluations!r:.60}; see docs/formats.md"
    bad = [s for s, evaluation in (evaluations or {}).items() if not _is_evaluation(evaluation)]
    return f"evaluation of a sentence cannot be read, got {bad[0][:80]!r}; see docs/formats.md" if bad else None


def _is_fact(fact: Any) -> bool:
    if isinstance(fact, list):
        return len(fact) == 3 and _is_fact(dict(zip(_LISTED, fact, strict=True)))
    return (
        isinstance(fact, dict)
        and {"fact", "citations"} <= set(fact) <= _FACT_KEYS
        and isinstance(fact["fact"], str)
        and isinstance(fact.get("sentence", ""), (str, type(None)))
        and all(isinstance(fact.get(key), (bool, type(None))) for key in ("supported", "verifiable"))
        and all(isinstance(fact.get(key, []), list) for key in ("citations", "needed"))
        and all(isinstance(text, str) for key in ("citations", "needed") for text in fact.get(key, []))
    )


def _is_evaluation(evaluation: Any) -> bool:
    if not isinstance(evaluation, dict):
        return False
    worthy, facts = evaluation.get("verification_worthy"), evaluation.get("atomic_facts")
    return (
        isinstance(worthy, (dict, type(None)))
        and (worthy or {}).get("prediction") in (True, False, None)
        and isinstance(facts, (list, type(None)))
        and all(
            isinstance(fact, dict) and isinstance(fact.get("fact"), str) and _has_scores(fact) for fact in facts or []
        )
    )


def _has_scores(fact: dict[str, Any]) -> bool:
    """Whether the scores of a fact are none, or hold a recall that is a verdict: 0, 1 or null."""
    scores = fact.get("scores")
    return scores is None or (isinstance(scores, dict) and scores.get("recall") in (0, 1, None))


_COLUMNS = ("question", "options", "answer")  # of a record, kept in the pairs' meta
_EXTENSION = re.compile(r"\.[A-Za-z][A-Za-z0-9]{1,3}$")


@dataclass(frozen=True)
class MurgatOptions:
    """How MuRGAt files are read.

    Attributes:
        transcripts: folder of `<video stem>.srt|.vtt|.json`, or one JSON for all videos, relative to the annotation
            file; "" for none. What an audio citation needs, unless it is heard.
        extension: added to a `video` that has none; "" for as it is.
        labels: "none", or "recall" to take a scored file's own judgments as labels (origin `model_judged`).
        point_s: seconds that a citation of one moment covers.
        audio: what an audio citation becomes: the `transcript` of its span, or the `sound` of it, for a verifier that
            hears; then no transcripts are needed, and what is no speech is evidence, too.
    """

    transcripts: str = ""
    extension: str = ".mp4"
    labels: str = "none"
    point_s: float = 1.0
    audio: Literal["transcript", "sound"] = "transcript"

    def __post_init__(self) -> None:
        if self.labels not in ("none", "recall"):
            raise ConfigError(f"labels: unknown source of labels, got {self.labels!r}; use 'none' or 'recall'")
        if self.extension and not self.extension.startswith("."):
            raise ConfigError(f"extension: must start with a dot, got {self.extension!r}; write e.g. '.mp4'")
        if not (math.isfinite(self.point_s) and self.point_s > 0):
            raise ConfigError(f"point_s: must be a positive number of seconds, got {self.point_s}; use 1.0")
        if self.audio == "sound" and self.transcripts:
            raise ConfigError(
                f"transcripts: are not read where sound is heard, got {self.transcripts!r}; leave them out"
            )


def read(path: Path, options: MurgatOptions) -> Iterator[Row | Rejected]:
    """Every cited fact of a file as a row; what cites nothing, or nothing usable, as a rejection.

    Only damaged files, facts written by people, and transcripts that are missing block a build: what a model failed to
    cite, or cited wrongly, is listed and left out.
    """
    try:
        transcripts = Transcripts(path.parent / options.transcripts) if options.transcripts else None
    except MediaError as error:
        raise ConfigError(f"transcripts: {error}") from None
    for record in read_json_records(path):
        if isinstance(record, Rejected):
            yield record
        elif problem := murgat_problem(record.value):
            name = record.value.get("video") if isinstance(record.value, dict) else None
            yield reject(record, problem, id=name if isinstance(name, str) else None)
        else:
            yield from _rows(record, transcripts, options)


def _rows(record: Record, transcripts: Transcripts | None, options: MurgatOptions) -> Iterator[Row | Rejected]:
    item = record.value
    video = os.path.normpath(item["video"])
    video += "" if _EXTENSION.search(video) else options.extension
    digest = hashlib.sha256(json.dumps(item, sort_keys=True).encode()).hexdigest()[:8]
    name = f"{item.get('id') or item['video']}/{digest}"
    columns = {key: item[key] for key in _COLUMNS if item.get(key) is not None}
    for fact in facts_of(item, options.labels == "recall"):
        if isinstance(fact, str):
            yield _left_out(record, name, fact)
            continue
        where = f"{name}/{fact.number}"
        if not fact.cites:
            yield _left_out(record, where, f"fact without citations, got {fact.claim[:80]!r}; it cannot be judged")
            continue
        evidence, problem, blocking = _evidence(video, fact, transcripts, options)
        if problem:
            yield Rejected(record.file, record.line, where, kind_of(problem), problem, pairs=1, blocking=blocking)
            continue
        meta = {**columns, "citations": [cite.text for cite in fact.cites], **fact.meta}
        pair = Pair(
            id=where,
            claim=fact.claim,
            evidence=evidence,
            label=fact.label,
            context=fact.context,
            group=video,
            origin=fact.origin,
            modality=_modality(fact.cites),
            meta=meta,
        )
        yield Row(pair, record.file, record.line, name)


def _modality(cites: Iterable[Citation | Malformed]) -> Modality:
    kinds: set[Modality] = {cite.modality for cite in cites if isinstance(cite, Citation)}
    return kinds.pop() if len(kinds) == 1 else "mixed"


def _left_out(record: Record, name: str, message: str) -> Rejected:
    return Rejected(record.file, record.line, name, kind_of(message), message, blocking=False)


def _evidence(
    video: str, fact: Fact, transcripts: Transcripts | None, options: MurgatOptions
) -> tuple[tuple[Evidence, ...], str, bool]:
    """What a fact cites, each moment once; or what is missing, and whether a build must stop for it.

    A moment that is seen and heard is two pieces, the sound where it is cited.
    """
    evidence: dict[Evidence, None] = {}
    for cite in fact.cites:
        if isinstance(cite, Malformed):
            return (), unreadable(cite), fact.edited
        start_s, end_s = cite.span(options.point_s)
        if cite.modality != "audio":
            evidence[VideoSegment(video, start_s, end_s)] = None
            continue
        if options.audio == "sound":
            evidence[Audio(video, start_s, end_s)] = None
            continue
        transcript = _spoken(video, transcripts, start_s, end_s)
        if isinstance(transcript, str):
            return (), transcript, not transcript.startswith("nothing is said")
        evidence[transcript] = None
    return tuple(evidence), "", False


def _spoken(video: str, transcripts: Transcripts | None, start_s: float, end_s: float) -> Transcript | str:
    """The transcript of a span, or why there is none."""
    if transcripts is None:
        got = f"got {video!r} at {start_s:g} s"
        return f"audio is cited without transcripts, {got}; set the option transcripts, or have it heard (audio: sound)"
    try:
        cues = transcripts.cues(video)
    except MediaError as error:
        return f"transcript cannot be read, got {error}"
    if cues is None:
        return f"transcript is missing, got none for {video!r} in {transcripts.source}; add it"
    nothing = f"nothing is said in the cited span, got [{start_s:g}, {end_s:g}] of {video!r}; sound needs no transcript"
    return transcript_of(cues, start_s, end_s) or nothing


IMPORTER = Importer(
    name="murgat",
    description="Atomic facts with the moments of a video that they cite, judged by people or generated.",
    read=read,
    options=MurgatOptions,
    claims=ClaimFormat("murgat", lambda value, is_member: not is_member and "video" in value and "claim" not in value),
)
