"""Evidence and verdicts as a notebook shows them: small frames, claims, bars."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .frames import frames_of
    from .views import (
        attributed_html,
        evidence_html,
        facts_html,
        localization_html,
        ranking_html,
        ranking_text,
        verdicts_html,
        verdicts_text,
    )

__all__ = [
    "attributed_html",
    "evidence_html",
    "facts_html",
    "frames_of",
    "localization_html",
    "ranking_html",
    "ranking_text",
    "verdicts_html",
    "verdicts_text",
]

__getattr__ = on_first_use(__name__, __file__)
