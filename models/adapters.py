"""What trains: PEFT adapters on the backbone, and counts of the parameters that do."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

# Anchored on the language model: bare suffixes such as `gate_proj` would hit the vision tower's MLPs as well.
LANGUAGE_LINEARS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"


def attach_lora(model: PreTrainedModel, peft_config: Any) -> Any:
    """Wrap the backbone in PEFT adapters; without named targets, every linear layer of the language model.

    A `score` head is trained whole and saved with the adapter.
    """
    from peft import get_peft_model

    if hasattr(model, "score"):
        peft_config.modules_to_save = sorted({*(peft_config.modules_to_save or ()), "score"})

    if not peft_config.target_modules:
        peft_config.target_modules = LANGUAGE_LINEARS
    return get_peft_model(model, peft_config, autocast_adapter_dtype=False)


def trainable_summary(model: torch.nn.Module) -> dict[str, int]:
    """Counts of parameters: trainable in the language model, vision tower and head, and all there are."""
    counts = {"language_model": 0, "visual": 0, "lm_head": 0, "score": 0, "total": 0}
    for name, parameter in model.named_parameters():
        # A sharded parameter (ZeRO-3) reports its own size as zero and keeps the true one in ds_numel.
        size = getattr(parameter, "ds_numel", parameter.numel())
        counts["total"] += size
        if parameter.requires_grad:
            part = next((p for p in ("visual", "lm_head", "score") if p in name), "language_model")
            counts[part] += size
    return counts
