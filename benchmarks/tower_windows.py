"""How much faster is a vision tower whose windows are attended to in one call per length, and by how many calls?

    python -m benchmarks.tower_windows --out benchmarks/results/tower_windows.md

Sides take turns within one run, one thread, CPU time; the features of both are compared to the last bit. Random weights
of the published 3B's tower, with two of its layers: one of windows and one of whole frames, where the published tower
has 28 and 4 of its 32. On a CPU the layers' matrices take nearly all of the time; the calls saved are what a GPU waits
for.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks.pages import command, made_on, publish
from proofreel.models.backbones import published_config
from proofreel.models.engine import WINDOWS

GRIDS = {256: [[4, 16, 16]], 1024: [[4, 32, 32]], 4096: [[16, 32, 32]]}  # by visual tokens


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="page to write")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    began, tower = time.time(), _tower()
    lines = [
        "# Windows of the vision tower",
        "",
        (__doc__ or "").partition("\n\n")[2].partition("\n\n")[2].strip(),
        "",
        "| visual tokens | attention calls: per window | per length | CPU time: per window / per length |",
        "| ---: | ---: | ---: | ---: |",
        *(_row(tower, tokens, grid, args.rounds) for tokens, grid in GRIDS.items()),
        "",
        f"`{command()}`; {made_on(began, ('torch', 'transformers'))}",
    ]
    publish(lines, args.out)
    return 0


def _tower() -> Any:
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel

    vision = published_config("Qwen2.5-VL-3B-Instruct").vision_config
    vision.depth, vision.fullatt_block_indexes = 2, [1]
    return Qwen2_5_VisionTransformerPretrainedModel(vision).eval()


def _row(tower: Any, tokens: int, grid: list[list[int]], rounds: int) -> str:
    pixels = torch.randn(4 * tokens, 6 * tower.config.patch_size**2)
    seconds: dict[str, list[float]] = {"sdpa": [], WINDOWS: []}
    features = {}
    for _ in range(rounds):
        for side, taken in seconds.items():
            tower.config._attn_implementation = side
            start = time.process_time()
            with torch.inference_mode():
                features[side] = tower(pixels, torch.tensor(grid), return_dict=True).pooler_output
            taken.append(time.process_time() - start)
    assert torch.equal(*features.values())
    before, after = (statistics.median(taken) for taken in seconds.values())
    ratios = sorted(a / b for a, b in zip(*seconds.values(), strict=True))
    calls = [_calls(tower, side, pixels, grid) for side in seconds]
    return f"| {tokens:,} | {calls[0]} | {calls[1]} | {before / after:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |"


def _calls(tower: Any, side: str, pixels: torch.Tensor, grid: list[list[int]]) -> int:
    """Calls of scaled dot-product attention in one run of the tower."""
    tower.config._attn_implementation = side
    attend: Callable[..., torch.Tensor] = torch.nn.functional.scaled_dot_product_attention
    with (
        torch.inference_mode(),
        mock.patch("torch.nn.functional.scaled_dot_product_attention", side_effect=attend) as it,
    ):
        tower(pixels, torch.tensor(grid), return_dict=True)
    return it.call_count


if __name__ == "__main__":
    raise SystemExit(main())
