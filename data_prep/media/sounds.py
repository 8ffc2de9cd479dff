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

from ...core import Audio, MediaError, media_path, span_problems
from .containers import EXACT_CONTAINERS, OPEN_ONLY, regular_file

SAMPLE_RATE = 16_000
_SHORT_S = 0.25  # of what the header says, that an encoder may have left out at the end
_AROUND_S = 0.1  # decoded before and after a span, for the filter that changes the rate
_BEFORE_S = 1.0  # how much earlier than that decoding starts: coded sound needs what comes before it
_JITTER_S = 0.02  # by which presentation times may be rounded, without a gap
_LENGTH_IN_HEADER = EXACT_CONTAINERS | {"wav", "flac", "aiff"}


@dataclass(frozen=True)
class Sound:
    """What is heard: float32 samples in [-1, 1], one channel, 16,000 a second, from `start_s` of the file on."""

    samples_N: np.ndarray
    start_s: float


def count_samples(piece: Audio, media_root: str | Path | None = None) -> int:
    """`len(read_sound(...).samples_N)` without decoding; errors as of `read_sound`, but for damage further on."""
    path = media_path(piece.path, media_root)
    with _opened(path) as container:
        first, last = _span(piece, _stream(piece.path, container), container)
    return last - first


def read_sound(piece: Audio, media_root: str | Path | None = None) -> Sound:
    """Decode a span.

    Raises:
        MediaError: naming the file: it is missing or unreadable, has no sound, the span is not in it, or it ends early.
    """
    path = media_path(piece.path, media_root)
    with _opened(path) as container:
        first, last = _span(piece, _stream(piece.path, container), container)
    around = round(_AROUND_S * SAMPLE_RATE)
    begin, end = max(0, first - around), last + around
    with _opened(path) as container:
        stream = _stream(piece.path, container)
        try:
            native_N, rate, until_s = _placed(container, stream, begin / SAMPLE_RATE, end / SAMPLE_RATE)
            samples_N = _resampled(native_N, rate)
        except (av.error.FFmpegError, ValueError) as error:
            raise MediaError(f"{piece.path}: its sound cannot be decoded, got {error}; encode it again") from error
    if last / SAMPLE_RATE - until_s > _SHORT_S:
        raise MediaError(
            f"{piece.path}: its sound ends early, got {until_s:.2f} s of {last / SAMPLE_RATE:.2f} s; fetch it again"
        )
    samples_N = samples_N[first - begin : last - begin]
    return Sound(np.pad(samples_N, (0, last - first - len(samples_N))).astype(np.float32, copy=False), piece.start_s)


def _placed(container: Any, stream: Any, begin_s: float, end_s: float) -> tuple[np.ndarray, int, float]:
    """The samples from `begin_s` to `end_s` at their own rate, silence where there are none; the rate; the last's end.

    Frames whose times are rounded follow one another; only more than that is a gap.
    """
    zero_s, rate = _zero_s(stream, container), stream.rate
    if container.format.name in EXACT_CONTAINERS and begin_s > _BEFORE_S:
        container.seek(int((begin_s - _BEFORE_S + zero_s) / stream.time_base), stream=stream)
    base = round(begin_s * rate)
    native_N = np.zeros(round(end_s * rate) - base, np.float32)
    floats = av.AudioResampler(format="fltp", rate=rate)
    cursor, until = None, -math.inf
    for frame in container.decode(stream):
        if frame.pts is not None:
            at = round((float(frame.pts * frame.time_base) - zero_s) * rate)
            if cursor is None or abs(at - cursor) > _JITTER_S * rate:
                cursor = at
        frame.pts = None
        cursor = 0 if cursor is None else cursor
        for part in floats.resample(frame):
            samples_N = part.to_ndarray().mean(0)  # FFmpeg's own mix of channels would go beyond [-1, 1]
            first, last = max(cursor, base), min(cursor + len(samples_N), base + len(native_N))
            if first < last:
                native_N[first - base : last - base] = samples_N[first - cursor : last - cursor]
            cursor += len(samples_N)
            until = max(until, cursor)
        if cursor >= base + len(native_N):
            break
    return native_N, rate, until / rate


def _resampled(native_N: np.ndarray, rate: int) -> np.ndarray:
    if rate == SAMPLE_RATE:
        return native_N
    whole = av.AudioFrame.from_ndarray(native_N[None], format="flt", layout="mono")
    whole.rate = rate
    resampler = av.AudioResampler(format="flt", layout="mono", rate=SAMPLE_RATE)
    return np.concatenate([part.to_ndarray()[0] for given in (whole, None) for part in resampler.resample(given)])


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    regular_file(path)
    try:
        container = av.open(f"file:{path.absolute()}", metadata_errors="ignore", options=OPEN_ONLY)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise MediaError(f"{path}: not a readable sound, got {error}; fetch or encode it again") from error
    with container:
        yield container


def _stream(name: str, container: Any) -> Any:
    stream = container.streams.best("audio")
    if stream is None:
        raise MediaError(f"{name}: has no sound, got a file without an audio stream; leave the sound out")
    stream.thread_type = "NONE"
    return stream


def _zero_s(stream: Any, container: Any) -> float:
    """The presentation time that is 0 s: a video's first picture; the first sample where there are no pictures."""
    moving = (s for s in container.streams.video if not s.disposition & Disposition.attached_pic)
    clock = next(moving, stream)
    return float((clock.start_time or 0) * clock.time_base)


def _length_s(name: str, stream: Any, container: Any) -> float:
    """When the sound ends."""
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
    length_s = _length_s(piece.path, stream, container)
    last_s = length_s if piece.end_s is None else min(piece.end_s, length_s)
    first, last = math.floor(piece.start_s * SAMPLE_RATE + 0.5), math.floor(last_s * SAMPLE_RATE + 0.5)
    if first >= last:
        raise MediaError(
            f"{piece.path}: start_s is past the end of the sound, got {piece.start_s} of {length_s:.3f} s; fix the span"
        )
    return first, last
