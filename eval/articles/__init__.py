"""MiRAGE: generated articles held against their sources and a reference, by a verifier and by people."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .files import (
        read_responses,
        read_topics,
        with_cited_videos,
        with_claims,
    )
    from .formulas import (
        Claim,
        Item,
        JudgedItem,
        MirageOptions,
        MirageResult,
        MirageScores,
        ReferenceClaim,
        Response,
        Sentence,
        Source,
        Topic,
        WeighedPair,
        mirage_scores,
        predicted_claims,
        scores_of,
    )
    from .human import (
        InfoScores,
        RankingAgreement,
        human_groundedness,
        human_info_scores,
        human_preferences,
        info_scores,
        ranking_agreement,
    )
    from .reports import (
        human_report,
        human_report_text,
        result_table,
        result_to_dict,
        shares_of_forms,
    )
    from .text_overlap import (
        bert_score,
        rouge,
    )

__all__ = [
    "Claim",
    "InfoScores",
    "Item",
    "JudgedItem",
    "MirageOptions",
    "MirageResult",
    "MirageScores",
    "RankingAgreement",
    "ReferenceClaim",
    "Response",
    "Sentence",
    "Source",
    "Topic",
    "WeighedPair",
    "bert_score",
    "human_groundedness",
    "human_info_scores",
    "human_preferences",
    "human_report",
    "human_report_text",
    "info_scores",
    "mirage_scores",
    "predicted_claims",
    "ranking_agreement",
    "read_responses",
    "read_topics",
    "result_table",
    "result_to_dict",
    "rouge",
    "scores_of",
    "shares_of_forms",
    "with_cited_videos",
    "with_claims",
]

__getattr__ = on_first_use(__name__, __file__)
