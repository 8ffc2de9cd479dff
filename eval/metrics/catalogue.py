"""Every metric of a report, one line each: `METRICS`, and what is derived from it.

To add a metric, write a function and add its line; its column, its definition, its place in metrics.json, its interval,
its place on the model card and its line in docs/metrics.md follow. The order is that of a report's table of every
number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import RowError
from ...models.decision import (
    Confusions,
    CountMetric,
    accuracy,
    balanced_accuracy,
    confusion,
    divide,
    f1,
    f1_macro,
    f1_micro,
    f1_negative,
    f1_weighted,
    mcc,
    precision,
    predicted_positive_rate,
    recall,
    specificity,
    youden,
)
from .base import BinGaps, DrawnRows, Floats, Hub, Metric
from .calibration_error import (
    Statistic,
    brier,
    ece_classwise,
    ece_debiased,
    ece_event,
    ece_top_label,
    mce,
    smooth_ece,
)
from .columns import summed_columns, values_of_sums
from .defined import OTHER_DEFINITIONS
from .draws import (
    accuracy_at_coverage_draws,
    ap_draws,
    auc_draws,
    augrc_draws,
    aurc_draws,
    best_aurc,
    bin_gaps,
    ece_draws,
    weighted_draws,
)
from .ranking import average_precision, roc_auc
from .selective import accuracy_at_coverage, augrc, aurc, coverage_at_risk, e_aurc


def _sums(drawn: DrawnRows) -> Floats:
    return drawn.resamples.sums(summed_columns(drawn.rows))


def _values(drawn: DrawnRows) -> dict[str, Floats]:
    return values_of_sums(drawn.once(_sums))


def _counts(drawn: DrawnRows) -> Confusions:
    return Confusions(*drawn.once(_sums)[:, :4].T)


def _n(drawn: DrawnRows) -> Floats:
    return sum(drawn.once(_counts), np.zeros(()))


def _n_right(drawn: DrawnRows) -> Floats:
    counts = drawn.once(_counts)
    return counts.tp + counts.tn


def _raw_sums(drawn: DrawnRows) -> Floats:
    rows = drawn.rows
    return drawn.resamples.sums(np.stack([(rows.p_raw - rows.labels) ** 2, rows.loss_raw], axis=1))


def _aurc_draws(drawn: DrawnRows) -> Floats:
    return aurc_draws(drawn.rows.confidence, drawn.rows.correct, drawn.resamples)


def _e_aurc_draws(drawn: DrawnRows) -> Floats:
    return drawn.once(_aurc_draws) - best_aurc(drawn.once(_n), drawn.once(_n_right))


def _augrc_draws(drawn: DrawnRows) -> Floats:
    rows = drawn.rows
    return augrc_draws(rows.confidence, rows.correct, drawn.once(_n), drawn.once(_n_right), drawn.resamples)


def _top_label_gaps(drawn: DrawnRows, p: Floats) -> BinGaps:
    hits = (drawn.rows.labels == (p >= 0.5)).astype(np.float64)
    return bin_gaps(np.maximum(p, 1 - p), hits, drawn.resamples)


def _top_label_draws(drawn: DrawnRows, p: Floats) -> Floats:
    hits = (drawn.rows.labels == (p >= 0.5)).astype(np.float64)
    return ece_draws(np.maximum(p, 1 - p), hits, drawn.resamples)


def decision_metric(metric: CountMetric, definition: str, **shown: Any) -> Metric:
    """A metric of the four confusion counts at the threshold."""
    return Metric(
        metric.__name__,
        definition,
        lambda rows: metric(confusion(rows.decisions, rows.labels)),
        lambda drawn: np.asarray(metric(drawn.once(_counts))),
        in_parts=True,
        of_counts=metric,
        **shown,
    )


def ranking_metric(
    name: str, metric: Callable[..., Floats], definition: str, draws: Any = None, **shown: Any
) -> Metric:
    """A metric of margins and labels that takes weights, as `roc_auc`.

    Args:
        draws: a faster way to its values than one pass over the rows per draw: of (scores, labels, resamples).
    """

    def drawn_values(drawn: DrawnRows) -> Floats:
        rows = drawn.rows
        if draws is None:
            return weighted_draws(metric, rows.margins, rows.labels, drawn.resamples)
        return draws(rows.margins, rows.labels, drawn.resamples)

    return Metric(name, definition, lambda rows: float(metric(rows.margins, rows.labels)), drawn_values, **shown)


def calibration_metric(name: str, error: Statistic, definition: str, draws: Any = None, **shown: Any) -> Metric:
    """A calibration error of the calibrated probabilities, shown beside its noise floor.

    Args:
        draws: of (drawn rows); without them it has no interval. `binning` among `shown` is an option of the error.
    """
    options = {"binning": shown.pop("binning")} if "binning" in shown else {}
    return Metric(
        name,
        definition,
        lambda rows: error(rows.p, rows.labels, **options),
        draws,
        statistic=(error, options),
        **shown,
    )


def selective_metric(
    name: str, area: Callable[[Floats, Floats], Any], definition: str, draws: Any, **shown: Any
) -> Metric:
    """A metric of confidence and of whether decisions are right."""
    return Metric(name, definition, lambda rows: float(area(rows.confidence, rows.correct)), draws, **shown)


def _at_coverage(name: str, coverage: float | None, **shown: Any) -> Metric:
    """Accuracy at a coverage; at that of the rows where None."""
    return Metric(
        name,
        "Accuracy among the most confident rows that make up a given share of all.",
        lambda rows: float(accuracy_at_coverage(rows.confidence, rows.correct, coverage or rows.coverage)),
        lambda drawn: accuracy_at_coverage_draws(
            drawn.rows.confidence, drawn.rows.correct, drawn.resamples, coverage or drawn.rows.coverage
        ),
        **shown,
    )


_AUC = "Probability that a supported row's margin is above another's, ties counting half."
_BRIER = "Mean of (p - y)^2 over one class, half of the two-class form."
_NLL = "Mean log-loss in nats, from log-odds."
_ECE = "Mean gap over bins between P(supported) and the share supported, weighted by rows."
_TOP = "Mean gap over bins between confidence max(p, 1 - p) and accuracy, weighted by rows."

_LISTED: tuple[Metric, ...] = (
    ranking_metric(
        "auc", roc_auc, _AUC, auc_draws, label="AUC", column="AUC", is_headline=True, hub=Hub("roc_auc", "ROC-AUC", 1)
    ),
    Metric(
        "auc_after",
        _AUC,
        lambda rows: float(roc_auc(rows.log_odds, rows.labels)),
        lambda d: auc_draws(d.rows.log_odds, d.rows.labels, d.resamples),
        label="AUC of p, corrected by part",
    ),
    ranking_metric(
        "ap",
        average_precision,
        "Average precision: precision summed over steps of recall, not the trapezoid under the PR curve.",
        ap_draws,
        label="AP (chance: the positive rate)",
        column="AP",
        hub=Hub("average_precision", "average precision", 2),
    ),
    Metric(
        "positive_rate",
        "Share of rows labelled supported; average precision of a random ranking.",
        lambda rows: float(divide(np.sum(rows.labels), len(rows.labels))),
        lambda d: divide(d.once(_counts).tp + d.once(_counts).fn, d.once(_n)),
        label="positive rate",
        in_parts=True,
    ),
    decision_metric(
        f1,
        "F1 of the supported class, 2 tp / (2 tp + fp + fn).",
        label="F1, supported class",
        column="F1",
        is_headline=True,
        hub=Hub("f1", "F1 of supported", 4),
    ),
    decision_metric(
        f1_negative, "F1 of the class that is not supported, 2 tn / (2 tn + fp + fn).", label="F1, other class"
    ),
    decision_metric(
        f1_macro, "Plain mean of the two classes' F1.", label="F1, macro", hub=Hub("f1_macro", "macro F1", 5)
    ),
    decision_metric(f1_micro, "F1 of both classes' counts pooled, which is accuracy.", label="F1, micro"),
    decision_metric(
        f1_weighted, "Mean of the two classes' F1, weighted by how often each label occurs.", label="F1, weighted"
    ),
    decision_metric(accuracy, "Share of right decisions.", hub=Hub("accuracy", "accuracy", 6)),
    decision_metric(
        balanced_accuracy,
        "Mean of recall and specificity; 50 % for any constant answer.",
        label="balanced accuracy",
        column="balanced acc.",
        is_headline=True,
        hub=Hub("balanced_accuracy", "balanced accuracy", 3),
    ),
    decision_metric(youden, "Recall + specificity - 1."),
    decision_metric(
        mcc, "Matthews' correlation of decisions and labels; undefined where either is constant.", label="MCC"
    ),
    decision_metric(
        precision,
        "Share of rows called supported that are.",
        label="precision",
        share_of=lambda rows: rows.decisions,
    ),
    decision_metric(
        recall, "Share of supported rows called so.", label="recall", share_of=lambda rows: rows.labels == 1
    ),
    decision_metric(
        specificity,
        "Share of rows not supported that are called so.",
        label="specificity",
        share_of=lambda rows: rows.labels == 0,
    ),
    decision_metric(predicted_positive_rate, "Share of rows called supported.", label="called supported"),
    Metric(
        "brier_before",
        _BRIER,
        lambda rows: brier(rows.p_raw, rows.labels),
        lambda d: divide(d.once(_raw_sums)[:, 0], d.once(_n)),
        in_parts=True,
    ),
    Metric(
        "brier",
        _BRIER,
        lambda rows: brier(rows.p, rows.labels),
        lambda d: d.once(_values)["brier"],
        label="Brier score",
        column="Brier",
        row_key="brier_after",
        before="brier_before",
        is_headline=True,
        hub=Hub("brier_score", "Brier score", 8),
    ),
    Metric(
        "nll_before",
        _NLL,
        lambda rows: float(divide(np.sum(rows.loss_raw), len(rows.labels))),
        lambda d: divide(d.once(_raw_sums)[:, 1], d.once(_n)),
        in_parts=True,
    ),
    Metric(
        "nll",
        _NLL,
        lambda rows: float(divide(np.sum(rows.loss), len(rows.labels))),
        lambda d: d.once(_values)["nll"],
        label="NLL",
        column="NLL",
        row_key="nll_after",
        before="nll_before",
        is_headline=True,
        hub=Hub("log_loss", "log-loss", 7),
    ),
    Metric(
        "ece_before",
        _ECE,
        lambda rows: ece_event(rows.p_raw, rows.labels),
        lambda d: ece_draws(d.rows.p_raw, d.rows.labels, d.resamples),
        gaps=lambda d: bin_gaps(d.rows.p_raw, d.rows.labels, d.resamples),
        column="ECE before",
    ),
    calibration_metric(
        "ece_event",
        ece_event,
        _ECE,
        lambda d: d.once(_values)["ece_event"],
        gaps=lambda d: bin_gaps(d.rows.p, d.rows.labels, d.resamples),
        label="ECE, event",
        setting="equal width",
        column="ECE after",
        chance_column="ECE by chance",
        row_key="ece_after",
        before="ece_before",
        is_headline=True,
        hub=Hub("expected_calibration_error", "calibration error, 15 equal-width bins", 9),
    ),
    calibration_metric("ece_event_mass", ece_event, _ECE, binning="mass", label="ECE, event", setting="equal mass"),
    calibration_metric(
        "ece_debiased",
        ece_debiased,
        "Event ECE less the part that chance in each bin's labels explains.",
        label="ECE, event",
        setting="debiased",
    ),
    Metric(
        "ece_top_label_before",
        _TOP,
        lambda rows: ece_top_label(rows.p_raw, rows.labels),
        lambda d: _top_label_draws(d, d.rows.p_raw),
        gaps=lambda d: _top_label_gaps(d, d.rows.p_raw),
    ),
    calibration_metric(
        "ece_top_label",
        ece_top_label,
        _TOP,
        lambda d: _top_label_draws(d, d.rows.p),
        gaps=lambda d: _top_label_gaps(d, d.rows.p),
        label="ECE, top-label",
        before="ece_top_label_before",
    ),
    calibration_metric(
        "ece_classwise", ece_classwise, "Mean of the event ECE of both classes.", label="ECE, classwise"
    ),
    calibration_metric(
        "smooth_ece",
        smooth_ece,
        "Calibration error with a kernel whose width is chosen by the data, without bins.",
        label="smooth ECE",
    ),
    calibration_metric("mce_mass", mce, OTHER_DEFINITIONS["mce"], binning="mass", label="MCE", setting="equal mass"),
    _at_coverage("accuracy_at_coverage_50", 0.5, label="accuracy at 50 % coverage"),
    _at_coverage(
        "accuracy_at_coverage", None, label="accuracy at 80 % coverage", column="acc. at 80 %", is_headline=True
    ),
    _at_coverage("accuracy_at_coverage_90", 0.9, label="accuracy at 90 % coverage"),
    selective_metric(
        "coverage_at_risk_5",
        lambda c, right: coverage_at_risk(c, right, 0.05),
        OTHER_DEFINITIONS["coverage_at_risk"],
        None,
        label="coverage at 5 % errors",
    ),
    selective_metric(
        "aurc",
        aurc,
        "Area under the error rate of the most confident rows over their share, by a named rule; lower is better.",
        lambda d: d.once(_aurc_draws),
        label="AURC",
    ),
    selective_metric(
        "e_aurc",
        e_aurc,
        "AURC less that of the best possible ranking of the same errors.",
        _e_aurc_draws,
        label="E-AURC",
    ),
    selective_metric(
        "augrc",
        augrc,
        "Area under the share of all rows that are accepted and wrong, over coverage; lower is better.",
        _augrc_draws,
        label="AUGRC",
    ),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in _LISTED}


def definitions() -> dict[str, str]:
    """The sentence of every metric, then of the papers' measures; `_before` and `_after` (calibration) are no names."""
    ours = {name: metric.definition for name, metric in METRICS.items() if name == _plain(name)}
    return ours | OTHER_DEFINITIONS


def definition(name: str) -> str:
    """The one sentence that says what a metric is; `_before` and `_after` (calibration) may follow its name.

    Raises:
        RowError: no metric has that name.
    """
    sentences = definitions()
    if _plain(name) not in sentences:
        raise RowError(f"metrics: no such metric, got {name!r}; use one of {', '.join(sentences)}")
    return sentences[_plain(name)]


def _plain(name: str) -> str:
    return name.removesuffix("_before").removesuffix("_after")


def metrics_markdown() -> str:
    """`METRICS` as the Markdown table of docs/metrics.md."""
    lines = ["| name | definition | column | interval | model card |", "|---|---|---|---|---|"]
    for name, metric in METRICS.items():
        draws = "10,000 draws" if metric.is_headline else "1,000 draws" if metric.draws else "-"
        hub = f"`{metric.hub.type}`" if metric.hub else "-"
        lines.append(f"| `{name}` | {metric.definition} | {metric.column or '-'} | {draws} | {hub} |")
    return "\n".join(lines)
