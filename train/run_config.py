"""Settings of `proofreel run`: one file that names every step's own settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..core import ConfigError
from .rounds_config import PredictingStage

Control = Literal["zero-shot", "mismatched-evidence", "claim-only"]

RESERVED: Mapping[str, frozenset[str]] = {
    "build.options": frozenset({"output"}),
    "train.options": frozenset(
        {"config", "dataset_dir", "output_dir", "resume_from_checkpoint", "validate_only", "claim_only"}
    ),
    "predict.options": frozenset(
        {"verifier", "zero_shot", "data", "split", "out", "controls", "overwrite", "claim_only"}
    ),
    "calibrate": frozenset({"predictions", "out"}),
    "report": frozenset({"predictions", "calibration", "out", "control"}),
    "export": frozenset({"verifier", "calibration", "data", "out", "report", "predictions", "test_split"}),
    "selftest": frozenset({"directory"}),
}
"""Options that the run sets itself, or that would make a step another one."""


@dataclass(frozen=True)
class BuildStep:
    """A build's file, and keys that win over it; without a file the keys are all there is."""

    config: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    skip_invalid: bool = False


@dataclass(frozen=True)
class TrainStep:
    """Entry script, its config file, options that win over it, and the words that launch it."""

    script: Literal["sft", "nli", "distill"] = "sft"
    config: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    launch: tuple[str, ...] | None = None


@dataclass(frozen=True)
class RunConfig:
    """Everything a run depends on; docs/run.md explains each key.

    Raises:
        ConfigError: neither a build nor a data set, a file that is not there, an empty launch, or an option that the
            run sets.
    """

    output: str
    train: TrainStep
    build: BuildStep | None = None
    data: str | None = None
    controls: tuple[Control, ...] = ()
    predict: PredictingStage = field(default_factory=PredictingStage)
    calibrate: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    export: dict[str, Any] = field(default_factory=dict)
    selftest: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.build is None) == (self.data is None):
            raise ConfigError(f"build: it or data is needed, got {self.build} and {self.data}; give one of them")
        for name, config in (("build", self.build and self.build.config), ("train", self.train.config)):
            if config is not None and not Path(config).is_file():
                raise ConfigError(f"{name}.config: no such file, got {config}; check the path")
        for name, launch in (("train.launch", self.train.launch), ("predict.launch", self.predict.launch)):
            if launch == ():
                raise ConfigError(f"{name}: holds no word, got []; write null for this interpreter")
        given = {
            "build.options": {} if self.build is None else self.build.options,
            "train.options": self.train.options,
            "predict.options": self.predict.options,
            **{name: getattr(self, name) for name in ("calibrate", "report", "export", "selftest")},
        }
        for part, options in given.items():
            for name in sorted(key for key in options if key.replace("-", "_") in RESERVED[part]):
                raise ConfigError(f"{part}.{name}: is set by the run, got it in the config; leave it out")
