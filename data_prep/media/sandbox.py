"""Run functions that may hang or die in child processes with a deadline: media decoders are such functions.

A child is a fresh interpreter (`python -c`, never a fork: decord's readers deadlock across forks) joined by one socket.
Unlike `multiprocessing`, this works inside daemonic processes, which data-loader workers are. A child that is late is
killed; one that died is recognised by its exit status. In both cases its item gets the reason, and a new child takes
the next item. A child ends with the process that started it, even if that one is killed, and even while it hangs.

The function must be importable (at the top of a module, not in the script that runs), items and answers picklable.
POSIX only.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Generic, TypeVar

from ...core import Audio, ConfigError, MediaError, ProofreelError, Visual, media_path, media_paths
from .containers import MediaInfo, probe
from .frame_files import read_media_piece
from .frames import Frames, FrameSampling

T = TypeVar("T")

READ_LIMIT_S = 120.0
"""How long a decoder may take for one call, unless a caller says otherwise."""

START_LIMIT_S = 120.0
"""How long a child may take to import what it needs; this time is not the item's."""

_WATCH_S, _EXIT_LIMIT_S = 1.0, 10.0
_BOOT = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {__name__} import serve; serve(*sys.argv[2:])"
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The outcome of one item: its place in the input, and its value or the reason why there is none."""

    index: int
    value: T | None
    error: str | None


def run_guarded(
    function: Callable[[Any], T],
    items: Iterable[Any],
    workers: int,
    timeout_s: float,
    name: Callable[[Any], str] = str,
) -> Iterator[Outcome[T]]:
    """`function` of every item, in child processes; outcomes come as they are ready.

    Args:
        function: of one item. A `ProofreelError` it raises becomes the outcome's error as it is.
        items: taken one by one, as children become free.
        workers: how many children work at once, one thread each.
        timeout_s: seconds an item may take.
        name: what an item is called in the message of an outcome that the function did not word itself.

    Raises:
        MediaError: a child could not even start.
        ConfigError: `workers` is below 1.
    """
    if workers < 1:
        raise ConfigError(f"workers: must be at least 1, got {workers}; give the number of processes")
    idle, busy = [_Child(function) for _ in range(workers)], dict[_Child, tuple[int, Any]]()
    waiting = enumerate(items)
    try:
        while True:
            while idle and (task := next(waiting, None)) is not None:
                idle[-1].ask(task[1], timeout_s)
                busy[idle.pop()] = task
            if not busy:
                return
            wait([child.pipe for child in busy], min(child.time_left_s() for child in busy))
            for child, (index, item) in list(busy.items()):
                if (answer := child.answer()) is not None:
                    del busy[child]
                    idle.append(child)
                    yield Outcome(index, answer.value, answer.message(name(item)))
    finally:
        for child in (*idle, *busy):
            child.stop()


class GuardedReader:
    """Calls of media functions in a child that is kept for the next call; for one thread. A copy has its own child."""

    def __init__(self) -> None:
        self._child = _Child(_call)

    def read(self, piece: Visual, sampling: FrameSampling, media_root: str | Path | None, timeout_s: float) -> Frames:
        """The same frames as `read_media_piece`, or `MediaError` after `timeout_s` or if the reader dies."""
        name = fetched(piece, media_root)
        return self.call(read_media_piece, (piece, sampling, media_root), name, timeout_s)

    def call(self, function: Callable[..., T], arguments: tuple[Any, ...], name: str, timeout_s: float) -> T:
        """`function(*arguments)`, or `MediaError` about `name` after `timeout_s` or if the child dies."""
        self._child.ask((function, arguments), timeout_s)
        while (answer := self._child.answer()) is None:
            wait([self._child.pipe], self._child.time_left_s())
        if message := answer.message(name):
            raise MediaError(message)
        return answer.value

    def close(self) -> None:
        """End the child; the next read starts another."""
        self._child.stop()

    def __reduce__(self) -> Any:
        return GuardedReader, ()


_IDLE: deque[GuardedReader] = deque()  # of this process; as many as were ever busy at once


def guarded(function: Callable[..., T], *arguments: Any, name: str) -> T:
    """`function(*arguments)` in a child process, with `READ_LIMIT_S` to end in; `name` is the media file's.

    Children are kept and shared by all threads of the process. Where the system has none (Windows), it is called here.

    Raises:
        MediaError: its own, or that of a reader that hung or died.
    """
    if os.name != "posix":
        return function(*arguments)
    try:
        reader = _IDLE.pop()
    except IndexError:
        reader = GuardedReader()
    try:
        return reader.call(function, arguments, name, READ_LIMIT_S)
    finally:
        _IDLE.append(reader)


def fetched(piece: Visual | Audio, media_root: str | Path | None) -> str:
    """The name of a piece's (first) file on this machine. What lies elsewhere is fetched here: a child has no time."""
    files = [str(media_path(path, media_root)) for path in media_paths(piece)]
    return files[0]


