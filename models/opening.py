"""From the loaded parts of a verifier directory to the arguments of `Verifier`: decision, windowing, vision cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..data_prep.frame_cache import FrameCache
from .calibration import CALIBRATION_FILE
from .decisions import read_decision
from .directory import fingerprint
from .loading import Parts
from .parts import check_aggregation
from .vision_features import VisionFeatures


def opened(
    parts: Parts,
    adapter: bool,
    media_root: str | Path | None,
    frame_cache: FrameCache | None,
    vision_cache: str | Path | None,
) -> dict[str, Any]:
    """Keyword arguments of `Verifier`; those of this function are as for `Verifier.from_pretrained`.

    Raises:
        CalibrationError: calibration or thresholds that cannot be read, or a calibration fitted on margins that this
            verifier does not make.
    """
    calibrated = adapter and (parts.directory / CALIBRATION_FILE).is_file()
    decision = read_decision(parts.directory) if calibrated else None
    check_aggregation(decision, parts.config.windowing, parts.directory)
    features = None
    if vision_cache is not None:
        parts.model.requires_grad_(False)  # a full model is loaded as one that could still be trained
        kept_as = "float32" if parts.config.dtype == "float32" else "bfloat16"
        features = VisionFeatures(
            vision_cache, parts.model, parts.encoder, media_root=media_root, frame_cache=frame_cache, dtype=kept_as
        )
    return {
        "model": parts.model,
        "encoder": parts.encoder,
        "readout": parts.readout,
        "claims_per_row": parts.config.claims_per_row,
        "decision": decision,
        "media_root": media_root,
        "fingerprint": fingerprint(parts.directory),
        "frame_cache": frame_cache,
        "vision_features": features,
        "modalities": parts.config.modalities,
        "notes": parts.notes,
        "windowing": parts.config.windowing,
    }
