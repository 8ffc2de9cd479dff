"""Whether the places a claim cites support it: together, each alone, and the others without it (MuRGAt, section 3.2).

    verifier.attribute("He peels an apple.", "(visual, 0:05-0:09; audio, 0:07)", Sources("clip.mp4", cues))

A citation becomes evidence: of `visual` and `ocr` the video in that span, of `audio` the transcript of that span, so
both may cite one span. Citations that are the same evidence are scored once, and evidence is shown in order of time,
however it was cited.

What cannot be judged is reported with its reason and never counted as "not supported": text that is no citation, a span
beyond the end of the video, a modality the verifier cannot use. Recall then rests on the other citations, and its note
says so; where there are none, it has no verdict. Media that cannot be read fail every pair that they are part of.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from ...core import (
    POINT_S,
    Citation,
    Evidence,
    Frames,
    Malformed,
    MediaError,
    ModelInputError,
    Pair,
    Transcript,
    VideoSegment,
    evidence_key,
    parse_citation_list,
    parse_citations,
    span_problems,
)
from ...data_prep.importers import Cue, transcript_of
from ...data_prep.media import check_segment, probe_guarded
from ..decision import Verdict, failed
from ..display import attributed_html
from .evidence_sets import SetCalibration, SetRule, contradiction, set_verdict
from .verdicts import html_or_none

Given = Citation | Malformed | Evidence
ProblemKind = Literal["malformed", "beyond_end", "modality"]


class EvidenceReader(Protocol):
    """Where media lie, and which evidence may be asked about: a verifier's `SegmentReader`, or another judge's."""

    @property
    def media_root(self) -> str | Path | None:
        """Folder that relative paths start from."""
        ...

    def check_asked(self, evidence: tuple[Evidence, ...]) -> None:
        """Raises ModelInputError for evidence that may not be asked about."""
        ...


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
    return dataclasses.replace(claim, claim=cited.text, citations=cited.items)


def cites_of(claim: CitedClaim) -> list[Given]:
    """The citations of a claim that was `read`, texts parsed, in their order."""
    given = [claim.citations] if isinstance(claim.citations, str) else claim.citations or ()
    citations: list[Given] = []
    for item in given:
        if not isinstance(item, str):
            citations.append(item)
        elif item.strip():
            citations += parse_citation_list(item)
    return citations


def resolve(cite: Given, sources: Sources, reader: EvidenceReader) -> Resolved:
    """A citation with its evidence, or with its problem."""
    note = None
    if isinstance(cite, Malformed):
        resolved = Problem("malformed", f"citation {cite.text!r}: {cite.reason}; write e.g. (visual, 0:15-0:18)")
    elif isinstance(cite, Citation):
        resolved, note = _evidence(cite, sources, reader)
    else:
        resolved = _past_the_end(cite, reader) or cite
    if not isinstance(resolved, Problem):
        try:
            reader.check_asked((resolved,))
        except ModelInputError as error:
            resolved = Problem("modality", str(error))
    if isinstance(resolved, Problem):
        return Resolved(cite, problem=resolved)
    return Resolved(cite, resolved, note=note)


def _evidence(cite: Citation, sources: Sources, reader: EvidenceReader) -> tuple[Evidence | Problem, str | None]:
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
    if (passage := transcript_of(sources.transcript, start_s, end_s)) is None:
        got = f"no words from {start_s:g} s to {end_s:g} s"
        return Problem("modality", f"citation {cite.text!r}: sound cannot be heard, got {got}; cite speech"), None
    return passage, note


def _duration_s(video: str | None, reader: EvidenceReader) -> float:
    """Of a video; infinite where it is unknown: whoever reads it will say why."""
    try:
        return math.inf if video is None else probe_guarded(video, reader.media_root).duration_s
    except MediaError:
        return math.inf


def _past_the_end(evidence: Evidence, reader: EvidenceReader) -> Problem | None:
    """What is wrong with evidence given in the place of a citation; only a span can be."""
    if not isinstance(evidence, VideoSegment) or evidence.absent or [*span_problems(evidence.start_s, evidence.end_s)]:
        return None
    try:
        problems = check_segment(evidence, probe_guarded(evidence.path, reader.media_root))
    except MediaError:
        return None
    return Problem("beyond_end", f"{evidence.path}: {problems[0]}") if problems else None


@dataclass(frozen=True)
class JudgedCitation:
    """One citation, as it was given, and what was asked about it.

    Attributes:
        citation: read from text, or the evidence that was given in its place.
        evidence: what it stands for; None with a problem.
        problem: why it was not judged.
        same_as: place of an earlier citation that is the same evidence; its verdicts are repeated here.
        note: what was done to its span.
        alone: the verdict on this citation by itself (relevance); None where it was not judged.
        without: the verdict on all others together (necessity); None also where there are no others.
    """

    citation: Given
    evidence: Evidence | None = None
    problem: Problem | None = None
    same_as: int | None = None
    note: str | None = None
    alone: Verdict | None = None
    without: Verdict | None = None


@dataclass(frozen=True, repr=False)
class Attributed:
    """A claim's attribution.

    Attributes:
        claim: as it was judged.
        recall: the verdict on all citations together that can be judged, by the rule for sets; failed where there are
            none.
        citations: all that were given, in their order.
        one_prompt: what was said of all together in one prompt; None where there are none, or it was not asked.
        contradiction: what pieces alone say and all in one prompt deny, or the other way round, numbered in order of
            time; None where they agree.
        media_root: where a notebook looks for media.
    """

    claim: str
    recall: Verdict
    citations: tuple[JudgedCitation, ...]
    media_root: str | Path | None = field(default=None, repr=False, compare=False)
    one_prompt: Verdict | None = None
    contradiction: str | None = None

    @property
    def n_pieces(self) -> int:
        """Different pieces of evidence that recall rests on."""
        return sum(cite.problem is None and cite.same_as is None for cite in self.citations)

    def __repr__(self) -> str:
        said = self.recall.error or f"{self.recall.p_supported:.3f} {self.recall.label or 'uncalibrated'}"
        alone = ["-" if c.alone is None or c.alone.error else f"{c.alone.p_supported:.3f}" for c in self.citations]
        return f"Attributed({self.claim!r}: {said}; alone: {', '.join(alone) or 'no citations'})"

    def _repr_html_(self) -> str | None:
        return html_or_none(lambda: attributed_html(self, self.media_root))

    @property
    def is_complete(self) -> bool:
        """Whether recall rests on every citation."""
        return all(cite.problem is None for cite in self.citations)

    @property
    def relevant(self) -> tuple[bool | None, ...]:
        """Whether each citation alone supports the claim, by the operating point; None without a verdict."""
        return tuple(None if cite.alone is None else _supports(cite.alone) for cite in self.citations)

    @property
    def necessary(self) -> tuple[bool | None, ...]:
        """Whether the claim is supported, and no longer without this citation; None without one of the verdicts.

        Without an only citation nothing is left, which supports nothing.
        """
        return tuple(self._is_necessary(cite) for cite in self.citations)

    def _is_necessary(self, cite: JudgedCitation) -> bool | None:
        supported = _supports(self.recall)
        if cite.alone is None or supported is None:
            return None
        others = False if cite.without is None else _supports(cite.without)
        return None if others is None else supported and not others


class AttributionPairs:
    """The pairs whose verdicts attribute some claims to what they cite; every pair once.

    Attributes:
        pairs: to be scored, in order.
    """

    def __init__(self, claims: Sequence[CitedClaim], reader: EvidenceReader, sets: SetRule = "largest") -> None:
        """`reader` is the verifier's: which evidence it may be asked about, and where media lie.

        By the rule `pieces` no prompt of several pieces is among the pairs.
        """
        self.pairs: list[Pair] = []
        self._places: dict[tuple[str, str | None, str], int] = {}
        self._media_root = reader.media_root
        self._sets: SetRule = sets
        self._claims = [self._resolved(claim, reader) for claim in map(read, claims)]

    def attributions(self, verdicts: Sequence[Verdict], calibration: SetCalibration | None = None) -> list[Attributed]:
        """The attribution of each claim, from the verdicts on `pairs`; `calibration`: as `set_verdict`."""
        return [self._attributed(claim, cites, verdicts, calibration) for claim, cites in self._claims]

    def _resolved(self, claim: CitedClaim, reader: EvidenceReader) -> tuple[CitedClaim, list[Resolved]]:
        cites = [resolve(cite, claim.sources, reader) for cite in cites_of(claim)]
        everything = _in_time(cites)
        for evidence in (everything, *((e,) for e in everything), *(_others(everything, e) for e in everything)):
            if evidence and (len(evidence) == 1 or self._sets != "pieces"):
                self._place(claim, evidence)
        return claim, cites

    def _place(self, claim: CitedClaim, evidence: tuple[Evidence, ...]) -> int:
        """The place of a pair, which is added unless it is there."""
        key = claim.claim, claim.context, evidence_key(evidence)
        if key not in self._places:
            self._places[key] = len(self.pairs)
            self.pairs.append(Pair(str(len(self.pairs)), claim.claim, evidence, context=claim.context))
        return self._places[key]

    def _attributed(
        self,
        claim: CitedClaim,
        cites: Sequence[Resolved],
        verdicts: Sequence[Verdict],
        calibration: SetCalibration | None,
    ) -> Attributed:
        def asked(evidence: tuple[Evidence, ...]) -> Verdict:
            return verdicts[self._place(claim, evidence)]

        def together(evidence: tuple[Evidence, ...]) -> Verdict | None:
            return None if self._sets == "pieces" and len(evidence) > 1 else asked(evidence)

        def of(evidence: tuple[Evidence, ...]) -> Verdict:
            return set_verdict([asked((p,)) for p in evidence], together(evidence), self._sets, calibration)

        everything, judged, first = _in_time(cites), list[JudgedCitation](), dict[Evidence, int]()
        for place, cite in enumerate(cites):
            if cite.evidence is None:
                judged.append(JudgedCitation(cite.citation, problem=cite.problem))
                continue
            earlier, others = first.setdefault(cite.evidence, place), _others(everything, cite.evidence)
            without = of(others) if others else None
            same_as = earlier if earlier != place else None
            alone = asked((cite.evidence,))
            judged.append(JudgedCitation(cite.citation, cite.evidence, None, same_as, cite.note, alone, without))
        if not everything:
            return Attributed(claim.claim, _resting(_nothing(cites), cites), tuple(judged), self._media_root)
        one_prompt, pieces = together(everything), [asked((piece,)) for piece in everything]
        return Attributed(
            claim.claim,
            _resting(of(everything), cites),
            tuple(judged),
            self._media_root,
            one_prompt,
            contradiction(pieces, one_prompt),
        )


def _supports(verdict: Verdict) -> bool | None:
    return None if verdict.label is None else verdict.label == "supported"


def _in_time(cites: Sequence[Resolved]) -> tuple[Evidence, ...]:
    """Every evidence once, in order of time; what has no time last."""
    return tuple(sorted({cite.evidence for cite in cites if cite.evidence is not None}, key=_by_time))


def _by_time(evidence: Evidence) -> tuple[float, str, str]:
    start_s = evidence.start_s if isinstance(evidence, (VideoSegment, Frames, Transcript)) else None
    return math.inf if start_s is None else start_s, type(evidence).__name__, evidence_key((evidence,))


def _others(everything: tuple[Evidence, ...], one: Evidence) -> tuple[Evidence, ...]:
    return tuple(e for e in everything if e != one)


def _nothing(cites: Sequence[Resolved]) -> Verdict:
    """No verdict: there is nothing to judge the claim against."""
    why = "; ".join(cite.problem.message for cite in cites if cite.problem) or "cite what supports the claim"
    return failed(f"attribution: no citation can be judged, got {len(cites)}; {why}")


def _resting(together: Verdict, cites: Sequence[Resolved]) -> Verdict:
    """The verdict with a note on citations that have no part in it."""
    n_judged = sum(cite.problem is None for cite in cites)
    if n_judged in (0, len(cites)):
        return together
    coverage_note = f"rests on {n_judged} of {len(cites)} citations: the others cannot be judged"
    return dataclasses.replace(together, note="; ".join(n for n in (coverage_note, together.note) if n))
