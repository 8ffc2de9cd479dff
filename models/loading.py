"""The parts of a verifier directory, loaded and checked: its weights over their base, and the encoder it describes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from ..data_prep.errors import DirectoryError
from .backbone import load_backbone, load_processor, resolve_base, vision_layout, weights_sha256
from .directory import VerifierConfig
from .encoding import Encoder
from .heads import Head, NextToken, Readout
from .prompt import LabelWords


def load_weights(directory: Path, config: VerifierConfig, base: str | Path | None = None, adapter: bool = True) -> Any:
    """The network of a verifier directory: adapter over its checked base (or that base alone), or its full model.

    Without its adapter, an NLI verifier's head stands where training started it from the verdict words.
    """
    dtype, readout = getattr(torch, config.dtype), readout_of(config)
    head = readout if isinstance(readout, Head) else None
    if config.weights == "full":
        if not adapter:
            raise DirectoryError(
                f"{directory}: holds a full model, got adapter=False; there is no adapter to leave out"
            )
        return load_backbone(directory / "model", dtype=dtype, head=head)
    from peft import PeftModel

    base_path = find_base(directory, config, base)
    # With an adapter the head's weights are in its file: what stands in their place until then does not matter.
    words = None if adapter else LabelWords(config.supported_id, config.refuted_id)
    model = load_backbone(
        base_path, dtype=dtype, quantization_config=_quantization(config), head=head, words=words if head else None
    )
    if not adapter:
        return model
    folder = directory / "adapter"
    try:
        adapted = PeftModel.from_pretrained(model, str(folder), autocast_adapter_dtype=False)
    except (KeyError, RuntimeError) as error:  # a head that is missing, or tensors of other shapes
        reason = str(error).splitlines()[0]
        raise DirectoryError(
            f"{folder}: the adapter's weights do not fit this base and head, missing or misshapen: {reason}; "
            "export the verifier again"
        ) from error
    _check_adapter(folder, adapted)
    return adapted


def readout_of(config: VerifierConfig) -> Readout:
    """How a verifier's logits are read: two words of the vocabulary, or a head of its labels."""
    if config.head == "nli":
        return Head(config.labels)
    return NextToken(LabelWords(config.supported_id, config.refuted_id))


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


def _check_adapter(folder: Path, adapted: Any) -> None:
    """peft leaves a weight that its file lacks as it was initialised, and drops one it has no place for."""
    from peft import get_peft_model_state_dict

    with safe_open(folder / "adapter_model.safetensors", "pt") as tensors:
        stored = set(tensors.keys())
    expected = set(get_peft_model_state_dict(adapted, save_embedding_layers=False))
    if stored != expected:
        raise DirectoryError(
            f"{folder}: the adapter's weights do not fit its configuration, missing {sorted(expected - stored)[:5]}, "
            f"unexpected {sorted(stored - expected)[:5]}; export the verifier again"
        )


def _quantization(config: VerifierConfig) -> Any:
    if config.quantization is None:
        return None
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(**config.quantization)
