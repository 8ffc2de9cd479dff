"""The keys of a build's YAML file, and what their values must satisfy. docs/data.md explains each key."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ...core import SPLITS, ConfigError, MediaError, Split, allow_remote, expanded, is_address, media_path, pip_line
from ..dataset import check_fractions, fold_names
from ..importers import IMPORTERS
from ..language import LanguageModelConfig
from ..negatives import AlteredEvidenceConfig, Grammar, SwappedLabel


@dataclass(frozen=True)
class SourceConfig:
    """Annotation files of one format.

    Attributes:
        format: facts, table, grounding, ...: docs/formats.md lists them.
        path: a file or folder; or `paths`, several.
        paths: files or folders.
        options: the format's own.
        statements: how the statements of a question-answer benchmark are written: `model` by the language model;
            `model_or_template` uses the template where the model gives nothing usable.
    """

    format: str
    path: str | None = None
    paths: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    statements: Literal["template", "model", "model_or_template"] = "template"


@dataclass(frozen=True)
class ByModelConfig:
    """Altered claims by the language model; see negatives/model_proposals.py.

    Attributes:
        per_claim: for every true fact or caption.
        attempts: how often the model is asked for the same claims, the complaints added.
        known_only: take only words that are true somewhere in the data set, or in its word groups.
    """

    per_claim: int = 0
    attempts: int = 3
    known_only: bool = True


@dataclass(frozen=True)
class NegativesConfig:
    """Which refuted pairs a data set holds.

    Attributes:
        annotated: keep the annotated negatives.
        swapped_per_claim: swapped negatives for every supported row.
        swapped_label: their label; `not_enough` where another video says nothing about the claim.
        generic_claims: sentences that may hold without being annotated: never swapped.
        balanced: as many negatives as positives of every segment and role; overrides all others but `generic_claims`.
        altered_per_claim: altered claims for every true fact or caption.
        altered_by: what alters sentences that are no facts: the parser of the extra `negatives`, or nothing (`rules`);
            `auto` is the parser where it is installed.
        word_groups: file of word groups for altered claims; null: the shipped cooking and crafting one.
        altered_evidence: negatives by altered evidence, a number per kind.
        by_model: altered claims by the language model.
    """

    annotated: bool = True
    swapped_per_claim: int = 1
    swapped_label: SwappedLabel = "refuted"
    generic_claims: tuple[str, ...] = ()
    balanced: bool = False
    altered_per_claim: int = 0
    altered_by: Literal["auto", "parser", "rules"] = "auto"
    word_groups: str | None = None
    altered_evidence: AlteredEvidenceConfig = field(default_factory=AlteredEvidenceConfig)
    by_model: ByModelConfig = field(default_factory=ByModelConfig)


@dataclass(frozen=True)
class SplitsConfig:
    """Wanted shares of rows; they sum to 1.

    Attributes:
        train: share of rows to train on.
        validation: to choose a checkpoint on.
        calibration: to fit calibration and thresholds on.
        test: to report on.
        held_out_roles: calibration and test get combinations of these roles' values that training never shows.
        cross: in place of shares, so many folds of whole groups; each is tested on by a verifier that is trained on the
            others. `validation: 0` leaves no fold out of training for the choice of a checkpoint.
    """

    train: float = 0.7
    validation: float = 0.1
    calibration: float = 0.1
    test: float = 0.1
    held_out_roles: tuple[str, ...] = ()
    cross: int | None = None


LeakPolicy = Literal["move", "refuse", "allow"]
Sharding = Literal["groups", "files"]


@dataclass(frozen=True)
class LeaksConfig:
    """What happens to groups that would carry answers from one split to another.

    Attributes:
        media: groups that share a media file: move them together, refuse the data set, or allow it.
        claims: likewise, groups that share a long claim.
        claim_words: claims with fewer words recur by nature and are not leaks.
    """

    media: LeakPolicy = "move"
    claims: LeakPolicy = "move"
    claim_words: int = 8


@dataclass(frozen=True)
class ProbingConfig:
    """How media files are looked at.

    Attributes:
        workers: child processes; null: one per processor.
        timeout_s: seconds that a file may take.
        decode: decode every frame.
        outside_root: whether files may lie outside the media root, through `..`, links or absolute paths.
    """

    workers: int | None = None
    timeout_s: float = 60.0
    decode: bool = False
    outside_root: Literal["refuse", "allow"] = "refuse"


@dataclass(frozen=True)
class BuildConfig:
    """Everything a build depends on; docs/data.md explains each key at length.

    Attributes:
        output: the data set directory; an older data set there is replaced, anything else is refused.
        sources: list of annotation files with their format.
        seed: draws splits and swapped negatives.
        media_root: what media paths are relative to; null: each annotation file's own folder. May be an address.
        remote: beginnings of the addresses from which annotations and media may be fetched; see docs/media.md.
        media: `absent`: annotations only, nothing is opened and every video is marked absent.
        negatives: which refuted pairs the data set holds.
        splits: wanted shares of rows.
        leaks: what happens to groups that would carry answers from one split to another.
        probing: how media files are looked at.
        language_model: the endpoint, for `negatives.by_model` and for `statements: model`.
        shortcut_probe: train the probe that reads claims only.
        card: write the data set card.
        rows_per_shard: at most so many rows in a Parquet file.
        sharding: what `--shard` deals out: the groups of every annotation file, or whole annotation files.
    """

    output: str
    sources: tuple[SourceConfig, ...]
    seed: int = 0
    media_root: str | None = None
    remote: tuple[str, ...] = ()
    media: Literal["required", "absent"] = "required"
    negatives: NegativesConfig = field(default_factory=NegativesConfig)
    splits: SplitsConfig = field(default_factory=SplitsConfig)
    leaks: LeaksConfig = field(default_factory=LeaksConfig)
    probing: ProbingConfig = field(default_factory=ProbingConfig)
    language_model: LanguageModelConfig | None = None
    shortcut_probe: bool = True
    card: bool = True
    rows_per_shard: int = 50_000
    sharding: Sharding = "groups"


def resolved(config: BuildConfig, is_read: Callable[[int], bool] = lambda number: True) -> BuildConfig:
    """The config with environment variables put in and its values checked.

    Args:
        config: as written.
        is_read: whether the annotation file with this number (over all sources, from 0) is read here, and must exist.

    Raises:
        ConfigError: shares that do not sum to 1, a negative number, an unknown format, a missing file, an unset
            variable.
    """
    if config.splits.cross is None:
        check_fractions(fractions_of(config))
    else:
        _check_cross(config.splits, config.splits.cross)
    _check_numbers(config)
    if not config.sources:
        raise ConfigError("sources: the list is empty, got []; name at least one annotation file")
    if config.remote:
        allow_remote(*config.remote)
    sources: list[SourceConfig] = []
    for number, source in enumerate(config.sources):
        if source.format not in IMPORTERS:
            raise ConfigError(
                f"sources[{number}].format: is not one of {list(IMPORTERS)}, got {source.format!r}; pick one"
            )
        paths = [*([source.path] if source.path is not None else []), *source.paths]
        if not paths:
            raise ConfigError(f"sources[{number}]: no file is named, got no path; set path or paths")
        if config.media_root is None and (remote := [path for path in paths if is_address(path)]):
            raise ConfigError(f"media_root: required where annotations are not here, got {remote[0]}; name the folder")
        try:
            files = tuple(
                str(media_path(path, None)) if is_address(path) else expanded(path, f"sources[{number}]")
                for path in paths
            )
        except MediaError as error:
            raise ConfigError(f"sources[{number}]: {error}") from error
        exists = Path.exists if IMPORTERS[source.format].reads_folders else Path.is_file
        before = sum(len(earlier.paths) for earlier in sources)
        if absent := [p for at, p in enumerate(files, start=before) if is_read(at) and not exists(Path(p))]:
            raise ConfigError(f"sources[{number}]: no such annotation file, got {absent[0]}; check the path")
        sources.append(dataclasses.replace(source, path=None, paths=files))
    media_root = config.media_root
    if media_root is not None and not is_address(media_root):
        media_root = expanded(media_root, "media_root")
    output = expanded(config.output, "output")
    rules = config.negatives
    if rules.word_groups is not None:
        rules = dataclasses.replace(rules, word_groups=expanded(rules.word_groups, "negatives.word_groups"))
        if not Path(str(rules.word_groups)).is_file():
            raise ConfigError(f"negatives.word_groups: no such file, got {rules.word_groups}; check the path")
    return dataclasses.replace(config, sources=tuple(sources), media_root=media_root, output=output, negatives=rules)


def _check_cross(splits: SplitsConfig, n_folds: int) -> None:
    fewest = 3 if splits.validation > 0 else 2
    if n_folds < fewest:
        validates = " one to validate on," if fewest == 3 else ""
        otherwise = ", or splits.validation=0" if n_folds == 2 else ""
        raise ConfigError(
            f"splits.cross: folds are one to test on,{validates} one to train on, got {n_folds}; "
            f"use {fewest} or more{otherwise}"
        )
    if splits.held_out_roles:
        raise ConfigError(
            f"splits.cross: folds are not compositional, got held_out_roles {list(splits.held_out_roles)}; remove one"
        )


def _check_numbers(config: BuildConfig) -> None:
    rules = config.negatives
    counts = {
        "negatives.swapped_per_claim": rules.swapped_per_claim,
        "negatives.altered_per_claim": rules.altered_per_claim,
        "negatives.by_model.per_claim": rules.by_model.per_claim,
    }
    for key, value in counts.items():
        if value < 0:
            raise ConfigError(f"{key}: must not be negative, got {value}; use 0 for none")
    positive = {
        "negatives.by_model.attempts": rules.by_model.attempts,
        "leaks.claim_words": config.leaks.claim_words,
        "probing.workers": 1 if config.probing.workers is None else config.probing.workers,
        "probing.timeout_s": config.probing.timeout_s,
        "rows_per_shard": config.rows_per_shard,
    }
    for key, value in positive.items():
        if not value > 0:
            raise ConfigError(f"{key}: must be greater than 0, got {value}; leave the key out for its default")
    if rules.altered_by not in ("auto", "parser", "rules"):
        raise ConfigError(f"negatives.altered_by: must be auto, parser or rules, got {rules.altered_by!r}; pick one")
    if rules.altered_per_claim and rules.altered_by == "parser" and not Grammar.is_installed():
        raise ConfigError(
            f"negatives.altered_by: the parser is not installed, got 'parser'; run {pip_line('spacy')}, or set rules"
        )
    if rules.by_model.per_claim and config.language_model is None:
        raise ConfigError("language_model: required for negatives.by_model, got none; name the endpoint and model")


def media_root_of(config: BuildConfig) -> Path:
    """What media paths of the data set are relative to: as configured, or the folder the sources have in common.

    Where the media root is an address, paths hold it, and are relative to nothing.
    """
    if config.media_root is not None:
        return Path(config.output if is_address(config.media_root) else config.media_root)
    return Path(os.path.commonpath([Path(path).absolute().parent for s in config.sources for path in s.paths]))


def altering_packages(config: BuildConfig) -> tuple[str, ...]:
    """The packages that alter sentences in this build; none where no claims are altered, or by rules alone."""
    rules = config.negatives
    used = rules.altered_per_claim and not rules.balanced and rules.altered_by != "rules" and Grammar.is_installed()
    return Grammar.PACKAGES if used else ()


def fractions_of(config: BuildConfig) -> dict[Split, float]:
    """The wanted share of rows of every split, or fold."""
    if config.splits.cross is not None:
        names: Any = fold_names(config.splits.cross)
        return dict.fromkeys(names, 1 / config.splits.cross)
    return {split: getattr(config.splits, split) for split in SPLITS}
