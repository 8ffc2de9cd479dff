"""Teachers: calibrated predictions to mine with and distil from, alone or averaged."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .ensemble import agreements, check_output, clipped_log_odds, contradicted, join, write_teacher_file
    from .teachers import read_teachers

__all__ = [
    "agreements",
    "check_output",
    "clipped_log_odds",
    "contradicted",
    "join",
    "read_teachers",
    "write_teacher_file",
]

__getattr__ = on_first_use(__name__, __file__)
