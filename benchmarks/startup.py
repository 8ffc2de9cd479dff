"""How long does one wait for the first answer: imports, help, a verifier loaded, one claim judged?

    python -m benchmarks.startup --out benchmarks/results/startup_cpu.md

Each line is a process of its own. Lines take turns, round by round; medians of CPU seconds (of all threads) and of wall
seconds, and the highest memory. A bare Python stands first, and `import torch` and transformers, which loading a
verifier cannot do without, so that what is ours can be told from what is not. Files are in the system's cache after the
first round, which is not counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.pages import command, made_on, publish

ROOT = Path(__file__).resolve().parents[1]
LOAD = "from proofreel import Verifier; v = Verifier.from_pretrained('checkpoints/kitchen-verifier', device='cpu')"
ASK = (
    "from proofreel import VideoSegment; v.score(['Tool is knife.'], VideoSegment('examples/kitchen/sample.mp4', 0, 2))"
)
LIBRARIES = "import torch, transformers, peft; from transformers import Qwen2_5_VLForConditionalGeneration"
LINES = {
    "`python -c pass`": ["-c", "pass"],
    "`import proofreel`": ["-c", "import proofreel"],
    "`proofreel --help`": ["-m", "proofreel.cli", "--help"],
    "`proofreel score --help`": ["-m", "proofreel.cli", "score", "--help"],
    "`train/sft.py --help`": ["train/sft.py", "--help"],
    "`import torch`": ["-c", "import torch"],
    "torch, transformers' Qwen2.5-VL and peft imported": ["-c", LIBRARIES],
    "the kitchen's verifier loaded": ["-c", LOAD],
    "and one claim judged": ["-c", f"{LOAD}; {ASK}"],
}


def run(words: Sequence[str]) -> tuple[float, float, float]:
    """CPU seconds, wall seconds and highest resident MiB of one process."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: failed with status {process.returncode}; run it by hand")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - began, usage.ru_maxrss / 1024


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="page to write")
    parser.add_argument("--rounds", type=int, default=5, help="counted ones")
    args = parser.parse_args(argv)
    began = time.time()
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in LINES}
    for _ in range(args.rounds + 1):
        for name, words in LINES.items():
            found[name].append(run(words))
    rows = []
    for name, runs in found.items():
        cpu_s, wall_s, mib = (statistics.median(column) for column in zip(*runs[1:], strict=True))
        rows.append(f"| {name} | {cpu_s:.2f} | {wall_s:.2f} | {mib:,.0f} |")
    text = (__doc__ or "").strip().splitlines()[4:]
    head = ["# The wait for the first answer", "", *text, "", "| what | CPU s | wall s | MiB |"]
    made = f"`{command()}`; {made_on(began, ('torch', 'transformers'))}"
    publish([*head, "| --- | ---: | ---: | ---: |", *rows, "", made], args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
