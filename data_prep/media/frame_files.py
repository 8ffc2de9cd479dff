"""Frames that were sampled elsewhere and lie in image files: read as a video's frames are, at their given times.

A verifier looks at no more frames than its sampling allows. Of more, those are read that are on the screen at the
times at which the frames of a video are: the centres of equal parts of the span (`frames.frame_times`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...core import Audio, Image, MediaError, VideoSegment, Visual, media_path, media_paths, problems_of_evidence
from ...core import Frames as FrameFiles
from .containers import FileStamp, file_stamp
from .frames import (
    Frames,
    FrameSampling,
    fit_pixels,
    image_size,
    read_frames,
    read_image,
    sampled_times,
    times_of_parts,
)

_EPSILON_S = 1e-6  # as for videos: finer than any clock, coarser than the rounding of seconds
_FEWEST = 2  # one frame is an image


def frames_shown(frames: FrameFiles, sampling: FrameSampling) -> np.ndarray:
    """Numbers of the frames that a verifier looks at: all of them, or `max_frames` where there are more."""
    if len(frames.paths) <= sampling.max_frames:
        return np.arange(len(frames.paths))
    centres_F = times_of_parts(frames.start_s, frames.until_s, sampling.max_frames)
    return np.searchsorted(np.array(frames.times_s), centres_F + _EPSILON_S, side="right") - 1


def frames_within(frames: FrameFiles, start_s: float, end_s: float) -> FrameFiles:
    """The frames that appear in [start_s, end_s), which end as the next one appears; two at least, the nearest."""
    times_s = np.array(frames.times_s)
    first, after = np.searchsorted(times_s, np.array([start_s, end_s]) - _EPSILON_S).tolist()
    if after - first < _FEWEST:
        after = min(max(after, first + _FEWEST), len(times_s))
        first = after - _FEWEST
    until_s = frames.times_s[after] if after < len(times_s) else frames.until_s
    return FrameFiles(frames.paths[first:after], frames.times_s[first:after], until_s)


def read_frame_files(frames: FrameFiles, sampling: FrameSampling, media_root: str | Path | None = None) -> Frames:
    """The frames of `frames_shown`, each at its target size, with their given times.

    Raises:
        MediaError: times that are none, a file that is missing or no image, or frames of several sizes.
    """
    if problems := problems_of_evidence(frames):
        raise MediaError(f"frames: {problems[0]}")
    shown_F = frames_shown(frames, sampling)
    _check_sizes(frames, sorted({*shown_F.tolist()}), media_root)
    pixels = {
        i: fit_pixels(read_image(frames.paths[i], media_root), sampling, where=frames.paths[i])
        for i in dict.fromkeys(shown_F.tolist())
    }
    times_F = np.array(frames.times_s, dtype=np.float64)[shown_F]
    return Frames(np.stack([pixels[i] for i in shown_F.tolist()]), times_F, "pillow")


def _check_sizes(frames: FrameFiles, numbers: Sequence[int], media_root: str | Path | None) -> None:
    first = image_size(frames.paths[numbers[0]], media_root)
    for i in numbers[1:]:
        if (size := image_size(frames.paths[i], media_root)) != first:
            got = f"{size[1]} x {size[0]} pixels at {frames.times_s[i]:g} s after {first[1]} x {first[0]}"
            raise MediaError(f"{frames.paths[i]}: frames differ in size, got {got}; give frames of one video")


def read_media_piece(piece: Visual, sampling: FrameSampling, media_root: str | Path | None = None) -> Frames:
    """The frames of a segment or of files; or those of an image: one, at its `target_size`, at 0 s.

    Errors as of either reader.
    """
    if isinstance(piece, FrameFiles):
        return read_frame_files(piece, sampling, media_root)
    if isinstance(piece, Image):
        pixels_HWC = fit_pixels(read_image(piece.path, media_root), sampling, where=piece.path)
        return Frames(pixels_HWC[None], np.zeros(1), "pillow")
    return read_frames(piece, sampling, media_root)


def shown_times(
    piece: VideoSegment | FrameFiles, sampling: FrameSampling, media_root: str | Path | None = None
) -> np.ndarray:
    """(F,) seconds: `times_s` of what `read_media_piece` would read, without decoding a frame."""
    if isinstance(piece, FrameFiles):
        return np.array(piece.times_s, dtype=np.float64)[frames_shown(piece, sampling)]
    return sampled_times(piece, sampling, media_root)


def piece_stamps(piece: Visual | Audio, media_root: str | Path | None = None) -> tuple[FileStamp, ...]:
    """The state of every file of a piece; `MediaError` for one that is not there."""
    return tuple(file_stamp(media_path(path, media_root)) for path in media_paths(piece))
