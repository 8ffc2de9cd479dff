"""Media that requests bring with them, as data URLs or uploads: kept as files of a folder that goes with the server.

Only bytes that begin as a picture or video of a known kind are kept, under a name that is their hash and their kind; a
playlist or a text, which a decoder might follow elsewhere, is refused. The folder never exceeds its limit.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.concurrency import run_in_threadpool

from proofreel.core import EntryStore

from .settings import RefusedError, brief

PREFIX = "upload:"
_NAME = re.compile(r"[0-9a-f]{64}\.[a-z0-9]+")
_HEAD = 512  # bytes that tell a file's kind


class Uploads:
    """Files by the hash of their content, in a folder that several servers may share. Any thread may call."""

    def __init__(self, folder: Path, max_file: int, max_total: int, shared: bool = False) -> None:
        """The folder must be there; it goes with this server unless it is shared."""
        self.folder, self._max_file, self._shared = folder, max_file, shared
        self._store = EntryStore(folder, max(max_file, max_total))

    async def receive(self, chunks: AsyncIterator[bytes]) -> str:
        """The name of a file that arrives in pieces; it is written as it comes, never held in memory whole.

        Raises:
            RefusedError: 413 too large, 415 no media.
        """
        digest, size, head = hashlib.sha256(), 0, b""
        with self._store.unfinished() as unfinished:
            with unfinished.open("wb") as file:
                async for chunk in chunks:
                    size += len(chunk)
                    self._check_size(size)
                    head += chunk[: _HEAD - len(head)]
                    digest.update(chunk)
                    await run_in_threadpool(file.write, chunk)
            return await run_in_threadpool(self._keep, unfinished, digest.hexdigest(), head)

    def keep_url(self, url: str) -> str:
        """The name of the file that a base64 data URL holds.

        Raises:
            RefusedError: 400 another encoding, 413 too large, 415 no media.
        """
        head, comma, text = url.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            raise RefusedError(400, f"url: not a base64 data URL, got {brief(head)}; write data:image/png;base64,...")
        self._check_size(len(text) * 3 // 4 - 2)
        try:
            content = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise RefusedError(400, f"url: not base64, got {brief(text, 20)}; encode the file again") from None
        with self._store.unfinished() as unfinished:
            unfinished.write_bytes(content)
            return self._keep(unfinished, hashlib.sha256(content).hexdigest(), content[:_HEAD])

    def find(self, name: str) -> str:
        """The path of an uploaded file; finding it is using it. `RefusedError` 404 if it is not here any more."""
        key = name.removeprefix(PREFIX)
        file = self._store.find(key) if _NAME.fullmatch(key) else None
        if file is None:
            raise RefusedError(404, f"path: no such upload, got {brief(name)}; send the file to POST /upload again")
        return str(file)

    def hide(self, message: str) -> str:
        """A message without the place of the folder on this machine."""
        return re.sub(rf"{re.escape(str(self.folder))}/(entries/../)?", PREFIX, message)

    def close(self) -> None:
        """Remove the folder, if it is this server's own."""
        if not self._shared:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _check_size(self, size: int) -> None:
        if size > self._max_file:
            raise RefusedError(
                413, f"upload: too large, got more than {self._max_file} bytes; cut it, or raise --max-upload"
            )

    def _keep(self, unfinished: Path, sha256: str, head: bytes) -> str:
        suffix = media_suffix(head)
        if suffix is None:
            raise RefusedError(
                415,
                f"upload: no picture or video of a known kind, got {brief(head[:12])}; send JPEG, PNG, MP4, WebM, ...",
            )
        name = f"{sha256}{suffix}"
        self._store.adopt(name, unfinished)  # a file that is there stays as it is, and what was read of it stays known
        self._store.find(name)  # this is its use
        return PREFIX + name


def media_suffix(head: bytes) -> str | None:
    """The suffix of the kind of file that begins so; None unless it is a picture or video of a known kind."""
    for start, suffix in _STARTS.items():
        if head.startswith(start):
            return suffix
    if head[4:8] == b"ftyp":
        return ".avif" if head[8:12] in (b"avif", b"avis") else ".mp4"
    if head[:4] == b"RIFF":
        return {b"WEBP": ".webp", b"AVI ": ".avi"}.get(head[8:12])
    if head[:1] == b"G" and head[188:189] == b"G":
        return ".ts"
    return None


_STARTS = {
    b"\xff\xd8\xff": ".jpg",
    b"\x89PNG\r\n\x1a\n": ".png",
    b"GIF87a": ".gif",
    b"GIF89a": ".gif",
    b"\x1aE\xdf\xa3": ".webm",
    b"\x00\x00\x01\xba": ".mpg",
    b"OggS": ".ogv",
}
