"""Importers: one file per annotation format, each an `Importer`; `IMPORTERS` lists them.

A new format is one file that ends in its `IMPORTER`, and its line in `IMPORTERS`. Beside the importers lies what they
share: records, statements of questions and answers, transcripts, tables of any columns.
"""

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
from .base import Importer, Record, Rejected, Row, kind_of, read_json_members, read_json_records, reject
from .facts import conceptual_claim, contextual_claim
from .mirage_grounding import video_name
from .murgat import bare_fact, murgat_problem, murgat_reasoning
from .omdbench import OMDBenchOptions, conflicting_rows
from .pairs import pair_from, pairs_suffix, read_pair_records
from .qa_statements import statement
from .table import cell_seconds, modality_of
from .tabular_files import SUFFIXES, TabularFile, cell, holds_bytes, missing_columns, tables
from .transcripts import Cue, Transcripts, read_cues, transcript_of

__all__ = [
    "IMPORTERS",
    "SUFFIXES",
    "Cue",
    "Importer",
    "OMDBenchOptions",
    "Record",
    "Rejected",
    "Row",
    "TabularFile",
    "Transcripts",
    "bare_fact",
    "cell",
    "cell_seconds",
    "conceptual_claim",
    "conflicting_rows",
    "contextual_claim",
    "formats_table",
    "holds_bytes",
    "kind_of",
    "missing_columns",
    "modality_of",
    "murgat_problem",
    "murgat_reasoning",
    "pair_from",
    "pairs_suffix",
    "read_cues",
    "read_json_members",
    "read_json_records",
    "read_pair_records",
    "reject",
    "statement",
    "tables",
    "transcript_of",
    "video_name",
]

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
