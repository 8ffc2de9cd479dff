"""The families of networks a verifier may stand on: loading, LoRA, tiny models, and what a foreign folder may hold."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .base import Backbone, TinySizes, TowerMemory, attention_widths
    from .families import (
        BACKBONES,
        audio_config,
        backbone_for,
        backbones_table,
        lora_parts,
        published_config,
        vision_config,
        vision_layout,
    )
    from .load import (
        load_backbone,
        load_processor,
        read_config,
        resolve_base,
        weights_sha256,
        write_gguf_checkpoint,
    )
    from .lora import attach_lora, keep_float32_masters, part_of, trainable_summary
    from .safety import check_safetensors, check_settings, is_plain_name, read_json
    from .shapes import (
        Operations,
        Parameters,
        forward_operations,
        kept_numbers,
        language_linears,
        lora_parameters,
        meta_model,
        training_operations,
        vision_operations_of,
    )
    from .tiny import save_tiny_model, save_tiny_text_model

__all__ = [
    "BACKBONES",
    "Backbone",
    "Operations",
    "Parameters",
    "TinySizes",
    "TowerMemory",
    "attach_lora",
    "attention_widths",
    "audio_config",
    "backbone_for",
    "backbones_table",
    "check_safetensors",
    "check_settings",
    "forward_operations",
    "is_plain_name",
    "keep_float32_masters",
    "kept_numbers",
    "language_linears",
    "load_backbone",
    "load_processor",
    "lora_parameters",
    "lora_parts",
    "meta_model",
    "part_of",
    "published_config",
    "read_config",
    "read_json",
    "resolve_base",
    "save_tiny_model",
    "save_tiny_text_model",
    "trainable_summary",
    "training_operations",
    "vision_config",
    "vision_layout",
    "vision_operations_of",
    "weights_sha256",
    "write_gguf_checkpoint",
]

__getattr__ = on_first_use(__name__, __file__)
