"""A run that its scheduler ends: SIGTERM or SIGUSR1 is answered by a checkpoint after the step under way.

Not by transformers' just-in-time checkpoint (5.23). That one saves between a step's gradients and its update, with
random numbers drawn that the resumed step draws again; every rank saves by a clock of its own, so that ranks wait for
each other in different collectives; and the run then ends like a finished one, with a verifier and status 0.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import get_worker_info
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .faults import RunError
from .meeting import meet

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
_protected = -1  # the loader worker that leaves signals to its parent: a fork of it is another process


class PreemptionError(RunError):
    """A run ended by a signal, with a checkpoint; `status` is what the process exits with, 128 and the signal."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Preemption(TrainerCallback):
    """Saves and ends the run after the step in which any rank got a signal; all ranks do so after the same step.

    Attributes:
        steps_per_epoch: optimiser steps; set once the rows are known.
    """

    def __init__(self, trainer: Trainer) -> None:
        """Of the run of `trainer`."""
        self.trainer, self.received, self.agreed = trainer, 0, 0
        self.steps_per_epoch = 1

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Take signals here, in the main thread; they end the process as before once this is left."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = [signal.signal(number, self._receive) for number in SIGNALS]
        try:
            yield
        finally:
            for number, handler in zip(SIGNALS, before, strict=True):
                signal.signal(number, handler)

    def _receive(self, number: int, _: Any) -> None:
        self.received = number

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Save after this step if a signal came; the last step of an epoch is followed by what an epoch ends with."""
        if state.global_step % self.steps_per_epoch:
            self._agree(args, state, control)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Save after the epoch's evaluation if a signal came."""
        self._agree(args, state, control)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Save if a signal came while it evaluated."""
        self._agree(args, state, control)

    def _agree(self, args: TrainingArguments, state: TrainerState, control: TrainerControl) -> None:
        if state.global_step >= state.max_steps:
            return  # all that is left to do is to write the verifier
        self.agreed = self.received
        if args.world_size > 1:
            mine = torch.tensor([self.received], device=args.device)
            self.agreed = int(self.trainer.accelerator.gather(mine).max())  # type: ignore[union-attr]
        control.should_save |= self.agreed > 0

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """End the run once its checkpoint is sealed."""
        if not self.agreed:
            return
        meet(f"checkpoint-{state.global_step}", args)  # a launcher ends all ranks when the first of them is gone
        raise PreemptionError(
            f"{args.output_dir}: the run was stopped, got {signal.Signals(self.agreed).name} in step "
            f"{state.global_step} of {state.max_steps}; checkpoint-{state.global_step} holds all of it: start the same "
            "command with --resume_from_checkpoint true to go on",
            128 + self.agreed,
        )


def leave_signals_to_parent() -> None:
    """In a loader worker, heed SIGTERM of the process that trains only: a scheduler sends it to every process.

    A worker that died of it would take the step with it that is to be saved.
    """
    global _protected
    if get_worker_info() is None or _protected == os.getpid():
        return
    _protected = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_heed_parent, daemon=True).start()


def _heed_parent() -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)
