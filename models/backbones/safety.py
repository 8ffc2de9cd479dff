"""What may be read of a folder from a stranger: JSON that is only data, weights that are no pickle.

Nothing here loads, imports or runs anything that a file names. A key that would make a library fetch code, import a
class or read another folder is refused; names of classes must be among those of a backbone (`processor_classes`).

Chat templates are not checked: none is run in this process (chat_template.py). Docs: docs/loading.md.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from safetensors import SafetensorError, safe_open

from ...core import DirectoryError
from .families import processor_classes

MAX_JSON_BYTES = 4 * 2**20
MAX_VOCABULARY_BYTES = 64 * 2**20  # released tokenizer.json files have 11 MB
_VOCABULARIES = ("tokenizer.json", "vocab.json", "model.safetensors.index.json")

_READ = {
    "adapter_config.json",
    "added_tokens.json",
    "chat_template.json",
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "video_preprocessor_config.json",
    "vocab.json",
}

# Orders to a library: code of a repository, of the hub's kernels, or of a Python path; files and models elsewhere.
_ORDERS = {
    "audio_tokenizer",
    "auto_map",
    "auto_mapping",
    "base_model_class",
    "code_revision",
    "custom_generate",
    "custom_pipelines",
    "kernel_config",
    "megatron_config",
    "parent_library",
    "transformers_weights",
    "trust_remote_code",
    "use_kernels",
}
_FILE_KEYS = re.compile(r".*_files?$")
_ATTENTION_KEYS = re.compile(r".*(attn|experts)_implementation.*")
# Of an adapter's settings, those that say how its matrices are applied; every other one must be off.
_ADAPTER_SETTINGS = {
    "alpha_pattern",
    "base_model_name_or_path",  # a note: the base comes from verifier_config.json
    "bias",
    "exclude_modules",
    "fan_in_fan_out",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "lora_alpha",
    "lora_bias",
    "lora_dropout",
    "modules_to_save",
    "peft_type",
    "peft_version",
    "r",
    "rank_pattern",
    "revision",  # of the base; a note, too
    "target_modules",
    "task_type",
    "use_dora",
    "use_rslora",
}
_ADAPTER_VALUES: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "task_type": ("CAUSAL_LM", None),
    "modules_to_save": (None, [], ["score"]),
    "bias": ("none", "all", "lora_only"),
    "init_lora_weights": (True, False, "gaussian"),  # what stands in the file replaces them
    "megatron_core": ("megatron.core",),  # imported only where megatron_config is set, which is refused
    "qalora_group_size": (16,),  # peft's default; of no effect while use_qalora is off
}


def read_json(path: Path, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """A JSON file read strictly; `DirectoryError` if it is too large, no JSON, repeats a key, or holds NaN or infinity.

    Readers differ in which of two equal keys they keep, so that a checked value need not be the one that is used.
    """
    if (size := path.stat().st_size) > max_bytes:
        raise DirectoryError(
            f"{path}: too large for what it is, got {size} bytes of at most {max_bytes}; fetch it again"
        )
    try:
        return json.loads(
            path.read_text(encoding="utf-8"), object_pairs_hook=_object, parse_constant=_number, parse_float=_number
        )
    except RecursionError as error:
        raise DirectoryError(f"{path}: nested too deeply to be read, got more levels than Python reads") from error
    except ValueError as error:
        raise DirectoryError(f"{path}: not valid JSON, got {error}; fetch it again") from error


def check_settings(folder: Path, *, whole: bool = False) -> None:
    """The settings of a checkpoint or processor folder (its top level): only data, and only known classes.

    Args:
        folder: of a checkpoint, a processor, or a part of a verifier directory.
        whole: check every JSON file, also those that no library reads.

    Raises:
        DirectoryError: naming the file and the first thing in it that is refused.
    """
    for path in sorted(folder.glob("*.json")):
        if not whole and path.name not in _READ and not path.name.endswith(".index.json"):
            continue
        value = read_json(path, MAX_VOCABULARY_BYTES if path.name in _VOCABULARIES else MAX_JSON_BYTES)
        if path.name == "adapter_config.json":
            _check_adapter(path, value)
        elif path.name.endswith(".safetensors.index.json"):
            _check_index(path, value)
        elif path.name not in _VOCABULARIES:  # a token may be called anything
            _check_orders(path, value)
    for path in sorted(folder.glob("**/*.jinja")):
        if (size := path.stat().st_size) > MAX_JSON_BYTES:
            raise DirectoryError(f"{path}: too large for a chat template, got {size} bytes; use the checkpoint's own")


def check_safetensors(path: Path) -> None:
    """`DirectoryError` unless the file is in the safetensors format; its header is read, nothing is unpickled."""
    try:
        with safe_open(path, "np") as tensors:
            tensors.keys()
    except (SafetensorError, OSError) as error:
        with path.open("rb") as file:
            start = file.read(2)
        if start == b"PK" or start[:1] == b"\x80":  # of torch.save and of pickle; a header's length may be the same
            raise DirectoryError(
                f"{path}: a pickle under another name, got {start!r} at its start; remove it"
            ) from error
        raise DirectoryError(f"{path}: not a safetensors file, got {error}; fetch it again") from error


def is_plain_name(name: str) -> bool:
    """Whether `name` is the name of a file, and nothing that leads to another folder on any system."""
    return name not in ("", ".", "..") and PurePosixPath(name).name == name == PureWindowsPath(name).name


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {twice!r} twice")
    return values


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text}, which is no number")
    return value


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key with its value, at every depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from _items(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _items(inner)


def _check_orders(path: Path, value: Any) -> None:
    classes = processor_classes()
    for key, inner in _items(value):
        if key in _ORDERS and inner not in (None, False, {}, []):
            raise DirectoryError(f"{path}: asks for code or files from elsewhere, got {key}: {inner!r}; remove it")
        if _FILE_KEYS.fullmatch(key) and inner is not None:
            raise DirectoryError(f"{path}: names another file to be read, got {key}: {inner!r}; remove it")
        if _ATTENTION_KEYS.fullmatch(key) and "/" in str(inner):
            raise DirectoryError(f"{path}: asks for a kernel from the hub, got {key}: {inner!r}; remove it")
        if key in classes and inner is not None and str(inner) not in classes[key]:
            raise DirectoryError(
                f"{path}: a class that is not loaded here, got {key}: {inner!r}; known are {sorted(classes[key])}"
            )
        if key == "quant_method" and inner != "bitsandbytes":
            raise DirectoryError(f"{path}: weights of a foreign format, got {key}: {inner!r}; use unquantised weights")


def _check_adapter(path: Path, values: Any) -> None:
    if not isinstance(values, dict):
        raise DirectoryError(f"{path}: must be a JSON object, got {type(values).__name__}; fetch it again")
    for key, value in values.items():
        if key == "auto_mapping" and _is_of_transformers(value):
            continue
        allowed = _ADAPTER_VALUES.get(key)
        off = value in (None, False) or value in ({}, [])
        if (value not in allowed) if allowed is not None else (key not in _ADAPTER_SETTINGS and not off):
            raise DirectoryError(
                f"{path}: a setting that is refused, got {key}: {value!r}; export the verifier again, with plain LoRA"
            )
    if "peft_type" not in values:
        raise DirectoryError(f"{path}: says of no kind of adapter, got no peft_type; export the verifier again")
    # peft reads these keys as patterns; what is to be adapted is read from the weights' names (models/directory).
    for key in ("rank_pattern", "alpha_pattern"):
        if not isinstance(values.get(key) or {}, dict):
            raise DirectoryError(f"{path}: {key} must be an object, got {values[key]!r}; export the verifier again")
        for name in values.get(key) or {}:
            if not re.fullmatch(r"[\w.]{1,200}", name):
                raise DirectoryError(f"{path}: a pattern that may not end, got {key}: {name!r}; name the layers")


def _is_of_transformers(mapping: Any) -> bool:
    """Whether peft's `auto_mapping` names a generating network in a module of models of transformers, and no more."""
    if not isinstance(mapping, dict) or set(mapping) != {"base_model_class", "parent_library"}:
        return False
    network, module = str(mapping["base_model_class"]), str(mapping["parent_library"])
    return bool(
        re.fullmatch(r"[A-Za-z0-9_]+ForConditionalGeneration", network)
        and re.fullmatch(r"transformers\.models\.([a-z0-9_]+)\.modeling_\1", module)
    )


def _check_index(path: Path, value: Any) -> None:
    names = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(names, dict):
        raise DirectoryError(f"{path}: maps no weights to files, got {type(names).__name__}; fetch it again")
    for name in set(names.values()):
        if not isinstance(name, str) or not is_plain_name(name) or not name.endswith(".safetensors"):
            raise DirectoryError(f"{path}: not a safetensors file beside it, got {name!r}; fetch it again")
        if not (path.parent / name).is_file():
            raise DirectoryError(f"{path}: a file of weights is missing, got no {name}; fetch it again")
