"""The page at `/`, and what it shows of the media root: clips, lengths, thumbnails, and the frames the verifier sees.

One HTML file that may run its own script and talk to its own server, and nothing else. Apart from the routes because
this policy is a security boundary.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, HTMLResponse, Response

from proofreel.core import Image, VideoSegment, media_path, span_problems

from .media import Library, MediaPool, Task, describe, picture, thumbnail
from .media_root import MediaRoot, kind_of
from .settings import RefusedError, brief

PAGE = Path(__file__).parent / "page.html"


@cache
def page() -> Response:
    """The page with a content security policy that names its script and style by their hashes."""
    text = PAGE.read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src {_hashes(text, 'script')}; style-src {_hashes(text, 'style')}; "
        "img-src data: blob:; media-src 'self' blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
    return HTMLResponse(text, headers=headers)


def _hashes(text: str, tag: str) -> str:
    parts = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'" for part in parts)


MOST_WAITING = 64
"""Tasks; a page asks for a few at a time."""


MEDIA_TYPES = {
    ".mp4": "video/mp4",
    ".m4v": "video/mp4",
    ".mov": "video/mp4",
    ".webm": "video/webm",
    ".mkv": "video/webm",
    ".ogv": "video/ogg",
}
_FILE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": "private",
}


class Pictures:
    """Pictures of the files below the media root, made by a pool of their own, so that no page slows the verdicts."""

    def __init__(self, root: MediaRoot, library: Library, pool: MediaPool, secret: bytes) -> None:
        """`secret` makes the keys of files; servers that share it take each other's."""
        self._root, self._library, self._pool, self._waiting = root, library, pool, 0
        self._secret = secret

    async def clips(self) -> dict[str, Any]:
        """The videos below the media root."""
        return {"clips": await run_in_threadpool(self._root.clips)}

    async def clip(self, path: str) -> dict[str, Any]:
        """Length and size of one video or image, and the address that plays it.

        A player sends no token; so the address carries a key, which only who may ask here gets, for this file alone.
        """
        described = await self._ask(describe, await self._find(path))
        address = urlencode({"path": path, "key": self._key(path)})
        return described | {"path": path, "media": f"media?{address}"}

    async def media(self, path: str, key: str) -> FileResponse:
        """The file itself, or the range of it that a player asks for."""
        if not hmac.compare_digest(key.encode(), self._key(path).encode()):
            raise RefusedError(403, f"key: not that of this file, got {brief(key)}; take the address that /clip gives")
        name = await self._find(path)
        kind = MEDIA_TYPES.get(Path(name).suffix.lower())
        if kind is None:
            raise RefusedError(415, f"path: no browser plays it, got {brief(path)}; convert it to MP4 or WebM")
        return FileResponse(media_path(name, self._library.root), media_type=kind, headers=_FILE_HEADERS)

    async def thumbnail(self, path: str) -> bytes:
        """A JPEG of one video."""
        return await self._ask(thumbnail, await self._find(path))

    async def frames(self, path: str, start_s: float, end_s: float | None) -> dict[str, Any]:
        """The frames of a span that the verifier looks at, or an image, as data URLs."""
        if problems := list(span_problems(start_s, end_s)):
            raise RefusedError(400, f"frames: {'; '.join(problems)}")
        name = await self._find(path)
        frames = await self._ask(
            picture, Image(name) if kind_of(name) == "image" else VideoSegment(name, start_s, end_s)
        )
        shown = [{"time_s": t, "jpeg": "data:image/jpeg;base64," + base64.b64encode(j).decode()} for t, j in frames]
        return {"path": path, "frames": shown}

    def _key(self, path: str) -> str:
        return hmac.new(self._secret, path.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()

    async def _find(self, path: str) -> str:
        return await run_in_threadpool(self._root.find, path)

    async def _ask(self, do: Any, given: Any) -> Any:
        if self._waiting >= MOST_WAITING:
            raise RefusedError(429, f"pictures: busy, got {self._waiting} requests waiting; try again in 1 s", 1)
        self._waiting += 1
        try:
            return await asyncio.wrap_future(self._pool.submit(Task(do, self._library, given)))
        finally:
            self._waiting -= 1
