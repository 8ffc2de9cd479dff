"""What is heard of evidence: which pieces, their log-mel frames, and how many tokens each becomes.

A sound is 16,000 samples a second, from which the processor's feature extractor makes 100 frames; the audio tower makes
a token of four of them, 40 ms.

Shape suffixes: _N samples, _FM mel frames by mel bins.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import numpy as np
import torch

from ...core import Audio, Evidence, ModelInputError, VideoSegment

Piece = TypeVar("Piece", bound=Evidence)


def heard(evidence: tuple[Evidence, ...]) -> tuple[Audio, ...]:
    """The sounds of an evidence in order: its own, and those of videos that are heard."""
    sounds = []
    for e in evidence:
        if isinstance(e, Audio):
            sounds.append(e)
        elif isinstance(e, VideoSegment) and e.sound:
            sounds.append(Audio(e.path, e.start_s, e.end_s))
    return tuple(sounds)


def silent(piece: Piece) -> Piece:
    """The piece as it is seen: a video without its sound, any other as it is."""
    if isinstance(piece, VideoSegment) and piece.sound:
        return dataclasses.replace(piece, sound=False)
    return piece


def log_mel(extractor: Any, samples_N: np.ndarray, where: str = "sound") -> torch.Tensor:
    """(F, M) float32 frames: those that the processor makes of the sound padded to its longest, but for rounding.

    Args:
        extractor: a WhisperFeatureExtractor.
        samples_N: float32, at the extractor's rate.
        where: names the sound in errors.

    Raises:
        ModelInputError: too long for the network, or too short to be a token.
    """
    n_samples, rate = len(samples_N), extractor.sampling_rate
    if n_samples > extractor.n_samples:
        raise ModelInputError(
            f"{where}: too long for the network's ears, got {n_samples / rate:.1f} s of at most "
            f"{extractor.n_samples // rate} s; shorten the span, or judge it in windows"
        )
    n_frames = mel_frames(n_samples, extractor)
    if audio_tokens(n_frames) < 1:
        raise ModelInputError(f"{where}: too short to be heard, got {n_samples / rate:.4f} s; give at least 30 ms")
    # Silence enough that the last window of the sound sees none of the padding's end, where it would be mirrored.
    length = n_frames * extractor.hop_length + 2 * extractor.n_fft
    out = extractor(
        [samples_N],
        sampling_rate=rate,
        padding="max_length",
        max_length=-(-length // extractor.hop_length) * extractor.hop_length,
        return_attention_mask=False,
        return_tensors="np",
    )
    return torch.from_numpy(np.ascontiguousarray(out["input_features"][0, :, :n_frames].T, dtype=np.float32))


def mel_frames(n_samples: int, extractor: Any) -> int:
    """Frames of a sound: one for each step of the extractor that begins within it."""
    return -(-n_samples // extractor.hop_length)


def audio_tokens(n_frames: int) -> int:
    """Tokens that the audio tower makes of mel frames: a convolution takes every second one, pooling pairs of those."""
    return ((n_frames - 1) // 2 - 1) // 2 + 1 if n_frames > 0 else 0
