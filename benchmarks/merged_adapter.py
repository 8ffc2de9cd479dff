"""What does a verifier save whose adapter is merged into its weights when it is loaded?

    python -m benchmarks.merged_adapter --out benchmarks/results/merged_adapter.md

The shipped verifier of the kitchen, loaded twice: merged, as by default, and with `merge=False`. Both score the same
clip, its frames read before and no prefix kept, and take turns within one run; one thread, CPU time. A network so small
spends much of its time between its matrices, as a large one does on a GPU; a large one on a CPU does not.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.pages import command, made_on, publish
from proofreel import Verifier, VideoSegment
from proofreel.models.inputs import read_media

ROOT = Path(__file__).resolve().parent.parent
CLAIMS = (1, 4, 16, 64)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="page to write")
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    began, folder = time.time(), ROOT / "checkpoints" / "kitchen-verifier"
    merged, apart = (
        Verifier.from_pretrained(folder, device="cpu", prefix_cache_gib=0.0, merge=merge) for merge in (True, False)
    )
    evidence = (VideoSegment(str(ROOT / "examples" / "kitchen" / "sample.mp4"), 0.0, 2.0),)
    media = read_media(evidence, merged.encoder.sampling, None)
    rows = []
    for n in CLAIMS:
        claims = [(f"Step {i}: Tool is knife.", None) for i in range(n)]
        ratios, margins = [], []
        for _ in range(args.rounds):
            seconds = []
            for verifier in (apart, merged):
                start = time.process_time()
                margins.append(verifier.score_media(claims, evidence, media))
                seconds.append(time.process_time() - start)
            ratios.append(seconds[0] / seconds[1])
        low, _, high = statistics.quantiles(ratios, n=4)
        difference = abs(margins[0] - margins[1]).max()
        rows.append(f"| {n} | {statistics.median(ratios):.2f} ({low:.2f} to {high:.2f}) | {difference:.1e} |")
    lines = [
        "# An adapter merged at load",
        "",
        (__doc__ or "").partition("\n\n")[2].partition("\n\n")[2].strip(),
        "",
        "| claims | CPU time: apart / merged (quartiles) | largest difference of a margin |",
        "| ---: | ---: | ---: |",
        *rows,
        "",
        f"`{command()}`; {made_on(began, ('torch', 'transformers', 'peft'))}",
    ]
    publish(lines, args.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
