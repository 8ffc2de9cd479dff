"""Pretrain the kitchen's base: a tiny Qwen2.5-VL, or another family, from scratch, as a captioner never asked to judge.

python -m examples.kitchen.pretrain --out runs/kitchen-base                  # about twenty minutes on two CPU cores
python -m examples.kitchen.pretrain --out runs/kitchen-base --device cuda
python -m examples.kitchen.pretrain --out runs/kitchen-qwen3vl --model_type qwen3_vl
python -m examples.kitchen.pretrain --out runs/kitchen-base --steps 20      # a look
python -m examples.kitchen.pretrain --out runs/kitchen-base-large --large --device cuda --steps 4000 --tower_steps 2000

Stopped, it goes on from OUT.state.pt when called again with the same --out and --seed.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
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
from examples.kitchen.teaching import Teacher, lesson_loss, lessons_about, shoot
from examples.kitchen.tower import teach_tower
from proofreel.core import Prompt
from proofreel.models.backbones import BACKBONES, TinySizes, load_backbone, save_tiny_model, vision_layout
from proofreel.models.engine import to_device

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
# About thirty times the parameters, for a GPU. Steps and rate of so large a one have not been tried out.
LARGE = dataclasses.replace(
    SIZES,
    hidden=384,
    layers=8,
    heads=6,
    mlp=1024,
    vision_hidden=256,
    vision_depth=6,
    vision_mlp=768,
    initializer_range=0.05,
)
LARGE_CALM = 0.4  # of the learning rate
TOWER_STEPS = 500  # of the tower alone
STEPS = 1000  # of captioning
CLIPS_A_STEP = 24
CLIPS = 12288  # drawn when first needed, then kept: each is met a few times, with other lessons
LEARNING_RATE, WEIGHT_DECAY, CLIP_NORM, WARMUP = 1.5e-3, 0.05, 1.0, 100
MEASURE_EVERY, MEASURED = 100, 128


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and pretrain."""
    parser = argparse.ArgumentParser(description="Pretrain the kitchen's base model.")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint folder to write")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"optimiser steps (default {STEPS})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default 2)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    seeing = [kind for kind, backbone in BACKBONES.items() if backbone.sees]
    parser.add_argument("--model_type", default="qwen2_5_vl", choices=seeing, help="family (default qwen2_5_vl)")
    parser.add_argument("--large", action="store_true", help="a wider and deeper model, for a GPU")
    parser.add_argument("--tower_steps", type=int, default=TOWER_STEPS, help=f"before (default {TOWER_STEPS})")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    sizes, calm = (LARGE, LARGE_CALM) if args.large else (SIZES, 1.0)
    seconds, losses = pretrain(
        args.out,
        args.steps,
        args.seed,
        args.device,
        args.tower_steps,
        model_type=args.model_type,
        sizes=sizes,
        calm=calm,
    )
    print(f"{args.out}: {args.steps} steps, last loss {losses[-1]:.4f}, {seconds / 60:.1f} minutes on {args.device}")
    return 0


def pretrain(
    out: Path,
    steps: int,
    seed: int = 0,
    device: str = "cpu",
    tower_steps: int = TOWER_STEPS,
    *,
    model_type: str = "qwen2_5_vl",
    sizes: TinySizes = SIZES,
    begun: bool = False,
    calm: float = 1.0,
) -> tuple[float, list[float]]:
    """Teach the tower, then the whole model; measure and save; goes on where a stopped run left its state file.

    Args:
        out: checkpoint folder.
        steps: of captioning.
        seed: of weights and clips.
        device: to train on.
        tower_steps: of the tower alone, before.
        model_type: family of the model.
        sizes: of the model, where it starts at random.
        begun: start from the checkpoint in `out`, and not at random.
        calm: factor of the learning rate.

    Returns:
        Seconds of training, those of earlier calls included, and the loss of every captioning step.
    """
    state_file = out.with_name(f"{out.name}.state.pt")
    if not begun:
        save_tiny_model(out, _texts(), sizes, seed, model_type)
    model = _load(out, device)
    layout = vision_layout(model.config)
    teacher = Teacher(out, layout)
    clip = lru_cache(maxsize=None)(lambda index: shoot(seed, index))
    began, resumed = time.monotonic(), state_file.is_file()
    if tower_steps and not resumed:
        right = teach_tower(model.train(), teacher, clip, CLIPS, tower_steps, seed)
        print(f"tower: {right:.3f} of the throw-away heads' last answers right, {time.monotonic() - began:.0f} s")
    optimiser = torch.optim.AdamW(model.parameters(), LEARNING_RATE, betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY)
    losses, before_s = _resume(state_file, model, optimiser) if resumed else ([], 0.0)
    if not resumed:
        _save(out, state_file, model, optimiser, losses, time.monotonic() - began)
    progress = tqdm(range(len(losses), steps), initial=len(losses), total=steps, desc="pretraining", unit="step")
    for step in progress:
        for group in optimiser.param_groups:
            group["lr"] = calm * LEARNING_RATE * rate(step, steps)
        rng = np.random.default_rng([seed, step])
        clips = [clip(int(i)) for i in rng.integers(CLIPS, size=CLIPS_A_STEP)]
        batch = to_device(teacher.batch(clips, [lessons_about(c, rng) for c in clips]), device)
        losses.append(_learn(model.train(), optimiser, batch, layout))
        progress.set_postfix(loss=f"{np.mean(losses[-50:]):.4f}")
        if (step + 1) % MEASURE_EVERY == 0 or step + 1 == steps:
            seconds = before_s + time.monotonic() - began
            _save(out, state_file, model, optimiser, losses, seconds)
            shares = held_out_accuracy(_load(out, device), teacher, MEASURED)
            measured = "  ".join(f"{role} {share:.3f}" for role, share in shares.items())
            progress.write(f"step {step + 1}  {seconds:.0f} s  loss {np.mean(losses[-50:]):.4f}  held out: {measured}")
    return before_s + time.monotonic() - began, losses


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


def _learn(model: Any, optimiser: torch.optim.Optimizer, batch: dict[str, Any], layout: Any) -> float:
    loss = lesson_loss(model, batch, layout)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return loss.item()


def _save(out: Path, state_file: Path, model: Any, optimiser: Any, losses: list[float], seconds: float) -> None:
    """The checkpoint in bfloat16, and all that a later call needs to go on."""
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(out)
    state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "losses": losses, "seconds": seconds}
    torch.save(state, state_file.with_suffix(".new"))
    state_file.with_suffix(".new").replace(state_file)


def _resume(state_file: Path, model: Any, optimiser: Any) -> tuple[list[float], float]:
    state = torch.load(state_file, weights_only=True)
    model.load_state_dict(state["model"])
    optimiser.load_state_dict(state["optimiser"])
    return state["losses"], state["seconds"]


if __name__ == "__main__":
    raise SystemExit(main())
