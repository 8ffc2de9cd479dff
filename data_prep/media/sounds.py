"""Sound of media files: one channel of 16,000 samples a second, cut at a span.

Time counts from the start of the file: of a video, from its first picture, so that what is heard is heard with what is
seen. Samples lie where their presentation times say: a stream that starts late, or has gaps, is silent there. How many
samples a span has is known without decoding, and is what the reader gives.

Shape suffixes: _N samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import av.error
import numpy as np
from av.stream import Disposition

from ...core import Audio, MediaError, VideoSegment, media_path, span_problems
from .containers import EXACT_CONTAINERS, OPEN_ONLY, regular_file

SAMPLE_RATE = 16_000
SHORT_S = 0.25  # of what the header says, that an encoder may have left out at the end
_AROUND_S = 0.1  # decoded before and after a span, for the filter that changes the rate
_BEFORE_S = 1.0  # how much earlier than that decoding starts: coded sound needs what comes before it
_JITTER_S = 0.02  # by which presentation times may be rounded, without a gap
_LENGTH_IN_HEADER = EXACT_CONTAINERS | {"wav", "flac", "aiff"}


SILENT_PEAK = 1e-3
"""Of full scale, -60 dB: no sample of a silent sound is louder. The noise of a recording that is heard mostly is."""


@dataclass(frozen=True)
class Sound:
    """One channel in [-1, 1], 16,000 samples a second, and the second of the file at which it starts.

    Attributes:
        note: what a listener should know, with a remedy: it is silent, or ends before the span does; None mostly.
    """

    samples_N: np.ndarray
    start_s: float
    note: str | None = None


def count_samples(piece: Audio, media_root: str | Path | None = None) -> int:
    """`len(read_sound(...).samples_N)` without decoding; errors as of `read_sound`, but for damage further on."""
    path = media_path(piece.path, media_root)
    with open_sound(path) as container:
        first, last = _span(piece, sound_stream(piece.path, container), container)
    return last - first


def read_sound(piece: Audio, media_root: str | Path | None = None) -> Sound:
    """Decode a span.

    Raises:
        MediaError: naming the file: it is missing or unreadable, has no sound, the span is not in it, or it ends early.
    """
    path = media_path(piece.path, media_root)
    with open_sound(path) as container:
        first, last = _span(piece, sound_stream(piece.path, container), container)
    around = round(_AROUND_S * SAMPLE_RATE)
    begin, end = max(0, first - around), last + around
    with open_sound(path) as container:
        native_N, rate, until_s = _placed(piece.path, container, begin / SAMPLE_RATE, end / SAMPLE_RATE)
    samples_N = _resampled(native_N, rate)
    if last / SAMPLE_RATE - until_s > SHORT_S:
        raise MediaError(
            f"{piece.path}: its sound ends early, got {until_s:.2f} s of {last / SAMPLE_RATE:.2f} s; fetch it again"
        )
    samples_N = samples_N[first - begin : last - begin]
    samples_N = np.pad(samples_N, (0, last - first - len(samples_N))).astype(np.float32, copy=False)
    return Sound(samples_N, piece.start_s, _note(piece, samples_N))


def _note(piece: Audio, samples_N: np.ndarray) -> str | None:
    is_silent = bool(np.abs(samples_N).max() < SILENT_PEAK)
    return "; ".join(notes_in_words(piece, piece.start_s + len(samples_N) / SAMPLE_RATE, is_silent)) or None


def notes_in_words(piece: Audio | VideoSegment, end_s: float, is_silent: bool) -> list[str]:
    """What a listener should know of a span whose sound ends at `end_s`, with a remedy; the file is not named."""
    notes = []
    if is_silent:
        notes.append(
            f"its sound is silent, got no sample above {SILENT_PEAK:g} of full scale from {piece.start_s:.2f} to "
            f"{end_s:.2f} s; check the recording and its channels, or leave the sound out"
        )
    if piece.end_s is not None and piece.end_s - end_s > SHORT_S:
        got = f"got {end_s:.2f} s of {piece.end_s:.2f} s"
        notes.append(f"its sound ends before the span does, {got}; end the span there")
    return notes


def _placed(name: str, container: Any, begin_s: float, end_s: float) -> tuple[np.ndarray, int, float]:
    """The samples of a span at their own rate, silence where there are none; the rate; and when the last ends."""
    rate = sound_stream(name, container).rate
    base = round(begin_s * rate)
    native_N = np.zeros(round(end_s * rate) - base, np.float32)
    until = -math.inf
    for at, samples_N in sound_parts(name, container, begin_s):
        until = at + len(samples_N)
        first, last = max(at, base), min(until, base + len(native_N))
        if first < last:
            native_N[first - base : last - base] = samples_N[first - at : last - at]
        if until >= base + len(native_N):
            break
    return native_N, rate, until / rate


def sound_parts(name: str, container: Any, begin_s: float = 0.0) -> Iterator[tuple[int, np.ndarray]]:
    """Samples at their own rate, channels averaged, each part with the number of its first sample, from 0 s on.

    Frames whose times are rounded follow one another; only more than that is a gap. What comes before `begin_s` may be
    left out.

    Raises:
        MediaError: a packet cannot be decoded, or is marked as damaged.
    """
    stream = sound_stream(name, container)
    zero_s, rate = _zero_s(stream, container), stream.rate
    if container.format.name in EXACT_CONTAINERS and begin_s > _BEFORE_S:
        container.seek(int((begin_s - _BEFORE_S + zero_s) / stream.time_base), stream=stream)
    floats = av.AudioResampler(format="fltp", rate=rate)
    cursor = None
    try:
        for frame in container.decode(stream):
            if frame.is_corrupt:
                raise ValueError("a damaged packet")
            if frame.pts is not None:
                at = round((float(frame.pts * frame.time_base) - zero_s) * rate)
                if cursor is None or abs(at - cursor) > _JITTER_S * rate:
                    cursor = at
            frame.pts = None
            cursor = 0 if cursor is None else cursor
            for part in floats.resample(frame):
                samples_N = part.to_ndarray().mean(0)  # FFmpeg's own mix of channels would go beyond [-1, 1]
                yield cursor, samples_N
                cursor += len(samples_N)
    except (av.error.FFmpegError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        where = f"after {cursor / rate:.2f} s" if cursor else "at its start"
        raise MediaError(
            f"{name}: its sound is damaged, got {reason!r} {where}; fetch it again or encode it again"
        ) from error


def _resampled(native_N: np.ndarray, rate: int) -> np.ndarray:
    if rate == SAMPLE_RATE:
        return native_N
    whole = av.AudioFrame.from_ndarray(native_N[None], format="flt", layout="mono")
    whole.rate = rate
    resampler = av.AudioResampler(format="flt", layout="mono", rate=SAMPLE_RATE)
    return np.concatenate([part.to_ndarray()[0] for given in (whole, None) for part in resampler.resample(given)])


@contextmanager
def open_sound(path: Path) -> Iterator[Any]:
    """PyAV's container of a file; `MediaError` for one that cannot be opened."""
    regular_file(path)
    try:
        container = av.open(f"file:{path.absolute()}", metadata_errors="ignore", options=OPEN_ONLY)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise MediaError(f"{path}: not a readable sound, got {error}; fetch or encode it again") from error
    with container:
        yield container


