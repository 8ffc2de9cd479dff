"""Loading a verifier into a service, and running it until a signal ends it gracefully."""

from __future__ import annotations

import asyncio
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from proofreel.core import ConfigError
from proofreel.data_prep.media import FrameCache
from proofreel.models.verifier import Verifier

from .app import Service
from .media import Library
from .media_root import MediaRoot
from .settings import Settings


class DrainingServer(uvicorn.Server):
    """Uvicorn, but the first signal lets requests in progress end while new ones get 503; the second one ends it."""

    def __init__(self, service: Service, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._service, self._drain_until = service, 0.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called in the main thread, between its other steps."""
        if self._service.app.draining:
            super().handle_exit(sig, frame)
            return
        self._captured_signals.append(sig)
        self._service.app.draining = True
        self._drain_until = time.monotonic() + self._service.limits.drain_s

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        if self._service.app.draining and (not self._service.app.in_flight or time.monotonic() > self._drain_until):
            self.should_exit = True
        return await super().on_tick(counter)


def load(
    directory: str | Path,
    media_root: str | Path | None,
    limits: Settings,
    cache: str | Path,
    **how: Any,
) -> Service:
    """A service of the verifier in `directory`, with frames kept in `cache`; `how` goes to `from_pretrained`."""
    root = MediaRoot(media_root, limits.max_media)
    frames = FrameCache(cache, limits.cache_gib, limits.decode_s)
    verifier = Verifier.from_pretrained(directory, media_root=root.folder, frame_cache=frames, **how)
    library = None
    if root.folder is not None:
        sampling = verifier.encoder.sampling
        library = Library(str(root.folder), str(frames.directory), limits.cache_gib, sampling, limits.max_span_s)
    return Service(verifier, root, library, limits)


def server_of(service: Service) -> DrainingServer:
    """A server that is not yet bound; give `serve` a socket of `listen`."""
    config = uvicorn.Config(
        service.app,  # type: ignore[arg-type]
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=max(1, round(service.limits.drain_s)),
        backlog=2048,
    )
    return DrainingServer(service, config)


@contextmanager
def listen(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket; port 0 takes a free one. `ConfigError` if the address cannot be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(
            f"host: cannot listen there, got {error.strerror} for {host}:{port}; choose another"
        ) from error
    with bound:
        yield bound


def run(service: Service, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM; the address is printed once connections are taken."""
    with listen(host, port) as bound, suppress(KeyboardInterrupt):
        name, number = bound.getsockname()[:2]
        shown = f"[{name}]" if ":" in name else name
        print(f"serving {service.verifier.fingerprint[:12]} on http://{shown}:{number}", flush=True)
        previous = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # uvicorn raises it again when it is done
        try:
            asyncio.run(server_of(service).serve([bound]))
        finally:
            signal.signal(signal.SIGTERM, previous)


@contextmanager
def cache_folder(given: str | None) -> Iterator[str]:
    """The folder for frames; without one, a temporary one that goes when the server ends."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="proofreel-frames-") as folder:
        yield folder
