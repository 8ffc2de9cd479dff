"""What a media file holds, read without decoding it: size, rate, duration, and the time of every frame.

Headers are enough to probe the common containers. Reading frames by time needs the presentation time of every packet
as well (`packet_index`): demuxing a short clip takes milliseconds, and shows whether a decoder's times are right (see
frames.py).
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import av
import av.error
import numpy as np
from av.stream import Disposition

from ...core import MediaError, VideoSegment, media_path, span_problems
from .fields import may_hold_fields
from .picture_hash import PictureHash

EXACT_CONTAINERS = frozenset({"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm"})
"""Containers that store presentation times and an index of keyframes: headers and seeks are exact in these only."""

_FORMATS = (
    "mov", "matroska", "webm", "avi", "mpegts", "mpeg", "mpegvideo", "m4v", "h264", "hevc", "asf", "flv", "ogg", "ivf",
    "mxf", "nut", "dv", "rm", "gif", "wav", "mp3", "flac", "aac", "aiff",
)  # fmt: skip
"""FFmpeg's names of the formats that are opened: none of them names other files or hosts, as a playlist does."""

OPEN_ONLY = {"format_whitelist": ",".join(_FORMATS), "protocol_whitelist": "file"}

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


_HDR = {16: "PQ (HDR10, HDR10+ or Dolby Vision)", 18: "HLG"}
"""Transfer characteristics (ITU-T H.273) whose pixels are no picture before they are tone mapped."""

_TONE_MAP = (
    "zscale=t=linear:npl=100,format=gbrpf32le,zscale=p=bt709,tonemap=hable:desat=0,"
    "zscale=t=bt709:m=bt709:r=tv,format=yuv420p"
)

SQUARE_WITHIN = 0.01
"""Pixels this near to square are square: encoders write such ratios where a side was rounded to an even number."""

_MOST_STRETCHED = 10.0  # more is a damaged header: anamorphic video stretches by 2 at most


class FileStamp(NamedTuple):
    """Bytes, times of the last change of content and of status (nanoseconds), inode: what changes with the content.

    A copy that keeps the time of its original still has a new time of status.
    """

    n_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int


@dataclass(frozen=True)
class MediaInfo:
    """A video file, as its header describes it.

    Attributes:
        path: the file, resolved.
        duration_s: seconds from the first frame shown to the end of the last one.
        fps: average frame rate.
        width, height: of a frame as shown, after any rotation the file asks for, in square pixels.
        codec: FFmpeg's name of the video codec.
        n_frames: number of frames, None if the container does not say.
        container: FFmpeg's name of the format.
        pixel_aspect: width of a decoded pixel over its height, upright: 1 where the file says nothing.
        plain: progressive throughout and of 8 bits per channel: every reader makes the same pixels of it.
    """

    path: str
    duration_s: float
    fps: float
    width: int
    height: int
    codec: str
    n_frames: int | None
    container: str
    pixel_aspect: float = 1.0
    plain: bool = True


@dataclass(frozen=True, eq=False)
class PacketIndex:
    """When each frame of a video is shown, in presentation order.

    Attributes:
        pts: int64 (N,), the frames' timestamps in the stream's own units.
        times_s: float64 (N,), the same in seconds, counted from the first frame shown.
        end_s: when the last frame ends.
        tick_s: seconds per unit of `pts`.
        keyframe_pts: int64, sorted: where decoding may start.
        container: FFmpeg's name of the format.
        gops_closed: every group of pictures starts at its keyframe, none is cut off, and every packet is shown.
        timed_by_rank: the container gives decoding times only, while the codec reorders frames (AVI with B-frames):
            the n-th frame that comes out of the decoder is the n-th of `pts`, whatever time it is labelled with.
    """

    pts: np.ndarray
    times_s: np.ndarray
    end_s: float
    tick_s: float
    keyframe_pts: np.ndarray
    container: str
    gops_closed: bool
    timed_by_rank: bool

    @property
    def jumps_exactly(self) -> bool:
        """Decoding may start at any keyframe, and the frames that come out are those that follow it in the file."""
        return self.container in EXACT_CONTAINERS and self.gops_closed


def probe(path: str | Path, media_root: str | Path | None = None) -> MediaInfo:
    """Describe a video file and make sure that its first frame decodes.

    Where a file holds several video streams, the one is meant that FFmpeg and decord choose.

    Raises:
        MediaError: the file is missing, empty, unreadable, an image, in HDR, or has no video stream.
    """
    file = media_path(str(path), media_root)
    return _probe(str(file), file_stamp(file))


