"""The families of networks a verifier may stand on: loading, LoRA, tiny models, and what a foreign folder may hold."""

from typing import TYPE_CHECKING

from ...core.lazy import on_first_use

if TYPE_CHECKING:
    from .base import (
        architecture_of,
        load_backbone,
        load_processor,
        read_config,
        resolve_base,
        vision_layout,
        weights_sha256,
    )
    from .hub import download
    from .lora import PARTS, attach_lora, trainable_summary
    from .safety import check_safetensors, check_settings, is_plain_name, read_json
    from .shapes import Parameters, language_linears, lora_parameters, meta_model
    from .tiny import TinySizes, save_tiny_model, save_tiny_text_model

__all__ = [
    "PARTS",
    "Parameters",
    "TinySizes",
    "architecture_of",
    "attach_lora",
    "check_safetensors",
    "check_settings",
    "download",
    "is_plain_name",
    "language_linears",
    "load_backbone",
    "load_processor",
    "lora_parameters",
    "meta_model",
    "read_config",
    "read_json",
    "resolve_base",
    "save_tiny_model",
    "save_tiny_text_model",
    "trainable_summary",
    "vision_layout",
    "weights_sha256",
]

__getattr__ = on_first_use(__name__, __file__)
