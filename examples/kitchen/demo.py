"""The main job, end to end, on rendered clips: annotations in, a calibrated verifier out, asked in a new process.

    python -m examples.kitchen.demo --out runs/demo

Each step is a command a user could type; it is printed before it runs. No network, no GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from examples.kitchen.commands import python
from proofreel.eval.reports import against_own_positives
from proofreel.eval.scoring import read_predictions

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    """Run every step; the exit status is that of the first one that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for all outputs; emptied first")
    parser.add_argument(
        "--clips", type=int, nargs=4, default=[480, 60, 120, 220], help="train validation calibration test"
    )
    parser.add_argument("--epochs", type=float, help="training epochs, if not those of configs/kitchen_sft.yaml")
    parser.add_argument(
        "--base", type=Path, default=ROOT / "checkpoints" / "kitchen-base", help="checkpoint to fine-tune"
    )
    args = parser.parse_args()
    out = args.out.resolve()
    if out.exists():
        shutil.rmtree(out)
    os.chdir(ROOT)
    os.environ.setdefault("OMP_NUM_THREADS", str(min(2, os.cpu_count() or 1)))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    started = time.monotonic()
    try:
        verifier = make_verifier(out, args.base.resolve(), args.clips, args.epochs)
        ask(out, verifier)
    except subprocess.CalledProcessError as error:
        print(f"\nthe step above failed with status {error.returncode}", file=sys.stderr)
        return error.returncode
    minutes = (time.monotonic() - started) / 60
    markdown = (out / "report" / "report.md").read_text(encoding="utf-8")
    print("\n" + markdown.partition("## By role")[0].partition("\n\n")[2].strip())
    print(f"\nclaim alone, by kind of negative:\n{by_kind(out / 'claim-only.parquet')}")
    print(f"\nreport     {out / 'report' / 'report.html'}\nverifier   {verifier}\ntook       {minutes:.1f} minutes")
    return 0


def make_verifier(out: Path, base: Path, clips: list[int], epochs: float | None) -> Path:
    """Render, then what `proofreel run` does of any annotations; returns the verifier directory."""
    step("Render clips whose true facts are known")
    python("-m", "examples.kitchen.make", "--out", out / "kitchen", "--clips", *clips, "--long", 0, 0, 0, 0)
    step("From annotations to a published verifier, with three controls")
    source = f"build.options.sources=[{{format: facts, path: {out / 'kitchen' / 'annotations.json'}}}]"
    more = [] if epochs is None else [f"train.options.num_train_epochs={epochs}"]
    given = [f"output={out}", source, f"train.options.model_name_or_path={base}", *more]
    python("-m", "proofreel.cli", "run", "configs/kitchen_run.yaml", *given)
    return out / "verifier"


def by_kind(predictions: Path) -> str:
    """AUC of a control's false claims of each origin against the true claims of the same groups, a line each.

    Over all negatives a claim says as little as the balance of the data set lets it; near misses are what may give
    themselves away.
    """
    lines = []
    for row in against_own_positives(read_predictions(predictions)[0]):
        low, high = row["interval"]["low"], row["interval"]["high"]
        between = "" if math.isnan(low) else f" ({low:.3f} to {high:.3f})"
        lines.append(f"{row['name']:<22} {row['n']:>5}  {row['auc']:.3f}{between}")
    return "\n".join(lines)


def ask(out: Path, verifier: Path) -> None:
    """Load the verifier in a new process and ask it true and false claims about one test clip."""
    step("Load it in a new process and ask")
    annotations = json.loads((out / "kitchen" / "annotations.json").read_text(encoding="utf-8"))
    clip = next(a for a in annotations if a["split"] == "test")
    true, false = clip["conceptual"], clip["negative_conceptual"]
    claims = [f"{role} is {value}." for role in true for value in (true[role], false[role]["text"])]
    print(f"what the clip shows: {clip['caption']}")
    span = ["--video", out / "kitchen" / clip["video"], "--start", clip["start_s"], "--end", clip["end_s"]]
    python("-m", "proofreel.cli", "ask", verifier, *span, *claims)


def step(title: str) -> None:
    """Announce what follows."""
    print(f"\n== {title}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
