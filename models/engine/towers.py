"""The towers that turn pictures and sounds into what the language model reads: where they are, and one run of them.

Apart from the cache of their features because scoring without a cache asks for them as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch

from ...core import ConfigError, ModelInputError
from ..inputs import audio_tokens, tensor_bytes

# What shapes the tower's function without showing in its weights.
_SETTINGS = (
    "depth",
    "fullatt_block_indexes",
    "hidden_act",
    "in_channels",
    "num_heads",
    "patch_size",
    "spatial_merge_size",
    "temporal_patch_size",
    "window_size",
)


_INNER = ("deepstack_visual_indexes", "num_position_embeddings")  # of some families alone


_OF_AUDIO = ("activation_function", "encoder_attention_heads", "encoder_layers", "n_window", "scale_embedding")


def backbone_of(model: torch.nn.Module) -> Any:
    """The backbone inside PEFT adapters, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]


def vision_tower(model: torch.nn.Module) -> Any | None:
    """The vision tower of a backbone, bare or in adapters; None of a text backbone."""
    network = backbone_of(model)
    encoder = network.get_encoder("image")  # itself, where there is none
    return None if encoder is network else encoder


def audio_tower(model: torch.nn.Module) -> Any | None:
    """The audio tower of a backbone, bare or in adapters; None of one that hears nothing."""
    network = backbone_of(model)
    encoder = network.get_encoder("audio")
    return None if encoder is network else encoder


def all_towers(model: torch.nn.Module) -> list[Any]:
    """All towers of a backbone."""
    return [tower for tower in (vision_tower(model), audio_tower(model)) if tower is not None]


def check_frozen(model: torch.nn.Module) -> None:
    """Make sure that the features of today are those of tomorrow.

    Raises:
        ConfigError: a text backbone, which has no tower.
        ModelInputError: a parameter of tower or merger is trainable, belongs to an adapter, or is sharded over ranks.
    """
    found = all_towers(model)
    if not found:
        raise ConfigError("vision cache: a text backbone has no vision tower; leave it out")
    for tower in found:
        _check_frozen(tower, "audio" if tower is audio_tower(model) else "vision")


def _check_frozen(tower: torch.nn.Module, name: str) -> None:
    if adapted := [at for at, module in tower.named_modules() if hasattr(module, "base_layer")]:
        raise ModelInputError(
            f"vision cache: adapters change the {name} tower, got {len(adapted)}, first {adapted[0]}; "
            "adapt the language model only (lora_target_modules), or leave the cache out"
        )
    if trained := [at for at, weight in tower.named_parameters() if weight.requires_grad]:
        raise ModelInputError(
            f"vision cache: the {name} tower is trainable, got {len(trained)} parameters, first {trained[0]}; "
            "freeze it (train_vision: false), or leave the cache out"
        )
    if any(hasattr(weight, "ds_numel") and weight.numel() == 0 for weight in tower.parameters()):
        raise ModelInputError(
            "vision cache: the tower's weights are sharded over ranks, got ZeRO-3 parameters; gather them first"
        )


def tower_sha256(model: torch.nn.Module) -> str:
    """One hash over the tower's and merger's weights (names, dtypes, shapes, bytes) and the settings of its layers.

    The dtype counts, as it is also the precision of the computation. What PEFT adds to names is left out, so that a
    run and the verifier that comes of it share their features.
    """
    tower: Any = vision_tower(model)
    settings = {name: getattr(tower.config, name, None) for name in _SETTINGS}
    settings |= {name: value for name in _INNER if (value := getattr(tower.config, name, None)) is not None}
    return _sha256(tower, settings)


def audio_sha256(model: torch.nn.Module) -> str | None:
    """The same of the audio tower; None of a backbone that hears nothing."""
    tower: Any = audio_tower(model)
    return None if tower is None else _sha256(tower, {name: getattr(tower.config, name, None) for name in _OF_AUDIO})


def _sha256(tower: torch.nn.Module, settings: dict[str, Any]) -> str:
    total = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for name, weight in sorted(tower.state_dict().items()):
        total.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        total.update(tensor_bytes(weight))
    return total.hexdigest()


@torch.no_grad()
def run_tower(model: torch.nn.Module, pixels: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Features of videos, of images or of sounds, in one run of their tower.

    Args:
        model: the backbone, bare or in adapters, with whole weights.
        pixels: of `Encoder.pixels`, of one kind: `pixel_values_videos` with `video_grid_thw`, or `pixel_values` with
            `image_grid_thw`, or `audio_values` with `audio_frames`.

    Returns:
        One (tokens, levels x hidden) tensor per video, image or sound, in order, in the tower's dtype, on its
        device: what leaves the merger, and beside it the feature maps of inner layers where the family has them.
    """
    backbone, tower = backbone_of(model).model, vision_tower(model)
    if "audio_values" in pixels:
        device, n_frames = next(all_towers(model)[-1].parameters()).device, pixels["audio_frames"]
        features_TH = backbone.heard(pixels["audio_values"].to(device), n_frames.to(device))
        return features_TH.split([audio_tokens(n) for n in n_frames.tolist()])
    device = next(tower.parameters()).device  # type: ignore[union-attr]
    values, grid, run = (
        ("pixel_values_videos", "video_grid_thw", backbone.get_video_features)
        if "pixel_values_videos" in pixels
        else ("pixel_values", "image_grid_thw", backbone.get_image_features)
    )
    output: Any = run(pixels[values].to(device), pixels[grid].to(device), return_dict=True)
    levels = (output.pooler_output, *(getattr(output, "deepstack_features", None) or ()))
    of_pieces: Any = zip(*levels, strict=True)
    return tuple(torch.cat(maps, -1) if len(maps) > 1 else maps[0] for maps in of_pieces)
