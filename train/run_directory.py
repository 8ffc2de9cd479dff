"""A run's directory: what is written there before training, and on what terms a run that is there goes on.

run.json        configuration, data, versions, hardware; and each time the run was resumed, from where and by what
metrics.jsonl   every logged number, one line a log; after resuming, the lines of an uninterrupted run
bad_rows.jsonl  rows that could not be read and were left out, if there were any
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments
from trl import ModelConfig

from ..core import ConfigError, own_version
from ..data_prep.dataset import read_manifest
from ..data_prep.pipeline import git_revision
from .arguments import VerdictArguments
from .checkpoints import checkpoint_to_resume, clear_away, decided_on_rank_0, step_of, write_json
from .teacher import LISTED

RECORD, METRICS, BAD_ROWS = "run.json", "metrics.jsonl", "bad_rows.jsonl"
# All that a run writes before its first step; anything else in the directory is kept.
_BEFORE_FIRST_STEP = {RECORD, METRICS, BAD_ROWS, LISTED, "wandb"}
_HELD: dict[Path, Any] = {}  # open files: a lock lasts as long as its file is open

# What may differ when a run is resumed: where things lie, what is shown and kept, and how fast rows are read. All else
# would make it another run. `dataset_dir`, `teacher` and `adapter_from` may move: hashes tell what they hold.
FREE = {
    "arguments": {
        *("dataset_dir", "teacher", "adapter_from", "cache_gib", "frame_cache", "read_timeout_s", "bad_rows"),
        *("validate_only", "card", "price"),
    },
    "training": {
        *("resume_from_checkpoint", "output_dir", "logging_dir", "run_name", "report_to", "project", "disable_tqdm"),
        *("log_level", "log_level_replica", "log_on_each_node", "logging_first_step", "logging_strategy"),
        *("save_total_limit", "save_on_each_node", "ddp_timeout", "ddp_backend", "local_rank", "debug"),
        *("dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers"),
        *("dataloader_prefetch_factor", "dataloader_multiprocessing_context", "skip_memory_metrics"),
        *("per_device_eval_batch_size", "eval_accumulation_steps", "eval_on_start"),
        *("restore_callback_states_from_checkpoint",),
    },
    "model": {"model_revision"},
}


def start_run(
    arguments: VerdictArguments,
    training: TrainingArguments,
    model_config: ModelConfig,
    head: str = "next_token",
    sources: Mapping[str, Any] | None = None,
) -> Path | None:
    """Take a directory for a run, or take up the run that is there.

    Args:
        arguments: of the run, like `training` and `model_config`.
        head: what is trained, of `HEADS`.
        sources: of a distilling run its arguments, and the file's hash as `teacher_sha256`; of one that starts from a
            verifier's adapter that verifier's fingerprint as `adapter_from_sha256`.

    Returns:
        The checkpoint to resume from; None to begin at step 0, also where a run was killed before its first checkpoint.

    Raises:
        ConfigError: the directory holds something (but what a run left that ended before its first step, which is
            removed) and resuming was not asked for; or it was, and the directory holds no run, or one of another
            configuration or other data: the key that differs is named.
    """
    out = Path(training.output_dir or "")
    record = run_record(arguments, training, model_config, head, sources)
    resumes = bool(training.resume_from_checkpoint)
    in_use = decided_on_rank_0(lambda: _is_in_use(out), training)
    if not (resumes and in_use):
        if training.process_index == 0:
            if in_use:
                raise ConfigError(
                    f"output_dir: {out} is not empty; choose another, remove it, or pass --resume_from_checkpoint true"
                )
            out.mkdir(parents=True, exist_ok=True)
            _hold(out)
            write_json(out / RECORD, record)
        return None
    earlier = _read_record(out)
    _check_same(earlier, json.loads(json.dumps(record, default=str)), out)
    requested: Any = training.resume_from_checkpoint
    checkpoint = decided_on_rank_0(
        lambda: checkpoint_to_resume(out, requested if isinstance(requested, str) else True), training
    )
    if training.process_index == 0:
        _take_up(out, earlier, record, checkpoint)
    # Early stopping goes on counting, and what was evaluated at step 0 is not evaluated again.
    training.restore_callback_states_from_checkpoint = checkpoint is not None
    training.eval_on_start = training.eval_on_start and checkpoint is None
    return checkpoint


def run_record(
    arguments: VerdictArguments,
    training: TrainingArguments,
    model_config: ModelConfig,
    head: str,
    sources: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What run.json holds of a start."""
    return {
        "arguments": dataclasses.asdict(arguments) | dict(sources or {}),
        "training": training.to_sanitized_dict(),
        "model": dataclasses.asdict(model_config) | {"head": head},
        "dataset": read_manifest(arguments.dataset_dir).get("shards"),
        "git_revision": git_revision(),
        "versions": {"proofreel": own_version()}
        | {n: version(n) for n in ("torch", "transformers", "peft", "trl", "accelerate")},
        "hardware": {
            "platform": platform.platform(),
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
            "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
            "world_size": training.world_size,
        },
    }


