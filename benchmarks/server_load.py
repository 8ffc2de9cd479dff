"""Under load, does the server lose a claim, get one wrong, or grow? And how fast is it?

    OMP_NUM_THREADS=1 python -m benchmarks.server_load

`proofreel serve` by one process, by two, and by two replicas of Ray Serve, one after the other on the same cores, asked
over loopback by as many clients as told, each with its own connection and one request at a time. Claims are drawn with
a seed from the facts of freshly rendered kitchen clips, 1 to 16 in a request; a client that is told 429 comes back. Of
two processes one is killed (SIGKILL) when half of the requests are answered; a client whose connection was lost asks
again (`lost_retries`). Every verdict is compared with `Verifier.score_pairs` of the same claims in this process. Memory
is that of the processes that answer.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from proofreel.client import AsyncClient
from proofreel.core import Pair, VideoSegment
from proofreel.models.verifier import Verifier

ROOT = Path(__file__).resolve().parent.parent
VERIFIER = ROOT / "checkpoints" / "kitchen-verifier"
SHARES = (0.05, 0.25, 0.5, 0.75, 1.0)


@dataclass
class Load:
    """What is asked, what came back, and what was seen on the way."""

    requests: list[tuple[VideoSegment, list[str]]]
    answers: dict[int, list[Any]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    memory_mib: dict[int, float] = field(default_factory=dict)
    n_lost: int = 0
    n_killed: int = 0
    took_s: float = 0.0

    @property
    def n_claims(self) -> int:
        """Of all requests."""
        return sum(len(claims) for _, claims in self.requests)


def make_clips(folder: Path, n: int) -> list[tuple[VideoSegment, list[str]]]:
    """Rendered clips below `folder/world`, each with the claims its annotation holds, true and false."""
    words = ["--out", str(folder / "world"), "--seed", "9", "--clips", "0", "0", "0", str(n), "--long", *"0000"]
    subprocess.run([sys.executable, "-m", "examples.kitchen.make", *words], cwd=ROOT, check=True, capture_output=True)
    clips = []
    for row in json.loads((folder / "world" / "annotations.json").read_text(encoding="utf-8")):
        facts = [*row["conceptual"].items(), *row["negative_conceptual"].items()]
        claims = [f"{role} is {text(value)}." for role, value in facts]
        claims += [f"{text(value).capitalize()}." for value in row["contextual"] + row["negative_contextual"]]
        clips.append((VideoSegment(row["video"], row["start_s"], row["end_s"]), claims))
    return clips


def text(value: str | dict[str, str]) -> str:
    """The words of a fact, which stand alone or with what is known of them."""
    return value if isinstance(value, str) else value["text"]


def draw(clips: list[tuple[VideoSegment, list[str]]], n_claims: int) -> Load:
    """Requests that hold exactly this many claims."""
    rng, requests, left = random.Random(0), [], n_claims
    while left:
        segment, claims = rng.choice(clips)
        some_claims = rng.choices(claims, k=min(left, rng.randint(1, 16)))
        requests.append((segment, some_claims))
        left -= len(some_claims)
    return Load(requests)


WAYS = {
    "one process": ["--port", "0"],
    "--workers 2": ["--port", "0", "--workers", "2"],
    "Ray Serve, 2 replicas": ["--engine", "ray", "--replicas", "2"],
}


@dataclass
class Served:
    """A server: its address, and the process that was started."""

    way: str
    url: str
    pid: int

    def pids(self) -> list[int]:
        """Of the processes that answer."""
        if self.way == "one process":
            return [self.pid]
        if "Ray" in self.way:
            every = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
            return [pid for pid in every if b"ServeReplica:proofreel" in of_process(pid, "cmdline")]
        children = [int(pid) for pid in of_process(self.pid, f"task/{self.pid}/children").split()]
        return [pid for pid in children if b"proofreel.serve" in of_process(pid, "cmdline")]

    def memory_mib(self) -> float:
        """Resident memory of the processes that answer."""
        pages = [int((of_process(pid, "statm").split() or [b"0", b"0"])[1]) for pid in self.pids()]
        return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20


def of_process(pid: int, name: str) -> bytes:
    """A file of the system about a process; nothing if it has just ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


@contextlib.contextmanager
def served(root: Path, way: str, *flags: str) -> Iterator[Served]:
    """A server by one of `WAYS`."""
    words = [sys.executable, "-m", "proofreel.cli", "serve", str(VERIFIER), "--device", "cpu", *WAYS[way], *flags]
    if "--port" not in words:
        with socket.create_server(("127.0.0.1", 0)) as free:
            words += ["--port", str(free.getsockname()[1])]
    with subprocess.Popen([*words, "--media-root", str(root)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Served(way, process.stdout.readline().split()[-1], process.pid)
        finally:
            process.terminate()


async def ask_all(server: Served, load: Load, n_clients: int) -> None:
    """All requests, from clients that each take the next one when theirs is answered.

    Of several processes one is killed when half of the requests are answered.
    """
    waiting, done = iter(enumerate(load.requests)), 0
    marks = [round(share * len(load.requests)) for share in SHARES]

    async def client() -> None:
        nonlocal done
        async with AsyncClient(server.url, retries=1000, lost_retries=10) as one:
            for number, (segment, claims) in waiting:
                began = time.perf_counter()
                try:
                    load.answers[number] = await one.score(claims, segment)
                except Exception as error:
                    load.errors.append(str(error))
                load.seconds.append(time.perf_counter() - began)
                done += 1
                if done == len(load.requests) // 2 and server.way != "one process":
                    os.kill(server.pids()[0], signal.SIGKILL)
                    load.n_killed += 1
                if (number_done := done) in marks:  # others go on while memory is read
                    load.memory_mib[number_done] = await asyncio.to_thread(server.memory_mib)
            load.n_lost += one.n_lost

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(n_clients)))
    load.took_s = time.perf_counter() - began


