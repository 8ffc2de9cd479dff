"""Metrics of a binary verifier: ranking, decisions, probabilities. Exact with ties, NaN where undefined.

Binary view: labels are 1 (supported) and 0 (refuted or not_enough). Scores are margins or probabilities, without NaN:
`headline` takes whole columns and leaves failed and unlabelled rows out, counting them. A metric is NaN, never 0 or an
exception, where its definition divides nothing by nothing. Ranking metrics need both classes.

Metrics of decisions are in `counts.py`, of probabilities in `calibration_error.py` and its neighbours, of confidence in
`selective.py`; those most used can be imported from here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .base import Floats, checked_probabilities, checked_scores, divide
from .calibration_error import (
    N_BINS,
    Bins,
    Statistic,
    brier,
    corp_decomposition,
    ece_classwise,
    ece_debiased,
    ece_event,
    ece_top_label,
    mce,
    murphy_decomposition,
    nll,
    noise_floor,
    reliability_bins,
    smooth_ece,
    spiegelhalter,
)
from .decisions import (
    Confusion,
    Confusions,
    accuracy,
    balanced_accuracy,
    confusion,
    decision_metrics,
    f1,
    f1_macro,
    f1_micro,
    f1_negative,
    f1_weighted,
    mcc,
    precision,
    recall,
    specificity,
    youden,
)

__all__ = [
    "CALIBRATION_ERRORS",
    "N_BINS",
    "Bins",
    "Confusion",
    "Confusions",
    "Floats",
    "accuracy",
    "average_precision",
    "balanced_accuracy",
    "brier",
    "confusion",
    "cumulative_counts",
    "decision_metrics",
    "ece_event",
    "f1",
    "f1_macro",
    "f1_micro",
    "f1_negative",
    "f1_weighted",
    "headline",
    "mcc",
    "mce",
    "nll",
    "precision",
    "probability_metrics",
    "recall",
    "reliability_bins",
    "roc_auc",
    "specificity",
    "youden",
]

CALIBRATION_ERRORS: dict[str, tuple[Statistic, dict[str, Any]]] = {
    "ece_event": (ece_event, {}),
    "ece_event_mass": (ece_event, {"binning": "mass"}),
    "ece_debiased": (ece_debiased, {}),
    "ece_top_label": (ece_top_label, {}),
    "ece_classwise": (ece_classwise, {}),
    "smooth_ece": (smooth_ece, {}),
    "mce_mass": (mce, {"binning": "mass"}),
}


def cumulative_counts(scores: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> tuple[Floats, Floats]:
    """True and false positives when everything scored at least s is called positive, s descending over distinct scores.

    Args:
        scores: shape (n,).
        labels: 0 or 1, shape (n,).
        weights: shape (n,) or (draws, n), how often each row counts; all once where None.

    Returns:
        tp and fp, shape (1 + distinct scores,) or (draws, 1 + distinct scores), each starting with 0.
    """
    scores, labels = checked_scores(scores, labels)
    weights = np.ones(len(scores)) if weights is None else np.asarray(weights, dtype=np.float64)
    order = np.argsort(-scores, kind="stable")
    descending = scores[order]
    is_last_of_tie = np.append(descending[1:] != descending[:-1], True)[: len(scores)]  # infinities tie too
    zero = np.zeros((*weights.shape[:-1], 1))

    def cumulative(hits: Floats) -> Floats:
        total = np.cumsum((weights * hits)[..., order], axis=-1)
        return np.concatenate([zero, total[..., is_last_of_tie]], axis=-1)

    return cumulative(labels), cumulative(1 - labels)


def roc_auc(scores: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> Floats:
    """P(score of a positive > score of a negative), ties counting half: the area under the ROC curve.

    Returns a scalar array, or shape (draws,) for weights of shape (draws, n). NaN with one class.
    """
    tp, fp = cumulative_counts(scores, labels, weights)
    twice_area = np.sum(np.diff(fp, axis=-1) * (tp[..., 1:] + tp[..., :-1]), axis=-1)
    return divide(twice_area, 2 * tp[..., -1] * fp[..., -1])


def average_precision(scores: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> Floats:
    """Step-wise sum of (R_n - R_{n-1}) P_n over distinct scores; chance level is the positive rate.

    Shapes and NaN as `roc_auc`.
    """
    tp, fp = cumulative_counts(scores, labels, weights)
    # Nothing counted above a score (weights of 0) means no gain in recall there either.
    precision = np.nan_to_num(divide(tp[..., 1:], tp[..., 1:] + fp[..., 1:]))
    gained = np.sum(np.diff(tp, axis=-1) * precision, axis=-1)
    return divide(np.where(fp[..., -1] > 0, gained, np.nan), tp[..., -1])


def headline(
    margins: ArrayLike, p_raw: ArrayLike, p_calibrated: ArrayLike, labels: ArrayLike, threshold: float
) -> dict[str, float]:
    """The row every table of a report is made of.

    Args:
        margins: log-odds, shape (n_rows,); NaN where scoring failed.
        p_raw: probabilities before calibration, shape (n_rows,).
        p_calibrated: probabilities after calibration, shape (n_rows,).
        labels: 1, 0, or NaN without a label, shape (n_rows,).
        threshold: on `p_calibrated`; positive means p >= threshold.

    Returns:
        Counts `n_rows` = `n` (scored and labelled, what the metrics stand on) + `n_failed` + `n_unlabelled`, then the
        metrics. A failed row is in no metric: it is neither a yes nor a no.
    """
    columns = (np.asarray(column, dtype=np.float64) for column in (margins, p_raw, p_calibrated, labels))
    margins, p_raw, p_calibrated, labels = columns
    failed, unlabelled = np.isnan(margins), np.isnan(labels)
    used = ~failed & ~unlabelled
    m, before, after, y = margins[used], p_raw[used], p_calibrated[used], labels[used]
    counts = confusion(after >= threshold, y)
    return {
        "n_rows": len(margins),
        "n": len(m),
        "n_failed": int(np.sum(failed)),
        "n_unlabelled": int(np.sum(unlabelled & ~failed)),
        "positive_rate": float(divide(np.sum(y), len(y))),
        "auc": float(roc_auc(m, y)),
        "ap": float(average_precision(m, y)),
        **decision_metrics(counts),
        "ece_before": ece_event(before, y),
        "ece_after": ece_event(after, y),
        "brier_before": brier(before, y),
        "brier_after": brier(after, y),
        **counts._asdict(),
    }


def probability_metrics(p: ArrayLike, labels: ArrayLike, n_draws: int = 200, seed: int = 0) -> dict[str, float]:
    """Every number about one column of probabilities, by the names documentation and reports use.

    Beside each calibration error stand `<name>_floor` and `<name>_floor_high`: the mean and 95th percentile a perfectly
    calibrated model with these probabilities would show (`noise_floor`, over `n_draws`). `_mass` means equal-mass bins,
    the others have equal width. All NaN for n = 0.
    """
    p, labels = checked_probabilities(p, labels)
    test = spiegelhalter(p, labels)
    row = {
        "brier": brier(p, labels),
        **{f"brier_{name}": part for name, part in murphy_decomposition(p, labels)._asdict().items()},
        **{f"corp_{name}": part for name, part in corp_decomposition(p, labels)._asdict().items()},
        "spiegelhalter_z": test.z,
        "spiegelhalter_p": test.p_value,
    }
    for name, (statistic, options) in CALIBRATION_ERRORS.items():
        floor = noise_floor(p, n_draws, seed, statistic, **options)
        row |= {name: statistic(p, labels, **options), f"{name}_floor": floor.mean, f"{name}_floor_high": floor.high}
    return row
