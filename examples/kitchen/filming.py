"""What each file shows: single steps, and longer videos of several steps with a narration."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .drawing import TABLE, draw_frames
from .sampling import FPS, SIZE_PX, Scene, choose_facts, choose_steps, draw_scene, generator
from .vocabulary import IMPLICIT_ROLES, ROLES, VALUES, Facts, caption, pool

SPLITS = ("train", "validation", "calibration", "test")
HELD_OUT_SPLITS = ("calibration", "test")
STEP_FRAMES = (16, 21)  # in a longer video, the last excluded
PAUSE_FRAMES = (2, 5)  # of bare table before each step
LONG_STEPS = (3, 6)
CONFLICT_SHARE = 0.3  # of narrated steps, where one role is said that is not shown


@dataclass(frozen=True)
class Narration:
    """What is said during a step, and the facts it tells: those shown, but for one role where it conflicts."""

    text: str
    facts: Facts


@dataclass(frozen=True)
class Step:
    """A scene on the time line of its video; `implicit` are the roles its short caption leaves unsaid."""

    scene: Scene
    start_frame: int
    implicit: tuple[str, ...]
    narration: Narration | None = None

    @property
    def start_s(self) -> float:
        """Seconds from the start of the video."""
        return self.start_frame / FPS

    @property
    def end_s(self) -> float:
        """Seconds from the start of the video; the first moment after the step."""
        return (self.start_frame + self.scene.frames) / FPS


@dataclass(frozen=True)
class Video:
    """One file to make: `name` is its path without a suffix."""

    name: str
    split: str
    steps: tuple[Step, ...]

    @property
    def path(self) -> str:
        """Of the mp4, relative to the world's folder."""
        return f"{self.name}.mp4"


def plan_clips(seed: int, split: str, count: int, folder: str = "clips") -> list[Video]:
    """Single-step videos of one split; calibration and test show held-out combinations, the others never do."""
    stream = f"{folder}/{split}"
    chosen = choose_facts(generator(seed, stream), pool(split in HELD_OUT_SPLITS), count)
    videos = []
    for index, facts in enumerate(chosen):
        rng = generator(seed, stream, index + 1)
        step = Step(draw_scene(rng, facts), 0, _leave_unsaid(rng))
        videos.append(Video(f"{stream}-{index:04d}", split, (step,)))
    return videos


def plan_long(seed: int, split: str, count: int) -> list[Video]:
    """Videos of three to five steps with a narration."""
    stream = f"long/{split}"
    videos = []
    for index in range(count):
        rng = generator(seed, stream, index + 1)
        steps: list[Step] = []
        frame = 0
        for facts in choose_steps(rng, pool(split in HELD_OUT_SPLITS), int(rng.integers(*LONG_STEPS))):
            frame += int(rng.integers(*PAUSE_FRAMES))
            scene = draw_scene(rng, facts, int(rng.integers(*STEP_FRAMES)))
            steps.append(Step(scene, frame, _leave_unsaid(rng), _narrate(rng, facts, first=not steps)))
            frame += scene.frames
        videos.append(Video(f"{stream}-{index:04d}", split, tuple(steps)))
    return videos


def film(video: Video) -> np.ndarray:
    """All frames of a video, shape (F, 84, 84, 3), uint8: its steps, and bare table between them."""
    last = video.steps[-1]
    frames = np.full((last.start_frame + last.scene.frames, SIZE_PX, SIZE_PX, 3), TABLE, np.uint8)
    for step in video.steps:
        frames[step.start_frame : step.start_frame + step.scene.frames] = draw_frames(step.scene)
    return frames


def _leave_unsaid(rng: np.random.Generator) -> tuple[str, ...]:
    """One to three roles, any of them."""
    bits = int(rng.integers(1, 2 ** len(IMPLICIT_ROLES)))
    return tuple(role for i, role in enumerate(IMPLICIT_ROLES) if bits >> i & 1)


def _narrate(rng: np.random.Generator, facts: Facts, first: bool) -> Narration:
    narrated, unsaid = facts, ()
    if rng.random() < CONFLICT_SHARE:
        role = ROLES[rng.integers(len(ROLES))]
        others = [value for value in VALUES[role] if value != facts.value(role)]
        narrated = replace(facts, **{role.lower(): others[rng.integers(len(others))]})
    elif rng.random() < 0.5:
        unsaid = _leave_unsaid(rng)
    opening = "first" if first else ("now", "next", "then")[rng.integers(3)]
    return Narration(f"{opening} {caption(narrated, unsaid)}", narrated)
