"""The demo's verifier over training seeds: what depends on the draw of first weights and of the order of rows.

    python -m examples.kitchen.seeds --out runs/seeds --seeds 0 1 2 3 4

Each seed is trained, calibrated and reported on as in examples/kitchen/demo.py, on the same clips. Every command is
printed before it runs, and what is there already is not made again, so that a killed run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from examples.kitchen import commands
from examples.kitchen.commands import python
from examples.kitchen.over_seeds import Judged, judge, made_with, mean_text, range_text, rows_of, seeds_text

CONFIG = "configs/kitchen_sft.yaml"
CLIPS = (480, 60, 120, 220)
COLUMNS = {
    "auc": "AUC (95 %)",
    "ap": "AP",
    "f1": "F1 (95 %)",
    "balanced_accuracy": "balanced acc.",
    "ece_before": "ECE before",
    "ece_event": "ECE after",
}
WITH_INTERVAL = ("auc", "f1")


def main(argv: Sequence[str] | None = None) -> int:
    """Make what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for all that is made")
    parser.add_argument("--seeds", type=int, nargs="+", default=[*range(5)], help="of weights and of the order of rows")
    parser.add_argument("--clips", type=int, nargs=4, default=CLIPS, help="train validation calibration test")
    parser.add_argument("--config", default=CONFIG, help="of train/sft.py")
    args = parser.parse_args(argv)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    data = args.out / "data"
    clips = ("--clips", *args.clips, "--long", 0, 0, 0, 0)
    python("-m", "examples.kitchen.make", "--out", args.out / "kitchen", *clips)
    source = f"{{format: facts, path: {args.out / 'kitchen' / 'annotations.json'}}}"
    commands.build(data, "configs/kitchen_build.yaml", source)
    folders = [args.out / f"seed-{seed}" for seed in args.seeds]
    for seed, folder in zip(args.seeds, folders, strict=True):
        make_verifier(folder, data, args.config, "--seed", seed)
    text = table(folders)
    (args.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def make_verifier(folder: Path, data: Path, config: str, *more: object) -> None:
    """Train, calibrate and report on the verifier of one seed."""
    commands.train(folder, "train/sft.py", config, data, *more)
    commands.calibrate(folder, data)
    commands.predict(folder, data, "test", controls=["mismatched-evidence"])
    if not (folder / "report" / "report.html").exists():
        inputs = ("--predictions", folder / "test.parquet", "--calibration", folder / "calibrated")
        control = f"another clip's frames={folder / 'test-mismatched-evidence.parquet'}"
        python("eval/report.py", *inputs, "--control", control, "--out", folder / "report")


def table(folders: Sequence[Path], n_draws: int = 10_000) -> str:
    """The headline over seeds, and AUC and F1 by role."""
    decisions = [folder / "calibrated" for folder in folders]
    rows = [rows_of(folder / "test.parquet") for folder in folders]
    misled = [rows_of(folder / "test-mismatched-evidence.parquet") for folder in folders]
    found = judge(rows, n_draws, decisions)
    lines = [f"|  | n | {' | '.join(COLUMNS.values())} |", "| --- | ---: |" + " ---: |" * len(COLUMNS)]
    lines.append(f"| this verifier, mean of {len(folders)} seeds | {len(rows[0])} | {' | '.join(_means(found))} |")
    spread = (range_text(found.of_seeds[name]) for name in COLUMNS)
    lines.append(f"| lowest to highest seed | | {' | '.join(spread)} |")
    control = _means(judge(misled, n_draws, decisions))
    lines.append(f"| another clip's frames, mean | {len(misled[0])} | {' | '.join(control)} |")
    lines += ["", f"AUC by seed: {seeds_text(found.of_seeds['auc'])}", ""]
    lines += ["|  | n | AUC (95 %) | lowest to highest seed | F1 (95 %) |", "| --- | ---: | ---: | ---: | ---: |"]
    for role in sorted({row.role for row in rows[0]}, key=lambda role: ("/" in role, role)):
        of_role = [[row for row in seed if row.role == role] for seed in rows]
        part = judge(of_role, n_draws, decisions)
        cells = [mean_text(part, "auc"), range_text(part.of_seeds["auc"]), mean_text(part, "f1")]
        lines.append(f"| {role} | {len(of_role[0])} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", made_with(found, n_draws)]) + "\n"


def _means(found: Judged) -> list[str]:
    return [mean_text(found, name) if name in WITH_INTERVAL else f"{found.observed[name]:.3f}" for name in COLUMNS]


if __name__ == "__main__":
    raise SystemExit(main())
