"""`CALIBRATORS`: every calibrator there is, by name. Choices, checks and the table of the docs come from it."""

from __future__ import annotations

from typing import Any

from ...core import CalibrationError
from .calibrator import Calibrator
from .parametric import Beta, Platt, Temperature, Uncalibrated
from .steps import CentredIsotonic, Histogram, Isotonic, VennAbers

CALIBRATORS: dict[str, type[Calibrator]] = {  # simplest first: of equals, `auto` takes the first
    calibrator.name: calibrator
    for calibrator in (
        Uncalibrated,
        Temperature,
        Platt,
        Beta,
        CentredIsotonic,
        Isotonic,
        Histogram,
        VennAbers,
    )
}


def calibrator_named(method: Any) -> type[Calibrator]:
    """The calibrator of this name; `method` may be any value read from a file.

    Raises:
        CalibrationError: there is none.
    """
    if not isinstance(method, str) or method not in CALIBRATORS:
        raise CalibrationError(f"calibration: unknown method, got {method!r}; use one of {list(CALIBRATORS)}")
    return CALIBRATORS[method]


def calibrator_table() -> str:
    """The Markdown table of docs/calibration.md: a row per calibrator, simplest first."""
    lines = ["| method | map | probabilities of 0 and 1 | parameters | `auto` from |", "|---|---|---|---|---|"]
    for name, c in CALIBRATORS.items():
        rows = f"{c.fewest_rows:,} rows" if c.fewest_rows else "any"
        lines.append(f"| `{name}` | {c.description} | {c.extremes} | {', '.join(c.parameter_names())} | {rows} |")
    return "\n".join(lines)
