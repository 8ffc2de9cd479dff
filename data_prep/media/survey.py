"""Probe every media file of a build in parallel: whether it can be read, its kind, its size, its hash and its place.

Files are opened in child processes with a deadline (sandbox.py), so that a file that hangs or crashes its reader gives
one message among others.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import av.error
import numpy as np

from ...core import MediaError, address_problem, is_address, local_part, media_path, sha256_of
from .containers import MediaInfo, PacketIndex, hashed_packet_index, open_video, probe, regular_file
from .frames import open_image, read_image
from .sandbox import run_guarded
from .sound_probe import SoundInfo, probe_sound

Kind = Literal["video", "image", "audio"]

TIMEOUT_S = 60.0
CUT_SHORT_S = 1.0
"""Seconds by which a header may promise more than the packets hold. Real headers are off by a frame or two."""

QUANTILES = {"shortest": 0.0, "5%": 0.05, "median": 0.5, "95%": 0.95, "longest": 1.0}


@dataclass(frozen=True)
class ImageInfo:
    """A still image: the file, its size in pixels as shown (upright), and Pillow's name of its format."""

    path: str
    width: int
    height: int
    format: str


@dataclass(frozen=True)
class MediaFile:
    """A media file that can be read: as a video, an image, or for its sound.

    Attributes:
        info: what it is.
        n_bytes: its size.
        sha256: of its content.
        pictures_sha256: of a video's coded pictures, the same in a remuxed copy; None where there are none.
    """

    info: MediaInfo | ImageInfo | SoundInfo
    n_bytes: int
    sha256: str
    pictures_sha256: str | None = None


def probe_all(
    paths: Iterable[str],
    media_root: str | Path | None,
    kind: Kind = "video",
    workers: int | None = None,
    timeout_s: float = TIMEOUT_S,
    decode: bool = False,
) -> dict[str, MediaFile | str]:
    """What each file is, or why it cannot be used: the outcomes of `probe_each`, in the order of `paths`."""
    distinct = list(dict.fromkeys(paths))
    files: dict[str, MediaFile | str] = dict.fromkeys(distinct, "")
    files.update(probe_each(distinct, media_root, kind, workers, timeout_s, decode))
    return files


def probe_each(
    paths: Sequence[str],
    media_root: str | Path | None,
    kind: Kind = "video",
    workers: int | None = None,
    timeout_s: float = TIMEOUT_S,
    decode: bool = False,
) -> Iterator[tuple[str, MediaFile | str]]:
    """Look at each file: (path, what it is or why it cannot be used), as they are ready.

    A video must decode its first frame and hold the packets that its header promises; an image and a sound are decoded
    whole. Damage in the middle of a video is found only with `decode`.

    Args:
        paths: as the rows name them, each once.
        kind: what the files are used as: an image given as a video is an error, and the other way round. `audio` is the
            sound of sound files and of videos.
        workers: child processes; as many as there are processors if None.
        timeout_s: seconds a file may take, hashing included.
        decode: decode every frame of every video: one processor does about 15 s of 720p video in a second.

    Yields:
        The path with a `MediaFile`, or with a message that names the file and the remedy.
    """
    workers = min(workers or os.cpu_count() or 1, max(1, len(paths)))
    check = partial(look_at, media_root=media_root, kind=kind, decode=decode)
    named = partial(_name, media_root=media_root)
    for outcome in run_guarded(check, paths, workers, timeout_s, named):
        yield paths[outcome.index], outcome.error or outcome.value or ""


def look_at(path: str, media_root: str | Path | None, kind: Kind, decode: bool = False) -> MediaFile:
    """One file of `probe_all`, in this process; `MediaError` says why it cannot be used."""
    file = media_path(path, media_root)
    n_bytes = regular_file(file).st_size
    if kind == "audio":
        return MediaFile(probe_sound(str(file)), n_bytes, sha256_of(file))
    info, pictures = _video(file, decode) if kind == "video" else (_image(file), None)
    return MediaFile(info, n_bytes, sha256_of(file), pictures)


