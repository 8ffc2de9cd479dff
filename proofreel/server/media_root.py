"""The one folder a server reads media from, and what requests bring. Names are resolved here, or refused, before a
file is opened.

A path is relative, holds no `..`, and after all symbolic links lies below the root, which is then the name everything
else uses. Somebody who can write into the root while a request runs can still swap a file: the root is trusted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from proofreel.core import ConfigError

from .settings import RefusedError
from .uploads import PREFIX, Uploads

MAX_PATH_CHARS = 1024
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif")
VIDEO_SUFFIXES = (".mp4", ".m4v", ".mkv", ".webm", ".mov", ".avi", ".mpg", ".mpeg", ".ts", ".wmv")


class MediaRoot:
    """Names of files below one folder; without a folder, only what requests bring is read."""

    def __init__(self, folder: str | Path | None, max_bytes: int, uploads: Uploads | None = None) -> None:
        """`ConfigError` if the folder is not one."""
        if folder is not None and not Path(folder).is_dir():
            raise ConfigError(f"media root: not a folder, got {folder}; give the folder that holds the media")
        self.folder = None if folder is None else Path(os.path.realpath(folder))
        self.max_bytes, self.uploads = max_bytes, uploads

    def find(self, path: str) -> str:
        """The name below the root of the regular file that `path` means, all links resolved.

        `upload:NAME` and data URLs mean files of the uploads, by their full path.

        Raises:
            RefusedError: 400 a name that cannot be one, 403 outside the root, 404 nothing there, 413 too large, 415 no
                media.
        """
        if self.uploads is not None and path.startswith(PREFIX):
            return self.uploads.find(path)
        if self.uploads is not None and path[:5].lower() == "data:":
            return self.uploads.find(self.uploads.keep_url(path))
        if self.folder is None:
            raise RefusedError(403, f"path: this server reads no media, got {path[:100]!r}; start it with --media-root")
        if not path or len(path) > MAX_PATH_CHARS or "\0" in path:
            raise RefusedError(
                400, f"path: not the name of a file, got {path[:100]!r}; give a path below the media root"
            )
        relative = PurePosixPath(path)
        if relative.is_absolute() or ".." in relative.parts:
            raise RefusedError(403, f"path: leads out of the media root, got {path!r}; give a plain path below it")
        try:
            real = Path(os.path.realpath(self.folder / relative))
            inside = real.is_relative_to(self.folder)
            status = real.stat() if inside else None
        except (FileNotFoundError, NotADirectoryError):
            raise RefusedError(404, f"path: no such file below the media root, got {path!r}; see GET /clips") from None
        except (OSError, ValueError):
            raise RefusedError(400, f"path: its status cannot be read, got {path!r}; give another file") from None
        if status is None:
            raise RefusedError(
                403, f"path: a link that leads out of the media root, got {path!r}; copy the file into it"
            )
        if not stat.S_ISREG(status.st_mode):
            raise RefusedError(400, f"path: not a regular file, got {path!r}; give the media file itself")
        if status.st_size > self.max_bytes:
            size = f"{path!r} with {status.st_size} bytes of at most {self.max_bytes}"
            raise RefusedError(413, f"path: file is too large, got {size}; cut it, or raise --max-media")
        return real.relative_to(self.folder).as_posix()

    def find_url(self, url: str) -> tuple[str, float, float | None]:
        """(path, start_s, end_s) of `clip.mp4#t=2.5,9`, as a relative path or a file: URL of this machine.

        The fragment is that of W3C's Media Fragments, in plain seconds. data: and upload: are read as `find` reads
        them; no other scheme is followed.
        """
        if url[:5].lower() == "data:" or url.startswith(PREFIX):
            name, _, fragment = url.partition("#")
            return self.find(name), *_fragment(fragment)
        try:
            parts = urlsplit(url)
        except ValueError:
            raise RefusedError(400, f"url: not a URL, got {url[:100]!r}; give a path below the media root") from None
        if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
            raise RefusedError(
                403, f"url: only files below the media root are read, got {url[:100]!r}; give such a path"
            )
        path = unquote(parts.path)
        if parts.scheme == "file" and self.folder is not None and path.startswith(f"{self.folder}/"):
            path = path[len(str(self.folder)) + 1 :]
        return self.find(path), *_fragment(parts.fragment)

    def clips(self, most: int = 1000) -> list[dict[str, Any]]:
        """`{path, bytes, kind}` of videos and images below the root, by name, at most `most`; links are left out."""
        clips = []
        for path in self._walk():
            try:
                if self.find(path) == path:
                    size = (Path(str(self.folder)) / path).stat().st_size
                    clips.append({"path": path, "bytes": size, "kind": kind_of(path)})
            except (RefusedError, OSError):
                continue
            if len(clips) == most:
                break
        return clips

    def hide(self, message: str) -> str:
        """A message without the places of the root and the uploads on this machine."""
        message = message if self.uploads is None else self.uploads.hide(message)
        return message if self.folder is None else message.replace(f"{self.folder}/", "")

    def _walk(self) -> Iterator[str]:
        if self.folder is None:
            return
        for folder, folders, names in os.walk(self.folder):
            folders.sort()
            for name in sorted(names):
                if name.lower().endswith((*VIDEO_SUFFIXES, *IMAGE_SUFFIXES)):
                    yield (Path(folder) / name).relative_to(self.folder).as_posix()


def kind_of(path: str) -> str:
    """ "image" or "video", by the end of a name."""
    return "image" if path.lower().endswith(IMAGE_SUFFIXES) else "video"


def _fragment(fragment: str) -> tuple[float, float | None]:
    """Start and end in seconds of `t=2.5,9`, `t=2.5` or nothing."""
    if not fragment:
        return 0.0, None
    start, _, end = fragment.removeprefix("t=").removeprefix("npt:").partition(",")
    try:
        return float(start or 0), float(end) if end else None
    except ValueError:
        raise RefusedError(400, f"url: not a span, got {fragment[:50]!r}; write #t=START,END in seconds") from None
