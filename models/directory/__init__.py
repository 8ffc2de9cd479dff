"""The published format: a verifier's folder written, checked, read and merged."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .adapter_files import describe_adapter
    from .adapters import check_places, check_start, has_adapter_to_merge, merged, start_from, write_merged
    from .copies import copy_directory, push_to_hub
    from .format import (
        CONFIG,
        MANIFEST,
        OLDER_SCHEMAS,
        BaseModel,
        EvidenceKind,
        VerifierConfig,
        check_contents,
        check_manifest,
        find_verifier,
        fingerprint,
        read_directory,
        recipe_of,
        relative_base,
        requirements_of,
        trained_on,
        write_directory,
    )
    from .load import UNRECORDED_EVIDENCE, Dtype, Parts, Quantization, load_parts
    from .other_libraries import EXAMPLE, GGUF_NOTE, word_settings, write_cross_encoder, write_gguf_note

__all__ = [
    "CONFIG",
    "EXAMPLE",
    "GGUF_NOTE",
    "MANIFEST",
    "OLDER_SCHEMAS",
    "UNRECORDED_EVIDENCE",
    "BaseModel",
    "Dtype",
    "EvidenceKind",
    "Parts",
    "Quantization",
    "VerifierConfig",
    "check_contents",
    "check_manifest",
    "check_places",
    "check_start",
    "copy_directory",
    "describe_adapter",
    "find_verifier",
    "fingerprint",
    "has_adapter_to_merge",
    "load_parts",
    "merged",
    "push_to_hub",
    "read_directory",
    "recipe_of",
    "relative_base",
    "requirements_of",
    "start_from",
    "trained_on",
    "word_settings",
    "write_cross_encoder",
    "write_directory",
    "write_gguf_note",
    "write_merged",
]

__getattr__ = on_first_use(__name__, __file__)
