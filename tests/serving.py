"""A real server in this process, on a free port of the loopback, for the tests of `proofreel serve`."""

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hanging import HANGS

from proofreel.server.app import Service
from proofreel.server.launch import Serving, listen, load
from proofreel.server.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
VERIFIER = ROOT / "checkpoints" / "kitchen-verifier"
SAMPLE = ROOT / "examples" / "kitchen" / "sample.mp4"
CLAIMS = ["Action is chopping.", "Tool is knife.", "Ingredient is onion.", "Location is sink.", "Tool is spoon."]


class Running:
    """A server that answers at `url`; `service` is what it serves, `serving.stop` what a signal calls."""

    def __init__(self, url: str, service: Service, serving: Serving, thread: threading.Thread) -> None:
        self.url, self.service, self.serving, self.thread = url, service, serving, thread

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def count(self, name: str, **labels: str) -> float:
        """A sample of its metrics, 0 if there is none."""
        return self.service.measures.registry.get_sample_value(name, labels) or 0.0


@contextmanager
def serving(root: Path | None, cache: Path, **limits: Any) -> Iterator[Running]:
    """The kitchen verifier, served until the block ends."""
    service = load(VERIFIER, root, Settings(**limits), cache, device="cpu", untrained_evidence=True)
    with listen("127.0.0.1", 0) as bound:
        running = Serving(service, bound)
        thread = threading.Thread(target=running.run, daemon=True)
        thread.start()
        while not running.server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        try:
            yield Running(f"http://127.0.0.1:{bound.getsockname()[1]}", service, running, thread)
        finally:
            running.server.should_exit = True
            thread.join(300)
    assert not thread.is_alive()


def media_root(folder: Path) -> Path:
    """A folder of clips: the kitchen's, copies, a broken file, one that hangs its decoder, and traps."""
    folder.mkdir(parents=True)
    for name in ("a.mp4", "b.mp4", HANGS):
        shutil.copy(SAMPLE, folder / name)
    (folder / "day").mkdir()
    shutil.copy(SAMPLE, folder / "day" / "c.mp4")
    (folder / "broken.mp4").write_bytes(b"no video " * 100)
    secret = folder.parent / "secret.mp4"
    shutil.copy(SAMPLE, secret)
    (folder / "out.mp4").symlink_to(secret)
    (folder / "outside").symlink_to(folder.parent)
    (folder / "inside.mp4").symlink_to(folder / "a.mp4")
    (folder / "loop.mp4").symlink_to(folder / "loop.mp4")
    return folder


def raw(port: int, request: bytes, limit_s: float = 30.0) -> bytes:
    """All that the server answers to these bytes before it closes the connection, or goes silent."""
    with socket.create_connection(("127.0.0.1", port), timeout=limit_s) as connection:
        connection.sendall(request)
        found = b""
        try:
            while got := connection.recv(65536):
                found += got
        except (TimeoutError, ConnectionResetError):
            pass
        return found


def until(condition: Any, limit_s: float = 300.0) -> None:
    """Wait for something that will be so."""
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "it never was so"
        time.sleep(0.01)
