"""Zero-shot and fine-tuned, next token and NLI head, LoRA and QLoRA, video and reference text, in one table.

    python -m examples.kitchen.table --data runs/demo/data --out runs/kitchen-table

The rows are those of MiRAGE's table 10 (arXiv 2510.24870, appendix H). Every command is printed before it runs and told
beside its row; what is there already is not made again, so that a killed run goes on where it stopped. About half an
hour on two CPU cores.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proofreel.data_prep.dataset import MANIFEST
from proofreel.eval.calibration import FITTED_ROWS_FILE
from proofreel.eval.metrics import confusion, ece_event, f1, f1_macro, roc_auc
from proofreel.eval.scoring import groups_of, labels_of, margins_of, read_predictions
from proofreel.eval.uncertainty import Interval, headline_intervals
from proofreel.models.decision import read_decision, sigmoid

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
    parser.add_argument("--only", nargs="+", default=[r.name for r in RUNS], help="some of the runs, by name")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    lines = [
        "| evidence | verdict | tuned | F1 supported | F1 macro | AUC (95 %) | ECE (95 %) | command |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for run in (r for r in RUNS if r.name in args.only):
        command = make(run, args.data, args.out)
        folder = args.out / run.name
        if run.tuning == "LoRA":
            lines.append(row(run, "zero-shot", folder / "test-zero-shot.parquet", None, "the same run's control"))
        lines.append(row(run, run.tuning, folder / "test.parquet", folder / "calibrated", f"`{command}`"))
    text = "\n".join(lines) + "\n"
    (args.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def make(run: Run, video: Path, out: Path) -> str:
    """Train, predict and calibrate what is not there yet; returns the training command."""
    data, base = video, []
    if run.evidence == "text":
        data, base = out / "reference" / "data", ["--model_name_or_path", out / "reference" / "base"]
        if not (data / MANIFEST).exists():
            if not (out / "reference").exists():
                python("-m", "examples.kitchen.reference", "--data", video, "--out", out / "reference")
            source = f"sources=[{{format: pairs, path: {out / 'reference' / 'pairs.parquet'}}}]"
            python("data_prep/build.py", "--config", "configs/kitchen_text_build.yaml", f"output={data}", source)
    folder = out / run.name
    train = [run.script, "--config", run.config, *base, "--dataset_dir", data, "--output_dir", folder / "run"]
    train += run.more
    if not (folder / "run" / "draft").exists():
        python(*train, *(["--resume_from_checkpoint", "true"] if (folder / "run").exists() else []))
    common = ["--verifier", folder / "run" / "draft", "--data", data, "--device", "cpu"]
    if not (folder / "calibrated" / FITTED_ROWS_FILE).exists():  # what a calibration writes last
        calibration = folder / "calibration.parquet"
        python("eval/predict.py", *common, "--split", "calibration", "--out", calibration)
        python("eval/calibrate.py", "--predictions", calibration, "--out", folder / "calibrated")
    if not (folder / "test-zero-shot.parquet").exists():
        python(
            "eval/predict.py", *common, "--split", "test", "--out", folder / "test.parquet", "--controls", "zero-shot"
        )
    return shlex.join(str(word) for word in ("python", *train))


def row(run: Run, tuning: str, predictions: Path, calibrated: Path | None, command: str) -> str:
    """One line: fine-tuned rows by their own calibration and threshold, zero-shot rows by sigmoid and 0.5."""
    rows, _ = read_predictions(predictions)
    used = [p for p in rows if p.error is None and p.label is not None]
    margins, labels, groups = margins_of(used), labels_of(used), groups_of(used)
    p, threshold = sigmoid(margins), 0.5
    if calibrated is not None:
        decision = read_decision(calibrated)
        p, threshold = decision.calibration.predict(margins), decision.point().threshold
    counts = confusion(p >= threshold, labels)
    found = headline_intervals(margins, p, labels, groups, threshold)
    auc = shown(float(roc_auc(margins, labels)), found["auc"])
    ece = shown(ece_event(p, labels), found["ece_event"])
    failed = len(rows) - len(used)
    cells = [run.evidence, run.verdict, tuning, f"{f1(counts):.3f}", f"{f1_macro(counts):.3f}", auc, ece, command]
    return "| " + " | ".join(cells) + " |" + (f" ({failed} failed)" if failed else "")


def shown(value: float, interval: Interval) -> str:
    """A number with its interval."""
    return f"{value:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def python(*words: object) -> None:
    """Print a command as a user would type it, and run it with this interpreter."""
    arguments = [str(word) for word in words]
    print("$ python", shlex.join(arguments), flush=True)
    subprocess.run([sys.executable, *arguments], check=True)


if __name__ == "__main__":
    raise SystemExit(main())
