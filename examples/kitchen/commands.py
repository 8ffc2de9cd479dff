"""The steps of the kitchen's experiments as commands that a user could type, each printed before it runs.

What is there already is not made again, and a training run that was killed goes on, so that an experiment that was
killed is started again with the same words.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from proofreel.data_prep.dataset import MANIFEST
from proofreel.eval.calibration import FITTED_ROWS_FILE


def python(*words: object) -> None:
    """Print a command as a user would type it, and run it with this interpreter."""
    arguments = [str(word) for word in words]
    print("$ python", shlex.join(arguments), flush=True)
    subprocess.run([sys.executable, *arguments], check=True)


def build(data: Path, config: str, source: str) -> None:
    """Build a data set of one or more sources."""
    if not (data / MANIFEST).exists():
        python("data_prep/build.py", "--config", config, f"output={data}", f"sources=[{source}]")


def train(folder: Path, script: str, config: str, data: Path, *more: object) -> None:
    """One training run, in `folder/run`."""
    run = folder / "run"
    if not (run / "draft").exists():
        again = ("--resume_from_checkpoint", "true") if run.exists() else ()
        python(script, "--config", config, "--dataset_dir", data, "--output_dir", run, *more, *again)


def predict(
    folder: Path, data: Path, split: str, *more: object, to: Path | None = None, controls: Sequence[str] = ()
) -> None:
    """Score one split by the verifier that was trained in `folder`, and its controls, which are written last."""
    to = to or folder / f"{split}.parquet"
    files = [to, *(to.with_name(f"{to.stem}-{control}.parquet") for control in controls)]
    if not all(file.exists() for file in files):
        verifier = ("--verifier", folder / "run" / "draft", "--data", data, "--split", split, "--device", "cpu")
        asked = ("--controls", *controls) if controls else ()
        python("eval/predict.py", *verifier, *more, "--out", to, *asked)


def calibrate(folder: Path, data: Path, *more: object) -> None:
    """Calibrate the verifier that was trained in `folder` on the calibration split."""
    if not (folder / "calibrated" / FITTED_ROWS_FILE).exists():  # what a calibration writes last
        predict(folder, data, "calibration", *more)
        python("eval/calibrate.py", "--predictions", folder / "calibration.parquet", "--out", folder / "calibrated")
