"""Engines: that a run is the one that was launched, and that no rank waits for another in the vision tower."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate.utils import DistributedType
from transformers import TrainingArguments
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from ..core.errors import ConfigError
from ..core.pairs import Image, Pair, VideoSegment
from ..models.engine.vision_features import backbone_of

_PIXELS = ("pixel_values", "pixel_values_videos")


def check_engine(training: TrainingArguments, vision_cache: str | None = None) -> None:
    """Refuse what accelerate would do silently on a CPU: leave the engine out, or let every process train alone.

    Raises:
        ConfigError: the processes or the engine of the launch configuration are not those of this run; or a vision
            cache, which needs the whole tower, where no rank has it.
    """
    if vision_cache is not None and shards_weights():
        raise ConfigError(
            f"vision_cache: the tower's weights are sharded over ranks (ZeRO-3, FSDP), got {vision_cache}; "
            "launch with ZeRO-2 or DDP, or leave the cache out"
        )
    state: Any = training.distributed_state
    kind, launched = state.distributed_type, int(os.environ.get("WORLD_SIZE", "1"))
    if launched != training.world_size:
        raise ConfigError(
            f"ddp_backend: {launched} processes were launched and each would train alone, got a world of "
            f"{training.world_size}; on CPUs pass --ddp_backend gloo"
        )
    if _asked("DEEPSPEED") and kind != DistributedType.DEEPSPEED:
        raise ConfigError(
            f"use_cpu: accelerate leaves DeepSpeed out under this setting, got {kind.value} in its place; pass "
            "--use_cpu false --ddp_backend gloo (configs/accelerate_cpu_zero2.yaml hides the GPUs)"
        )
    if _asked("FSDP") and kind in (DistributedType.NO, DistributedType.MULTI_CPU):
        raise ConfigError(
            f"distributed_type: accelerate has FSDP for GPUs only, got {kind.value} in its place; on CPUs launch with "
            "configs/accelerate_cpu_zero3.yaml"
        )
    if launched > 1 and kind == DistributedType.NO:
        raise ConfigError(
            f"use_cpu: gradients of {launched} processes on CPUs would not be averaged, got {training.use_cpu}; "
            "pass --use_cpu true"
        )


def shards_weights() -> bool:
    """Whether weights are spread over ranks (ZeRO-3, FSDP), so that every use of a layer is a collective one."""
    return is_deepspeed_zero3_enabled() or _asked("FSDP")


def even_tower_calls(model: torch.nn.Module, pairs: Mapping[str, Sequence[Pair]]) -> None:
    """Let every rank call the vision tower equally often, whatever its rows show.

    Ranks wait for each other in every layer of a sharded tower, and for every gradient of one that trains. Where some
    rows show a video and others an image or nothing, a forward that lacks a kind runs the tower on four black patches
    in its place. Their features enter the embeddings times zero: they change no loss, and give the tower's weights a
    gradient of zero.

    Args:
        model: the backbone, bare or in adapters, before any engine wraps it.
        pairs: rows of all splits.
    """
    shown = {frozenset(type(e) for e in p.evidence if isinstance(e, Image | VideoSegment)) for p in _all(pairs)}
    backbone = backbone_of(model).model
    if len(shown) < 2 or not hasattr(backbone, "visual"):
        return
    if not shards_weights() and not any(weight.requires_grad for weight in backbone.visual.parameters()):
        return  # every rank has the whole tower, and nothing of it is averaged
    calls, lacking = len(frozenset().union(*shown)), 0

    def count(_: Any, __: Any, inputs: dict[str, Any]) -> None:
        nonlocal lacking
        lacking = calls - sum(inputs.get(name) is not None for name in _PIXELS)

    def fill(_: Any, __: Any, embedded: torch.Tensor) -> torch.Tensor:
        nonlocal lacking
        # Here, and not before the embeddings: ranks must use their layers in the same order as well.
        for _call in range(lacking):
            embedded = embedded + 0.0 * _black(backbone, embedded.device).to(embedded.dtype)
        lacking = 0
        return embedded

    backbone.register_forward_pre_hook(count, with_kwargs=True)
    backbone.get_input_embeddings().register_forward_hook(fill)


def _black(backbone: Any, device: torch.device) -> torch.Tensor:
    """The sum of the features of the smallest video there is."""
    vision = backbone.config.vision_config
    side = vision.spatial_merge_size
    pixels = torch.zeros(side**2, vision.in_channels * vision.temporal_patch_size * vision.patch_size**2, device=device)
    grid = torch.tensor([[1, side, side]], device=device)
    return backbone.get_video_features(pixels, grid, return_dict=True).pooler_output[0].sum()


def _all(pairs: Mapping[str, Sequence[Pair]]) -> list[Pair]:
    return [pair for rows in pairs.values() for pair in rows]


def _asked(engine: str) -> bool:
    """Whether `accelerate launch` was told to use an engine."""
    return os.environ.get(f"ACCELERATE_USE_{engine}", "false").lower() == "true"
