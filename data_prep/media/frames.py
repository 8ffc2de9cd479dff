"""Frames of a video segment, chosen by time, at the size the network sees, with their real times; and still images.

Size and filter are those of the backbone's own processor (Qwen2-VL's), which then has nothing left to resize. Frames
are resized while decoding goes on, so a clip never lies in memory at full size; they can be kept (`frame_cache`).

decord and PyAV give the same pixels at about the same cost. decord counts frames forward from the keyframe to which it
believes it has jumped, and returns that frame; nothing in its answer tells a wrong frame from the right one. It returns
frames of another time, without an error, from

- AVI: no presentation times at all (its own timestamps are then astronomical), and MPEG-TS/PS, ASF: inexact jumps;
- open groups of pictures in any container (x265's default, x264 `open-gop`, MPEG-4 with B-frames): frames that
  precede the keyframe are counted, or not;
- edit lists that hide frames, and files that do not begin with a keyframe.

So decord is used only where the packet index shows that its counting is sound (`PacketIndex.jumps_exactly`) and where
its own table of times agrees with the index. Nor is it used for interlaced video, whose frames must be deinterlaced,
or for more than 8 bits per channel, of which it makes other colours (`MediaInfo.plain`). Everything else, and every
file that decord fails to read, is read with PyAV, which names each frame by its timestamp: a frame of another time is
never returned.

Nor is decord used for H.264 whose counting is sound: there PyAV is told to leave out pictures that are not wanted and
that no other picture refers to (`_leaves_out`), which decord cannot be told. The pixels are the same, for a third less
work. More threads for one decoder were measured and do not pay (docs/media.md).
"""

from __future__ import annotations

import io
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import av.error
import av.filter
import numpy as np
from PIL import ExifTags, ImageOps
from PIL import Image as PILImage

from ...core import ConfigError, MediaError, VideoSegment, media_path, span_problems
from .containers import PacketIndex, check_segment, open_video, packet_index, probe, regular_file, square_size

Fit = Callable[[np.ndarray], np.ndarray]
"""From a decoded frame, uint8 (H, W, 3), to what is kept of it."""

_FittedFrames = dict[
    int, tuple[tuple[int, ...], np.ndarray]
]  # number of a frame -> its decoded shape, what is kept of it

_FramesInWork = dict[int, tuple[tuple[int, ...], Future[np.ndarray]]]  # the same, while they are fitted

_WHOLE_FRAMES = 4  # decoded frames that may wait to be fitted


def _whole(pixels_HWC: np.ndarray) -> np.ndarray:
    return pixels_HWC


def read_with_decord(path: str, index: PacketIndex, wanted: Sequence[int], fit: Fit = _whole) -> np.ndarray | None:
    """Frames number `wanted` (sorted, distinct), fitted, as uint8 (F, H, W, 3); None where decord cannot be believed.

    The reader lives inside this call: one that crosses a fork deadlocks (dmlc/decord issue 294).
    """
    if not (index.jumps_exactly and _begins_as_container(path) and probe(path).plain):
        return None
    try:
        import decord
    except (ImportError, OSError):  # decord is not installed, or has no build for this machine
        return None
    decord.logging.set_level(decord.logging.QUIET)
    try:
        # An absolute path is no protocol. decord has no list of formats: what its FFmpeg may open, PyAV has opened.
        reader = decord.VideoReader(str(Path(path).absolute()), num_threads=1)
        if not _same_times(reader, index):
            return None
        # One at a time: larger batches are no faster, and leave holes in memory when they are freed.
        return np.stack([fit(reader.get_batch([i]).asnumpy()[0]) for i in wanted])
    except (decord.DECORDError, RuntimeError):
        return None


