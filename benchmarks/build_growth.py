"""What grows with the rows of a build: seconds, memory and disk, step by step; and what shards take off it.

    python benchmarks/build_growth.py [--rows 100000 300000 1000000] [--kinds plain balanced evidence judgments ...]
        [--of 4] [--media] [--most-gb 8] [--most-s 600] [--code FOLDER] [--out FOLDER]

Synthetic annotations without media and without a probe; every build is a process of its own. `plain` makes one swapped
negative for every fact of segments with 50 facts, `segments` of segments with 5. `balanced` is negatives.balanced,
`evidence` makes two negatives by altered evidence, and `judgments` merges grounding judgments, a fifth of them repeats.
Seconds of steps are of processors, with children: they depend less on what else runs. Peak memory is the kernel's
high-water mark of the process; disk is the largest size of the working folder. With `--of` the largest plain build is
made in as many shards too, one by one, and merged; with `--media` clips are opened. `--code` builds with the package in
another folder (the one that `proofreel` lies in), without steps: for the same table of older code.
"""

from __future__ import annotations

import argparse
import csv
import functools
import hashlib
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

ROLES = ("Action", "Object", "Tool", "Location")
FACTS = 50
FEW_FACTS = 5
STEPS = {
    "read, check, store": ("import_sources", "import_shard", "import_shards"),
    "repeats, contradictions": ("check_together",),
    "open, hash media": ("check_media", "probe_media"),
    "leaks and splits": ("divide",),
    "negatives": ("make_negatives",),
    "leaks of negatives": ("drop_leaking_negatives",),
    "Parquet files": ("write_staging",),
    "counts and card": ("statistics_of", "staging_counts", "_publish"),
}
NEGATIVES = {
    "plain": "",
    "segments": "",
    "balanced": "negatives: {balanced: true}",
    "evidence": "negatives: {swapped_per_claim: 0, altered_evidence: {other_time: 1, shifted_span: 1}}",
    "judgments": "negatives: {swapped_per_claim: 0}",
}
ROWS_PER_FACT = {"plain": 2.0, "segments": 2.0, "balanced": 2.0, "evidence": 2.86, "judgments": 0.8}


def write_facts(path: Path, annotations: int, facts: int) -> None:
    """One JSON line per segment: four roles and phrases, values drawn unevenly from large vocabularies."""
    draw = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(annotations):
            conceptual = {role: f"{role.lower()} {int(draw.paretovariate(0.5)) % 900}" for role in ROLES}
            phrases = {f"put thing {draw.randrange(40_000)} near thing {number % 97}" for _ in range(facts)}
            start_s = float(number % 4 * 10)
            row = {"video": f"v{number // 4:07d}.mp4", "start_s": start_s, "end_s": start_s + 8}
            contextual = sorted(phrases)[: facts - len(ROLES)]
            file.write(json.dumps({**row, "conceptual": conceptual, "contextual": contextual}) + "\n")


def write_judgments(path: Path, tasks: int) -> None:
    """One CSV row per task of 50 claims; every fifth task repeats another one."""
    with path.open("w", newline="", encoding="utf-8") as file:
        names = ["Input.id", "Input.payload", "Answer.audio", "Answer.video", "Answer.ocr", "Answer.neither"]
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        no = json.dumps([False] * FACTS)
        for task in range(tasks):
            number = task // 2 if task % 5 == 4 else task
            claims = [f"Claim {number * FACTS + k} of many." for k in range(FACTS)]
            ticks = [(number + k) % 3 > 0 for k in range(FACTS)]
            payload = {
                "Wiki_Title": f"Topic {number // 40}",
                "Claim_Sentence": "A sentence.",
                "Extracted_Claims": claims,
                "Video_Url": f"https://host/v{number // 4}.mp4",
            }
            answers = {
                "audio": no,
                "ocr": no,
                "video": json.dumps(ticks),
                "neither": json.dumps([not t for t in ticks]),
            }
            row = {f"Answer.{name}": value for name, value in answers.items()}
            writer.writerow({"Input.id": f"t{task}", "Input.payload": json.dumps(payload), **row})


def config_of(folder: Path, kind: str, rows: int) -> Path:
    """A build of about so many rows: its annotations and its YAML."""
    facts = FEW_FACTS if kind == "segments" else FACTS
    count = max(1, round(rows / facts / ROWS_PER_FACT[kind]))
    name = f"{kind}-{rows}"
    source = folder / f"{name}.{'csv' if kind == 'judgments' else 'jsonl'}"
    if kind == "judgments":
        write_judgments(source, count)
    else:
        write_facts(source, count, facts)
    of = "grounding" if kind == "judgments" else "facts"
    lines = [f"output: {folder / name}", "media: absent", "shortcut_probe: false", NEGATIVES[kind]]
    config = folder / f"{name}.yaml"
    config.write_text("\n".join([*lines, f"sources: [{{format: {of}, path: {source}}}]", ""]), encoding="utf-8")
    return config


