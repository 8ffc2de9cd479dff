"""The desk between requests and the network: a bounded queue, media read ahead, and one thread that asks the verifier.

A job is one request's claims about one evidence. Its media are prepared by a child process once, however many jobs wait
for them; then the job is ready. The network's thread takes all that is ready, in order and up to a size, and jobs about
the same evidence are one pass of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from proofreel.core import Evidence, MediaError, Pair, ProofreelError, Visual, evidence_key
from proofreel.data_prep.media import FileStamp, piece_stamps

from .media import Library, MediaPool, Task, describe, prepare
from .middleware import Measures
from .settings import RefusedError, Settings

log = logging.getLogger("proofreel.server")

KNOWN = 4096  # evidences remembered as readable
SICK_AFTER = 3  # batches in a row that the network failed on


class Scorer(Protocol):
    """A verifier, as far as the desk needs it."""

    def score_pairs(self, pairs: Any) -> list[Any]: ...


@dataclass(eq=False)
class Job:
    """Claims of one request about one evidence; the future gets their verdicts, in order."""

    pairs: tuple[Pair, ...]
    future: Future[list[Any]] = field(default_factory=Future)

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The evidence that all pairs share."""
        return self.pairs[0].evidence


class Desk:
    """Takes jobs from any thread; `close` answers what was taken and ends the network's thread."""

    def __init__(
        self, verifier: Scorer, pool: MediaPool, library: Library, limits: Settings, measures: Measures
    ) -> None:
        self._verifier, self._pool, self._library = verifier, pool, library
        self._limits, self._measures = limits, measures
        self._changed = threading.Condition()
        self._pending, self._closed, self.failed_in_a_row = 0, False, 0
        self._preparing: dict[str, list[Job]] = {}
        self._ready: deque[Job] = deque()
        self._readable: OrderedDict[str, list[FileStamp]] = OrderedDict()
        self._claims_per_s = 100.0  # a running estimate
        self._thread = threading.Thread(target=self._serve, daemon=True, name="network")
        self._thread.start()

    @property
    def healthy(self) -> bool:
        """Whether the network's thread runs and its latest batches did not all fail."""
        return self._thread.is_alive() and self.failed_in_a_row < SICK_AFTER

    def submit(self, job: Job) -> None:
        """Take a job, whose future is then answered in any case.

        Raises:
            RefusedError: 429 the queue is full, 503 closed.
            MediaError: a file is gone.
        """
        key = evidence_key(job.evidence)
        stamps = self._stamps(job.evidence)
        with self._changed:
            self._admit(len(job.pairs))
            job.future.add_done_callback(lambda _: self._leave(len(job.pairs)))
            if not stamps or self._readable.get(key) == stamps:
                self._ready.append(job)
                self._changed.notify_all()
                return
            waiting = self._preparing.setdefault(key, [])
            waiting.append(job)
            if len(waiting) > 1:
                return
        reading = self._pool.submit(Task(prepare, self._library, job.evidence))
        reading.add_done_callback(lambda done: self._prepared(key, stamps, done.exception()))

    def examine(self, path: str) -> Future[Any]:
        """Open a video's header in a child; its length and size, or `MediaError`."""
        return self._pool.submit(Task(describe, self._library, path))

    def close(self, timeout_s: float | None = None) -> None:
        """Answer what is ready, then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout_s)

    def _admit(self, n: int) -> None:
        if self._closed:
            raise RefusedError(503, "server: shutting down, got a new request; ask another server", 5)
        if self._pending + n > self._limits.queue:
            wait_s = min(30, max(1, round(self._pending / max(self._claims_per_s, 1.0))))
            load = f"{self._pending} claims waiting of at most {self._limits.queue}"
            raise RefusedError(429, f"server: busy, got {load}; try again in {wait_s} s", wait_s)
        self._count(n)

    def _leave(self, n: int) -> None:
        with self._changed:
            self._count(-n)

    def _count(self, n: int) -> None:
        self._pending += n
        self._measures.queue.set(self._pending)

    def _stamps(self, evidence: tuple[Evidence, ...]) -> list[FileStamp]:
        """The state of each file."""
        root = self._library.root
        return [stamp for e in evidence if isinstance(e, Visual) for stamp in piece_stamps(e, root)]

    def _prepared(self, key: str, stamps: list[FileStamp], error: BaseException | None) -> None:
        with self._changed:
            jobs = self._preparing.pop(key)
            if error is None:
                self._remember(key, stamps)
                self._ready.extend(jobs)
            self._changed.notify_all()
        for job in jobs if error is not None else ():
            _fail(job, error if isinstance(error, ProofreelError) else MediaError(f"media: not read, got {error}"))

    def _remember(self, key: str, stamps: list[FileStamp]) -> None:
        self._readable[key] = stamps
        self._readable.move_to_end(key)
        while len(self._readable) > KNOWN:
            self._readable.popitem(last=False)

    def _serve(self) -> None:
        while jobs := self._take():
            self._answer([job for job in jobs if job.future.set_running_or_notify_cancel()])

    def _take(self) -> list[Job]:
        """The ready jobs, after a short wait in which others may arrive; empty when the desk is closed and done."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready or (self._closed and not self._preparing))
            end = time.monotonic() + self._limits.window_s
            while self._n_ready() < self._limits.batch and (left := end - time.monotonic()) > 0 and not self._closed:
                self._changed.wait(left)
            taken: list[Job] = []
            while self._ready and sum(len(j.pairs) for j in taken) < self._limits.batch:
                taken.append(self._ready.popleft())
            return taken

    def _n_ready(self) -> int:
        return sum(len(job.pairs) for job in self._ready)

    def _answer(self, jobs: list[Job]) -> None:
        """Verdicts of all jobs in one call; if that fails, of each by itself, so that one cannot harm another."""
        pairs = [pair for job in jobs for pair in job.pairs]
        if not pairs:
            return
        began = time.monotonic()
        try:
            verdicts = self._verifier.score_pairs(pairs)
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._answer([job])
                return
            log.exception("the network failed on %d claims", len(pairs))
            self.failed_in_a_row += 1
            _fail(jobs[0], error)
            return
        self._measure(jobs, len(pairs), time.monotonic() - began)
        for job in jobs:
            job.future.set_result(verdicts[: len(job.pairs)])
            verdicts = verdicts[len(job.pairs) :]

    def _measure(self, jobs: list[Job], n_claims: int, seconds: float) -> None:
        self.failed_in_a_row = 0
        self._claims_per_s += 0.1 * (n_claims / max(seconds, 1e-6) - self._claims_per_s)
        self._measures.batch_claims.observe(n_claims)
        self._measures.batch_evidence.observe(len({evidence_key(job.evidence) for job in jobs}))
        self._measures.batch_seconds.observe(seconds)


def _fail(job: Job, error: BaseException) -> None:
    if not job.future.done():
        job.future.set_exception(error)
