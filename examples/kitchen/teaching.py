"""Clips and lessons to batches: as in the verifier (frames by time, processor, packing), with answers as targets.

Shape suffixes: _B rows, _T tokens of a row, _F frames, _N answer tokens of a batch, _V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy, pad

from proofreel.core import Prompt, VideoSegment
from proofreel.data_prep.media import Frames, FrameSampling, frame_times
from proofreel.models.backbones import load_processor
from proofreel.models.engine import IGNORED, collate, pack, packed_logits
from proofreel.models.inputs import EncodedEvidence, Encoder, Media, VisionLayout

from .drawing import draw_frames
from .lessons import SYSTEM, Lesson, draw_lessons
from .motion import positions
from .sampling import CLIP_FRAMES, FPS, draw_scene, generator
from .streaming import Sample
from .vocabulary import caption, pool

SAMPLING = FrameSampling(fps=4.0, min_frames=4, max_frames=8, min_pixels=84 * 84, max_pixels=84 * 84)
LONGEST_FRAMES = 20  # of a step in a longer video
END = "<|im_end|>"


def shoot(seed: int, index: int) -> Sample:
    """One clip to learn from, with the very frames that `read_frames` would choose from its file.

    Half are as long as the single-step clips, half as long as the steps of longer videos. Streams of this name are
    used nowhere else, and no combination is a held-out one.
    """
    rng = generator(seed, "lessons", index)
    candidates = pool(held_out=False)
    facts = candidates[int(rng.integers(len(candidates)))]
    frames = CLIP_FRAMES if rng.random() < 0.5 else int(rng.integers(CLIP_FRAMES + 1, LONGEST_FRAMES + 1))
    scene = draw_scene(rng, facts, frames)
    indices = np.floor(frame_times(0.0, frames / FPS, SAMPLING) * FPS + 1e-6).astype(int)
    return Sample(draw_frames(scene, indices), indices / FPS, facts, caption(facts), scene)


def lessons_about(clip: Sample, rng: np.random.Generator) -> list[Lesson]:
    """The lessons that go with a clip, drawn anew each time."""
    return draw_lessons(rng, clip.facts, clip.scene.distractors(), tool_path(clip))


def tool_path(clip: Sample) -> np.ndarray:
    """Where the tool's head is in each frame, (F, 2) pixels."""
    return positions(clip.scene.motion, clip.times_s)


def drawn_frames(clip: Sample) -> Frames:
    """A drawn clip in the form in which files are read."""
    return Frames(clip.frames_FHWC, clip.times_s, "drawn")


class Teacher:
    """Encodes clips and lessons for one checkpoint's processor."""

    def __init__(self, directory: str | Path, layout: VisionLayout) -> None:
        """`directory` holds the processor; `layout` is the backbone's."""
        prompt = Prompt(system=SYSTEM, claim="{claim}")
        self.encoder = Encoder(load_processor(directory), layout, prompt, SAMPLING)
        self.question_ids = lru_cache(maxsize=None)(self.encoder.claim_ids)
        self.answer_ids = lru_cache(maxsize=None)(self._answer_ids)

    def prefix(self, frames: Frames) -> EncodedEvidence:
        """The system turn and the clip, as the verifier's encoder makes them."""
        return self.encoder.evidence((VideoSegment("clip.mp4", 0.0, None),), Media((frames,)))

    def batch(self, clips: Sequence[Sample], lessons: Sequence[Sequence[Lesson]]) -> dict[str, Any]:
        """One row per clip with all its lessons, and `targets` (B, T): the next token where it belongs to an answer."""
        rows, targets = [], []
        for clip, clip_lessons in zip(clips, lessons, strict=True):
            prefix = self.prefix(drawn_frames(clip))
            pairs = [(self.question_ids(lesson.question), self.answer_ids(lesson.answer)) for lesson in clip_lessons]
            rows.append(pack(prefix, [torch.cat(pair) for pair in pairs]))
            targets.append(torch.cat([_targets(*pair) for pair in pairs]))
        batch = collate(rows, self.encoder.pad_id)
        before, length = batch["prefix_len"], batch["input_ids"].shape[1]  # claims begin in the same column
        batch["targets"] = torch.stack([pad(t, (before, length - before - len(t)), value=IGNORED) for t in targets])
        return batch

    def _answer_ids(self, answer: str) -> torch.Tensor:
        return torch.tensor(self.encoder.tokenizer(answer + END, add_special_tokens=False)["input_ids"])


def lesson_loss(model: Any, batch: dict[str, Any], layout: VisionLayout) -> torch.Tensor:
    """Mean cross-entropy of the answers' tokens; logits exist only where an answer's token comes next."""
    taught_BT = batch["targets"] != IGNORED
    logits_NV = packed_logits(model, batch, taught_BT, layout)
    return cross_entropy(logits_NV.float(), batch["targets"][taught_BT])


def _targets(question_ids: torch.Tensor, answer_ids: torch.Tensor) -> torch.Tensor:
    unasked = torch.full((len(question_ids) - 1,), IGNORED)
    return torch.cat([unasked, answer_ids, torch.full((1,), IGNORED)])
