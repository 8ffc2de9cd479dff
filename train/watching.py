"""What a run does beside its steps: the order of an epoch, first gradients, learning curves, and taking up a run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import EarlyStoppingCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .checkpoints import read_seal
from .curves import draw_curves
from .faults import FirstGradients

if TYPE_CHECKING:
    from .trainer import VerdictTrainer

REDRAW_S = 30.0
"""Curves are drawn at evaluations, but no more often than this: where evaluating is quick, drawing is not."""


class Watcher(TrainerCallback):
    """The trainer's own callback."""

    def __init__(self, trainer: VerdictTrainer) -> None:
        """Watches `trainer`."""
        self.trainer, self._drawn_s = trainer, -REDRAW_S

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Watch the first gradients; of a resumed run, go on logging and stopping where it was."""
        trainer = self.trainer
        trainer.first_gradients = FirstGradients(trainer.model)  # type: ignore[arg-type]
        if trainer.resumed_from is not None and (seal := read_seal(trainer.resumed_from)) is not None:
            trainer.resume_logging(seal["since_last_log"])
        for callback in trainer.callback_handler.callbacks:
            if isinstance(callback, EarlyStoppingCallback):
                stopped = callback.early_stopping_patience_counter >= callback.early_stopping_patience
                control.should_training_stop |= stopped

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        """Set the order of the epoch's rows."""
        self.trainer.begin_epoch()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """See whether all that trains has had a gradient."""
        if self.trainer.first_gradients is not None:
            self.trainer.first_gradients.check()

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Draw the learning curves, if that was not just done."""
        if time.monotonic() - self._drawn_s >= REDRAW_S:
            self._draw(args, state)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Draw the learning curves."""
        self._draw(args, state)

    def _draw(self, args: TrainingArguments, state: TrainerState) -> None:
        if state.is_world_process_zero:
            out = Path(args.output_dir or "")
            draw_curves(out, title=out.resolve().name, best_step=state.best_global_step)
            self._drawn_s = time.monotonic()
