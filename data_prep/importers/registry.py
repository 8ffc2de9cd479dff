"""The annotation formats a build can read, one line per importer, and the table of them in docs/formats.md."""

from __future__ import annotations

import dataclasses

from . import (
    cgbench,
    facts,
    mirage,
    mirage_grounding,
    mirage_judgments,
    mirage_predictions,
    mirage_raw,
    murgat,
    omdbench,
    pairs,
    table,
    videommmu,
    youcook2,
)
from .base import Importer

IMPORTERS: dict[str, Importer] = {
    "facts": facts.IMPORTER,
    "grounding": mirage_grounding.IMPORTER,
    "mirage": mirage.IMPORTER,
    "mirage_raw": mirage_raw.IMPORTER,
    "mirage_predictions": mirage_predictions.IMPORTER,
    "mirage_judgments": mirage_judgments.IMPORTER,
    "murgat": murgat.IMPORTER,
    "cgbench": cgbench.IMPORTER,
    "omdbench": omdbench.IMPORTER,
    "youcook2": youcook2.IMPORTER,
    "videommmu": videommmu.IMPORTER,
    "table": table.IMPORTER,
    "pairs": pairs.IMPORTER,
}


def formats_table() -> str:
    """The table of formats in docs/formats.md, in Markdown."""
    rows = ["| format | what its files hold | options |", "| --- | --- | --- |"]
    for name, importer in IMPORTERS.items():
        fields = () if importer.options is None else dataclasses.fields(importer.options)
        options = ", ".join(f"`{field.name}`" for field in fields) or "none"
        extra = "; `statements` of the source" if importer.writes_statements else ""
        rows.append(f"| `{name}` | {importer.description} | {options}{extra} |")
    return "\n".join(rows) + "\n"
