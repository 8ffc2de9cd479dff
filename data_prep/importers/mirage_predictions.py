"""Import MiRAGE model predictions: the claims of a generated article and the videos its sentences cite.

Files: `<system>_relevant_citations.json` (alexmartin1722/mirage, data/wikivideo/model_preds), an object of topics whose
`sentences`, `claims` and `citations` are aligned by sentence. Nobody judged these pairs: they are what a verifier is
asked when it scores citations. A citation is the authors' path to a video, of which only the file name is kept.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ...core import Pair, VideoSegment
from .base import ClaimFormat, Importer, Record, Rejected, Row, read_json_members, reject
from .mirage import group_of, kept_out, video_file
from .mirage_grounding import video_name

_KEYS = ("sentences", "claims", "citations")


@dataclass(frozen=True)
class MiragePredictionsOptions:
    """How predictions are read.

    Attributes:
        jointly: one pair per claim with all the videos its sentence cites as evidence, instead of one pair per video.
        extension: for citations that are bare ids.
        sound: the videos are heard as well as seen; for a verifier that hears.
    """

    jointly: bool = False
    extension: str = ".mp4"
    sound: bool = False


def read(path: Path, options: MiragePredictionsOptions) -> Iterator[Row | Rejected]:
    """One unlabelled row per (claim, cited video of its sentence); claims without a citation are listed."""
    system = path.stem.removesuffix("_relevant_citations")
    for record in read_json_members(path):
        if isinstance(record, Rejected):
            yield record
            continue
        topic, value = record.value
        if problem := _topic_problem(value):
            yield reject(record, problem, id=topic)
            continue
        for number, (sentence, claims, citations) in enumerate(zip(*(value[key] for key in _KEYS), strict=True)):
            if problem := _sentence_problem(sentence, claims, citations):
                lost = len(claims) if isinstance(claims, list) else 0
                yield kept_out(record, f"{topic}/{number}", problem, lost)
            else:
                yield from _sentence_rows(record, system, number, sentence, claims, citations, options)


def _sentence_rows(
    record: Record,
    system: str,
    number: int,
    sentence: str,
    claims: list[str],
    citations: list[str],
    options: MiragePredictionsOptions,
) -> Iterator[Row | Rejected]:
    """The rows of one sentence; a video cited twice counts once."""
    topic = record.value[0]
    cited: dict[str, list[str]] = {}
    for citation in citations:
        cited.setdefault(video_file(citation, options.extension), []).append(citation)
    together = [list(cited)] if options.jointly else [[video] for video in cited]
    for place, claim in enumerate(claims):
        name = f"{system}/{topic}/{number}.{place}"
        if not cited:
            message = f"claim has no citation, got {claim!r} in {sentence!r}; it counts against recall, not here"
            yield kept_out(record, name, message, pairs=0, blocking=False)
            continue
        for videos in together:
            written = [citation for video in videos for citation in cited[video]]
            pair = Pair(
                id=f"{name}/{'+'.join(PurePosixPath(video).stem for video in videos)}",
                claim=claim,
                evidence=tuple(VideoSegment(video, sound=options.sound) for video in videos),
                context=sentence,
                group=group_of(topic),
                origin="prediction",
                meta={"system": system, "sentence": number, "citations": written},
            )
            yield Row(pair, record.file, record.line, topic)


def _topic_problem(value: Any) -> str | None:
    if not isinstance(value, dict):
        return f"topic must be an object, got {reprlib.repr(value)}; write {{'sentences': ..., 'claims': ...}}"
    for key in _KEYS:
        if not isinstance(value.get(key), list):
            return f"{key} must be a list with one entry per sentence, got {reprlib.repr(value.get(key))}; repair it"
    lengths = {key: len(value[key]) for key in _KEYS}
    if len(set(lengths.values())) > 1:
        return f"sentences, claims and citations must be aligned, got lengths {lengths}; repair the topic"
    return None


def _sentence_problem(sentence: Any, claims: Any, citations: Any) -> str | None:
    if not isinstance(sentence, str):
        return f"sentence must be text, got {reprlib.repr(sentence)}; quote it"
    for name, items in (("claims", claims), ("citations", citations)):
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            return f"{name} of a sentence must be a list of texts, got {reprlib.repr(items)}; write [text, ...]"
    if nameless := [citation for citation in citations if not video_name(citation)]:
        return f"citation names no video, got {nameless[0]!r}; end it with a file name or id"
    return None


IMPORTER = Importer(
    name="mirage_predictions",
    description="Claims of generated articles with the videos that their sentences cite, without labels.",
    read=read,
    options=MiragePredictionsOptions,
    claims=ClaimFormat("mirage", lambda value, is_member: is_member and bool(set(_KEYS) & set(value))),
)
