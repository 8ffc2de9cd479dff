"""How long does reading large annotation files take, against `json.load`, and in how much memory?

    python benchmarks/reading_json.py [--megabytes 200] [--lines-megabytes 400]

A keyed file (one object, a member per video, as YouCook2 and Video-MMMU have) of a quarter, half and whole size:
seconds of the importers' reader, of `json.load`, and their ratio, which stays the same if reading is linear. Then JSON
lines: seconds and the peak memory of the process that reads them. Each reading is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SEGMENT = {"segment": [12.25, 31.5], "id": 3, "sentence": "cut the onion into small cubes and fry them in the pan"}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200, help="of the largest keyed file")
    parser.add_argument("--lines-megabytes", type=int, default=400, help="of the JSON lines")
    parser.add_argument("--read", nargs=2, metavar=("HOW", "FILE"), help="read one file and print JSON; used by itself")
    args = parser.parse_args()
    if args.read:
        print(json.dumps(read(*args.read)))
        return
    print("| keyed JSON | MB | members | reader (s) | json.load (s) | ratio |\n|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for part in (4, 2, 1):
            path = Path(folder) / "keyed.json"
            write_keyed(path, args.megabytes * 10**6 // part)
            ours, theirs = measured("members", path), measured("json.load", path)
            megabytes, ratio = path.stat().st_size / 1e6, ours["seconds"] / theirs["seconds"]
            seconds = f"{ours['seconds']:.1f} | {theirs['seconds']:.1f} | {ratio:.1f}"
            print(f"| 1/{part} | {megabytes:.0f} | {ours['n']:,} | {seconds} |", flush=True)
        path = Path(folder) / "lines.jsonl"
        write_lines(path, args.lines_megabytes * 10**6)
        print("\n| JSON lines, MB | records | seconds | peak memory (MB) | of these, imports |\n|--:|--:|--:|--:|--:|")
        ours = measured("records", path)
        memory = f"{ours['peak_mb']:.0f} | {ours['imports_mb']:.0f}"
        print(f"| {path.stat().st_size / 1e6:.0f} | {ours['n']:,} | {ours['seconds']:.1f} | {memory} |")


def write_keyed(path: Path, size: int) -> None:
    """An object of videos with eight segments each, indented as published files are."""
    member = json.dumps({"duration": 311.77, "subset": "training", "annotations": [SEGMENT] * 8}, indent=1)
    with path.open("w", encoding="utf-8") as file:
        file.write("{\n")
        for number in range(max(1, size // (len(member) + 16))):
            file.write(f'{"," if number else ""}"v{number:07d}": {member}\n')
        file.write("}\n")


def write_lines(path: Path, size: int) -> None:
    """A record of eight segments a line."""
    line = json.dumps({"video": "a.mp4", "annotations": [SEGMENT] * 8}) + "\n"
    with path.open("w", encoding="utf-8") as file:
        for _ in range(max(1, size // len(line))):
            file.write(line)


def measured(how: str, path: Path) -> dict[str, float]:
    """What `read` says of one file, in a process of its own."""
    words = [sys.executable, __file__, "--read", how, str(path)]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def read(how: str, path: str) -> dict[str, float]:
    """Records, seconds of processor time, and peak memory."""
    from proofreel.data_prep.importers import Record, read_json_members, read_json_records

    imports_mb, began = peak_mb(), time.process_time()
    if how == "json.load":
        with Path(path).open(encoding="utf-8") as file:
            n = len(json.load(file))
    else:
        reader = read_json_members if how == "members" else read_json_records
        n = sum(isinstance(item, Record) for item in reader(Path(path)))
    return {"n": n, "seconds": time.process_time() - began, "peak_mb": peak_mb(), "imports_mb": imports_mb}


def peak_mb() -> float:
    """The highest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    main()