def metric(url: str, name: str) -> float:
    """A sample of the server's metrics, named with its labels; 0 if there is none."""
    lines = httpx.get(f"{url}/metrics", timeout=60).text
    return sum(float(value) for value in re.findall(rf"^{re.escape(name)} (\S+)$", lines, re.MULTILINE))


def offline(load: Load, root: Path) -> dict[tuple[VideoSegment, str], Any]:
    """The verdict of `Verifier.score_pairs` on every claim that is asked."""
    verifier = Verifier.from_pretrained(VERIFIER, device="cpu", media_root=root)
    keys = list(dict.fromkeys((segment, claim) for segment, claims in load.requests for claim in claims))
    pairs = [Pair(str(i), claim, (segment,)) for i, (segment, claim) in enumerate(keys)]
    return dict(zip(keys, verifier.score_pairs(pairs), strict=True))


def wrong(load: Load, right: dict[tuple[VideoSegment, str], Any]) -> tuple[int, float]:
    """Claims whose verdict is not the offline one, and the largest difference of margins."""
    n_wrong, largest = 0, 0.0
    for number, (segment, claims) in enumerate(load.requests):
        for claim, verdict in zip(claims, load.answers.get(number, []), strict=False):
            expected = right[segment, claim]
            gap = abs(verdict.margin - expected.margin)
            largest = max(largest, gap)
            n_wrong += not (gap <= 1e-4 + 1e-5 * abs(expected.margin) and verdict.label == expected.label)
    return n_wrong, largest


def column(load: Load, result: tuple[int, float], counted: dict[str, float]) -> dict[str, str]:
    """What is to be told of one way."""
    lost = load.n_claims - sum(len(verdicts) for verdicts in load.answers.values())
    percentiles = ", ".join(f"p{q} {np.percentile(load.seconds, q) * 1e3:.0f} ms" for q in (50, 90, 99, 100))
    memory = ", ".join(f"{mib:.0f}" for _, mib in sorted(load.memory_mib.items()))
    return {
        "claims asked / requests": f"{load.n_claims} / {len(load.requests)}",
        "lost / errors": f"{lost} / {len(load.errors)}",
        "wrong (label, or margin beyond the tolerance)": str(result[0]),
        "largest difference of a margin from offline": f"{result[1]:.1e}",
        "asked again, as the connection was lost": str(load.n_lost),
        "refused with 429, asked again": f"{counted['busy']:.0f}" if counted else "-",
        "throughput": f"{load.n_claims / load.took_s:.0f} claims/s, {len(load.requests) / load.took_s:.0f} requests/s",
        "latency of a request": percentiles,
        "claims of a batch, mean": f"{counted['claims'] / counted['batches']:.1f}" if counted else "-",
        f"memory in MiB after {', '.join(f'{s:.0%}' for s in SHARES)} of the requests": memory,
    }


def measured(way: str, root: Path, requests: Load, args: argparse.Namespace) -> tuple[Load, dict[str, float]]:
    """One way under load, and what it counted; Ray's replicas count each for itself."""
    load, counted = Load(requests.requests), {}
    with served(root, way, "--queue", str(args.queue)) as server:
        asyncio.run(ask_all(server, load, args.clients))
        if "Ray" not in way:
            names = {"claims": "batch_claims_sum", "batches": "batch_claims_count"}
            counted = {key: metric(server.url, f"proofreel_{name}") for key, name in names.items()}
            counted["busy"] = metric(server.url, 'proofreel_failures_total{reason="busy"}')
    return load, counted


def main(argv: list[str] | None = None) -> int:
    """Print the table; exit status 1 if a claim was lost or wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claims", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--clips", type=int, default=40)
    parser.add_argument("--queue", type=int, default=4096, help="of each process; a small one is met with 429s")
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=list(WAYS))
    args = parser.parse_args(argv)
    columns, failed = {}, False
    with tempfile.TemporaryDirectory() as folder:
        requests, root = draw(make_clips(Path(folder), args.clips), args.claims), Path(folder) / "world"
        right = offline(requests, root)
        for way in args.ways:
            load, counted = measured(way, root, requests, args)
            result = wrong(load, right)
            columns[way + (", one killed" if load.n_killed else "")] = column(load, result, counted)
            failed |= load.n_killed != (way != "one process")
            failed |= result[0] > 0 or len(load.answers) < len(load.requests)
    print(f"{args.clients} clients, {args.clips} clips, kitchen verifier (float32), queue of {args.queue}.\n")
    print(f"| | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name in next(iter(columns.values())):
        print(f"| {name} | {' | '.join(values[name] for values in columns.values())} |")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
