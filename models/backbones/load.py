"""A backbone from disk or hub: its configuration, processor and network, and a hash of the weights.

A checkpoint's family is read from the `model_type` of its config.json (families.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoProcessor, AutoTokenizer

from ...core import DirectoryError, download, require, sha256_of
from ..engine import Head, all_towers, use_prefix_split, use_windows
from ..inputs import LabelWords, template_of
from .base import Backbone
from .families import backbone_for
from .safety import check_safetensors, check_settings
from .score_head import score_start

# Said on every load, about other libraries' business: peft asks transformers by a deprecated name.
warnings.filterwarnings("ignore", message=r".*is_gradient_checkpointing.*deprecated", category=FutureWarning)

_WANTED_FILES = ["*.safetensors", "*.json", "*.txt", "*.jinja"]

# A folder with any of these is of a backbone with a vision tower.
_PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")


def read_config(path: str | Path) -> Any:
    """The configuration of a checkpoint folder; no weights are read.

    Raises:
        DirectoryError: no config.json, an architecture that is not supported, or sliding windows, whose masks would
            cut claims off from their evidence.
    """
    file = Path(path) / "config.json"
    if not file.is_file():
        raise DirectoryError(f"{path}: not a checkpoint, got no config.json; give the folder of a whole checkpoint")
    try:
        model_type = json.loads(file.read_text(encoding="utf-8"))["model_type"]
    except (ValueError, KeyError, TypeError) as error:
        raise DirectoryError(
            f"{file}: does not name a model_type, got {error!r}; fetch the checkpoint again"
        ) from error
    config = backbone_for(model_type, path).config_class().from_pretrained(path)
    if "sliding_attention" in (getattr(config.get_text_config(), "layer_types", None) or ()):
        raise DirectoryError(
            f"{path}: some layers attend within a sliding window, got use_sliding_window: true; "
            "use a checkpoint without it (released ones have it off)"
        )
    return config


def resolve_base(name_or_path: str | Path, revision: str | None = None) -> Path:
    """The local folder of a checkpoint: the path itself, or the hub's snapshot of that id (downloaded if need be).

    Of a GGUF file it is the folder beside it that `write_gguf_checkpoint` made, now or before.
    """
    path = Path(name_or_path)
    if path.is_dir():
        return path
    if path.is_file() and path.suffix == ".gguf":
        folder = path.with_name(f"{path.stem}-checkpoint")
        return folder if folder.is_dir() else write_gguf_checkpoint(path, folder)
    if path.is_absolute() or str(name_or_path).startswith("."):
        raise DirectoryError(f"base model: no such folder, got {name_or_path}; check the path or give a hub id")
    return download(str(name_or_path), revision, _WANTED_FILES, "base model")


def write_gguf_checkpoint(file: Path, out: Path) -> Path:
    """Write what a GGUF file holds as a checkpoint folder, in bfloat16: its weights, dequantised, and its tokenizer.

    Args:
        file: of a family that is supported.
        out: must not exist; it appears whole or not at all.

    Raises:
        ConfigError: the package gguf is not installed.
        DirectoryError: a file that transformers cannot read, of another family, or a folder that cannot be written.
    """
    require(f"{file}", "gguf")
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    except Exception as error:  # a damaged file fails in as many ways as its reader has lines
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise DirectoryError(f"{file}: not GGUF of a language model, got {reason[:300]}; fetch it again") from error
    backbone_for(model.config.model_type, file)
    values = model.config.to_dict()
    for key in ("quantization_config", "_name_or_path"):  # of the file, not of what is written
        values.pop(key, None)
    plain = type(model)(type(model.config)(**values))
    plain.load_state_dict(model.state_dict())
    partial = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        plain.to(torch.bfloat16).save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        partial.rename(out)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise DirectoryError(f"{out}: cannot be written, got {error}; copy the file to a folder of yours") from error
    return out


def load_processor(path: str | Path) -> Any:
    """The processor of a checkpoint, or of a folder that one was saved to: tokenizer, template and what takes pixels.

    Of a text checkpoint it is a `TextProcessor`, its tokenizer alone.

    Raises:
        DirectoryError: a file that asks for code or files from elsewhere, or a class that is not loaded here.
    """
    check_settings(Path(path))
    sees = any((Path(path) / name).is_file() for name in _PROCESSOR_FILES)
    try:
        loaded = (AutoProcessor if sees else AutoTokenizer).from_pretrained(path)
    except Exception as error:  # damaged files fail in as many ways as their readers have lines
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise DirectoryError(
            f"{path}: tokenizer or processor cannot be read, got {reason[:300]}; fetch the directory again"
        ) from error
    return loaded if sees else TextProcessor(loaded, path)


class TextProcessor:
    """A text checkpoint's tokenizer in the place of a processor: the same calls, and nothing that takes pixels.

    Attributes:
        tokenizer: the checkpoint's.
    """

    def __init__(self, tokenizer: Any, where: str | Path = "tokenizer") -> None:
        """`where` is named in errors.

        Raises:
            DirectoryError: the tokenizer has no chat template.
        """
        template_of(tokenizer, where)
        self.tokenizer = tokenizer

    def save_pretrained(self, directory: str | Path) -> Any:
        """Write the tokenizer's files with its chat template."""
        return self.tokenizer.save_pretrained(directory)


