"""Metrics of the validation split while a run runs: from margins, and never from logits over the vocabulary."""

from __future__ import annotations

import math

import numpy as np
from transformers import EvalPrediction

from ..eval.metrics.calibration_error import ece_event
from ..eval.metrics.decisions import confusion, f1
from ..eval.metrics.ranking import average_precision, roc_auc
from ..models.decision.calibration import sigmoid
from ..models.engine.packing import IGNORED


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
