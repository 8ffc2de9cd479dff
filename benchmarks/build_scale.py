"""How fast and in how much memory is a data set of a million pairs built, and does a killed build go on?

    python benchmarks/build_scale.py [--annotations 10000] [--facts 50] [--out FOLDER]

Synthetic annotations (no media, no probe): every fact gives one supported pair and one swapped negative. Three builds:
straight through; killed by SIGKILL part way, then run again; and both must give the same bytes. The table goes to
stdout; peak memory is that of the build's process and its children (the kernel's high-water mark).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROLES = ("Action", "Object", "Tool", "Location")


def write_annotations(path: Path, annotations: int, facts: int) -> None:
    """One JSON line per segment: four roles and `facts - 4` phrases, values drawn unevenly from large vocabularies."""
    draw = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(annotations):
            conceptual = {role: f"{role.lower()} {int(draw.paretovariate(0.5)) % 900}" for role in ROLES}
            phrases = {f"put thing {draw.randrange(40_000)} near thing {number % 97}" for _ in range(facts)}
            row = {
                "video": f"v{number // 4:06d}.mp4",
                "start_s": float(number % 4 * 10),
                "end_s": float(number % 4 * 10 + 8),
                "conceptual": conceptual,
                "contextual": sorted(phrases)[: facts - len(ROLES)],
            }
            file.write(json.dumps(row) + "\n")


def start(config: Path, output: Path) -> subprocess.Popen[bytes]:
    """A build in a process of its own."""
    command = [sys.executable, str(ROOT / "data_prep" / "build.py"), "--config", str(config), f"output={output}"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def timed(config: Path, output: Path) -> tuple[float, float, int]:
    """Seconds, peak gigabytes and rows of a build run to its end."""
    began = time.perf_counter()
    process = start(config, output)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, f"the build failed with status {status}"
    manifest = json.loads((output / "manifest.json").read_text())
    return time.perf_counter() - began, usage.ru_maxrss / 1e6, manifest["counts"]["all"]["rows"]


def digest(output: Path) -> str:
    """Over the bytes of all shards in order."""
    total = hashlib.sha256()
    for shard in sorted(output.glob("*.parquet")):
        total.update(shard.read_bytes())
    return total.hexdigest()


def main() -> None:
    """Run the three builds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--annotations", type=int, default=10_000)
    parser.add_argument("--facts", type=int, default=50)
    parser.add_argument("--out", type=Path, help="where to work; default a temporary folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.out) as folder:
        run(Path(folder), args.annotations, args.facts)


def run(folder: Path, annotations: int, facts: int) -> None:
    """Build in `folder`, print the results."""
    source, config = folder / "annotations.jsonl", folder / "build.yaml"
    write_annotations(source, annotations, facts)
    settings = ["shortcut_probe: false", "media: absent", f"sources: [{{format: facts, path: {source}}}]", "output: x"]
    config.write_text("\n".join(settings) + "\n", encoding="utf-8")
    seconds, peak_gb, rows = timed(config, folder / "straight")
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    print(f"machine: {os.cpu_count()} cores, {system}")
    print(f"{annotations:,} annotations, {rows:,} pairs, {source.stat().st_size / 1e6:.0f} MB of JSON\n")
    print("| build | seconds | pairs/s | peak memory (GB) | shards equal |")
    print("|---|---|---|---|---|")
    print(f"| straight through | {seconds:.1f} | {rows / seconds:,.0f} | {peak_gb:.2f} | - |")
    for share in (0.25, 0.6, 0.9):
        output = folder / f"killed-{share}"
        process = start(config, output)
        time.sleep(seconds * share)
        process.send_signal(signal.SIGKILL)
        process.wait()
        again, peak_gb, _ = timed(config, output)
        equal = "yes" if digest(output) == digest(folder / "straight") else "NO"
        print(f"| killed after {share:.0%}, then again | {again:.1f} | | {peak_gb:.2f} | {equal} |")
    children_gb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    print(f"\nhighest of all: {children_gb:.2f} GB")


if __name__ == "__main__":
    main()
