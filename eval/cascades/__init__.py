"""Cascades of verifiers: fitted, costed, reported."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .costs import costs_of
    from .fit import fit_cascade, read_stages, score_stages
    from .report import markdown, measure, write_cascade_report

__all__ = [
    "costs_of",
    "fit_cascade",
    "markdown",
    "measure",
    "read_stages",
    "score_stages",
    "write_cascade_report",
]

__getattr__ = on_first_use(__name__, __file__)
