"""Golden inputs: a few small frames and claims stored in a verifier directory with the margins they must give.

`selftest` recomputes them, which catches anything that changed the function: a package, a template, a weight, a rule;
and compares what the margins do not show: calibration, thresholds, sampling.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as PILImage
from safetensors.numpy import save_file

from ...core import (
    DirectoryError,
    Evidence,
    Pair,
    evidence_key,
    evidence_to_dict,
    schema_problem,
    sha256_of,
    with_media_paths,
)
from ...data_prep.media import SAMPLE_RATE, Frames, Sound
from ..backbones import read_json
from ..decision import CALIBRATION_FILE, THRESHOLDS_FILE, Decision, read_decision
from ..directory import CONFIG, OLDER_SCHEMAS
from ..inputs import Media, read_media
from .golden import recompute
from .verifier import Verifier

MAX_EVIDENCES, MAX_CLAIMS, MAX_FRAMES, MAX_SIDE, MAX_SOUND_S = 2, 4, 4, 112, 4

# What decides on an answer without showing in a golden margin, whose frames are already chosen and decoded.
_SETTINGS = ("head", "labels", "max_tokens", "modalities", "position_rule", "sampling", "time_rule", "windowing")
_SCHEMAS = Path(__file__).parent / "schemas"
_P_TOLERANCE = 1e-6  # the same formula on the same numbers


@dataclass(frozen=True)
class SelfTest:
    """Outcome of recomputing the golden margins.

    Attributes:
        n: margins recomputed.
        max_difference, allowed: of the margin that is furthest out: its difference, and how far that may go.
        problems: what else does not fit the golden inputs, a sentence each: calibration, thresholds, settings.
    """

    n: int
    max_difference: float
    allowed: float
    problems: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """True if every margin came out within tolerance (NaN does not), and nothing else differs."""
        return self.max_difference <= self.allowed and not self.problems


def write_golden(folder: str | Path, verifier: Verifier, pairs: Sequence[Pair]) -> None:
    """Store the first evidences of `pairs`, made small, with their claims' margins under `verifier`.

    What the directory around `folder` already holds is taken along: probabilities by its calibration, and the settings
    that no margin shows.
    """
    folder = Path(folder)
    folder.mkdir(parents=True)
    decision = read_decision(folder.parent) if (folder.parent / CALIBRATION_FILE).is_file() else None
    tensors: dict[str, np.ndarray] = {}
    cases = []
    for n, group in enumerate(_first_groups(pairs)):
        verifier.encoder.check_readable(group[0].evidence)
        media = _small(read_media(group[0].evidence, verifier.encoder.sampling, verifier.media_root))
        for i, video in enumerate(media.videos):
            tensors[f"{n}.video.{i}.frames"] = np.ascontiguousarray(video.pixels_FHWC)
            tensors[f"{n}.video.{i}.times_s"] = np.ascontiguousarray(video.times_s)
        for i, image in enumerate(media.images_HWC):
            tensors[f"{n}.image.{i}"] = np.ascontiguousarray(image)
        for i, sound in enumerate(media.sounds):
            tensors[f"{n}.sound.{i}"] = np.ascontiguousarray(sound.samples_N)
        claims = [(p.claim, p.context) for p in group]
        margins = verifier.score_media(claims, group[0].evidence, media)
        case: dict[str, Any] = {
            "evidence": [evidence_to_dict(_portable(e)) for e in group[0].evidence],
            "claims": [{"claim": c, "context": x} for c, x in claims],
            "margins": [float(m) for m in margins],
        }
        if decision is not None:
            keys = decision.calibration.group_keys(group)
            p = _probabilities(decision, case["margins"], keys)
            case |= {"keys": keys, "p_supported": p, "labels": _labels(decision, p)}
        cases.append(case)
    if not cases:
        raise DirectoryError("golden inputs: no pairs to take them from, got none; give a data set with readable rows")
    if tensors:
        save_file(tensors, folder / "media.safetensors")
    _write(folder / "golden.json", cases)
    if (folder.parent / CONFIG).is_file():
        _write(folder / "settings.json", _settings(folder.parent, decision))


def selftest(directory: str | Path, verifier: Verifier, dtype: str) -> SelfTest:
    """Recompute the golden margins of a directory with the verifier loaded from it.

    Args:
        directory: of a verifier with golden inputs.
        verifier: loaded from it.
        dtype: the verifier runs in, which decides on the tolerance (`TOLERANCE`).

    Raises:
        DirectoryError: an uncalibrated verifier, or golden inputs that do not fit together.
    """
    recomputed = recompute(directory, verifier.score_media, dtype)
    problems = tuple(_problems(Path(directory), recomputed.cases))
    return SelfTest(recomputed.n, recomputed.max_difference, recomputed.allowed, problems)


def _problems(directory: Path, cases: list[dict[str, Any]]) -> Iterator[str]:
    """What differs from when the golden inputs were made, beyond their margins."""
    decision = read_decision(directory) if (directory / CALIBRATION_FILE).is_file() else None
    whole = read_json(directory / CONFIG)["schema_version"] not in OLDER_SCHEMAS  # earlier releases stored less
    yield from _of_decision(decision, cases, whole)
    path = directory / "golden" / "settings.json"
    recorded, now = (read_json(path) if path.is_file() else {}), _settings(directory, decision)
    if problem := schema_problem(recorded, _SCHEMAS / path.name):
        raise DirectoryError(f"{path}: not golden settings, got {problem}; export the verifier again")
    if whole and (missing := sorted(set(now) - set(recorded))):
        yield f"golden/settings.json: does not say what it must, got no {missing}"
    for name, value in recorded.items():
        if name == "abstain" and value is not None:  # older directories hold nulls
            value = {key: of for key, of in value.items() if of is not None}
        if now.get(name) != value:
            yield f"{name}: golden inputs were made with {value}, the directory says {now.get(name)}"


def _of_decision(decision: Decision | None, cases: list[dict[str, Any]], whole: bool) -> Iterator[str]:
    """What differs in probabilities and labels of the golden margins."""
    for case in cases:
        stored, labels = case.get("p_supported"), case.get("labels")
        if decision is not None and whole and (stored is None or labels is None):
            yield "golden/golden.json: a case does not say what it must, got no p_supported or no labels"
            return
        if stored is None:
            continue
        now = None if decision is None else _probabilities(decision, case["margins"], case["keys"])
        if now is None or len(now) != len(stored) or not np.allclose(now, stored, rtol=0, atol=_P_TOLERANCE):
            yield f"calibration: the golden margins gave p_supported {stored}, and now give {now}"
            return
        if decision is not None and labels is not None and labels != (now_labelled := _labels(decision, stored)):
            yield f"thresholds: the golden probabilities gave {labels}, and now give {now_labelled}"
            return


def _labels(decision: Decision, p: list[float]) -> dict[str, list[bool]]:
    """By operating point, whether each probability is called supported."""
    return {point.name: point.decide(p).tolist() for point in decision.points}


def _settings(directory: Path, decision: Decision | None) -> dict[str, Any]:
    config = read_json(directory / CONFIG)
    settings = {name: config.get(name) for name in _SETTINGS}
    if decision is not None:
        band = None if decision.abstain is None else decision.abstain.to_dict()
        settings["thresholds"] = {point.name: point.threshold for point in decision.points}
        settings |= {"default": decision.default, "abstain": json.loads(json.dumps(band))}
        settings["sha256"] = {name: sha256_of(directory / name) for name in (CALIBRATION_FILE, THRESHOLDS_FILE)}
    return settings


def _probabilities(decision: Decision, margins: list[float], keys: list[str] | None) -> list[float]:
    return [float(p) for p in decision.calibration.predict(np.array(margins, np.float64), keys)]


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _first_groups(pairs: Sequence[Pair]) -> list[list[Pair]]:
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        key = evidence_key(pair.evidence)
        if key in groups or len(groups) < MAX_EVIDENCES:
            groups.setdefault(key, []).append(pair)
    return [group[:MAX_CLAIMS] for group in groups.values()]


def _portable(evidence: Evidence) -> Evidence:
    """The evidence without its folder: golden media travel inside the directory, and no path of a machine should."""
    return with_media_paths(evidence, lambda path: Path(path).name)


def _small(media: Media) -> Media:
    videos = tuple(
        Frames(np.stack([_shrink(f) for f in v.pixels_FHWC[:MAX_FRAMES]]), v.times_s[:MAX_FRAMES], v.reader)
        for v in media.videos
    )
    sounds = tuple(Sound(s.samples_N[: SAMPLE_RATE * MAX_SOUND_S], s.start_s) for s in media.sounds)
    return Media(videos, tuple(_shrink(i) for i in media.images_HWC), sounds=sounds)


def _shrink(image_HWC: np.ndarray) -> np.ndarray:
    height, width = image_HWC.shape[:2]
    scale = min(1.0, MAX_SIDE / max(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(PILImage.fromarray(image_HWC).resize(size, PILImage.Resampling.BILINEAR))
