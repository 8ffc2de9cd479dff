"""MultiFactScore (DualFact+): facts of generated captions, extracted, judged by video and captions, and scored."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .captions import LAYERS, Caption, Clip, Fact, Layer, entity_key, read_captions, read_clips, relation_of
    from .extraction import (
        ROLES,
        SlotScores,
        by_language_model,
        conceptual_facts,
        contextual_facts,
        extraction_scores,
        with_facts,
    )
    from .formulas import (
        ErrorCounts,
        FactVerdict,
        GroundedObject,
        ObjectGrounding,
        PredictedFact,
        RoleAccuracy,
        error_counts,
        error_counts_by_role,
        object_grounding,
        object_grounding_per_video,
        role_accuracy,
    )
    from .judged import (
        CONDITIONS,
        Condition,
        FactOptions,
        Grounding,
        JudgedCaption,
        JudgedCaptions,
        JudgedFact,
        JudgedGold,
        JudgedObject,
        judge_captions,
        objects_of,
    )
    from .page import multifact_page
    from .scores import MultiFactResult, MultiFactScores, ScoredCaption, multifact_scores
    from .tables import failures, grounding_caveat, result_of, tables_of

__all__ = [
    "CONDITIONS",
    "LAYERS",
    "ROLES",
    "Caption",
    "Clip",
    "Condition",
    "ErrorCounts",
    "Fact",
    "FactOptions",
    "FactVerdict",
    "GroundedObject",
    "Grounding",
    "JudgedCaption",
    "JudgedCaptions",
    "JudgedFact",
    "JudgedGold",
    "JudgedObject",
    "Layer",
    "MultiFactResult",
    "MultiFactScores",
    "ObjectGrounding",
    "PredictedFact",
    "RoleAccuracy",
    "ScoredCaption",
    "SlotScores",
    "by_language_model",
    "conceptual_facts",
    "contextual_facts",
    "entity_key",
    "error_counts",
    "error_counts_by_role",
    "extraction_scores",
    "failures",
    "grounding_caveat",
    "judge_captions",
    "multifact_page",
    "multifact_scores",
    "object_grounding",
    "object_grounding_per_video",
    "objects_of",
    "read_captions",
    "read_clips",
    "relation_of",
    "result_of",
    "role_accuracy",
    "tables_of",
    "with_facts",
]

__getattr__ = on_first_use(__name__, __file__)
