"""Other ways to be small than to see fewer frames: fewer pixels, fewer layers, four bits, another head.

    python -m examples.kitchen.grow --out runs/kitchen-base-large
    python -m examples.kitchen.smaller --out runs/kitchen-distill --large runs/kitchen-base-large

In the folder and with the teachers of examples/kitchen/distill.py, which makes them if they are not there. About an
hour on one CPU core for one seed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from examples.kitchen.distill import (
    BEST,
    LABELS_FROM,
    LABELS_NEW,
    ask,
    begun_from,
    distil,
    make_data,
    make_seed,
    make_teacher,
    train,
)
from examples.kitchen.distill_table import Row, table_of_kinds
from examples.kitchen.table import NF4

EIGHT = ("--fps", 4, "--max_frames", 8)
FEW = "103 labelled clips"


def main(argv: Sequence[str] | None = None) -> int:
    """Make what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of examples/kitchen/distill.py")
    parser.add_argument("--large", type=Path, required=True, help="the larger base, of examples/kitchen/grow.py")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of weights and of the order of rows")
    args = parser.parse_args(argv)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    make_data(args.out)
    by_seed = [make_kinds(args.out, seed, args.large) for seed in args.seeds]
    kinds = [[list(line) for line in zip(*kind, strict=True)] for kind in zip(*by_seed, strict=True)]
    text = table_of_kinds(kinds, args.out)
    (args.out / "smaller.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def make_kinds(out: Path, seed: int, large: Path) -> list[list[Row]]:
    """Of each kind its teacher, the student that learns from labels alone, and the distilled ones."""
    return [*make_four_frames(out, seed), make_quarter_pixels(out, seed), make_fewer_layers(out, seed, large)]


def make_four_frames(out: Path, seed: int) -> list[list[Row]]:
    """A quarter of the frames: on four bits or with the order of claims in the loss; and with the other head."""
    teacher, alone, plain, alone_from, plain_from = make_seed(out, seed)
    start, setting = begun_from(teacher.folder), "4 frames, from the teacher's adapter"

    def distilled(name: str, description: str, *more: object) -> Row:
        return student(out / f"distilled-{name}-{seed}", description, out, seed, teacher, *more)

    qlora = distilled("qlora", f"{setting}, over a base of four bits (NF4)", *start, *NF4)
    listwise = distilled("listwise", f"{setting}, the order of claims in the loss", *start, "--listwise_weight", 0.5)
    nli = distilled("nli", "4 frames, NLI head, new adapter", "--head", "nli")
    return [[teacher, alone_from, plain_from, qlora, listwise], [teacher, alone, plain, nli]]


def make_quarter_pixels(out: Path, seed: int) -> list[Row]:
    """The same frames at a quarter of the pixels: 4 visual tokens a pair of frames instead of 16."""
    teacher, alone = out / f"teacher-pixels-{seed}", out / f"few-labels-pixels-{seed}"
    large, small = (*EIGHT, *pixels(112)), (*EIGHT, *pixels(56))
    first = begun_from(out / f"teacher-{seed}")
    make_teacher(teacher, out, seed, *large, *first, "--num_train_epochs", 8)
    start = begun_from(teacher)
    learn(alone, out, seed, *small, *start, *LABELS_FROM)
    setting = "8 frames of 56 x 56"
    row = Row("teacher", "8 frames of 112 x 112, its own 480 clips", teacher)
    distilled_row = student(
        out / f"distilled-pixels-{seed}", f"{setting}, from that teacher's adapter", out, seed, row, *small, *start
    )
    return [row, Row("labels alone", f"{setting}, {FEW}, from that teacher's adapter", alone), distilled_row]


def make_fewer_layers(out: Path, seed: int, large: Path) -> list[Row]:
    """A base of twice the layers teaches the one that is shipped; both see 8 frames."""
    teacher, alone = out / f"teacher-large-{seed}", out / f"few-labels-large-{seed}"
    make_teacher(teacher, out, seed, *EIGHT, "--model_name_or_path", large)
    learn(alone, out, seed, *EIGHT, *LABELS_NEW)
    row = Row("teacher", "8 frames, twice the layers, its own 480 clips", teacher)
    distilled_row = student(
        out / f"distilled-large-{seed}", "8 frames, half the layers, new adapter", out, seed, row, *EIGHT
    )
    return [row, Row("labels alone", f"8 frames, half the layers, {FEW}, new adapter", alone), distilled_row]


def student(folder: Path, setting: str, out: Path, seed: int, teacher: Row, *more: object) -> Row:
    """A distilled student, asked and calibrated."""
    distil(folder, out, teacher.folder, seed, *more)
    ask(folder, out)
    return Row("distilled", setting, folder)


def learn(folder: Path, out: Path, seed: int, *more: object) -> None:
    """A student that learns from labels alone, asked and calibrated."""
    train(folder, "train/sft.py", "configs/kitchen_sft.yaml", out / "labelled", seed, *BEST, *more)
    ask(folder, out)


def pixels(side: int) -> tuple[object, ...]:
    """Frames of so many pixels a side."""
    return "--min_pixels", side * side, "--max_pixels", side * side


if __name__ == "__main__":
    raise SystemExit(main())
