"""What trains: PEFT adapters on the backbone, and counts of the parameters that do."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from ...core import ConfigError
from .families import backbone_for, lora_parts


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


def keep_float32_masters(model: PreTrainedModel, autocast: bool) -> None:
    """Hold all that trains in float32, and with it its gradients and the optimiser's state; what is frozen stays.

    In bfloat16 a step smaller than 1/256 of a weight is lost, and Adam's second moment cannot decay: what trains would
    stand still. DeepSpeed keeps such masters itself. The network goes on in its own dtype: where embeddings train, what
    they give is cast to it.

    Args:
        model: the backbone, with or without adapters.
        autocast: whether forward passes run under autocast. It casts weights for each product; an adapter then need not
            make a float32 copy of what comes in.
    """
    embeddings: Any = model.get_input_embeddings()
    dtype = embeddings.weight.dtype
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    if embeddings.weight.dtype != dtype:
        embeddings.register_forward_hook(lambda _, __, embedded: embedded.to(dtype))
    for module in model.modules():
        if autocast and hasattr(module, "cast_input_dtype_enabled"):  # peft's LoRA layers
            module.cast_input_dtype_enabled = False  # type: ignore[assignment]


def lora_targets(model: torch.nn.Module, parts: Sequence[str]) -> str:
    """One pattern of the linear layers of `parts`; `ConfigError` for a part without any."""
    known = list(lora_parts())
    if not parts:
        raise ConfigError(f"lora_parts: names nothing to adapt, got {list(parts)}; give some of {known}")
    names = [name for name, _ in model.named_modules()]
    patterns = backbone_for(model.config.model_type).lora_parts  # type: ignore[union-attr]
    for part in parts:
        if part not in known:
            raise ConfigError(f"lora_parts: unknown part, got {part!r}; use some of {known}")
        if part not in patterns or not any(re.fullmatch(patterns[part], name) for name in names):
            raise ConfigError(f"lora_parts: {type(model).__name__} has no such layers, got {part!r}; leave it out")
    return "|".join(patterns[part] for part in parts)


def trainable_summary(model: torch.nn.Module) -> dict[str, int]:
    """Counts of parameters: trainable in language model, vision tower, its merger, audio tower and heads, and all.

    DoRA's magnitudes count with their part.
    """
    counts = {"language_model": 0, "visual": 0, "merger": 0, "audio": 0, "lm_head": 0, "score": 0, "total": 0}
    for name, parameter in model.named_parameters():
        if ".original_module." in name:  # peft keeps what a wholly trained module was before
            continue
        # A sharded parameter (ZeRO-3) reports its own size as zero and keeps the true one in ds_numel.
        size = getattr(parameter, "ds_numel", parameter.numel())
        if (quantised := getattr(parameter, "quant_state", None)) is not None:
            size = quantised.shape.numel()  # its bytes hold two weights each
        counts["total"] += size
        if parameter.requires_grad:
            counts[part_of(name)] += size
    return counts


def part_of(name: str) -> str:
    """The part of a network that a parameter lies in, from its name: one of `trainable_summary`'s."""
    if "audio_tower." in name:
        return "audio"
    if "merger" in name:  # also those of inner layers, `deepstack_merger_list`
        return "merger"
    return next((part for part in ("visual", "lm_head", "score") if f"{part}." in name), "language_model")
