"""Sound of media files: one channel of 16,000 samples a second, cut at a span.

Time counts from the start of the file, for the sound of a video as for its pictures. How many samples a span has is
known from the header, and is what the reader gives.

Shape suffixes: _N samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np

from ...core import Audio, MediaError, media_path, span_problems
from .containers import regular_file

SAMPLE_RATE = 16_000
_SHORT_S = 0.25  # of what the header says, that an encoder may have left out at the end
_OPEN = {"protocol_whitelist": "file", "format_whitelist": "mov,matroska,wav,mp3,flac,ogg,aac,avi,mpegts,aiff"}


@dataclass(frozen=True)
class Sound:
    """What is heard: float32 samples in [-1, 1], one channel, 16,000 a second, from `start_s` of the file on."""

    samples_N: np.ndarray
    start_s: float


def count_samples(piece: Audio, media_root: str | Path | None = None) -> int:
    """`len(read_sound(...).samples_N)` from the header alone; errors as of `read_sound`, but for damage further on."""
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
    parts, n_there = [], 0
    with _opened(path) as container:
        stream = _stream(piece.path, container)
        first, last = _span(piece, stream, container)
        resampler = av.AudioResampler(format="flt", layout="mono", rate=SAMPLE_RATE)
        try:
            for frame in container.decode(stream):
                parts += [out.to_ndarray()[0] for out in resampler.resample(frame)]
                n_there = sum(map(len, parts))
                if n_there >= last:
                    break
            parts += [out.to_ndarray()[0] for out in resampler.resample(None)]
        except (av.error.FFmpegError, ValueError) as error:
            raise MediaError(f"{piece.path}: its sound cannot be decoded, got {error}; encode it again") from error
    samples_N = np.concatenate(parts)[first:last] if parts else np.zeros(0, np.float32)
    if (missing := last - first - len(samples_N)) > _SHORT_S * SAMPLE_RATE:
        raise MediaError(
            f"{piece.path}: its sound ends early, got {len(samples_N) / SAMPLE_RATE:.2f} s of "
            f"{(last - first) / SAMPLE_RATE:.2f} s; fetch it again"
        )
    return Sound(np.pad(samples_N, (0, missing)).astype(np.float32, copy=False), piece.start_s)


def _opened(path: Path) -> Any:
    regular_file(path)
    try:
        return av.open(f"file:{path.absolute()}", metadata_errors="ignore", options=_OPEN)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise MediaError(f"{path}: not a readable sound, got {error}; fetch or encode it again") from error


def _stream(name: str, container: Any) -> Any:
    stream = container.streams.best("audio")
    if stream is None:
        raise MediaError(f"{name}: has no sound, got a file without an audio stream; leave the sound out")
    stream.thread_type = "NONE"
    return stream


def _span(piece: Audio, stream: Any, container: Any) -> tuple[int, int]:
    """The first sample of a span and the first behind it."""
    if problems := list(span_problems(piece.start_s, piece.end_s)):
        raise MediaError(f"{piece.path}: {'; '.join(problems)}")
    if stream.duration is not None:
        length_s = float(stream.duration * stream.time_base)
    elif container.duration is not None:
        length_s = container.duration / av.time_base
    else:
        raise MediaError(f"{piece.path}: its length is unknown, got a header without one; encode it again")
    last_s = length_s if piece.end_s is None else min(piece.end_s, length_s)
    first, last = math.floor(piece.start_s * SAMPLE_RATE + 0.5), math.floor(last_s * SAMPLE_RATE + 0.5)
    if first >= last:
        raise MediaError(
            f"{piece.path}: start_s is past the end of the sound, got {piece.start_s} of {length_s:.3f} s; fix the span"
        )
    return first, last
