"""How much faster, and in how much memory, are K claims about one video judged together than one by one?

    OMP_NUM_THREADS=1 python -m benchmarks.shared_prefix --out benchmarks/results/shared_prefix_cpu.md

Ways to the same margins, in scoring and in a training step (forward and backward; LoRA of rank 8 on the language model,
checkpointed, frozen tower): together, the project's engine, `PrefixScorer` or the trainer's margins and loss; one each,
a plain forward per claim; padded, one batch of K full sequences; and in scoring sentence-transformers' CrossEncoder
over the same weights. The first three are checked to agree in every cell. Sides take turns, and their order alternates;
medians are printed, for "measured x" that of the rounds' own ratios, one each over together. A baseline that would run
longer than `--limit-s` is measured with fewer claims and predicted in proportion, marked ~; a padded batch of which
only one claim could be measured is taken to be as fast as one each.

Seconds are CPU seconds of one thread, as other programs may run beside it; "wall s" is the clock's. Operations are
counted by `models/backbones/shapes.py`: "counted x" is one each over together, what counting allows; "of counted" is
the part of it that was reached. MiB is the growth of a fresh child's highest resident size; one each holds one claim at
a time. Small shapes and random weights; on a GPU, `python -m benchmarks.gpu`.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.pages import command, made_on, publish
from benchmarks.prefix_ways import (
    LORA_RANK,
    Way,
    check_equal,
    make_model,
    question,
    rival_way,
    scoring_ways,
    training_ways,
)
from proofreel.models.backbones import forward_operations, training_operations
from proofreel.models.inputs import EncodedEvidence


def seconds_of(way: Way, k: int, device: str) -> float:
    """Time of one run: CPU seconds of a CPU, wall seconds of a GPU that has then done its work."""
    if device == "cpu":
        began = time.process_time()
        way(k)
        return time.process_time() - began
    torch.cuda.synchronize()
    began = time.perf_counter()
    way(k)
    torch.cuda.synchronize()
    return time.perf_counter() - began


def times(ways: dict[str, Way], k: int, args: argparse.Namespace) -> tuple[dict[str, tuple[float, int]], float]:
    """Median seconds of each way with the claims it was measured with, and the median of one each over shared.

    Sides take turns, and the ratio is taken within each round, so that a load that comes and goes counts for both.
    """
    one_s = min(seconds_of(ways["each"], 1, args.device) for _ in range(2))
    n = max(n for n in (1, 2, 4, 8, k) if n <= k and (n == 1 or n * one_s <= args.limit_s))
    # A padded batch of one is the plain forward, so it needs no turn of its own.
    batched = [name for name in ("padded", "rival") if name in ways and (n > 1 or name == "rival")]
    n_claims = {"shared": k, "each": n} | {name: _fitting(ways[name], n) for name in batched}
    seconds_by_way: dict[str, list[float]] = {name: [] for name in n_claims}

    def turns() -> float:
        for name, some in [*n_claims.items()][:: (-1) ** len(seconds_by_way["each"])]:  # no side always comes first
            seconds_by_way[name].append(seconds_of(ways[name], some, args.device))
        return sum(seconds[-1] for seconds in seconds_by_way.values())

    round_s = turns()
    if round_s < args.cell_s:  # long runs need no warming up
        seconds_by_way = {name: [] for name in n_claims}
    least = 5 if k == 1 else 3
    while len(seconds_by_way["each"]) < min(max(args.cell_s / round_s, least), 25):
        turns()
    timed = {name: (statistics.median(seconds_by_way[name]) * k / some, some) for name, some in n_claims.items()}
    ratio = (
        statistics.median(e / s for e, s in zip(seconds_by_way["each"], seconds_by_way["shared"], strict=True)) * k / n
    )
    return {"padded": timed["each"]} | timed, ratio


def _fitting(way: Way, k: int) -> int:
    """As many claims as fit into a GPU's memory at once."""
    while k > 1 and torch.cuda.is_available():
        try:
            way(k)
            return k
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            k //= 2
    return k


def peaks(ways: dict[str, Way], k: int) -> dict[str, tuple[float, int]]:
    """MiB by which memory grows, and the claims it was measured with. One each needs what one claim needs."""
    peak_by_way = {"shared": (_grown_in_child(ways["shared"], k), k), "each": (_grown_in_child(ways["each"], 1), k)}
    if k > 1:
        peak_by_way["padded"] = _grown_in_child(ways["padded"], 2) * k / 2, 2
    return peak_by_way


