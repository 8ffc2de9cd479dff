"""What a sound is, heard through once: how long, how it is coded, where it is silent; damage is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from ...core import Audio, MediaError, VideoSegment, media_path, span_problems
from .sounds import SHORT_S, SILENT_PEAK, notes_in_words, open_sound, sound_length_s, sound_parts, sound_stream

_STEP_S = 0.1
_SHORTEST_S = 0.5  # of a silence that is kept


@dataclass(frozen=True)
class SoundInfo:
    """The sound of a file.

    Attributes:
        path: the file.
        duration_s: when it ends; 0 s is the file's start, of a video its first picture.
        codec: FFmpeg's name of it.
        rate: samples a second, as stored.
        channels: how many, before they are averaged.
        container: FFmpeg's name of the format.
        peak: the largest sample, of full scale, channels averaged.
        silences: (start, end) in seconds, to a tenth, of every stretch of half a second or more that is silent.
    """

    path: str
    duration_s: float
    codec: str
    rate: int
    channels: int
    container: str
    peak: float
    silences: tuple[tuple[float, float], ...] = ()

    @property
    def is_silent(self) -> bool:
        """Throughout."""
        return self.peak < SILENT_PEAK


def probe_sound(path: str, media_root: str | Path | None = None) -> SoundInfo:
    """Decode the sound of a file from end to end; about a second for ten minutes of it.

    Raises:
        MediaError: no such file, not readable, no sound, a damaged packet, or it ends before its header says.
    """
    file = media_path(path, media_root)
    with open_sound(file) as container:
        stream = sound_stream(str(file), container)
        codec, rate, channels = stream.codec_context.codec.canonical_name, stream.rate, stream.channels
        name, length_s = container.format.name, sound_length_s(str(file), stream, container)
    if not length_s > 0:
        raise MediaError(f"{file}: its sound has no length, got {length_s:.3f} s; encode it again")
    step = max(1, round(_STEP_S * rate))
    peaks_B, until = np.zeros(int(length_s / _STEP_S) + 1, np.float32), 0
    with open_sound(file) as container:
        for at, samples_N in sound_parts(str(file), container):
            first = max(0, -at)
            blocks = np.minimum((at + np.arange(first, len(samples_N))) // step, len(peaks_B) - 1)
            np.maximum.at(peaks_B, blocks, np.abs(samples_N[first:]))
            until = at + len(samples_N)
    if length_s - until / rate > SHORT_S:
        raise MediaError(f"{file}: its sound ends early, got {until / rate:.2f} s of {length_s:.2f} s; fetch it again")
    silences = tuple(_silences(peaks_B, length_s))
    return SoundInfo(str(file), length_s, codec, rate, channels, name, float(peaks_B.max()), silences)


def _silences(peaks_B: np.ndarray, length_s: float) -> Iterator[tuple[float, float]]:
    changes = np.flatnonzero(np.diff(np.pad(peaks_B < SILENT_PEAK, 1).astype(int)))
    for first, last in pairwise(changes.tolist()):
        start_s, end_s = round(first * _STEP_S, 1), min(round(last * _STEP_S, 1), round(length_s, 3))
        if peaks_B[first] < SILENT_PEAK and end_s - start_s >= min(_SHORTEST_S, length_s):
            yield start_s, end_s


def check_sound(piece: Audio | VideoSegment, info: SoundInfo) -> list[str]:
    """What is wrong with a span of sound, given its file. The sound of a video may end before its pictures do."""
    problems = list(span_problems(piece.start_s, piece.end_s))
    if problems:
        return problems
    length = f"{info.duration_s:.3f} s"
    if piece.start_s >= info.duration_s:
        problems.append(f"start_s is past the end of the sound, got {piece.start_s} of {length}; fix the span")
    elif isinstance(piece, Audio) and piece.end_s is not None and piece.end_s > info.duration_s + SHORT_S:
        problems.append(f"end_s is past the end of the sound, got {piece.end_s} of {length}; end the span there")
    return problems


def notes_on_sound(piece: Audio | VideoSegment, info: SoundInfo) -> list[str]:
    """What a listener should know of a span that can be heard, with a remedy; the file is not named."""
    end_s = min(piece.end_s or info.duration_s, info.duration_s)
    is_silent = any(first_s <= piece.start_s and end_s <= last_s + _STEP_S for first_s, last_s in info.silences)
    return notes_in_words(piece, end_s, is_silent)