def load_backbone(
    path: str | Path,
    *,
    dtype: torch.dtype = torch.float32,
    quantization_config: Any = None,
    attn_implementation: str = "sdpa",
    device_map: Any = None,
    head: Head | None = None,
    words: LabelWords | None = None,
    head_may_be_new: bool = True,
) -> Any:
    """Load every weight of a checkpoint whose family is one of `BACKBONES`; a head may be new.

    Args:
        path: a local folder, from `resolve_base`.
        dtype: of the weights.
        quantization_config: a BitsAndBytesConfig, or None. `Backbone.unquantised` stays as it is.
        attn_implementation: sdpa, which the language model then uses through `models/engine/packing.py`.
        device_map: as in transformers.
        head: one that has a layer replaces the output layer by it (models/backbones/score_head.py).
        words: verdict words a new head starts from (`score_start`); without them it starts at random, to be filled by
            an adapter. A head that the checkpoint holds is loaded as it is.
        head_may_be_new: False of a checkpoint that must hold the head itself.

    Raises:
        DirectoryError: an architecture that is not supported, weights missing from the checkpoint (they would be
            random) or foreign to the architecture, a checkpoint's head of other labels, files that are no safetensors,
            or settings that ask for code or files from elsewhere.
    """
    if attn_implementation != "sdpa":
        raise DirectoryError(
            f"attn_implementation: packed claims need a 4-D boolean mask, got {attn_implementation!r}; use sdpa "
            "(eager adds a boolean mask, flash_attention_2 ignores it)"
        )
    head = head if head is not None and head.has_layer else None
    config = read_config(path)  # of a known class: no more than data is read
    backbone = backbone_for(config.model_type)
    if quantization_config is not None:
        quantization_config.llm_int8_skip_modules = list(backbone.unquantised)
    _check_files(Path(path))
    head_options = _head_options(path, config, backbone, head, words)
    if head_options and not head_may_be_new:
        raise DirectoryError(
            f"{path}: its head is missing and would be random, got {config.architectures} without a score layer; "
            "export the verifier again"
        )
    try:
        loaded: Any = backbone.network(scored=head is not None).from_pretrained(
            path,
            config=config,
            dtype=dtype,
            quantization_config=quantization_config,
            attn_implementation=attn_implementation,
            device_map=device_map,
            use_safetensors=True,
            output_loading_info=True,
            **head_options,
        )
    except (RuntimeError, SafetensorError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise DirectoryError(
            f"{path}: its weights cannot be loaded, got {reason}; fetch the checkpoint again"
        ) from error
    model, info = loaded
    wrong = {k: sorted(info[k])[:5] for k in ("missing_keys", "unexpected_keys", "mismatched_keys") if info.get(k)}
    if wrong:
        raise DirectoryError(f"{path}: weights do not fit {backbone.name}, got {wrong}; use an unmodified checkpoint")
    keep_weights_unpacked(model)
    use_prefix_split(model)
    use_windows(model)
    for tower in all_towers(model):
        run_without_graph_while_frozen(tower)
    model.accepts_loss_kwargs = False  # the loss is not the network's: no Trainer may count label tokens for it
    return model


def _check_files(path: Path) -> None:
    """Settings that are only data, and no adapter: transformers would load one that lies beside the weights."""
    if (path / "adapter_config.json").exists():
        raise DirectoryError(
            f"{path}: an adapter lies beside the weights, got adapter_config.json; give the folder of the base alone"
        )
    check_settings(path)
    for file in sorted(path.glob("*.safetensors")):
        check_safetensors(file)


def _head_options(
    path: str | Path, config: Any, backbone: Backbone, head: Head | None, words: LabelWords | None
) -> dict[str, Any]:
    """What a head that the checkpoint lacks adds to the arguments of loading; a head's labels go to `config`."""
    if head is None:
        return {}
    stored = config.architectures == [backbone.network(scored=True).__name__]
    names = tuple(config.id2label[i] for i in sorted(config.id2label))
    if stored and names != head.labels:
        raise DirectoryError(f"{path}: its head has the labels {names}, got {head.labels}; load it with its own labels")
    config.id2label = dict(enumerate(head.labels))
    config.label2id = {label: i for i, label in enumerate(head.labels)}
    if stored:
        return {}
    return {"start_CH": None if words is None else score_start(path, head, words), "head_is_new": True}


def keep_weights_unpacked(model: torch.nn.Module) -> None:
    """Let NF4 layers compute the same on every CPU, in training and in evaluation.

    On CPUs with AVX512-BF16, bitsandbytes repacks a layer's weights at its first forward in evaluation. What then runs
    rounds to bfloat16 and has no backward pass, also when training goes on: gradients stop there, or the step fails.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):  # bitsandbytes' Linear4bit
            module.support_avx512bf16_for_cpu = False  # type: ignore[assignment]


def run_without_graph_while_frozen(tower: torch.nn.Module) -> None:
    """Let a tower run under no-grad whenever none of its weights trains.

    Frozen weights alone do not see to that: gradient checkpointing makes the patch embedding's output require a
    gradient, and the tower would keep a graph, and run once more in every backward pass, for nothing.
    """

    def enter(module: torch.nn.Module, _: Any) -> None:
        module.grad_was_enabled = torch.is_grad_enabled()  # type: ignore[assignment]
        trains = any(weight.requires_grad for weight in module.parameters())
        torch.set_grad_enabled(bool(module.grad_was_enabled) and trains)

    def leave(module: torch.nn.Module, _: Any, __: Any) -> None:
        torch.set_grad_enabled(bool(module.grad_was_enabled))

    tower.register_forward_pre_hook(enter)
    tower.register_forward_hook(leave, always_call=True)


def weights_sha256(path: str | Path) -> str:
    """One hash over the names and bytes of every safetensors file in a checkpoint folder."""
    files = sorted(Path(path).glob("*.safetensors"))
    if not files:
        raise DirectoryError(
            f"{path}: no safetensors weights, got none; pickled checkpoints are not read, convert them"
        )
    total = hashlib.sha256()
    for file in files:
        total.update(file.name.encode())
        total.update(sha256_of(file).encode())
    return total.hexdigest()
