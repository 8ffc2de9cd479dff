"""train/preemption.py: which step a run ends after, and that all ranks end after the same one."""

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import TrainerControl, TrainerState

from proofreel.train.preemption import Preemption, PreemptionError


def rank(signals: dict[int, int], mine: int) -> Any:
    """The callback of one of several ranks; `signals` is what each has received."""
    gathered = SimpleNamespace(gather=lambda _: torch.tensor([*signals.values()]))
    callback = Preemption(SimpleNamespace(accelerator=gathered))  # type: ignore[arg-type]
    callback.received, callback.steps_per_epoch = signals[mine], 3
    return callback


def after(callback: Any, hook: str, step: int, world_size: int = 2) -> TrainerControl:
    arguments: Any = SimpleNamespace(world_size=world_size, device="cpu", output_dir="run")
    control = TrainerControl()
    getattr(callback, hook)(arguments, TrainerState(global_step=step, max_steps=9), control)
    return control


@pytest.mark.parametrize("mine", [0, 1])
def test_a_signal_to_one_rank_ends_all_after_the_same_step(mine):
    callback = rank({0: 0, 1: signal.SIGTERM}, mine)
    assert after(callback, "on_step_end", 4).should_save
    with pytest.raises(PreemptionError, match=r"SIGTERM in step 4 of 9; checkpoint-4") as stopped:
        after(callback, "on_save", 4, world_size=1)  # so that it waits for nobody
    assert stopped.value.status == 143


def test_without_a_signal_nothing_is_saved_and_a_checkpoint_that_was_due_ends_nothing():
    callback = rank({0: 0, 1: 0}, 0)
    assert not after(callback, "on_step_end", 4).should_save
    after(callback, "on_save", 4)


@pytest.mark.parametrize(("hook", "step", "saves"), [
    ("on_step_end", 3, False),  # the last of an epoch: what the epoch ends with comes first
    ("on_epoch_end", 3, True),
    ("on_evaluate", 4, True),
    ("on_step_end", 9, False),  # the last of the run: only the draft is left to write
    ("on_epoch_end", 9, False),
])  # fmt: skip
def test_a_run_ends_where_a_resumed_one_can_go_on_as_if_nothing_had_happened(hook, step, saves):
    assert after(rank({0: signal.SIGTERM, 1: 0}, 1), hook, step).should_save is saves


def test_signals_are_taken_while_a_run_trains_and_no_longer():
    callback = Preemption(SimpleNamespace())  # type: ignore[arg-type]
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)]
    with callback.watching():
        os.kill(os.getpid(), signal.SIGUSR1)
        assert callback.received == signal.SIGUSR1
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)] == handlers
