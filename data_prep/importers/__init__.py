"""Importers: one module per annotation format, each `read(path, ...)` -> rows and rejections, in file order."""

from .base import Record, Rejected, Row, kind_of, read_json_members, read_json_records, reject
from .facts import conceptual_claim, contextual_claim, read_facts
from .mirage_grounding import merge_judgments, read_judgments
from .mirage_judgments import merge_annotators
from .qa_statements import statement
from .tabular_files import SUFFIXES, missing_columns, tables
from .transcripts import Cue, read_cues, transcript_of

__all__ = [
    "SUFFIXES",
    "Cue",
    "Record",
    "Rejected",
    "Row",
    "conceptual_claim",
    "contextual_claim",
    "kind_of",
    "merge_annotators",
    "merge_judgments",
    "missing_columns",
    "read_cues",
    "read_facts",
    "read_json_members",
    "read_json_records",
    "read_judgments",
    "reject",
    "statement",
    "tables",
    "transcript_of",
]
