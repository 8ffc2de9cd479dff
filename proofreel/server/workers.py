"""Several processes that serve one verifier on one socket: who starts them, starts a dead one again, and ends them all.

Each is a whole server with a queue, limits and caches of its own; the system hands every new connection to one of them.
They share what a request may meet again: decoded frames, uploads, keys of files, and counters.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TextIO

from prometheus_client.multiprocess import mark_process_dead

from proofreel.core import ConfigError

from .app import Service
from .launch import Serving, Shared, cache_folder, listen, swept, url_of
from .middleware import SHARED_COUNTS

WORKER = "PROOFREEL_WORKER"  # of a worker's environment: its `Post`
MOST_RESTARTS = 3
SETTLED_S = 60.0
"""A worker that ends this soon after it was started has failed; after `MOST_RESTARTS` of these in a row all end."""
_TICK_S = 0.1


@dataclass(frozen=True)
class Post:
    """What a worker is told: its number, descriptors of the socket and of the pipe it says it is ready on, folders."""

    number: int
    socket: int
    ready: int
    cache: str
    shared: Shared

    @classmethod
    def of_environment(cls) -> Post | None:
        """This process's, if it is a worker; its own children are none."""
        text = os.environ.pop(WORKER, None)
        if text is None:
            return None
        values = json.loads(text)
        return cls(**{**values, "shared": Shared(**values["shared"])})

    def device(self, asked: str | None) -> str | None:
        """Where this worker computes: of several GPUs its own, by its number."""
        import torch

        if asked not in (None, "cuda") or not torch.cuda.is_available():
            return asked
        return f"cuda:{self.number % torch.cuda.device_count()}"

    def serve(self, service: Service) -> None:
        """Take connections until told to stop, or until who started this is gone."""
        with socket.socket(fileno=self.socket) as bound, closing(service.uploads):
            serving = Serving(service, bound, one_at_a_time=True)
            serving.heed_signals()
            threading.Thread(target=lambda: (sys.stdin.read(), serving.stop()), daemon=True).start()
            with os.fdopen(self.ready, "w") as told:
                told.write(service.verifier.fingerprint)
            serving.run()


class Workers:
    """The processes that serve on one socket."""

    def __init__(self, words: Sequence[str], n: int, bound: socket.socket, cache: str, counts: str) -> None:
        """`words` are those of `proofreel serve`; `counts` is a folder for counters."""
        self._words, self._n, self._bound, self._cache, self._counts = list(words), n, bound, cache, counts
        self.shared = Shared.below(cache)
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._ready: dict[int, TextIO] = {}  # open as long as the worker lives: it could not write into a closed pipe
        self._began_s, self._failures = dict.fromkeys(range(n), 0.0), dict.fromkeys(range(n), 0)
        self.stopping = False

    def stop(self, number: int = signal.SIGTERM, frame: FrameType | None = None) -> None:
        """What a signal does: tell every worker, which answers what it has; again, and they wait for nothing."""
        self.stopping = True
        for process in self._processes.values():
            process.terminate()

    def run(self) -> None:
        """Start all, say where they listen, and keep them alive until `stop`; `ConfigError` if they will not stay."""
        try:
            for number in range(self._n):
                self._start(number)
            fingerprints = {self._fingerprint(number) for number in range(self._n)}
            if not self.stopping:
                print(f"serving {min(fingerprints)[:12]} by {self._n} processes on {url_of(self._bound)}", flush=True)
            while not self.stopping:
                time.sleep(_TICK_S)
                self._start_ended()
        finally:
            self._end()

    def _start(self, number: int) -> None:
        """Start a worker, which says its fingerprint into its pipe when it takes connections."""
        reading, writing = os.pipe()
        post = Post(number, self._bound.fileno(), writing, self._cache, self.shared)
        threads = str(max(1, (os.cpu_count() or 1) // self._n))
        environment = {"OMP_NUM_THREADS": threads, **os.environ, WORKER: json.dumps(asdict(post))}
        self._began_s[number] = time.monotonic()
        self._processes[number] = subprocess.Popen(
            [sys.executable, "-m", "proofreel.serve", *self._words],
            env=environment | {SHARED_COUNTS: self._counts},
            stdin=subprocess.PIPE,  # closed by the system when this process is gone
            pass_fds=(self._bound.fileno(), writing),
            start_new_session=True,  # signals come from here alone
            text=True,
        )
        os.close(writing)
        if number in self._ready:
            self._ready[number].close()
        self._ready[number] = os.fdopen(reading)

    def _fingerprint(self, number: int) -> str:
        fingerprint = self._ready[number].read()
        if not fingerprint and not self.stopping:
            raise ConfigError(f"workers: worker {number} did not start, got no answer; its own error stands above")
        return fingerprint

    def _start_ended(self) -> None:
        for number, process in list(self._processes.items()):
            if (status := process.poll()) is None or self.stopping:
                continue
            mark_process_dead(process.pid, self._counts)
            soon = time.monotonic() - self._began_s[number] < SETTLED_S
            self._failures[number] = self._failures[number] + 1 if soon else 1
            if self._failures[number] > MOST_RESTARTS:
                raise ConfigError(
                    f"workers: worker {number} ended {self._failures[number]} times, each within {SETTLED_S:g} s, got "
                    f"status {status}; its own error stands above"
                )
            print(f"worker {number} ended, got status {status}; it is started again", file=sys.stderr, flush=True)
            self._start(number)

    def _end(self) -> None:
        if not self.stopping:
            self.stop()
        for number, process in self._processes.items():
            process.wait()
            self._ready[number].close()


def run_workers(words: Sequence[str], n: int, host: str, port: int, frame_cache: str | None) -> None:
    """Serve by `n` processes until SIGINT or SIGTERM.

    Args:
        words: of `proofreel serve`, as each process takes them.
        n: number of processes.
        host, port: where to listen; port 0 takes a free one.
        frame_cache: folder of decoded frames; None: a temporary one.

    Raises:
        ConfigError: the address cannot be had, or the processes do not stay.
    """
    with (
        listen(host, port) as bound,
        cache_folder(frame_cache) as cache,
        tempfile.TemporaryDirectory(prefix="proofreel-counts-") as counts,
        swept(Path(counts)),
    ):
        workers = Workers(words, n, bound, cache, counts)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, workers.stop)
        with swept(Path(workers.shared.uploads)):
            try:
                workers.run()
            finally:
                shutil.rmtree(workers.shared.uploads, ignore_errors=True)
