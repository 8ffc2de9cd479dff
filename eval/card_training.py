"""What a card says of the run that made its verifier: over which base, what trained, who taught it, what was merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..models.directory import VerifierConfig
from .model_index import is_hub_id


def run_lines(config: VerifierConfig) -> list[str]:
    """One sentence each, of what the configuration records."""
    base = f"`{config.base.path}`, revision `{config.base.revision}`" if is_hub_id(config) else "a local checkpoint"
    lines = [f"Base: {base}, weights SHA-256 `{config.base.weights_sha256}`."]
    parameters = config.trained.get("parameters") or {}
    parts = [f"{n:,} in {part}" for part, n in parameters.items() if n and part != "total"]
    if parts:
        lines.append(f"Trained parameters: {', '.join(parts)}, of {parameters.get('total', 0):,}.")
    for key in ("steps", "epochs", "git_revision"):
        if config.trained.get(key) is not None:
            lines.append(f"{key.replace('_', ' ')}: {config.trained[key]}")
    if config.quantization is not None:
        lines.append(f"The base is quantised: {config.quantization.get('bnb_4bit_quant_type', '8 bit')}.")
    if (start := config.trained.get("adapter_from")) is not None:
        lines.append(f"Training began from the adapter of verifier `{start[:12]}`.")
    return lines + _teacher_lines(config.trained.get("teacher")) + _merge_lines(config.trained.get("merged"))


def _teacher_lines(teacher: Mapping[str, Any] | None) -> list[str]:
    if not teacher:
        return []
    several = [each.get("verifier_fingerprint") for each in teacher.get("teachers") or ()]
    names = ", ".join(f"`{str(name)[:12]}`" for name in several or [teacher.get("verifier_fingerprint")])
    who = f"{len(several)} verifiers ({names})" if len(several) > 1 else f"verifier {names}"
    how = "calibrated" if teacher.get("calibrated") else "not calibrated"
    return [f"Distilled from the {how} margins of {who}, teacher file SHA-256 `{teacher.get('file_sha256')}`."]


def _merge_lines(merged: Mapping[str, Any] | None) -> list[str]:
    if not merged:
        return []
    over = "a quantised base" if merged.get("from_quantised") else "its base"
    return [
        f"The adapter (verifier {merged['from_fingerprint'][:12]}), trained over {over} in {merged['from_dtype']}, was "
        f"merged into the full-precision base. On {merged['n']:,} calibration rows margins moved by at most "
        f"{merged['max_difference']:.2g}; the calibration was {merged['calibration']}."
    ]
