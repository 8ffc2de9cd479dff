"""Zero-shot and fine-tuned, next token and NLI head, LoRA and QLoRA, video and reference text, in one table.

    python -m examples.kitchen.table --data runs/demo/data --out runs/kitchen-table

The rows are those of MiRAGE's table 10 (arXiv 2510.24870, appendix H), each the mean over the seeds; below the table
what differs in one thing is compared. Every command is printed before it runs and listed beside its row; what is there
already is not made again, so that a killed run goes on where it stopped. About half an hour for each seed on two CPU
cores.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from examples.kitchen import commands
from examples.kitchen.commands import python
from examples.kitchen.over_seeds import (
    Judged,
    compare,
    error_text,
    judge,
    judge_folders,
    made_with,
    mean_text,
    rows_of,
    seeds_text,
)

NF4 = ("--load_in_4bit", "true", "--bnb_4bit_quant_type", "nf4", "--use_bnb_nested_quant", "true")


@dataclass(frozen=True)
class Run:
    """One training run of the table."""

    name: str
    evidence: str
    verdict: str
    tuning: str
    script: str
    config: str
    more: tuple[str, ...] = ()


RUNS = tuple(
    Run(f"{evidence}-{head}-{tuning}", evidence, verdict, tuning, script, config, NF4 if tuning == "QLoRA" else ())
    for evidence, configs in (
        ("video", ("configs/kitchen_sft.yaml", "configs/kitchen_nli.yaml")),
        ("text", ("configs/kitchen_text.yaml",) * 2),
    )
    for (head, verdict, script), config in zip(
        (("nt", "next token", "train/sft.py"), ("nli", "NLI head", "train/nli.py")), configs, strict=True
    )
    for tuning in ("LoRA", "QLoRA")
)


def main(argv: Sequence[str] | None = None) -> int:
    """Make what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, help="data set of the kitchen's clips (the demo builds one)"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for runs and the table")
    parser.add_argument("--seeds", type=int, nargs="+", default=[*range(5)], help="of weights and of the order of rows")
    parser.add_argument("--only", nargs="+", default=[r.name for r in RUNS], help="some of the runs, by name")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    runs = [run for run in RUNS if run.name in args.only]
    words = {}
    for seed in args.seeds:  # all rows of one seed first: a table that was cut short compares what it has
        for run in runs:
            words[run.name] = make(run, args.data, args.out, seed)
    text = table(runs, args.out, args.seeds, words)
    (args.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def make(run: Run, video: Path, out: Path, seed: int) -> str:
    """Train, predict and calibrate what is not there yet; returns the training command."""
    data, base = video, ()
    if run.evidence == "text":
        data, base = out / "reference" / "data", ("--model_name_or_path", out / "reference" / "base")
        if not (out / "reference" / "pairs.parquet").exists():
            python("-m", "examples.kitchen.reference", "--data", video, "--out", out / "reference")
        source = f"{{format: pairs, path: {out / 'reference' / 'pairs.parquet'}}}"
        commands.build(data, "configs/kitchen_text_build.yaml", source)
    folder, more = out / f"{run.name}-{seed}", (*base, "--seed", seed, *run.more)
    commands.train(folder, run.script, run.config, data, *more)
    commands.calibrate(folder, data)
    commands.predict(folder, data, "test", controls=["zero-shot"])
    train = ("python", run.script, "--config", run.config, "--dataset_dir", data, "--output_dir", folder / "run", *more)
    return shlex.join(str(word) for word in train)


def table(
    runs: Sequence[Run], out: Path, seeds: Sequence[int], commands_of: dict[str, str], n_draws: int = 10_000
) -> str:
    """The rows, and the differences between those that differ in one thing."""
    lines = [
        "| evidence | verdict | tuned | F1 supported | F1 macro | AUC (95 %) | by seed | ECE (by seed) | command |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    judged: dict[str, Judged] = {}
    for run in runs:
        folders = [out / f"{run.name}-{seed}" for seed in seeds]
        if run.tuning == "LoRA":  # the base is the same for all seeds
            base = judge([rows_of(folders[0] / "test-zero-shot.parquet")], n_draws)
            lines.append(row(run, "zero-shot", base, "the same run's control"))
        judged[run.name] = judge_folders(folders, n_draws)
        lines.append(row(run, run.tuning, judged[run.name], f"`{commands_of[run.name]}`"))
    lines += ["", *differences(runs, judged), ""]
    return "\n".join([*lines, made_with(judged[runs[0].name], n_draws)]) + "\n"


def row(run: Run, tuning: str, judged: Judged, command: str) -> str:
    """One line: fine-tuned rows by their own calibration and threshold, zero-shot rows by sigmoid and 0.5."""
    f1s = [f"{judged.observed[name]:.3f}" for name in ("f1", "f1_macro")]
    auc, ece = mean_text(judged, "auc"), error_text(judged, "ece_event")
    cells = [run.evidence, run.verdict, tuning, *f1s, auc, seeds_text(judged.of_seeds["auc"]), ece, command]
    return "| " + " | ".join(cells) + " |"


def differences(runs: Sequence[Run], judged: dict[str, Judged]) -> list[str]:
    """AUC of each run minus that of every other that differs from it in one of evidence, verdict and tuning."""
    lines = []
    for number, first in enumerate(runs):
        for second in runs[number + 1 :]:
            pairs = zip(*((r.evidence, r.verdict, r.tuning) for r in (first, second)), strict=True)
            differing = [(one, other) for one, other in pairs if one != other]
            if len(differing) == 1:
                one, other = differing[0]
                common = [w for w in (first.evidence, first.verdict, first.tuning) if w != one]
                difference = compare(judged[first.name], judged[second.name])
                lines.append(f"- AUC, {one} minus {other} ({', '.join(common)}): {difference}")
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
