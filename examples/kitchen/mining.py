"""Whether hard-negative mining helps: as many rows, drawn at random or mined by the model of the round before.

    python -m examples.kitchen.mining --out runs/kitchen-mining --seeds 0 1 2 3 4
    python -m examples.kitchen.mining --out runs/kitchen-mining --name claims --options mining.balance=claim

Every step of the train split has its true claims, and as candidates true claims of other steps that are false of it.
Validation, calibration and test keep the kitchen's own negatives, whose kind was decided when they were dealt out: what
is hard was not chosen by a model. Each seed runs train/rounds.py, every command is printed before it runs, and a killed
run goes on where it was. About three hours on one CPU core.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from examples.kitchen import commands
from examples.kitchen.commands import python
from examples.kitchen.mining_table import table
from proofreel.core import SPLITS, Pair, VideoSegment
from proofreel.data_prep.dataset import MANIFEST, read_split, write_pairs
from proofreel.data_prep.negatives import swapped_negatives

WORLD = 1  # settings were chosen in world 0: what is reported is of clips that were not looked at
CLIPS, LONG = (320, 40, 120, 220), (20, 6, 10, 40)
CANDIDATES = 8  # for every true claim


def main(argv: Sequence[str] | None = None) -> int:
    """Make what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for all that is made")
    parser.add_argument("--seeds", type=int, nargs="+", default=[*range(5)], help="of weights, rows and their order")
    parser.add_argument("--rounds", type=int, default=2, help="mined rounds, after one of random negatives")
    parser.add_argument("--name", default="seed", help="of this experiment's folders: <out>/<name>-<seed>")
    parser.add_argument(
        "--options", nargs="+", default=[], metavar="KEY=VALUE", help="further words of train/rounds.py"
    )
    args = parser.parse_args(argv)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    make_data(args.out)
    folders = [args.out / f"{args.name}-{seed}" for seed in args.seeds]
    for seed, folder in zip(args.seeds, folders, strict=True):
        make_rounds(args.out, folder, seed, args.rounds, args.options)
    text = table([[folder / f"round-{number}" for folder in folders] for number in range(args.rounds + 1)])
    (args.out / f"{args.name}.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def make_rounds(out: Path, folder: Path, seed: int, rounds: int, options: Sequence[str]) -> None:
    """The rounds of one seed, and what each round's verifier says of the test split."""
    pool, seen_before = out / "pool", out / "vision"  # the tower is frozen: it sees each clip once, for all runs
    set_ = (f"data={pool}", f"output={folder}", f"seed={seed}", f"rounds={rounds}")
    caches = (f"train.options.vision_cache={seen_before}", f"predict.options.vision_cache={seen_before}")
    python("train/rounds.py", "--config", "configs/kitchen_rounds.yaml", *set_, *caches, *options)
    for number in range(rounds + 1):
        here = folder / f"round-{number}"
        commands.predict(here, pool, "test", "--vision-cache", seen_before)


def make_data(out: Path) -> None:
    """The world, its own data set, and `<out>/pool`, whose train split holds all candidates."""
    world, dealt, pool = out / "world", out / "dealt", out / "pool"
    sizes = ("--seed", WORLD, "--clips", *CLIPS, "--long", *LONG)
    python("-m", "examples.kitchen.make", "--out", world, *sizes)
    files = (f"{{format: facts, path: {world / name}.json}}" for name in ("annotations", "annotations_long"))
    commands.build(dealt, "configs/kitchen_build.yaml", ", ".join(files))
    if not (pool / MANIFEST).exists():
        rows = pooled(seen(pair) for split in SPLITS for pair in read_split(dealt, split))
        write_pairs(out / "pool.parquet", rows)
        source = f"{{format: pairs, path: {out / 'pool'}.parquet}}"
        commands.build(pool, "configs/kitchen_text_build.yaml", source)


def seen(pair: Pair) -> Pair:
    """The same claim of what is shown alone: what is said is left out."""
    evidence = tuple(piece for piece in pair.evidence if isinstance(piece, VideoSegment))
    return dataclasses.replace(pair, evidence=evidence, modality="visual")


def pooled(pairs: Iterable[Pair]) -> list[Pair]:
    """All splits, in train with the true claims of other videos in place of the negatives that were dealt out."""
    pairs = list(pairs)
    true = [pair for pair in pairs if pair.split == "train" and pair.label == "supported"]
    swapped, _ = swapped_negatives(true, CANDIDATES)
    return [*true, *swapped, *(pair for pair in pairs if pair.split != "train")]


if __name__ == "__main__":
    raise SystemExit(main())
