"""Everything that opens a media file, in child processes with a deadline: a file that hangs its decoder fails alone.

A child decodes a request's frames and images into the frame cache, from which the network's thread then reads them; it
also makes the pictures of the page. This process decodes nothing: not in the network's thread, nor where it answers
requests.
"""

from __future__ import annotations

import io
import math
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image as PILImage

from proofreel.core import Evidence, Image, MediaError, VideoSegment, Visual, media_path, media_paths
from proofreel.data_prep.media import (
    FileStamp,
    FrameCache,
    FrameSampling,
    Outcome,
    file_stamp,
    image_size,
    probe,
    read_frames,
    read_media_piece,
    run_guarded,
)

from .media_root import kind_of

PICTURE_PIXELS = (28 * 28, 320 * 200)
"""Bounds on one frame of the page."""
IMAGE_PIXELS = (28 * 28, 960 * 640)
"""Bounds on an image of the page."""

_NAMED = 8  # files of a task that messages name


@dataclass(frozen=True)
class Library:
    """Where media lie and where their frames are kept; what the children need to know."""

    root: str | None
    cache: str
    cache_gib: float
    sampling: FrameSampling
    max_span_s: float
    max_pixels: int


@dataclass(frozen=True)
class Task:
    """A function of this module, and the evidence it is called with."""

    do: Callable[[Library, Any], Any]
    library: Library
    given: Any


class HangingFiles:
    """Files that a decoder hung or died on, remembered until they change, so that each costs one deadline at most."""

    def __init__(self, most: int = 4096) -> None:
        self._known: OrderedDict[str, tuple[FileStamp, str]] = OrderedDict()
        self._lock, self._most = threading.Lock(), most

    def reason(self, files: list[str]) -> str | None:
        """The stored message for the first of these files that failed before and has not changed since."""
        with self._lock:
            known = [(file, *self._known[file]) for file in files if file in self._known]
        return next((reason for file, stamp, reason in known if _stamp(file) == stamp), None)

    def remember(self, file: str, reason: str) -> None:
        """Remember a file's failure until the file changes."""
        if (stamp := _stamp(file)) is None:
            return
        with self._lock:
            self._known[file] = stamp, reason
            while len(self._known) > self._most:
                self._known.popitem(last=False)


class MediaPool:
    """A few child processes that answer one task each at a time."""

    def __init__(self, workers: int, timeout_s: float, hanging: HangingFiles) -> None:
        self._tasks: queue.SimpleQueue[tuple[Task, Future[Any]] | None] = queue.SimpleQueue()
        self._timeout_s, self._hanging = timeout_s, hanging
        self._threads = [threading.Thread(target=self._serve, daemon=True, name=f"media-{i}") for i in range(workers)]
        for thread in self._threads:
            thread.start()

    def submit(self, task: Task) -> Future[Any]:
        """The task's value, or `MediaError` with the reason."""
        future: Future[Any] = Future()
        if (reason := self._hanging.reason(_files(task))) is not None:
            future.set_exception(MediaError(reason))
        else:
            self._tasks.put((task, future))
        return future

    def close(self) -> None:
        """No more tasks; children end when theirs are done, or with this process."""
        for _ in self._threads:
            self._tasks.put(None)

    def _serve(self) -> None:
        requests: list[tuple[Task, Future[Any]]] = []
        while True:
            try:
                for outcome in run_guarded(_work, self._given(requests), 1, self._timeout_s, _name):
                    self._tell(*requests.pop(), outcome)
                return
            except Exception as error:  # a child that cannot even start; the next task tries again
                if requests:
                    requests.pop()[1].set_exception(MediaError(f"media reader: cannot start, got {error}; see the log"))

    def _tell(self, task: Task, future: Future[Any], outcome: Outcome[Any]) -> None:
        if outcome.error is None:
            future.set_result(outcome.value)
            return
        files = _files(task)
        fatal = outcome.error.startswith((f"{_name(task)}: reader hung", f"{_name(task)}: reader died"))
        if fatal and len(files) == 1:  # of several it is unknown which one it was
            self._hanging.remember(files[0], outcome.error)
        future.set_exception(MediaError(outcome.error))

    def _given(self, requests: list[tuple[Task, Future[Any]]]) -> Iterator[Task]:
        while (entry := self._tasks.get()) is not None:
            task, future = entry
            if future.set_running_or_notify_cancel():
                requests.append(entry)
                yield task