def packet_index(path: str | Path) -> PacketIndex:
    """The presentation times of a video's frames, from its packets (nothing is decoded).

    A file cut short gives the packets that are there.

    Raises:
        MediaError: as `probe`, or the stream carries no timestamps.
    """
    return _packet_index(str(path), file_stamp(Path(path)))


def hashed_packet_index(path: str | Path) -> tuple[PacketIndex, str | None]:
    """`packet_index`, and of the same reading the hash of the video's pictures (see picture_hash.py)."""
    return _read_packets(str(path), hashed=True)


def check_segment(segment: VideoSegment, info: MediaInfo) -> list[str]:
    """What is wrong with a segment's span, given its file. A span may overrun the file by one frame."""
    problems = list(span_problems(segment.start_s, segment.end_s))
    if problems:
        return problems
    if segment.start_s >= info.duration_s:
        problems.append(
            f"start_s is past the end of the video, got {segment.start_s} of {info.duration_s:.3f} s; fix the span"
        )
    if segment.end_s is not None and segment.end_s > info.duration_s + 1 / info.fps:
        problems.append(
            f"end_s is past the end of the video, got {segment.end_s} of {info.duration_s:.3f} s; end the span there"
        )
    return problems


@contextmanager
def open_video(path: str | Path) -> Iterator[tuple[Any, Any]]:
    """Open a file; gives PyAV's container and the video stream to read, set to decode in this thread alone.

    Raises:
        MediaError: as `probe`.
    """
    try:
        # An absolute path is no protocol; what is opened may then open nothing else.
        container = av.open(f"file:{Path(path).absolute()}", metadata_errors="ignore", options=OPEN_ONLY)
    except av.error.ArgumentError as error:
        raise MediaError(
            f"{path}: not a video of a format that is opened, got a playlist, a still image or something rarer; give "
            "mp4, mkv or another file that holds its own pictures, and stills as image evidence"
        ) from error
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise MediaError(f"{path}: not a readable video, got {_reason(error)}; re-download or re-encode it") from error
    with container:
        stream = _video_stream(container)
        if stream is None:
            raise MediaError(
                f"{path}: no video stream, got format {container.format.name!r}; give a file that holds pictures"
            )
        stream.thread_type = "NONE"
        yield container, stream


def _video_stream(container: Any) -> Any | None:
    """The best video stream, cover art apart."""
    moving = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
    best = container.streams.best("video")
    return best if best in moving else next(iter(moving), None)


def regular_file(file: Path) -> os.stat_result:
    """The status of a media file that holds something, known without opening it: a pipe would hang its opener.

    Raises:
        MediaError: it is missing, a folder, a pipe, socket or device, or empty.
    """
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MediaError(f"{file}: no such file; check the path and the media root") from error
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise MediaError(f"{file}: its status cannot be read, got {_reason(error)}; check the path") from error
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "something else")
        raise MediaError(f"{file}: not a regular file, got {kind}; give the media file itself")
    if status.st_size == 0:
        raise MediaError(f"{file}: file is empty, got 0 bytes; download it again")
    return status


def file_stamp(file: Path) -> FileStamp:
    """Identifies a file's content cheaply, so that what was learned of it can be kept. Errors as `regular_file`."""
    status = regular_file(file)
    return FileStamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


@lru_cache(maxsize=256)
def _probe(path: str, stamp: FileStamp) -> MediaInfo:
    with open_video(path) as (container, stream):
        duration_s, rate = _header_duration(container, stream), stream.average_rate
        codec, n_frames, name = stream.codec_context.codec.name, stream.frames or None, container.format.name
        frame = _first_frame(path, container, stream)
        transfer = stream.codec_context.color_trc
        fields = may_hold_fields(codec, stream.codec_context.field_order, stream.codec_context.extradata or b"")
        aspect = _pixel_aspect(path, stream.sample_aspect_ratio)
    if transfer in _HDR:
        raise _in_hdr(path, _HDR[transfer])
    if duration_s is None or not rate:
        index = packet_index(path)
        duration_s, n_frames = index.end_s, len(index.pts)
        rate = rate or n_frames / duration_s
    if not duration_s > 0:
        raise MediaError(f"{path}: video has no duration, got {duration_s} s; re-encode it")
    height, width = frame.height, frame.width
    if frame.rotation % 180 != 0:
        height, width, aspect = width, height, 1 / aspect
    height, width = square_size(height, width, aspect)
    plain = not fields and not frame.interlaced_frame and frame.format.components[0].bits <= 8
    return MediaInfo(path, duration_s, float(rate), width, height, codec, n_frames, name, aspect, plain)


def square_size(height: int, width: int, pixel_aspect: float) -> tuple[int, int]:
    """(height, width) in square pixels of a picture whose pixels are not: its width is stretched, as players do."""
    return height, max(1, round(width * pixel_aspect))


