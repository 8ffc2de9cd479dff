"""What trains: PEFT adapters on the backbone, and counts of the parameters that do."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from ...core import ConfigError

_LINEARS = r"(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"

# Anchored on the language model: bare suffixes such as `gate_proj` would hit the vision tower's MLPs as well. A text
# backbone's own layers lie one level higher.
LANGUAGE_LINEARS = rf"(.*language_model.*|model\.layers\..*)\.{_LINEARS}"

PARTS: dict[str, str] = {
    "language_model": LANGUAGE_LINEARS,
    "visual": r"model\.visual\.blocks\..*\.(qkv|proj|gate_proj|up_proj|down_proj)",
    "merger": r"model\.visual\.merger\.mlp\.[02]",
    "lm_head": r"lm_head",
}
"""Where LoRA can go, as patterns of whole module names."""


def attach_lora(model: PreTrainedModel, peft_config: Any, parts: Sequence[str] = ("language_model",)) -> Any:
    """Wrap the backbone in PEFT adapters; without named targets, on every linear layer of `parts`.

    A `score` head is trained whole and saved with the adapter. What an adapter on lm_head saves are its own two
    matrices, never the output layer below it.

    Raises:
        ConfigError: a part that is unknown, or that this backbone does not have.
    """
    from peft import get_peft_model

    if hasattr(model, "score"):
        peft_config.modules_to_save = sorted({*(peft_config.modules_to_save or ()), "score"})
    if not peft_config.target_modules:
        peft_config.target_modules = lora_targets(model, parts)
    adapted = get_peft_model(model, peft_config, autocast_adapter_dtype=False)
    # By default peft asks the hub whether the vocabulary grew, and adds a targeted output layer to the file.
    adapted.save_pretrained = functools.partial(adapted.save_pretrained, save_embedding_layers=False)
    return adapted


def lora_targets(model: torch.nn.Module, parts: Sequence[str]) -> str:
    """One pattern of the linear layers of `parts`; `ConfigError` for a part without any."""
    if not parts:
        raise ConfigError(f"lora_parts: names nothing to adapt, got {list(parts)}; give some of {list(PARTS)}")
    names = [name for name, _ in model.named_modules()]
    for part in parts:
        if part not in PARTS:
            raise ConfigError(f"lora_parts: unknown part, got {part!r}; use some of {list(PARTS)}")
        if not any(re.fullmatch(PARTS[part], name) for name in names):
            raise ConfigError(f"lora_parts: {type(model).__name__} has no such layers, got {part!r}; leave it out")
    return "|".join(PARTS[part] for part in parts)


def trainable_summary(model: torch.nn.Module) -> dict[str, int]:
    """Counts of parameters: trainable in the language model, vision tower, its merger and the heads, and all there are.

    DoRA's magnitudes count with their part.
    """
    counts = {"language_model": 0, "visual": 0, "merger": 0, "lm_head": 0, "score": 0, "total": 0}
    for name, parameter in model.named_parameters():
        if ".original_module." in name:  # peft keeps what a wholly trained module was before
            continue
        # A sharded parameter (ZeRO-3) reports its own size as zero and keeps the true one in ds_numel.
        size = getattr(parameter, "ds_numel", parameter.numel())
        if (quantised := getattr(parameter, "quant_state", None)) is not None:
            size = quantised.shape.numel()  # its bytes hold two weights each
        counts["total"] += size
        if parameter.requires_grad:
            part = next((p for p in ("merger", "visual", "lm_head", "score") if f"{p}." in name), "language_model")
            counts[part] += size
    return counts
