"""From a packed batch to margins.

A margin is the log-odds of supported at a claim's verdict position; logits exist at verdict positions only, in float32
and of the rows that the head reads.

Shape suffixes: _B rows, _T columns of the batch, _K claims of a row, _N verdict positions, _V vocabulary or labels,
_C classes of the head.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ...core import ModelInputError
from ..inputs import VisionLayout, audio_tokens
from .heads import Head, margin
from .output_layer import float32_output, rows_of
from .packing import check_apart, claim_mask

VISION_KEYS = (
    "pixel_values_videos",
    "video_grid_thw",
    "second_per_grid_ts",
    "pixel_values",
    "image_grid_thw",
    "audio_values",
    "audio_frames",
)
_FEATURE_KEYS = {"video": "video_features", "image": "image_features"}
_SOUND_FEATURES = "audio_features"


def margins(
    model: torch.nn.Module, batch: Mapping[str, Any], head: Head, layout: VisionLayout, cache: Any = None
) -> torch.Tensor:
    """Margins of every claim of a packed batch.

    Args:
        model: the backbone, bare or wrapped (PEFT, DDP, DeepSpeed), as `load_backbone` gives it.
        batch: from `collate`; or, where `cache` holds the prefixes, one whose `input_ids` and `position_ids` are the
            S columns of the claims region and which has no vision tensors (`block` and `verdicts` stay whole).
        head: how logits become a verdict.
        layout: the backbone's placeholders, for the blindness check.
        cache: a transformers DynamicCache. An empty one is filled with all P+S columns (crop it to P for reuse).

    Returns:
        (B, K) float32, NaN where a row has fewer than K claims.

    Raises:
        ModelInputError: placeholders without pixels, or pixels without placeholders.
    """
    return margin(verdict_logits(model, batch, head, layout, cache))


def verdict_logits(
    model: torch.nn.Module, batch: Mapping[str, Any], head: Head, layout: VisionLayout, cache: Any = None
) -> torch.Tensor:
    """(B, K, C) float32 logits of the head's classes, supported first; NaN and arguments as for `margins`."""
    verdicts_BK = batch["verdicts"]
    asked_BK = verdicts_BK >= 0
    first = batch["block"].shape[1] - batch["input_ids"].shape[1]  # columns that are in the cache
    keep_BT = torch.zeros_like(batch["input_ids"], dtype=torch.bool)
    keep_BT[asked_BK.nonzero()[:, 0], verdicts_BK[asked_BK] - first] = True
    # Claims of a row stand in token order, so row-major order over kept tokens is row-major order over claims.
    with float32_output(model, head.rows):
        logits_NV = packed_logits(model, batch, keep_BT, layout, cache)
    logits_NC = head.classes(rows_of(logits_NV, head.rows))
    logits_BKC = logits_NC.new_full((*verdicts_BK.shape, logits_NC.shape[1]), float("nan"))
    logits_BKC[asked_BK] = logits_NC
    return logits_BKC


def packed_logits(
    model: torch.nn.Module, batch: Mapping[str, Any], keep_BT: torch.Tensor, layout: VisionLayout, cache: Any = None
) -> torch.Tensor:
    """(N, V) logits of the kept tokens in row-major order, as the model's head gives them; the one packed forward."""
    check_sees(batch, layout)
    split: dict[str, Any] = {}
    prefix_len = batch["prefix_len"]
    if layout.branches == "copied":
        check_apart(batch["verdicts"].shape[1])
        if prefix_len is not None and len(batch["input_ids"]) > 1:
            raise ModelInputError(
                "packing: rows of this backbone are padded behind their claim, got pads before it; use collate_apart"
            )
    # One claim of one row is an ordinary sequence without padding: the plain causal forward, cached prefix or not. So
    # are rows padded behind their claim.
    elif batch["verdicts"].shape != (1, 1) or batch["input_ids"].shape != batch["block"].shape:
        split = {"attention_mask": claim_mask(batch["block"], prefix_len), "prefix_len": prefix_len}
        # A backward would keep a copy of the prefix for every block.
        split["claim_blocks"] = None if torch.is_grad_enabled() else batch.get("claim_blocks")
    return model(
        input_ids=batch["input_ids"],
        # All three axes are alike where there is only text, and a text backbone knows but one.
        position_ids=batch["position_ids"] if layout.sees else batch["position_ids"][0],
        logits_to_keep=keep_BT,
        use_cache=cache is not None,
        past_key_values=cache,
        **split,
        **_vision(batch, layout.levels),
    ).logits


