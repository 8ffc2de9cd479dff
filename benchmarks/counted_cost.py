"""What do claims cost on a GPU, by claims about one video and by frames? Counted from the networks' shapes.

    python -m benchmarks.counted_cost --out benchmarks/results/counted_cost.md

Counted, not measured: operations of the vision tower and the language model (`models/backbones/shapes.py`) of a video
of 448 x 448 pixels, 256 visual tokens for two frames, between 40 tokens of text, and K claims of 24 tokens behind it.
They are divided by the operations a second that `--tflops` says: 400 is 40 % of what an H100 does in bfloat16, the aim
of `python -m benchmarks.gpu`, which measures the same there. Decoding is left out: it is other processors' work.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.pages import publish
from proofreel.models.backbones import forward_operations, published_config

SHAPES = {"3B": "Qwen2.5-VL-3B-Instruct", "7B": "Qwen2.5-VL-7B-Instruct"}
FRAMES, CLAIMS = (8, 16, 32, 64, 128), (1, 4, 16, 64)
GRID_SIDE, TOKENS_OF_TWO_FRAMES, TEXT_TOKENS, CLAIM_TOKENS = 32, 256, 40, 24


def operations(shape: str, n_frames: int, k: int) -> int:
    """Of a video and K claims behind it."""
    grid = (n_frames // 2, GRID_SIDE, GRID_SIDE)
    prefix = TEXT_TOKENS + n_frames // 2 * TOKENS_OF_TWO_FRAMES
    return forward_operations(published_config(SHAPES[shape]), [grid], prefix, [CLAIM_TOKENS] * k).total


def main(argv: Sequence[str] | None = None) -> int:
    """Count and publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tflops", type=float, default=400.0, help="10^12 operations a second")
    parser.add_argument("--out", type=Path, help="page to write")
    args = parser.parse_args(argv)
    text = (__doc__ or "").strip().splitlines()[4:]
    lines = ["# What claims cost on a GPU, counted", "", *text, ""]
    heads = [*(f"K = {k}: claims/s" for k in CLAIMS), *(f"K = {k}: GPU hours per million" for k in CLAIMS)]
    lines += [f"| shape | frames | {' | '.join(heads)} |", f"| --- | ---: |{' ---: |' * len(heads)}"]
    for shape in SHAPES:
        for n_frames in FRAMES:
            rates = [k * args.tflops * 1e12 / operations(shape, n_frames, k) for k in CLAIMS]
            cells = [*(f"{rate:,.1f}" for rate in rates), *(f"{1e6 / rate / 3600:,.2f}" for rate in rates)]
            lines.append(f"| {shape} | {n_frames} | {' | '.join(cells)} |")
    publish([*lines, "", f"`python -m benchmarks.counted_cost --tflops {args.tflops:g}`"], args.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
