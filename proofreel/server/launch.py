"""Loading a verifier into a service, and running it until a signal ends it gracefully."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import subprocess
import sys
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
from .uploads import Uploads


class DrainingServer(uvicorn.Server):
    """Uvicorn, but the first signal lets requests in progress end while new ones get 503; the second one ends it."""

    def __init__(self, service: Service, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._service, self._drain_until = service, 0.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called in the main thread, between its other steps."""
        if self._service.app.draining:
            self.force_exit, self.should_exit = self.should_exit, True
            return
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
    Path(cache).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="uploads-", dir=frames.directory))
    root.uploads = Uploads(folder, limits.max_upload, limits.uploads)
    library = Library(
        None if root.folder is None else str(root.folder),
        str(frames.directory),
        limits.cache_gib,
        verifier.encoder.sampling,
        limits.max_span_s,
        limits.max_pixels,
    )
    return Service(verifier, Path(directory).resolve().name, root, library, limits)


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
        with swept(service.uploads.folder):
            asyncio.run(server_of(service).serve([bound]))


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
