"""The papers' scores: MuRGAt, DualFact, OMD-Bench, CG-Bench."""

from .cgbench import GroundedAnswer, GroundingScores, grounding_scores, localization_scores
from .murgat import attribution_of

__all__ = [
    "GroundedAnswer",
    "GroundingScores",
    "attribution_of",
    "grounding_scores",
    "localization_scores",
]
