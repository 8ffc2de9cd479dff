"""transformers' Trainer with the verdict loss, its callback and its metrics.

Not TRL's SFTTrainer, which drops video without an error. The callback fixes the order of an epoch, checks the first
gradients, writes learning curves, and takes up a resumed run. Metrics of the validation split come from margins, never
from logits over the vocabulary.

Apart from the recipe because it is the one module that overrides methods of transformers' Trainer.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.utils.data import DataLoader
from transformers import (
    EarlyStoppingCallback,
    EvalPrediction,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_utils import rotate_checkpoints

from ..eval.metrics import average_precision, confusion, ece_event, f1, roc_auc
from ..models.decision import sigmoid
from ..models.engine import IGNORED, Head, margin, verdict_logits
from ..models.inputs import VisionLayout
from .checkpoints import (
    damage_of,
    decided_on_rank_0,
    finite,
    is_write_failure,
    read_seal,
    seal_checkpoint,
    unwritten,
)
from .curves import draw_curves
from .distillation_loss import DistillationLoss
from .epochs import BatchStream, EpochOrder, few, survive
from .faults import FirstGradients, RunError
from .loss import Loss
from .meeting import meet
from .preemption import Preemption
from .run_directory import BAD_ROWS, METRICS

CLAIMS_PER_SECOND = "claims_per_second"
"""In the log: claims of all ranks since the last log, over the time of their steps."""
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

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Count how long the step took, waiting for its rows included, evaluating and saving not."""
        self.trainer.count_step()

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


def verdict_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """AUC, average precision, F1 at p >= 0.5, event ECE, mean loss and positive rate of the claims of an evaluation.

    Args:
        prediction: `predictions` are margins, losses and weights as `VerdictTrainer.prediction_step` gives them, and
            `label_ids` probabilities of supported; each (rows, K), `IGNORED` labels where there is no claim.

    Returns:
        NaN for what is not defined: AUC and average precision of one class, all of them of no claim. Claims whose
        margin is not a number are no verdicts: they are left out, and counted as `failed` where there are any.
    """
    labels, (margins, losses, weights) = np.asarray(prediction.label_ids), map(np.asarray, prediction.predictions)
    real = labels != IGNORED
    used = real & ~np.isnan(margins)
    y, values, p = labels[used] >= 0.5, margins[used], sigmoid(margins[used])
    total = weights[used].sum()
    metrics = {
        "auc": float(roc_auc(values, y)),
        "ap": float(average_precision(values, y)),
        "f1": f1(confusion(p >= 0.5, y)),
        "ece": ece_event(p, y) if len(y) else math.nan,
        "positive_rate": float(y.mean()) if len(y) else math.nan,
        "loss": float(losses[used].sum() / total) if total > 0 else math.nan,
    }
    return metrics | ({"failed": float((real & ~used).sum())} if (real & ~used).any() else {})


