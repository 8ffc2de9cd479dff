"""Score the rows of a data set with a verifier, into predictions that carry where they come from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from ..core.errors import RowError
from ..core.pairs import Evidence, Pair, Passage, evidence_key
from ..models.hosted import HostedVerifier
from ..models.verdicts import Verdict
from ..models.verifier import Verifier
from .predictions import Prediction


def predict(verifier: Verifier, pairs: Sequence[Pair]) -> list[Prediction]:
    """One prediction per pair, in order; failures carry their reason. Progress goes to stderr."""
    verdicts = verifier.score_pairs(pairs, progress=True)
    return [prediction_of(pair, verdict) for pair, verdict in zip(pairs, verdicts, strict=True)]


def prediction_of(pair: Pair, verdict: Verdict) -> Prediction:
    """The row that says what a verifier said of a pair."""
    return Prediction(
        pair_id=pair.id,
        margin=verdict.margin,
        p_supported=verdict.p_supported if not math.isnan(verdict.margin) else math.nan,
        label=pair.label,
        split=pair.split,
        group=pair.group,
        role=pair.role,
        origin=pair.origin,
        modality=pair.modality,
        error=verdict.error,
        claim=pair.claim,
        evidence=evidence_key(pair.evidence),
    )


def question_of(asked: Verifier | HostedVerifier) -> dict[str, Any]:
    """What the predictions' source says of the question: the prompt's hash, and the labels whose first is the margin's.

    A student that asks another question, or orders its labels in another way, must not learn from these margins.
    """
    if isinstance(asked, HostedVerifier):
        return {"prompt_sha256": asked.prompt.sha256, "labels": list(asked.labels)}
    return {"prompt_sha256": asked.encoder.prompt.sha256, "labels": list(asked.readout.labels)}


def hide_evidence(pairs: Sequence[Pair]) -> list[Pair]:
    """The claim-only control: every claim is judged against the same empty-handed sentence; labels are kept.

    A verifier trained and tested this way tells how much the claims alone give away.
    """
    return [dataclasses.replace(pair, evidence=(Passage("No evidence is given."),)) for pair in pairs]


def mismatch_evidence(pairs: Sequence[Pair], nth: int = 1) -> list[Pair]:
    """The control in which every claim is judged against another group's evidence; its label is kept.

    Evidences are rotated by the `nth` step, counted from half way round, that gives no row evidence of its own group:
    neighbours in a file often differ by design, so a rotation by one would not be another clip drawn at random. A
    verifier that looks must fall to chance on these rows; one that scores well has read the answer off the claim.
    """
    evidences: dict[str, tuple[tuple[Evidence, ...], str]] = {}
    for pair in pairs:
        evidences.setdefault(evidence_key(pair.evidence), (pair.evidence, pair.group))
    keys, left = list(evidences), nth
    for extra in range(len(keys)):
        step = len(keys) // 2 + extra
        other = {k: evidences[keys[(i + step) % len(keys)]] for i, k in enumerate(keys)}
        left -= all(evidences[k][1] != other[k][1] for k in keys)
        if not left:
            return [dataclasses.replace(p, evidence=other[evidence_key(p.evidence)][0]) for p in pairs]
    raise RowError(
        f"mismatched evidence: fewer than {nth} rotations of {len(keys)} evidences give every row another group; "
        "use a split with more groups"
    )
