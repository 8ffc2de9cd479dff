"""Begin training where another verifier stands: its adapter in the place of a fresh one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from ..core.errors import ConfigError
from .directory import fingerprint, read_directory
from .heads import Head, Readout

_SCALE = {"r": "lora_r", "lora_alpha": "lora_alpha", "use_rslora": "use_rslora", "use_dora": "use_dora"}
"""What of a LoRA configuration decides, beside the weights, which function it is; and the key that sets it."""


def check_start(directory: str | Path, base_sha256: str, ours: Any, readout: Readout) -> str:
    """What can be known without a network; returns the verifier's fingerprint.

    Args:
        directory: a draft or an exported verifier that holds an adapter.
        base_sha256: `weights_sha256` of the base to be trained.
        ours: the LoRA configuration to train with.
        readout: what is to be trained.

    Raises:
        DirectoryError: no verifier there, or a damaged one.
        ConfigError: full weights, another base, another head, or an adapter of another rank or scale.
    """
    from peft import PeftConfig

    config = read_directory(Path(directory))
    if config.weights != "adapter":
        raise ConfigError(f"adapter_from: {directory} holds a full model, got no adapter; name it as the base instead")
    if config.base.weights_sha256 != base_sha256:
        raise ConfigError(
            f"adapter_from: {directory} stands on other weights than model_name_or_path, got base "
            f"{config.base.weights_sha256[:12]} and {base_sha256[:12]}; train on its base"
        )
    there, here = (config.head, config.labels), ("nli" if isinstance(readout, Head) else "next_token", readout.labels)
    if there != here:
        raise ConfigError(
            f"adapter_from: {directory} has another head, {there[0]} of {list(there[1])}, got {here[0]} of "
            f"{list(here[1])}; train its head, or from a new adapter"
        )
    theirs: Any = PeftConfig.from_pretrained(str(Path(directory) / "adapter"))
    for name, key in _SCALE.items():
        if (there := getattr(theirs, name)) != (here := getattr(ours, name)):
            raise ConfigError(f"adapter_from: {key} is {there} in {directory}, got {here}; set it to {there}")
    return fingerprint(directory)


def check_places(model: Any, directory: str | Path, with_head: bool = True) -> None:
    """Whether the adapter of a verifier has the tensors of `model`, in name and shape; `model` may hold no weights.

    Args:
        model: as `attach_lora` gives it.
        directory: the verifier's.
        with_head: whether a trained head is among them; False looks at LoRA alone.

    Raises:
        ConfigError: an adapter of other places.
    """
    from peft import get_peft_model_state_dict

    expected = {k: v.shape for k, v in get_peft_model_state_dict(model, save_embedding_layers=False).items()}
    with safe_open(Path(directory) / "adapter" / "adapter_model.safetensors", "pt") as stored:
        shapes = {name: torch.Size(stored.get_slice(name).get_shape()) for name in stored.keys()}  # noqa: SIM118
    ours, theirs = ({k: v for k, v in found.items() if with_head or ".lora_" in k} for found in (expected, shapes))
    if differ := sorted(ours.keys() ^ theirs.keys()) or [k for k, v in theirs.items() if v != ours[k]]:
        raise ConfigError(
            f"adapter_from: the adapter of {directory} lies elsewhere or has another head, got {len(differ)} tensors "
            f"that do not fit, e.g. {differ[0]}; train with its lora_parts, lora_target_modules and head"
        )


def start_from(model: Any, directory: str | Path) -> str:
    """Copy a verifier's adapter over the one just attached to `model`; returns the verifier's fingerprint.

    Args:
        model: as `attach_lora` gives it, not yet sharded.
        directory: as `check_start` and `check_places` pass it.

    Raises:
        DirectoryError: no verifier there, or a damaged one.
        ConfigError: an adapter of other places, or weights that ZeRO-3 has sharded.
    """
    from peft import set_peft_model_state_dict

    directory = Path(directory)
    if any(hasattr(p, "ds_id") for p in model.parameters()):
        raise ConfigError(f"adapter_from: weights are sharded by ZeRO-3 already, got {directory}; use ZeRO-2 or FSDP")
    read_directory(directory)
    check_places(model, directory)
    set_peft_model_state_dict(model, load_file(directory / "adapter" / "adapter_model.safetensors"))
    return fingerprint(directory)
