"""The cascade directory: how a cascade is written as one folder, and checked when it is read.

    cascade/            cascade.json (stages, views, bands, calibrations), calibration.json, thresholds.json of the
                        whole, perhaps report.md and report.json, and MANIFEST.sha256
    stages/0, stages/1  verifier directories, as they were published; or none, where the stages are only referred to

The manifest covers cascade.json, which holds the fingerprint of every stage, which is the hash of that stage's own
manifest: nothing can change unseen.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core import ConfigError, DirectoryError, from_mapping
from ..backbones import read_json
from ..decision import read_decision, write_decision
from ..directory import (
    UNRECORDED_EVIDENCE,
    check_contents,
    check_manifest,
    copy_directory,
    find_verifier,
    fingerprint,
    read_directory,
    relative_base,
    write_directory,
)
from .plan import CascadePlan, View

SCHEMA_VERSION = "1.0"
FOLDER, FILE, STAGES = "cascade", "cascade.json", "stages"
_BESIDE = {FOLDER, STAGES, "README.md", ".git", ".gitattributes", ".cache"}
_LEADS = re.compile(r"(?!/|[A-Za-z]:)[^\\\x00-\x1f]+")


@dataclass(frozen=True)
class StageEntry:
    """A stage as it is written.

    Attributes:
        verifier: a folder relative to the cascade directory, or a hub id.
        fingerprint: of that verifier directory.
        base: where its base checkpoint lies, relative to the cascade directory; None: where the verifier says.
        view: what it is shown.
    """

    verifier: str
    fingerprint: str
    view: View
    base: str | None = None


@dataclass(frozen=True)
class CascadeConfig:
    """The text of cascade.json."""

    stages: tuple[StageEntry, ...]
    bands: list[dict[str, Any]]
    calibrations: list[dict[str, Any]]
    schema_version: str = SCHEMA_VERSION


def is_cascade(directory: str | Path) -> bool:
    """Whether a folder holds a cascade and not a single verifier."""
    return (Path(directory) / FOLDER / FILE).is_file()


def write_cascade(
    directory: str | Path,
    verifiers: Sequence[Any],
    views: Sequence[View],
    plan: CascadePlan,
    sources: Sequence[str | Path],
    inside: bool,
    report: str | Path | None = None,
) -> Path:
    """Write a cascade directory, whole or not at all; arguments as for `Cascade.save_pretrained`."""
    directory = Path(directory)
    if directory.exists():
        raise DirectoryError(f"{directory}: already exists; choose another name or remove it")
    folders = [_source(*each) for each in zip(verifiers, sources, strict=True)]
    try:
        directory.mkdir(parents=True)
        entries, copied = [], {}
        for verifier, view, folder, source in zip(verifiers, views, folders, sources, strict=True):
            if inside and verifier.fingerprint not in copied:
                copied[verifier.fingerprint] = f"{STAGES}/{len(copied)}"
                copy_directory(folder, directory / copied[verifier.fingerprint], verifier.fingerprint)
            name = copied[verifier.fingerprint] if inside else relative_base(str(source), directory, Path())
            entries.append(StageEntry(name, verifier.fingerprint, view, _base(folder, directory)))
        config = CascadeConfig(tuple(entries), **plan.to_dict())
        write_directory(directory / FOLDER, lambda new: _fill(new, config, plan, report))
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return directory


def open_cascade(
    path_or_hub_id: str | Path, revision: str | None, load: Callable[..., Any], options: dict[str, Any]
) -> tuple[list[Any], list[View], CascadePlan]:
    """Verifiers, views and plan of a checked cascade directory.

    Args:
        path_or_hub_id, revision: as for `Verifier.from_pretrained`.
        load: makes a verifier of a folder; called once for each distinct one.
        options: for `load`.

    Raises:
        DirectoryError: no cascade directory, a newer major schema, files that changed, or a stage that is another
            verifier than the one recorded.
    """
    directory = find_verifier(path_or_hub_id, revision)
    config, plan = read_cascade(directory)
    loaded: dict[str, Any] = {}
    for entry in config.stages:
        if entry.fingerprint not in loaded:
            folder = stage_folder(directory, entry)
            base = None if entry.base is None or not (directory / entry.base).is_dir() else directory / entry.base
            loaded[entry.fingerprint] = load(folder, **{"base": base} | options)
    return [loaded[e.fingerprint] for e in config.stages], [e.view for e in config.stages], plan


def read_cascade(directory: str | Path) -> tuple[CascadeConfig, CascadePlan]:
    """Check the files of a cascade, apart from its stages, and read them; errors as for `open_cascade`."""
    directory = Path(directory)
    if not is_cascade(directory):
        raise DirectoryError(f"{directory}: not a cascade directory, got no {FOLDER}/{FILE}; give the folder it is in")
    if foreign := sorted(p.name for p in directory.iterdir() if p.name not in _BESIDE):
        raise DirectoryError(f"{directory}: files that are not part of a cascade, got {foreign}; remove them")
    folder = directory / FOLDER
    values = read_json(folder / FILE)
    version = str(values.get("schema_version", "?")) if isinstance(values, dict) else "?"
    if version.split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        raise DirectoryError(
            f"{folder / FILE}: schema version {version} is not readable by this release (it reads {SCHEMA_VERSION}); "
            "install the proofreel release that wrote it"
        )
    check_manifest(folder)
    check_contents(folder)
    try:
        config = from_mapping(CascadeConfig, values, where=str(folder / FILE))
    except ConfigError as error:
        raise DirectoryError(str(error)) from error
    for name in [name for e in config.stages for name in (e.verifier, e.base) if name is not None]:
        if not _LEADS.fullmatch(name) or ".." in name.lstrip("./").split("/"):
            raise DirectoryError(f"{folder / FILE}: not a relative folder or hub id, got {name!r}; write it again")
    values = {"bands": config.bands, "calibrations": config.calibrations}
    return config, CascadePlan.from_dict(values, read_decision(folder), str(folder / FILE))


def stage_folder(directory: Path, entry: StageEntry) -> Path:
    """Where a stage's verifier lies here; `DirectoryError` if it is another than the one recorded."""
    folder = directory / entry.verifier
    if not folder.is_dir():
        if entry.verifier.startswith((f"{STAGES}/", ".")):  # never a hub id
            raise DirectoryError(f"{folder}: the stage is missing, got no such folder; fetch the cascade again")
        folder = find_verifier(entry.verifier)
    check_manifest(folder)
    if (actual := fingerprint(folder)) != entry.fingerprint:
        raise DirectoryError(
            f"{folder}: not the verifier that this cascade was calibrated with, got fingerprint {actual[:12]} instead "
            f"of {entry.fingerprint[:12]}; fetch that one, or fit the cascade again"
        )
    return folder


