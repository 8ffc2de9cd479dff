"""Answers of language models kept on disk, one small JSON file each, so that the same request is sent once.

Apart from the client because it knows no endpoint: it stores files by key, safe against kills and concurrent writers.
A file is written elsewhere, synced, and linked to its name, so a reader sees a whole answer or none. The first of
several concurrent writers wins and all of them return its answer. Files may be copied between folders; what a kill
leaves behind (`.part-*`) is never read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core import ProofreelError
from .answers import Completion


class ReplayError(ProofreelError, LookupError):
    """Replay mode, and the answer to a request was never stored (or its file is damaged)."""


def request_key(request: Mapping[str, Any]) -> str:
    """SHA-256 of the whole request (model, messages, parameters) as canonical JSON.

    Raises:
        ValueError, TypeError: the request is not JSON.
    """
    text = json.dumps(request, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class CompletionsCache:
    """`<directory>/<first two hex digits>/<key>.json`, each holding the request and its completion.

    Of pictures in a request only the hash is kept: thousands of questions may show the same ones.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)

    def path(self, request: Mapping[str, Any]) -> Path:
        """Where the answer to a request is kept."""
        key = request_key(request)
        return self.directory / key[:2] / f"{key}.json"

    def read(self, request: Mapping[str, Any]) -> Completion | None:
        """The stored answer; None if there is none, or if the file is damaged or holds another request's."""
        try:
            stored = json.loads(self.path(request).read_text(encoding="utf-8"))
            same = request_key(stored["request"]) == request_key(_without_pictures(request))
            return _completion(stored["completion"]) if same else None
        except (FileNotFoundError, ValueError, LookupError, TypeError):
            return None

    def write(self, request: Mapping[str, Any], completion: Completion) -> Completion:
        """Keep an answer and return the one that is kept: another writer's if it was there first."""
        path = self.path(request)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".part-{os.getpid()}-{secrets.token_hex(8)}")
        try:
            with part.open("x", encoding="utf-8") as file:
                kept = {"request": _without_pictures(request), "completion": vars(completion)}
                json.dump(kept, file, indent=1, allow_nan=False)
                file.flush()
                os.fsync(file.fileno())
            if _link(part, path):
                return completion
            if kept := self.read(request):
                return kept
            os.replace(part, path)  # what is there is damaged
            return completion
        finally:
            part.unlink(missing_ok=True)


def _without_pictures(value: Any) -> Any:
    """A request with the hash of every data URL in its place."""
    if isinstance(value, Mapping):
        return {name: _without_pictures(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_pictures(inner) for inner in value]
    if isinstance(value, str) and value.startswith("data:image/"):
        return f"{value.partition(',')[0]},sha256:{hashlib.sha256(value.encode()).hexdigest()}"
    return value


def _link(part: Path, path: Path) -> bool:
    """Give the file its name unless the name is taken; False where it is, or where the disk knows no links."""
    with contextlib.suppress(OSError):
        os.link(part, path)
        return True
    return False


def _completion(stored: Any) -> Completion:
    if not isinstance(stored["text"], str):
        raise TypeError("text")
    tokens = tuple((str(token), float(logprob)) for token, logprob in stored["first_tokens"])
    return Completion(**{**stored, "first_tokens": tokens})
