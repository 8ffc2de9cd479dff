"""Which facts are shown, and everything about a clip that is not a fact: place, speed, light, what else lies about.

A `Scene` fixes a step down to the last pixel; it is drawn from a random generator made of (seed, stream, index), so
that the same seed gives the same scenes and different streams never share one.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .motion import Motion, draw_motion
from .vocabulary import INGREDIENTS, ROLES, TOOLS, Facts

SIZE_PX = 84
FPS = 8
CLIP_FRAMES = 16
LYING_SHARE = 0.8  # how often an unused ingredient (and, apart from it, an unused tool) lies about
CORNERS = ((13, 13), (SIZE_PX - 13, 13), (13, SIZE_PX - 13), (SIZE_PX - 13, SIZE_PX - 13))


@dataclass(frozen=True)
class Lying:
    """An object that is visible but not used: small, still, in a corner (`centre_xy`, pixels)."""

    role: str
    name: str
    centre_xy: tuple[float, float]
    angle_deg: float


@dataclass(frozen=True)
class Scene:
    """One step, ready to be drawn; lengths in pixels, `noise` in grey levels."""

    facts: Facts
    motion: Motion
    lying: tuple[Lying, ...]
    ingredient_xy: tuple[float, float]
    scale: float
    tilt_deg: float
    brightness: float
    noise: float
    noise_seed: int
    frames: int

    def distractors(self) -> dict[str, list[str]]:
        """Role -> names of what is visible but not used."""
        return {role: [it.name for it in self.lying if it.role == role] for role in ("Ingredient", "Tool")}


def generator(seed: int, stream: str, index: int = 0) -> np.random.Generator:
    """The random generator of one item of one named stream."""
    return np.random.default_rng([seed, zlib.crc32(stream.encode()), index])


def choose_facts(rng: np.random.Generator, candidates: Sequence[Facts], count: int) -> list[Facts]:
    """`count` combinations, as different as can be, in which the values of each role are nearly equally frequent."""
    used: Counter[Facts] = Counter()
    seen: Counter[tuple[str, str]] = Counter()
    chosen: list[Facts] = []
    for _ in range(count):
        tried = [candidates[i] for i in rng.choice(len(candidates), size=min(24, len(candidates)), replace=False)]
        facts = min(tried, key=lambda f: (used[f], sum(seen[role, f.value(role)] ** 2 for role in ROLES)))
        used[facts] += 1
        seen.update((role, facts.value(role)) for role in ROLES)
        chosen.append(facts)
    return chosen


def choose_steps(rng: np.random.Generator, candidates: Sequence[Facts], count: int) -> list[Facts]:
    """The steps of one longer video: no action, ingredient or tool comes twice, and each step moves elsewhere."""
    steps: list[Facts] = []
    while len(steps) < count:
        facts = candidates[int(rng.integers(len(candidates)))]
        again = any(
            facts.value(role) == step.value(role) for step in steps for role in ("Action", "Ingredient", "Tool")
        )
        if not again and (not steps or steps[-1].location != facts.location):
            steps.append(facts)
    return steps


def draw_scene(rng: np.random.Generator, facts: Facts, frames: int = CLIP_FRAMES) -> Scene:
    """A random scene in which `facts` are true."""
    middle = SIZE_PX / 2
    x, y = middle + rng.uniform(-4, 4), middle + rng.uniform(-4, 4)
    return Scene(
        facts=facts,
        motion=draw_motion(rng, facts.action, (x, y), frames / FPS),
        lying=_lay_about(rng, facts),
        ingredient_xy=(x, y),
        scale=rng.uniform(0.92, 1.08),
        tilt_deg=rng.uniform(-12, 12),
        brightness=rng.uniform(0.85, 1.05),
        noise=rng.uniform(1.0, 4.0),
        noise_seed=int(rng.integers(2**32)),
        frames=frames,
    )


def _lay_about(rng: np.random.Generator, facts: Facts) -> tuple[Lying, ...]:
    corners = rng.permutation(len(CORNERS)).tolist()
    lying = []
    for corner, (role, names, used) in zip(
        corners, (("Ingredient", INGREDIENTS, facts.ingredient), ("Tool", TOOLS, facts.tool)), strict=False
    ):
        others = [name for name in names if name != used]
        name, angle_deg = others[rng.integers(len(others))], float(rng.uniform(-35, 35))
        x, y = CORNERS[corner]
        if rng.random() < LYING_SHARE:
            lying.append(Lying(role, name, (x + rng.uniform(-2, 2), y + rng.uniform(-2, 2)), angle_deg))
    return tuple(lying)
