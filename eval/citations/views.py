"""What a language model is shown of a video: frames with their times and what is said, or captions that were given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ...core import Citation, Evidence, MediaError, VideoSegment
from ...data_prep.importers import Cue, Transcripts
from ...data_prep.media import FrameCache, FrameSampling
from ...models.verifier import EvidenceReader, Resolved, Sources, resolve
from ...models.zero_shot import evidence_parts, refuse_control

Parts = list[dict[str, Any]]
"""Content parts of a message, as chat-completions endpoints take them."""
SAMPLING = FrameSampling(fps=1.0, max_frames=32)


@dataclass(frozen=True)
class AnyEvidence:
    """Evidence as a language model may be asked about it: of every kind."""

    media_root: str | Path | None = None

    def check_asked(self, evidence: tuple[Evidence, ...]) -> None:
        """Nothing is refused."""


class View(Protocol):
    """What of a video is shown.

    Both methods raise MediaError where there is nothing to show, and ModelInputError for text with control tokens.
    """

    def whole(self, video: str) -> Parts:
        """All of it, with times."""
        ...

    def span(self, video: str, citation: Citation) -> Parts:
        """What a citation points to."""
        ...


@dataclass(frozen=True)
class FrameView:
    """Frames, and the transcript where there is one.

    Attributes:
        sources: of a video, by the name in its response.
        reader: where media lie.
        sampling: how many frames of the whole or of a span.
        frame_cache: keeps decoded frames on disk, and gives decoders a deadline.
    """

    sources: Callable[[str], Sources]
    reader: EvidenceReader
    sampling: FrameSampling = SAMPLING
    frame_cache: FrameCache | None = None

    def whole(self, video: str) -> Parts:
        """Frames in order of time, each after its time; then what is said, cue by cue."""
        source = self.sources(video)
        if source.video is None:
            raise MediaError(f"{video}: there is no video to show, got {source}; give its file")
        return [*self._read((VideoSegment(source.video),), timed=True), *_texts(source.transcript or (), "Speech")]

    def span(self, video: str, citation: Citation) -> Parts:
        """The frames of the span, or of an audio citation what is said in it."""
        return self._read((evidence_at(citation, self.sources(video), self.reader),))

    def _read(self, evidence: tuple[Evidence, ...], timed: bool = False) -> Parts:
        return evidence_parts(evidence, self.sampling, self.reader.media_root, self.frame_cache, timed=timed)


@dataclass(frozen=True)
class CaptionView:
    """Captions in the place of pictures: what somebody wrote about spans of the videos."""

    captions: Transcripts

    def whole(self, video: str) -> Parts:
        """Every caption with its times."""
        return _texts(self._cues(video), "Caption")

    def span(self, video: str, citation: Citation) -> Parts:
        """The captions that overlap the span."""
        return _texts(self.within(video, citation), "Caption")

    def within(self, video: str, citation: Citation) -> list[Cue]:
        """The captions that overlap what a citation points to; MediaError where there are none."""
        start_s, end_s = citation.span()
        found = [cue for cue in self._cues(video) if cue.start_s < end_s and cue.end_s > start_s]
        if not found:
            raise MediaError(f"{video}: no caption from {start_s:g} s to {end_s:g} s, got none; caption all of it")
        return found

    def _cues(self, video: str) -> Sequence[Cue]:
        cues = self.captions.cues(video)
        if not cues:
            raise MediaError(f"{video}: there are no captions of it, got none in {self.captions.source}; write some")
        return cues


def evidence_at(citation: Citation, sources: Sources, reader: EvidenceReader) -> Evidence:
    """What a citation points to.

    Raises:
        MediaError: nothing, e.g. a time beyond the end of the video, or sound without a transcript.
    """
    resolved: Resolved = resolve(citation, sources, reader)
    if resolved.evidence is None:
        raise MediaError(resolved.problem.message if resolved.problem else f"citation {citation.text!r}: no evidence")
    return resolved.evidence


def text_part(text: str) -> dict[str, Any]:
    """Words as a content part."""
    return {"type": "text", "text": text}


def message_of(parts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A conversation of one question; of text alone as a string: endpoints of text models may take nothing else."""
    parts = [dict(part) for part in parts]
    if all(part["type"] == "text" for part in parts):
        return [{"role": "user", "content": "".join(part["text"] for part in parts)}]
    return [{"role": "user", "content": parts}]


def _texts(cues: Iterable[Cue], what: str) -> Parts:
    parts = []
    for cue in cues:
        refuse_control(cue.text, what.lower())
        parts.append(text_part(f"{what} {_clock(cue.start_s)}-{_clock(cue.end_s)}: {cue.text}\n"))
    return parts


def _clock(time_s: float) -> str:
    minutes, seconds = divmod(int(time_s), 60)
    return f"{minutes}:{seconds:02d}"