def cpu_seconds() -> float:
    """Processor seconds of this process and of the children that ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def child(words: list[str]) -> int:
    """A build in this process; the seconds of its steps go to stderr's last line."""
    from proofreel.data_prep.build import main as build
    from proofreel.data_prep.pipeline import build as build_data_set

    pipeline = sys.modules[build_data_set.__module__]

    seconds: dict[str, float] = {}

    def timed(step: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        began = cpu_seconds()
        try:
            return function(*args, **kwargs)
        finally:
            seconds[step] = seconds.get(step, 0.0) + cpu_seconds() - began

    for step, names in STEPS.items():
        for name in names:
            setattr(pipeline, name, functools.partial(timed, step, getattr(pipeline, name)))
    status = build(words)
    print(json.dumps(seconds), file=sys.stderr)
    return status


class Measured:
    """A build run to its end.

    Attributes:
        seconds, peak_gb, disk_gb: of the process and its working folder.
        cpu_s: processor seconds.
        rows: of the data set; 0 of a shard.
        steps: processor seconds of each; empty for older code.
        failed: why there is no result; empty where there is one.
    """

    def __init__(self, config: Path, output: Path, words: Iterable[str], args: argparse.Namespace) -> None:
        program = [str(Path(__file__).resolve()), "--child"]
        environment = dict(os.environ)
        if args.code is not None:
            program = ["-P", str(args.code / "proofreel" / "data_prep" / "build.py")]
            environment["PYTHONPATH"] = str(args.code)
        limit = int(args.most_gb * 1e9)
        began = time.perf_counter()
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(
                [sys.executable, *program, "--config", str(config), *words],
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=environment,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
            )
            self.disk_gb, done = 0.0, threading.Event()
            watch = threading.Thread(target=self._watch, args=(output, done))
            watch.start()
            stop = threading.Timer(args.most_s, process.kill)
            stop.start()
            _, status, usage = os.wait4(process.pid, 0)
            stop.cancel()
            done.set()
            watch.join()
            said.seek(0)
            lines = said.read().strip().splitlines()
        self.seconds, self.peak_gb = time.perf_counter() - began, usage.ru_maxrss / 1e6
        self.cpu_s = usage.ru_utime + usage.ru_stime
        late = self.seconds >= args.most_s
        self.failed = "" if status == 0 else f"over {args.most_s:g} s" if late else f"over {args.most_gb:g} GB"
        if status and not late and "MemoryError" not in "".join(lines[-40:]):
            raise RuntimeError("\n".join(lines[-20:]))
        self.steps: dict[str, float] = {} if status or args.code is not None else json.loads(lines[-1])
        manifest = output / "manifest.json"
        self.rows = json.loads(manifest.read_text())["counts"]["all"]["rows"] if manifest.is_file() else 0

    def _watch(self, output: Path, done: threading.Event) -> None:
        while not done.wait(0.5):
            for folder in output.parent.glob(f"{output.name}*.building"):
                sizes = [_size(path) for path in folder.rglob("*")]
                self.disk_gb = max(self.disk_gb, sum(sizes) / 1e9)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # it went meanwhile
        return 0


def digest(output: Path) -> str:
    """Over the bytes of all Parquet files in order."""
    total = hashlib.sha256()
    for shard in sorted(output.glob("*.parquet")):
        total.update(shard.read_bytes())
    return total.hexdigest()[:12]


def measure(folder: Path, kind: str, rows: int, args: argparse.Namespace) -> Measured:
    """One build; its line of the table is printed."""
    config = config_of(folder, kind, rows)
    output = folder / config.stem
    got = Measured(config, output, (), args)
    if got.failed:
        print(f"| {kind} | {rows:,} asked | {got.failed} | {got.cpu_s:.0f} | | | |", flush=True)
    else:
        numbers = f"{got.seconds:.1f} | {got.cpu_s:.1f} | {got.peak_gb:.2f} | {got.disk_gb:.2f}"
        print(f"| {kind} | {got.rows:,} | {numbers} | {digest(output)} |", flush=True)
    return got


def slopes(kind: str, done: list[Measured]) -> None:
    """Processor seconds of each step per million rows, bytes of memory and disk per row: lines through the builds."""
    done = [got for got in done if not got.failed]
    if len(done) < 2 or not done[0].steps:
        return
    rows = [got.rows / 1e6 for got in done]
    print(f"\n| {kind}: step | {' | '.join(f'{r:.2f} M rows' for r in rows)} | CPU s per million rows |")
    print(f"|---|{'---|' * len(rows)}---|")
    others = [got.cpu_s - sum(got.steps.values()) for got in done]
    for step in [*done[-1].steps, "start, exit"]:
        values = others if step == "start, exit" else [got.steps.get(step, 0.0) for got in done]
        cells = " | ".join(f"{value:.1f}" for value in values)
        print(f"| {step} | {cells} | {np.polyfit(rows, values, 1)[0]:.1f} |")
    for name, unit in (("peak_gb", "memory"), ("disk_gb", "disk")):
        per_row = np.polyfit(rows, [getattr(got, name) for got in done], 1)[0] * 1e3
        print(f"\n{kind}, {unit}: {per_row:,.0f} bytes for every further row", end="")
    print(flush=True)


def in_shards(folder: Path, rows: int, args: argparse.Namespace) -> None:
    """The plain build of so many rows in shards, one after another, and the merge."""
    config = folder / f"plain-{rows}.yaml"
    output = folder / config.stem
    whole = digest(output)
    print(f"\n| plain, {rows:,} rows, {args.of} shards | seconds | CPU seconds | peak memory (GB) | reading (CPU s) |")
    print("|---|---|---|---|---|")
    for number in range(1, args.of + 1):
        got = Measured(config, output, ("--shard", f"{number}/{args.of}"), args)
        read = got.steps["read, check, store"]
        print(f"| shard {number} | {got.seconds:.1f} | {got.cpu_s:.1f} | {got.peak_gb:.2f} | {read:.1f} |")
    got = Measured(config, output, ("--merge",), args)
    read = got.steps["read, check, store"]
    same = "same bytes" if digest(output) == whole else "OTHER BYTES"
    print(
        f"| merge ({same}) | {got.seconds:.1f} | {got.cpu_s:.1f} | {got.peak_gb:.2f} | {read:.1f} (copied) |",
        flush=True,
    )


def write_clip(path: Path, seconds: int, size: tuple[int, int]) -> None:
    """A clip of noise: as many bytes as its length and size make it."""
    import av

    draw = np.random.default_rng(0)
    with av.open(str(path), "w") as file:
        stream: Any = file.add_stream("mpeg4", rate=25)
        (stream.width, stream.height), stream.pix_fmt, stream.bit_rate = size, "yuv420p", 12_000_000
        for _ in range(seconds * 25):
            small = draw.integers(0, 255, (size[1] // 8, size[0] // 8, 3), np.uint8)
            frame = av.VideoFrame.from_ndarray(small.repeat(8, 0).repeat(8, 1), format="rgb24")
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))


def media(folder: Path, args: argparse.Namespace) -> None:
    """What it costs to open and hash media: many short files, and few long ones."""
    print("\n| media files | GB | open, hash media (CPU s) |\n|---|---|---|")
    clips = {"short": (2, (64, 64)), "long": (30, (1280, 720))}
    for clip, (seconds, size) in clips.items():
        write_clip(folder / f"{clip}.mp4", seconds, size)
    for clip, number in (("short", 50), ("short", 400), ("long", 5), ("long", 40)):
        name = f"{clip}-{number}"
        (folder / name).mkdir()
        lines = []
        for k in range(number):
            os.link(folder / f"{clip}.mp4", folder / name / f"v{k}.mp4")
            lines.append(json.dumps({"video": f"v{k}.mp4", "start_s": 0.0, "end_s": 1.0, "contextual": [f"lift {k}"]}))
        source = folder / name / "annotations.jsonl"
        source.write_text("\n".join(lines))
        config = folder / f"{name}.yaml"
        config.write_text(
            f"output: {folder / name}-out\nshortcut_probe: false\ncard: false\nleaks: {{media: allow}}\n"
            f"probing: {{workers: 1}}\nsources: [{{format: facts, path: {source}}}]\n"
        )
        got = Measured(config, folder / f"{name}-out", (), args)
        size_gb = number * (folder / f"{clip}.mp4").stat().st_size / 1e9
        print(f"| {number} | {size_gb:.3f} | {got.steps['open, hash media']:.2f} |", flush=True)


def main() -> None:
    """Build, and print the tables."""
    if sys.argv[1:2] == ["--child"]:
        raise SystemExit(child(sys.argv[2:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--kinds", nargs="+", default=list(NEGATIVES), choices=list(NEGATIVES))
    parser.add_argument("--of", type=int, default=0, help="shards of the largest plain build; 0: none")
    parser.add_argument("--media", action="store_true", help="measure what opening media costs, too")
    parser.add_argument("--most-gb", type=float, default=8.0, help="address space that a build may take")
    parser.add_argument("--most-s", type=float, default=600.0, help="seconds that a build may take")
    parser.add_argument("--code", type=Path, help="the folder that holds the package `proofreel` to build with")
    parser.add_argument("--out", type=Path, help="where to work; default a temporary folder")
    args = parser.parse_args()
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    print(f"machine: {os.cpu_count()} cores, {system}\n")
    print(
        "| build | rows | seconds | CPU seconds | peak memory (GB) | disk (GB) | bytes |\n|---|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory(dir=args.out) as folder:
        done = {kind: [measure(Path(folder), kind, rows, args) for rows in args.rows] for kind in args.kinds}
        for kind, builds in done.items():
            slopes(kind, builds)
        if args.media:
            media(Path(folder), args)
        if args.of:
            in_shards(Path(folder), args.rows[-1], args)


if __name__ == "__main__":
    main()
