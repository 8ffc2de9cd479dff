"""Rows for other trainers, and files of claims as people hold them."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .chat import is_chat_row, pair_of_chat
    from .claim_files import (
        COLUMNS,
        ClaimFile,
        ClaimRow,
        ClaimStream,
        claim_formats,
        format_of,
        read_claims,
        repeated,
        stream_claims,
    )
    from .conflict_clips import Corruptions, PictureCorruption, SoundCorruption, write_conflict_clips
    from .own_columns import ClaimsRead, GivenRow, GivenRows, given_rows, in_batches, rows_sha256
    from .rows import FORMATS, dataset_info
    from .write import export_split

__all__ = [
    "COLUMNS",
    "FORMATS",
    "ClaimFile",
    "ClaimRow",
    "ClaimStream",
    "ClaimsRead",
    "Corruptions",
    "GivenRow",
    "GivenRows",
    "PictureCorruption",
    "SoundCorruption",
    "claim_formats",
    "dataset_info",
    "export_split",
    "format_of",
    "given_rows",
    "in_batches",
    "is_chat_row",
    "pair_of_chat",
    "read_claims",
    "repeated",
    "rows_sha256",
    "stream_claims",
    "write_conflict_clips",
]

__getattr__ = on_first_use(__name__, __file__)
