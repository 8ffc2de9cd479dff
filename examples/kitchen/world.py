"""The whole folder: what is in it for which settings, written once and recognised again.

annotations.json        single-step clips (clips/*.mp4)
annotations_long.json   steps of narrated videos (long/*.mp4, with *.srt and *.json beside them)
pretrain.json           captions only (pretrain/*.mp4), where asked for
world.json              settings, vocabulary and counts; written last, so a folder that has it is whole
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tqdm import tqdm

from proofreel.core import ConfigError

from .annotating import annotate, count_claims, cues, describe, to_srt
from .encoding import write_video
from .filming import SPLITS, Video, film, plan_clips, plan_long
from .sampling import FPS, SIZE_PX
from .vocabulary import VALUES

VERSION = 3  # raise it when the same settings come to give other frames or annotations
CLIPS = (480, 60, 120, 220)
LONG = (24, 6, 8, 12)


@dataclass(frozen=True)
class Settings:
    """All that decides what is made; counts in the order of `SPLITS`."""

    seed: int = 0
    clips: tuple[int, ...] = CLIPS
    long: tuple[int, ...] = LONG
    pretrain: int = 0


def make_world(out: Path, settings: Settings) -> bool:
    """Make the folder; False if it is already there with these settings.

    Raises:
        ConfigError: it is there with other settings, a count is negative, or a split is too small to be balanced.
    """
    if min((*settings.clips, *settings.long, settings.pretrain, settings.seed)) < 0:
        raise ConfigError(f"kitchen: counts and seed cannot be negative, got {settings}; use 0 for none")
    wanted = json.loads(json.dumps({"version": VERSION, **dataclasses.asdict(settings)}))
    if (out / "world.json").is_file():
        _refuse_other(out, wanted)
        return False
    clips = [plan_clips(settings.seed, split, n) for split, n in zip(SPLITS, settings.clips, strict=True)]
    long = [plan_long(settings.seed, split, n) for split, n in zip(SPLITS, settings.long, strict=True)]
    pretrain = plan_clips(settings.seed, "train", settings.pretrain, "pretrain")
    claims = {
        "annotations.json": _annotations(settings.seed, clips, "clips"),
        "annotations_long.json": _annotations(settings.seed, long, "long"),
    }
    out.mkdir(parents=True, exist_ok=True)
    videos = [v for group in (*clips, *long, pretrain) for v in group]
    # Each file depends on its own seed alone, so that the number of processes changes nothing.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        made = pool.map(partial(_make_video, out), videos, chunksize=16)
        for _ in tqdm(made, total=len(videos), desc=str(out), unit="video"):
            pass
    for name, rows in claims.items():
        _write_json(out / name, rows)
    if pretrain:
        _write_json(out / "pretrain.json", [describe(video, video.steps[0]) for video in pretrain])
    _write_json(out / "world.json", {**wanted, **_summary(claims)})
    return True


def _make_video(out: Path, video: Video) -> None:
    write_video(out / video.path, film(video), FPS)
    if cues(video):
        _write_json(out / f"{video.name}.json", cues(video))
        (out / f"{video.name}.srt").write_text(to_srt(video))


def _annotations(seed: int, videos_of_splits: Sequence[Sequence[Video]], name: str) -> list[dict[str, Any]]:
    rows = []
    for split, videos in zip(SPLITS, videos_of_splits, strict=True):
        rows += annotate(seed, videos, f"{name}/{split}") if videos else []
    return rows


def _summary(claims: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    counts = {
        name: {split: count_claims([row for row in rows if row["split"] == split]) for split in SPLITS}
        for name, rows in claims.items()
    }
    return {"fps": FPS, "size_px": SIZE_PX, "values": VALUES, "claims": counts}


def _refuse_other(out: Path, wanted: dict[str, Any]) -> None:
    there = json.loads((out / "world.json").read_text())
    if other := {key: there.get(key) for key in wanted if there.get(key) != wanted[key]}:
        raise ConfigError(f"{out}: holds a kitchen made otherwise, got {other}; name another folder or remove it")


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
