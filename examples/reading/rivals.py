"""What a verifier of text has to beat: word overlap, the majority's answer; and what people reach among themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import f1_score

from proofreel.core import Pair, Passage
from proofreel.eval.metrics import roc_auc
from proofreel.eval.uncertainty import clustered_interval

_WORD = re.compile(r"[^\W_]+")


class Estimate(NamedTuple):
    """A number, and its 95 % interval over groups."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, metric: Any, scores_N: np.ndarray, labels_N: np.ndarray, group_N: np.ndarray) -> Estimate:
        """Of a weighted metric; all rows weigh 1 in the number."""
        interval = clustered_interval(metric, scores_N, labels_N, group_N)
        value = float(np.ravel(metric(scores_N, labels_N, np.ones((1, len(labels_N)))))[0])
        return cls(value, interval.low, interval.high)


def document_of(pair: Pair) -> str:
    """The words of the evidence."""
    return " ".join(piece.text for piece in pair.evidence if isinstance(piece, Passage))


def word_share(pairs: Sequence[Pair]) -> np.ndarray:
    """(N,) share of a claim's distinct words that occur in its document."""
    shares = []
    for pair in pairs:
        claim, document = (set(_WORD.findall(text.lower())) for text in (pair.claim, document_of(pair)))
        shares.append(len(claim & document) / max(1, len(claim)))
    return np.array(shares)


def tfidf_cosine(pairs: Sequence[Pair]) -> np.ndarray:
    """(N,) cosine of claim and document in TF-IDF weights, whose frequencies are those of the documents."""
    documents = [document_of(pair) for pair in pairs]
    model = TfidfVectorizer().fit(sorted(set(documents)))
    claims_NV, documents_NV = model.transform([pair.claim for pair in pairs]), model.transform(documents)
    return np.asarray(claims_NV.multiply(documents_NV).sum(1)).ravel()


def thresholded(scores_N: np.ndarray, supported_N: np.ndarray, fold_N: np.ndarray) -> np.ndarray:
    """(N,) bool verdicts: each fold by the threshold with the best F1 of supported on all other folds."""
    verdicts = np.zeros(len(scores_N), bool)
    for fold in np.unique(fold_N):
        test = fold_N == fold
        scores, labels = scores_N[~test], supported_N[~test]
        order = np.argsort(-scores, kind="stable")
        hits = np.cumsum(labels[order])
        f1 = 2 * hits / (np.arange(1, len(scores) + 1) + labels.sum())
        last_of_ties = np.append(scores[order][1:] != scores[order][:-1], True)
        best = int(np.argmax(np.where(last_of_ties, f1, -1.0)))
        verdicts[test] = scores_N[test] >= scores[order][best]
    return verdicts


def pooled_f1(verdicts: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """F1 of supported over weighted rows; shape of the weights without their last axis."""
    weights = np.ones((1, len(labels))) if weights is None else np.asarray(weights, float)
    verdicts, labels = np.asarray(verdicts, float), np.asarray(labels, float)
    hits = weights @ (verdicts * labels)
    return np.asarray(2 * hits / np.maximum(weights @ verdicts + weights @ labels, 1e-12))


def row_of(
    scores_N: np.ndarray | None, supported_N: np.ndarray, group_N: np.ndarray, verdicts_N: np.ndarray | None = None
) -> dict[str, float | Estimate]:
    """AUC and F1s of one way of judging. Without scores its verdicts are given, and there is no AUC.

    Returns:
        `auc` and `f1` with intervals over groups; `auc_topics` and `f1_topics`, means over groups; `f1_classes`, the
        mean over the two classes.
    """
    groups = np.unique(group_N)
    verdicts = thresholded(scores_N, supported_N, group_N) if scores_N is not None else verdicts_N
    assert verdicts is not None
    row: dict[str, float | Estimate] = {
        "f1": Estimate.of(pooled_f1, verdicts, supported_N, group_N),
        "f1_topics": float(np.mean([f1_score(supported_N[group_N == g], verdicts[group_N == g]) for g in groups])),
        "f1_classes": float(f1_score(supported_N, verdicts, average="macro")),
    }
    if scores_N is not None:
        within = [float(roc_auc(scores_N[group_N == g], supported_N[group_N == g])) for g in groups]
        row["auc"] = Estimate.of(roc_auc, scores_N, supported_N, group_N)
        row["auc_topics"] = float(np.mean(within))
    return row


def auc_difference(
    scores_N: np.ndarray, others_N: np.ndarray, supported_N: np.ndarray, group_N: np.ndarray
) -> Estimate:
    """How much higher the AUC of the first scores is, on the same resamples of groups."""

    def metric(_scores: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.asarray(roc_auc(scores_N, labels, weights)) - np.asarray(roc_auc(others_N, labels, weights))

    return Estimate.of(metric, scores_N, supported_N, group_N)


def agreement(votes: Sequence[Mapping[str, int]], group_N: np.ndarray) -> dict[str, float | Estimate]:
    """How one annotator agrees with another: the F1s of all ordered pairs of judgments of one claim.

    Args:
        votes: judgments of each claim, `supported` and `not_enough`.
        group_N: what ties claims together.
    """
    yes = np.array([v.get("supported", 0) for v in votes], float)
    no = np.array([v.get("not_enough", 0) for v in votes], float)
    cells = {"tp": yes * (yes - 1), "mixed": yes * no, "tn": no * (no - 1)}

    def f1_of(of: np.ndarray, other: str) -> np.ndarray:
        hits = of @ cells[other]
        return np.asarray(2 * hits / np.maximum(2 * hits + 2 * (of @ cells["mixed"]), 1e-12))

    def metric(_scores: np.ndarray, _labels: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        return f1_of(np.ones((1, len(yes))) if weights is None else np.asarray(weights, float), "tp")

    shown = (group_N == np.unique(group_N)[:, None]).astype(float)
    by_group = f1_of(shown, "tp")
    whole = np.ones((1, len(yes)))
    nobody = np.zeros(len(yes))
    return {
        "f1": Estimate.of(metric, nobody, nobody, group_N),
        "f1_topics": float(by_group.mean()),
        "f1_classes": float((f1_of(whole, "tp")[0] + f1_of(whole, "tn")[0]) / 2),
        "judged_twice": float((yes + no >= 2).sum()),
    }
