"""Public benchmarks: their statements, their own scores, and what a run says."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .answers import Answer, answers_of
    from .page import card_entry, claim_only_table, counts_text, headline_text, scores_table
    from .protocols import PROTOCOLS
    from .questions import ClaimOnly, claim_only, counts_of, read_statements, with_media, without_files

__all__ = [
    "PROTOCOLS",
    "Answer",
    "ClaimOnly",
    "answers_of",
    "card_entry",
    "claim_only",
    "claim_only_table",
    "counts_of",
    "counts_text",
    "headline_text",
    "read_statements",
    "scores_table",
    "with_media",
    "without_files",
]

__getattr__ = on_first_use(__name__, __file__)