def sound_stream(name: str, container: Any) -> Any:
    stream = container.streams.best("audio")
    if stream is None:
        raise MediaError(
            f"{name}: has no sound, got a file without an audio stream; fetch it with its sound, or leave that out"
        )
    stream.thread_type = "NONE"
    return stream


def _zero_s(stream: Any, container: Any) -> float:
    """The presentation time that is 0 s: a video's first picture; the first sample where there are no pictures."""
    moving = (s for s in container.streams.video if not s.disposition & Disposition.attached_pic)
    clock = next(moving, stream)
    return float((clock.start_time or 0) * clock.time_base)


def sound_length_s(name: str, stream: Any, container: Any) -> float:
    """When the sound ends. May read all packets: open the file again to decode it."""
    zero_s = _zero_s(stream, container)
    if container.format.name not in _LENGTH_IN_HEADER:  # others guess it from the bit rate: their packets are read
        ends = [(p.pts + (p.duration or 0)) * p.time_base for p in container.demux(stream) if p.pts is not None]
        if not ends:
            raise MediaError(f"{name}: its length is unknown, got packets without times; encode it again")
        return float(max(ends)) - zero_s
    if stream.duration is not None:
        return float(((stream.start_time or 0) + stream.duration) * stream.time_base) - zero_s
    try:  # Matroska writes the time at which each stream ends as a tag, "00:00:10.333000000"
        hours, minutes, seconds = stream.metadata.get("DURATION", "").split(":")
        return int(hours) * 3600 + int(minutes) * 60 + float(seconds) - zero_s
    except ValueError:
        pass
    if container.duration is None:
        raise MediaError(f"{name}: its length is unknown, got a header without one; encode it again")
    return container.duration / av.time_base - zero_s


def _span(piece: Audio, stream: Any, container: Any) -> tuple[int, int]:
    """The first sample of a span and the first behind it."""
    if problems := list(span_problems(piece.start_s, piece.end_s)):
        raise MediaError(f"{piece.path}: {'; '.join(problems)}")
    length_s = sound_length_s(piece.path, stream, container)
    last_s = length_s if piece.end_s is None else min(piece.end_s, length_s)
    first, last = math.floor(piece.start_s * SAMPLE_RATE + 0.5), math.floor(last_s * SAMPLE_RATE + 0.5)
    if first >= last:
        raise MediaError(
            f"{piece.path}: start_s is past the end of the sound, got {piece.start_s} of {length_s:.3f} s; fix the span"
        )
    return first, last
