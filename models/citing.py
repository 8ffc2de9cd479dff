"""From what a claim cites to evidence: spans found in a video and its transcript, or the reason why there is none."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..core.citations import POINT_S, Citation, Malformed, parse_citation_list, parse_citations
from ..core.errors import MediaError, ModelInputError
from ..core.pairs import Evidence, VideoSegment, span_problems
from ..data_prep.media import check_segment, probe
from ..data_prep.transcripts import Cue, transcript_of
from .segments import SegmentReader

Given = Citation | Malformed | Evidence
ProblemKind = Literal["malformed", "beyond_end", "modality"]


@dataclass(frozen=True)
class Sources:
    """What citations point into: a video (a path as in `VideoSegment`), and what is said in it; None: not at hand."""

    video: str | None = None
    transcript: Sequence[Cue] | None = None


@dataclass(frozen=True)
class CitedClaim:
    """A claim and what it cites.

    Attributes:
        claim: one sentence. With `citations=None` they stand in it, as in MuRGAt's facts, and are taken out.
        citations: a text such as "(visual, 0:05-0:09; audio, 0:07)"; or a list of texts, parsed citations and evidence.
        sources: what they point into.
        context: the passage the claim was taken from, where the verifier was trained with it.
    """

    claim: str
    citations: str | Sequence[Given | str] | None = None
    sources: Sources = Sources()
    context: str | None = None


@dataclass(frozen=True)
class Problem:
    """Why a citation cannot be judged."""

    kind: ProblemKind
    message: str


@dataclass(frozen=True)
class Resolved:
    """A citation as it was given, with the evidence it stands for or its problem; `note`: what was done to its span."""

    citation: Given
    evidence: Evidence | None = None
    problem: Problem | None = None
    note: str | None = None


def read(claim: CitedClaim) -> CitedClaim:
    """The claim without citations in its sentence, if that is where they stand."""
    if claim.citations is not None:
        return claim
    cited = parse_citations(claim.claim)
    return dataclasses.replace(claim, claim=cited.text, citations=cited.found)


def cites_of(claim: CitedClaim) -> list[Given]:
    """The citations of a claim that was `read`, texts parsed, in their order."""
    given = [claim.citations] if isinstance(claim.citations, str) else claim.citations or ()
    found: list[Given] = []
    for item in given:
        if not isinstance(item, str):
            found.append(item)
        elif item.strip():
            found += parse_citation_list(item)
    return found


def resolve(cite: Given, sources: Sources, reader: SegmentReader) -> Resolved:
    """A citation with its evidence, or with its problem."""
    note = None
    if isinstance(cite, Malformed):
        found = Problem("malformed", f"citation {cite.text!r}: {cite.reason}; write e.g. (visual, 0:15-0:18)")
    elif isinstance(cite, Citation):
        found, note = _evidence(cite, sources, reader)
    else:
        found = _past_the_end(cite, reader) or cite
    if not isinstance(found, Problem):
        try:
            reader.check_asked((found,))
        except ModelInputError as error:
            found = Problem("modality", str(error))
    if isinstance(found, Problem):
        return Resolved(cite, problem=found)
    return Resolved(cite, found, note=note)


def _evidence(cite: Citation, sources: Sources, reader: SegmentReader) -> tuple[Evidence | Problem, str | None]:
    """What a citation stands for, and what was done to its span.

    Citations count to the second: one that overruns the video by less is cut at its end.
    """
    start_s, end_s = cite.span()
    duration_s = _duration_s(sources.video, reader)
    if start_s >= duration_s or end_s >= duration_s + POINT_S:
        got = f"{start_s:g} s to {end_s:g} s of {duration_s:.3f} s"
        return Problem(
            "beyond_end", f"citation {cite.text!r}: beyond the end of the video, got {got}; fix the time"
        ), None
    note = f"cut at the end of the video, {duration_s:.3f} s" if end_s > duration_s else None
    end_s = min(end_s, duration_s)
    if cite.modality != "audio":
        if sources.video is None:
            return Problem("modality", f"citation {cite.text!r}: there is no video, got {sources}; give one"), None
        return VideoSegment(sources.video, start_s, end_s), note
    if sources.transcript is None:
        got = f"citation {cite.text!r}: sound cannot be heard, got no transcript; give what is said"
        return Problem("modality", got), None
    if (said := transcript_of(sources.transcript, start_s, end_s)) is None:
        got = f"no words from {start_s:g} s to {end_s:g} s"
        return Problem("modality", f"citation {cite.text!r}: sound cannot be heard, got {got}; cite speech"), None
    return said, note


def _duration_s(video: str | None, reader: SegmentReader) -> float:
    """Of a video; infinite where it is unknown: whoever reads it will say why."""
    try:
        return math.inf if video is None else probe(video, reader.media_root).duration_s
    except MediaError:
        return math.inf


def _past_the_end(evidence: Evidence, reader: SegmentReader) -> Problem | None:
    """What is wrong with evidence given in the place of a citation; only a span can be."""
    if not isinstance(evidence, VideoSegment) or evidence.absent or [*span_problems(evidence.start_s, evidence.end_s)]:
        return None
    try:
        problems = check_segment(evidence, probe(evidence.path, reader.media_root))
    except MediaError:
        return None
    return Problem("beyond_end", f"{evidence.path}: {problems[0]}") if problems else None
