"""MiRAGE: generated articles held against their sources and a reference, by a verifier and by people."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .embeddings import folder_embeddings
    from .files import read_responses, read_topics, with_cited_videos, with_claims
    from .formulas import (
        NEED_CLAIMS,
        NEED_QUESTIONS,
        Measurement,
        Measurements,
        MirageResult,
        MirageScores,
        items_of,
        mirage_scores,
        scores_of,
    )
    from .generated import (
        AnswerRelevance,
        ReadSource,
        answer_relevance,
        context_relevance,
        describe_with,
        with_questions,
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
    from .page import mirage_page
    from .records import (
        Claim,
        Item,
        JudgedItem,
        MirageOptions,
        ReferenceClaim,
        Response,
        Sentence,
        Source,
        Topic,
        WeighedPair,
    )
    from .reports import human_report, human_report_text, result_table, result_to_dict, shares_of
    from .shares import counted_claims, predicted_claims
    from .text_overlap import against_references, bert_score, rouge

__all__ = [
    "NEED_CLAIMS",
    "NEED_QUESTIONS",
    "AnswerRelevance",
    "Claim",
    "InfoScores",
    "Item",
    "JudgedItem",
    "Measurement",
    "Measurements",
    "MirageOptions",
    "MirageResult",
    "MirageScores",
    "RankingAgreement",
    "ReadSource",
    "ReferenceClaim",
    "Response",
    "Sentence",
    "Source",
    "Topic",
    "WeighedPair",
    "against_references",
    "answer_relevance",
    "bert_score",
    "context_relevance",
    "counted_claims",
    "describe_with",
    "folder_embeddings",
    "human_groundedness",
    "human_info_scores",
    "human_preferences",
    "human_report",
    "human_report_text",
    "info_scores",
    "items_of",
    "mirage_page",
    "mirage_scores",
    "predicted_claims",
    "ranking_agreement",
    "read_responses",
    "read_topics",
    "result_table",
    "result_to_dict",
    "rouge",
    "scores_of",
    "shares_of",
    "with_cited_videos",
    "with_claims",
    "with_questions",
]

__getattr__ = on_first_use(__name__, __file__)
