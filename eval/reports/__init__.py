"""The report: what is measured, its tables, plots and page, and comparisons."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .caveats import against_chance
    from .compare import UNCALIBRATED, read_contender
    from .examples import Exhibit, caption_of, exhibit_of
    from .numbers import measure
    from .page import (
        console,
        jsonable,
        make_report,
        measure_files,
        parse_control,
        template_environment,
        write_report,
    )
    from .table_rows import against_own_positives, apply_decision
    from .tables import Table, TableCell

__all__ = [
    "UNCALIBRATED",
    "Exhibit",
    "Table",
    "TableCell",
    "against_chance",
    "against_own_positives",
    "apply_decision",
    "caption_of",
    "console",
    "exhibit_of",
    "jsonable",
    "make_report",
    "measure",
    "measure_files",
    "parse_control",
    "read_contender",
    "template_environment",
    "write_report",
]

__getattr__ = on_first_use(__name__, __file__)
