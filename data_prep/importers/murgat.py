"""Import MuRGAt: one pair per atomic fact, with the moments it cites, taken together, as its evidence.

Three layouts, told apart per record (docs/formats.md): facts judged by people (`facts`), files scored by the published
evaluation (`evaluations`), and bare generations (`model_generation` alone), whose cited sentences become claims.
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
from dataclasses import dataclass
from pathlib import Path

from ...core.citations import Citation, Malformed
from ...core.errors import ConfigError, MediaError
from ...core.pairs import Evidence, Modality, Pair, Transcript, VideoSegment
from ..records import Record, Rejected, Row, kind_of, read_json_records, reject
from ..transcripts import Transcripts, transcript_of
from .murgat_layouts import Fact, facts_of, problem_of, unreadable

_COLUMNS = ("question", "options", "answer")  # of a record, kept in the pairs' meta
_EXTENSION = re.compile(r"\.[A-Za-z][A-Za-z0-9]{1,3}$")


@dataclass(frozen=True)
class Options:
    """How MuRGAt files are read.

    Attributes:
        transcripts: folder of `<video stem>.srt|.vtt|.json`, or one JSON for all videos, relative to the annotation
            file; "" for none. What an audio citation needs.
        extension: added to a `video` that has none; "" for as it is.
        labels: "none", or "recall" to take a scored file's own judgments as labels (origin `model_judged`).
        point_s: seconds that a citation of one moment covers.
    """

    transcripts: str = ""
    extension: str = ".mp4"
    labels: str = "none"
    point_s: float = 1.0

    def __post_init__(self) -> None:
        if self.labels not in ("none", "recall"):
            raise ConfigError(f"labels: unknown source of labels, got {self.labels!r}; use 'none' or 'recall'")
        if self.extension and not self.extension.startswith("."):
            raise ConfigError(f"extension: must start with a dot, got {self.extension!r}; write e.g. '.mp4'")
        if not (math.isfinite(self.point_s) and self.point_s > 0):
            raise ConfigError(f"point_s: must be a positive number of seconds, got {self.point_s}; use 1.0")


def read(path: Path, options: Options) -> Iterator[Row | Rejected]:
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
        elif problem := problem_of(record.value):
            name = record.value.get("video") if isinstance(record.value, dict) else None
            yield reject(record, problem, id=name if isinstance(name, str) else None)
        else:
            yield from _rows(record, transcripts, options)


def _rows(record: Record, transcripts: Transcripts | None, options: Options) -> Iterator[Row | Rejected]:
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
        evidence, problem, blocking = _evidence(video, fact, transcripts, options.point_s)
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
    video: str, fact: Fact, transcripts: Transcripts | None, point_s: float
) -> tuple[tuple[Evidence, ...], str, bool]:
    """What a fact cites, each moment once; or what is missing, and whether a build must stop for it."""
    found: dict[Evidence, None] = {}
    for cite in fact.cites:
        if isinstance(cite, Malformed):
            return (), unreadable(cite), fact.edited
        start_s, end_s = cite.span(point_s)
        if cite.modality != "audio":
            found[VideoSegment(video, start_s, end_s)] = None
            continue
        said = _said(video, transcripts, start_s, end_s)
        if isinstance(said, str):
            return (), said, not said.startswith("nothing is said")
        found[said] = None
    return tuple(found), "", False


def _said(video: str, transcripts: Transcripts | None, start_s: float, end_s: float) -> Transcript | str:
    """The transcript of a span, or why there is none."""
    if transcripts is None:
        return f"audio is cited without transcripts, got {video!r} at {start_s:g} s; set the option transcripts"
    try:
        cues = transcripts.cues(video)
    except MediaError as error:
        return f"transcript cannot be read, got {error}"
    if cues is None:
        return f"transcript is missing, got none for {video!r} in {transcripts.source}; add it"
    nothing = f"nothing is said in the cited span, got [{start_s:g}, {end_s:g}] of {video!r}; sound needs no transcript"
    return transcript_of(cues, start_s, end_s) or nothing
