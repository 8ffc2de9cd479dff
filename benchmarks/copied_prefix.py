"""Claims that follow copies of their evidence, against packed ones and whole sequences: counts and CPU seconds.

    OMP_NUM_THREADS=1 python -m benchmarks.copied_prefix

Counts are of the published 4B shapes of Qwen3-VL (packed) and Qwen3.5 (copied), text tokens alone; CPU seconds are of
tiny networks of the same classes on this machine, the best of three.
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import __version__

from proofreel.core import Passage, Prompt
from proofreel.data_prep.media import FrameSampling
from proofreel.models.backbones import (
    TinySizes,
    forward_operations,
    kept_numbers,
    load_backbone,
    load_processor,
    published_config,
    save_tiny_model,
    vision_layout,
)
from proofreel.models.engine import TWO_LABELS, PrefixCache, PrefixScorer, Segment, make_head
from proofreel.models.inputs import Encoder, LabelWords, Media

PREFIX, CLAIM, CLAIMS = 2048, 32, (1, 7, 33)
FAMILIES = {"qwen3_vl": "Qwen3-VL-4B-Instruct", "qwen3_5": "Qwen3.5-4B"}
SIZES = TinySizes(hidden=128, layers=4, vocab=420)


def counted(name: str, k: int) -> tuple[float, float]:
    """Operations of K claims with the evidence computed once, and once for each claim."""
    config = published_config(name)
    once = forward_operations(config, (), PREFIX, [CLAIM] * k).total
    return once, k * forward_operations(config, (), PREFIX, [CLAIM]).total


def best_of(work: Callable[[], Any], times: int = 3) -> float:
    """CPU seconds of the fastest."""
    seconds = []
    for _ in range(times):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)


def measured(model_type: str, folder: str) -> list[tuple[float, float]]:
    """CPU seconds of K claims on a tiny network: with the evidence computed once, and once for each claim."""
    base = save_tiny_model(f"{folder}/{model_type}", [Prompt().system] * 20, SIZES, model_type=model_type)
    model = load_backbone(base).eval()
    encoder = Encoder(load_processor(base), vision_layout(model.config), Prompt(), FrameSampling())
    head = make_head("next_token", LabelWords.of(Prompt(), encoder.tokenizer), TWO_LABELS)
    scorer = PrefixScorer(model, head, encoder.layout, encoder.pad_id, PrefixCache(0))
    evidence = encoder.evidence((Passage("a" * PREFIX),), Media())
    seconds = []
    for k in CLAIMS:
        claims = tuple(encoder.claim_ids(f"{i:02d} is red.") for i in range(k))
        segments = [Segment(evidence, (claim,)) for claim in claims]
        once = best_of(lambda claims=claims: scorer.score([Segment(evidence, claims)]))
        apart = best_of(lambda segments=segments: [scorer.score([segment]) for segment in segments])
        seconds.append((once, apart))
    return seconds


def main() -> None:
    """Print one table."""
    torch.manual_seed(0)
    print("| checkpoint | claims follow | claims | operations, evidence once | whole | ratio | CPU ratio, tiny |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for model_type, name in FAMILIES.items():
            way = vision_layout(published_config(name)).branches
            for k, (once, apart) in zip(CLAIMS, measured(model_type, folder), strict=True):
                ours, whole = counted(name, k)
                print(f"| {name} | {way} | {k} | {ours:.3g} | {whole:.3g} | {whole / ours:.1f} | {apart / once:.1f} |")
    for name in FAMILIES.values():
        per_token, states = kept_numbers(published_config(name))
        kept = (2 * per_token * PREFIX + 4 * states) / 2**20
        print(
            f"{name}: {kept:,.0f} MiB kept of {PREFIX} tokens, keys and values in bfloat16, of which "
            f"{4 * states / 2**20:,.0f} MiB are states, in float32"
        )
    print(
        f"{torch.get_num_threads()} thread of {os.cpu_count()} cores of {platform.machine()}, Python "
        f"{platform.python_version()}, torch {torch.__version__}, transformers {__version__}"
    )


if __name__ == "__main__":
    main()
