"""A larger base out of the kitchen's: between its layers, new ones that change nothing yet, then more captioning.

python -m examples.kitchen.grow --out runs/kitchen-base-large          # twice the layers; see docs/kitchen-base.md

A new layer is a copy of the one before it whose two output matrices are 0: the residual stream passes it by, so that
the grown model begins as the function it was grown from and needs a fraction of its pretraining. Stopped, it goes on
from OUT.state.pt when called again.
"""

from __future__ import annotations

import argparse
import copy
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2_5_VLForConditionalGeneration

from examples.kitchen.pretrain import pretrain
from proofreel.models.backbones import load_backbone

ROOT = Path(__file__).resolve().parent.parent.parent
STEPS = 400  # of captioning
CALM = 0.6  # of the learning rate of pretraining from scratch: what is known should stay


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, grow and pretrain."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, default=ROOT / "checkpoints" / "kitchen-base", help="what to grow")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint folder to write")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"captioning steps (default {STEPS})")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default 2)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    if not args.out.with_name(f"{args.out.name}.state.pt").is_file():
        grow(args.base, args.out)
    seconds, losses = pretrain(args.out, args.steps, args.seed, args.device, tower_steps=0, begun=True, calm=CALM)
    print(f"{args.out}: {args.steps} steps, last loss {losses[-1]:.4f}, {seconds / 60:.1f} minutes on {args.device}")
    return 0


def grow(base: Path, out: Path) -> Any:
    """Write a checkpoint of twice the language layers of `base` that gives the same logits, and return the model."""
    small: Any = load_backbone(base)
    config = copy.deepcopy(small.config)
    text = config.text_config
    text.num_hidden_layers *= 2
    text.layer_types = [kind for kind in text.layer_types for _ in range(2)]
    config.dtype = text.dtype = config.vision_config.dtype = torch.float32
    large: Any = Qwen2_5_VLForConditionalGeneration(config)
    weights = {k: v for k, v in small.state_dict().items() if ".layers." not in k}
    for i, layer in enumerate(small.model.language_model.layers):
        for name, tensor in layer.state_dict().items():
            of_new = torch.zeros_like(tensor) if name in ("self_attn.o_proj.weight", "mlp.down_proj.weight") else tensor
            weights[f"model.language_model.layers.{2 * i}.{name}"] = tensor
            weights[f"model.language_model.layers.{2 * i + 1}.{name}"] = of_new
    large.load_state_dict(weights)
    shutil.copytree(base, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    large.save_pretrained(out)
    return large


if __name__ == "__main__":
    raise SystemExit(main())