def outside_root(path: str, media_root: str | Path) -> str | None:
    """What is wrong with a media path that leaves the media root, by its words or by a link; None if it stays inside.

    Nothing is opened, and nothing need exist. The root itself may be a link.
    """
    if is_address(path):
        archive = local_part(path)
        return address_problem(path) or (outside_root(archive, media_root) if archive is not None else None)
    root, file = Path(media_root), media_path(path, media_root)
    try:
        real = file.resolve()
        inside = real.is_relative_to(root.resolve())
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a zero byte
        return f"{path!r}: media path cannot be resolved, got {error}; fix the path"
    if inside:
        return None
    if Path(path).is_absolute():
        way = "an absolute path"
    elif not Path(os.path.abspath(file)).is_relative_to(os.path.abspath(root)):
        way = "`..`"
    else:
        way = f"a link to {real}"
    return f"{path}: media path leaves the media root, got {way}; keep the file below {root}, or move media_root up"


def media_rows(files: Iterable[MediaFile]) -> dict[str, dict[str, float]]:
    """Tables for a data set card: {title: {name: number}}.

    Counts of files by kind, container, codec, picture size and frame rate, most frequent first; quantiles and sum of
    the durations in seconds. Sounds, where any are heard, have tables of their own: a video that is heard is given once
    for its pictures and once for its sound.
    """
    known = list(files)
    videos = [file.info for file in known if isinstance(file.info, MediaInfo)]
    images = [file.info for file in known if isinstance(file.info, ImageInfo)]
    sounds = [file.info for file in known if isinstance(file.info, SoundInfo)]
    n_bytes = {getattr(file.info, "path", ""): file.n_bytes for file in known}
    tables: dict[str, dict[str, float]] = {
        "files": {"videos": len(videos), "images": len(images), "bytes": sum(n_bytes.values())},
        "container": _counts(info.container for info in videos),
        "codec": _counts(info.codec for info in videos),
        "image format": _counts(info.format for info in images),
        "size": _counts(f"{info.width}x{info.height}" for info in (*videos, *images)),
        "fps": _counts(f"{info.fps:.4g}" for info in videos),
    }
    if sounds:
        n_silent = sum(info.is_silent for info in sounds)
        tables["sound"] = {"files": len(sounds), "silent": n_silent}
        tables["sound codec"] = _counts(info.codec for info in sounds)
        tables["sound_s"] = {"sum": round(sum(info.duration_s for info in sounds), 3)}
    if videos:
        durations = [info.duration_s for info in videos]
        values = np.quantile(durations, list(QUANTILES.values())).round(3).tolist()
        tables["duration_s"] = {**dict(zip(QUANTILES, values, strict=True)), "sum": round(sum(durations), 3)}
    return {title: rows for title, rows in tables.items() if rows}


def media_table(tables: Mapping[str, Mapping[str, float]], most: int = 10) -> str:
    """`media_rows` as text, one line per table; rows beyond `most` are added up."""
    lines = []
    for title, rows in tables.items():
        shown = [f"{name} {number:,.10g}" for name, number in list(rows.items())[:most]]
        if len(rows) > most:
            shown.append(f"{len(rows) - most} others {sum(list(rows.values())[most:]):,.10g}")
        lines.append(f"{title:<14}{', '.join(shown)}")
    return "\n".join(lines)


def _name(path: str, media_root: str | Path | None) -> str:
    return str(media_path(path, media_root))


def _video(file: Path, decode: bool) -> tuple[MediaInfo, str | None]:
    """What a video is, and the hash of its pictures."""
    info = probe(file)
    index, pictures = hashed_packet_index(file)
    if info.duration_s - index.end_s > max(CUT_SHORT_S, 2 / info.fps):
        got = f"packets up to {index.end_s:.3f} s of {info.duration_s:.3f} s"
        raise MediaError(f"{file}: video is cut short, got {got}; download it again")
    if decode:
        _decode_all(file, index)
    return info, pictures


def _decode_all(file: Path, index: PacketIndex) -> None:
    n_frames, reason = 0, None
    try:
        with open_video(file) as (container, stream):
            for frame in container.decode(stream):
                if frame.is_corrupt:
                    reason = "a damaged picture"
                    break
                n_frames += 1
    except av.error.FFmpegError as error:
        reason = error.strerror or type(error).__name__
    if reason is not None:
        end_s = index.times_s[min(n_frames, len(index.times_s)) - 1]
        got = f"{reason!r} after the frame at {end_s:.3f} s of {index.end_s:.3f} s"
        raise MediaError(f"{file}: video is damaged, got {got}; download it again or re-encode it")


def _image(file: Path) -> ImageInfo:
    height, width = read_image(file).shape[:2]
    with open_image(file) as image:
        return ImageInfo(str(file), width, height, image.format or "")


def _counts(names: Iterable[str]) -> dict[str, float]:
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))
