"""Checkpoints that are whole or are not used, and which of them is the best.

A checkpoint counts as whole once `complete.json` lies in it, which is written last, when all else is on the disk, and
lists every file with its size and SHA-256. A run that is killed while it writes one leaves a folder without it;
resuming passes over such a folder. A checkpoint that no longer matches its list is damaged: resuming says so, goes back
to the last whole one, and keeps it under another name.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from accelerate.utils import broadcast_object_list
from safetensors import SafetensorError
from transformers import TrainingArguments

from ..core import ConfigError, Pair, sha256_of
from .dataset import target
from .faults import RunError

T = TypeVar("T")

COMPLETE = "complete.json"
_NAME = re.compile(r"checkpoint-(\d+)")
_TORCH_WRITER = ("PytorchStreamWriter", "inline_container")  # what torch.save names where its file cannot be written


def seal_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Mark a checkpoint as whole, with `state` of the run beside its files' sizes and hashes.

    The last thing written to it: a machine that loses its power later finds every byte of what the mark lists.
    """
    inside = sorted(path for path in folder.rglob("*") if path.name != COMPLETE)
    for path in (*inside, folder, folder.parent):
        _sync(path)
    files = {str(path.relative_to(folder)): path for path in inside if path.is_file()}
    with ThreadPoolExecutor() as pool:  # hashing releases the interpreter: shards of an optimiser are many and large
        hashes = dict(zip(files, pool.map(sha256_of, files.values()), strict=True))
    sizes = {name: path.stat().st_size for name, path in files.items()}
    write_json(folder / COMPLETE, {"files": sizes, "sha256": hashes, **state})


