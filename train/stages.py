"""Stages of a longer job: commands that a user could type, each printed before it runs, none done twice.

`proofreel rounds` and `proofreel run` are made of them. A folder is one job's alone while it or a command of its runs.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core import RUNS_COMMANDS, ConfigError, ProofreelError

SCRIPTS = Path(__file__).resolve().parent.parent
LOCK = ".lock"
PASSED_ON = (signal.SIGTERM, signal.SIGUSR1)  # which train/preemption.py, which imports torch, answers by a checkpoint


class StageError(ProofreelError, RuntimeError):
    """A command of a job failed or was stopped; `status` is what it exited with, 128 and a signal's number."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Stage:
    """One command of a job, and what is there once it has succeeded."""

    name: str
    command: tuple[str, ...]
    makes: Path | None

    @property
    def is_done(self) -> bool:
        """Whether what it makes is there."""
        return self.makes is not None and self.makes.exists()

    def words(self) -> list[str]:
        """The command; of a training run that was begun, how to go on."""
        begun = self.name.startswith("train") and self.makes is not None and self.makes.parent.exists()
        return [*self.command, *(("--resume_from_checkpoint", "true") if begun else ())]


def command_line(command: Sequence[str]) -> str:
    """A command as a user would type it."""
    words = list(command)
    if words[:3] == [sys.executable, "-m", "proofreel.cli"]:
        words[:3] = ["proofreel"]
    return shlex.join(["python" if word == sys.executable else word for word in words])


def run_stage(stage: Stage, where: str, job: str, lock: int) -> None:
    """Print a stage's command and run it.

    Args:
        stage: not done yet.
        where: of the job, in messages: "round 0, train".
        job: what goes on when it is started again: "the rounds".
        lock: of the job's folder.

    Raises:
        ConfigError: the command cannot be run. StageError: it failed, or a signal stopped the job.
    """
    command = stage.words()
    line = command_line(command)
    print(f"$ {line}", flush=True)
    try:
        status, received = status_of(command, lock)
    except OSError as error:
        raise ConfigError(
            f"launch: cannot be run, got {command[0]!r} ({error}); install it or mend its name"
        ) from error
    if received:
        raise StageError(
            f"{where}: {job} stopped, got {signal.Signals(received).name}; start the same command again to go on: "
            "what is done is kept",
            128 + received if status == 0 else status if status > 0 else 128 - status,
        )
    if status or not (stage.makes is None or stage.makes.exists()):
        raise StageError(
            f"{where}: the command failed, got status {status} from `{line}`; mend what it says above and start "
            "again: what is done is kept",
            1 if status == 0 else status if status > 0 else 128 - status,
        )


def status_of(command: list[str], lock: int) -> tuple[int, int]:
    """The exit status of a command, and the signal that was passed on to it while it ran (0: none)."""
    received, process = 0, None

    def pass_on(number: int, _: Any) -> None:
        nonlocal received
        received = number
        if process is not None:
            process.send_signal(number)

    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # where accelerate is installed
    here = threading.current_thread() is threading.main_thread()  # only there can signals be handled
    before = {number: signal.signal(number, pass_on) for number in PASSED_ON} if here else {}
    environment = {**os.environ, "PATH": beside, RUNS_COMMANDS: "1"}
    try:
        # A command that outlives us keeps the lock: no other process can begin the same stage beside it.
        process = subprocess.Popen(command, env=environment, pass_fds=(lock,))
        if received:  # it came before there was anybody to pass it on to
            process.send_signal(received)
        return process.wait(), received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def locked(output: Path, job: str) -> Iterator[int]:
    """The folder, ours alone while we or a command of ours hold its lock."""
    output.mkdir(parents=True, exist_ok=True)
    with (output / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"output: {job} at work there, got {output}; wait for the end") from None
        yield lock.fileno()


def read_record(path: Path, version: int, entries: str, kind: type, of: str) -> dict[str, Any]:
    """A stored record of what was done, its `entries` of a kind; `ConfigError` if the file is none of this version."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["schema_version"] == version and isinstance(record[entries], kind):
            return record
        problem = f"schema version {record['schema_version']}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = repr(error)
    raise ConfigError(f"{path}: is no record of {of}, got {problem}; name another output")


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Store a record as a whole: a kill leaves the earlier one."""
    draft = path.with_name(f".{path.name}.tmp")
    draft.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    os.replace(draft, path)


def script(name: str) -> str:
    """An entry script, by the path a user in this folder would type."""
    path = SCRIPTS / name
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
