"""The parts of a verifier directory, loaded and checked: its weights over their base, and the encoder it describes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..data_prep.errors import DirectoryError
from .backbone import load_backbone, load_processor, resolve_base, vision_layout, weights_sha256
from .directory import VerifierConfig
from .encoding import Encoder


def load_weights(directory: Path, config: VerifierConfig, base: str | Path | None = None, adapter: bool = True) -> Any:
    """The network of a verifier directory: adapter over its checked base (or that base alone), or its full model."""
    dtype = getattr(torch, config.dtype)
    if config.weights == "full":
        if not adapter:
            raise DirectoryError(
                f"{directory}: holds a full model, got adapter=False; there is no adapter to leave out"
            )
        return load_backbone(directory / "model", dtype=dtype)
    from peft import PeftModel

    base_path = find_base(directory, config, base)
    model = load_backbone(base_path, dtype=dtype, quantization_config=_quantization(config))
    if not adapter:
        return model
    return PeftModel.from_pretrained(model, str(directory / "adapter"), autocast_adapter_dtype=False)


def find_base(directory: Path, config: VerifierConfig, base: str | Path | None = None) -> Path:
    """The base checkpoint's folder, refused unless its weights are those the adapter was trained on."""
    beside = directory / config.base.path
    path = Path(base) if base is not None else beside if beside.is_dir() else None
    if path is None:
        try:
            path = resolve_base(config.base.path, config.base.revision)
        except DirectoryError as error:
            raise DirectoryError(f"{directory}: its base model was not found; pass base=<folder>. {error}") from error
    if (found := weights_sha256(path)) != config.base.weights_sha256:
        raise DirectoryError(
            f"{path}: not the base this verifier was trained on, got weights {found[:12]} instead of "
            f"{config.base.weights_sha256[:12]}; pass base=<the right checkpoint>"
        )
    return path


def make_encoder(processor_path: str | Path, model_config: Any, config: VerifierConfig) -> Encoder:
    """The encoder a verifier configuration describes."""
    return Encoder(
        load_processor(processor_path),
        vision_layout(model_config),
        config.prompt,
        config.sampling,
        config.position_rule,
        config.max_tokens,
    )


def _quantization(config: VerifierConfig) -> Any:
    if config.quantization is None:
        return None
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(**config.quantization)
