"""What benchmarks that write a page share: printing it, the machine it was made on, and cells that are kept."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

NOTES = "## Notes"  # what follows this line of a page is written by hand


def publish(lines: Sequence[str], out: Path | None) -> None:
    """Print a page, and write it where asked to. Notes that stand at the end of the page's last version are kept."""
    print("\n".join(lines))
    if out:
        _, heading, notes = (out.read_text(encoding="utf-8") if out.exists() else "").partition(f"\n{NOTES}\n")
        kept = f"\n{NOTES}\n{notes}" if heading else ""
        out.write_text("\n".join(lines) + "\n" + kept, encoding="utf-8")


def command() -> str:
    """The line that runs the benchmark which is running, without the page it is to write."""
    words, spec = sys.argv[1:], sys.modules["__main__"].__spec__
    if "--out" in words:
        del words[(at := words.index("--out")) : at + 2]
    return " ".join(["python", "-m", "" if spec is None else spec.name, *words])


def made_on(began: float, packages: Sequence[str] = ("torch", "transformers", "numpy")) -> str:
    """The machine, the versions, the load and the seconds since `began` (`time.time()`)."""
    return f"{machine_line(packages)}; {time.time() - began:.0f} s."


def machine_line(packages: Sequence[str]) -> str:
    """The machine, the versions of packages that are installed, and how busy it is now."""
    versions = "".join(f", {name} {_version(name)}" for name in packages)
    return (
        f"{os.cpu_count()} cores of {platform.machine()}, Python {platform.python_version()}{versions}, "
        f"load average {os.getloadavg()[0]:.1f}"
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def measured_cells(
    file: Path, settings: Iterable[dict[str, Any]], counts: Callable[..., dict[str, list[int]]]
) -> list[dict[str, Any]]:
    """Every cell: a setting and its `counts`. Those of the file first; each new one becomes a line of it."""
    cells = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    known = [{key: value for key, value in cell.items() if key != "counts"} for cell in cells]
    for setting in settings:
        if setting in known:
            continue
        began = time.process_time()
        cells.append(setting | {"counts": counts(**setting)})
        with file.open("a") as lines:
            lines.write(json.dumps(cells[-1]) + "\n")
        named = ", ".join(f"{key} {value}" for key, value in setting.items())
        print(f"{named}: {time.process_time() - began:.0f} s", flush=True)
    return cells
