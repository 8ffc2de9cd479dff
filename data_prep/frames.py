"""Frames of a video segment, chosen by time, at the size the network sees, with their real times; and still images.

The pixel budget is part of the reader: a long clip in high definition never travels at full size, and what is read can
be kept (see `frame_cache`). Size and filter are those of the backbone's own processor (Qwen2-VL's), which then finds
nothing left to resize.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image as PILImage
from PIL import ImageOps

from ..core.errors import ConfigError, MediaError
from ..core.pairs import VideoSegment, media_path, span_problems
from .media import PacketIndex, check_segment, packet_index, probe, regular_file
from .readers import read_with_decord, read_with_pyav

SIDE_STEP = 28
"""Frames are a multiple of this many pixels high and wide: the backbone merges 2 x 2 patches of 14 pixels."""

MAX_ASPECT = 200  # the backbone's processor refuses longer strips

_EPSILON_S = 1e-6  # finer than any container's clock, coarser than the rounding of seconds


@dataclass(frozen=True)
class FrameSampling:
    """How many frames of a span are looked at, and how large. Part of what a verifier is: recorded in its directory.

    Attributes:
        fps: frames asked for per second of the span.
        min_frames, max_frames: bounds on their number; even, as the backbone merges frames in pairs.
        min_pixels, max_pixels: bounds on the size of one frame (see `target_size`).
    """

    fps: float = 2.0
    min_frames: int = 4
    max_frames: int = 64
    min_pixels: int = 128 * 28 * 28
    max_pixels: int = 256 * 28 * 28

    def __post_init__(self) -> None:
        if isinstance(self.fps, bool) or not (isinstance(self.fps, (int, float)) and 0 < self.fps < math.inf):
            raise ConfigError(f"FrameSampling: fps must be a positive number, got {self.fps!r}; for example 2.0")
        for name in ("min_frames", "max_frames", "min_pixels", "max_pixels"):
            value = getattr(self, name)
            if type(value) is not int or value <= 0:
                raise ConfigError(f"FrameSampling: {name} must be a positive integer, got {value!r}; fix it")
            if name.endswith("frames") and value % 2:
                raise ConfigError(f"FrameSampling: {name} must be even, got {value}; use {value + 1}")
        for low, high in (("min_frames", "max_frames"), ("min_pixels", "max_pixels")):
            if getattr(self, low) > getattr(self, high):
                got = f"{getattr(self, low)} > {getattr(self, high)}"
                raise ConfigError(f"FrameSampling: {low} exceeds {high}, got {got}; raise {high} or lower {low}")


@dataclass(frozen=True)
class Frames:
    """Decoded frames of one segment.

    Attributes:
        pixels_FHWC: uint8 RGB, upright; `read_frames` gives them at the size the network sees.
        times_s: float64 (F,), when each frame is first shown, in seconds from the first frame of the file. Never
            decreasing; equal where a span has fewer frames than were asked for.
        reader: "decord" or "pyav".
    """

    pixels_FHWC: np.ndarray
    times_s: np.ndarray
    reader: str


def frame_times(start_s: float, end_s: float, sampling: FrameSampling) -> np.ndarray:
    """The times to look at: centres of F equal parts of the span; F is even, near `fps` per second, within bounds.

    Raises:
        MediaError: the span is reversed, empty, negative or not finite.
    """
    problems = list(span_problems(start_s, end_s))
    if problems:
        raise MediaError(f"span: {'; '.join(problems)}")
    asked = min(max((end_s - start_s) * sampling.fps, sampling.min_frames), sampling.max_frames)
    n_frames = 2 * math.floor(asked / 2 + 0.5)
    return start_s + (np.arange(n_frames) + 0.5) * ((end_s - start_s) / n_frames)


def target_size(height: int, width: int, sampling: FrameSampling, where: str = "picture") -> tuple[int, int]:
    """(height, width) at which the network sees a picture: multiples of `SIDE_STEP` within the pixel budget.

    The rule is that of the Qwen2-VL processor, number for number: each side to the nearest multiple; if that is too
    many pixels, both sides shrunk to the budget and rounded down; if too few, enlarged and rounded up. A budget
    narrower than one step can be missed by less than a step, so the rule must be applied only once.

    Raises:
        MediaError: one side is more than 200 times the other; `where` opens the message.
    """
    if max(height, width) > MAX_ASPECT * min(height, width):
        got = f"{width} x {height} pixels"
        raise MediaError(f"{where}: too long and thin, got {got}; crop it to at most {MAX_ASPECT}:1")
    sides = [SIDE_STEP * round(side / SIDE_STEP) for side in (height, width)]
    if math.prod(sides) > sampling.max_pixels:
        shrink = math.sqrt(height * width / sampling.max_pixels)
        sides = [SIDE_STEP * max(1, math.floor(side / shrink / SIDE_STEP)) for side in (height, width)]
    elif math.prod(sides) < sampling.min_pixels:
        enlarge = math.sqrt(sampling.min_pixels / (height * width))
        sides = [SIDE_STEP * math.ceil(side * enlarge / SIDE_STEP) for side in (height, width)]
    return sides[0], sides[1]


def fit_pixels(pixels_HWC: np.ndarray, sampling: FrameSampling, where: str = "picture") -> np.ndarray:
    """A uint8 RGB picture at its `target_size`: bicubic, antialiased. A picture of that size is returned as it is."""
    height, width = target_size(pixels_HWC.shape[0], pixels_HWC.shape[1], sampling, where)
    if pixels_HWC.shape[:2] == (height, width):
        return pixels_HWC
    picture = PILImage.fromarray(np.ascontiguousarray(pixels_HWC))
    return np.array(picture.resize((width, height), PILImage.Resampling.BICUBIC))


def read_frames(segment: VideoSegment, sampling: FrameSampling, media_root: str | Path | None = None) -> Frames:
    """The frames on the screen at `frame_times` of the segment, each at its `target_size`.

    A frame that appeared before the span began is not used while another appears inside it, so all returned times lie
    in [start_s, end_s]; only in a span during which the picture never changes is the one frame shown returned, with
    the (earlier) time at which it appeared.

    Raises:
        MediaError: the file cannot be read, the span is not in it, or a wanted frame cannot be decoded. No frame is
            ever replaced by another or left out.
    """
    file = str(media_path(segment.path, media_root))
    if segment.absent:
        raise MediaError(f"{file}: segment is marked absent, got absent=True; fetch the media and rebuild the data set")
    info = probe(file)
    problems = check_segment(segment, info)
    if problems:
        raise MediaError(f"{file}: {'; '.join(problems)}")
    end_s = info.duration_s if segment.end_s is None else segment.end_s
    index = packet_index(file)
    shown_F = _shown_at(frame_times(segment.start_s, end_s, sampling), segment.start_s, end_s, index, file)
    distinct, place_F = np.unique(shown_F, return_inverse=True)
    fit = partial(fit_pixels, sampling=sampling, where=file)
    pixels, reader = read_with_decord(file, index, distinct.tolist(), fit), "decord"
    if pixels is None:
        pixels, reader = read_with_pyav(file, index, distinct.tolist(), fit), "pyav"
    return Frames(pixels if len(distinct) == len(shown_F) else pixels[place_F], index.times_s[shown_F], reader)


def _shown_at(times_F: np.ndarray, start_s: float, end_s: float, index: PacketIndex, file: str) -> np.ndarray:
    """Number of the frame on the screen at each time."""
    past_end = times_F > index.end_s + index.end_s / len(index.pts)  # a header may round up, by less than a frame
    if past_end.any():
        raise MediaError(
            f"{file}: there is no frame at {times_F[past_end][0]:.3f} s, got a file whose frames stop at "
            f"{index.end_s:.3f} s; it is cut short: download it again, or end the span there"
        )
    shown_F = np.searchsorted(index.times_s, times_F + _EPSILON_S, side="right") - 1
    first_inside = np.searchsorted(index.times_s, start_s - _EPSILON_S)
    if first_inside < len(index.times_s) and index.times_s[first_inside] < end_s:
        shown_F = np.maximum(shown_F, first_inside)
    return shown_F


def read_image(path: str | Path, media_root: str | Path | None = None) -> np.ndarray:
    """A still image as uint8 RGB (H, W, 3), upright, transparency over white; the first picture of an animation.

    At full size: `fit_pixels` brings it to the size the network sees.

    Raises:
        MediaError: the file is missing, not an image, cut short, absurdly large, or not of 8 bits per channel.
    """
    file = media_path(str(path), media_root)
    regular_file(file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", PILImage.DecompressionBombWarning)
            with PILImage.open(file) as image:
                image.load()
                upright = ImageOps.exif_transpose(image)
    except (
        OSError,
        ValueError,
        SyntaxError,
        PILImage.DecompressionBombWarning,
        PILImage.DecompressionBombError,
    ) as error:
        raise MediaError(f"{file}: not a readable image, got {error}; download it again or convert it") from error
    if upright.mode[0] in "IF":
        raise MediaError(f"{file}: more than 8 bits per pixel, got mode {upright.mode!r}; convert it to 8-bit")
    if upright.has_transparency_data:
        rgba = upright.convert("RGBA")
        upright = PILImage.alpha_composite(PILImage.new("RGBA", rgba.size, "white"), rgba)
    return np.array(upright.convert("RGB"))
