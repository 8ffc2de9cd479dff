"""Importers: one file per annotation format, each an `Importer`; `IMPORTERS` lists them.

Beside them: what they share (records, statements of questions and answers, transcripts, tables of any columns).
"""

from .base import Importer, Record, Rejected, Row, kind_of, read_json_members, read_json_records, reject
from .facts import conceptual_claim, contextual_claim
from .pairs import JSON_COLUMNS, pair_from, pairs_suffix, read_pair_records
from .qa_statements import statement
from .registry import IMPORTERS, formats_table
from .tabular_files import SUFFIXES, missing_columns, tables
from .transcripts import Cue, read_cues, transcript_of

__all__ = [
    "IMPORTERS",
    "JSON_COLUMNS",
    "SUFFIXES",
    "Cue",
    "Importer",
    "Record",
    "Rejected",
    "Row",
    "conceptual_claim",
    "contextual_claim",
    "formats_table",
    "kind_of",
    "missing_columns",
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
]
