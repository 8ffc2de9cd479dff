"""One evidence, K claims, one pass: packing, the kept prefix, vision features, batches, and the heads that end it."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .batching import Answer, BatchScorer, Progress, read_ahead
    from .forward import VISION_KEYS, margins, packed_logits, verdict_logits
    from .heads import (
        HEADS,
        THREE_LABELS,
        TWO_LABELS,
        Head,
        NextToken,
        NLIHead,
        head_name,
        head_table,
        make_head,
        margin,
    )
    from .packing import IGNORED, PackedRow, collate, collate_apart, pack, to_device, use_prefix_split
    from .prefix_cache import PrefixCache
    from .scorer import PrefixScorer, Segment
    from .segments import SegmentReader
    from .towers import all_towers, audio_tower, backbone_of, vision_tower
    from .vision_features import VisionFeatures
    from .windows import WINDOWS, use_windows

__all__ = [
    "HEADS",
    "IGNORED",
    "THREE_LABELS",
    "TWO_LABELS",
    "VISION_KEYS",
    "WINDOWS",
    "Answer",
    "BatchScorer",
    "Head",
    "NLIHead",
    "NextToken",
    "PackedRow",
    "PrefixCache",
    "PrefixScorer",
    "Progress",
    "Segment",
    "SegmentReader",
    "VisionFeatures",
    "all_towers",
    "audio_tower",
    "backbone_of",
    "collate",
    "collate_apart",
    "head_name",
    "head_table",
    "make_head",
    "margin",
    "margins",
    "pack",
    "packed_logits",
    "read_ahead",
    "to_device",
    "use_prefix_split",
    "use_windows",
    "verdict_logits",
    "vision_tower",
]

__getattr__ = on_first_use(__name__, __file__)
