"""Where the processes of a run wait for each other: with a limit, and an error that says who did not come.

accelerate's `wait_for_everyone` waits for `--ddp_timeout` (1800 s), which one rank's work between two steps may well
take (features of its share of the videos, the weights of a verifier), and then ends with the words of the collective
library, or with NCCL on another thread. Here processes meet over gloo, whatever the gradients go by.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any

import torch.distributed as dist
from transformers import TrainingArguments

from .faults import RunError

WAIT_LIMIT_S = 6 * 3600.0


def meet(what: str, training: TrainingArguments, limit_s: float = WAIT_LIMIT_S) -> None:
    """Wait until every process of the run is here; a collective call, which one process alone passes.

    Args:
        what: that is done by now, for the error.
        training: tells how many processes there are.
        limit_s: seconds to wait.

    Raises:
        RunError: a process did not come within the limit, or has ended.
    """
    if training.world_size < 2:
        return
    limit = timedelta(seconds=limit_s)
    try:
        dist.monitored_barrier(_group(), timeout=limit, wait_all_ranks=True)
    except RuntimeError as error:
        raise RunError(
            f"{what}: process {training.process_index} of {training.world_size} waited for the others, at most "
            f"{limit_s:g} s, got {str(error).splitlines()[0]}; see what the others said last, and start the same "
            "command with --resume_from_checkpoint true"
        ) from error


@cache
def _group() -> Any:
    return dist.new_group(backend="gloo", timeout=timedelta(seconds=WAIT_LIMIT_S))
