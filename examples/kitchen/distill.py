"""A verifier that sees a quarter of the frames, taught by one that saw them all, where few rows have labels.

    python -m examples.kitchen.distill --out runs/kitchen-distill                        # three seeds
    python -m examples.kitchen.distill --out runs/kitchen-distill --seeds 0 --more       # and other ways to be small

Two worlds: the teacher learns from its own 480 clips, all labelled. The student's world has 960 other clips, of which
one in ten is labelled; it learns from those labels alone, or also from what the teacher says of all clips. Every
command is printed before it runs, and what is there already is not made again, so that a killed run goes on where it
stopped. About an hour and a half on two CPU cores for three seeds.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from examples.kitchen.distill_table import Row, table
from examples.kitchen.table import NF4, python
from proofreel.data_prep.dataset import read_split, write_pairs
from proofreel.data_prep.rows import SPLITS, Pair
from proofreel.data_prep.splits import rank

LABELLED = 10  # one clip in so many
ALL_FRAMES = ("--fps", 8, "--max_frames", 16)
TEACHER = ("--num_train_epochs", 14)
EIGHT = ("--fps", 4, "--max_frames", 8)
QUARTER = ("--fps", 2, "--min_frames", 4, "--max_frames", 4)
SELECT = ("--save_strategy", "steps", "--save_steps", 120, "--save_total_limit", 1, "--eval_steps", 120)
BEST = (*SELECT, "--load_best_model_at_end", "true", "--metric_for_best_model", "auc")


def main(argv: Sequence[str] | None = None) -> int:
    """Make what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for all that is made")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of weights and of the order of rows")
    parser.add_argument("--more", action="store_true", help="also students of other kinds, with the first seed")
    parser.add_argument("--large", type=Path, help="with --more: a larger base (examples/kitchen/grow.py) as a teacher")
    args = parser.parse_args(argv)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    make_data(args.out)
    rows = [make_seed(args.out, seed) for seed in args.seeds]
    runs = [list(column) for column in zip(*rows, strict=True)]
    if args.more:
        runs += [[row] for row in make_more(args.out, args.seeds[0], args.large)]
    text = table(runs, args.out)
    (args.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def make_data(out: Path) -> None:
    """Two worlds and three data sets: the teacher's, the student's with few labels, and of that the labelled rows."""
    for name, seed, clips in (("teacher", 0, (480, 60, 120, 220)), ("student", 1, (960, 60, 120, 220))):
        world, data = out / f"world-{name}", out / f"{name}-data"
        python("-m", "examples.kitchen.make", "--out", world, "--seed", seed, "--clips", *clips, "--long", 0, 0, 0, 0)
        if not data.exists():
            source = f"sources=[{{format: facts, path: {world / 'annotations.json'}}}]"
            python("data_prep/build.py", "--config", "configs/kitchen_build.yaml", f"output={data}", source)
    for name, whole in (("scarce", True), ("labelled", False)):
        if not (out / name).exists():
            rows = [pair for split in SPLITS for pair in read_split(out / "student-data", split)]
            hidden = [row for pair in rows if (row := hide(pair)).label is not None or whole]
            write_pairs(out / f"{name}.parquet", hidden)
            source = f"sources=[{{format: pairs, path: {out / name}.parquet}}]"
            python("data_prep/build.py", "--config", "configs/kitchen_text_build.yaml", f"output={out / name}", source)


def hide(pair: Pair) -> Pair:
    """A pair without its label, if its clip is not among the labelled ones of the train split."""
    kept = pair.split != "train" or int(rank(0, "labelled", pair.group)[:8], 16) % LABELLED == 0
    return pair if kept else dataclasses.replace(pair, label=None)


def make_seed(out: Path, seed: int) -> list[Row]:
    """Teacher, and students on few labels and distilled, from new adapters and from the teacher's."""
    where = f"seed {seed}"
    teacher = out / f"teacher-{seed}"
    make_teacher(teacher, out, seed, *ALL_FRAMES)
    few, taught, few_from, taught_from = (
        out / f"{name}-{seed}" for name in ("few-labels", "distilled", "few-labels-from", "distilled-from")
    )
    alone = ("train/sft.py", "configs/kitchen_sft.yaml", out / "labelled", seed, *QUARTER, *BEST)
    train(few, *alone, "--num_train_epochs", 65)  # as many steps as the distilled one takes
    distil(taught, out, teacher, seed)
    start = begun_from(teacher)
    train(few_from, *alone, *start, "--num_train_epochs", 37)
    distil(taught_from, out, teacher, seed, *start)
    for folder in (few, taught, few_from, taught_from):
        ask(folder, out)
    labels, both = "103 labelled clips", "the same labels, and the teacher on 960 clips"
    return [
        Row("teacher", "16 frames, its own 480 clips, all labels", teacher, where),
        Row("labels alone", f"4 frames, {labels}", few, where),
        Row("distilled", f"4 frames, {both}", taught, where),
        Row("labels alone", f"4 frames, {labels}, from the teacher's adapter", few_from, where),
        Row("distilled", f"4 frames, {both}, from the teacher's adapter", taught_from, where),
    ]


def make_more(out: Path, seed: int, large: Path | None) -> list[Row]:
    """Students of other kinds: another base, head or loss; a quarter of the pixels; and a larger base as a teacher."""
    teacher, where = out / f"teacher-{seed}", f"seed {seed}"
    start = begun_from(teacher)
    rows = []
    for name, told, more in (
        ("qlora", "4 frames; QLoRA (NF4), from the teacher's adapter", (*start, *NF4)),
        ("nli", "4 frames; NLI head, new adapter", ("--head", "nli")),
        (
            "listwise",
            "4 frames; keeps the order of claims, from the teacher's adapter",
            (*start, "--listwise_weight", 0.5),
        ),
    ):
        rows.append(make_student(out / f"distilled-{name}-{seed}", told, out, teacher, seed, *more))
    sharp, small = out / f"teacher-pixels-{seed}", out / f"distilled-pixels-{seed}"
    make_teacher(sharp, out, seed, *EIGHT, *pixels(112), *start, "--num_train_epochs", 8)
    rows.append(Row("teacher", "8 frames of 112 x 112", sharp, where))
    told = "8 frames of 56 x 56, from that teacher's adapter"
    rows.append(make_student(small, told, out, sharp, seed, *EIGHT, *pixels(56), *begun_from(sharp)))
    if large is not None:
        deep, tiny = out / f"teacher-large-{seed}", out / f"distilled-large-{seed}"
        make_teacher(deep, out, seed, *EIGHT, "--model_name_or_path", large)
        rows.append(Row("teacher", "8 frames; twice the layers", deep, where))
        rows.append(make_student(tiny, "8 frames, under the larger one; new adapter", out, deep, seed, *EIGHT))
    return rows


def begun_from(teacher: Path) -> tuple[object, ...]:
    """Options of a run that starts from a teacher's adapter: fewer and smaller steps."""
    return "--adapter_from", teacher / "run" / "draft", "--learning_rate", 1e-3, "--num_train_epochs", 4


def make_student(folder: Path, told: str, out: Path, teacher: Path, seed: int, *more: object) -> Row:
    """A distilled student, asked and calibrated."""
    distil(folder, out, teacher, seed, *more)
    ask(folder, out)
    return Row("distilled", told, folder, f"seed {seed}")


def pixels(side: int) -> tuple[object, ...]:
    """Frames of so many pixels a side."""
    return "--min_pixels", side * side, "--max_pixels", side * side


def make_teacher(folder: Path, out: Path, seed: int, *more: object) -> None:
    """Train a teacher on its own clips, ask and calibrate it, and write what it says of the student's train split."""
    train(folder, "train/sft.py", "configs/kitchen_sft.yaml", out / "teacher-data", seed, *TEACHER, *BEST, *more)
    ask(folder, out)
    if not (folder / "scarce.parquet").exists():
        predict(folder, out, "train", folder / "margins.parquet")
        calibrated = ("--calibration", folder / "calibrated", "--out", folder / "scarce.parquet")
        python("eval/teach.py", "--predictions", folder / "margins.parquet", *calibrated)


def train(folder: Path, script: str, config: str, data: Path, seed: int, *more: object) -> None:
    """One training run, if its draft is not there."""
    if not (folder / "run" / "draft").exists():
        python(script, "--config", config, "--dataset_dir", data, "--output_dir", folder / "run", "--seed", seed, *more)


def distil(folder: Path, out: Path, teacher: Path, seed: int, *more: object) -> None:
    """One distilled student of the scarcely labelled data set."""
    file = ("--teacher", teacher / "scarce.parquet")
    train(folder, "train/distill.py", "configs/kitchen_distill.yaml", out / "scarce", seed, *file, *more)


def ask(folder: Path, out: Path) -> None:
    """Score calibration and test of the student's world, and calibrate."""
    for split in ("calibration", "test"):
        predict(folder, out, split, folder / f"{split}.parquet")
    if not (folder / "calibrated").exists():
        python("eval/calibrate.py", "--predictions", folder / "calibration.parquet", "--out", folder / "calibrated")


def predict(folder: Path, out: Path, split: str, file: Path) -> None:
    """Score one split of the student's world, if the file is not there."""
    if not file.exists():
        verifier = ("--verifier", folder / "run" / "draft", "--data", out / "scarce", "--device", "cpu")
        python("eval/predict.py", *verifier, "--split", split, "--out", file)


if __name__ == "__main__":
    raise SystemExit(main())
