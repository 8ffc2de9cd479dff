"""MURGAT-Score: what responses claim and cite, found, judged and scored."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .answers import (
        Style,
    )
    from .commands import (
        fact_finder,
        fact_judge,
        program_tools,
        sources_of,
    )
    from .correlation import (
        MetricCorrelations,
        metric_correlations,
        murgat_agreement,
        read_metrics,
    )
    from .entailment import (
        by_language_model,
    )
    from .generations import (
        generate,
        read_murgat_questions,
    )
    from .moments import (
        FindMoments,
        Found,
        Moment,
        Search,
        moments_by_verifier,
        surest,
    )
    from .page import murgat_page
    from .pipeline import (
        Relevance,
        annotate,
        atomic_facts,
        decontextualised,
        is_verifiable,
        judge_responses,
        judged_fact,
    )
    from .plans import (
        VARIANTS,
        Choose,
        Condition,
        Describe,
        FindEvent,
        ForEach,
        Plan,
        Synthesize,
        Variant,
        parse_plan,
        plan_lines,
    )
    from .post_hoc import (
        Proposal,
        attributed_post_hoc,
        moments_by_language_model,
        with_citations,
        write_murgat_responses,
    )
    from .programs import (
        ProgramError,
        Question,
        Tools,
        answer_by_program,
        checked_by,
        described_by,
        described_by_captions,
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
        murgat_scores,
        murgat_system_scores,
    )
    from .views import (
        SAMPLING,
        AnyEvidence,
        CaptionView,
        FrameView,
        View,
    )

__all__ = [
    "MURGAT_MEASURES",
    "SAMPLING",
    "VARIANTS",
    "AnyEvidence",
    "CaptionView",
    "Choose",
    "Condition",
    "Describe",
    "FactCitation",
    "FindEvent",
    "FindMoments",
    "ForEach",
    "Found",
    "FrameView",
    "GivenFact",
    "GivenResponse",
    "GivenSentence",
    "JudgedFact",
    "JudgedResponse",
    "JudgedSentence",
    "MetricCorrelations",
    "Moment",
    "MurgatComparison",
    "MurgatScores",
    "MurgatSystemScores",
    "Plan",
    "ProgramError",
    "Proposal",
    "Question",
    "Relevance",
    "Search",
    "Style",
    "Synthesize",
    "Tools",
    "UnlabelledCitations",
    "Variant",
    "View",
    "annotate",
    "answer_by_program",
    "as_json",
    "atomic_facts",
    "attributed_post_hoc",
    "by_language_model",
    "checked_by",
    "compare_murgat",
    "decontextualised",
    "described_by",
    "described_by_captions",
    "fact_finder",
    "fact_judge",
    "generate",
    "is_verifiable",
    "judge_responses",
    "judged_by_labels",
    "judged_fact",
    "mean_over_groups",
    "metric_correlations",
    "moments_by_language_model",
    "moments_by_verifier",
    "murgat_agreement",
    "murgat_page",
    "murgat_scores",
    "murgat_system_scores",
    "parse_plan",
    "plan_lines",
    "program_tools",
    "read_metrics",
    "read_murgat_questions",
    "read_murgat_responses",
    "sources_of",
    "surest",
    "with_citations",
    "write_murgat_responses",
]

__getattr__ = on_first_use(__name__, __file__)
