"""The papers' measures in a sentence each, and which convention each of their published numbers follows.

`published_markdown()` shows the convention of a published number and how that is known, so that numbers are compared
only where they mean the same. The sentences of our own metrics are in `catalogue.METRICS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...core import RowError

Known = Literal["stated", "computed", "inferred", "read in its code", "not stated"]

OTHER_DEFINITIONS: dict[str, str] = {
    "n": "Rows that were scored and are labelled: what every metric stands on.",
    "auc_of_verdicts": "ROC-AUC of yes/no verdicts instead of scores, which is balanced accuracy.",
    "ece": "The same as ece_event.",
    "rms_ce_debiased": "Root of the squared calibration error less its bias.",
    "mce": "Largest gap of any bin between P(supported) and the share supported.",
    "noise_floor": "The ECE that a perfectly calibrated model would show on as many rows.",
    "coverage_at_risk": "Largest share of rows that can be accepted at no more than a given error rate.",
    "abstention_calibration_error": "Mean over corruption levels of the gap between a model's abstention and people's.",
    "shapley_reliance": "A modality's mean gain in accuracy over all orders of making modalities clean.",
    "normalised_reliance": "Share of clean accuracy lost when this modality alone is corrupted.",
    "mean_confidence": "Mean confidence at a corruption level, of one way of reading confidence only.",
    "tiou_paper": "Overlap summed over pairs of intervals / (lengths summed - overlap); repeats count twice.",
    "tiou_code": "Seconds in both sets of intervals / seconds in either, each counted once.",
    "miou": "Mean tIoU over questions.",
    "recall_at_iou": "Mean over thresholds 0.1 to 0.5 of the share of questions whose tIoU passes.",
    "accuracy_at_iou": "The same share where the chosen option must be right too.",
    "clue_recovery_rate": "min(accuracy on the video, accuracy on the clues) / accuracy on the clues.",
    "mean_of_videos": "Accuracy per role, averaged over a video's roles, then over videos.",
    "mean_of_roles": "Accuracy over all facts of a role, averaged over roles.",
    "pooled": "Accuracy over all facts, whatever their video or role.",
    "precision_pooled": "Share of all citations that support their fact.",
    "precision_per_fact": "Mean over facts of the share of their citations that support them.",
    "citation_propagation": "Share of atomic facts that carry exactly their sentence's citations.",
    "decomposition_f1": "Harmonic mean of mean best ROUGE-1 F1 of generated facts and of reference facts.",
    "kendall": "Kendall's tau-b, which allows for ties.",
}


@dataclass(frozen=True)
class Published:
    """A number of a paper: where it stands, which convention it follows, and how that is known."""

    paper: str
    where: str
    number: str
    follows: str
    known: Known


PUBLISHED: tuple[Published, ...] = (
    Published(
        "MiRAGE",
        "Table 10",
        "F1 50.0 of always-yes",
        "micro F1 (accuracy) on balanced claims; the positive class's F1 would be 66.7, macro F1 33.3",
        "computed",
    ),
    Published(
        "MiRAGE",
        "Table 10",
        "F1 of the other rows",
        "no one average fits all: micro F1 on balanced claims would equal an AUC of verdicts (99.4, 88.7; not 41.7)",
        "computed",
    ),
    Published("MiRAGE", "Table 10", "AUC", "auc_of_verdicts, no score being published", "inferred"),
    Published("MiRAGE", "formulas 1-3", "InfoP, InfoR, CiteP", "mean over the claims of a topic", "stated"),
    Published("MiRAGE", "formula 5", "CiteR", "mean over reference claims of the best cited video", "stated"),
    Published("MiRAGE", "Tables 1-9", "agreement", "Kendall's tau x 100", "stated"),
    Published("MuRGAt", "section 3.3.2", "attribution precision", "precision_pooled over a response", "stated"),
    Published("MuRGAt", "code", "attribution precision", "precision_per_fact", "read in its code"),
    Published("MuRGAt", "code", "an unreadable judge", "counts as not entailed", "read in its code"),
    Published("MuRGAt", "Table 1", "Attribution", "the recall column of Table 6, not its F1", "computed"),
    Published("MuRGAt", "Table 2", "F1", "harmonic mean of the printed precision and recall", "computed"),
    Published("MuRGAt", "Table 6", "F1", "harmonic mean of the printed precision and recall", "computed"),
    Published(
        "MuRGAt", "Table 6", "MURGAT-S", "mean over responses: not the product of the printed columns", "inferred"
    ),
    Published("MuRGAt", "Table 3", "F1", "decomposition_f1; mean over sentences or pool of facts", "not stated"),
    Published("MuRGAt", "Table 4", "correlation", "Pearson's r", "stated"),
    Published("OMD-Bench", "Table 1", "accuracy at k = 1, 2", "mean of the three conditions' accuracies", "computed"),
    Published("OMD-Bench", "Table 1", "accuracy", "unreadable answers are left out", "stated"),
    Published("OMD-Bench", "Table 4", "shares", "of the sum of values; omitted where one is negative", "stated"),
    Published("OMD-Bench", "Table 8", "ACE", "abstention_calibration_error", "computed"),
    Published("OMD-Bench", "Table 9", "ECE", "ece_top_label over all levels pooled; number of bins", "not stated"),
    Published("OMD-Bench", "Table 9", "RC-AUC", "aurc in percent; which of its three area rules", "not stated"),
    Published("CG-Bench", "formula 1", "tIoU", "tiou_paper", "stated"),
    Published("CG-Bench", "code", "tIoU", "tiou_code", "read in its code"),
    Published("CG-Bench", "section 3.3.2", "acc.@IoU", "a tIoU must exceed the threshold", "stated"),
    Published("CG-Bench", "code", "rec.@IoU, acc.@IoU", "a tIoU must reach the threshold", "read in its code"),
    Published("CG-Bench", "Table 3", "rec.@IoU, acc.@IoU", "mean over the thresholds 0.1 to 0.5", "stated"),
    Published("CG-Bench", "Table 4", "acc.@IoU", "the single threshold 0", "stated"),
    Published("CG-Bench", "code", "an unreadable answer", "leaves the denominator", "read in its code"),
    Published("CG-Bench", "Table 3", "CRR", "clue_recovery_rate of the printed accuracies", "computed"),
    Published("DualFact", "section 5.2", "Acc(v)", "mean over a video's roles, see mean_of_videos", "stated"),
    Published(
        "DualFact", "Table 6", "Avg. of conceptual facts, textual", "mean of the printed role columns", "computed"
    ),
    Published("DualFact", "Table 6", "Avg., multimodal", "not the mean of the printed role columns", "computed"),
    Published("DualFact", "Tables 7, 9", "errors", "shares of the errors of a fact type, not of its facts", "computed"),
    Published("DualFact", "Table 12", "grounding", "over all objects of all videos", "computed"),
)


def published_markdown(paper: str | None = None) -> str:
    """`PUBLISHED` as a Markdown table, of one paper or of all.

    Raises:
        RowError: no such paper.
    """
    chosen = [entry for entry in PUBLISHED if paper in (None, entry.paper)]
    if not chosen:
        papers = ", ".join(dict.fromkeys(entry.paper for entry in PUBLISHED))
        raise RowError(f"definitions: no such paper, got {paper!r}; use one of {papers}")
    rows = [f"| {e.paper} | {e.where} | {e.number} | {e.follows} | {e.known} |" for e in chosen]
    return "\n".join(["| paper | where | number | follows | known |", "|---|---|---|---|---|", *rows])