def recipe_sha256(out: Path) -> str:
    """Hash of the settings that the run in a directory began with, but for where its data and results lie."""
    record = _read_record(out)
    settings = {part: {k: v for k, v in record[part].items() if k not in free} for part, free in FREE.items()}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def begun_from(out: Path) -> str | None:
    """Fingerprint of the verifier that the run in a directory started from; None if there is no such run."""
    return _read_record(out)["arguments"].get("adapter_from_sha256") if (out / RECORD).exists() else None


def trim_lines(path: Path, keep: Callable[[dict[str, Any]], bool]) -> None:
    """Keep those lines of a JSONL file, at once or not at all; a line that was cut off by a kill goes."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            if keep(json.loads(line)):
                kept.append(line)
        except ValueError:
            continue
    draft = path.with_name(f".{path.name}.tmp")
    draft.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    os.replace(draft, path)


def _is_in_use(out: Path) -> bool:
    """Whether a directory holds something to keep; what a run left that ended before its first step is removed."""
    inside = [f for f in out.iterdir() if not f.name.startswith(".")] if out.exists() else []
    if not inside or {f.name for f in inside} - _BEFORE_FIRST_STEP or not (out / RECORD).is_file():
        return bool(inside)
    if _steps_logged(out / METRICS) or not _hold(out):
        return True
    for left in inside:
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()
    return False


def _steps_logged(path: Path) -> bool:
    """Whether a run did a step, or left lines that do not say."""
    if not path.exists():
        return False
    try:
        return any(json.loads(line)["step"] > 0 for line in path.read_text(encoding="utf-8").splitlines())
    except (ValueError, KeyError, TypeError):
        return True


def _hold(out: Path) -> bool:
    """Hold a directory until this process ends; False if another process does, whose run may still be loading."""
    if (key := out.resolve()) in _HELD:
        return True
    try:
        lock = (out / ".run.lock").open("ab")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # also a file system without locks: what lies there is then kept
        return False
    _HELD[key] = lock
    return True


def _read_record(out: Path) -> dict[str, Any]:
    try:
        record = json.loads((out / RECORD).read_text(encoding="utf-8"))
        if "nli" in record["model"]:  # as version 0.1 wrote it
            record["model"]["head"] = "nli" if record["model"].pop("nli") else "next_token"
        return record
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"resume_from_checkpoint: {out} holds no run, got no readable {RECORD} ({error}); choose another output_dir"
        ) from error


def _check_same(earlier: Mapping[str, Any], now: Mapping[str, Any], out: Path) -> None:
    for part, free in FREE.items():
        before, after = earlier[part], now[part]
        for key in sorted({*before, *after} - free):
            if before.get(key) != after.get(key):
                raise ConfigError(
                    f"{key}: the run in {out} began with {before.get(key)!r}, got {after.get(key)!r}; set it back to "
                    "resume, or start another run"
                )
    for split in sorted({*earlier["dataset"], *now["dataset"]}):
        if earlier["dataset"].get(split) != now["dataset"].get(split):
            raise ConfigError(
                f"dataset_dir: the run in {out} began with other rows, got another {split} split; resume with the data "
                "set it began with, or start another run"
            )
    if (before := earlier["hardware"]["world_size"]) != (after := now["hardware"]["world_size"]):
        raise ConfigError(
            f"processes: the run in {out} began with {before}, got {after}; launch as many, or start another run"
        )


def _take_up(out: Path, earlier: dict[str, Any], record: Mapping[str, Any], checkpoint: Path | None) -> None:
    """Leave the directory as it was after the checkpoint's step, and note who goes on from there."""
    clear_away(out, checkpoint)
    step = -1 if checkpoint is None else step_of(checkpoint)
    # Lines of that step were logged before its checkpoint was written; the summary of a finished run comes again.
    for name in (METRICS, BAD_ROWS):
        trim_lines(out / name, lambda line: line["step"] <= step and "train_runtime" not in line)
    again = {k: record[k] for k in ("git_revision", "versions", "hardware")} | {"after_step": max(step, 0)}
    write_json(out / RECORD, {**earlier, "resumed": [*earlier.get("resumed", []), again]})