def _begins_as_container(path: str) -> bool:
    """The first bytes are those of MP4 or Matroska: a text that one library takes for a playlist begins otherwise."""
    with open(path, "rb") as file:
        start = file.read(8)
    return start[:4] == b"\x1aE\xdf\xa3" or start[4:] in (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide")


def _same_times(reader: Any, index: PacketIndex) -> bool:
    """decord's own table of times, counted from its first frame, is that of the packets."""
    if len(reader) != len(index.pts):
        return False
    times_s = reader.get_frame_timestamp(range(len(reader)))[:, 0].astype(np.float64)
    # decord keeps seconds in float32, which is coarser than a millisecond after two hours
    tolerance_s = max(1e-3, index.end_s * 2.0**-22)
    return bool(np.abs(times_s - times_s[0] - index.times_s).max() < tolerance_s)


def read_with_pyav(path: str, index: PacketIndex, wanted: Sequence[int], fit: Fit = _whole) -> np.ndarray:
    """Frames number `wanted` (sorted, distinct), fitted, as uint8 (F, H, W, 3), decoding from the keyframe before each.

    Raises:
        MediaError: a wanted frame cannot be decoded; names the file, the wanted time and the last time decoded.
    """
    runs = [list(wanted)] if index.timed_by_rank else _runs(index, wanted)
    try:
        frames = _read_runs(path, index, runs, fit, seek=not index.timed_by_rank)
    except MediaError:
        if index.timed_by_rank or index.jumps_exactly:
            raise
        # the seek may have been inexact: decoding from the start still reaches the frames it missed
        frames = _read_runs(path, index, [list(wanted)], fit, seek=False)
    sizes = {size for size, _ in frames.values()}
    if len(sizes) > 1:
        raise MediaError(f"{path}: frame size changes, got {sorted(sizes)}; re-encode the video to one size")
    return np.stack([frames[i][1] for i in wanted])


def _runs(index: PacketIndex, wanted: Sequence[int]) -> list[list[int]]:
    """The wanted frames, grouped by the keyframe from which each is decoded."""
    keys = np.searchsorted(index.keyframe_pts, index.pts[list(wanted)], side="right")
    return [[i for i, k in zip(wanted, keys, strict=True) if k == key] for key in dict.fromkeys(keys)]


def _read_runs(path: str, index: PacketIndex, runs: list[list[int]], fit: Fit, seek: bool) -> _FittedFrames:
    frames: _FramesInWork = {}
    leaves_out = _leaves_out(path, index)
    with open_video(path) as (container, stream), ThreadPoolExecutor(1, thread_name_prefix="fit") as pool:
        fitting = _Fitting(fit, pool)
        for run in runs:
            before = index.keyframe_pts[index.keyframe_pts <= index.pts[run[0]]]
            if seek and len(before):
                container.seek(int(before[-1]), stream=stream)
            wanted = {int(index.pts[i]) for i in run} if leaves_out else None
            frames.update(_decode_run(path, index, run, fitting, _decoded(container, stream, wanted)))
        return {i: (shape, fitted.result()) for i, (shape, fitted) in frames.items()}


def _leaves_out(path: str, index: PacketIndex) -> bool:
    """Pictures that nothing refers to can be left undecoded without a change to any other."""
    info = probe(path)
    return index.jumps_exactly and info.plain and info.codec == "h264"


def _decoded(container: Any, stream: Any, wanted_pts: set[int] | None) -> Iterator[Any]:
    """The frames that follow; with `wanted_pts`, without those of another time that nothing refers to."""
    if wanted_pts is None:
        yield from container.decode(stream)
        return
    for packet in container.demux(stream):
        needed = packet.pts in wanted_pts or not packet.size  # an empty packet brings out what the decoder holds
        stream.codec_context.skip_frame = "DEFAULT" if needed else "NONREF"
        yield from packet.decode()


class _Fitting:
    """Fits frames in a thread beside the decoder's; few whole frames wait at any time."""

    def __init__(self, fit: Fit, pool: ThreadPoolExecutor) -> None:
        self.fit, self.pool, self.room = fit, pool, threading.BoundedSemaphore(_WHOLE_FRAMES)

    def __call__(self, pixels_HWC: np.ndarray) -> Future[np.ndarray]:
        self.room.acquire()
        fitted = self.pool.submit(self.fit, pixels_HWC)
        fitted.add_done_callback(lambda _: self.room.release())
        return fitted


def _decode_run(
    path: str, index: PacketIndex, run: list[int], fitting: _Fitting, decoded: Iterator[Any]
) -> _FramesInWork:
    frames: _FramesInWork = {}
    missing = {int(index.pts[i]): i for i in run}
    last_pts, reason = None, "nothing for it up to"
    try:
        for n, frame in enumerate(decoded):
            last_pts = int(index.pts[n]) if index.timed_by_rank else frame.pts
            if last_pts in missing and frame.is_corrupt:
                reason = "a damaged picture as"
                break
            if last_pts in missing:
                pixels_HWC = upright_rgb(frame)
                frames[missing.pop(last_pts)] = pixels_HWC.shape, fitting(pixels_HWC)
            if not missing:
                return frames
            if last_pts is not None and last_pts > max(missing):
                break
        else:
            reason = "the end of the stream after"
    except av.error.FFmpegError as error:
        reason = f"{error.strerror!r} after"
    raise _undecodable(path, index, min(missing.values()), last_pts, reason)


def _undecodable(path: str, index: PacketIndex, wanted: int, last_pts: int | None, reason: str) -> MediaError:
    if last_pts is None:
        stopped = "no frame at all"
    else:
        stopped_s = index.times_s[0] + (last_pts - index.pts[0]) * index.tick_s
        stopped = f"the frame at {stopped_s:.3f} s"
    return MediaError(
        f"{path}: the frame at {index.times_s[wanted]:.3f} s cannot be decoded, got {reason} {stopped}; "
        "re-download or re-encode the file, or choose a span before that time"
    )


def upright_rgb(frame: Any) -> np.ndarray:
    """uint8 (H, W, 3), turned upright as players show it; of an interlaced frame the picture of its first field."""
    whole = _deinterlaced(frame) if frame.interlaced_frame else frame
    pixels_HWC = whole.to_ndarray(format="rgb24")
    return np.rot90(pixels_HWC, frame.rotation // 90) if frame.rotation else pixels_HWC


def _deinterlaced(frame: Any) -> Any:
    """The field that is shown at the frame's time, its missing lines drawn along the edges of those beside them.

    Other filters look at the frames before and after: the pixels would depend on where decoding began.
    """
    graph = av.filter.Graph()
    source = graph.add_buffer(
        width=frame.width, height=frame.height, format=frame.format, time_base=frame.time_base or Fraction(1, 1000)
    )
    graph.link_nodes(source, graph.add("estdif", "mode=frame:deint=interlaced"), graph.add("buffersink")).configure()
    graph.push(frame)
    graph.push(None)
    return graph.pull()


SIDE_STEP = 28
"""Frames are a multiple of this many pixels high and wide for Qwen2.5-VL: it merges 2 x 2 patches of 14 pixels."""

MAX_ASPECT = 200  # the backbone's processor refuses longer strips

_EPSILON_S = 1e-6  # finer than any container's clock, coarser than the rounding of seconds


@dataclass(frozen=True)
class FrameSampling:
    """How many frames of a span are read, and at which size. A verifier's directory records it.

    Attributes:
        fps: frames asked for per second of the span.
        min_frames, max_frames: bounds on their number; even, as the backbone merges frames in pairs.
        min_pixels, max_pixels: bounds on the size of one frame (see `target_size`).
        side_step: pixels that both sides are a multiple of. It is the backbone's: `Encoder` sets it, and no file
            records it.
    """

    fps: float = 2.0
    min_frames: int = 4
    max_frames: int = 64
    min_pixels: int = 128 * 28 * 28
    max_pixels: int = 256 * 28 * 28
    side_step: int = SIDE_STEP

    def __post_init__(self) -> None:
        if isinstance(self.fps, bool) or not (isinstance(self.fps, (int, float)) and 0 < self.fps < math.inf):
            raise ConfigError(f"FrameSampling: fps must be a positive number, got {self.fps!r}; for example 2.0")
        for name in ("min_frames", "max_frames", "min_pixels", "max_pixels", "side_step"):
            value = getattr(self, name)
            if type(value) is not int or value <= 0:
                raise ConfigError(f"FrameSampling: {name} must be a positive integer, got {value!r}; fix it")
            if name.endswith("frames") and value % 2:
                raise ConfigError(f"FrameSampling: {name} must be even, got {value}; use {value + 1}")
        for low, high in (("min_frames", "max_frames"), ("min_pixels", "max_pixels")):
            if getattr(self, low) > getattr(self, high):
                got = f"{getattr(self, low)} > {getattr(self, high)}"
                raise ConfigError(f"FrameSampling: {low} exceeds {high}, got {got}; raise {high} or lower {low}")

    def as_recorded(self) -> dict[str, Any]:
        """What files record: everything but the step, which follows from the backbone."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "side_step"}


@dataclass(frozen=True)
class Frames:
    """Decoded frames of one segment.

    Attributes:
        pixels_FHWC: uint8 RGB, upright; `read_frames` gives them at the size the network sees.
        times_s: float64 (F,), when each frame is first shown, in seconds from the first frame of the file. Never
            decreasing; equal where a span has fewer frames than were asked for.
        reader: "decord" or "pyav"; "pillow" for an image.
    """

    pixels_FHWC: np.ndarray
    times_s: np.ndarray
    reader: str


def frame_times(start_s: float, end_s: float, sampling: FrameSampling) -> np.ndarray:
    """The sampled times: centres of F equal parts of the span; F is even, near `fps` per second, within bounds.

    Raises:
        MediaError: the span is reversed, empty, negative or not finite.
    """
    problems = list(span_problems(start_s, end_s))
    if problems:
        raise MediaError(f"span: {'; '.join(problems)}")
    n_sampled = min(max((end_s - start_s) * sampling.fps, sampling.min_frames), sampling.max_frames)
    n_frames = 2 * math.floor(n_sampled / 2 + 0.5)
    return times_of_parts(start_s, end_s, n_frames)


def times_of_parts(start_s: float, end_s: float, n_parts: int) -> np.ndarray:
    """The centres of equal parts of a span."""
    return start_s + (np.arange(n_parts) + 0.5) * ((end_s - start_s) / n_parts)


def target_size(height: int, width: int, sampling: FrameSampling, where: str = "picture") -> tuple[int, int]:
    """(height, width) at which the network sees a picture: multiples of `side_step` within the pixel budget.

    The rule is that of the Qwen2-VL processor, number for number: each side to the nearest multiple; if that is too
    many pixels, both sides shrunk to the budget and rounded down; if too few, enlarged and rounded up. A budget
    narrower than one step can be missed by less than a step, so the rule must be applied only once.

    Raises:
        MediaError: one side is more than 200 times the other; `where` opens the message.
    """
    if max(height, width) > MAX_ASPECT * min(height, width):
        got = f"{width} x {height} pixels"
        raise MediaError(f"{where}: too long and thin, got {got}; crop it to at most {MAX_ASPECT}:1")
    step = sampling.side_step
    sides = [step * round(side / step) for side in (height, width)]
    if math.prod(sides) > sampling.max_pixels:
        shrink = math.sqrt(height * width / sampling.max_pixels)
        sides = [step * max(1, math.floor(side / shrink / step)) for side in (height, width)]
    elif math.prod(sides) < sampling.min_pixels:
        enlarge = math.sqrt(sampling.min_pixels / (height * width))
        sides = [step * math.ceil(side * enlarge / step) for side in (height, width)]
    return sides[0], sides[1]


def fit_pixels(
    pixels_HWC: np.ndarray, sampling: FrameSampling, where: str = "picture", pixel_aspect: float = 1.0
) -> np.ndarray:
    """A uint8 RGB picture at its `target_size`: bicubic, antialiased. A picture of that size is returned as it is.

    Pixels that are not square (`MediaInfo.pixel_aspect`) become so in the same step.
    """
    shown = square_size(pixels_HWC.shape[0], pixels_HWC.shape[1], pixel_aspect)
    return _resized(pixels_HWC, *target_size(*shown, sampling, where))


def square_pixels(pixels_HWC: np.ndarray, pixel_aspect: float) -> np.ndarray:
    """A uint8 RGB picture in square pixels, at full size."""
    return _resized(pixels_HWC, *square_size(pixels_HWC.shape[0], pixels_HWC.shape[1], pixel_aspect))


def _resized(pixels_HWC: np.ndarray, height: int, width: int) -> np.ndarray:
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
    file, index, shown_F = _sampled(segment, sampling, media_root)
    distinct, place_F = np.unique(shown_F, return_inverse=True)
    fit = partial(fit_pixels, sampling=sampling, where=file, pixel_aspect=probe(file).pixel_aspect)
    pixels, reader = None, "decord"
    if not _leaves_out(file, index):
        pixels = read_with_decord(file, index, distinct.tolist(), fit)
    if pixels is None:
        pixels, reader = read_with_pyav(file, index, distinct.tolist(), fit), "pyav"
    return Frames(pixels if len(distinct) == len(shown_F) else pixels[place_F], index.times_s[shown_F], reader)


def sampled_times(segment: VideoSegment, sampling: FrameSampling, media_root: str | Path | None = None) -> np.ndarray:
    """(F,) seconds: `Frames.times_s` of what `read_frames` would read, from the packets alone; errors as there."""
    _, index, shown_F = _sampled(segment, sampling, media_root)
    return index.times_s[shown_F]


def _sampled(
    segment: VideoSegment, sampling: FrameSampling, media_root: str | Path | None
) -> tuple[str, PacketIndex, np.ndarray]:
    """The file of a segment, its packets, and the number of each sampled frame."""
    file = str(media_path(segment.path, media_root))
    if segment.absent:
        raise MediaError(f"{file}: segment is marked absent, got absent=True; fetch the media and rebuild the data set")
    info = probe(file)
    problems = check_segment(segment, info)
    if problems:
        raise MediaError(f"{file}: {'; '.join(problems)}")
    end_s = info.duration_s if segment.end_s is None else segment.end_s
    index = packet_index(file)
    times_F = frame_times(segment.start_s, end_s, sampling)
    return file, index, _shown_at(times_F, segment.start_s, end_s, index, file)


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


IMAGE_FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""Pillow's names of the formats that are opened: raster formats that Pillow decodes itself (EPS starts a program)."""

MAX_IMAGE_PIXELS = 2**26


@contextmanager
def open_image(file: Path) -> Iterator[PILImage.Image]:
    """A still image, opened and not yet decoded; what fails while it is decoded is named as well.

    Raises:
        MediaError: the file is missing, not an image of `IMAGE_FORMATS`, cut short, or of more than `MAX_IMAGE_PIXELS`.
    """
    regular_file(file)
    with _opened(file, str(file)) as image:
        yield image


def checked_image(data: bytes) -> AbstractContextManager[PILImage.Image]:
    """`open_image` of bytes."""
    return _opened(io.BytesIO(data), "picture")


@contextmanager
def _opened(file: Path | io.BytesIO, where: str) -> Iterator[PILImage.Image]:
    PILImage.init()  # or formats beside the commonest five are not known
    formats = [name for name in IMAGE_FORMATS if name in PILImage.OPEN]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PILImage.DecompressionBombWarning)  # the limit here is lower
            with PILImage.open(file, formats=formats) as image:
                if math.prod(image.size) > MAX_IMAGE_PIXELS:
                    raise ValueError(f"{image.width} x {image.height} pixels, more than {MAX_IMAGE_PIXELS}")
                yield image
    except (OSError, ValueError, SyntaxError, PILImage.DecompressionBombError) as error:
        raise MediaError(f"{where}: not a readable image, got {error}; download it again or convert it") from error


def read_image(path: str | Path, media_root: str | Path | None = None) -> np.ndarray:
    """A still image as uint8 RGB (H, W, 3), upright, transparency over white; the first picture of an animation.

    At full size: `fit_pixels` brings it to the size the network sees.

    Raises:
        MediaError: the file is missing, not an image, cut short, absurdly large, or not of 8 bits per channel.
    """
    file = media_path(str(path), media_root)
    with open_image(file) as image:
        image.load()
        upright = ImageOps.exif_transpose(image)
    if upright.mode[0] in "IF":
        raise MediaError(f"{file}: more than 8 bits per pixel, got mode {upright.mode!r}; convert it to 8-bit")
    if upright.has_transparency_data:
        rgba = upright.convert("RGBA")
        upright = PILImage.alpha_composite(PILImage.new("RGBA", rgba.size, "white"), rgba)
    return np.array(upright.convert("RGB"))


def image_size(path: str | Path, media_root: str | Path | None = None) -> tuple[int, int]:
    """(height, width) of an image as `read_image` gives it, from its header alone. `MediaError` as there.

    A PNG that says only after its pixels that it lies on its side is given as it lies.
    """
    with open_image(media_path(str(path), media_root)) as image:
        if image.format == "TIFF":  # Pillow gives its size upright
            return image.height, image.width
        exif = image.getexif() if image.format != "PNG" or "exif" in image.info else {}  # else Pillow decodes it all
        sideways = exif.get(ExifTags.Base.Orientation, 1) in (5, 6, 7, 8)
        return (image.width, image.height) if sideways else (image.height, image.width)
