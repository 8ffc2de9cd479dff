"""Faults of a running run: media that changed, readers that hang, workers that die, gradients that never come.

A row that cannot be read ends the run or, where the run allows it, is left out, counted and listed. Its place in the
batch is then held by a stand-in without weight: blank pixels of the same kinds, so that every rank makes the same
calls of the vision tower and of the collectives, and every gradient that comes of it is zero. `check_engine` compares
the engine with the one that was launched; `even_tower_calls` keeps ranks from waiting for each other in the tower.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import DistributedType
from torch.utils.data import get_worker_info
from transformers import TrainingArguments
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from trl import ModelConfig

from ..core import (
    Audio,
    ConfigError,
    Evidence,
    Image,
    MediaError,
    Moving,
    Pair,
    Passage,
    ProofreelError,
    Visual,
    media_paths,
)
from ..data_prep.media import Frames, FrameSampling, GuardedReader, Sound
from ..models.backbones import audio_config, part_of, vision_config
from ..models.engine import audio_tower, backbone_of, vision_tower
from ..models.inputs import EncodedEvidence, Encoder, Media, heard

BLANK_FRAMES = 2
BLANK_SAMPLES = 8_000
_MAX_WORKERS = 256
_WORKER_DIED = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\)")


class RunError(ProofreelError, RuntimeError):
    """A run cannot go on from where it is."""


class DeadlineReader:
    """Frames without a cache, but with a deadline: has `FrameCache.read`. Picklable; a copy has a reader of its own."""

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s` is what one segment may take; its reader is then killed, and the next one gets a new one."""
        self.timeout_s, self._reader = timeout_s, GuardedReader()

    def read(self, piece: Visual, sampling: FrameSampling, media_root: str | Path | None = None) -> Frames:
        """What `read_frames` returns; `MediaError` also where the reader hangs or dies."""
        return self._reader.read(piece, sampling, media_root, self.timeout_s)


class FileStamps:
    """Size and time of change of the media files of a run, as they were when it began."""

    def __init__(self, evidences: Iterable[tuple[Evidence, ...]]) -> None:
        """Looks at every file once; one that is missing fails when it is read."""
        paths = {path for evidence in evidences for piece in evidence for path in media_paths(piece)}
        self._known = {path: stamp for path in paths if (stamp := _stamp(path)) is not None}

    def check(self, evidence: tuple[Evidence, ...]) -> None:
        """Raise `MediaError` for a file that is no longer what it was: its rows were labelled for another content."""
        for path in (path for piece in evidence for path in media_paths(piece)):
            known = self._known.get(path)
            if known is not None and (now := _stamp(path)) != known:
                what = "is gone" if now is None else f"has {now[0]} bytes and another time than {known[0]} bytes"
                raise MediaError(
                    f"{path}: changed since the run began, got a file that {what}; put the file back, and "
                    "rebuild the data set if it was meant to change"
                )


def _stamp(path: str) -> tuple[int, int] | None:
    # Not the inode nor the time of status: a file may be moved between disks, or given other permissions.
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def shown(evidence: tuple[Evidence, ...]) -> list[Evidence]:
    """The pieces that have a file."""
    return [e for e in evidence if isinstance(e, (Visual, Audio))]


def blank(evidence: tuple[Evidence, ...], encoder: Encoder, *, text_only: bool) -> EncodedEvidence:
    """A stand-in for evidence: as many videos and images, black and small, and silence, or a word where none is shown.

    Args:
        evidence: what it stands in for; no file of it is touched.
        encoder: of the run.
        text_only: show nothing in any case: rows are made of features of the tower, or the backbone sees nothing.
    """
    pieces = () if text_only or not encoder.layout.sees else tuple(shown(evidence))
    if not pieces:
        return encoder.evidence((Passage("none"),), Media())
    side = 2 * encoder.layout.patch_step
    frames = Frames(np.zeros((BLANK_FRAMES, side, side, 3), np.uint8), np.arange(BLANK_FRAMES) / 2, "blank")
    videos = tuple(frames for piece in pieces if isinstance(piece, Moving))
    images = tuple(frames.pixels_FHWC[0] for piece in pieces if isinstance(piece, Image))
    silence = tuple(Sound(np.zeros(BLANK_SAMPLES, np.float32), 0.0) for _ in heard(pieces))
    return encoder.evidence(pieces, Media(videos, images, sized=True, sounds=silence))


