"""MURGAT-Score: what responses claim and cite, found, judged and scored."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .pipeline import (
        Relevance,
        Style,
        annotate,
        atomic_facts,
        decontextualised,
        is_verifiable,
        judge_responses,
        judged_fact,
    )
    from .responses import (
        GivenFact,
        GivenResponse,
        GivenSentence,
        UnlabelledCitations,
        judged_by_labels,
        read_murgat_responses,
    )
    from .scores import (
        MURGAT_MEASURES,
        FactCitation,
        JudgedFact,
        JudgedResponse,
        JudgedSentence,
        MurgatComparison,
        MurgatScores,
        MurgatSystemScores,
        as_json,
        compare_murgat,
        mean_over_groups,
        murgat_agreement,
        murgat_scores,
        murgat_system_scores,
    )

__all__ = [
    "MURGAT_MEASURES",
    "FactCitation",
    "GivenFact",
    "GivenResponse",
    "GivenSentence",
    "JudgedFact",
    "JudgedResponse",
    "JudgedSentence",
    "MurgatComparison",
    "MurgatScores",
    "MurgatSystemScores",
    "Relevance",
    "Style",
    "UnlabelledCitations",
    "annotate",
    "as_json",
    "atomic_facts",
    "compare_murgat",
    "decontextualised",
    "is_verifiable",
    "judge_responses",
    "judged_by_labels",
    "judged_fact",
    "mean_over_groups",
    "murgat_agreement",
    "murgat_scores",
    "murgat_system_scores",
    "read_murgat_responses",
]

__getattr__ = on_first_use(__name__, __file__)
