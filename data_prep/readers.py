"""Decode chosen frames of a video, with decord or with PyAV.

Both give the same pixels at about the same cost. decord counts frames forward from the keyframe to which it believes
it has jumped, and returns whatever it arrives at; nothing in its answer tells a wrong frame from the right one. It has
been seen to return frames of another time, without an error, from

- AVI: no presentation times at all (its own timestamps are then astronomical), and MPEG-TS/PS, ASF: inexact jumps;
- open groups of pictures in any container (x265's default, x264 `open-gop`, MPEG-4 with B-frames): frames that
  precede the keyframe are counted, or not;
- edit lists that hide frames, and files that do not begin with a keyframe.

So decord is used only where the packet index shows that its counting is sound (`PacketIndex.jumps_exactly`) and where
its own table of times agrees with the index. Everything else, and everything decord fails at, is read with PyAV, which
names each frame by its timestamp: a frame is the wanted one or it is not returned.

Frames are fitted (brought to the size wanted) while decoding goes on: a clip never lies in memory at full size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import av.error
import numpy as np

from ..core.errors import MediaError
from .media import PacketIndex, open_video

Fit = Callable[[np.ndarray], np.ndarray]
"""From a decoded frame, uint8 (H, W, 3), to what is kept of it."""

_Found = dict[int, tuple[tuple[int, ...], np.ndarray]]  # number of a frame -> its decoded shape, what is kept of it


def _whole(pixels_HWC: np.ndarray) -> np.ndarray:
    return pixels_HWC


def read_with_decord(path: str, index: PacketIndex, wanted: Sequence[int], fit: Fit = _whole) -> np.ndarray | None:
    """Frames number `wanted` (sorted, distinct), fitted, as uint8 (F, H, W, 3); None where decord cannot be believed.

    The reader lives inside this call: one that crosses a fork deadlocks (dmlc/decord issue 294).
    """
    if not index.jumps_exactly:
        return None
    try:
        import decord
    except (ImportError, OSError):  # there is no decord for this machine
        return None
    decord.logging.set_level(decord.logging.QUIET)
    try:
        reader = decord.VideoReader(path, num_threads=1)
        if not _same_times(reader, index):
            return None
        # One at a time: larger batches are no faster, and leave holes in memory when they are freed.
        return np.stack([fit(reader.get_batch([i]).asnumpy()[0]) for i in wanted])
    except (decord.DECORDError, RuntimeError):
        return None


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
        found = _read_runs(path, index, runs, fit, seek=not index.timed_by_rank)
    except MediaError:
        if index.timed_by_rank or index.jumps_exactly:
            raise
        # the jump may have gone astray: what it missed is still found by decoding from the start
        found = _read_runs(path, index, [list(wanted)], fit, seek=False)
    sizes = {size for size, _ in found.values()}
    if len(sizes) > 1:
        raise MediaError(f"{path}: frame size changes on the way, got {sorted(sizes)}; re-encode the video to one size")
    return np.stack([found[i][1] for i in wanted])


def _runs(index: PacketIndex, wanted: Sequence[int]) -> list[list[int]]:
    """The wanted frames, grouped by the keyframe from which each is decoded."""
    keys = np.searchsorted(index.keyframe_pts, index.pts[list(wanted)], side="right")
    return [[i for i, k in zip(wanted, keys, strict=True) if k == key] for key in dict.fromkeys(keys)]


def _read_runs(path: str, index: PacketIndex, runs: list[list[int]], fit: Fit, seek: bool) -> _Found:
    found: _Found = {}
    with open_video(path) as (container, stream):
        for run in runs:
            before = index.keyframe_pts[index.keyframe_pts <= index.pts[run[0]]]
            if seek and len(before):
                container.seek(int(before[-1]), stream=stream)
            found.update(_decode_run(path, index, run, fit, container.decode(stream)))
    return found


def _decode_run(path: str, index: PacketIndex, run: list[int], fit: Fit, decoded: Iterator[Any]) -> _Found:
    found: _Found = {}
    missing = {int(index.pts[i]): i for i in run}
    last_pts, reason = None, "nothing for it up to"
    try:
        for n, frame in enumerate(decoded):
            last_pts = int(index.pts[n]) if index.timed_by_rank else frame.pts
            if last_pts in missing and frame.is_corrupt:
                reason = "a damaged picture as"
                break
            if last_pts in missing:
                pixels_HWC = _rgb(frame)
                found[missing.pop(last_pts)] = pixels_HWC.shape, fit(pixels_HWC)
            if not missing:
                return found
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


def _rgb(frame: Any) -> np.ndarray:
    """uint8 (H, W, 3), turned upright as players show it."""
    pixels_HWC = frame.to_ndarray(format="rgb24")
    return np.rot90(pixels_HWC, frame.rotation // 90) if frame.rotation else pixels_HWC
