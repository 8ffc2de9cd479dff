"""Golden inputs: a few small frames and claims stored in a verifier directory with the margins they must give.

`selftest` recomputes them, which catches anything that changed the function: a package, a template, a weight, a rule.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image as PILImage
from safetensors.numpy import load_file, save_file

from ..data_prep.errors import DirectoryError
from ..data_prep.frames import Frames
from ..data_prep.rows import Evidence, Image, Pair, VideoSegment, evidence_from_dict, evidence_key, evidence_to_dict
from .encoding import Media, read_media
from .verifier import Verifier

MAX_EVIDENCES, MAX_CLAIMS, MAX_FRAMES, MAX_SIDE = 2, 4, 4, 112

# Same function by another route or on another machine (design tolerances); half precision is looser by nature.
TOLERANCE = {"float32": (1e-4, 1e-5), "bfloat16": (0.05, 0.05), "float16": (0.02, 0.02)}


@dataclass(frozen=True)
class SelfTest:
    """Outcome of recomputing the golden margins: the largest difference found and how far it may go."""

    n: int
    max_difference: float
    allowed: float

    @property
    def passed(self) -> bool:
        """True if every margin came out within tolerance (NaN does not)."""
        return self.max_difference <= self.allowed


def write_golden(folder: str | Path, verifier: Verifier, pairs: Sequence[Pair]) -> None:
    """Store the first evidences of `pairs`, made small, with their claims' margins under `verifier`."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    tensors: dict[str, np.ndarray] = {}
    cases = []
    for n, group in enumerate(_first_groups(pairs)):
        media = _small(read_media(group[0].evidence, verifier.encoder.sampling, verifier.media_root))
        for i, video in enumerate(media.videos):
            tensors[f"{n}.video.{i}.frames"] = np.ascontiguousarray(video.pixels_FHWC)
            tensors[f"{n}.video.{i}.times_s"] = np.ascontiguousarray(video.times_s)
        for i, image in enumerate(media.images_HWC):
            tensors[f"{n}.image.{i}"] = np.ascontiguousarray(image)
        claims = [(p.claim, p.context) for p in group]
        margins = verifier.score_media(claims, group[0].evidence, media)
        cases.append(
            {
                "evidence": [evidence_to_dict(_portable(e)) for e in group[0].evidence],
                "claims": [{"claim": c, "context": x} for c, x in claims],
                "margins": [float(m) for m in margins],
            }
        )
    if not cases:
        raise DirectoryError("golden inputs: no pairs to take them from, got none; give a data set with readable rows")
    if tensors:
        save_file(tensors, folder / "media.safetensors")
    (folder / "golden.json").write_text(json.dumps(cases, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def selftest(directory: str | Path, verifier: Verifier, dtype: str) -> SelfTest:
    """Recompute the golden margins of a directory with the verifier loaded from it."""
    folder = Path(directory) / "golden"
    if not (folder / "golden.json").is_file():
        raise DirectoryError(f"{directory}: no golden inputs; a draft has none, run eval/export.py first")
    cases = json.loads((folder / "golden.json").read_text(encoding="utf-8"))
    tensors = load_file(folder / "media.safetensors") if (folder / "media.safetensors").is_file() else {}
    expected, found = [], []
    for n, case in enumerate(cases):
        evidence = tuple(evidence_from_dict(e, f"{folder}/golden.json") for e in case["evidence"])
        claims = [(c["claim"], c["context"]) for c in case["claims"]]
        expected += case["margins"]
        found += verifier.score_media(claims, evidence, _stored_media(tensors, n)).tolist()
    absolute, relative = TOLERANCE[dtype]
    difference = np.abs(np.array(found) - np.array(expected))
    worst = float("nan") if np.isnan(difference).any() else float(difference.max())
    return SelfTest(len(found), worst, absolute + relative * float(np.abs(expected).max()))


def _first_groups(pairs: Sequence[Pair]) -> list[list[Pair]]:
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        key = evidence_key(pair.evidence)
        if key in groups or len(groups) < MAX_EVIDENCES:
            groups.setdefault(key, []).append(pair)
    return [group[:MAX_CLAIMS] for group in groups.values()]


def _portable(evidence: Evidence) -> Evidence:
    """The evidence without its folder: golden media travel inside the directory, and no path of a machine should."""
    if isinstance(evidence, (VideoSegment, Image)):
        return dataclasses.replace(evidence, path=Path(evidence.path).name)
    return evidence


def _small(media: Media) -> Media:
    videos = tuple(
        Frames(np.stack([_shrink(f) for f in v.pixels_FHWC[:MAX_FRAMES]]), v.times_s[:MAX_FRAMES], v.reader)
        for v in media.videos
    )
    return Media(videos, tuple(_shrink(i) for i in media.images_HWC))


def _shrink(image_HWC: np.ndarray) -> np.ndarray:
    height, width = image_HWC.shape[:2]
    scale = min(1.0, MAX_SIDE / max(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(PILImage.fromarray(image_HWC).resize(size, PILImage.Resampling.BILINEAR))


def _stored_media(tensors: dict[str, np.ndarray], n: int) -> Media:
    videos: list[Frames] = []
    while f"{n}.video.{len(videos)}.frames" in tensors:
        key = f"{n}.video.{len(videos)}"
        videos.append(Frames(tensors[f"{key}.frames"], tensors[f"{key}.times_s"], "golden"))
    images: list[np.ndarray] = []
    while f"{n}.image.{len(images)}" in tensors:
        images.append(tensors[f"{n}.image.{len(images)}"])
    return Media(tuple(videos), tuple(images))
