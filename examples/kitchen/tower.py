"""The first stage of pretraining: the vision tower alone learns to see, under throw-away linear heads.

From captions alone a tower this small stays blind to motion for many hundred steps: the language model in between
passes it too little of the error. Here four linear classifiers, one per role, read its output directly; they are
dropped afterwards, and the captioning stage starts from a tower that tells the values apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from .streaming import Sample
from .teaching import Teacher, drawn_frames
from .vocabulary import ROLES, VALUES, Facts

CLIPS_A_STEP, LEARNING_RATE, WEIGHT_DECAY, CLIP_NORM, WARMUP = 32, 1.5e-3, 0.05, 1.0, 50


def teach_tower(
    model: Any, teacher: Teacher, clip: Callable[[int], Sample], n_clips: int, steps: int, seed: int
) -> float:
    """Train `model`'s vision tower in place for `steps` steps on clips drawn from `n_clips`.

    Returns:
        Share of right answers of the throw-away heads over the last fifty steps, averaged over roles.
    """
    tower, device = model.model.visual, model.device
    width = _features(model, teacher, [clip(0)]).shape[1]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        heads = torch.nn.Linear(width, sum(map(len, VALUES.values()))).to(device)
    parameters = [*tower.parameters(), *heads.parameters()]
    optimiser = torch.optim.AdamW(parameters, LEARNING_RATE, betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY)
    right: list[np.ndarray] = []
    progress = tqdm(range(steps), desc="tower", unit="step")
    for step in progress:
        for group in optimiser.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / WARMUP) * (1 - 0.9 * step / steps)
        rng = np.random.default_rng([seed, step, 1])
        clips = [clip(int(i)) for i in rng.integers(n_clips, size=CLIPS_A_STEP)]
        features = _features(model, teacher, clips)
        truth = torch.tensor([_indices(c.facts) for c in clips], device=device)
        parts = heads(features).split([len(values) for values in VALUES.values()], dim=1)
        loss = torch.stack([cross_entropy(part, truth[:, i]) for i, part in enumerate(parts)]).sum()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP_NORM)
        optimiser.step()
        right.append(np.array([float((part.argmax(1) == truth[:, i]).float().mean()) for i, part in enumerate(parts)]))
        if step % 25 == 24 or step + 1 == steps:
            shares = np.mean(right[-50:], axis=0)
            progress.set_postfix({role: f"{share:.2f}" for role, share in zip(ROLES, shares, strict=True)})
    return float(np.mean(right[-50:]))


def _features(model: Any, teacher: Teacher, clips: Sequence[Sample]) -> torch.Tensor:
    """(clips, tokens x width): the tower's output for each clip, which the language model will be given."""
    visions = [teacher.prefix(drawn_frames(clip)).vision for clip in clips]
    pixels, grids = (
        torch.cat([v[key] for v in visions]).to(model.device) for key in ("pixel_values_videos", "video_grid_thw")
    )
    features = model.model.get_video_features(pixels, grids, return_dict=True).pooler_output
    return torch.stack([tokens.flatten() for tokens in features])


def _indices(facts: Facts) -> list[int]:
    return [VALUES[role].index(facts.value(role)) for role in ROLES]
