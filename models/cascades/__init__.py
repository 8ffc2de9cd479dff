"""Several verifiers as one: plan, directory and the object that asks them."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .cascade import Cascade, CascadeStage, shares
    from .directory import is_cascade, read_cascade, stage_folder
    from .plan import NOBODY, Band, CascadePlan, View, reached

__all__ = [
    "NOBODY",
    "Band",
    "Cascade",
    "CascadePlan",
    "CascadeStage",
    "View",
    "is_cascade",
    "reached",
    "read_cascade",
    "shares",
    "stage_folder",
]

__getattr__ = on_first_use(__name__, __file__)
