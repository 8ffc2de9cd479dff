"""What is done with a verifier's adapter: another training run starts from it, or it is merged into its base.

Merging takes a base of full precision, never NF4: an adapter that was trained over quantised weights then stands on
the base as it was before quantisation, and the merged network is another function. Whoever merges measures the
difference (`eval/publishing/exporting.py`).
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from ...core import ConfigError, DirectoryError
from ..backbones import vision_config
from ..engine import Head, head_name
from .format import CONFIG, VerifierConfig, fingerprint, read_directory, relative_base, requirements_of, write_directory
from .load import Dtype, load_weights

_SCALE = {"r": "lora_r", "lora_alpha": "lora_alpha", "use_rslora": "use_rslora", "use_dora": "use_dora"}
"""What of a LoRA configuration decides, beside the weights, which function it is; and the key that sets it."""


def check_start(directory: str | Path, base_sha256: str, ours: Any, head: Head) -> str:
    """What can be known without a network; returns the verifier's fingerprint.

    Args:
        directory: an uncalibrated or an exported verifier that holds an adapter.
        base_sha256: `weights_sha256` of the base to be trained.
        ours: the LoRA configuration to train with.
        head: what is to be trained.

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
    there, here = (config.head, config.labels), (head_name(head), head.labels)
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
        stored_shapes = {name: torch.Size(stored.get_slice(name).get_shape()) for name in stored.keys()}  # noqa: SIM118
    ours, theirs = ({k: v for k, v in all_.items() if with_head or ".lora_" in k} for all_ in (expected, stored_shapes))
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


# What only an adapter, or a quantised base, needs.
_NOT_NEEDED = {"peft", "bitsandbytes"}


def write_merged(
    directory: str | Path, out: str | Path, base: str | Path | None = None, dtype: Dtype | None = None
) -> VerifierConfig:
    """Write the uncalibrated verifier `out`: that of `directory`, adapter merged, without golden inputs.

    Args:
        directory: a verifier that is an adapter, uncalibrated or published.
        out: must not exist.
        base: base checkpoint, if not where the directory says.
        dtype: of the stored weights; that of the verifier where None.

    Raises:
        DirectoryError: nothing to merge, another base, or weights that would not be finite.
    """
    directory, out = Path(directory), Path(out)
    config = read_directory(directory)
    network = merged_network(directory, config, base, dtype)
    stored = _merged_config(directory, config, out, network)

    def fill(folder: Path) -> None:
        network.save_pretrained(folder / "model")
        shutil.copytree(directory / "processor", folder / "processor")
        (folder / CONFIG).write_text(stored.to_json(), encoding="utf-8")

    write_directory(out, fill)
    return stored


def merged_network(
    directory: str | Path, config: VerifierConfig, base: str | Path | None = None, dtype: Dtype | None = None
) -> Any:
    """The network of a verifier with its LoRA merged: a plain backbone, or one with a `score` head.

    The base has the verifier's precision, as in training, but is never quantised. Each layer is merged in float32 and
    rounded once, to `dtype`. An adapter on a tied output layer unties it: the embeddings stay what they were.

    Raises:
        ConfigError: an unknown dtype.
        DirectoryError: as for `write_merged`.
    """
    if dtype is not None and dtype not in get_args(Dtype):
        raise ConfigError(f"merge dtype: must be float32, bfloat16 or float16, got {dtype!r}; choose one")
    if config.weights != "adapter":
        raise DirectoryError(f"{directory}: holds a whole model, got nothing to merge; export it without merging")
    adapted = load_weights(Path(directory), dataclasses.replace(config, quantization=None), base)
    return merged(adapted, getattr(torch, dtype or config.dtype), directory)


def has_adapter_to_merge(model: Any) -> bool:
    """Whether a network is LoRA over weights that are not quantised."""
    return hasattr(model, "get_base_model") and not getattr(model.get_base_model(), "is_quantized", False)


def merged(adapted: Any, target: torch.dtype, where: str | Path) -> Any:
    """The network of an adapted one, which is taken apart for it; arguments and errors as of `merged_network`."""
    _untie_adapted_output(adapted)
    _merge_layers(adapted, target, where)
    network = adapted.unload().to(target)
    network.config.dtype = target
    return network


def _merge_layers(adapted: Any, target: torch.dtype, where: str | Path) -> None:
    """Merge layer by layer in float32, so that a large network never stands in memory in float32 as a whole."""
    from peft.tuners.lora import LoraLayer

    for name, layer in adapted.named_modules():
        if not isinstance(layer, LoraLayer):
            continue
        layer.float()  # type: ignore[attr-defined]  (a mixin of torch modules)
        try:
            layer.merge(safe_merge=True)
        except ValueError as error:
            raise DirectoryError(
                f"{where}: merging {name} gives no finite weights, got {error}; train again"
            ) from error
        layer.get_base_layer().to(target)


def _untie_adapted_output(adapted: Any) -> None:
    """Give an output layer that has an adapter weights of its own where they were those of the embeddings."""
    network = adapted.get_base_model()
    output = network.get_output_embeddings()
    if not (hasattr(output, "base_layer") and output.weight is network.get_input_embeddings().weight):
        return
    output.base_layer.weight = torch.nn.Parameter(output.weight.detach().clone())
    # transformers reads either of these as an order to tie when it loads.
    network.config.tie_word_embeddings = False
    network.config.get_text_config().tie_word_embeddings = False


def _merged_config(directory: Path, config: VerifierConfig, out: Path, network: Any) -> VerifierConfig:
    """What the merged verifier says of itself; the base is named as where it comes from, and is not needed to load."""
    sees = vision_config(network.config) is not None
    needed = {name: r for name, r in config.requirements.items() if name not in _NOT_NEEDED}
    dtype: Any = str(network.dtype).removeprefix("torch.")
    merged = {
        "from_fingerprint": fingerprint(directory),
        "from_dtype": config.dtype,
        "from_quantised": config.quantization is not None,
    }
    return dataclasses.replace(
        config,
        base=dataclasses.replace(config.base, path=relative_base(config.base.path, old=directory, new=out)),
        weights="full",
        quantization=None,
        dtype=dtype,
        requirements=requirements_of(sees, adapter=False, quantised=False) | needed,
        trained=config.trained | {"merged": merged},
    )
