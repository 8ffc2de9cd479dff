"""What a caller holds, as claims, evidence and pairs: the one place that decides what a value is read as."""

from .claims import as_claims, one_claim
from .evidence import AUDIO, as_evidence, media_evidence
from .pairs import as_evidences, as_pairs, is_one_pair

__all__ = [
    "AUDIO",
    "as_claims",
    "as_evidence",
    "as_evidences",
    "as_pairs",
    "is_one_pair",
    "media_evidence",
    "one_claim",
]
