"""Which process of how many this is, by what its launcher says."""

from __future__ import annotations

import os


def launched_as() -> tuple[int, int]:
    """(rank, number of processes) of accelerate launch or torchrun, or else of a Slurm step; (0, 1) of one alone.

    Of Slurm the number of the *step* counts: in a batch script that starts this without `srun`, SLURM_NTASKS tells of
    processes that nobody started, and the first would wait for them.
    """
    if "WORLD_SIZE" not in os.environ and "SLURM_STEP_NUM_TASKS" in os.environ:
        return int(os.environ.get("SLURM_PROCID", 0)), int(os.environ["SLURM_STEP_NUM_TASKS"])
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
