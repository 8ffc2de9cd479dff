"""transformers' Trainer with the verdict loss. Not TRL's SFTTrainer: it drops video and trains blind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import EvalPrediction, Trainer

from ..eval.metrics import average_precision, confusion, ece_event, f1, roc_auc
from ..models.calibration import sigmoid
from ..models.heads import Readout, margin
from ..models.packing import IGNORED
from ..models.positions import VisionLayout
from ..models.verdict import label_loss_sum, verdict_logits, verdict_loss_sum


class VerdictTrainer(Trainer):
    """Minimises the mean cross-entropy over claims, whatever the packing, accumulation and world size."""

    # compute_loss divides by the claims of the whole optimiser step, so the Trainer must not divide again.
    loss_is_scaled_for_ga = True

    def __init__(self, *args: Any, readout: Readout, layout: VisionLayout, **kwargs: Any) -> None:
        """`readout` and `layout` as for `models.verdict.margins`; everything else as for Trainer."""
        super().__init__(*args, compute_metrics=verdict_metrics, **kwargs)
        self.readout, self.layout = readout, layout

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> tuple[list[Any], Any]:
        """The micro-batches of one optimiser step, and the weight of all their claims over all ranks."""
        batches: list[Any]
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not batches:
            return batches, None
        per_rank: Any = self.accelerator.gather(torch.stack([b["weights"].sum() for b in batches]).sum().to(device))
        return batches, per_rank.sum()

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """This rank's share of the step's mean loss. Gradients are averaged over ranks, hence the world size."""
        logits_BKC = verdict_logits(model, inputs, self.readout, self.layout)
        margins_BK = margin(logits_BKC)
        labels_BK, weights_BK = inputs["labels"], inputs["weights"]
        loss = torch.zeros((), device=margins_BK.device)
        if (classes_BK := inputs.get("classes")) is not None:
            loss = label_loss_sum(logits_BKC, classes_BK, weights_BK)
            labels_BK = labels_BK.masked_fill(classes_BK != IGNORED, IGNORED)  # what is left teaches the margin
        loss = loss + verdict_loss_sum(margins_BK, labels_BK, weights_BK)
        if num_items_in_batch is None:  # evaluation: the mean of this batch
            loss = loss / weights_BK.sum()
        else:
            loss = loss / num_items_in_batch * self.accelerator.num_processes
        return (loss, margins_BK) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as the Trainer does, and append the same numbers to <output_dir>/metrics.jsonl."""
        super().log(logs, start_time)
        if self.is_world_process_zero():
            with (Path(self.args.output_dir or "") / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": self.state.global_step, **logs}) + "\n")

    def prediction_step(
        self, model: torch.nn.Module, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None
    ) -> tuple[Any, Any, Any]:
        """(loss, margins (B, K), labels (B, K)); full-vocabulary logits are never gathered."""
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad():
            loss, margins_BK = self.compute_loss(model, inputs, return_outputs=True)
        return loss.detach(), margins_BK, inputs["labels"]


def verdict_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """AUC, average precision, F1 at p >= 0.5 and event ECE of the claims of an evaluation, from margins only."""
    labels = np.asarray(prediction.label_ids).ravel()
    values = np.asarray(prediction.predictions).ravel()[labels != IGNORED]
    y = labels[labels != IGNORED] >= 0.5
    p = sigmoid(values)
    return {
        "auc": float(roc_auc(values, y)),
        "ap": float(average_precision(values, y)),
        "f1": f1(confusion(p >= 0.5, y)),
        "ece": ece_event(p, y),
        "positive_rate": float(y.mean()),
    }
