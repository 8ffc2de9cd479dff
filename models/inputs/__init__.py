"""From a pair to what the network is given: tokens, pixels, positions and windows."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .chat_template import ChatRenderer, ChatTemplateError, ChatTurns, template_of
    from .chat_text import LabelWords
    from .encoder import EncodedEvidence, Encoder, Media, read_media
    from .features import (
        DTYPES,
        FORMAT,
        PATCH_TIMES,
        MediaFeatures,
        PieceFeatures,
        pack_features,
        tensor_bytes,
        unpack_features,
    )
    from .mrope import (
        POSITION_RULES,
        TEXT_LAYOUT,
        TIME_RULES,
        Branches,
        PositionRule,
        TimeRule,
        VisionLayout,
        claim_positions,
        mrope_positions,
        temporal_positions,
    )
    from .sound import audio_tokens, heard, mel_frames, silent
    from .windowing import Windowing

__all__ = [
    "DTYPES",
    "FORMAT",
    "PATCH_TIMES",
    "POSITION_RULES",
    "TEXT_LAYOUT",
    "TIME_RULES",
    "Branches",
    "ChatRenderer",
    "ChatTemplateError",
    "ChatTurns",
    "EncodedEvidence",
    "Encoder",
    "LabelWords",
    "Media",
    "MediaFeatures",
    "PieceFeatures",
    "PositionRule",
    "TimeRule",
    "VisionLayout",
    "Windowing",
    "audio_tokens",
    "claim_positions",
    "heard",
    "mel_frames",
    "mrope_positions",
    "pack_features",
    "read_media",
    "silent",
    "template_of",
    "temporal_positions",
    "tensor_bytes",
    "unpack_features",
]

__getattr__ = on_first_use(__name__, __file__)