def prepare(library: Library, evidence: tuple[Evidence, ...]) -> None:
    """Check every video and image of an evidence, and decode its frames and images into the cache.

    Raises:
        MediaError: unreadable, no such span, or a span or image larger than is allowed.
    """
    for piece in evidence:
        if isinstance(piece, VideoSegment):
            info = probe(piece.path, library.root)
            length_s = (info.duration_s if piece.end_s is None else piece.end_s) - piece.start_s
            if length_s > library.max_span_s:
                raise MediaError(
                    f"{piece.path}: span is too long, got {length_s:.1f} of at most {library.max_span_s:g} s; "
                    "shorten it, or raise --max-span-s"
                )
        elif isinstance(piece, Visual):
            for path in media_paths(piece):
                _check_pixels(library, path)
        if isinstance(piece, Visual):
            _cache(library.cache, library.cache_gib).read(piece, library.sampling, library.root)


def describe(library: Library, path: str) -> dict[str, Any]:
    """Length and size of a video; size of an image."""
    if kind_of(path) == "image":
        height, width = _check_pixels(library, path)
        return {"path": path, "kind": "image", "width": width, "height": height}
    info = probe(path, library.root)
    size = {"width": info.width, "height": info.height}
    return {"path": path, "kind": "video", "duration_s": info.duration_s, **size, "fps": info.fps}


def picture(library: Library, piece: Visual) -> list[tuple[float | None, bytes]]:
    """(time in seconds, JPEG) of what a verifier looks at in a segment or image, large enough for a person."""
    if isinstance(piece, Image):
        _check_pixels(library, piece.path)
        return [(None, _jpeg(read_media_piece(piece, _pictures(library, IMAGE_PIXELS), library.root).pixels_FHWC[0]))]
    frames = read_media_piece(piece, _pictures(library, PICTURE_PIXELS), library.root)
    times_s = [float(t) for t in frames.times_s]
    return [(t, _jpeg(pixels)) for t, pixels in zip(times_s, frames.pixels_FHWC, strict=True) if math.isfinite(t)]


def thumbnail(library: Library, path: str) -> bytes:
    """A JPEG from the middle of a video, or of an image."""
    if kind_of(path) == "image":
        _check_pixels(library, path)
        return _jpeg(
            read_media_piece(Image(path), _pictures(library, (28 * 28, 160 * 100)), library.root).pixels_FHWC[0]
        )
    duration_s = probe(path, library.root).duration_s
    two = FrameSampling(fps=1.0, min_frames=2, max_frames=2, min_pixels=28 * 28, max_pixels=160 * 100)
    return _jpeg(read_frames(VideoSegment(path, 0.0, duration_s), two, library.root).pixels_FHWC[1])


def _check_pixels(library: Library, path: str) -> tuple[int, int]:
    """(height, width) of an image, from its header, before a pixel is decoded; `MediaError` if it is too large."""
    height, width = image_size(path, library.root)
    if height * width > library.max_pixels:
        raise MediaError(
            f"{path}: image is too large, got {width} x {height} of at most {library.max_pixels} pixels; "
            "shrink it, or raise --max-pixels"
        )
    return height, width


def _pictures(library: Library, pixels: tuple[int, int]) -> FrameSampling:
    return replace(library.sampling, min_pixels=pixels[0], max_pixels=pixels[1])


def _work(task: Task) -> Any:
    return task.do(task.library, task.given)


def _paths(task: Task) -> list[str]:
    pieces = task.given if isinstance(task.given, tuple) else (task.given,)
    return sorted({path for p in pieces for path in ((p,) if isinstance(p, str) else media_paths(p))})


def _files(task: Task) -> list[str]:
    return [str(media_path(path, task.library.root)) for path in _paths(task)]


def _name(task: Task) -> str:
    paths = _paths(task)
    more = [f"{len(paths) - _NAMED} more"] if len(paths) > _NAMED else []
    return " and ".join([*paths[:_NAMED], *more])


def _stamp(file: str) -> FileStamp | None:
    try:
        return file_stamp(Path(file))
    except MediaError:
        return None


def _jpeg(pixels_HWC: Any) -> bytes:
    file = io.BytesIO()
    PILImage.fromarray(pixels_HWC).save(file, "JPEG", quality=85)
    return file.getvalue()


@lru_cache(maxsize=1)
def _cache(folder: str, max_gib: float) -> FrameCache:
    return FrameCache(Path(folder), max_gib, timeout_s=None)  # the deadline is this process's own
