"""Which checkpoints can be a backbone: read from a checkpoint's config.json, and the classes it is loaded with.

Two families: Qwen2.5-VL, and Qwen2.5 text, which reads transcripts and passages only. Everything that differs between
them is decided here, in `backbone.vision_layout` and in `text_processor`; the rest of the code asks the layout.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2Config, Qwen2ForCausalLM

from ..core.errors import DirectoryError
from .score_head import Qwen2_5_VLForVerdicts, Qwen2ForVerdicts


@dataclass(frozen=True)
class Architecture:
    """A family of checkpoints.

    Attributes:
        name: as people call it.
        config: class of its configuration.
        next_token: class of the network with the checkpoint's own output layer.
        scored: class of the network with a `score` head in its place.
        sees: it has a vision tower.
    """

    name: str
    config: Any
    next_token: Any
    scored: Any
    sees: bool

    def network(self, scored: bool) -> Any:
        """The class of the network, with or without a `score` head."""
        return self.scored if scored else self.next_token


ARCHITECTURES: dict[str, Architecture] = {
    "qwen2_5_vl": Architecture(
        "Qwen2.5-VL", Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLForVerdicts, sees=True
    ),
    "qwen2": Architecture("Qwen2.5 text", Qwen2Config, Qwen2ForCausalLM, Qwen2ForVerdicts, sees=False),
}
"""By the `model_type` of config.json."""


def architecture_of(model_type: str | None, where: str | Path = "base model") -> Architecture:
    """The architecture of a `model_type`; `DirectoryError` names those there are."""
    if not isinstance(model_type, str) or model_type not in ARCHITECTURES:
        known = ", ".join(f"{a.name} ({kind})" for kind, a in ARCHITECTURES.items())
        raise DirectoryError(f"{where}: not a supported backbone, got model_type {model_type!r}; supported are {known}")
    return ARCHITECTURES[model_type]


def read_config(path: str | Path) -> Any:
    """The configuration of a checkpoint folder; no weights are read.

    Raises:
        DirectoryError: no config.json, an architecture that is not supported, or sliding windows, whose masks would
            cut claims off from their evidence.
    """
    file = Path(path) / "config.json"
    if not file.is_file():
        raise DirectoryError(f"{path}: not a checkpoint, got no config.json; give the folder of a whole checkpoint")
    try:
        model_type = json.loads(file.read_text(encoding="utf-8"))["model_type"]
    except (ValueError, KeyError, TypeError) as error:
        raise DirectoryError(
            f"{file}: does not name a model_type, got {error!r}; fetch the checkpoint again"
        ) from error
    architecture = architecture_of(model_type, path)
    config = architecture.config.from_pretrained(path)
    if "sliding_attention" in (getattr(config.get_text_config(), "layer_types", None) or ()):
        raise DirectoryError(
            f"{path}: some layers attend within a sliding window, got use_sliding_window: true; "
            "use a checkpoint without it (those of Qwen2.5 have it off)"
        )
    return config
