"""Scene -> frames: the location as the ground, the ingredient in its middle, the tool moving over it.

Everything that stands still is painted once, oversampled; each frame pastes the tool and adds light and noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from .motion import positions
from .sampling import FPS, SIZE_PX, Scene
from .shapes import Colour, Part, box, ingredient, oval, tool

OVERSAMPLE = 3
RIM_PX = 1.6
LYING_SCALE = 0.5
TABLE: Colour = (240, 236, 226)
HANDLE_PX, LYING_HANDLE_PX = 80.0, 16.0  # a used tool comes from beyond the frame, a lying one ends within it
MIDDLE = SIZE_PX / 2
SPRITE_PX, HEAD_AT = (84, 120), (42, 86)  # room for the handle above, and for the widest head on all other sides
NOISE = np.random.default_rng(0).standard_normal(2**20, dtype=np.float32)  # frames take slices of it: cheaper than new

LOCATION_COLOUR: dict[str, Colour] = {
    "cutting board": (222, 184, 128),
    "pan": (52, 54, 62),
    "bowl": (112, 204, 214),
    "oven tray": (150, 154, 164),
}


def draw_frames(scene: Scene, indices: Sequence[int] | np.ndarray | None = None) -> np.ndarray:
    """The frames of a scene.

    Args:
        scene: what to draw.
        indices: frame numbers at 8 fps; all of them by default. A frame looks the same whichever others are drawn.

    Returns:
        Shape (F, 84, 84, 3), uint8 RGB.
    """
    chosen = np.arange(scene.frames) if indices is None else np.asarray(indices)
    ground, sprite = draw_ground(scene), draw_tool(scene)
    heads_xy = positions(scene.motion, chosen / FPS)
    frames = []
    for index, head_xy in zip(chosen, heads_xy, strict=True):
        frame = ground.copy()
        frame.paste(sprite, sprite_corner(head_xy), sprite)
        frames.append(_expose(np.asarray(frame), scene, int(index)))
    return np.stack(frames)


def draw_ground(scene: Scene, with_lying: bool = True) -> Image.Image:
    """All that stands still, before light and noise; without the lying objects to see what they add."""
    side = SIZE_PX * OVERSAMPLE
    image = Image.new("RGB", (side, side), TABLE)
    brush = ImageDraw.Draw(image)
    _paint_location(brush, scene.facts.location)
    for it in scene.lying if with_lying else ():
        parts = ingredient(it.name) if it.role == "Ingredient" else tool(it.name, LYING_HANDLE_PX)
        drop = 0.0 if it.role == "Ingredient" or it.name == "rolling pin" else 9.0  # centre head and handle together
        _paint(brush, _moved(parts, drop), it.centre_xy, LYING_SCALE, it.angle_deg)
    _paint(brush, ingredient(scene.facts.ingredient), scene.ingredient_xy, scene.scale, 0.0)
    return image.reduce(OVERSAMPLE)


def draw_tool(scene: Scene) -> Image.Image:
    """The used tool alone on a transparent ground, the middle of its head at `HEAD_AT`."""
    image = Image.new("RGBA", (SPRITE_PX[0] * OVERSAMPLE, SPRITE_PX[1] * OVERSAMPLE), (0, 0, 0, 0))
    _paint(ImageDraw.Draw(image), tool(scene.facts.tool, HANDLE_PX), HEAD_AT, scene.scale, scene.tilt_deg)
    return image.reduce(OVERSAMPLE)


def sprite_corner(head_xy: np.ndarray) -> tuple[int, int]:
    """Where to paste the tool so that the middle of its head lies at `head_xy`."""
    return round(head_xy[0]) - HEAD_AT[0], round(head_xy[1]) - HEAD_AT[1]


def _expose(pixels: np.ndarray, scene: Scene, index: int) -> np.ndarray:
    start = (scene.noise_seed + 7919 * index) % (NOISE.size - pixels.size)
    noise = NOISE[start : start + pixels.size].reshape(pixels.shape)
    exposed = pixels * np.float32(scene.brightness) + noise * np.float32(scene.noise)
    return np.clip(exposed, 0, 255).astype(np.uint8)


def _paint_location(brush: ImageDraw.ImageDraw, location: str) -> None:
    colour = LOCATION_COLOUR[location]
    if location in ("pan", "bowl"):
        rim = (24, 24, 28) if location == "pan" else (36, 110, 150)
        _paint(
            brush, [Part(oval(0, 0, 41, 41), rim), Part(oval(0, 0, 35, 35), colour, rim)], (MIDDLE, MIDDLE), 1.0, 0.0
        )
        return
    stripe = (196, 150, 92) if location == "cutting board" else (96, 100, 112)
    parts = [Part(box(-39, -39, 39, 39), colour)]
    for at in (-26, 0, 26):
        parts.append(Part(box(-38, at - 4, 38, at + 4), stripe, stripe))
        if location == "oven tray":
            parts.append(Part(box(at - 4, -38, at + 4, 38), stripe, stripe))
    _paint(brush, parts, (MIDDLE, MIDDLE), 1.0, 0.0)


def _moved(parts: list[Part], down_px: float) -> list[Part]:
    return [Part(part.corners + np.array([0, down_px]), part.fill, part.rim) for part in parts]


def _paint(
    brush: ImageDraw.ImageDraw, parts: Sequence[Part], centre_xy: tuple[float, float], scale: float, angle_deg: float
) -> None:
    """Parts in order, each with its rim below it, turned around (0, 0), scaled and then placed."""
    angle = np.radians(angle_deg)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    outlines = [[tuple(xy) for xy in (part.corners @ turn.T * scale + centre_xy) * OVERSAMPLE] for part in parts]
    width = round(2 * RIM_PX * scale * OVERSAMPLE)
    for part, outline in zip(parts, outlines, strict=True):
        joint = "curve" if len(outline) < 20 else None  # ovals have no corners worth rounding
        brush.line([*outline, *outline[:2]], fill=part.rim, width=width, joint=joint)
        brush.polygon(outline, fill=part.fill)
