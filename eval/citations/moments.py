"""Where in its video a claim holds, as citations: windows that a verifier says support it.

As `models/verifier/localization.py`, for many claims and videos at once, in what is said as well as in the picture, and
by any judge: windows are encoded once for all claims about a video, and a run that was killed goes on.

Windows that overlap or touch are one moment, and its citation is the surest of them, rounded outwards to seconds: it is
the shortest evidence, and what the judge was asked about. Of the whole interval, which may be longer than anything a
verifier was trained on, it may say no.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...core import Citation, CitedModality, Evidence, MediaError, ModelInputError, Pair, VideoSegment, render_citations
from ...data_prep.importers import transcript_of
from ...data_prep.media import probe_guarded
from ...models.decision import JudgedWindow
from ...models.inputs import Windowing
from ...models.verifier import EvidenceReader, Sources, joined
from ..scores import JudgePairs
from .pipeline import verdict_of


@dataclass(frozen=True)
class Search:
    """A claim to be found in a video; `modalities` are where to look (ocr is in the picture)."""

    video: str
    claim: str
    modalities: tuple[CitedModality, ...] = ("visual", "audio")


@dataclass(frozen=True)
class Moment:
    """The surest window of an interval in which a claim holds; `p_supported` is NaN of a language model."""

    citation: Citation
    p_supported: float = math.nan


@dataclass(frozen=True)
class Found:
    """The moments of a claim, in order of time.

    Attributes:
        moments: empty where no window supports it.
        error: why there may be moments that were not found: windows that failed, nothing to look at.
    """

    moments: tuple[Moment, ...] = ()
    error: str | None = None


FindMoments = Callable[[Sequence[Search]], list[Found]]
"""Finds each claim, in order: a verifier (`moments_by_verifier`), or a language model."""
_Window = tuple[VideoSegment, Evidence]  # where it lies, and what is judged there


def moments_by_verifier(
    judge: JudgePairs, reader: EvidenceReader, sources: Callable[[str], Sources], windowing: Windowing
) -> FindMoments:
    """Find claims by a verifier over windows of the video, and of its transcript if there is one.

    Args:
        judge: who says which windows support a claim.
        reader: the judge's: which evidence it may be asked about, and where media lie.
        sources: of a video, by the name in its response.
        windowing: of the windows.
    """

    def find(searches: Sequence[Search]) -> list[Found]:
        laid = [_laid_out(search, reader, sources(search.video), windowing) for search in searches]
        pairs: list[Pair] = []
        for search, (windows, _) in zip(searches, laid, strict=True):
            for _, evidence in (window for of_modality in windows.values() for window in of_modality):
                pairs.append(Pair(str(len(pairs)), search.claim, (evidence,)))
        answers = iter(pairs)
        judgments = judge(pairs).of if pairs else {}
        found = []
        for windows, error in laid:
            judged: dict[CitedModality, list[JudgedWindow]] = {
                modality: [JudgedWindow(segment, verdict_of(judgments[next(answers).id])) for segment, _ in of_modality]
                for modality, of_modality in windows.items()
            }
            found.append(_found(judged, error))
        return found

    return find


def surest(found: Found, n: int = 1) -> Found:
    """The `n` surest moments, the earliest of equals."""
    kept = sorted(found.moments, key=lambda moment: -moment.p_supported)[:n]
    return Found(tuple(moment for moment in found.moments if moment in kept), found.error)


def _laid_out(
    search: Search, reader: EvidenceReader, source: Sources, windowing: Windowing
) -> tuple[dict[CitedModality, list[_Window]], str | None]:
    """The windows of each modality that can be looked at, and why others cannot; of several modalities one will do."""
    windows: dict[CitedModality, list[_Window]] = {}
    problems = []
    for modality in search.modalities:
        try:
            windows[modality] = _windows(modality, reader, source, windowing)
        except (MediaError, ModelInputError) as error:
            problems.append(str(error))
    return windows, None if windows else "; ".join(problems)


def _windows(modality: CitedModality, reader: EvidenceReader, source: Sources, windowing: Windowing) -> list[_Window]:
    if source.video is None:
        raise MediaError(f"{source}: there is no video to search, got none; give its file")
    spans = windowing.cut(0.0, probe_guarded(source.video, reader.media_root).duration_s)
    segments = [VideoSegment(source.video, *span) for span in spans]
    windows: list[_Window] = [(segment, segment) for segment in segments]
    if modality == "audio":
        if source.transcript is None:
            raise MediaError(f"{source.video}: sound cannot be heard, got no transcript; give what is said")
        said = [transcript_of(source.transcript, *span) for span in spans]
        windows = [(segment, t) for segment, t in zip(segments, said, strict=True) if t is not None]
    for _, evidence in windows[:1]:
        reader.check_asked((evidence,))
    return windows


def _found(judged: Mapping[CitedModality, list[JudgedWindow]], error: str | None) -> Found:
    moments = []
    for modality, windows in judged.items():
        supporting = [window for window in windows if window.verdict.label == "supported"]
        for each in joined(supporting):
            inside = (w for w in supporting if each.start_s <= w.segment.start_s <= each.end_s)
            moments.append(_moment(modality, max(inside, key=lambda window: window.verdict.p_supported)))
    failures = [w.verdict.error for windows in judged.values() for w in windows if w.verdict.error is not None]
    n = sum(map(len, judged.values()))
    if failures:
        error = f"{len(failures)} of {n} windows failed: {failures[0]}"
    return Found(tuple(sorted(moments, key=lambda moment: moment.citation.start_s)), error)


def _moment(modality: CitedModality, window: JudgedWindow) -> Moment:
    start_s, end_s = window.segment.start_s, window.segment.end_s
    assert end_s is not None  # windows have both ends
    cite = Citation(modality, float(math.floor(start_s)), float(math.ceil(end_s)))
    text = render_citations([cite])[1:-1]
    return Moment(Citation(modality, cite.start_s, cite.end_s, text), window.verdict.p_supported)
