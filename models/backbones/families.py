"""The backbones there are. To add one, write its class in a file of its own and name it here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core import ConfigError, DirectoryError
from .base import Backbone
from .llama import Llama
from .qwen3 import Qwen3
from .qwen3_5 import Qwen35
from .qwen3_vl import Qwen3VL
from .qwen25 import Qwen25
from .qwen25_omni import Qwen25Omni
from .qwen25_vl import Qwen25VL

if TYPE_CHECKING:
    from ..inputs import VisionLayout

BACKBONES: dict[str, Backbone] = {
    "qwen2_5_vl": Qwen25VL(),
    "qwen3_vl": Qwen3VL(),
    "qwen3_5": Qwen35(),
    "qwen2_5_omni_thinker": Qwen25Omni(),
    "qwen2": Qwen25(),
    "qwen3": Qwen3(),
    "llama": Llama(),
}
"""By the `model_type` of config.json."""


def backbone_for(model_type: Any, where: str | Path = "base model") -> Backbone:
    """The backbone of a `model_type`; `DirectoryError` names those there are."""
    named = (backbone for kind, backbone in BACKBONES.items() if model_type in (kind, *backbone.aliases))
    if (found := next(named, None)) is None:
        known = ", ".join(f"{backbone.name} ({kind})" for kind, backbone in BACKBONES.items())
        raise DirectoryError(f"{where}: not a supported backbone, got model_type {model_type!r}; supported are {known}")
    return found


def vision_layout(config: Any) -> VisionLayout:
    """What positions and checks need of a backbone's configuration; `TEXT_LAYOUT` of a text backbone."""
    return backbone_for(config.model_type).vision_layout(config)


def vision_config(config: Any) -> Any | None:
    """The part of a backbone's configuration that describes its vision tower; None of a text backbone."""
    return backbone_for(config.model_type).vision_config(config)


def audio_config(config: Any) -> Any | None:
    """The part of a backbone's configuration that describes its audio tower; None of one that hears nothing."""
    return backbone_for(config.model_type).audio_config(config)


def lora_parts() -> tuple[str, ...]:
    """Parts that LoRA can go to in some backbone."""
    return tuple(dict.fromkeys(part for backbone in BACKBONES.values() for part in backbone.lora_parts))


def processor_classes() -> dict[str, set[str]]:
    """Per key of a tokenizer's or processor's file, the class names that some backbone allows."""
    allowed: dict[str, set[str]] = {}
    for backbone in BACKBONES.values():
        for key, names in backbone.processor_classes.items():
            allowed.setdefault(key, set()).update(names)
    return allowed


def published() -> tuple[str, ...]:
    """Names of the checkpoints whose shapes are known."""
    return tuple(name for backbone in BACKBONES.values() for name in backbone.published)


def published_config(name: str) -> Any:
    """The configuration of a published checkpoint, by its name with or without "Qwen/".

    Raises:
        ConfigError: a checkpoint whose shape is not written down.
    """
    name = name.removeprefix("Qwen/")
    for backbone in BACKBONES.values():
        if name in backbone.published:
            return backbone.published_config(backbone.published[name])
    raise ConfigError(f"shapes: unknown checkpoint, got {name!r}; known are {published()}")


def backbones_table() -> str:
    """The table of docs/backbones.md."""
    lines = ["| family | `model_type` | evidence | claims | sizes tried on the meta device |", "|---|---|---|---|---|"]
    for kind, backbone in BACKBONES.items():
        seen, heard = "video, image, " if backbone.sees else "", "audio, " if backbone.hears else ""
        evidence = f"{seen}{heard}transcript, passage"
        claims = {"packed": "packed", "copied": "copies"}[backbone.branches]
        sizes = [match[0] for name in backbone.published if (match := re.search(r"[\d.]+[BM]", name))]
        lines.append(f"| {backbone.name} | `{kind}` | {evidence} | {claims} | {', '.join(sizes) or 'none'} |")
    return "\n".join(lines)
