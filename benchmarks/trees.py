"""A benchmark run by the package of another working tree, such as an earlier commit's, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("data_prep", "models", "eval", "train", "configs")


def run_in(tree: Path, module: str, *words: str, **environment: str) -> Any:
    """The JSON of the last line that `python -m benchmarks.<module> words` prints with the package of `tree`."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "proofreel"
        package.mkdir()
        for part in (*(tree / "proofreel").iterdir(), *(tree / name for name in _PACKAGES)):
            (package / part.name).symlink_to(part.resolve())
        command = [sys.executable, "-m", f"benchmarks.{module}", *words]
        values = os.environ | {"PYTHONPATH": str(ROOT)} | environment  # the folder's package comes before ROOT's
        done = subprocess.run(command, cwd=folder, env=values, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])
