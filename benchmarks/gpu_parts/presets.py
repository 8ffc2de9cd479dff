"""The first two steps of every preset, by the very code that trains: rows on disk, shape and settings of the preset.

Weights are random, frames are noise in image files, and a row is as long as the preset allows: its most frames, pixels
and claims. Presets of several cards are run where one card holds them without their sharding.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import yaml

from benchmarks.gpu_parts.cells import Part, Setting, Values
from benchmarks.gpu_parts.measuring import peak_gib
from benchmarks.gpu_parts.networks import ROOT, TINY, checkpoint, free
from benchmarks.gpu_parts.training import Trained
from proofreel.core import Frames, Label, Pair, Passage
from proofreel.data_prep.dataset import MANIFEST, SCHEMA_VERSION, write_shards
from proofreel.models.backbones import backbone_for, published_config
from proofreel.train.arguments import parse
from proofreel.train.curves import read_metrics
from proofreel.train.memory import GIB, Engine, estimate_run
from proofreel.train.recipe import run

CONFIGS = ROOT / "configs"
USABLE = 0.95  # of a card
STEPS = 2


def preset_settings(args: Any) -> Iterable[Setting]:
    """Presets of one process on published shapes, smallest families first as their names sort."""
    for path in sorted(CONFIGS.glob("qwen*.yaml")):
        if args.presets is None or path.stem in args.presets:
            yield {"preset": path.stem}


def preset_cell(args: Any, setting: Setting) -> Values:
    """Train two steps; seconds of all of it (loading included), peak memory beside the estimate."""
    Trained.drop(args.device)
    path = CONFIGS / f"{setting['preset']}.yaml"
    place = args.work / "presets" / path.stem
    shutil.rmtree(place, ignore_errors=True)
    config = published_config(yaml.safe_load(path.read_text(encoding="utf-8"))["model_name_or_path"])
    sees = backbone_for(config.model_type).sees
    words = _words(args, place, sees)
    with _bfloat16_allowed():
        arguments, training, model = parse(["--config", str(path), *words])
    needed = estimate_run(config, arguments, training, model, Engine(), head="nli" in path.stem.split("_")).gib
    if args.device == "cuda" and needed > USABLE * torch.cuda.get_device_properties(0).total_memory / GIB:
        return {"estimated GiB": needed, "what happened": "not run: more than this card holds"}
    name = model.model_name_or_path if args.shapes[0] != TINY else TINY
    base = checkpoint(str(name), args.work, args.device, model_type=config.model_type)
    small = args.shapes[0] == TINY
    frames, claims = (4, 2) if small else (arguments.max_frames, arguments.claims_per_row)
    side = 84 if small else int(arguments.max_pixels**0.5) // 28 * 28
    write_rows(place / "data", frames if sees else 0, side, claims)
    words += ["--model_name_or_path", str(base), "--dataset_dir", str(place / "data")]
    words += ["--max_frames", str(frames), "--max_pixels", str(side * side), "--min_pixels", str(side * side)]
    with _bfloat16_allowed():
        parsed = parse(["--config", str(path), *words, *(_small_words(model) if small else [])])
    try:
        gib = peak_gib(
            lambda: run(*parsed, head_kind="nli" if "nli" in path.stem.split("_") else "next_token"), args.device
        )
        losses = [line["loss"] for line in read_metrics(place / "run" / "metrics.jsonl") if "loss" in line]
    finally:
        free(args.device)
        shutil.rmtree(place, ignore_errors=True)
    return {"estimated GiB": needed, "GiB": gib, "loss": losses[-1], "what happened": f"{STEPS} steps"}


def _bfloat16_allowed() -> Any:
    """Presets ask for a GPU that has it; their shapes are read on a CPU too."""
    return mock.patch("torch.cuda.is_bf16_supported", return_value=True)


def _words(args: Any, place: Path, sees: bool) -> list[str]:
    words = {"output_dir": place / "run", "max_steps": STEPS, "gradient_accumulation_steps": 1, "logging_steps": 1}
    words |= {"save_strategy": "no", "eval_strategy": "no", "load_best_model_at_end": "false", "report_to": "none"}
    words |= {"disable_tqdm": "true", "dataloader_num_workers": 0}
    words |= {"vision_cache": place / "features"} if sees else {}
    words |= {"use_cpu": "true"} if args.device == "cpu" else {}
    return [str(word) for name, value in words.items() for word in (f"--{name}", value)]


def _small_words(model: Any) -> list[str]:
    """What a CPU takes of a preset: float32, and no quantisation, which needs rows as wide as its blocks."""
    return ["--dtype", "float32", "--bf16", "false", *(["--load_in_4bit", "false"] if model.load_in_4bit else [])]


def write_rows(folder: Path, n_frames: int, side: int, n_claims: int) -> None:
    """A data set of two rows: noise in PNG files, or passages, and claims of two kinds about each."""
    from PIL import Image

    folder.mkdir(parents=True)
    rng, pairs = np.random.default_rng(0), []
    for row in range(STEPS):
        paths = [str(folder / f"{row}-{i}.png") for i in range(n_frames)]
        for file in paths:
            Image.fromarray(rng.integers(256, size=(side, side, 3), dtype=np.uint8)).save(file, compress_level=1)
        evidence = Frames(paths, [0.5 * i for i in range(n_frames)]) if n_frames else Passage("The pan is red. " * 400)
        for i in range(n_claims):
            label: Label = "refuted" if i % 2 else "supported"
            claim = f"The pan number {i} stands on the stove of row {row}."
            ids: dict[str, Any] = {
                "id": f"{row}-{i}",
                "group": str(row),
                "split": "train",
                "modality": "video" if n_frames else "text",
            }
            pairs.append(Pair(claim=claim, evidence=(evidence,), label=label, **ids))
    manifest = {"schema_version": SCHEMA_VERSION, "media_root": ".", "shards": write_shards(folder, pairs)}
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


PRESETS = Part("presets", "Does every preset take its first two steps?", preset_settings, preset_cell)
