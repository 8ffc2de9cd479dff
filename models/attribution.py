"""Do the places a claim cites support it: all together, each alone, and the others without it (MuRGAt, section 3.2).

    verifier.attribute("He peels an apple.", "(visual, 0:05-0:09; audio, 0:07)", Sources("clip.mp4", cues))

A citation becomes evidence: of `visual` and `ocr` the video in that span, of `audio` the transcript of what is said in
it, so both may cite one span. Citations that are the same evidence are asked about once. What cannot be judged is
reported with its reason and never counted as "not supported": text that is no citation, a span beyond the end of the
video, a modality the verifier cannot use. Recall then rests on the other citations, and its note says so; where there
are none, it has no verdict. Media that cannot be read fail every question that they are part of.

Evidence is asked about in order of time, however it was cited.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.pairs import Evidence, Pair, Transcript, VideoSegment, evidence_key
from .citing import CitedClaim, Given, Problem, Resolved, cites_of, read, resolve
from .segments import SegmentReader
from .verdicts import Verdict, failed


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


@dataclass(frozen=True)
class Attributed:
    """A claim's attribution.

    Attributes:
        claim: as it was judged.
        recall: the verdict on all citations together that can be judged; failed where there are none.
        citations: all that were given, in their order.
    """

    claim: str
    recall: Verdict
    citations: tuple[JudgedCitation, ...]

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


class Questions:
    """What must be asked for the attribution of some claims; every question once.

    Attributes:
        pairs: to be judged, in order.
    """

    def __init__(self, claims: Sequence[CitedClaim], reader: SegmentReader) -> None:
        """`reader` is the verifier's: which evidence it may be asked about, and where media lie."""
        self.pairs: list[Pair] = []
        self._places: dict[tuple[str, str | None, str], int] = {}
        self._claims = [self._asked(claim, reader) for claim in map(read, claims)]

    def answered(self, verdicts: Sequence[Verdict]) -> list[Attributed]:
        """The attribution of each claim, from the verdicts on `pairs`."""
        return [self._answered(claim, cites, verdicts) for claim, cites in self._claims]

    def _asked(self, claim: CitedClaim, reader: SegmentReader) -> tuple[CitedClaim, list[Resolved]]:
        cites = [resolve(cite, claim.sources, reader) for cite in cites_of(claim)]
        everything = _in_time(cites)
        for evidence in (everything, *((e,) for e in everything), *(_others(everything, e) for e in everything)):
            if evidence:
                self._place(claim, evidence)
        return claim, cites

    def _place(self, claim: CitedClaim, evidence: tuple[Evidence, ...]) -> int:
        """The place of a question, which is asked unless it was before."""
        key = claim.claim, claim.context, evidence_key(evidence)
        if key not in self._places:
            self._places[key] = len(self.pairs)
            self.pairs.append(Pair(str(len(self.pairs)), claim.claim, evidence, context=claim.context))
        return self._places[key]

    def _answered(self, claim: CitedClaim, cites: Sequence[Resolved], verdicts: Sequence[Verdict]) -> Attributed:
        everything, judged, first = _in_time(cites), list[JudgedCitation](), dict[Evidence, int]()
        for place, cite in enumerate(cites):
            if cite.evidence is None:
                judged.append(JudgedCitation(cite.citation, problem=cite.problem))
                continue
            earlier, others = first.setdefault(cite.evidence, place), _others(everything, cite.evidence)
            alone = verdicts[self._place(claim, (cite.evidence,))]
            without = verdicts[self._place(claim, others)] if others else None
            same_as = earlier if earlier != place else None
            judged.append(JudgedCitation(cite.citation, cite.evidence, None, same_as, cite.note, alone, without))
        together = verdicts[self._place(claim, everything)] if everything else _nothing(cites)
        return Attributed(claim.claim, _resting(together, cites), tuple(judged))


def _supports(verdict: Verdict) -> bool | None:
    return None if verdict.label is None else verdict.label == "supported"


def _in_time(cites: Sequence[Resolved]) -> tuple[Evidence, ...]:
    """Every evidence once, in order of time; what has no time last."""
    return tuple(sorted({cite.evidence for cite in cites if cite.evidence is not None}, key=_by_time))


def _by_time(evidence: Evidence) -> tuple[float, str, str]:
    start_s = evidence.start_s if isinstance(evidence, (VideoSegment, Transcript)) else None
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
    told = f"rests on {n_judged} of {len(cites)} citations: the others cannot be judged"
    return dataclasses.replace(together, note="; ".join(n for n in (told, together.note) if n))
