"""K claims after one prefix: in one row attended block by block, densely, in chunks, and each after a copy of it.

    OMP_NUM_THREADS=1 python -m benchmarks.claim_blocks

CPU seconds of the claims alone, their prefix being kept, of networks with random weights: of the kitchen's size, and of
Qwen2.5-VL-3B's widths with one layer. Ways take turns; the fastest of the rounds counts. All give the same margins.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import __version__

from proofreel.models.backbones import TinySizes, load_backbone, save_tiny_model, vision_layout
from proofreel.models.engine import (
    NextToken,
    PrefixCache,
    PrefixScorer,
    Segment,
    collate,
    collate_apart,
    margins,
    pack,
)
from proofreel.models.inputs import EncodedEvidence, LabelWords

SIZES = {
    "kitchen": TinySizes(hidden=128, layers=4, heads=4, kv_heads=2, mlp=256, vocab=640),
    "3B, one layer": TinySizes(hidden=2048, layers=1, heads=16, kv_heads=2, mlp=11008, vocab=640),
}
CLAIM_TOKENS = (20, 29)
WORDS = LabelWords(supported_id=5, refuted_id=6)
CHUNKS = (8, 16)


def ways_of(size: TinySizes, n_prefix: int, model: Any) -> dict[str, Callable[[Sequence[torch.Tensor]], torch.Tensor]]:
    """Margins of claims about one kept prefix, by the name of the way."""
    layout, head, kept = vision_layout(model.config), NextToken(WORDS), PrefixCache(4.0)
    scorer = PrefixScorer(model, head, layout, 0, kept)
    ids = torch.randint(10, 250, (n_prefix,))
    evidence = EncodedEvidence(ids, torch.arange(n_prefix).expand(3, -1), n_prefix, {})
    scorer.score([Segment(evidence, (ids[:4],), "k")])
    prefix: Any = kept.get("k")

    def forward(batch: dict[str, Any], copies: int, layout: Any = layout) -> torch.Tensor:
        for name in ("input_ids", "position_ids"):
            batch[name] = batch[name][..., n_prefix:]
        with torch.inference_mode():
            return margins(model, batch, head, layout, prefix.cache(model.config, copies)).flatten()

    def blocks(claims: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.from_numpy(scorer.score([Segment(prefix.evidence, tuple(claims), "k", prefix)])[0])

    def dense(claims: Sequence[torch.Tensor]) -> torch.Tensor:
        return forward(collate([pack(prefix.evidence, claims)], 0) | {"claim_blocks": None}, 1)

    def copies(claims: Sequence[torch.Tensor]) -> torch.Tensor:
        rows = [pack(prefix.evidence, [claim]) for claim in claims]
        return forward(collate_apart(rows, 0), len(claims), dataclasses.replace(layout, branches="copied"))

    def chunks(n: int) -> Callable[[Sequence[torch.Tensor]], torch.Tensor]:
        return lambda claims: torch.cat([dense(claims[i : i + n]) for i in range(0, len(claims), n)])

    return {"blocks": blocks, "dense": dense, **{f"chunks of {n}": chunks(n) for n in CHUNKS}, "copies": copies}


def seconds_of(ways: dict[str, Any], claims: Sequence[torch.Tensor], rounds: int) -> dict[str, float]:
    """CPU seconds of the fastest round of each way; they take turns, and none always comes first."""
    margins_of = {name: way(claims) for name, way in ways.items()}
    for name, found in margins_of.items():
        expected = margins_of["copies"]
        assert torch.allclose(found, expected, atol=1e-4, rtol=1e-5), f"{name} differs, got {found} of {expected}"
    seconds: dict[str, float] = dict.fromkeys(ways, float("inf"))
    for i in range(rounds):
        for name in list(ways)[:: (-1) ** i]:
            began = time.process_time()
            ways[name](claims)
            seconds[name] = min(seconds[name], time.process_time() - began)
    return seconds


def main(argv: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=tuple(SIZES), default=list(SIZES))
    parser.add_argument("--prefix", nargs="+", type=int, default=[256, 1024, 4096])
    parser.add_argument("--claims", nargs="+", type=int, default=[1, 4, 16, 64])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(argv)
    names = ["blocks", "dense", *(f"chunks of {n}" for n in CHUNKS), "copies"]
    print("| size | prefix | claims | " + " | ".join(names) + " | copies / blocks |")
    print("| --- | " + " | ".join(["---:"] * (len(names) + 3)) + " |", flush=True)
    for name in args.sizes:
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):  # what libraries say
            model = load_backbone(save_tiny_model(folder, ["Claim: the ball is red."] * 20, SIZES[name])).eval()
        for n_prefix in args.prefix:
            ways = ways_of(SIZES[name], n_prefix, model)
            for k in args.claims:
                claims = [torch.randint(10, 250, (int(n),)) for n in torch.randint(*CLAIM_TOKENS, (k,))]
                seconds = seconds_of(ways, claims, args.rounds)
                cells = [f"{seconds[way]:.4f}" for way in names]
                ratio = seconds["copies"] / seconds["blocks"]
                print(f"| {name} | {n_prefix:,} | {k} | {' | '.join(cells)} | {ratio:.2f} |", flush=True)
    print(
        f"\n{torch.get_num_threads()} thread of {os.cpu_count()} cores of {platform.machine()}, Python "
        f"{platform.python_version()}, torch {torch.__version__}, transformers {__version__}"
    )


if __name__ == "__main__":
    main()