def fill(model: torch.nn.Module, batch: Mapping[str, Any], layout: VisionLayout, cache: Any) -> None:
    """Run prefixes of one length, without claims, so that `cache` holds what the network keeps of them."""
    keep_BT = torch.zeros_like(batch["input_ids"], dtype=torch.bool)
    keep_BT[:, -1] = True  # the output layer computes something, and nobody reads it
    packed_logits(model, batch, keep_BT, layout, cache)


def _vision(batch: Mapping[str, Any], levels: int) -> dict[str, Any]:
    """What the backbone's forward takes of the vision tensors: pixels and grids, or features in their stead."""
    features = {kind: _tower_output(batch[key], levels) for kind, key in _FEATURE_KEYS.items() if key in batch}
    sounds = {_SOUND_FEATURES: batch[_SOUND_FEATURES]} if _SOUND_FEATURES in batch else {}
    if features or sounds:
        return sounds | ({"mm_encoder_outputs": features} if features else {})
    return {k: batch[k] for k in VISION_KEYS if k in batch}


def _tower_output(features_TL: torch.Tensor, levels: int) -> BaseModelOutputWithPooling:
    """What the tower would have given, from its kept feature maps side by side; L is levels x hidden."""
    merged, *inner = ((part,) for part in features_TL.chunk(levels, dim=-1))  # a tuple per video or image
    if not inner:
        return BaseModelOutputWithPooling(pooler_output=merged)  # type: ignore[arg-type]
    from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

    return BaseModelOutputWithDeepstackFeatures(pooler_output=merged, deepstack_features=inner)  # type: ignore[arg-type]


def check_sees(batch: Mapping[str, Any], layout: VisionLayout) -> None:
    """Refuse a batch whose placeholder tokens and pixels disagree: the backbone itself would run blind, silently."""
    merge = layout.spatial_merge_size**2
    for kind, token, grid, pixels in (
        ("video", layout.video_token_id, "video_grid_thw", "pixel_values_videos"),
        ("image", layout.image_token_id, "image_grid_thw", "pixel_values"),
    ):
        placeholders = int((batch["input_ids"] == token).sum())
        patches = int(batch[grid].prod(-1).sum()) if grid in batch else 0
        given = len(batch[pixels]) if pixels in batch else 0
        if (features := _FEATURE_KEYS[kind]) in batch:
            given += len(batch[features]) * merge  # a feature stands for the patches that were merged into it
        if placeholders * merge != patches or patches != given:
            raise ModelInputError(
                f"{kind}: {placeholders} placeholder tokens need {placeholders * merge} patches, got {given} of pixels "
                f"and a grid of {patches}; a model must never be asked about pixels it is not given"
            )
    _check_hears(batch, layout)
    features = (*_FEATURE_KEYS.values(), _SOUND_FEATURES)
    given = [k for k in ("pixel_values_videos", "pixel_values", "audio_values", *features) if k in batch]
    if len({k in features for k in given}) > 1:
        raise ModelInputError(
            f"vision: a batch holds pixels or features, not both, got {given}; encode all of it alike"
        )


def _check_hears(batch: Mapping[str, Any], layout: VisionLayout) -> None:
    """The same of sounds."""
    placeholders = int((batch["input_ids"] == layout.audio_token_id).sum())
    frames = batch["audio_frames"].tolist() if "audio_frames" in batch else []
    n_tokens = sum(map(audio_tokens, frames))
    given = {"audio_values": sum(frames), _SOUND_FEATURES: n_tokens}
    wrong = {name: len(batch[name]) for name, n in given.items() if name in batch and len(batch[name]) != n}
    if placeholders != n_tokens or wrong or (bool(frames) and not any(name in batch for name in given)):
        raise ModelInputError(
            f"sound: {placeholders} placeholder tokens, got sounds of {n_tokens} and {wrong or 'nothing else'}; "
            "a model must never be asked about a sound it is not given"
        )
