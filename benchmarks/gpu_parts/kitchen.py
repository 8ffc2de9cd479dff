"""The larger base of the kitchen, pretrained in a process of its own that goes on where the last call stopped it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

from benchmarks.gpu_parts.cells import NotYetError, Part, Setting, Values
from benchmarks.gpu_parts.networks import ROOT


def kitchen_settings(args: Any) -> Iterable[Setting]:
    """One run."""
    yield {"steps": args.kitchen_steps}


def kitchen_cell(args: Any, setting: Setting) -> Values:
    """`python -m examples.kitchen.pretrain --large`, stopped at the deadline; its last lines say how good it is."""
    out = args.work / "kitchen-base-large"
    command = [sys.executable, "-m", "examples.kitchen.pretrain", "--out", str(out), *args.kitchen_size]
    command += ["--device", args.device, "--steps", str(setting["steps"]), "--tower_steps", str(args.tower_steps)]
    left_s = max(1.0, args.deadline - time.monotonic())
    # As this process imports: where the package is not installed, its links come before the folder it is run from.
    env = os.environ | {"PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(ROOT)]), "PYTHONSAFEPATH": "1"}
    try:
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=left_s, check=False)
    except subprocess.TimeoutExpired:
        raise NotYetError(f"{out}: stopped at the deadline; the next call goes on from its state") from None
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message")
    said = done.stdout.strip().splitlines()
    measured = [line for line in (done.stdout + done.stderr).splitlines() if "held out:" in line]
    return {"held out": measured[-1].partition("held out: ")[2] if measured else None, "said": said[-1]}


KITCHEN = Part("kitchen", "What does a larger base of the kitchen reach?", kitchen_settings, kitchen_cell)
