"""LoRA merged into a base of full precision: from a verifier with an adapter to one that is a whole model.

Never into NF4: where the adapter was trained over quantised weights, the base is loaded as it was before quantisation,
and the merged network is another function. Whoever merges measures the difference (`eval/publishing/export.py`).
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any, get_args

import torch

from ..core.errors import ConfigError, DirectoryError
from .architectures import architecture_of
from .directory import CONFIG, VerifierConfig, fingerprint, read_directory, write_directory
from .loading import Dtype, load_weights
from .paths import relative_base
from .requirements import requirements_of

# What only an adapter, or a quantised base, needs.
_NOT_NEEDED = {"peft", "bitsandbytes"}


def write_merged(
    directory: str | Path, out: str | Path, base: str | Path | None = None, dtype: Dtype | None = None
) -> VerifierConfig:
    """Write the draft `out`: the verifier of `directory` with its adapter merged, no calibration and no golden inputs.

    Args:
        directory: a verifier that is an adapter, draft or published.
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
    _untie_adapted_output(adapted)
    target = getattr(torch, dtype or config.dtype)
    _merge_layers(adapted, target, directory)
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
    sees = architecture_of(network.config.model_type).sees
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
