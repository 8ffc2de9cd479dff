"""eval/scoring/score.py: killed at any moment and started again, the rows are those of an uninterrupted run; nothing
else is ever continued."""

import dataclasses
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deciding_verifiers import decision, maker

from proofreel.core.errors import RowError
from proofreel.core.pairs import Pair, Passage, VideoSegment
from proofreel.eval.scoring import score as resumable
from proofreel.eval.scoring.predictions import read_predictions
from proofreel.eval.scoring.score import pairs_sha256, predict, score_to
from proofreel.models.verifier.verifier import Verifier

SOURCE = {"control": None, "manifest_sha256": "m"}
PAIRS = [
    Pair(f"r{i}", f"Object {i} is red ball.", (Passage(f"The ball number {i // 3} is red."),), label="supported")
    for i in range(24)
]
PAIRS[9] = dataclasses.replace(PAIRS[9], evidence=(VideoSegment("gone.mp4", 0, 1),))


@pytest.fixture(scope="module")
def make(tiny_base, small_sampling, tmp_path_factory) -> Any:
    return maker(tiny_base, small_sampling, tmp_path_factory.mktemp("media"))


@pytest.fixture(scope="module")
def verifier(make) -> Verifier:
    return make(decision=decision(), fingerprint="one", prefix_cache_gib=0)


def assert_same_rows(path: Path, other: Path) -> None:
    """Equal but for the last bits of margins, which depend on where in memory a process has its tensors."""
    found, expected = (read_predictions(p)[0] for p in (path, other))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        for name in ("margin", "p_supported"):
            assert getattr(a, name) == pytest.approx(getattr(b, name), abs=1e-4, nan_ok=True)
        nothing = {"margin": 0.0, "p_supported": 0.0}
        assert dataclasses.replace(a, **nothing) == dataclasses.replace(b, **nothing)


def run(path: Path, verifier: Verifier, **options: Any) -> Any:
    return score_to(path, verifier, options.pop("pairs", PAIRS), SOURCE, rows_per_part=4, progress=False, **options)


