"""Under load, does the server lose a claim, get one wrong, or grow? And how fast is it?

    OMP_NUM_THREADS=1 python benchmarks/server_load.py > benchmarks/results/server_load_cpu.md

`proofreel serve` in a process of its own, asked over loopback by as many clients as told, each with its own connection
and one request at a time. Claims are drawn with a seed from the facts of freshly rendered kitchen clips, 1 to 16 in a
request; a client that is told 429 comes back. Every verdict is compared with `Verifier.score_pairs` of the same claims
in this process. Memory is the server's resident size, as its own /metrics say.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
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


@contextlib.contextmanager
def served(root: Path, *flags: str) -> Iterator[str]:
    """The address of a server process."""
    words = [sys.executable, "-m", "proofreel.cli", "serve", str(VERIFIER), "--port", "0", "--device", "cpu"]
    with subprocess.Popen([*words, "--media-root", str(root), *flags], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


async def ask_all(url: str, load: Load, n_clients: int) -> None:
    """All requests, from clients that each take the next one when theirs is answered."""
    waiting, done = iter(enumerate(load.requests)), 0
    marks = [round(share * len(load.requests)) for share in SHARES]

    async def client() -> None:
        nonlocal done
        async with AsyncClient(url, retries=1000) as one:
            for number, (segment, claims) in waiting:
                began = time.perf_counter()
                try:
                    load.answers[number] = await one.score(claims, segment)
                except Exception as error:
                    load.errors.append(str(error))
                load.seconds.append(time.perf_counter() - began)
                done += 1
                if done in marks:
                    load.memory_mib[done] = await asyncio.to_thread(memory_mib, url)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(n_clients)))
    load.took_s = time.perf_counter() - began


def metric(url: str, name: str) -> float:
    """A sample of the server's metrics, named with its labels; 0 if there is none."""
    lines = httpx.get(f"{url}/metrics", timeout=60).text
    return sum(float(value) for value in re.findall(rf"^{re.escape(name)} (\S+)$", lines, re.MULTILINE))


def memory_mib(url: str) -> float:
    """The server's resident size."""
    return metric(url, "process_resident_memory_bytes") / 2**20


def wrong(load: Load, root: Path) -> tuple[int, float]:
    """Claims whose verdict is not the offline one, and the largest difference of margins."""
    verifier = Verifier.from_pretrained(VERIFIER, device="cpu", media_root=root)
    keys = list(dict.fromkeys((segment, claim) for segment, claims in load.requests for claim in claims))
    pairs = [Pair(str(i), claim, (segment,)) for i, (segment, claim) in enumerate(keys)]
    offline = dict(zip(keys, verifier.score_pairs(pairs), strict=True))
    n_wrong, largest = 0, 0.0
    for number, (segment, claims) in enumerate(load.requests):
        for claim, verdict in zip(claims, load.answers.get(number, []), strict=False):
            expected = offline[segment, claim]
            gap = abs(verdict.margin - expected.margin)
            largest = max(largest, gap)
            n_wrong += not (gap <= 1e-4 + 1e-5 * abs(expected.margin) and verdict.label == expected.label)
    return n_wrong, largest


def table(load: Load, result: tuple[int, float], counted: dict[str, float]) -> str:
    """What is to be told."""
    lost = load.n_claims - sum(len(verdicts) for verdicts in load.answers.values())
    percentiles = ", ".join(f"p{q} {np.percentile(load.seconds, q) * 1e3:.0f} ms" for q in (50, 90, 99, 100))
    memory = ", ".join(f"{mib:.0f}" for _, mib in sorted(load.memory_mib.items()))
    rows = {
        "claims asked / requests": f"{load.n_claims} / {len(load.requests)}",
        "lost / errors": f"{lost} / {len(load.errors)}",
        "wrong (label, or margin beyond the tolerance)": str(result[0]),
        "largest difference of a margin from offline": f"{result[1]:.1e}",
        "throughput": f"{load.n_claims / load.took_s:.0f} claims/s, {len(load.requests) / load.took_s:.0f} requests/s",
        "latency of a request": percentiles,
        "claims of a batch, mean": f"{counted['claims'] / counted['batches']:.1f}",
        "refused with 429, asked again": f"{counted['busy']:.0f}",
        f"server's memory in MiB after {', '.join(f'{s:.0%}' for s in SHARES)} of the requests": memory,
    }
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows.items())


def main(argv: list[str] | None = None) -> int:
    """Print the table; exit status 1 if a claim was lost or wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claims", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--clips", type=int, default=40)
    parser.add_argument("--queue", type=int, default=4096, help="of the server; a small one is met with 429s")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        clips = make_clips(Path(folder), args.clips)
        load, root = draw(clips, args.claims), Path(folder) / "world"
        with served(root, "--queue", str(args.queue)) as url:
            asyncio.run(ask_all(url, load, args.clients))
            names = {"claims": "batch_claims_sum", "batches": "batch_claims_count"}
            counted = {key: metric(url, f"proofreel_{name}") for key, name in names.items()}
            counted["busy"] = metric(url, 'proofreel_failures_total{reason="busy"}')
        result = wrong(load, root)
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "fastapi", "uvicorn", "httpx"))
    print(f"{args.clients} clients, {args.clips} clips, kitchen verifier (float32), queue of {args.queue}.")
    print(f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {packages}; ", end="")
    print(f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS')}, load average {os.getloadavg()[0]:.1f} at the end.\n")
    print(table(load, result, counted))
    return int(result[0] > 0 or len(load.answers) < len(load.requests))


if __name__ == "__main__":
    sys.exit(main())
