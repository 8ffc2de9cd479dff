"""Processes of a run that wait for each other, in real processes: one that does not come is named within the limit."""

import os
import subprocess
import sys

import pytest
from training_runs import free_port

PROGRAM = """
import sys, time
from types import SimpleNamespace
from accelerate import PartialState
from proofreel.train.meeting import meet
rank, what = PartialState(cpu=True).process_index, sys.argv[1]
run = SimpleNamespace(world_size=2, process_index=rank)
meet("the start", run, 60.0)
if rank == 1 and what == "late":
    time.sleep(600)
if rank == 1 and what == "gone":
    raise SystemExit(3)
meet("weights", run, 2.0)
print("met")
"""


def started(what):
    port = str(free_port())
    shared = os.environ | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, what],
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank), "ACCELERATE_USE_CPU": "true"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]


@pytest.mark.parametrize("what", ["all", "late", "gone"])
def test_processes_meet_or_the_one_that_waits_says_who_did_not_come(what):
    first, second = started(what)
    try:
        said = first.communicate(timeout=120)[0]
        if what == "all":
            assert (first.returncode, second.wait(60)) == (0, 0), said
            assert "met" in said
        else:
            assert first.returncode != 0
            assert "RunError: weights: process 0 of 2 waited for the others, at most 2 s" in said
            assert "--resume_from_checkpoint true" in said
            assert what == "gone" or "Ranks 1 failed to pass" in said.rpartition("RunError")[2]
    finally:
        second.kill()
