"""Loading a verifier into a service, and running it until a signal ends it gracefully."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from proofreel.core import ConfigError
from proofreel.data_prep.media import MAX_IMAGE_PIXELS, FrameCache
from proofreel.models.verifier import Verifier

from .app import Service
from .media import Library
from .media_root import MediaRoot
from .settings import Settings
from .uploads import Uploads

_TICK_S = 0.1
_WAITING = 2048
"""Connections that may wait to be taken."""


@dataclass(frozen=True)
class Shared:
    """What several processes that serve one verifier have in common: a folder of uploads, and a secret in hex."""

    uploads: str
    secret: str = field(repr=False)

    @classmethod
    def below(cls, folder: str | Path) -> Shared:
        """A new one; uploads lie in a folder of their own, below `folder`, which is made if need be."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        return cls(tempfile.mkdtemp(prefix="uploads-", dir=folder), secrets.token_hex(32))


class Serving:
    """A service on a socket. The server runs in a thread of its own, where uvicorn leaves signals alone.

    `stop` is what a signal does: requests in progress are answered and new ones get 503; again, and nothing is waited
    for. Uvicorn alone would close the socket at once, and a balancer would see a machine that is gone, not one that
    says it is leaving.
    """

    def __init__(self, service: Service, bound: socket.socket, one_at_a_time: bool = False) -> None:
        """`one_at_a_time`: take one waiting connection, then see whether another process takes the next.

        Asyncio takes as many at once as may wait; the first of several processes would have most of them.
        """
        self._service, self._bound, self._drain_until = service, bound, math.inf
        self.server = uvicorn.Server(
            uvicorn.Config(
                service.app,  # type: ignore[arg-type]
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=max(1, round(service.limits.drain_s)),
                backlog=1 if one_at_a_time else _WAITING,
            )
        )

    def stop(self, *_: Any) -> None:
        """Called from any thread, or as a handler of signals."""
        if self._service.app.draining:
            self.server.force_exit = self.server.should_exit = True
            return
        self._service.app.draining = True
        self._drain_until = time.monotonic() + self._service.limits.drain_s

    def heed_signals(self) -> None:
        """Have SIGINT and SIGTERM stop it."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.stop)

    def run(self) -> None:
        """Serve until `stop` was called and what was in progress is answered, or `drain_s` are over."""
        thread = threading.Thread(target=lambda: asyncio.run(self.server.serve([self._bound])), daemon=True)
        thread.start()
        waiting = False
        while thread.is_alive():
            thread.join(_TICK_S)
            if self.server.started and not waiting:
                with suppress(OSError):  # stopped already, and closed
                    self._bound.listen(_WAITING)  # uvicorn has set its own number
                waiting = True
            app = self._service.app
            if app.draining and (not app.in_flight or time.monotonic() > self._drain_until):
                self.server.should_exit = True


def load(
    directory: str | Path,
    media_root: str | Path | None,
    limits: Settings,
    cache: str | Path,
    shared: Shared | None = None,
    **how: Any,
) -> Service:
    """A service of the verifier in `directory`, with frames kept in `cache`; `how` goes to `from_pretrained`.

    Several services with the same `shared` and `cache` take each other's uploads and keys.
    """
    if limits.max_pixels > MAX_IMAGE_PIXELS:
        got = f"{limits.max_pixels} of at most {MAX_IMAGE_PIXELS}"
        raise ConfigError(f"max_pixels: larger images are never decoded, got {got}; lower --max-pixels")
    root = MediaRoot(media_root, limits.max_media)
    frames = FrameCache(cache, limits.cache_gib, limits.decode_s)
    verifier = Verifier.from_pretrained(directory, media_root=root.folder, frame_cache=frames, **how)
    Path(cache).mkdir(parents=True, exist_ok=True)
    folder = Path(shared.uploads if shared else tempfile.mkdtemp(prefix="uploads-", dir=frames.directory))
    root.uploads = Uploads(folder, limits.max_upload, limits.uploads, shared=shared is not None)
    library = Library(
        None if root.folder is None else str(root.folder),
        str(frames.directory),
        limits.cache_gib,
        verifier.encoder.sampling,
        limits.max_span_s,
        limits.max_pixels,
    )
    secret = bytes.fromhex(shared.secret) if shared else None
    return Service(verifier, Path(directory).resolve().name, root, library, limits, secret)


def check_exposure(host: str, token: str | None, no_token: bool) -> None:
    """`ConfigError` for a server that others could reach without a token, unless that is said to be meant."""
    if token is None and not no_token and not is_loopback(host):
        raise ConfigError(
            f"token: others can reach this address, got --host {host} without a token; set PROOFREEL_TOKEN or --token, "
            "or say --no-token to let everybody in"
        )
    if token is not None and no_token:
        raise ConfigError("token: given and forbidden, got --no-token with a token; leave one of them out")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens there."""
    return all(ipaddress.ip_address(address).is_loopback for address in _addresses(host))


def own_names(host: str) -> tuple[str, ...]:
    """The names by which requests may call a server that listens there.

    The address itself; where it stands for all addresses (0.0.0.0, ::), this machine's name and addresses.
    """
    if all(ipaddress.ip_address(address).is_unspecified for address in _addresses(host)):
        name = socket.gethostname()
        with suppress(ConfigError):  # a machine that cannot resolve its own name
            return (name, *(_bracketed(address) for address in _addresses(name)))
        return (name,)
    return (_bracketed(host),)


def _addresses(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host or None, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigError(f"host: no such address, got {host!r} ({error.strerror}); choose another") from error
    return sorted({str(address[0]).partition("%")[0] for *_, address in found})


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@contextmanager
def listen(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket; port 0 takes a free one. `ConfigError` if the address cannot be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.create_server((host, port), family=family, backlog=_WAITING)
    except OSError as error:
        raise ConfigError(
            f"host: cannot listen there, got {error.strerror} for {host}:{port}; choose another"
        ) from error
    with bound:
        yield bound


def run(service: Service, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM; the address is printed once connections are taken."""
    with listen(host, port) as bound, swept(service.uploads.folder), closing(service.uploads):
        serving = Serving(service, bound)
        serving.heed_signals()
        print(f"serving {service.verifier.fingerprint[:12]} on {url_of(bound)}", flush=True)
        serving.run()


def url_of(bound: socket.socket) -> str:
    """The address of a socket, for people."""
    name, number = bound.getsockname()[:2]
    return f"http://{_bracketed(name)}:{number}"


@contextmanager
def cache_folder(given: str | None) -> Iterator[str]:
    """The folder for frames; without one, a temporary one that goes when the server ends."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="proofreel-frames-") as folder, swept(Path(folder)):
        yield folder


_SWEEP = """
import shutil, sys, time
sys.stdin.read()
for _ in range(int(sys.argv[2])):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    time.sleep(0.5)
"""
_SWEEPS = 6  # decoders end a second after their server, and may write until then


@contextmanager
def swept(folder: Path) -> Iterator[None]:
    """A folder that is removed even if this process is killed: a child waits for its end, and then removes it."""
    words = [sys.executable, "-I", "-S", "-c", _SWEEP, str(folder), str(_SWEEPS)]
    # a session of its own: Ctrl-C and a supervisor's signals are for the server
    with subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True) as sweeper:
        try:
            yield
        finally:
            sweeper.kill()  # the server has ended by itself, and removes the folder by itself
