"""One command for a machine with one GPU: does everything run there, how fast, and in how much memory?

    python -m benchmarks.gpu                                     # call it until it says that all is measured
    python -m benchmarks.gpu --parts first presets --minutes 9
    python -m benchmarks.gpu --device cpu --shape tiny           # every part at small sizes, as the tests do

No network and no installation are needed: run from the repository's folder, with the packages of docs/gpu.md. Each cell
is written to `--rows` once it is measured, and skipped from then on; `--minutes` ends a call before a limit does. Cells
that failed are tried again with `--again`. Parts come in the order that loses least: what fails first is the cheapest.
Weights are random and frames are noise, but for the kitchen's.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("first", "presets", "scoring", "tower", "training", "largest", "precision", "kitchen")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is due until the time is over; 0, or 1 if a cell failed, or 3 if a further call is needed."""
    args = parsed(argv)
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    from benchmarks.gpu_parts.cells import Rows, run_part, table
    from benchmarks.gpu_parts.networks import make_importable

    make_importable(args.work / "links")
    parts, rows = the_parts(), Rows.read(args.rows)
    where = machine(args)
    print(where, flush=True)
    args.deadline = time.monotonic() + 60 * args.minutes
    finished = True
    for name in args.parts:
        finished &= run_part(parts[name], args, rows, args.deadline)
        print("\n".join(table(parts[name], rows)), flush=True)
        if not finished:
            break
    finished &= not any(rows.is_due(n, s) for n in args.parts for s in parts[n].settings(args))
    if args.out is not None:
        write_page(args.out, where, [line for name in PARTS for line in table(parts[name], rows)])
    failed = sum("error" in row for name in args.parts for row in rows.ended(name))
    print(f"\nall is measured, {failed} cells failed" if finished else "\nnot all is measured: call again")
    return 3 if not finished else 1 if failed else 0


def the_parts() -> dict[str, Any]:
    """Every part by its name; imports torch."""
    from benchmarks.gpu_parts.kitchen import KITCHEN
    from benchmarks.gpu_parts.presets import PRESETS
    from benchmarks.gpu_parts.scoring import PRECISION, SCORING, TOWER
    from benchmarks.gpu_parts.training import FIRST, LARGEST, TRAINING

    found = {part.name: part for part in (FIRST, PRESETS, SCORING, TOWER, TRAINING, LARGEST, PRECISION, KITCHEN)}
    assert tuple(found) == PARTS
    return found


def machine(args: Any) -> str:
    """Card, versions, load and shapes."""
    import torch

    from benchmarks.pages import machine_line

    if args.device == "cuda":
        card = f"{torch.cuda.get_device_name()}, {torch.cuda.get_device_properties(0).total_memory / 2**30:.0f} GiB"
    else:
        card = "no GPU: small shapes, to see that everything runs"
    packages = ("torch", "transformers", "peft", "trl", "accelerate", "bitsandbytes", "sentence-transformers")
    return f"{card}; {machine_line(packages)}."


def write_page(out: Path, where: str, lines: Sequence[str]) -> None:
    """All tables that there are."""
    head = ["# On one GPU", "", *(__doc__ or "").strip().splitlines(), "", where]
    out.write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options, and what follows from the shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--shape", choices=("published", "7b", "3b", "tiny"), default="published")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--presets", nargs="+", help="of the part of that name (default: all for one card)")
    parser.add_argument("--minutes", type=float, default=9.0, help="begin no cell after so many (default 9)")
    parser.add_argument("--rows", type=Path, default=Path("runs/gpu/rows.jsonl"), help="what was measured so far")
    parser.add_argument("--work", type=Path, default=Path("runs/gpu/work"), help="weights and data sets (40 GB)")
    parser.add_argument("--out", type=Path, help="page of all tables to write")
    parser.add_argument("--again", action="store_true", help="measure again what failed")
    parser.add_argument("--rounds", type=int, default=5, help="runs of a cell, after one that warms up")
    parser.add_argument("--limit-s", type=float, default=6.0, help="longest run of a baseline that is not predicted")
    parser.add_argument("--cell-s", type=float, default=6.0, help="seconds of measuring per cell, 3 rounds at least")
    parser.add_argument("--no-rival", dest="rival", action="store_false", help="leave CrossEncoder out")
    args = parser.parse_args(argv)
    args.work, args.rows = args.work.resolve(), args.rows.resolve()
    small = args.shape == "tiny"
    args.shapes = ["7b", "3b"] if args.shape == "published" else [args.shape]
    args.tokens, args.claims = ([256], [1, 4]) if small else ([1024, 4096, 16384], [1, 4, 16, 64])
    args.train_claims, args.bits = ([1, 4], [16]) if small else ([1, 4, 8, 16], [16, 4])
    args.most_claims, args.most_frames, args.largest_tokens = (4, 4, 256) if small else (1024, 1024, 4096)
    args.kitchen_size = [] if small else ["--large"]
    args.kitchen_steps, args.tower_steps, args.clips = (1, 1, 2) if small else (4000, 2000, 64)
    return args


if __name__ == "__main__":
    sys.exit(main())