class Reading:
    """Which row each loader worker is reading, in memory that outlives the worker: what it was reading when it died."""

    def __init__(self) -> None:
        self._pid_and_row = torch.full((_MAX_WORKERS, 2), -1, dtype=torch.int64).share_memory_()

    def begin(self, row: int) -> None:
        """This worker reads a row now; nothing is noted where no worker does."""
        self._note(row)

    def end(self) -> None:
        """This worker reads nothing now."""
        self._note(-1)

    def of(self, pids: Sequence[int]) -> list[int]:
        """The rows that these workers were reading."""
        return [int(row) for pid, row in self._pid_and_row if int(pid) in pids and int(row) >= 0]

    def _note(self, row: int) -> None:
        if (worker := get_worker_info()) is not None and worker.id < _MAX_WORKERS:
            self._pid_and_row[worker.id] = torch.tensor([os.getpid(), row])


def dead_workers(error: BaseException) -> list[int]:
    """Process ids that a `RuntimeError` of torch's DataLoader names as died; none for any other error."""
    match = _WORKER_DIED.search(str(error))
    return [int(pid) for pid in match[1].split(",")] if match else []


class FirstGradients:
    """Watches that every trainable parameter gets a gradient in the first optimiser step that could give it one.

    Works by hooks, which also fire where gradients are sharded or freed at once (ZeRO, FSDP2). A gradient of zeros is
    one. Parameters of a tower are due in the first step that has something for it.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        """`model` is what trains, as the engine has prepared it."""
        self._due: set[str] = set()
        self._hooks: list[Any] = []
        self._unused = {"visual", "merger", "audio"}  # parts whose inputs have not come yet
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                self._due.add(name)
                self._hooks.append(parameter.register_post_accumulate_grad_hook(self._arrived(name)))

    def see(self, batch: dict[str, Any]) -> None:
        """A batch that is about to be trained on."""
        if any(name in batch for name in _PIXELS):
            self._unused -= {"visual", "merger"}
        if _HEARD in batch:
            self._unused -= {"audio"}

    def check(self) -> None:
        """At the end of an optimiser step: `RunError` names the parameters that should have had a gradient by now."""
        if late := sorted(name for name in self._due if part_of(name) not in self._unused):
            some = ", ".join(late[:5]) + (f" and {len(late) - 5} more" if len(late) > 5 else "")
            raise RunError(
                f"first step: {len(late)} trainable parameters are not part of what the loss depends on, got no "
                f"gradient for {some}; freeze them, or correct what is adapted"
            )
        if not self._due:
            for hook in self._hooks:
                hook.remove()
            self._hooks.clear()

    def _arrived(self, name: str) -> Any:
        def hook(_: torch.Tensor) -> None:
            self._due.discard(name)

        return hook


_PIXELS = ("pixel_values", "pixel_values_videos")
_HEARD = "audio_values"


_QUANTISED = ("load_in_4bit", "load_in_8bit")


def check_engine(
    training: TrainingArguments, vision_cache: str | None = None, model_config: ModelConfig | None = None
) -> None:
    """Refuse an engine that cannot train this run, before any weight is loaded.

    On a CPU accelerate would silently leave the engine out, or let every process train alone.

    Raises:
        ConfigError: the processes or the engine of the launch configuration are not those of this run; quantised
            weights where they would be sharded; or a vision cache, which needs the whole tower, where no rank has it.
    """
    quantised = [name for name in _QUANTISED if getattr(model_config, name, False)]
    if quantised and shards_weights():
        raise ConfigError(
            f"{quantised[0]}: quantised weights cannot be sharded over ranks, got true with "
            f"{'ZeRO-3' if is_deepspeed_zero3_enabled() else 'FSDP'}; launch with ZeRO-2 or DDP, or set "
            f"{quantised[0]}: false"
        )
    if vision_cache is not None and shards_weights():
        raise ConfigError(
            f"vision_cache: the tower's weights are sharded over ranks (ZeRO-3, FSDP), got {vision_cache}; "
            'launch with ZeRO-2 or DDP, or leave the cache out (--vision_cache "")'
        )
    state: Any = training.distributed_state
    kind, launched = state.distributed_type, int(os.environ.get("WORLD_SIZE", "1"))
    if launched != training.world_size:
        raise ConfigError(
            f"ddp_backend: {launched} processes were launched and each would train alone, got a world of "
            f"{training.world_size}; on CPUs pass --ddp_backend gloo"
        )
    if _asked("DEEPSPEED") and kind != DistributedType.DEEPSPEED:
        raise ConfigError(
            f"use_cpu: accelerate leaves DeepSpeed out under this setting, got {kind.value} in its place; pass "
            "--use_cpu false --ddp_backend gloo (configs/accelerate_cpu_zero2.yaml hides the GPUs)"
        )
    if _asked("FSDP") and kind in (DistributedType.NO, DistributedType.MULTI_CPU):
        raise ConfigError(
            f"distributed_type: accelerate has FSDP for GPUs only, got {kind.value} in its place; on CPUs launch with "
            "configs/accelerate_cpu_zero3.yaml"
        )
    if launched > 1 and kind == DistributedType.NO:
        raise ConfigError(
            f"use_cpu: gradients of {launched} processes on CPUs would not be averaged, got {training.use_cpu}; "
            "pass --use_cpu true"
        )


def shards_weights() -> bool:
    """Whether weights are spread over ranks (ZeRO-3, FSDP), so that every use of a layer is a collective one."""
    return is_deepspeed_zero3_enabled() or _asked("FSDP")


def even_tower_calls(model: torch.nn.Module, pairs: Mapping[str, Sequence[Pair]]) -> None:
    """Let every rank call the towers equally often, whatever its rows show and let hear.

    Ranks wait for each other in every layer of a sharded tower, and for every gradient of one that trains. Where some
    rows show a video and others an image or nothing, a forward that lacks a kind runs the tower on four black patches
    in its place, and the audio tower on four frames of silence. Their features enter the embeddings times zero: they
    change no loss, and give the tower's weights a gradient of zero.

    Args:
        model: the backbone, bare or in adapters, before any engine wraps it.
        pairs: rows of all splits.
    """
    kinds = {frozenset(_tower_inputs(pair.evidence)) for pair in _all(pairs)}
    backbone, inputs_of_all = backbone_of(model).model, frozenset().union(*kinds)
    waited_for = {name for name in inputs_of_all if _is_waited_for(_tower_of(model, name))}
    if len({names & waited_for for names in kinds}) < 2:
        return
    lacking: list[str] = []

    def count(_: Any, __: Any, inputs: dict[str, Any]) -> None:
        lacking[:] = sorted(name for name in waited_for if inputs.get(name) is None)

    def fill(_: Any, __: Any, embedded: torch.Tensor) -> torch.Tensor:
        # Here, and not before the embeddings: ranks must use their layers in the same order as well.
        for name in lacking:
            nothing = (_silence if name == _HEARD else _black)(backbone, embedded.device)
            embedded = embedded + 0.0 * nothing.to(embedded.dtype)
        lacking.clear()
        return embedded

    backbone.register_forward_pre_hook(count, with_kwargs=True)
    backbone.get_input_embeddings().register_forward_hook(fill)


def _black(backbone: Any, device: torch.device) -> torch.Tensor:
    """The sum of the features of the smallest video there is."""
    vision: Any = vision_config(backbone.config)
    side = vision.spatial_merge_size
    pixels = torch.zeros(side**2, vision.in_channels * vision.temporal_patch_size * vision.patch_size**2, device=device)
    grid = torch.tensor([[1, side, side]], device=device)
    return backbone.get_video_features(pixels, grid, return_dict=True).pooler_output[0].sum()


def _silence(backbone: Any, device: torch.device) -> torch.Tensor:
    """The sum of the features of the shortest sound there is."""
    audio: Any = audio_config(backbone.config)
    return backbone.heard(torch.zeros(4, audio.num_mel_bins, device=device), torch.tensor([4], device=device)).sum()


def _tower_inputs(evidence: tuple[Evidence, ...]) -> set[str]:
    """Names of what a row's forward gives to towers: one for each call."""
    pictures = {_PIXELS[isinstance(e, Moving)] for e in evidence if isinstance(e, Visual)}
    return pictures | ({_HEARD} if heard(evidence) else set())


def _tower_of(model: Any, name: str) -> Any:
    return audio_tower(model) if name == _HEARD else vision_tower(model)


def _is_waited_for(tower: Any) -> bool:
    """Not where every rank has the whole tower, and nothing of it is averaged."""
    return tower is not None and (shards_weights() or any(weight.requires_grad for weight in tower.parameters()))


def _all(pairs: Mapping[str, Sequence[Pair]]) -> list[Pair]:
    return [pair for rows in pairs.values() for pair in rows]


def _asked(engine: str) -> bool:
    """Whether `accelerate launch` uses an engine."""
    return os.environ.get(f"ACCELERATE_USE_{engine}", "false").lower() == "true"
