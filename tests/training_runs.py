"""Data sets with other rows, and what a training run leaves, for the tests of training."""

import dataclasses
import json
import shutil
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file

from proofreel.core.pairs import Pair, VideoSegment
from proofreel.core.storage import sha256_of
from proofreel.data_prep.dataset.shards import read_split, shard_name, write_pairs
from proofreel.train.batching import group_pairs


def losses(folder: Path) -> list[float]:
    """The training losses of a run, as logged."""
    return [line["loss"] for line in metrics(folder) if "loss" in line]


def metrics(folder: Path) -> list[dict]:
    """The lines of a run's metrics.jsonl."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def adapter(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of a run's draft."""
    return load_file(folder / "draft" / "adapter" / "adapter_model.safetensors")


def with_rows(dataset: Path, folder: Path, pairs: Iterable[Pair], split: str = "train") -> Path:
    """A copy of a data set with other rows in one split."""
    if not folder.exists():
        shutil.copytree(dataset, folder)
    shard = folder / shard_name(split)
    write_pairs(shard, list(pairs))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["shards"][split][0]["sha256"] = sha256_of(shard)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def all_groups(dataset: Path) -> list[tuple[Pair, ...]]:
    """The rows of every split, by evidence: those with the fewest claims first."""
    every = [p for split in ("train", "validation", "calibration", "test") for p in read_split(dataset, split)]
    return sorted(group_pairs(every, 100), key=len)


def own_clips(dataset: Path, folder: Path, n_groups: int, change: Callable[[Pair], Pair] = lambda p: p) -> Path:
    """A data set whose training rows are `n_groups` groups, each judged against a clip of its own in `folder`."""
    (folder / "clips").mkdir(parents=True)
    rows = []
    for i, group in enumerate(all_groups(dataset)[-n_groups:]):
        piece = group[0].evidence[0]
        assert isinstance(piece, VideoSegment)
        path = shutil.copy(piece.path, folder / "clips" / f"{i}.mp4")
        evidence = (dataclasses.replace(piece, path=str(path)),)
        rows += [change(dataclasses.replace(p, id=f"{i}/{p.id}", split="train", evidence=evidence)) for p in group]
    return with_rows(dataset, folder / "data", rows)


def clip_of(pair: Pair) -> str:
    """The file that a row's evidence is a segment of."""
    segment = pair.evidence[0]
    assert isinstance(segment, VideoSegment)
    return segment.path


def free_port() -> int:
    """A port of the loopback that nobody listens on, for processes to meet at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
