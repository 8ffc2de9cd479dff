"""Settings of the rounds of train/rounds.py, and how options become words of a command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..core import ConfigError
from ..data_prep.negatives import MiningConfig

RESERVED = {
    "train.options": {"config", "dataset_dir", "output_dir", "seed", "resume_from_checkpoint", "validate_only"},
    "predict.options": {"verifier", "zero_shot", "data", "split", "out", "controls", "overwrite"},
    "calibrate": {"predictions", "out"},
}
"""Options that the rounds set themselves, or that would make a stage another one."""
OVERRIDDEN = ("dataset_dir", "output_dir", "seed")
"""What a training file may say of its own, and the rounds say instead."""
SPEED = ("base", "device", "frame_cache", "vision_cache", "batch_tokens", "rows_per_block")
FREE = {"data", "output", "rounds", "train.config", "predict.launch", *(f"predict.options.{name}" for name in SPEED)}
"""What may differ when rounds are taken up again. The data set and the training file are compared by what they hold."""
MADE_WITH = {
    "mining": "round-0/data",
    "mining.unscored": "round-1/data",  # round 0 has no predictions
    "train": "round-0/run",
    "train_config": "round-0/run",
    "predict": "round-0/calibration.parquet",
    "calibrate": "round-0/calibrated",
}
"""What else may differ, until this is there: what stopped the rounds before it made anything can be mended."""


@dataclass(frozen=True)
class TrainingStage:
    """How every round trains.

    Attributes:
        script: the training command.
        config: its YAML file.
        options: keys that win over it; set max_steps.
        launch: words before the script, e.g. [accelerate, launch]; null: this interpreter.
    """

    script: Literal["sft", "nli"]
    config: str
    options: dict[str, Any] = field(default_factory=dict)
    launch: tuple[str, ...] | None = None


@dataclass(frozen=True)
class PredictingStage:
    """How rows are scored.

    Attributes:
        options: of `proofreel predict`: device, vision_cache, ...
        launch: words before the script; null: this interpreter.
    """

    options: dict[str, Any] = field(default_factory=dict)
    launch: tuple[str, ...] | None = None


@dataclass(frozen=True)
class RoundsConfig:
    """Everything the rounds depend on; docs/negatives.md explains each key at length.

    Attributes:
        data: data set with all candidates.
        output: folder for the rounds.
        train: how every round trains.
        rounds: mined rounds, after round 0, which draws at random; may be raised later.
        seed: of the draws and of training.
        mining: the mix; round 0 sets hard_share to 0.
        calibrate: options of `proofreel calibrate`.
        predict: how rows are scored.

    Raises:
        ConfigError: fewer than no rounds, no training file, an empty launch, or an option that the rounds set.
    """

    data: str
    output: str
    train: TrainingStage
    rounds: int = 2
    seed: int = 0
    mining: MiningConfig = field(default_factory=MiningConfig)
    calibrate: dict[str, Any] = field(default_factory=dict)
    predict: PredictingStage = field(default_factory=PredictingStage)

    def __post_init__(self) -> None:
        if self.rounds < 0:
            raise ConfigError(f"rounds: must not be negative, got {self.rounds}; 0 trains on random negatives alone")
        if not Path(self.train.config).is_file():
            raise ConfigError(f"train.config: no such file, got {self.train.config}; check the path")
        for name, launch in (("train.launch", self.train.launch), ("predict.launch", self.predict.launch)):
            if launch == ():
                raise ConfigError(f"{name}: holds no word, got []; write null for this interpreter")
        given = {
            "train.options": self.train.options,
            "predict.options": self.predict.options,
            "calibrate": self.calibrate,
        }
        for part, options in given.items():
            for name in sorted(key for key in options if key.replace("-", "_") in RESERVED[part]):
                raise ConfigError(f"{part}.{name}: is set by the rounds, got it in the config; leave it out")


def as_options(options: Mapping[str, Any]) -> list[str]:
    """Options of a training script: every one has a value, and null leaves it out."""
    return [word for name, value in options.items() if value is not None for word in (f"--{name}", *_values(value))]


def as_words(options: Mapping[str, Any]) -> list[str]:
    """Options of a script that knows flags: true sets one, false and null leave it out."""
    words: list[str] = []
    for name, value in options.items():
        if value is not False and value is not None:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else _values(value))]
    return words


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a.b": value} of nested mappings; an empty one leaves nothing."""
    options: dict[str, Any] = {}
    for key, value in values.items():
        options |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return options


def _values(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [json.dumps(value)]
    if isinstance(value, (list, tuple)):
        return [word for each in value for word in _values(each)]
    return [str(value).lower() if isinstance(value, bool) else str(value)]
