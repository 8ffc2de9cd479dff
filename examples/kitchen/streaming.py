"""Scenes without end for pretraining, drawn straight to arrays: no files, no codec, never a held-out combination."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .drawing import draw_frames
from .sampling import CLIP_FRAMES, FPS, Scene, draw_scene, generator
from .vocabulary import Facts, caption, pool


@dataclass(frozen=True)
class Sample:
    """One clip: `frames_FHWC` uint8 RGB, sampled at `times_s` (F,), what is true of it, and its full caption."""

    frames_FHWC: np.ndarray
    times_s: np.ndarray
    facts: Facts
    caption: str
    scene: Scene


def stream(seed: int, fps: float = 4.0, held_out: bool = False) -> Iterator[Sample]:
    """Random clips for ever, each combination equally likely; the same seed gives the same clips.

    Args:
        seed: of the stream. Files made by `make.py` come from streams of other names and are never met here.
        fps: frames per second to draw, 8 divided by a whole number; the first frame is drawn at random within a period.
        held_out: draw from the combinations kept for calibration and test, to measure; never to train.
    """
    candidates = pool(held_out)
    step = round(FPS / fps)
    index = 0
    while True:
        rng = generator(seed, "stream/held-out" if held_out else "stream", index)
        facts = candidates[int(rng.integers(len(candidates)))]
        scene = draw_scene(rng, facts)
        indices = np.arange(int(rng.integers(step)), CLIP_FRAMES, step)
        yield Sample(draw_frames(scene, indices), indices / FPS, facts, caption(facts), scene)
        index += 1
