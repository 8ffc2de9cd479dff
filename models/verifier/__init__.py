"""The public object, and its views: attribution, localization, long video, other libraries' interfaces."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .attribution import (
        Attributed,
        AttributionPairs,
        CitedClaim,
        EvidenceReader,
        JudgedCitation,
        ProblemKind,
        Resolved,
        Sources,
        resolve,
    )
    from .compat import CrossEncoding, Entailment
    from .evidence_sets import SetCalibration, SetRule, set_verdict
    from .golden import TOLERANCE
    from .interval_rule import IntervalRule, SupportedInterval, averaged
    from .localization import Localization, joined, localize
    from .long_video import Divider
    from .self_test import SelfTest, selftest, write_golden
    from .verdicts import Ranking, Verdicts
    from .verifier import BATCH_TOKENS, ScoringOptions, Verifier

__all__ = [
    "BATCH_TOKENS",
    "TOLERANCE",
    "Attributed",
    "AttributionPairs",
    "CitedClaim",
    "CrossEncoding",
    "Divider",
    "Entailment",
    "EvidenceReader",
    "IntervalRule",
    "JudgedCitation",
    "Localization",
    "ProblemKind",
    "Ranking",
    "Resolved",
    "ScoringOptions",
    "SelfTest",
    "SetCalibration",
    "SetRule",
    "Sources",
    "SupportedInterval",
    "Verdicts",
    "Verifier",
    "averaged",
    "joined",
    "localize",
    "resolve",
    "selftest",
    "set_verdict",
    "write_golden",
]

__getattr__ = on_first_use(__name__, __file__)
