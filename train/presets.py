"""Which preset a card can train, by the memory that each states (train/memory.py's estimate, held by tests)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..core import ConfigError
from .stages import SCRIPTS, script

USABLE = 0.9  # of a card's memory
VISUAL = ("qwen25vl_7b_lora", "qwen25vl_7b_qlora", "qwen25vl_3b_qlora")
TEXTUAL = ("qwen25_7b_text_lora", "qwen25_7b_text_qlora")
TINY, SMALLEST = "kitchen_sft", "qwen25vl_3b_lora"
TINY_BASE = "checkpoints/kitchen-base"
_STATED = re.compile(r"Expected memory: ([0-9.]+) GiB")


@dataclass(frozen=True)
class PresetGuess:
    """A preset's file, why it was taken, and options that win over it."""

    config: str
    reason: str
    options: dict[str, str]
    on_card: bool


def stated_gib(preset: str) -> float:
    """The memory of one card that a preset's header states."""
    path = SCRIPTS / "configs" / f"{preset}.yaml"
    if (match := _STATED.search(path.read_text(encoding="utf-8"))) is None:
        raise ConfigError(f"{path}: states no expected memory, got none in its header; add it")
    return float(match.group(1))


def card() -> tuple[str, float] | None:
    """Name and memory in GiB of the first CUDA card; None without one."""
    import torch

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(0)
    return properties.name, properties.total_memory / 2**30


def guess_preset(found: tuple[str, float] | None, textual: bool) -> PresetGuess:
    """The largest preset that fits the card; without one the tiny base of the kitchen, or the smallest preset."""
    if found is None:
        return _without_card(textual)
    name, gib = found
    presets = TEXTUAL if textual else VISUAL
    fitting = [preset for preset in presets if stated_gib(preset) <= USABLE * gib]
    preset = fitting[0] if fitting else presets[-1]
    needs = f"{stated_gib(preset)} GiB at most, by the estimate, of the {gib:.0f} GiB of {name}"
    reason = needs if fitting else f"NOTHING FITS: the smallest needs {needs}; lower max_frames and max_pixels"
    return PresetGuess(script(f"configs/{preset}.yaml"), reason, {}, True)


def _without_card(textual: bool) -> PresetGuess:
    if (SCRIPTS / TINY_BASE).is_dir():
        reason = (
            "no card was found: a tiny base that was made for rendered clips, which shows in minutes that everything "
            f"works, and learns little; with a card: configs/{VISUAL[0]}.yaml"
        )
        options = {"model_name_or_path": script(TINY_BASE)} | ({"max_tokens": "8192"} if textual else {})
        return PresetGuess(script(f"configs/{TINY}.yaml"), reason, options, False)
    reason = f"no card was found: the smallest preset, which takes weeks without one ({stated_gib(SMALLEST)} GiB)"
    return PresetGuess(script(f"configs/{SMALLEST}.yaml"), reason, {"use_cpu": "true", "bf16": "false"}, False)
