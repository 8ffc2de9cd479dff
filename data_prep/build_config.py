"""The keys of a build's YAML file, and what their values must satisfy. docs/data.md explains each key."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .errors import ConfigError
from .negatives import SwappedLabel
from .rows import SPLITS, Split
from .splits import check_fractions


@dataclass(frozen=True)
class SourceConfig:
    """Annotation files of one format: `path` or `paths`."""

    format: Literal["facts", "grounding", "pairs"]
    path: str | None = None
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class NegativesConfig:
    """Which refuted pairs a data set holds. `balanced` overrides `annotated` and `swapped_per_claim`."""

    annotated: bool = True
    swapped_per_claim: int = 1
    swapped_label: SwappedLabel = "refuted"
    generic_claims: tuple[str, ...] = ()
    balanced: bool = False


@dataclass(frozen=True)
class SplitsConfig:
    """Wanted shares of rows; they sum to 1. With `held_out_roles`, calibration and test get combinations of these
    roles' values that training never shows."""

    train: float = 0.7
    validation: float = 0.1
    calibration: float = 0.1
    test: float = 0.1
    held_out_roles: tuple[str, ...] = ()


LeakPolicy = Literal["move", "refuse", "allow"]


@dataclass(frozen=True)
class LeaksConfig:
    """What happens to groups that share a media file, or a claim of at least `claim_words` words."""

    media: LeakPolicy = "move"
    claims: LeakPolicy = "move"
    claim_words: int = 8


@dataclass(frozen=True)
class BuildConfig:
    """Everything a build depends on; docs/data.md explains each key."""

    output: str
    sources: tuple[SourceConfig, ...]
    seed: int = 0
    media_root: str | None = None
    media: Literal["required", "absent"] = "required"
    negatives: NegativesConfig = field(default_factory=NegativesConfig)
    splits: SplitsConfig = field(default_factory=SplitsConfig)
    leaks: LeaksConfig = field(default_factory=LeaksConfig)
    rows_per_shard: int = 50_000


def resolved(config: BuildConfig) -> BuildConfig:
    """The config with environment variables put in and its values checked.

    Raises:
        ConfigError: shares that do not sum to 1, a negative number, a missing file, an unset variable.
    """
    check_fractions(fractions_of(config))
    if config.negatives.swapped_per_claim < 0:
        number = config.negatives.swapped_per_claim
        raise ConfigError(f"negatives.swapped_per_claim: must not be negative, got {number}; use 0 for none")
    for key, value in (("leaks.claim_words", config.leaks.claim_words), ("rows_per_shard", config.rows_per_shard)):
        if value < 1:
            raise ConfigError(f"{key}: must be at least 1, got {value}; leave the key out for its default")
    if not config.sources:
        raise ConfigError("sources: the list is empty, got []; name at least one annotation file")
    sources = []
    for number, source in enumerate(config.sources):
        paths = [*([source.path] if source.path is not None else []), *source.paths]
        if not paths:
            raise ConfigError(f"sources[{number}]: no file is named, got no path; set path or paths")
        expanded = tuple(_expand(path, f"sources[{number}]") for path in paths)
        if absent := [path for path in expanded if not Path(path).is_file()]:
            raise ConfigError(f"sources[{number}]: no such annotation file, got {absent[0]}; check the path")
        sources.append(dataclasses.replace(source, path=None, paths=expanded))
    media_root = None if config.media_root is None else _expand(config.media_root, "media_root")
    output = _expand(config.output, "output")
    return dataclasses.replace(config, sources=tuple(sources), media_root=media_root, output=output)


def _expand(path: str, key: str) -> str:
    expanded = os.path.expanduser(os.path.expandvars(path))
    if "$" in expanded:
        raise ConfigError(f"{key}: an environment variable is unset, got {path}; set it before the build")
    return expanded


def media_root_of(config: BuildConfig) -> Path:
    """What media paths of the data set are relative to: as configured, or the folder the sources have in common."""
    if config.media_root is not None:
        return Path(config.media_root)
    return Path(os.path.commonpath([Path(path).absolute().parent for s in config.sources for path in s.paths]))


def fractions_of(config: BuildConfig) -> dict[Split, float]:
    """The wanted share of rows of every split."""
    return {split: getattr(config.splits, split) for split in SPLITS}
