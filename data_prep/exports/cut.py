"""Cut video segments into files of their own, for trainers that can only be given whole files.

Apart from write.py because it encodes video, in processes of its own. A clip holds exactly the frames that appear in
[start_s, end_s), each for as long as in the source, re-encoded as H.264 without sound. A lone frame is stored twice:
Qwen's video reader refuses files of one frame. A clip's name is a hash of the source's bytes, the span and the
encoding: a clip that exists is whole, and is not cut again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import av
import av.error
import numpy as np
from tqdm import tqdm

from ...core import (
    MediaError,
    VideoSegment,
    media_path,
    sha256_of,
)
from ..media import (
    PacketIndex,
    check_segment,
    open_video,
    packet_index,
    probe,
    square_pixels,
    upright_rgb,
)

ENCODING = {
    "crf": "14",  # visually lossless
    "preset": "veryfast",
    "threads": "1",
    "bf": "0",  # no frame is hidden behind an edit list
    "x264-params": "rc-lookahead=0:mbtree=0:weightp=0",  # the same bytes each time
}
_EPSILON_S = 1e-6
_BT601, _LIMITED = 6, 1  # FFmpeg's numbers: what its conversion from RGB writes by default


def is_whole_file(segment: VideoSegment) -> bool:
    """The segment is all of its file, within one frame.

    Raises:
        MediaError: the file must be opened to know, and cannot be read or does not hold the span.
    """
    if segment.start_s > 0 or segment.end_s is None:
        return segment.start_s == 0
    info = probe(segment.path)
    if problems := check_segment(segment, info):
        raise MediaError(f"{segment.path}: {'; '.join(problems)}")
    return segment.end_s >= info.duration_s - 1 / info.fps


def cut_segments(
    segments: Iterable[VideoSegment], directory: str | Path, workers: int = 1
) -> tuple[dict[VideoSegment, Path], dict[VideoSegment, str]]:
    """Cut every distinct segment into `directory`, in parallel processes, with a progress bar.

    Returns:
        The clip of each segment, and for those that could not be cut the reason.
    """
    directory = Path(directory).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    wanted = list(dict.fromkeys(segments))
    clips: dict[VideoSegment, Path] = {}
    failed: dict[VideoSegment, str] = {}
    with tqdm(total=len(wanted), desc="cutting clips", unit="clip", mininterval=1.0) as bar:
        for segment, made in zip(wanted, _each(wanted, directory, workers), strict=True):
            if isinstance(made, Path):
                clips[segment] = made
            else:
                failed[segment] = made
            bar.update()
    return clips, failed


def _each(segments: list[VideoSegment], directory: Path, workers: int) -> Iterator[Path | str]:
    places = [directory] * len(segments)
    if workers <= 1 or len(segments) < 2:
        yield from map(_cut_or_reason, segments, places)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_cut_or_reason, segments, places, chunksize=4)


def _cut_or_reason(segment: VideoSegment, directory: Path) -> Path | str:
    try:
        return cut_segment(segment, directory)
    except MediaError as error:
        return str(error)


def cut_segment(segment: VideoSegment, directory: Path) -> Path:
    """The clip of one segment (its path absolute) in `directory`, cut now unless it is there.

    Raises:
        MediaError: the source cannot be read, the span is not in it, or a frame of the span cannot be decoded.
    """
    segment = dataclasses.replace(segment, path=str(media_path(segment.path, None)))
    info = probe(segment.path)
    if problems := check_segment(segment, info):
        raise MediaError(f"{segment.path}: {'; '.join(problems)}")
    end_s = info.duration_s if segment.end_s is None else segment.end_s
    clip = directory / f"{_clip_key(segment.path, segment.start_s, end_s)}.mp4"
    if clip.is_file():
        return clip
    index = packet_index(segment.path)
    first, last = frames_in(index, segment.start_s, end_s, segment.path)
    temporary = clip.with_suffix(f".{os.getpid()}.tmp")
    try:
        _encode(segment.path, index, first, last, (segment.start_s, end_s), temporary)
        temporary.replace(clip)
    finally:
        temporary.unlink(missing_ok=True)
    return clip


def frames_in(index: PacketIndex, start_s: float, end_s: float, file: str) -> tuple[int, int]:
    """First frame of [start_s, end_s) and one past its last; the frame on the screen where none appears inside.

    Raises:
        MediaError: the frames stop, by more than one frame's time, before `end_s`.
    """
    frame_s = index.end_s / len(index.pts)
    if end_s > index.end_s + frame_s:
        raise MediaError(
            f"{file}: frames stop before the span ends, got {index.end_s:.3f} s of {end_s:.3f} s; the file is cut "
            "short: download it again, or end the span there"
        )
    first, last = (int(np.searchsorted(index.times_s, time_s - _EPSILON_S)) for time_s in (start_s, end_s))
    return (first, last) if first < last else (max(0, first - 1), max(1, first))


def _clip_key(path: str, start_s: float, end_s: float) -> str:
    stat = os.stat(path)
    what = [_digest(path, stat.st_mtime_ns, stat.st_size), float(start_s), float(end_s), ENCODING]
    info = probe(path)
    if not info.plain or info.pixel_aspect != 1:
        what.append("deinterlaced, in square pixels")  # clips of such files were once cut as they are stored
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]


@lru_cache(maxsize=4096)
def _digest(path: str, mtime_ns: int, size: int) -> str:
    return sha256_of(path)


def _encode(file: str, index: PacketIndex, first: int, last: int, span_s: tuple[float, float], target: Path) -> None:
    pts: list[int] = (index.pts[first:last] - index.pts[first]).tolist()
    shown_s = min(span_s[1], index.end_s) - max(span_s[0], float(index.times_s[first]))
    end = max(pts[-1] + 1, round(shown_s / index.tick_s))
    if len(pts) == 1:
        pts, end = [0, max(1, end // 2)], max(2, end)
    aspect = probe(file).pixel_aspect
    ticks = dict(zip(pts, np.diff([*pts, end]).tolist(), strict=True))
    with (
        open_video(file) as (container, source),
        av.open(str(target), "w", format="mp4", options={"fflags": "+bitexact"}) as out,
    ):
        stream: Any = None
        frames = decoded_frames(file, index, first, last, container, source)
        shown = frames if last - first > 1 else itertools.chain.from_iterable(itertools.repeat(f, 2) for f in frames)
        for stamp, frame in zip(pts, shown, strict=True):
            pixels = square_pixels(upright_rgb(frame), aspect)
            if stream is None:
                stream = _stream(out, pixels.shape, source)
            elif pixels.shape != (stream.height, stream.width, 3):
                raise MediaError(f"{file}: frame size changes, got {pixels.shape}; re-encode it to one size")
            picture: Any = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
            picture.pts, picture.time_base = stamp, source.time_base
            _mux(out, stream.encode(picture), ticks)
        _mux(out, stream.encode(None), ticks)


def _mux(out: Any, packets: Iterable[Any], ticks: dict[int, int]) -> None:
    for packet in packets:
        packet.duration = ticks[packet.pts]
        out.mux(packet)


def _stream(out: Any, shape: tuple[int, ...], source: Any) -> Any:
    stream = out.add_stream("libx264", rate=Fraction(source.average_rate or 25), options=ENCODING)
    stream.height, stream.width = shape[:2]
    stream.pix_fmt = "yuv444p" if shape[0] % 2 or shape[1] % 2 else "yuv420p"
    stream.codec_context.time_base = stream.time_base = source.time_base
    stream.codec_context.colorspace, stream.codec_context.color_range = _BT601, _LIMITED
    return stream


def decoded_frames(file: str, index: PacketIndex, first: int, last: int, container: Any, source: Any) -> Iterator[Any]:
    """Frames number first to last - 1, in order, all of them."""
    wanted = index.pts[first:last].tolist()
    before = index.keyframe_pts[index.keyframe_pts <= wanted[0]]
    if index.jumps_exactly and len(before):
        container.seek(int(before[-1]), stream=source)
    n_frames, reason = 0, "the end of the stream"
    try:
        for n, frame in enumerate(container.decode(source)):
            pts = int(index.pts[n]) if index.timed_by_rank and n < len(index.pts) else frame.pts
            if pts is None or pts < wanted[n_frames]:
                continue
            if pts != wanted[n_frames] or frame.is_corrupt:
                reason = "a damaged or missing picture"
                break
            yield frame
            n_frames += 1
            if n_frames == len(wanted):
                return
    except av.error.FFmpegError as error:
        reason = repr(error.strerror)
    raise MediaError(
        f"{file}: the frame at {index.times_s[first + n_frames]:.3f} s cannot be decoded, got {reason}; re-download or "
        "re-encode the file, or end the span before that time"
    )
