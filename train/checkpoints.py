"""Checkpoints that are whole or are not used, and which of them is the best.

A checkpoint counts as whole once `complete.json` lies in it, which is written last and lists every file with its size.
A run that is killed while it writes one leaves a folder without it; resuming passes over such a folder.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import TrainingArguments

from ..core import ConfigError, Pair
from .dataset import target
from .faults import RunError

COMPLETE = "complete.json"
_NAME = re.compile(r"checkpoint-(\d+)")

WRITE_ERRORS = (OSError, RuntimeError, SafetensorError)
"""What a full or failing disk raises, by way of Python, torch or safetensors."""


def seal_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Mark a checkpoint as whole, with `state` of the run beside the files' sizes; the last thing written to it."""
    files = {str(f.relative_to(folder)): f.stat().st_size for f in sorted(folder.rglob("*")) if f.is_file()}
    write_json(folder / COMPLETE, {"files": files, **state})


def read_seal(folder: Path) -> dict[str, Any] | None:
    """What `seal_checkpoint` wrote; None where it did not, or where files are missing or have another size."""
    try:
        seal = json.loads((folder / COMPLETE).read_text(encoding="utf-8"))
        whole = all((folder / name).stat().st_size == size for name, size in seal["files"].items())
    except (OSError, ValueError, KeyError):
        return None
    return seal if whole else None


def step_of(folder: str | Path) -> int:
    """The step a checkpoint was written after; -1 if this is no checkpoint's name."""
    match = _NAME.fullmatch(Path(folder).name)
    return int(match[1]) if match else -1


def checkpoints_of(out: Path) -> list[Path]:
    """All checkpoint folders of a run, whole or not, by step."""
    return sorted((f for f in out.glob("checkpoint-*") if f.is_dir() and step_of(f) >= 0), key=step_of)


def checkpoint_to_resume(out: Path, requested: str | bool) -> Path | None:
    """The last whole checkpoint, or the one asked for; None if the run was killed before its first.

    Raises:
        ConfigError: the checkpoint asked for is not whole, or is not the last: what came after it would be lost.
    """
    whole = [f for f in checkpoints_of(out) if read_seal(f) is not None]
    if isinstance(requested, bool):
        return whole[-1] if whole else None
    folder = Path(requested)
    if read_seal(folder) is None:
        raise ConfigError(
            f"resume_from_checkpoint: not a whole checkpoint, got {requested}; whole ones are {[str(f) for f in whole]}"
        )
    if later := [f.name for f in whole if step_of(f) > step_of(folder)]:
        raise ConfigError(
            f"resume_from_checkpoint: later checkpoints would be overwritten, got {requested} while there are {later}; "
            "remove them first, or pass true"
        )
    return folder


def remove_unfinished(out: Path) -> None:
    """Remove what a killed run left half written: it holds nothing that is used, and takes room."""
    for folder in checkpoints_of(out):
        if read_seal(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)


def unwritten(folder: Path, error: Exception) -> RunError:
    """What to raise where a checkpoint cannot be written; what there is of it is removed, earlier ones stay."""
    shutil.rmtree(folder, ignore_errors=True)
    free_gib = shutil.disk_usage(folder.parent).free / 2**30
    whole = [f.name for f in checkpoints_of(folder.parent) if read_seal(f) is not None]
    then = f"resume from {whole[-1]}" if whole else "start again"
    got = " ".join(str(error).split())
    return RunError(f"{folder}: cannot be written, got {got} with {free_gib:.2f} GiB free; free the disk, and {then}")


def choose_best(training: TrainingArguments, patience: int | None, validation: Sequence[Pair]) -> None:
    """Keep the checkpoint of the best AUC, where evaluation and saving go together and nothing else is asked for.

    Args:
        training: changed in place: `metric_for_best_model`, `greater_is_better`, `load_best_model_at_end`.
        patience: evaluations without a better metric after which training stops; None never stops it.
        validation: the rows evaluated on.

    Raises:
        ConfigError: early stopping without evaluation, or by a metric that these rows do not define.
    """
    evaluates, saves = str(training.eval_strategy.value), str(training.save_strategy.value)  # type: ignore[union-attr]
    if patience is not None and (patience < 1 or evaluates == "no"):
        raise ConfigError(
            f"early_stopping: must be at least 1, with evaluation, got {patience} with eval_strategy: {evaluates}; "
            "set eval_strategy, or leave it out"
        )
    metric = training.metric_for_best_model
    if metric is None and evaluates != "no":
        training.metric_for_best_model = metric = "eval_auc"
        training.greater_is_better = True
        per_save, per_evaluation = training.save_steps, training.eval_steps or 1
        together = evaluates == saves and (saves != "steps" or per_save % per_evaluation == 0)
        training.load_best_model_at_end = together or saves == "best"
    if metric is not None and metric.removeprefix("eval_") in ("ece", "loss"):
        training.greater_is_better = False  # transformers knows this of the loss only
    if patience is not None and metric is not None and metric.removeprefix("eval_") in ("auc", "ap"):
        classes = {target(p) >= 0.5 for p in validation}
        if len(classes) < 2:
            raise ConfigError(
                f"early_stopping: {metric} needs supported and unsupported rows, got a validation split of one kind; "
                "add such rows, or set metric_for_best_model: eval_loss"
            )


def write_json(path: Path, record: Any) -> None:
    """Write a JSON file at once or not at all; numbers that are not finite become null."""
    draft = path.with_name(f".{path.name}.tmp")
    draft.write_text(json.dumps(finite(record), indent=2, default=str) + "\n", encoding="utf-8")
    os.replace(draft, path)


def finite(value: Any) -> Any:
    """The value with null in place of numbers JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    return [finite(v) for v in value] if isinstance(value, (list, tuple)) else value
