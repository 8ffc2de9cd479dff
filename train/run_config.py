"""Settings of `proofreel run`: one file that names every step's own settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..core import ConfigError
from .rounds_config import PredictingStage

Control = Literal["zero-shot", "mismatched-evidence", "mismatched-sound", "no-sound", "claim-only"]

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
    """The build.

    Attributes:
        config: a build's file; null: the options are all there is.
        options: keys that win over it.
        skip_invalid: leave bad annotations out, and say how many and why.
    """

    config: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    skip_invalid: bool = False


@dataclass(frozen=True)
class TrainStep:
    """How the run trains.

    Attributes:
        script: the training command.
        config: its YAML file.
        options: keys that win over it.
        launch: words before the script, e.g. [accelerate, launch]; null: this interpreter.
    """

    script: Literal["sft", "nli", "distill"] = "sft"
    config: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    launch: tuple[str, ...] | None = None


@dataclass(frozen=True)
class RunConfig:
    """Everything a run depends on; docs/run.md explains each key at length.

    Attributes:
        output: folder for all that the run makes.
        train: how it trains.
        build: the build; or `data`.
        data: a data set that is there already.
        controls: runs that must fall to chance, beside the verifier's.
        predict: options of `proofreel predict`, and its launcher.
        calibrate: options of `proofreel calibrate`.
        report: options of `proofreel report`.
        export: options of `proofreel export`.
        selftest: options of `proofreel selftest`.

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
