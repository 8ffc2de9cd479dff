"""Outlines of ingredients and tools: lists of coloured polygons around (0, 0), in pixels of an 84-pixel frame, y down.

What must be recognised is several 14-pixel patches large and nothing in it is thinner than half a patch. Colour belongs
to ingredients; tools are black and white, distinguished by their silhouettes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Colour = tuple[int, int, int]

DARK: Colour = (30, 26, 28)
WHITE: Colour = (250, 250, 252)
BLACK: Colour = (18, 18, 24)


@dataclass(frozen=True)
class Part:
    """One polygon: corners of shape (N, 2), its fill, and the colour of the rim around it."""

    corners: np.ndarray
    fill: Colour
    rim: Colour = DARK


INGREDIENT_COLOUR: dict[str, Colour] = {
    "tomato": (222, 28, 30),
    "carrot": (255, 132, 0),
    "cheese": (255, 226, 32),
    "cucumber": (36, 166, 44),
    "blueberry": (38, 66, 228),
    "onion": (158, 36, 180),
    "salmon": (255, 122, 156),
    "potato": (128, 74, 30),
}


def oval(x: float, y: float, rx: float, ry: float) -> np.ndarray:
    """Corners of an ellipse around (x, y)."""
    angle = np.linspace(0, 2 * np.pi, 28, endpoint=False)
    return np.stack([x + rx * np.cos(angle), y + ry * np.sin(angle)], axis=1)


def box(left: float, top: float, right: float, bottom: float) -> np.ndarray:
    """Corners of an upright rectangle."""
    return polygon((left, top), (right, top), (right, bottom), (left, bottom))


def capsule(half_length: float, radius: float) -> np.ndarray:
    """Corners of a lying bar with round ends."""
    corners = oval(0, 0, radius, radius)
    return corners + np.sign(corners[:, :1].round(6)) * (half_length - radius, 0.0)


def polygon(*corners: tuple[float, float]) -> np.ndarray:
    """Corners as an array."""
    return np.array(corners, dtype=float)


def ingredient(name: str) -> list[Part]:
    """An ingredient about 40 pixels wide."""
    colour = INGREDIENT_COLOUR[name]
    return [Part(corners, colour) for corners in _BODIES[name]] + _DETAILS.get(name, [])


_BODIES: dict[str, list[np.ndarray]] = {
    "tomato": [oval(0, 1, 20, 18)],
    "carrot": [polygon((-24, 8), (-20, -3), (14, -14), (22, -2), (14, 12))],
    "cheese": [polygon((-22, 14), (22, 14), (22, 0), (10, -15), (-22, 3))],
    "cucumber": [capsule(26, 10)],
    "blueberry": [oval(-11, 8, 11, 11), oval(11, 8, 11, 11), oval(0, -8, 11, 11)],
    "onion": [polygon((-6, -20), (6, -20), (4, -12), (-4, -12)), oval(0, 3, 20, 15)],
    "salmon": [polygon((10, 0), (24, -14), (24, 14)), oval(-4, 0, 19, 13)],
    "potato": [oval(0, 0, 22, 14)],
}
_DETAILS: dict[str, list[Part]] = {
    "tomato": [Part(polygon((-9, -17), (0, -11), (9, -17), (3, -22), (-3, -22)), (20, 110, 30))],
    "carrot": [Part(polygon((14, -14), (27, -19), (25, -8), (29, 0), (20, 0)), (20, 130, 30))],
    "cheese": [Part(oval(-8, 7, 4, 4), (214, 160, 10)), Part(oval(11, 5, 4, 4), (214, 160, 10))],
}


def tool(name: str, handle_px: float) -> list[Part]:
    """A tool whose head is centred on (0, 0) and whose handle, if it has one, rises `handle_px` above the head."""
    if name == "rolling pin":
        return [Part(box(-31, -5, 31, 5), BLACK, WHITE), Part(box(-22, -9, 22, 9), WHITE, BLACK)]
    light = name in ("knife", "fork")
    fill, rim = (WHITE, BLACK) if light else (BLACK, WHITE)
    if name == "knife":
        grip = Part(box(-5, -17 - handle_px, 5, -17), BLACK, WHITE)
    else:
        grip = Part(box(-4, -10 - handle_px, 4, -8), fill, rim)
    return [grip, *(Part(corners, fill, rim) for corners in _HEADS[name]), *_SLOTS.get(name, [])]


_HEADS: dict[str, list[np.ndarray]] = {
    "knife": [polygon((-8, -18), (8, -18), (8, 8), (-8, 20))],
    "spoon": [oval(0, 1, 11, 14)],
    "fork": [
        polygon(
            *((-16, 16), (-16, -10), (16, -10), (16, 16), (9, 16), (9, -2), (3.5, -2), (3.5, 16)),
            *((-3.5, 16), (-3.5, -2), (-9, -2), (-9, 16)),
        )
    ],
    "spatula": [box(-14, -12, 14, 14)],
}
_SLOTS: dict[str, list[Part]] = {
    "spatula": [Part(box(-9, -6, -3, 9), WHITE, BLACK), Part(box(3, -6, 9, 9), WHITE, BLACK)]
}
