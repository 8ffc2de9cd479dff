"""Scoring on Ray: one process, then 1 and 2 actors on this machine; rows a second, and a second of decoding CPU.

python -m benchmarks.ray_score --out benchmarks/results/ray_score.md

Each side scores the same claims about spans of one clip into a file of its own; all files must agree. Sides take turns,
in one cluster that is started before. A side scores a sixth of the claims first: what the rest takes beyond that is its
rate without its start, which loads torch and the verifier in every actor.
"""

from __future__ import annotations

import argparse
import pickle
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.pages import made_on, publish
from proofreel import Pair, Verifier, VideoSegment
from proofreel.data_prep.media import FrameSampling, read_media_piece
from proofreel.eval.scoring import RayWorkers, facts_of, ray_cluster, ray_engine, score_in_bulk

ROOT = Path(__file__).resolve().parents[1]
VERIFIER, MEDIA = ROOT / "checkpoints" / "kitchen-verifier", ROOT / "examples" / "kitchen"


def main() -> None:
    """Measure every side `--rounds` times, and print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--claims", type=int, default=3000, help="claims, five about each span")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    began, pairs = time.time(), claims(args.claims)
    verifier = open_verifier(None)
    decoding_s, bytes_each = decoding(pairs, verifier.encoder.sampling)
    times: dict[str, list[tuple[float, float]]] = {"one process": [], "Ray, 1 actor": [], "Ray, 2 actors": []}
    cpu_s: list[float] = []
    with tempfile.TemporaryDirectory() as folder, ray_cluster(RayWorkers(2, decoders=1)):
        for number in range(args.rounds):
            files = [Path(folder) / f"{number}-{side}.parquet" for side in range(3)]
            cpu = time.process_time()
            times["one process"].append(seconds(files[0], verifier, pairs))
            cpu_s.append(time.process_time() - cpu)
            for actors, file in zip((1, 2), files[1:], strict=True):
                workers = RayWorkers(actors)
                facts = facts_of(open_verifier, workers)
                elsewhere = ray_engine(open_verifier, facts, workers, MEDIA)
                side = f"Ray, {actors} actor{'s' if actors > 1 else ''}"
                times[side].append(seconds(file, facts, pairs, elsewhere=elsewhere))
            differences = [difference(files[0], file) for file in files[1:]]
    publish(page(args, began, times, cpu_s, decoding_s, bytes_each, max(differences), len(pairs)), args.out)


def claims(n: int) -> list[Pair]:
    """Claims about spans of the sample clip, five about each."""
    ends = np.linspace(0.5, 2.0, (n + 4) // 5)
    spans = [VideoSegment("sample.mp4", 0.0, float(end)) for end in ends]
    return [Pair(f"r{i}", f"Ingredient is carrot number {i}.", (spans[i // 5],)) for i in range(n)]


def open_verifier(frame_cache: Any) -> Verifier:
    """The kitchen's verifier, with the CPU's only thread."""
    return Verifier.from_pretrained(
        VERIFIER, device="cpu", media_root=MEDIA, frame_cache=frame_cache, prefix_cache_gib=0, read_threads=1
    )


def decoding(pairs: list[Pair], sampling: FrameSampling) -> tuple[float, float]:
    """CPU seconds and bytes handed on, for a segment, as the decoding stage reads and packs it, in this process."""
    pieces = list({pair.evidence[0]: None for pair in pairs})
    began = time.process_time()
    packed = [len(pickle.dumps(read_media_piece(piece, sampling, MEDIA), protocol=5)) for piece in pieces]  # type: ignore[arg-type]
    return (time.process_time() - began) / len(pieces), sum(packed) / len(packed)


def seconds(file: Path, verifier: Any, pairs: list[Pair], **options: Any) -> tuple[float, float]:
    """Wall seconds of scoring a sixth of the claims, and all, into new files."""

    def taken(path: Path, some: list[Pair]) -> float:
        began = time.perf_counter()
        score_in_bulk(path, verifier, some, rows_per_block=25, progress=False, **options)
        return time.perf_counter() - began

    return taken(file.with_suffix(".few.parquet"), pairs[: len(pairs) // 6]), taken(file, pairs)


def difference(one: Path, other: Path) -> float:
    """The largest difference of probabilities."""
    a, b = (pq.read_table(file)["p_supported"].to_numpy() for file in (one, other))
    return float(np.abs(a - b).max())


def page(
    args: argparse.Namespace,
    began: float,
    times: dict[str, list[tuple[float, float]]],
    cpu_s: list[float],
    decoding_s: float,
    bytes_each: float,
    differs: float,
    n: int,
) -> list[str]:
    """The lines of the page."""
    more = n - n // 6
    rows = [
        f"| {side} | {' / '.join(f'{n / whole:.0f}' for _, whole in found)} "
        f"| {' / '.join(f'{more / (whole - few):.0f}' for few, whole in found)} |"
        for side, found in times.items()
    ]
    return [
        "# Scoring on Ray",
        "",
        f"`python -m benchmarks.ray_score --claims {args.claims} --rounds {args.rounds}` on {made_on(began)}",
        "Ray's workers run at a lower priority than other processes: on a busy machine wall times say little of Ray.",
        "",
        f"{n} claims about {(n + 4) // 5} segments with the kitchen's verifier, float32, blocks of 25 claims.",
        "",
        "| side | claims/s with its start, each round | without its start |",
        "| --- | --- | --- |",
        *rows,
        "",
        f"Largest difference of a probability from one process: {differs:.2g}.",
        f"CPU seconds of one process, its decoding children apart: {(n + n // 6) / min(cpu_s):.1f} claims each.",
        f"Decoding: {decoding_s * 1000:.1f} ms of CPU and {bytes_each / 1e6:.2f} MB of frames for a segment; with five",
        f"claims about each, {5 / decoding_s:.0f} rows a second for each decoding CPU.",
    ]


if __name__ == "__main__":
    main()
