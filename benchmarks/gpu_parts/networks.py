"""Networks of published shapes with random weights, on disk as released ones are; an import without installation.

Folders of weights are written once and kept between calls, as cells load them anew (7B: 17 GB). Tokenizer and processor
are small ones of the same format: nothing is downloaded.
"""

from __future__ import annotations

import gc
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SHAPES = {"7b": "Qwen2.5-VL-7B-Instruct", "3b": "Qwen2.5-VL-3B-Instruct"}
TINY = "tiny"
TEXTS = ["Claim: the ball is red and the pan stands on the stove."] * 20


def make_importable(folder: Path) -> None:
    """Where the package is not installed: a folder of links that does what its package mapping does, first on the path.

    Args:
        folder: where the links are put.
    """
    try:
        version("proofreel")
    except PackageNotFoundError:
        package = folder / "proofreel"
        package.mkdir(parents=True, exist_ok=True)
        mapped = [ROOT / name for name in ("data_prep", "models", "eval", "train", "configs")]
        for target in [*(ROOT / "proofreel").iterdir(), *mapped]:
            link = package / target.name
            if target.name != "__pycache__" and not link.exists():
                link.symlink_to(target)
        sys.path.insert(0, str(folder))


def tiny_sizes() -> Any:
    """What `--shape tiny` stands for."""
    from proofreel.models.backbones import TinySizes

    return TinySizes(hidden=64, layers=2, heads=4, kv_heads=2, mlp=128, vision_hidden=32, vision_depth=2, vision_mlp=64)


def checkpoint(name: str, work: Path, device: str, layers: int | None = None, model_type: str = "qwen2_5_vl") -> Path:
    """The folder of a checkpoint with random weights, written if it is not there.

    Args:
        name: of a published shape, or `TINY`.
        work: folder of the checkpoints.
        device: to draw the weights on.
        layers: of the language model, if not all.
        model_type: of a tiny one.
    """
    import torch

    from proofreel.models.backbones import backbone_for, published_config, save_tiny_model

    config = None if name == TINY else published_config(name)
    model_type = model_type if config is None else config.model_type
    folder = work / "-".join([name.replace("/", "-"), *([model_type] if config is None else []), str(layers or "all")])
    whole = folder.with_suffix(".whole")
    if whole.exists():
        return folder
    save_tiny_model(folder, TEXTS, tiny_sizes(), model_type=model_type)
    if config is not None:
        _take_token_ids(config, folder)
        if layers is not None:
            shorten(config, layers)
        torch.manual_seed(0)
        torch.set_default_dtype(torch.bfloat16)
        try:
            with torch.device(device):
                network: Any = backbone_for(model_type).network(scored=False)(config)
        finally:
            torch.set_default_dtype(torch.float32)
        for file in folder.glob("*.safetensors"):
            file.unlink()
        network.save_pretrained(folder)
        del network
        free(device)
    whole.touch()
    return folder


def shorten(config: Any, layers: int) -> None:
    """Keep the first layers of the language model."""
    text = config.get_text_config()
    text.num_hidden_layers = layers
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:layers]


def _take_token_ids(config: Any, folder: Path) -> None:
    """The tokens of the small tokenizer stand where a published one's would, whatever level names them."""
    from proofreel.models.backbones import read_config

    pairs = [(config, read_config(folder))]
    while pairs:
        into, small = pairs.pop()
        for key, value in list(vars(into).items()):
            if key.endswith("_config") and hasattr(value, "to_dict") and hasattr(small, key):
                pairs.append((value, getattr(small, key)))
            elif key.endswith(("_token_id", "_token_index")) and getattr(small, key, None) is not None:
                setattr(into, key, getattr(small, key))


class Loaded:
    """The network that was loaded last: cells that need the same one follow each other."""

    key: Any = None
    model: Any = None

    @classmethod
    def get(cls, folder: Path, device: str, dtype: Any, bits: int = 16) -> Any:
        """The network of a folder in evaluation mode, nothing of it trains."""
        if cls.key != (key := (str(folder), device, str(dtype), bits)):
            cls.drop(device)
            cls.model, cls.key = load(folder, device, dtype, bits), key
        return cls.model

    @classmethod
    def drop(cls, device: str) -> None:
        """Free it."""
        from benchmarks.prefix_ways import rival_network

        cls.key = cls.model = None
        rival_network.cache_clear()
        free(device)


def load(folder: Path, device: str, dtype: Any, bits: int = 16) -> Any:
    """Load as verifiers and training runs do; four bits are NF4, quantised twice."""
    from transformers import BitsAndBytesConfig

    from proofreel.models.backbones import load_backbone

    quantised = None
    if bits == 4:
        quantised = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
    model = load_backbone(folder, dtype=dtype, quantization_config=quantised, device_map={"": device})
    return model.eval().requires_grad_(False)


def free(device: str) -> None:
    """Return to the device what nothing refers to."""
    import torch

    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
