"""Pretrain the kitchen's base: a tiny Qwen2.5-VL, from scratch, as a captioner that was never asked for a verdict.

python -m examples.kitchen.pretrain --out runs/kitchen-base                  # about an hour on two CPU cores
python -m examples.kitchen.pretrain --out runs/kitchen-base --device cuda
python -m examples.kitchen.pretrain --out runs/kitchen-base --steps 20      # a look

Stopped, it goes on from OUT.state.pt when called again with the same --out and --seed.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from examples.kitchen.lessons import SYSTEM, corpus
from examples.kitchen.measure import held_out_accuracy
from examples.kitchen.teaching import POINTS, Teacher, lessons_about, losses, shoot
from proofreel.models.backbone import load_backbone, vision_layout
from proofreel.models.prompt import Prompt
from proofreel.models.tiny import TinySizes, save_tiny_model

SIZES = TinySizes(
    hidden=128,
    layers=4,
    heads=4,
    mlp=256,
    vision_hidden=96,
    vision_depth=3,
    vision_mlp=192,
    vocab=640,
    min_pixels=84 * 84,
    max_pixels=84 * 84,
    initializer_range=0.08,  # near 1 / sqrt(width): with the usual 0.02 so narrow a model starts all but linear
)
STEPS = 1800
CLIPS_A_STEP = 24
CLIPS = 12288  # drawn when first needed, then kept: each is met a few times, with other lessons
LEARNING_RATE, WEIGHT_DECAY, CLIP_NORM, WARMUP = 1.5e-3, 0.05, 1.0, 100
POINTING_WEIGHT = 1.0
MEASURE_EVERY, MEASURED = 100, 128


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and pretrain."""
    parser = argparse.ArgumentParser(description="Pretrain the kitchen's base model.")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint folder to write")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"optimiser steps (default {STEPS})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default 2)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    seconds, losses = pretrain(args.out, args.steps, args.seed, args.device)
    print(f"{args.out}: {args.steps} steps, last loss {losses[-1]:.4f}, {seconds / 60:.1f} minutes on {args.device}")
    return 0


def pretrain(out: Path, steps: int, seed: int = 0, device: str = "cpu") -> tuple[float, list[float]]:
    """Train, measure and save; goes on where a stopped run left its state file.

    Returns:
        Seconds of training, those of earlier calls included, and the loss of every step.
    """
    state_file = out.with_name(f"{out.name}.state.pt")
    save_tiny_model(out, _texts(), SIZES, seed)
    model = _load(out, device)
    pointer = torch.nn.Linear(SIZES.hidden, POINTS, device=device)
    torch.nn.init.zeros_(pointer.weight)
    torch.nn.init.zeros_(pointer.bias)
    pupil = torch.nn.ModuleList([model, pointer])
    optimiser = torch.optim.AdamW(pupil.parameters(), LEARNING_RATE, betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY)
    history, before_s = _resume(state_file, pupil, optimiser) if state_file.is_file() else ([], 0.0)
    layout = vision_layout(model.config)
    teacher = Teacher(out, layout)
    clip = lru_cache(maxsize=None)(lambda index: shoot(seed, index))
    began = time.monotonic()
    progress = tqdm(range(len(history), steps), initial=len(history), total=steps, desc="pretraining", unit="step")
    for step in progress:
        for group in optimiser.param_groups:
            group["lr"] = LEARNING_RATE * rate(step, steps)
        rng = np.random.default_rng([seed, step])
        clips = [clip(int(i)) for i in rng.integers(CLIPS, size=CLIPS_A_STEP)]
        batch = {k: v.to(device) for k, v in teacher.batch(clips, [lessons_about(c, rng) for c in clips]).items()}
        history.append(_learn(pupil.train(), optimiser, batch, layout))
        told, pointed = np.mean(history[-50:], 0)
        progress.set_postfix(loss=f"{told:.4f}", pointing=f"{pointed:.4f}")
        if (step + 1) % MEASURE_EVERY == 0 or step + 1 == steps:
            seconds = before_s + time.monotonic() - began
            _save(out, state_file, pupil, optimiser, history, seconds)
            found = held_out_accuracy(_load(out, device), teacher, MEASURED)
            shares = "  ".join(f"{role} {share:.3f}" for role, share in found.items())
            progress.write(
                f"step {step + 1}  {seconds:.0f} s  loss {told:.4f}  pointing {pointed:.4f}  held out: {shares}"
            )
    return before_s + time.monotonic() - began, [told for told, _ in history]


def rate(step: int, steps: int) -> float:
    """Share of the learning rate at a step: a short rise, then half a cosine down to a fiftieth."""
    warm = min(1.0, (step + 1) / WARMUP)
    return warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def _texts() -> list[str]:
    # The verifier's own words too, that its prompt be short: read by the tokenizer's trainer alone, never by the model.
    verifier = [Prompt().system, Prompt().claim, Prompt().context, Prompt().transcript, "first now next then"]
    return [*corpus(), *([SYSTEM, *verifier] * 200)]


def _load(directory: Path, device: str) -> Any:
    model: Any = load_backbone(directory)
    return model.to(device)


def _learn(pupil: Any, optimiser: torch.optim.Optimizer, batch: dict[str, torch.Tensor], layout: Any) -> list[float]:
    """One step; the losses of the lessons and of pointing."""
    told, pointed = losses(pupil[0], pupil[1], batch, layout)
    (told + POINTING_WEIGHT * pointed).backward()
    torch.nn.utils.clip_grad_norm_(pupil.parameters(), CLIP_NORM)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return [told.item(), pointed.item()]


def _save(out: Path, state_file: Path, pupil: Any, optimiser: Any, history: list[list[float]], seconds: float) -> None:
    """The checkpoint in bfloat16, and all that a later call needs to go on."""
    copy.deepcopy(pupil[0]).to(torch.bfloat16).save_pretrained(out)
    state = {"pupil": pupil.state_dict(), "optimiser": optimiser.state_dict(), "history": history, "seconds": seconds}
    torch.save(state, state_file.with_suffix(".new"))
    state_file.with_suffix(".new").replace(state_file)


def _resume(state_file: Path, pupil: Any, optimiser: Any) -> tuple[list[list[float]], float]:
    state = torch.load(state_file, weights_only=True)
    pupil.load_state_dict(state["pupil"])
    optimiser.load_state_dict(state["optimiser"])
    return state["history"], state["seconds"]


if __name__ == "__main__":
    raise SystemExit(main())
