"""Golden inputs of a directory, recomputed: what its verifier must say of a few small frames and claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from ...core import DirectoryError, evidence_from_dict, schema_problem
from ...data_prep.media import Frames, Sound
from ..backbones import read_json
from ..inputs import Media

# Same function by another route or on another machine (design tolerances); half precision is looser by nature.
TOLERANCE = {"float32": (1e-4, 1e-5), "bfloat16": (0.05, 0.05), "float16": (0.02, 0.02)}
"""Absolute and relative, by the dtype that runs."""
GOLDEN = Path("golden") / "golden.json"
_SCHEMAS = Path(__file__).parent / "schemas"


@dataclass(frozen=True)
class Recomputed:
    """Golden margins, beside those that are stored.

    Attributes:
        cases: as stored.
        n: margins recomputed.
        max_difference, allowed: of the margin that is furthest out: its difference, and how far that may go.
    """

    cases: list[dict[str, Any]]
    n: int
    max_difference: float
    allowed: float

    @property
    def within(self) -> bool:
        """Whether all lie within tolerance; NaN does not."""
        return self.max_difference <= self.allowed


def recompute(directory: str | Path, score_media: Callable[..., np.ndarray], dtype: str) -> Recomputed:
    """Golden margins of a directory.

    Args:
        directory: of a verifier with golden inputs.
        score_media: a verifier's.
        dtype: the verifier runs in, which decides on the tolerance.

    Raises:
        DirectoryError: an uncalibrated verifier, or golden inputs that do not fit together.
    """
    folder = Path(directory) / "golden"
    if not (folder / "golden.json").is_file():
        raise DirectoryError(f"{directory}: no golden inputs; export writes them, run eval/export.py first")
    cases = _cases(folder / "golden.json")
    tensors = load_file(folder / "media.safetensors") if (folder / "media.safetensors").is_file() else {}
    expected, actual = [], []
    for n, case in enumerate(cases):
        expected += case["margins"]
        try:
            evidence = tuple(evidence_from_dict(e, f"{folder}/golden.json") for e in case["evidence"])
            claims = [(c["claim"], c["context"]) for c in case["claims"]]
            actual += score_media(claims, evidence, _stored_media(tensors, n)).tolist()
        except Exception as error:  # any, of a network that was given damaged settings
            raise DirectoryError(
                f"{folder}: golden inputs do not fit together, got {type(error).__name__}: {str(error)[:300]} "
                f"in case {n}; fetch the directory again"
            ) from error
    absolute, relative = TOLERANCE[dtype]
    difference_N = np.abs(np.array(actual) - np.array(expected))
    allowed_N = absolute + relative * np.abs(np.array(expected))
    worst = int(np.argmax(difference_N - allowed_N))  # the first NaN, if there is one
    return Recomputed(cases, len(actual), float(difference_N[worst]), float(allowed_N[worst]))


def _cases(path: Path) -> list[dict[str, Any]]:
    """Golden cases as stored: each with as many finite margins as claims."""
    cases = read_json(path)
    if problem := schema_problem(cases, _SCHEMAS / path.name):
        raise DirectoryError(f"{path}: not golden inputs, got {problem}; export the verifier again")
    if not all(len(c["margins"]) == len(c["claims"]) and np.isfinite(c["margins"]).all() for c in cases):
        raise DirectoryError(f"{path}: not a finite margin for every claim, got {len(cases)} cases; export it again")
    return cases


def _stored_media(tensors: dict[str, np.ndarray], n: int) -> Media:
    videos: list[Frames] = []
    while f"{n}.video.{len(videos)}.frames" in tensors:
        key = f"{n}.video.{len(videos)}"
        videos.append(Frames(tensors[f"{key}.frames"], tensors[f"{key}.times_s"], "golden"))
    images: list[np.ndarray] = []
    while f"{n}.image.{len(images)}" in tensors:
        images.append(tensors[f"{n}.image.{len(images)}"])
    sounds: list[Sound] = []
    while f"{n}.sound.{len(sounds)}" in tensors:
        sounds.append(Sound(tensors[f"{n}.sound.{len(sounds)}"], 0.0))
    return Media(tuple(videos), tuple(images), sounds=tuple(sounds))
