"""The two files of a stored adapter: which layers it goes to, and whether its weights are all there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ...core import DirectoryError
from ..backbones import read_json

_SETTINGS, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def adapter_config(folder: Path) -> Any:
    """peft's configuration of a stored adapter; the layers it goes to are those its weights are named after.

    `target_modules` may be a pattern from a stranger, which Python's `re` matches in exponential time, and says nothing
    that the names of the tensors do not say.

    Args:
        folder: with `adapter_config.json`, checked by `check_settings`, and `adapter_model.safetensors`.

    Raises:
        DirectoryError: weights of no LoRA layer.
    """
    from peft import LoraConfig

    values = read_json(folder / _SETTINGS) | {"target_modules": _adapted_layers(folder)}
    if values.pop("auto_mapping", None) is not None:  # written by `describe_adapter` in the place of the task
        values["task_type"] = "CAUSAL_LM"
    known = LoraConfig.__dataclass_fields__
    left_out = {"exclude_modules", "layers_pattern", "layers_to_transform"}
    return LoraConfig(**{k: v for k, v in values.items() if k in known and k not in left_out})


def describe_adapter(folder: Path, base: str, network: type | None = None) -> None:
    """Write into a stored adapter's settings where its base is, and every layer it goes to by its full name.

    Args:
        folder: of the adapter.
        base: a hub id, or a path that peft resolves from the folder in which its process runs.
        network: class of transformers that `AutoPeftModel` opens the base with; None leaves the task, which says it
            to `AutoPeftModelForCausalLM`. peft takes the one or the other.
    """
    values = read_json(folder / _SETTINGS)
    values |= {"base_model_name_or_path": base, "target_modules": _adapted_layers(folder)}
    if network is not None:
        mapping = {"base_model_class": network.__name__, "parent_library": network.__module__}
        values |= {"task_type": None, "auto_mapping": mapping}
    (folder / _SETTINGS).write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _adapted_layers(folder: Path) -> list[str]:
    with safe_open(folder / _WEIGHTS, "pt") as tensors:
        names = [name.removeprefix("base_model.model.") for name in tensors.keys()]  # noqa: SIM118
    layers = sorted({name.partition(".lora_")[0] for name in names if ".lora_" in name})
    if not layers:
        raise DirectoryError(f"{folder}: weights of no LoRA layer, got {names[:3]}; export the verifier again")
    return layers


def check_adapter_files(folder: Path) -> None:
    """peft asks the hub for files that are not there, and takes pickles from it."""
    for name in (_SETTINGS, _WEIGHTS):
        if not (folder / name).is_file():
            raise DirectoryError(f"{folder}: the adapter is incomplete, missing {name}; export the verifier again")


def check_adapter(folder: Path, adapted: Any) -> None:
    """peft leaves a weight that its file lacks as it was initialised, and drops one it has no place for."""
    from peft import get_peft_model_state_dict

    with safe_open(folder / _WEIGHTS, "pt") as tensors:
        stored = set(tensors.keys())
    expected = set(get_peft_model_state_dict(adapted, save_embedding_layers=False))
    if stored != expected:
        raise DirectoryError(
            f"{folder}: the adapter's weights do not fit its configuration, missing {sorted(expected - stored)[:5]}, "
            f"unexpected {sorted(stored - expected)[:5]}; export the verifier again"
        )
