"""The page at `/`, and what it shows of the media root: clips, lengths, thumbnails, and the frames the verifier sees.

One HTML file that may run its own script and talk to its own server, and nothing else. Apart from the routes because
this policy is a security boundary.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, Response

from proofreel.core import VideoSegment, span_problems

from .media import Library, MediaPool, Task, describe, picture, thumbnail
from .media_root import MediaRoot
from .settings import RefusedError

PAGE = Path(__file__).parent / "page.html"


@cache
def page() -> Response:
    """The page with a content security policy that names its script and style by their hashes."""
    text = PAGE.read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src {_hashes(text, 'script')}; style-src {_hashes(text, 'style')}; "
        "img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
    return HTMLResponse(text, headers=headers)


def _hashes(text: str, tag: str) -> str:
    parts = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'" for part in parts)


MOST_WAITING = 64
"""Tasks; a page asks for a few at a time."""


class Pictures:
    """Pictures of the files below the media root, made by a pool of their own, so that no page slows the verdicts."""

    def __init__(self, root: MediaRoot, library: Library | None, pool: MediaPool) -> None:
        self._root, self._library, self._pool, self._waiting = root, library, pool, 0

    async def clips(self) -> dict[str, Any]:
        """The videos below the media root."""
        return {"clips": await run_in_threadpool(self._root.clips)}

    async def clip(self, path: str) -> dict[str, Any]:
        """Length and size of one video."""
        return await self._ask(describe, await self._find(path))

    async def thumbnail(self, path: str) -> bytes:
        """A JPEG of one video."""
        return await self._ask(thumbnail, await self._find(path))

    async def frames(self, path: str, start_s: float, end_s: float | None) -> dict[str, Any]:
        """The frames of a span that the verifier looks at, as data URLs."""
        if problems := list(span_problems(start_s, end_s)):
            raise RefusedError(400, f"frames: {'; '.join(problems)}")
        segment = VideoSegment(await self._find(path), start_s, end_s)
        frames = await self._ask(picture, segment)
        shown = [{"time_s": t, "jpeg": "data:image/jpeg;base64," + base64.b64encode(j).decode()} for t, j in frames]
        return {"path": segment.path, "frames": shown}

    async def _find(self, path: str) -> str:
        return await run_in_threadpool(self._root.find, path)

    async def _ask(self, do: Any, given: Any) -> Any:
        assert self._library is not None  # else no path was found
        if self._waiting >= MOST_WAITING:
            raise RefusedError(429, f"pictures: busy, got {self._waiting} requests waiting; try again in 1 s", 1)
        self._waiting += 1
        try:
            return await asyncio.wrap_future(self._pool.submit(Task(do, self._library, given)))
        finally:
            self._waiting -= 1