def read_seal(folder: Path) -> dict[str, Any] | None:
    """What `seal_checkpoint` wrote; None where it did not, or where it cannot be read."""
    try:
        seal = json.loads((folder / COMPLETE).read_text(encoding="utf-8"))
        return seal if isinstance(seal["files"], dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def damage_of(folder: Path, *, hashes: bool = True) -> str | None:
    """What is wrong with a checkpoint, naming the file; None if it is whole.

    Args:
        folder: the checkpoint.
        hashes: read every file, where the checkpoint was sealed by hash; False compares sizes only.
    """
    if not (folder / COMPLETE).exists():
        return f"{COMPLETE} is missing: the run ended while it wrote this checkpoint, or this is none"
    if (seal := read_seal(folder)) is None:
        return f"{COMPLETE} cannot be read"
    for name, size in seal["files"].items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if (length := path.stat().st_size) != size:
            return f"{name} has {length} bytes instead of {size}"
    sealed = seal.get("sha256", {}) if hashes else {}
    try:
        with ThreadPoolExecutor() as pool:
            contents = pool.map(lambda name: sha256_of(folder / name), sealed)
            changed = [name for name, content in zip(sealed, contents, strict=True) if content != sealed[name]]
    except OSError as error:
        return f"a file cannot be read ({error})"
    return f"{changed[0]} is not what was written: its SHA-256 differs" if changed else None


def step_of(folder: str | Path) -> int:
    """The step a checkpoint was written after; -1 if this is no checkpoint's name."""
    match = _NAME.fullmatch(Path(folder).name)
    return int(match[1]) if match else -1


def checkpoints_of(out: Path) -> list[Path]:
    """All checkpoint folders of a run, whole or not, by step."""
    return sorted((f for f in out.glob("checkpoint-*") if f.is_dir() and step_of(f) >= 0), key=step_of)


def checkpoint_to_resume(out: Path, requested: str | bool) -> Path | None:
    """The last whole checkpoint, or the one asked for; None if the run was killed before its first.

    Every file is read, so one rank decides for all (`decided_on_rank_0`). What was passed over is said on stderr.

    Raises:
        ConfigError: the checkpoint asked for is not whole, or is not the last: what came after it would be lost.
    """
    if not isinstance(requested, bool):
        return _checked(out, Path(requested))
    chosen, damaged = None, list[str]()
    for folder in reversed(checkpoints_of(out)):
        if (damage := damage_of(folder)) is None:
            chosen = folder
            break
        if (folder / COMPLETE).exists():
            damaged.append(f"{folder}: is damaged, {damage}; kept as {_aside(folder).name}")
    then = "the run begins again at step 0" if chosen is None else f"the run goes on from {chosen.name}"
    for line in damaged:
        _say(f"warning: {line}, and {then}")
    if chosen is not None:
        _say_if_sizes_only(chosen)
    return chosen


def _checked(out: Path, folder: Path) -> Path:
    if (damage := damage_of(folder)) is not None:
        others = [str(f) for f in checkpoints_of(out) if f != folder and damage_of(f, hashes=False) is None]
        raise ConfigError(
            f"resume_from_checkpoint: {folder} is not whole, got {damage}; put the file back as it was written, or "
            f"pass true for the last whole checkpoint (others are {others})"
        )
    later = [f for f in checkpoints_of(out) if step_of(f) > step_of(folder)]
    if names := [f.name for f in later if damage_of(f, hashes=False) is None]:
        raise ConfigError(
            f"resume_from_checkpoint: later checkpoints would be overwritten, got {folder} while there are {names}; "
            "remove them first, or pass true"
        )
    _say_if_sizes_only(folder)
    return folder


def _say_if_sizes_only(folder: Path) -> None:
    if "sha256" not in (read_seal(folder) or {}):
        _say(f"note: {folder} was sealed by an earlier release, by sizes: the content of its files is not checked")


def decided_on_rank_0(decide: Callable[[], T], training: TrainingArguments) -> T:
    """What rank 0 decides, or the `ConfigError` it meets, on every rank: a collective call."""
    outcome: list[Any] = [None, None]
    if training.process_index == 0:
        try:
            outcome[0] = decide()
        except ConfigError as error:
            outcome[1] = str(error)
    if training.world_size > 1:
        broadcast_object_list(outcome)
    if outcome[1] is not None:
        raise ConfigError(outcome[1])
    return outcome[0]


def clear_away(out: Path, resumed: Path | None) -> None:
    """Remove what a killed run left half written, and set aside what is damaged and later than where it goes on.

    Args:
        out: the run's directory.
        resumed: the checkpoint it goes on from; None if it begins again.
    """
    for folder in checkpoints_of(out):
        if not (folder / COMPLETE).exists():
            shutil.rmtree(folder, ignore_errors=True)
        elif resumed is None or step_of(folder) > step_of(resumed):
            shutil.rmtree(_aside(folder), ignore_errors=True)
            folder.rename(_aside(folder))


def _aside(folder: Path) -> Path:
    """Where a damaged checkpoint is kept, under a name that nothing takes for a checkpoint."""
    return folder.with_name(f"damaged-{folder.name}")


def is_write_failure(error: Exception) -> bool:
    """Whether an error is that of a full or failing disk, by way of Python, torch or safetensors.

    All else that can happen while ranks gather and write a checkpoint is none: memory of a GPU, a lost connection.
    """
    if isinstance(error, OSError):
        return not isinstance(error, (ConnectionError, TimeoutError))
    if isinstance(error, SafetensorError):
        return "I/O error" in str(error) or "os error" in str(error)
    # torch's own errors (out of memory, of a backend) have classes below this one.
    return type(error) is RuntimeError and any(name in str(error) for name in _TORCH_WRITER)


def unwritten(folder: Path, error: Exception) -> RunError:
    """What to raise where a checkpoint cannot be written; what there is of it is removed, earlier ones stay."""
    shutil.rmtree(folder, ignore_errors=True)
    free_gib = shutil.disk_usage(folder.parent).free / 2**30
    whole = [f.name for f in checkpoints_of(folder.parent) if damage_of(f, hashes=False) is None]
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
    """Write a JSON file at once or not at all, and to the disk; numbers that are not finite become null."""
    draft = path.with_name(f".{path.name}.tmp")
    draft.write_text(json.dumps(finite(record), indent=2, default=str) + "\n", encoding="utf-8")
    _sync(draft)
    os.replace(draft, path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    """Have a file's bytes, or a folder's names, on the disk before anything else is done."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def finite(value: Any) -> Any:
    """The value with null in place of numbers JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    return [finite(v) for v in value] if isinstance(value, (list, tuple)) else value
