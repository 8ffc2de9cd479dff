"""Every benchmark of speed that a CPU can answer, one after the other: `make bench`.

    python -m benchmarks.bench                      # all of them, and their pages in benchmarks/results
    python -m benchmarks.bench --only training startup

A benchmark is one line of `BENCHES`. Each runs in a process of its own with one thread, and its time is printed; one
that fails does not stop the others. Those that write no page themselves print it: what they are for, their command and
the machine are put around it. Ratios are within one run, whose sides take turns. Afterwards `python -m
benchmarks.choosing` takes the new numbers into docs/choosing.md.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pages import made_on, publish

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Bench:
    """One question.

    Attributes:
        question: what it answers.
        page: of benchmarks/results.
        words: further ones of its command.
        prints: its page is what it prints; others take `--out`.
    """

    question: str
    page: str
    words: tuple[str, ...] = ()
    prints: bool = False


BENCHES = {  # by module of benchmarks/
    "shared_prefix": Bench(
        "K claims together, in scoring and training", "shared_prefix_cpu.md", ("--cell-s", "1", "--limit-s", "1")
    ),
    "claim_blocks": Bench(
        "Scoring: claims behind a kept prefix", "claim_blocks.md", ("--sizes", "kitchen"), prints=True
    ),
    "tower_windows": Bench("Scoring: the tower's windows in one call or many", "tower_windows.md", ("--rounds", "2")),
    "merged_adapter": Bench("Scoring: an adapter merged at load", "merged_adapter.md"),
    "counted_cost": Bench("Scoring: what claims cost on a GPU, counted", "counted_cost.md"),
    "training": Bench("Training: a packed step against a plain chat Trainer", "training_cpu.md"),
    "build_scale": Bench("Data: a build of a million pairs", "build_scale.md", prints=True),
    "reading_json": Bench("Data: large annotation files", "reading_json.md", prints=True),
    "evaluation": Bench("Evaluation: clustered intervals", "evaluation_cpu.md"),
    "server_load": Bench("Serving: 10,000 claims from 64 clients", "server_load_cpu.md", prints=True),
    "startup": Bench("Start-up: imports, help, loading", "startup_cpu.md", ("--rounds", "3")),
}


def run(name: str, out: Path) -> int:
    """Run one benchmark, its page to `out`; its exit status."""
    bench, env = BENCHES[name], os.environ | {"OMP_NUM_THREADS": "1"}
    command = ["-m", f"benchmarks.{name}", *bench.words]
    if not bench.prints:
        return subprocess.run([sys.executable, *command, "--out", str(out)], cwd=ROOT, env=env, check=False).returncode
    began = time.time()
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0:
        source = (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
        made = f"`OMP_NUM_THREADS=1 python {' '.join(command)}`; {made_on(began)}"
        publish([f"# {bench.question}", "", about(source), "", done.stdout.strip(), "", made], out)
    return done.returncode


def about(source: str) -> str:
    """A module's docstring, but for its commands."""
    lines = (ast.get_docstring(ast.parse(source)) or "").splitlines()
    return "\n".join(line for line in lines if not line.startswith("    ")).strip()


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked for; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(BENCHES), default=list(BENCHES))
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the pages")
    args = parser.parse_args(argv)
    failed = []
    for name in args.only:
        began = time.monotonic()
        print(f"\n== {BENCHES[name].question}", flush=True)
        if run(name, args.results.resolve() / BENCHES[name].page) != 0:
            failed.append(name)
        print(f"== {name}: {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
