"""How much memory and time do the claims themselves take, when there are many?

    python -m benchmarks.score_scale --other CHECKOUT --out benchmarks/results/score_scale.md

`proofreel score` on JSON lines of claims about spans of videos, fifty about each span, in no order, by a verifier that
says the same of all: what is measured is reading, sharing out and writing. `CHECKOUT` is a working tree of an earlier
commit (`git worktree add`); both sides take turns, and their files are compared. One process; or two, which
share the work as under `accelerate launch`. Memory is the highest of a process; of it, what the imports take is the
first row.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.pages import command, made_on, publish
from benchmarks.trees import ROOT, run_in

CLAIMS_PER_SPAN = 50


class Constant:
    """A verifier that says the same of all, at once."""

    fingerprint, decision, windowing, notes = "constant", None, None, ()

    def score_pairs(self, pairs: Sequence[Any], progress: Any = None) -> list[Any]:
        """A margin of one for each pair."""
        from proofreel.models.decision import Verdict

        progress(len(pairs))
        return [Verdict(0.73, 1.0, None)] * len(pairs)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure both sides and publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, help="working tree of an earlier commit")
    parser.add_argument("--claims", type=int, nargs="+", default=[100, 100_000, 400_000, 1_600_000])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=Path, help="page to write")
    parser.add_argument("--side", nargs=2, type=Path, metavar=("CLAIMS", "OUT"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.side:
        print(json.dumps(_scored(*args.side)))
        return 0
    began, sides = time.time(), {"now": ROOT} if args.other is None else {"before": args.other, "now": ROOT}
    heads = [f"{side}: {what}" for side in sides for what in ("GB, first", "GB, others", "s")]
    lines = [f"| claims | processes | {' | '.join(heads)} |", f"| ---: | ---: |{' ---: |' * len(heads)}"]
    for n in args.claims:
        for n_processes in args.processes:
            lines.append(f"| {n:,} | {n_processes} | {' | '.join(_row(n, n_processes, sides))} |")
            print(lines[-1], flush=True)
    about = (__doc__ or "").partition(".md\n\n")[2].strip()
    made = f"`{command().replace(str(args.other), 'CHECKOUT')}`; {made_on(began, ('pyarrow',))}"
    publish(["# Many claims", "", about, "", *lines, "", made], args.out)
    return 0


def _row(n: int, n_processes: int, sides: dict[str, Path]) -> list[str]:
    """For each side the memory of the first process and the most of another one, and the time of all."""
    cells, files = [], []
    with tempfile.TemporaryDirectory() as folder:
        claims = Path(folder) / "claims.jsonl"
        _write(claims, n)
        for side, tree in sides.items():
            files.append(Path(folder) / f"{side}.parquet")
            began = time.perf_counter()
            with ThreadPoolExecutor(n_processes) as pool:
                runs = [pool.submit(_run, tree, claims, files[-1], rank, n_processes) for rank in range(n_processes)]
                peaks = [run.result() for run in runs]
            others = f"{max(peaks[1:]):.2f}" if peaks[1:] else ""
            cells += [f"{peaks[0]:.2f}", others, f"{time.perf_counter() - began:.1f}"]
        if len(files) > 1 and not _same(*files):
            raise SystemExit("the two sides wrote different files")
    return cells


def _run(tree: Path, claims: Path, out: Path, rank: int, world: int) -> float:
    launched = {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank)} if world > 1 else {}
    return run_in(tree.resolve(), "score_scale", "--side", str(claims), str(out), **launched)


def _scored(claims: Path, out: Path) -> float:
    """Score in this process; the most memory that it had, in GB."""
    from proofreel import score

    score._opened = lambda *_: Constant()  # type: ignore[assignment]
    words = ["none", "--claims", str(claims), "--out", str(out), "--quiet", "--device", "cpu"]
    if score.main(words) != 0:
        raise SystemExit("scoring failed")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def _write(path: Path, n: int) -> None:
    spans = [i // CLAIMS_PER_SPAN for i in range(n)]
    random.Random(0).shuffle(spans)
    with path.open("w") as file:
        for i, span in enumerate(spans):
            row = {"id": f"claim-{i}", "claim": f"The person in the blue apron puts object number {i} on the table."}
            row |= {"video": f"kitchen/part-{span % 97:03}/{span:09}.mp4", "start_s": span % 60, "end_s": span % 60 + 9}
            file.write(json.dumps(row | {"system": f"model-{i % 7}", "rank": i % 5}) + "\n")


def _same(one: Path, other: Path) -> bool:
    """Whether two files hold equal rows, a few thousand at a time."""
    batches = (pq.ParquetFile(path).iter_batches(4096) for path in (one, other))
    tables = [pq.ParquetFile(path).metadata.num_rows for path in (one, other)]
    return tables[0] == tables[1] and all(a.to_pylist() == b.to_pylist() for a, b in zip(*batches, strict=True))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