def probe_guarded(path: str, media_root: str | Path | None = None) -> MediaInfo:
    """`probe` in a child process, with a deadline; errors as of `probe` and `guarded`."""
    return guarded(probe, str(media_path(path, media_root)), name=path)


def _call(item: tuple[Callable[..., T], tuple[Any, ...]]) -> T:
    function, arguments = item
    return function(*arguments)


@dataclass(frozen=True)
class _Answer:
    """A value, or an error's own words, or (`failure`) what happened to the reader without its saying so."""

    value: Any = None
    error: str | None = None
    failure: str | None = None

    def message(self, name: str) -> str | None:
        return f"{name}: reader {self.failure}" if self.failure else self.error


class _Child:
    """One child process that answers one question at a time; started when first asked, and again when it is gone."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner, self._ready, self._timeout_s, self._deadline = 0, False, 0.0, 0.0
        self._function, self._question = pickle.dumps(function), b""

    def ask(self, item: Any, timeout_s: float) -> None:
        """Hand over an item; the time it may take begins when the child takes it."""
        self._question, self._timeout_s = pickle.dumps(item), timeout_s
        if self._process is not None and (self._owner != os.getpid() or self._process.poll() is not None):
            self.stop()
        if self._process is None:
            self._start()
        else:
            self._send()

    def answer(self) -> _Answer | None:
        """The answer to the question asked; None if it is not here yet. A late child is killed."""
        try:
            received = self.pipe.recv_bytes() if self.pipe.poll() else None
        except (EOFError, OSError):
            return self._died()
        if received is not None and self._ready:
            return pickle.loads(received)
        if received is not None:
            if failure := pickle.loads(received).failure:
                got = failure.rpartition(";")[0]
                raise MediaError(f"reader process: {got}; give a function that a new process can import")
            self._send()
        if self.time_left_s() > 0:
            return None
        self.stop()
        limit_s = self._timeout_s if self._ready else START_LIMIT_S
        return _Answer(failure=f"hung for {limit_s:g} s, got no answer; re-encode the file, or allow more time")

    def time_left_s(self) -> float:
        """Seconds until the child is late."""
        return max(0.0, self._deadline - time.monotonic())

    def stop(self) -> None:
        """Kill the child, if it is ours: a fork of this process must leave its parent's alone."""
        process, self._process = self._process, None
        if process is None:
            return
        self.pipe.close()
        if self._owner != os.getpid():
            process.returncode = 0  # so that Popen does not wait for it either
            return
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # stuck in the kernel, on a network disk: it goes when that answers
            process.wait(_EXIT_LIMIT_S)

    def __del__(self) -> None:
        self.stop()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        words = [json.dumps([str(folder) for folder in sys.path]), str(theirs.fileno()), str(os.getpid())]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | _ONE_THREAD,
            )
        self.pipe, self._owner = Connection(ours.detach()), os.getpid()
        self._ready, self._deadline = False, time.monotonic() + START_LIMIT_S
        self.pipe.send_bytes(self._function)

    def _send(self) -> None:
        self._ready, self._deadline = True, time.monotonic() + self._timeout_s
        with suppress(OSError):  # it died just now: the answer will say so
            self.pipe.send_bytes(self._question)

    def _died(self) -> _Answer:
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):  # it has closed its end and is about to exit
            self._process.wait(_EXIT_LIMIT_S)
        code = self._process.poll()
        self.stop()
        how = f"status {code}" if code is None or code >= 0 else f"signal {-code}"
        if not self._ready:
            raise MediaError(f"reader process: died with {how} while it started; see its messages above")
        return _Answer(failure=f"died with {how}, got no answer; re-encode the file, or give each reader more memory")


def serve(pipe_fd: str, parent: str) -> None:
    """The child's loop: take the function, then answer questions until the parent closes the pipe or ends."""
    # Ctrl-C and a scheduler's signals are for the parent, which ends its children.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    pipe = Connection(int(pipe_fd))
    with suppress(EOFError, OSError):
        loaded = _answer(pickle.loads, pipe.recv_bytes())
        pipe.send_bytes(pickle.dumps(_Answer(failure=loaded.failure)))
        while True:
            pipe.send_bytes(_pickled(_answer(loaded.value, pickle.loads(pipe.recv_bytes()))))


def _answer(function: Callable[[Any], Any], item: Any) -> _Answer:
    try:
        return _Answer(value=function(item))
    except ProofreelError as error:
        return _Answer(error=str(error))
    except Exception as error:
        return _Answer(failure=f"failed, got {type(error).__name__}: {error}; re-encode the file or report this")


def _pickled(answer: _Answer) -> bytes:
    try:
        return pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        return pickle.dumps(_Answer(failure=f"failed, got an answer that cannot be sent: {error}; return plain data"))


def _end_with(parent: int) -> None:
    """End the child when its parent ends: a child that hangs does not read its pipe, and a fork may keep that open."""
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os._exit(1)