class VerdictTrainer(Trainer):
    """Minimises the mean loss over claims, whatever the packing, accumulation and world size.

    Attributes:
        loss: what is minimised.
        order: the order of the training rows.
        n_bad: rows that could not be read and were left out since this process began, over all ranks.
    """

    # compute_loss divides by the claims of the whole optimiser step, so the Trainer must not divide again.
    loss_is_scaled_for_ga = True

    def __init__(
        self,
        *args: Any,
        head: Head,
        layout: VisionLayout,
        loss: Loss | DistillationLoss | None = None,
        bad_rows: str = "stop",
        **kwargs: Any,
    ) -> None:
        """Everything else as for Trainer.

        Args:
            head, layout: as for `models.engine.margins`.
            loss: cross-entropy where None.
            bad_rows: "stop" at a row that cannot be read, or "skip" it, count it and list it in bad_rows.jsonl.
        """
        super().__init__(*args, compute_metrics=verdict_metrics, **kwargs)
        plugin: Any = getattr(self.accelerator.state, "fsdp_plugin", None)
        if isinstance(policy := getattr(plugin, "mixed_precision_policy", None), MixedPrecisionPolicy):
            # FSDP2 would round logits and sum gradients in the network's dtype.
            plugin.mixed_precision_policy = dataclasses.replace(policy, output_dtype=None, reduce_dtype=torch.float32)
        self.head, self.layout, self.bad_rows = head, layout, bad_rows
        self.loss = loss or Loss(head.labels)
        self.first_gradients: FirstGradients | None = None
        self.resumed_from: Path | None = None
        self.n_bad = 0
        self._step_ids: list[str] = []
        self._n_claims, self._steps_s, self._step_began_s = 0, 0.0, 0.0
        self._eval_bad: list[Any] = []
        self.preemption = Preemption(self)
        self.add_callback(Watcher(self))
        self.add_callback(self.preemption)

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As Trainer's, from step 0 or from a checkpoint that `checkpoint_to_resume` chose."""
        self.resumed_from = Path(resume_from_checkpoint) if resume_from_checkpoint else None
        if "wandb" in (self.args.report_to or ()):
            os.environ.setdefault("WANDB_DIR", self.args.output_dir or "")  # else it writes to where one happens to be
        with self.preemption.watching():
            return super().train(str(self.resumed_from) if self.resumed_from else None, *args, **kwargs)

    # ---- Rows ----

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochOrder:
        args = self.args
        per_batch = 1 if args.world_size == 1 or args.dataloader_drop_last else args.world_size * self._train_batch_size
        seed = args.seed if args.data_seed is None else args.data_seed
        shuffle = str(args.train_sampling_strategy) != "sequential"
        self.order = EpochOrder(len(self.train_dataset), per_batch, seed, shuffle)  # type: ignore[arg-type]
        return self.order

    def get_train_dataloader(self) -> DataLoader[Any]:
        """As Trainer's, in this project's order of rows."""
        loader = super().get_train_dataloader()
        self.stream = BatchStream(loader, skip=self.bad_rows == "skip")
        return loader

    def begin_epoch(self) -> None:
        """Set the order of the rows, and count batches from where this epoch begins or is resumed."""
        accumulated = self.args.gradient_accumulation_steps
        self.preemption.steps_per_epoch = steps = -(-len(self.stream.loader) // accumulated)
        self.order.start(self.state.global_step // steps)
        self.stream.begin(self.state.global_step % steps * accumulated)

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # A run that was resumed after its last step, or after it had stopped early, takes no more.
        if not self.control.should_training_stop and self.state.global_step < self.state.max_steps:
            super()._run_epoch(*args, **kwargs)

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> tuple[list[Any], Any]:
        """The micro-batches of one optimiser step, and the weight of all their claims over all ranks."""
        batches: list[Any] = []
        self._step_began_s = time.monotonic()
        with suppress(StopIteration):
            while len(batches) < num_batches:
                batches.append(self.stream.next(epoch_iterator))
        if not batches:
            return batches, None
        self._step_ids = [i for b in batches for ids in b["row_ids"] for i in ids]
        bad = [row for b in batches for row in b.pop("bad_rows", ())]
        weights = torch.cat([self.loss.claim_weights(*(b[n] for n in self.loss.targets)).flatten() for b in batches])
        mine = torch.stack([weights.sum(), weights.new_tensor(float(len(bad))), (weights > 0).sum().to(weights.dtype)])
        per_rank: Any = self.accelerator.gather(mine.to(device)[None])
        weight, n_bad, claims = per_rank.sum(0)
        self._n_claims += int(claims)
        if n_bad > 0:
            self._leave_out(bad, "train")
        return batches, torch.where(weight > 0, weight, 1.0)  # a step without any claim teaches nothing

    def _leave_out(self, bad: list[tuple[tuple[str, ...], str]], split: str) -> None:
        """Stop at rows that could not be read, or count and list them; every rank comes here together."""
        if self.bad_rows == "stop" and bad:
            ids, reason = bad[0]
            raise RunError(
                f"row {few(ids)}: {reason}"
                + (f" (and {len(bad) - 1} more packed rows of this step)" if len(bad) > 1 else "")
            )
        if self.bad_rows == "stop":
            return  # another rank stops the run
        everyones = gather_object(bad) if self.args.world_size > 1 else bad
        self.n_bad += len(everyones)
        for ids, reason in everyones:
            self._append(BAD_ROWS, {"step": self.state.global_step, "split": split, "ids": ids, "error": reason})

    # ---- Loss ----

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """This rank's share of the step's mean loss. Gradients are averaged over ranks, hence the world size.

        With `return_outputs` also (margins, losses, weights), each (B, K), whose sums make the mean.
        """
        logits_BKC = verdict_logits(model, inputs, self.head, self.layout)
        targets = [inputs[name] for name in self.loss.targets]
        losses_BK = self.loss.losses(logits_BKC, *targets)
        weights_BK = self.loss.claim_weights(*targets)
        if num_items_in_batch is None:  # evaluation: the mean of this batch
            loss = losses_BK.sum() / weights_BK.sum()
        else:
            loss = losses_BK.sum() / num_items_in_batch * self.accelerator.num_processes
            self._check_finite(loss, losses_BK, inputs)
        return (loss, (margin(logits_BKC), losses_BK, weights_BK)) if return_outputs else loss

    def training_step(self, model: torch.nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Any:
        """As Trainer's."""
        if self.first_gradients is not None:
            self.first_gradients.see(inputs)
        return super().training_step(model, inputs, num_items_in_batch)

    def _check_finite(self, loss: torch.Tensor, losses_BK: torch.Tensor, inputs: dict[str, Any]) -> None:
        if torch.isfinite(loss):
            return
        at_fault_B = ~torch.isfinite(losses_BK).all(1)
        ids = [i for fault, ids in zip(at_fault_B.tolist(), inputs["row_ids"], strict=True) if fault for i in ids]
        raise RunError(
            f"step {self.state.global_step + 1}, row {few(ids or self._step_ids)}: the loss is not a number, got "
            f"{loss.item()}; lower learning_rate, use bfloat16 or float32, or leave the row out"
        )

    def _get_grad_norm(self, model: torch.nn.Module, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        # With loss scaling (float16) an overflow is met by skipping the step. Here it would end in every weight.
        if norm is not None and self.accelerator.mixed_precision != "fp16" and not np.isfinite(float(norm)):
            raise RunError(
                f"step {self.state.global_step + 1}, row {few(self._step_ids)}: the gradient is not a number, got a "
                f"norm of {float(norm)}; lower learning_rate, use bfloat16 or float32, or leave the rows out"
            )
        return norm

    # ---- Evaluation ----

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As Trainer's; rows that cannot be read are left out of every metric."""
        while True:
            self._eval_bad = []
            try:
                metrics = super().evaluate(*args, **kwargs)
            except RuntimeError as error:
                # Other ranks would be in the middle of it: only a process on its own can evaluate once more.
                survive(error, self.eval_dataset, self.bad_rows == "skip" and self.args.world_size == 1)
                self._eval_dataloaders = {}
            else:
                break
        if self.accelerator.gather(torch.tensor([len(self._eval_bad)], device=self.args.device)).sum() > 0:  # type: ignore[union-attr]
            self._leave_out(self._eval_bad, "validation")
        return metrics

    def prediction_step(
        self, model: torch.nn.Module, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None
    ) -> tuple[Any, Any, Any]:
        """(None, (margins, losses, weights), labels), each (B, K); full-vocabulary logits are never gathered."""
        self._eval_bad += inputs.pop("bad_rows", ())
        if self._eval_bad and self.bad_rows == "stop":
            self._leave_out(self._eval_bad, "validation")
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad():
            _, outputs = self.compute_loss(model, inputs, return_outputs=True)
        return None, tuple(t.contiguous() for t in outputs), inputs["labels"]

    # ---- What is left behind ----

    def count_step(self) -> None:
        """An optimiser step has ended."""
        self._steps_s += time.monotonic() - self._step_began_s

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as the Trainer does, and append the same numbers to <output_dir>/metrics.jsonl."""
        if self.n_bad:
            logs["bad_rows"] = self.n_bad
        if "loss" in logs and self._steps_s:
            logs[CLAIMS_PER_SECOND] = float(f"{self._n_claims / self._steps_s:.4g}")
            self._n_claims, self._steps_s = 0, 0.0
        super().log(logs, start_time)
        self._append(METRICS, {"step": self.state.global_step, **logs})

    def _append(self, name: str, record: dict[str, Any]) -> None:
        if not self.is_world_process_zero():
            return
        path = Path(self.args.output_dir or "") / name
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(finite(record)) + "\n")
        except OSError as error:
            raise RunError(f"{path}: cannot be written, got {error}; free or unlock the disk, and resume") from error

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        out = Path(self.args.output_dir or "")
        folder, writes = out / f"checkpoint-{self.state.global_step}", self.args.should_save
        limit, self.args.save_total_limit = self.args.save_total_limit, None  # older ones go once this one is whole
        try:
            if writes:
                shutil.rmtree(folder, ignore_errors=True)
            meet(f"room for {folder}", self.args)
            super()._save_checkpoint(model, trial)
            window = {"loss": self.accelerator.gather(self._tr_loss.reshape(1)).mean().item()}  # type: ignore[union-attr]
            window["last_logged_step"] = self._globalstep_last_logged
            meet(f"files of {folder}", self.args)
            if writes:
                seal_checkpoint(folder, {"step": self.state.global_step, "since_last_log": window})
        except Exception as error:
            if is_write_failure(error):
                raise unwritten(folder, error) from error
            raise
        finally:
            self.args.save_total_limit = limit
        if writes:
            best = self.state.best_model_checkpoint
            rotate_checkpoints(output_dir=str(out), save_total_limit=limit, best_model_checkpoint=best, use_mtime=True)

    def resume_logging(self, window: dict[str, Any]) -> None:
        """Take up the mean loss since the last log where a checkpoint left it, so that the next log is the same."""
        self._tr_loss += window["loss"]
        self._globalstep_last_logged = window["last_logged_step"]

    def _load_best_model(self) -> None:
        best = Path(self.state.best_model_checkpoint or "")
        if (damage := decided_on_rank_0(lambda: damage_of(best), self.args)) is not None:
            raise RunError(
                f"{best}: the best checkpoint is damaged, got {damage}; put the file back and resume, or remove the "
                "folder and resume: the last weights are then the verifier's"
            )
        super()._load_best_model()
