"""Every number about one verifier, with clustered intervals: 10,000 resamples for the headline, 1,000 for the rest.

Average precision and AURC need a pass over the sorted rows (`sorted_draws`); all else is sums over rows or a quadratic
form of how often groups were taken. Each draw's value is the metric on the rows it took, ties included.

Shape suffix: _D draws.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .auc_draws import auc_draws
from .bootstrap import Interval, Resamples, interval_of, resample
from .calibration_error import N_BINS, bin_index, ece_top_label
from .checks import Floats, divide
from .counts import DECISION_METRICS, Confusions
from .coverage_draws import accuracy_at_coverage_draws
from .delong import delong
from .measuring import Scored, right, table_row
from .metrics import probability_metrics, roc_auc
from .selective import accuracy_at_coverage, augrc, aurc, coverage_at_risk, e_aurc
from .sorted_draws import ap_draws, aurc_draws, harmonic_numbers
from .thresholds import outcomes

COVERAGES = {"accuracy_at_coverage_50": 0.5, "accuracy_at_coverage_90": 0.9}
REST_DRAWS = 1_000


def full_row(name: str, scored: Scored) -> dict[str, Any]:
    """`measuring.table_row` with every other number, and their intervals beside those of the headline.

    Adds `metrics.probability_metrics` of the calibrated probabilities (with noise floors), top-label ECE before
    calibration, risk-coverage areas (rule "mean"), accuracies at more coverages, coverage at 5 % risk, DeLong's
    interval of the AUC, and `auc_after`, which differs from `auc` only where parts of the rows have corrections of
    their own.
    """
    used = scored.used
    row = table_row(name, scored)
    row |= probability_metrics(used.p, used.labels) | {"nll": row["nll_after"]}
    row["ece_top_label_before"] = ece_top_label(used.p_raw, used.labels)
    row |= selective_numbers(used.confidence, right(used))
    row["auc_after"] = float(roc_auc(used.logits, used.labels))
    row["delong"] = dataclasses.asdict(delong(used.margins, used.labels, used.groups))
    rest = {name: dataclasses.asdict(interval) for name, interval in rest_intervals(used, row).items()}
    return row | {"intervals": rest | row["intervals"]}


def selective_numbers(confidence: ArrayLike, correct: ArrayLike) -> dict[str, float]:
    """Areas and points of the risk-coverage curve, by name."""
    found = {
        "aurc": float(aurc(confidence, correct)),
        "e_aurc": float(e_aurc(confidence, correct)),
        "augrc": float(augrc(confidence, correct)),
        "coverage_at_risk_5": coverage_at_risk(confidence, correct, 0.05),
    }
    return found | {name: float(accuracy_at_coverage(confidence, correct, c)) for name, c in COVERAGES.items()}


def rest_intervals(used: Scored, row: dict[str, Any], n_draws: int = REST_DRAWS) -> dict[str, Interval]:
    """Intervals of what is not in `headline_draws.HEADLINE`; none with fewer than two groups.

    Args:
        used: rows scored and labelled. row: the values on them, by name.
    """
    drawn = resample(used.groups, n_draws)
    if drawn.n_groups < 2:
        return {}
    values = rest_draws(used, drawn)
    return {
        name: interval_of(of, row[name], n_groups=drawn.n_groups, largest_share=drawn.largest_share)
        for name, of in values.items()
    }


def rest_draws(used: Scored, drawn: Resamples) -> dict[str, Floats]:
    """Each of the other metrics in each draw, shape (draws,); NaN where it is undefined in a draw."""
    y, correct, confidence = used.labels, right(used), used.confidence
    counts = Confusions(*drawn.sums(outcomes(used.point.decide(used.p), y)).T)
    values = {metric.__name__: np.asarray(metric(counts)) for metric in DECISION_METRICS}
    n = counts.tp + counts.fp + counts.tn + counts.fn
    values["positive_rate"] = divide(counts.tp + counts.fn, n)
    loss = np.logaddexp(0, np.where(y == 1, -used.margins, used.margins))
    sums = drawn.sums(np.stack([(used.p_raw - y) ** 2, loss], axis=1))
    values["brier_before"], values["nll_before"] = divide(sums[:, 0], n), divide(sums[:, 1], n)
    values["ece_before"] = _ece_draws(used.p_raw, y, drawn)
    for name, p in (("ece_top_label", used.p), ("ece_top_label_before", used.p_raw)):
        values[name] = _ece_draws(np.maximum(p, 1 - p), (y == (p >= 0.5)).astype(np.float64), drawn)
    values["ap"], values["aurc"] = ap_draws(used.margins, y, drawn), aurc_draws(confidence, correct, drawn)
    n_right = drawn.sums(correct)
    values["e_aurc"] = values["aurc"] - _best_aurc(n, n_right)
    values["augrc"] = _augrc_draws(confidence, correct, n, n_right, drawn)
    values["auc_after"] = auc_draws(used.logits, y, drawn)
    for name, coverage in COVERAGES.items():
        values[name] = accuracy_at_coverage_draws(confidence, correct, drawn, coverage)
    return {name: of for name, of in values.items() if name not in ("f1", "balanced_accuracy")}


def _best_aurc(n_D: Floats, n_right_D: Floats) -> Floats:
    """AURC (rule "mean") of a ranking with every error last."""
    harmonic = harmonic_numbers(n_D)
    tail = harmonic[n_D.astype(np.int64)] - harmonic[n_right_D.astype(np.int64)]
    return divide(n_D - n_right_D - n_right_D * tail, n_D)


def _augrc_draws(confidence: Floats, correct: Floats, n_D: Floats, n_right_D: Floats, drawn: Resamples) -> Floats:
    """AUGRC by its identity with the AUC of confidence against being right (Traub et al., 2024).

    An error adds 1 for every right row it is ranked above, and half for every error: (1 - AUC) r e + e^2 / 2 with r and
    e the shares of right rows and of errors.
    """
    right_share = divide(n_right_D, n_D)
    wrong_share = 1 - right_share
    mixed = right_share * wrong_share
    above = np.where(mixed > 0, (1 - auc_draws(confidence, correct, drawn)) * mixed, 0)
    return above + wrong_share**2 / 2


def _ece_draws(p: Floats, hits: Floats, drawn: Resamples) -> Floats:
    """Equal-width ECE of p against hits: n_b |mean of hits - mean of p| is |sum - sum| over a bin."""
    gaps = np.zeros((len(p), N_BINS))
    gaps[np.arange(len(p)), bin_index(p)] = hits - p
    return divide(np.abs(drawn.sums(gaps)).sum(axis=1), drawn.sums(np.ones(len(p))))
