"""Frames and images kept on disk: each (content of a file, span, sampling) is decoded once across builds and runs.

An entry is named by a hash of everything its frames depend on, so it never goes stale: a file whose content changes,
another sampling or another version of a decoder is another name. A damaged entry is dropped and decoded again. Any
number of processes of one machine may share a directory (see `EntryStore`):

    <directory>/entries/ab/abcdef...    frames and times; read again bit for bit
    <directory>/hashes/12/12345...      content hash of a file, by its path, size, times of change and inode

Neighbouring rows of a picture are alike: their differences, compressed with Zstandard at level 1, take 0.4 of the
pixels on real clips, and are read back faster than any decoder gives frames.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pyarrow as pa

from ...core import (
    Audio,
    ConfigError,
    DamagedEntryError,
    EntryStore,
    MediaError,
    VideoSegment,
    Visual,
    media_path,
    media_paths,
    seal,
    sha256_of,
    sharded,
    unseal,
    write_whole,
)
from ...core import Frames as FrameFiles
from .containers import FileStamp, file_stamp
from .frame_files import piece_stamps, read_media_piece
from .frames import SIDE_STEP, Frames, FrameSampling
from .sandbox import READ_LIMIT_S, GuardedReader

FORMAT = 2  # of entries, and of what `read_frames` makes of a file: change it when either changes

_SETTLED_NS = 2_000_000_000  # a file changed this lately may change again within the same tick of its clock
_WRITTEN_WITH = ("av", "decord", "pillow")


class FrameCache:
    """Frames by content, on disk. Picklable: each data-loader worker reads and writes with its own copy.

    Attributes:
        hits, decoded, damaged, not_kept: what this copy has seen: frames found, frames decoded, entries dropped as
            damaged, frames that could not be written or are larger than the whole cache.
    """

    def __init__(self, directory: str | Path, max_gib: float = 50.0, timeout_s: float | None = READ_LIMIT_S) -> None:
        """Nothing is touched before the first read.

        Args:
            directory: made when first written to.
            max_gib: all entries together never exceed this; those used longest ago go first.
            timeout_s: seconds a decoder may take, in a child process; None decodes here, without a limit.

        Raises:
            ConfigError: a limit that is not above 0.
        """
        for name, value in (("max_gib", max_gib), ("timeout_s", timeout_s)):
            if value is not None and not value > 0:
                raise ConfigError(f"FrameCache: {name} must be above 0, got {value}; give GiB or seconds")
        self.directory, self.timeout_s = Path(directory).expanduser().absolute(), timeout_s
        self.hits = self.decoded = self.damaged = self.not_kept = 0
        self._hashes, self._reader = FileHashes(self.directory), GuardedReader()
        self._store = EntryStore(self.directory, int(max_gib * 2**30))

    def read(self, piece: Visual, sampling: FrameSampling, media_root: str | Path | None = None) -> Frames:
        """What `read_media_piece` returns, from the cache if it is there.

        Raises:
            MediaError: as `read_media_piece`; or the decoder was later than `timeout_s`, or died. Errors are not kept.
        """
        if isinstance(piece, VideoSegment) and piece.absent:
            return read_media_piece(piece, sampling, media_root)  # which words the error
        stamps = piece_stamps(piece, media_root)
        key = frames_key(self._hashes.of_piece(piece, stamps, media_root), piece, sampling)
        if (frames := self._kept(key)) is not None:
            self.hits += 1
            return frames
        frames = self._decode(piece, sampling, media_root)
        self.decoded += 1
        if piece_stamps(piece, media_root) == stamps:  # else it is unknown which content was decoded
            self._keep(key, frames)
        return frames

    def _decode(self, piece: Visual, sampling: FrameSampling, media_root: str | Path | None) -> Frames:
        if self.timeout_s is None:
            return read_media_piece(piece, sampling, media_root)
        return self._reader.read(piece, sampling, media_root, self.timeout_s)

    def _kept(self, key: str) -> Frames | None:
        entry = self._store.read(key)
        if entry is None:
            return None
        try:
            return unpack_frames(entry, key)
        except DamagedEntryError:
            self.damaged += 1
            self._store.drop(key)
            return None

    def _keep(self, key: str, frames: Frames) -> None:
        try:
            kept = self._store.write(key, pack_frames(frames, key))
        except OSError as error:
            warnings.warn(f"{self.directory}: frames are not kept, got {error}; free or unlock the disk", stacklevel=3)
            kept = False
        self.not_kept += not kept


def frames_key(content_sha256: str, piece: Visual, sampling: FrameSampling) -> str:
    """The name of an entry: a hash of all that its pixels depend on. The path is not among it."""
    span: str | list[float | None] = "image"
    if isinstance(piece, FrameFiles):
        span = [*piece.times_s, piece.end_s]
    elif isinstance(piece, VideoSegment):
        span = [None if time_s is None else float(time_s) for time_s in (piece.start_s, piece.end_s)]
    what = {
        "format": FORMAT,
        "written_with": _versions(),
        "content": content_sha256,
        "span": span,
        "sampling": sampling.as_recorded() | {"fps": float(sampling.fps)},
    }
    if sampling.side_step != SIDE_STEP:
        what["side_step"] = sampling.side_step
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def pack_frames(frames: Frames, key: str) -> bytes:
    """An entry: checksum, header, times, and the differences of neighbouring rows of pixels, compressed."""
    rows_FHWC = frames.pixels_FHWC.copy()
    rows_FHWC[:, 1:] -= frames.pixels_FHWC[:, :-1]
    body = pa.Codec("zstd", compression_level=1).compress(np.ascontiguousarray(rows_FHWC), asbytes=True)
    header = {"shape": frames.pixels_FHWC.shape, "reader": frames.reader}
    return seal(key, header, frames.times_s.astype("<f8").tobytes(), body)


def unpack_frames(entry: bytes, key: str) -> Frames:
    """The frames of an entry, bit for bit those that were packed; `DamagedEntryError` if they cannot be."""
    header, rest = unseal(entry, key)
    shape = tuple(header["shape"])
    times_s = np.frombuffer(rest, "<f8", shape[0]).astype(np.float64)
    rows = pa.Codec("zstd").decompress(rest[times_s.nbytes :], math.prod(shape))
    pixels_FHWC = np.frombuffer(rows, np.uint8).reshape(shape).copy()
    for row in range(1, shape[1]):
        pixels_FHWC[:, row] += pixels_FHWC[:, row - 1]
    return Frames(pixels_FHWC, times_s, header["reader"])


class FileHashes:
    """The content hash of files, remembered on disk, so that a large file is read for it once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, tuple[FileStamp, str]] = {}

    def of_piece(self, piece: Visual | Audio, stamps: Sequence[FileStamp], media_root: str | Path | None) -> str:
        """The hash of a piece's file; of several files, the hash of theirs in order. Errors as `of`."""
        files = [media_path(path, media_root) for path in media_paths(piece)]
        hashes = [self.of(*each) for each in zip(files, stamps, strict=True)]
        return hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest()

    def of(self, file: Path, stamp: FileStamp) -> str:
        """SHA-256 of the file that had this stamp; `MediaError` if it is unreadable or has changed since."""
        name = str(file.absolute())
        if (known := self._known.get(name)) is not None and known[0] == stamp:
            return known[1]
        path = sharded(self._directory / "hashes", hashlib.sha256(name.encode()).hexdigest())
        sha256 = _remembered(path, stamp)
        if sha256 is None:
            sha256 = _hash_now(file, stamp)
            if abs(time.time_ns() - stamp.ctime_ns) < _SETTLED_NS:
                return sha256
            with suppress(OSError):  # a cache that cannot be written to is reported when frames are stored
                write_whole(self._directory, path, json.dumps({"stamp": stamp, "sha256": sha256}).encode())
        self._known[name] = stamp, sha256
        return sha256


def _remembered(path: Path, stamp: FileStamp) -> str | None:
    try:
        record = json.loads(path.read_bytes())
        return record["sha256"] if tuple(record["stamp"]) == stamp else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _hash_now(file: Path, stamp: FileStamp) -> str:
    try:
        sha256 = sha256_of(file)
    except OSError as error:
        raise MediaError(f"{file}: cannot be read, got {error.strerror}; check its permissions and its disk") from error
    if file_stamp(file) != stamp:
        raise MediaError(f"{file}: changes while it is read, got another size or time; wait until it is complete")
    return sha256


@cache
def _versions() -> dict[str, str]:
    """Versions of what makes the pixels; a package that is missing here counts too."""
    versions = {}
    for name in _WRITTEN_WITH:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "none"
    return versions
