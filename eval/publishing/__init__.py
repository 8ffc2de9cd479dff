"""A verifier made public: export, model card, stored evaluation, hub."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .evaluation import shortcomings
    from .exporting import Change, Evaluation, export

__all__ = [
    "Change",
    "Evaluation",
    "export",
    "shortcomings",
]

__getattr__ = on_first_use(__name__, __file__)
