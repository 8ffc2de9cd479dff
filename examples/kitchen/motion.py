"""Where the tool is at each moment. The action is this and nothing else.

Every action visits the same disc around the ingredient about uniformly: back-and-forth strokes run at constant speed
along a chord through a random point of the disc, circles have a random radius, a resting tool rests anywhere in it.
So the place of the tool in one frame says (nearly) nothing about the action; two frames begin to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .vocabulary import ACTIONS

REACH_PX = 20.0  # radius of the disc all actions move in
PERIOD_S = (1.2, 1.6)  # of strokes and circles: nearly five samples or more a period at 4 fps
MAX_OFFSET = 0.65  # of a chord from the centre, in REACH_PX: keeps strokes longer than 30 px
CIRCLE_PX = (12.0, 17.0)


@dataclass(frozen=True)
class Motion:
    """One tool path. `centre_xy`: pixels, y down; `offset_px`: a chord's distance from the centre, or a circle's
    radius; `phase` in [0, 1) periods; `direction` is 1 or -1."""

    action: str
    centre_xy: tuple[float, float]
    offset_px: float
    period_s: float
    phase: float
    direction: int
    duration_s: float


def draw_motion(rng: np.random.Generator, action: str, home_xy: tuple[float, float], duration_s: float) -> Motion:
    """A random path of `action` in the disc around `home_xy`."""
    path = ACTIONS[action].path
    x_px, y_px = _point_in_disc(rng, REACH_PX)
    offset_px = x_px if abs(x_px) < MAX_OFFSET * REACH_PX else float(rng.uniform(-MAX_OFFSET, MAX_OFFSET)) * REACH_PX
    shift = (0.0, 0.0)
    if path == "circle":
        offset_px = math.sqrt(rng.uniform(CIRCLE_PX[0] ** 2, CIRCLE_PX[1] ** 2))
        shift = _point_in_disc(rng, REACH_PX - CIRCLE_PX[1] + 2.0)
    elif path == "still":
        shift = (x_px, y_px)
    centre_xy = (home_xy[0] + shift[0], home_xy[1] + shift[1])
    direction = 1 if rng.random() < 0.5 else -1
    return Motion(action, centre_xy, offset_px, rng.uniform(*PERIOD_S), rng.random(), direction, duration_s)


def positions(motion: Motion, times_s: np.ndarray) -> np.ndarray:
    """The centre of the tool's head at each time since the step began.

    Args:
        motion: the path.
        times_s: shape (F,), seconds.

    Returns:
        Shape (F, 2): x to the right and y down, in pixels.
    """
    movement = ACTIONS[motion.action]
    centre = np.asarray(motion.centre_xy)
    if movement.path == "still":
        return np.repeat(centre[None], len(times_s), axis=0)
    turns = motion.phase + motion.direction * times_s / motion.period_s
    if movement.path == "circle":
        angle = 2 * math.pi * turns
        return centre + motion.offset_px * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    along = _triangle(turns) if movement.path == "line" else motion.direction * (2 * times_s / motion.duration_s - 1)
    half_px = math.sqrt(REACH_PX**2 - motion.offset_px**2)
    angle = math.radians(movement.angle_deg)
    stroke, normal = np.array([math.cos(angle), -math.sin(angle)]), np.array([math.sin(angle), math.cos(angle)])
    return centre + half_px * along[:, None] * stroke + motion.offset_px * normal


def _triangle(turns: np.ndarray) -> np.ndarray:
    """A wave of constant speed between -1 and 1, period 1."""
    return 4 * np.abs((turns % 1.0) - 0.5) - 1


def _point_in_disc(rng: np.random.Generator, radius: float) -> tuple[float, float]:
    angle, distance = 2 * math.pi * rng.random(), radius * math.sqrt(rng.random())
    return distance * math.cos(angle), distance * math.sin(angle)
