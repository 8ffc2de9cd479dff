"""Begin training where another verifier stands: its adapter in the place of a fresh one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from ..data_prep.errors import ConfigError
from .directory import fingerprint, read_directory

_SCALE = ("r", "lora_alpha", "use_rslora", "use_dora")
"""What of a LoRA configuration decides, beside the weights, which function it is."""


def check_start(directory: str | Path, base_sha256: str) -> None:
    """What can be known before weights are loaded.

    Args:
        directory: a draft or an exported verifier that holds an adapter.
        base_sha256: `weights_sha256` of the base to be trained.

    Raises:
        DirectoryError: no verifier there, or a damaged one.
        ConfigError: full weights, or another base.
    """
    config = read_directory(Path(directory))
    if config.weights != "adapter":
        raise ConfigError(f"adapter_from: {directory} holds a full model, got no adapter; name it as the base instead")
    if config.base.weights_sha256 != base_sha256:
        raise ConfigError(
            f"adapter_from: {directory} stands on other weights than model_name_or_path, got base "
            f"{config.base.weights_sha256[:12]} and {base_sha256[:12]}; train on its base"
        )


def start_from(model: Any, directory: str | Path) -> str:
    """Copy a verifier's adapter over the one just attached to `model`; returns the verifier's fingerprint.

    Args:
        model: as `attach_lora` gives it, not yet sharded.
        directory: as `check_start` passes it.

    Raises:
        ConfigError: an adapter of other places, rank, scale or head, or weights that ZeRO-3 has sharded.
    """
    from peft import PeftConfig, get_peft_model_state_dict, set_peft_model_state_dict

    directory = Path(directory)
    if any(hasattr(p, "ds_id") for p in model.parameters()):
        raise ConfigError(f"adapter_from: weights are sharded by ZeRO-3 already, got {directory}; use ZeRO-2 or FSDP")
    theirs: Any = PeftConfig.from_pretrained(str(directory / "adapter"))
    ours = model.peft_config["default"]
    for key in _SCALE:
        if (there := getattr(theirs, key)) != (here := getattr(ours, key)):
            raise ConfigError(f"adapter_from: {key} is {there} in {directory}, got {here}; set it to {there}")
    stored = load_file(directory / "adapter" / "adapter_model.safetensors")
    expected = {k: v.shape for k, v in get_peft_model_state_dict(model, save_embedding_layers=False).items()}
    if differ := sorted(stored.keys() ^ expected.keys()) or [k for k, v in stored.items() if v.shape != expected[k]]:
        raise ConfigError(
            f"adapter_from: the adapter of {directory} lies elsewhere or has another head, got {len(differ)} tensors "
            f"that do not fit, e.g. {differ[0]}; train with its lora_parts, lora_target_modules and head"
        )
    set_peft_model_state_dict(model, stored)
    return fingerprint(directory)