def _grown_in_child(way: Way, k: int) -> float:
    """A forked child starts with its parent's pages; what its highest resident size adds to them is the run's."""

    def run(sender: Any) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        way(k)
        sender.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)

    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=run, args=(sender,))
    child.start()
    grown = receiver.recv()
    child.join()
    return grown


def row(cell_of: tuple[str, int, int], measured: float, counted: float, timed: Any, grown: Any, wall_s: float) -> str:
    """One line of the table."""
    k, shared_s = cell_of[2], timed["shared"][0]

    def cell(by_way: dict[str, tuple[float, int]], name: str, digits: int) -> str:
        if name not in by_way or (name == "padded" and k == 1):
            return ""
        value, n = by_way[name]
        return f"{'~' if n < k else ''}{value:.{digits}f}"

    mark = "~" if timed["each"][1] < k else ""
    cells = [*cell_of, f"{k / shared_s:.1f}", *(cell(timed, name, 3) for name in ("shared", "each", "padded", "rival"))]
    cells += [f"{wall_s:.3f}", f"{counted:.2f}", f"{mark}{measured:.2f}", f"{mark}{measured / counted:.0%}"]
    cells += [cell(grown, name, 0) for name in ("shared", "each", "padded")]
    return "| " + " | ".join(str(c) for c in cells) + " |"


HEADER = """| task | visual tokens | K | claims/s | together s | each s | padded s | CrossEncoder s | wall s \
| counted x | measured x | of counted | together MiB | each MiB | padded MiB |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"""


def counted(config: Any, task: str, evidence: EncodedEvidence, claims: list[torch.Tensor]) -> float:
    """Operations of one forward (or step) per claim, over those of all claims together."""
    lengths, grids = [len(c) for c in claims], evidence.vision["video_grid_thw"].tolist()

    def cost(some: list[int]) -> int:
        if task == "scoring":
            return forward_operations(config, grids, len(evidence.ids_P), some).total
        return training_operations(config, grids, len(evidence.ids_P), some, LORA_RANK).total

    return sum(cost([n]) for n in lengths) / cost(lengths)


def measure(task: str, args: argparse.Namespace, folder: Path) -> list[str]:
    """Lines of a task's cells; all memory first, as children must be forked before threads exist."""
    model = make_model(task, folder)
    make = scoring_ways if task == "scoring" else training_ways
    cells = {(n, k): question(model.config, n, k) for n in args.tokens for k in args.claims}
    ways = {cell: make(model, *cells[cell]) for cell in cells}
    ways[min(cells)]["each"](1)  # loads what is loaded lazily
    grown = {(n, k): peaks(ways[n, k], k) for n, k in cells}
    lines = []
    for (n, k), encoded in cells.items():
        if k > 1:
            check_equal(ways[n, k], torch.float32)
        if task == "scoring" and args.rival:
            ways[n, k]["rival"] = rival_way(folder, "cpu", torch.float32, *encoded)
        timed, measured = times(ways[n, k], k, args)
        began = time.perf_counter()
        ways[n, k]["shared"](k)
        wall_s, bound = time.perf_counter() - began, counted(model.config, task, *encoded)
        lines.append(row((task, n, k), measured, bound, timed, grown[n, k], wall_s))
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="page to write")
    parser.add_argument("--tasks", nargs="+", choices=("scoring", "training"), default=["scoring", "training"])
    parser.add_argument("--tokens", nargs="+", type=int, default=[256, 1024, 4096], help="visual tokens")
    parser.add_argument("--claims", nargs="+", type=int, default=[1, 4, 16, 64], help="claims of one evidence")
    parser.add_argument("--limit-s", type=float, default=3.0, help="longest run of a baseline that is not predicted")
    parser.add_argument("--cell-s", type=float, default=8.0, help="seconds of measuring per cell; at least 3 rounds")
    parser.add_argument("--no-rival", dest="rival", action="store_false", help="leave CrossEncoder out")
    args = parser.parse_args(argv)
    args.device, began = "cpu", time.time()
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(sys.stderr), tempfile.TemporaryDirectory() as folder:  # for what libraries say
        lines = [line for task in args.tasks for line in measure(task, args, Path(folder))]
    made = made_on(began, ("torch", "transformers", "peft", "sentence-transformers"))
    text = (__doc__ or "").strip().splitlines()[4:]
    head = ["# K claims together, one each, and as a padded batch", "", *text, ""]
    publish([*head, *HEADER.splitlines(), *lines, "", f"`{command()}`; {made}"], args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
