"""A verifier that sees a quarter of the frames, taught by one that saw them all, where few rows have labels.

    python -m examples.kitchen.distill --out runs/kitchen-distill

Two worlds: the teacher learns from its own 480 clips, all labelled. The student's world has 960 other clips, of which
one in ten is labelled; it learns from those labels alone, or also from what the teacher says of all clips. Every
command is printed before it runs, and what is there already is not made again, so that a killed run goes on where it
stopped. About two and a half hours on two CPU cores for five seeds. Other ways to be small: smaller.py.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from examples.kitchen import commands
from examples.kitchen.commands import python
from examples.kitchen.distill_table import Row, table
from proofreel.core import SPLITS, Pair
from proofreel.data_prep.dataset import MANIFEST, rank, read_split, write_pairs

LABELLED = 10  # one clip in so many
ALL_FRAMES = ("--fps", 8, "--max_frames", 16)
TEACHER = ("--num_train_epochs", 14)
QUARTER = ("--fps", 2, "--min_frames", 4, "--max_frames", 4)
SELECT = ("--save_strategy", "steps", "--save_steps", 120, "--save_total_limit", 1, "--eval_steps", 120)
LABELS_NEW = ("--num_train_epochs", 93)  # as many steps on the labels alone as a distilled student takes
LABELS_FROM = ("--num_train_epochs", 37)  # the same, from the teacher's adapter
BEST = (*SELECT, "--load_best_model_at_end", "true", "--metric_for_best_model", "auc")


def main(argv: Sequence[str] | None = None) -> int:
    """Make what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for all that is made")
    parser.add_argument("--seeds", type=int, nargs="+", default=[*range(5)], help="of weights and of the order of rows")
    args = parser.parse_args(argv)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    make_data(args.out)
    rows = [make_seed(args.out, seed) for seed in args.seeds]
    runs = [list(column) for column in zip(*rows, strict=True)]
    text = table(runs, args.out)
    (args.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def make_data(out: Path) -> None:
    """Two worlds and three data sets: the teacher's, the student's with few labels, and of that the labelled rows."""
    for name, seed, clips in (("teacher", 0, (480, 60, 120, 220)), ("student", 1, (960, 60, 120, 220))):
        world, data = out / f"world-{name}", out / f"{name}-data"
        python("-m", "examples.kitchen.make", "--out", world, "--seed", seed, "--clips", *clips, "--long", 0, 0, 0, 0)
        commands.build(data, "configs/kitchen_build.yaml", f"{{format: facts, path: {world / 'annotations.json'}}}")
    for name, whole in (("scarce", True), ("labelled", False)):
        if not (out / name / MANIFEST).exists():
            rows = [pair for split in SPLITS for pair in read_split(out / "student-data", split)]
            hidden = [row for pair in rows if (row := hide(pair)).label is not None or whole]
            write_pairs(out / f"{name}.parquet", hidden)
            source = f"{{format: pairs, path: {out / name}.parquet}}"
            commands.build(out / name, "configs/kitchen_text_build.yaml", source)


def hide(pair: Pair) -> Pair:
    """A pair without its label, if its clip is not among the labelled ones of the train split."""
    kept = pair.split != "train" or int(rank(0, "labelled", pair.group)[:8], 16) % LABELLED == 0
    return pair if kept else dataclasses.replace(pair, label=None)


def make_seed(out: Path, seed: int) -> list[Row]:
    """Teacher, and students on few labels and distilled, from new adapters and from the teacher's."""
    teacher = out / f"teacher-{seed}"
    make_teacher(teacher, out, seed, *ALL_FRAMES)
    few, taught, few_from, taught_from = (
        out / f"{name}-{seed}" for name in ("few-labels", "distilled", "few-labels-from", "distilled-from")
    )
    alone = ("train/sft.py", "configs/kitchen_sft.yaml", out / "labelled", seed, *QUARTER, *BEST)
    train(few, *alone, *LABELS_NEW)
    distil(taught, out, teacher, seed)
    start = begun_from(teacher)
    train(few_from, *alone, *start, *LABELS_FROM)
    distil(taught_from, out, teacher, seed, *start)
    for folder in (few, taught, few_from, taught_from):
        ask(folder, out)
    labels, both = "103 labelled clips", "the same labels, and the teacher on 960 clips"
    return [
        Row("teacher", "16 frames, its own 480 clips, all labels", teacher),
        Row("labels alone", f"4 frames, {labels}", few),
        Row("distilled", f"4 frames, {both}", taught),
        Row("labels alone", f"4 frames, {labels}, from the teacher's adapter", few_from),
        Row("distilled", f"4 frames, {both}, from the teacher's adapter", taught_from),
    ]


def begun_from(teacher: Path) -> tuple[object, ...]:
    """Options of a run that starts from a teacher's adapter: fewer and smaller steps."""
    return "--adapter_from", teacher / "run" / "draft", "--learning_rate", 2.5e-4, "--num_train_epochs", 4


def make_teacher(folder: Path, out: Path, seed: int, *more: object) -> None:
    """Train a teacher on its own clips, ask and calibrate it, and write what it says of the student's train split."""
    train(folder, "train/sft.py", "configs/kitchen_sft.yaml", out / "teacher-data", seed, *TEACHER, *BEST, *more)
    ask(folder, out)
    if not (folder / "scarce.parquet").exists():
        commands.predict(folder, out / "scarce", "train", to=folder / "margins.parquet")
        calibrated = ("--calibration", folder / "calibrated", "--out", folder / "scarce.parquet")
        python("eval/teach.py", "--predictions", folder / "margins.parquet", *calibrated)


def train(folder: Path, script: str, config: str, data: Path, seed: int, *more: object) -> None:
    """One training run, if its verifier is not there; one that was killed goes on."""
    commands.train(folder, script, config, data, "--seed", seed, *more)


def distil(folder: Path, out: Path, teacher: Path, seed: int, *more: object) -> None:
    """One distilled student of the scarcely labelled data set."""
    file = ("--teacher", teacher / "scarce.parquet")
    train(folder, "train/distill.py", "configs/kitchen_distill.yaml", out / "scarce", seed, *file, *more)


def ask(folder: Path, out: Path) -> None:
    """Score calibration and test of the student's world, and calibrate."""
    commands.calibrate(folder, out / "scarce")
    commands.predict(folder, out / "scarce", "test")


if __name__ == "__main__":
    raise SystemExit(main())
