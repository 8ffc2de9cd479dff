"""Guarded calls: whatever one item does to its process, it alone fails, and nothing waits longer than the deadline."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numbered_clips import encode

from proofreel.core.errors import ConfigError, MediaError
from proofreel.core.pairs import VideoSegment
from proofreel.data_prep.media.containers import open_video
from proofreel.data_prep.media.frames import FrameSampling, read_frames
from proofreel.data_prep.media.sandbox import GuardedReader, run_guarded

SAMPLING = FrameSampling(min_pixels=84 * 84, max_pixels=84 * 84)


def act(item: Any) -> Any:
    """Do what the item says, for better or worse."""
    deeds = {
        "sleep": lambda: time.sleep(600),
        "exit": lambda: os._exit(3),
        "leave": lambda: sys.exit(4),
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
        "raise": lambda: {}["key"],
        "refuse": lambda: (_ for _ in ()).throw(MediaError("clip.mp4: worded by itself, got it; do that")).__next__(),
        "lambda": lambda: lambda: None,
        "print": lambda: print("noise on stdout", flush=True),
        "pid": os.getpid,
    }
    return deeds[item]() if item in deeds else item * 2


def open_it(path: str) -> str:
    """Open a video; for ever, if it is a pipe that nobody writes to."""
    with open_video(path) as (container, _):
        return container.format.name


def test_every_item_comes_back_once_with_its_own_answer() -> None:
    outcomes = list(run_guarded(act, range(40), workers=2, timeout_s=30))
    assert {o.index: o.value for o in outcomes} == {i: 2 * i for i in range(40)}
    assert all(o.error is None for o in outcomes)


def test_what_hangs_dies_or_fails_harms_nobody_else() -> None:
    items = [1, "sleep", "exit", 2, "leave", "kill", 3, "segfault", "raise", "refuse", "lambda", "print", 4]
    outcomes = {o.index: o for o in run_guarded(act, items, workers=2, timeout_s=1.5)}
    assert [outcomes[i].value for i in (0, 3, 6, 12)] == [2, 4, 6, 8]
    expected = {
        "sleep": "sleep: reader hung for 1.5 s, got no answer; ",
        "exit": "exit: reader died with status 3, got no answer; ",
        "leave": "leave: reader died with status 4, got no answer; ",
        "kill": "kill: reader died with signal 9, got no answer; ",
        "segfault": "segfault: reader died with signal 11, got no answer; ",
        "raise": "raise: reader failed, got KeyError: 'key'; ",
        "refuse": "clip.mp4: worded by itself, got it; do that",
        "lambda": "lambda: reader failed, got an answer that cannot be sent: ",
    }
    for item, message in expected.items():
        outcome = outcomes[items.index(item)]
        assert outcome.value is None
        assert (outcome.error or "").startswith(message)
    assert outcomes[items.index("print")].error is None


def test_items_are_taken_as_children_become_free_and_children_are_kept() -> None:
    taken = []

    def items() -> Any:
        for i in range(20):
            taken.append(i)
            yield "pid"

    stream = run_guarded(act, items(), workers=1, timeout_s=30)
    first = next(stream)
    assert len(taken) <= 2
    assert {o.value for o in stream} == {first.value} != {os.getpid()}


def test_a_stream_that_is_left_leaves_no_child() -> None:
    stream: Any = run_guarded(act, ["pid", "sleep"], workers=1, timeout_s=60)
    pid = next(stream).value
    stream.close()
    assert gone(pid, within_s=2)


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="workers"):
        list(run_guarded(act, [1], workers=0, timeout_s=1))
    with pytest.raises((pickle.PicklingError, AttributeError)):
        list(run_guarded(lambda item: item, [1], workers=1, timeout_s=1))


def test_a_function_that_children_cannot_import_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [p for p in sys.path if Path(p).resolve() != Path(__file__).resolve().parent])
    with pytest.raises(MediaError, match=r"reader process: failed, got ModuleNotFoundError: .*test_guarded"):
        list(run_guarded(act, [1], workers=1, timeout_s=30))


def test_a_pipe_that_hangs_its_opener_is_given_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hanging.mp4")
    paths = [str(tmp_path / "hanging.mp4"), str(encode(tmp_path / "clip.mp4", n_frames=4))]
    outcomes = {o.index: o for o in run_guarded(open_it, paths, workers=2, timeout_s=2)}
    assert (outcomes[0].error or "").startswith(f"{paths[0]}: reader hung for 2 s")
    assert outcomes[1].value == "mov,mp4,m4a,3gp,3g2,mj2"


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode(tmp_path_factory.mktemp("clips") / "clip.mp4")


def test_guarded_frames_are_those_read_here(clip: Path) -> None:
    reader, segment = GuardedReader(), VideoSegment(clip.name, 1.0, 3.0)
    for _ in range(2):
        found = reader.read(segment, SAMPLING, clip.parent, timeout_s=30)
        expected = read_frames(segment, SAMPLING, clip.parent)
        np.testing.assert_array_equal(found.pixels_FHWC, expected.pixels_FHWC)
        np.testing.assert_array_equal(found.times_s, expected.times_s)
        assert found.reader == expected.reader
        assert found.pixels_FHWC.flags.writeable


def test_a_reader_goes_on_after_its_child_was_late_killed_or_closed(clip: Path) -> None:
    reader, segment = GuardedReader(), VideoSegment(str(clip), 0.0, 1.0)
    with pytest.raises(MediaError, match=r"clip\.mp4: reader hung for 0\.001 s"):
        reader.read(segment, SAMPLING, None, timeout_s=0.001)
    assert len(reader.read(segment, SAMPLING, None, timeout_s=30).times_s) == 4
    assert reader._child._process is not None
    reader._child._process.kill()
    reader._child._process.wait()
    assert len(reader.read(segment, SAMPLING, None, timeout_s=30).times_s) == 4
    reader.close()
    assert len(pickle.loads(pickle.dumps(reader)).read(segment, SAMPLING, None, timeout_s=30).times_s) == 4
    with pytest.raises(MediaError, match=r"gone\.mp4: no such file"):
        reader.read(VideoSegment("gone.mp4"), SAMPLING, None, timeout_s=30)


def read_and_report(reader: GuardedReader, path: str, queue: Any) -> None:
    """Read in this process, whatever kind it is."""
    queue.put(len(reader.read(VideoSegment(path, 0.0, 1.0), SAMPLING, None, timeout_s=60).times_s))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_daemonic_process_reads_with_a_child_of_its_own(clip: Path, method: Any) -> None:
    context = multiprocessing.get_context(method)
    queue, reader = context.Queue(), GuardedReader()
    assert len(reader.read(VideoSegment(str(clip), 0.0, 1.0), SAMPLING, None, timeout_s=60).times_s) == 4
    worker = context.Process(target=read_and_report, args=(reader, str(clip), queue), daemon=True)
    worker.start()
    assert queue.get(timeout=60) == 4
    worker.join()
    assert len(reader.read(VideoSegment(str(clip), 0.0, 1.0), SAMPLING, None, timeout_s=60).times_s) == 4


ORPHAN = """
import sys
from proofreel.data_prep.media.sandbox import run_guarded
from test_guarded import act
for outcome in run_guarded(act, ["pid", "sleep"], workers=1, timeout_s=600):
    print(outcome.value, flush=True)
"""


def test_a_child_that_hangs_ends_with_its_parent() -> None:
    words = [sys.executable, "-c", ORPHAN]
    here, helpers = Path(__file__).parent, str(Path(__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": helpers}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=here, env=environment) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    assert gone(pid, within_s=10)


def gone(pid: int, within_s: float) -> bool:
    """The process ends (or is a zombie that nobody waits for) within the time."""
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        status = Path(f"/proc/{pid}/stat")
        try:
            if status.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False