def _source(verifier: Any, source: str | Path) -> Path:
    folder = find_verifier(source)
    if not verifier.fingerprint or fingerprint(folder) != verifier.fingerprint:
        raise DirectoryError(
            f"{folder}: not the directory that this stage was loaded from, got fingerprint {fingerprint(folder)[:12]} "
            f"instead of {verifier.fingerprint[:12]!r}; name the sources in the order of the stages"
        )
    if changes := [note for note in verifier.notes if note != UNRECORDED_EVIDENCE]:
        raise DirectoryError(
            f"{folder}: the stage runs otherwise than it was written, got {changes}; load it without "
            "options that change it, and fit the cascade again"
        )
    return folder


def _base(folder: Path, directory: Path) -> str | None:
    """Where a stage's base lies, for the cascade: the folder is copied as it is, and says it for its old place."""
    recorded = read_directory(folder).base.path
    return relative_base(recorded, directory, folder) if (folder / recorded).is_dir() else None


def _fill(new: Path, config: CascadeConfig, plan: CascadePlan, report: str | Path | None) -> None:
    text = json.dumps(dataclasses.asdict(config), indent=2, sort_keys=True, allow_nan=False) + "\n"
    (new / FILE).write_text(text, encoding="utf-8")
    write_decision(new, plan.decision)
    for name in ("report.md", "report.json") if report is not None else ():
        shutil.copyfile(Path(report or "") / name, new / name)
