"""Make the kitchen: mp4 files, annotations and narrations, into one folder. From the repository root:

python -m examples.kitchen.make --out runs/kitchen
python -m examples.kitchen.make --out runs/kitchen-small --clips 40 12 12 12 --long 0 0 0 0 --seed 1
python -m examples.kitchen.make --out runs/kitchen --pretrain 2000      # also clips with captions only
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from examples.kitchen.filming import SPLITS
from examples.kitchen.world import CLIPS, LONG, Settings, make_world
from proofreel.core import ProofreelError


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and make the world; 2 on a refused request."""
    parser = argparse.ArgumentParser(description="Render the synthetic kitchen.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write, or one made with the same settings")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same annotations and frames (default 0)")
    names = tuple(split.upper() for split in SPLITS)
    for flag, default, what in (("--clips", CLIPS, "single-step clips"), ("--long", LONG, "narrated videos")):
        text = f"{what} of each split (default {' '.join(map(str, default))})"
        parser.add_argument(flag, type=int, nargs=4, metavar=names, default=default, help=text)
    parser.add_argument("--pretrain", type=int, default=0, help="further clips with captions only (default 0)")
    args = parser.parse_args(argv)
    settings = Settings(args.seed, tuple(args.clips), tuple(args.long), args.pretrain)
    try:
        made = make_world(args.out, settings)
    except ProofreelError as error:
        parser.exit(2, f"{error}\n")
    print(f"{args.out}: {'made' if made else 'already there, made with the same settings'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