@pytest.fixture(scope="module")
def whole(verifier, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "deep" / "test.parquet"
    scored = run(path, verifier)
    assert (scored.n_rows, scored.n_failed, scored.n_found) == (24, 1, 0)
    assert scored.failures[0][0] == "r9"
    assert "gone.mp4" in scored.failures[0][1]
    return path


def test_the_file_holds_one_prediction_per_pair_in_order_and_what_made_it(whole, verifier):
    found, source = read_predictions(whole)
    expected = predict(verifier, PAIRS)
    assert [p.pair_id for p in found] == [p.id for p in PAIRS]
    for a, b in zip(found, expected, strict=True):
        assert (a.error is None) == (b.error is None)
        assert a.error is not None or abs(a.margin - b.margin) <= 1e-4 + 1e-5 * abs(b.margin)
    assert source == SOURCE | {"verifier_fingerprint": "one", "calibrated": True, "pairs_sha256": pairs_sha256(PAIRS)}
    assert [p.name for p in whole.parent.iterdir()] == [whole.name]  # no parts are left


def test_a_part_ends_where_the_evidence_changes(whole):
    file = pq.ParquetFile(whole)
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert sizes == [6, 4, 5, 6, 3]  # at least 4; three claims share an evidence, and row 9 has one of its own


class Killed(BaseException):
    """Ends a run as a signal would: nothing that comes after is done."""


STEPS = 7  # files renamed into place: a head, five parts, the whole


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("step", range(STEPS))
def test_a_run_cut_off_around_any_rename_goes_on_to_the_same_rows(verifier, whole, tmp_path, monkeypatch, step, before):
    path, left = tmp_path / "test.parquet", iter(range(99))

    def cut(temporary: Path, final: Path) -> None:
        stop = next(left) == step
        if stop and before:
            raise Killed
        temporary.replace(final)
        if stop:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(resumable, "into_place", cut)
        with pytest.raises(Killed):
            run(path, verifier)
    assert path.exists() == (step == STEPS - 1 and not before)
    scored = run(path, verifier)
    assert scored.n_rows == 24
    kept = [0, 0, 6, 10, 15, 21, 24, 24]  # rows of the parts in place before each rename
    assert scored.n_found == kept[step if before else step + 1]
    assert_same_rows(path, whole)
    assert read_predictions(path)[1] == read_predictions(whole)[1]
    assert [p.name for p in tmp_path.iterdir()] == ["test.parquet"]


def test_rows_scored_before_are_not_scored_again(verifier, tmp_path, monkeypatch):
    path, asked = tmp_path / "test.parquet", []

    def listen(self: Verifier, pairs: Any, progress: Any) -> Any:
        asked.append([p.id for p in pairs])
        if len(asked) == 3:
            raise Killed
        return score_pairs(self, pairs, progress)

    score_pairs = Verifier.score_pairs
    monkeypatch.setattr(Verifier, "score_pairs", listen)
    with pytest.raises(Killed):
        run(path, verifier)
    run(path, verifier)
    assert asked[2] == asked[3]  # what was under way is done again, what was done is not
    assert [x for part in [*asked[:2], *asked[3:]] for x in part] == [p.id for p in PAIRS]
    n_asked = len(asked)
    assert run(path, verifier).n_found == 24
    assert len(asked) == n_asked


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("other", ["verifier", "pairs", "source", "prior", "draft"])
def test_predictions_of_anything_else_are_neither_continued_nor_replaced(
    make, verifier, tmp_path, monkeypatch, finished, other
):
    path = tmp_path / "test.parquet"
    if finished:
        run(path, verifier)
    else:
        with monkeypatch.context() as patch:
            patch.setattr(resumable, "_join", lambda *args: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run(path, verifier)
    options = {"prefix_cache_gib": 0, "decision": decision(), "fingerprint": "one"}
    asked: Any = {
        "verifier": lambda **more: run(path, make(**options | {"fingerprint": "two"}), **more),
        "pairs": lambda **more: run(path, verifier, pairs=PAIRS[::-1], **more),
        "source": lambda **more: score_to(path, verifier, PAIRS, {}, progress=False, **more),
        "prior": lambda **more: run(path, verifier.with_prior(0.1), **more),
        "draft": lambda **more: run(path, make(**options | {"decision": None}), **more),
    }[other]
    before = sorted((str(p), p.read_bytes()) for p in tmp_path.rglob("*") if p.is_file())
    named = {"verifier": "fingerprint", "pairs": "pairs_sha256", "source": "manifest", "prior": "notes", "draft": "cal"}
    with pytest.raises(RowError, match=named[other]):
        asked()
    assert before == sorted((str(p), p.read_bytes()) for p in tmp_path.rglob("*") if p.is_file())
    scored = asked(overwrite=True)
    assert (scored.n_rows, scored.n_found) == (24, 0)
    assert len(read_predictions(path)[0]) == 24


def test_parts_left_of_a_removal_that_was_cut_off_are_never_joined_to_others(verifier, make, whole, tmp_path):
    path = tmp_path / "test.parquet"
    other = make(decision=None, fingerprint="two", prefix_cache_gib=0)
    folder = tmp_path / "test.parquet.partial"
    score_to(folder / "rows-0000000000-0000000006.parquet", other, PAIRS[:6], progress=False)
    assert run(path, verifier).n_found == 0
    assert_same_rows(path, whole)


def test_two_processes_do_not_write_one_file(verifier, tmp_path):
    folder = tmp_path / "test.parquet.partial"
    folder.mkdir()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RowError, match="another process"):
            run(tmp_path / "test.parquet", verifier)
    assert run(tmp_path / "test.parquet", verifier).n_rows == 24


def test_an_id_that_occurs_twice_is_refused_before_anything_is_scored(verifier, tmp_path):
    with pytest.raises(RowError, match="'r0'"):
        run(tmp_path / "test.parquet", verifier, pairs=[PAIRS[0], PAIRS[0]])
    assert list(tmp_path.iterdir()) == []


def test_no_pairs_give_a_file_without_rows(verifier, tmp_path):
    assert run(tmp_path / "test.parquet", verifier, pairs=[]).n_rows == 0
    assert read_predictions(tmp_path / "test.parquet")[0] == []


def test_the_hash_of_pairs_sees_every_field_and_the_order():
    changed = [dataclasses.replace(PAIRS[0], **{name: "x"}) for name in ("id", "claim", "context", "group")]
    changed.append(dataclasses.replace(PAIRS[0], evidence=(Passage("Hi."),)))
    found = {pairs_sha256(pairs) for pairs in ([PAIRS[0]], *([c] for c in changed), PAIRS, PAIRS[::-1], [])}
    assert len(found) == 9


KILLER = '''
import os, signal, sys
sys.path[:0] = sys.argv[1].split(os.pathsep)
import torch
torch.set_num_threads(1)
from pathlib import Path
from test_resumable import PAIRS, decision, maker, run
from proofreel.data_prep.media.frames import FrameSampling
from proofreel.eval.scoring import score as resumable

sampling = FrameSampling(fps=2.0, min_frames=4, max_frames=8, min_pixels=56 * 56, max_pixels=84 * 84)
verifier = maker(Path(sys.argv[2]), sampling, Path(sys.argv[3]))(
    decision=decision(), fingerprint="one", prefix_cache_gib=0
)
folder = Path(sys.argv[3])
statuses = []


def watched(path, stop_at=None):
    """Count the lines run in the module, and die of SIGKILL at one of them: no handler and no `finally` runs."""
    lines = 0

    def line(frame, event, argument):
        nonlocal lines
        lines += 1
        if lines == stop_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return line

    sys.settrace(lambda frame, event, argument: line if frame.f_globals.get("__name__") == resumable.__name__ else None)
    run(path, verifier)
    sys.settrace(None)
    return lines


n_lines = watched(folder / "whole.parquet")
for stop_at in range(5, n_lines, n_lines // 14):
    path = folder / f"{stop_at}.parquet"
    for _ in range(2):
        child = os.fork()
        if not child:
            torch.set_num_threads(1)  # makes the pool that a fork loses; two reader threads making it at once fail
            watched(path, stop_at)
            os._exit(0)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    run(path, verifier)
print(statuses)
'''


def test_a_run_killed_by_signal_nine_at_any_line_goes_on_to_the_same_rows(tiny_base, tmp_path):
    paths = os.pathsep.join(map(str, Path(__file__).parents[:2]))  # this module, and the helpers beside the tiers
    words = [sys.executable, "-c", KILLER, paths, str(tiny_base), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    statuses = json.loads(done.stdout.strip().splitlines()[-1])
    assert statuses[::2] == [-signal.SIGKILL] * (len(statuses) // 2)  # the second try may reach the end
    assert len(statuses) > 20
    assert len(read_predictions(tmp_path / "whole.parquet")[0]) == len(PAIRS)
    for path in tmp_path.glob("*.parquet"):
        assert_same_rows(path, tmp_path / "whole.parquet")
    assert not list(tmp_path.glob("*.partial"))