def _pixel_aspect(path: str, ratio: Fraction | None) -> float:
    aspect = float(ratio or 1)
    if not 1 / _MOST_STRETCHED <= aspect <= _MOST_STRETCHED:
        raise MediaError(f"{path}: pixels of no real shape, got sample aspect ratio {ratio}; correct it when remuxing")
    return 1.0 if abs(aspect - 1) <= SQUARE_WITHIN else aspect


def _in_hdr(path: str, transfer: str) -> MediaError:
    source = Path(path)
    command = ["ffmpeg", "-i", path, "-vf", _TONE_MAP, str(source.with_name(f"{source.stem}_sdr.mp4"))]
    return MediaError(
        f"{path}: video in HDR, whose pixels are no picture before they are tone mapped, got the transfer {transfer}; "
        f"convert it to SDR: {shlex.join(command)}"
    )


def _first_frame(path: str, container: Any, stream: Any) -> Any:
    reason = "no frames"
    try:
        for frame in container.decode(stream):
            return frame
    except av.error.FFmpegError as error:
        reason = _reason(error)
    raise MediaError(f"{path}: the first frame cannot be decoded, got {reason}; re-download or re-encode it")


def _header_duration(container: Any, stream: Any) -> float | None:
    """Seconds the video stream is shown, or None where the header does not know exactly.

    The container's own duration cannot be used: it covers the sound too, which may be longer.
    """
    if container.format.name not in EXACT_CONTAINERS:
        return None
    if stream.duration:
        return float(stream.duration * stream.time_base)
    try:  # Matroska writes the time at which each stream ends as a tag, "00:00:10.333000000"
        hours, minutes, seconds = stream.metadata.get("DURATION", "").split(":")
        end_s = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    except ValueError:
        return None
    return end_s - float((stream.start_time or 0) * stream.time_base)


@lru_cache(maxsize=64)
def _packet_index(path: str, stamp: FileStamp) -> PacketIndex:
    return _read_packets(path, hashed=False)[0]


def _read_packets(path: str, hashed: bool) -> tuple[PacketIndex, str | None]:
    """The index, and the pictures' hash if it is wanted: it takes about as long as reading the packets does."""
    with open_video(path) as (container, stream):
        pictures = PictureHash(stream) if hashed else None
        packets = list(_packets(container, stream, pictures))
        tick_s = float(stream.time_base)
        usual_s = 1 / float(stream.average_rate or 25)
        name, reorders = container.format.name, bool(stream.codec_context.has_b_frames)
    if any(pts is None for pts, *_ in packets) or not any(shown for *_, shown, _ in packets):
        raise MediaError(f"{path}: frames carry no times, got format {name!r}; remux the video to mp4 or mkv")
    pts_decoded = np.array([pts for pts, *_ in packets], dtype=np.int64)
    keyframe, shown = (np.array([p[i] for p in packets], dtype=bool) for i in (1, 2))
    pts = np.sort(pts_decoded[shown])
    times_s = (pts - pts[0]) * tick_s
    last_s = next(duration for p, *_, duration in packets if p == pts[-1]) * tick_s
    index = PacketIndex(
        pts=pts,
        times_s=times_s,
        end_s=float(times_s[-1] + (last_s or usual_s)),
        tick_s=tick_s,
        keyframe_pts=np.sort(pts_decoded[keyframe]),
        container=name,
        gops_closed=bool(shown.all() and _gops_closed(pts_decoded, keyframe)),
        timed_by_rank=name == "avi" and reorders and bool((np.diff(pts_decoded) > 0).all()),
    )
    return index, pictures.hexdigest() if pictures else None


def _packets(container: Any, stream: Any, pictures: PictureHash | None) -> Iterator[tuple[int | None, bool, bool, int]]:
    """(timestamp, is a keyframe, is shown, duration) of each packet, in decoding order."""
    try:
        for packet in container.demux(stream):
            if packet.size:
                yield packet.pts, packet.is_keyframe, not packet.is_discard, packet.duration or 0
                if pictures is not None:
                    pictures.add(packet)
    except av.error.FFmpegError:
        return  # cut short: a frame wanted from the missing part is reported when it is asked for


def _gops_closed(pts_decoded: np.ndarray, keyframe: np.ndarray) -> bool:
    """No packet is shown before the keyframe it follows in the file, and the file starts with a keyframe."""
    if not keyframe[0]:
        return False
    latest_key = np.flatnonzero(keyframe)[np.cumsum(keyframe) - 1]
    return bool((pts_decoded >= pts_decoded[latest_key]).all())


def _reason(error: BaseException) -> str:
    """FFmpeg's own words, without the path that PyAV adds."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
