"""The verifier directory: what it contains, how it is written (whole or not at all) and checked when read.

    verifier_config.json      schema, base and its weight hash, prompt, label words and ids, positions, sampling
    adapter/ or model/        safetensors: LoRA weights over the base, or the whole model
    processor/                tokenizer, chat template, image and video processors
    calibration.json          absent in a verifier that is not calibrated yet
    thresholds.json           named operating points, likewise
    golden/                   small inputs with the margins they must give
    MANIFEST.sha256           hash of every other file

JSON and safetensors only, read strictly (models/backbones/safety.py). The configuration also records which packages the
verifier's function depends on, with a reason each, and where its base checkpoint lies relative to the directory.
Docs: docs/verifier-directory.md.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ...core import (
    EXTRAS,
    ConfigError,
    DirectoryError,
    Label,
    MediaError,
    Prompt,
    download,
    from_mapping,
    is_address,
    local_folder,
    pip_line,
    schema_problem,
    sha256_of,
)
from ...data_prep.media import FrameSampling
from ..backbones import check_safetensors, check_settings, is_plain_name, read_json
from ..engine import HEADS
from ..inputs import ChatTurns, PositionRule, TimeRule, Windowing

SCHEMA_VERSION = "1.3"
OLDER_SCHEMAS = ("1.0", "1.1", "1.2")  # schemas that are read
MANIFEST = "MANIFEST.sha256"
_CALIBRATION, _THRESHOLDS, _FITTED_ROWS = "calibration.json", "thresholds.json", "fitted_rows.json"
CONFIG = "verifier_config.json"
ALLOWED_SUFFIXES = (".json", ".safetensors", ".jinja", ".txt", ".md", ".html", ".parquet")
_MAX_MANIFEST_BYTES = 2**20
_BOOKKEEPING = {".git", ".gitattributes", ".cache"}  # of git and of the hub's downloads; never read
_UNREAD = "eval"  # reports for people, which no function depends on


@dataclass(frozen=True)
class BaseModel:
    """The checkpoint an adapter stands on. `path` is a hub id, or a folder relative to the verifier directory."""

    path: str
    revision: str | None
    weights_sha256: str


@dataclass(frozen=True)
class Requirement:
    """A package the verifier's function depends on: which versions, and why."""

    versions: str
    reason: str


EvidenceKind = Literal["video", "image", "audio", "transcript", "passage"]


@dataclass(frozen=True)
class VerifierConfig:
    """Everything needed to ask the network the question it was trained on."""

    base: BaseModel
    weights: Literal["adapter", "full"]
    prompt: Prompt
    supported_id: int
    refuted_id: int
    sampling: FrameSampling
    position_rule: PositionRule = "published"
    time_rule: TimeRule = "rounded"  # schemas 1.0 and 1.1 do not record it: theirs is "truncated"
    head: str = "next_token"  # one of `HEADS`
    labels: tuple[Label, ...] = ("supported", "refuted")
    chat: ChatTurns | None = None  # what the chat template writes; schemas before 1.3 do not record it
    max_tokens: int = 8192
    claims_per_row: int = 32
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    quantization: dict[str, Any] | None = None
    trained: dict[str, Any] = field(default_factory=dict)
    modalities: tuple[EvidenceKind, ...] | None = None  # kinds of evidence it was trained on; None: not recorded
    windowing: Windowing | None = None  # None: evidence is judged whole
    requirements: dict[str, Requirement] = field(default_factory=dict)
    schema_version: str = SCHEMA_VERSION
    prompt_sha256: str = ""

    def to_json(self) -> str:
        """The file's text, in this release's schema; the prompt's hash shows that a template was edited."""
        values: dict[str, Any] = dataclasses.asdict(self) | {
            "prompt_sha256": self.prompt.sha256,
            "schema_version": SCHEMA_VERSION,
        }
        values["sampling"], values["prompt"] = self.sampling.as_recorded(), self.prompt.as_recorded()
        if self.chat is not None and not self.chat.audio:  # earlier releases read directories of what hears nothing
            values["chat"] = {key: value for key, value in values["chat"].items() if key != "audio"}
        return json.dumps(values, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def write_directory(directory: str | Path, fill: Callable[[Path], None]) -> Path:
    """Build a verifier directory under a temporary name, hash it, and rename it into place.

    Args:
        directory: the final name; must not exist.
        fill: writes everything but the manifest into the folder it is given.
    """
    directory = Path(directory)
    if directory.exists():
        raise DirectoryError(f"{directory}: already exists; choose another name or remove it")
    temporary = directory.with_name(f".{directory.name}.partial-{os.getpid()}")
    temporary.mkdir(parents=True)
    try:
        fill(temporary)
        _open_to_readers(temporary)
        write_manifest(temporary)
        temporary.rename(directory)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return directory


def _open_to_readers(directory: Path) -> None:
    """Give every file the mode of a new one: safetensors writes files that nobody else can read."""
    os.umask(umask := os.umask(0o022))
    for path in directory.rglob("*"):
        if path.is_file():
            path.chmod(0o666 & ~umask)


def write_manifest(directory: Path) -> None:
    """Record the hash of every file, in sha256sum's own format."""
    lines = [f"{sha256_of(directory / name)}  {name}" for name in _files_of(directory)]
    (directory / MANIFEST).write_text("\n".join(lines) + "\n", encoding="utf-8")


def find_verifier(path_or_hub_id: str | Path, revision: str | None = None) -> Path:
    """The local folder of a verifier: the path itself, or what lies at an address or at the hub, fetched if need be.

    Args:
        path_or_hub_id: a folder, an address like `s3://bucket/verifier` (see `allow_remote`), or an id like
            `name/verifier`.
        revision: commit, tag or branch of a hub id; None: its main branch.

    Raises:
        DirectoryError: neither a folder nor a reachable address or hub id, or a revision of a folder.
    """
    if is_address(str(path_or_hub_id)):
        if revision is not None:
            raise DirectoryError(f"{path_or_hub_id}: an address has no revisions, got {revision!r}; leave it out")
        try:
            return local_folder(str(path_or_hub_id))
        except MediaError as error:
            raise DirectoryError(str(error)) from error
    if Path(path_or_hub_id).is_dir():
        if revision is not None:
            raise DirectoryError(f"{path_or_hub_id}: a folder has no revisions, got {revision!r}; leave it out")
        return Path(path_or_hub_id)
    patterns = [f"*{suffix}" for suffix in (*ALLOWED_SUFFIXES, ".sha256")]
    return download(str(path_or_hub_id), revision, patterns, "verifier")


def read_directory(directory: str | Path) -> VerifierConfig:
    """Check a verifier directory's files and read its configuration.

    Raises:
        DirectoryError: not a verifier directory, a newer major schema, a file changed, added or lost since it was
            written, a file of a forbidden kind, or a value that does not fit.
    """
    directory = Path(directory)
    path = directory / CONFIG
    if not path.is_file():
        raise DirectoryError(f"{directory}: not a verifier directory, got no {CONFIG}; give the folder export wrote")
    values = read_json(path)
    if not isinstance(values, dict):
        raise DirectoryError(f"{path}: must be a JSON object, got {type(values).__name__}; fetch it again")
    version = str(values.get("schema_version", "?"))
    if not re.fullmatch(r"\d+\.\d+", version):
        raise DirectoryError(f"{path}: schema_version must be two numbers, got {version!r}; fetch the directory again")
    if version.split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        raise DirectoryError(
            f"{path}: schema version {version} is not readable by this release (it reads {SCHEMA_VERSION}); "
            "install the proofreel release that wrote it"
        )
    check_manifest(directory)
    check_contents(directory)
    try:
        config = from_mapping(VerifierConfig, _rules_of(version) | values, where=str(path))
    except ConfigError as error:
        newer = (
            ""
            if version in (*OLDER_SCHEMAS, SCHEMA_VERSION)
            else f" (written with schema {version}, read {SCHEMA_VERSION})"
        )
        where = "" if str(path) in str(error) else f"{path}: "
        raise DirectoryError(f"{where}{error}{newer}") from error
    if problem := schema_problem(values, Path(__file__).parent / "schemas" / CONFIG):
        raise DirectoryError(f"{path}: {problem}; fetch the directory again")
    _check_config(path, config)
    _check_parts(directory)
    return config


def _check_parts(directory: Path) -> None:
    """A verifier that lost its calibration is no uncalibrated one."""
    if (directory / _CALIBRATION).is_file():
        return
    if rest := [name for name in (_THRESHOLDS, _FITTED_ROWS) if (directory / name).is_file()]:
        raise DirectoryError(
            f"{directory}: {_CALIBRATION} is missing, got {' and '.join(rest)} without it; fetch the directory again"
        )


def _rules_of(version: str) -> dict[str, str]:
    """What a directory of this schema means by saying nothing."""
    return {"time_rule": "truncated"} if version in ("1.0", "1.1") else {}


def _check_config(path: Path, config: VerifierConfig) -> None:
    """What no single value shows."""
    if config.prompt_sha256 != config.prompt.sha256:
        raise DirectoryError(
            f"{path}: the prompt does not match its recorded hash; restore the directory from its source"
        )
    if config.head not in HEADS:
        raise DirectoryError(
            f"{path}: head must be one of {list(HEADS)}, got {config.head!r}; install the release that wrote it"
        )
    if config.labels not in HEADS[config.head].label_sets:
        raise DirectoryError(
            f"{path}: labels that no {config.head} verifier has, got {list(config.labels)}; fetch the directory again"
        )
    if not re.fullmatch(r"(?!/|[A-Za-z]:)[^\\\x00-\x1f]+", config.base.path) or ".." in Path(
        config.base.path
    ).as_posix().lstrip("./").split("/"):
        raise DirectoryError(
            f"{path}: base.path must be a hub id, or lead from this directory to a folder, got {config.base.path!r}; "
            "name it relative to the directory, with every .. at its start"
        )


def check_manifest(directory: Path) -> None:
    """`DirectoryError` unless the files are exactly those listed, unchanged, and of the allowed kinds."""
    listed, present = _listed(directory / MANIFEST), set(_files_of(directory))
    if lost := sorted(set(listed) - present):
        raise DirectoryError(f"{directory}: files are missing, got no {lost}; fetch the directory again")
    if extra := sorted(present - set(listed)):
        raise DirectoryError(f"{directory}: files the manifest does not list, got {extra}; remove them")
    for name, digest in listed.items():
        if sha256_of(directory / name) != digest:
            raise DirectoryError(f"{directory / name}: changed since the directory was written; fetch it again")


def check_contents(directory: Path) -> None:
    """`DirectoryError` unless every file is what its name says, and asks no library for code or files of elsewhere."""
    for name in _files_of(directory):
        if name.endswith(".safetensors"):
            check_safetensors(directory / name)
    for folder in (directory, *(p for p in sorted(directory.rglob("*")) if p.is_dir())):
        if folder.relative_to(directory).parts[:1] not in [(name,) for name in (_UNREAD, *_BOOKKEEPING)]:
            check_settings(folder, whole=True)


def trained_on(directory: str | Path) -> list[str] | None:
    """SHA-256 of each shard of train rows that a verifier was trained on; None where that was not recorded."""
    return read_json(Path(directory) / CONFIG).get("trained", {}).get("train_shards")


def recipe_of(directory: str | Path) -> str | None:
    """SHA-256 of the settings that a verifier was trained with, data apart; None where that was not recorded."""
    return read_json(Path(directory) / CONFIG).get("trained", {}).get("recipe_sha256")


def fingerprint(directory: str | Path) -> str:
    """Identity of a published verifier: the hash of its manifest. Scores are comparable when it is equal."""
    return sha256_of(Path(directory) / MANIFEST)


def _listed(manifest: Path) -> dict[str, str]:
    """The hash of each file that a manifest lists."""
    if not manifest.is_file():
        raise DirectoryError(f"{manifest.parent}: no {MANIFEST}; the directory is incomplete, fetch it again")
    if (size := manifest.stat().st_size) > _MAX_MANIFEST_BYTES:
        raise DirectoryError(f"{manifest}: too large for a manifest, got {size} bytes; fetch the directory again")
    listed: dict[str, str] = {}
    for n, line in enumerate(manifest.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        match = re.fullmatch(r"([0-9a-f]{64})  (\S.*)", line)
        if not match or not _is_inside(match[2]) or match[2] in listed:
            raise DirectoryError(f"{manifest}:{n}: not a hash and a file inside the directory, got {line!r}")
        listed[match[2]] = match[1]
    return listed


def _is_inside(name: str) -> bool:
    """Whether a name leads to a file in or below the directory on every system, in one way of writing it."""
    return all(is_plain_name(part) for part in name.split("/"))


def _files_of(directory: Path) -> list[str]:
    names = []
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if name.split("/")[0] in _BOOKKEEPING:
            continue
        if path.is_symlink() and not _is_of_the_hubs_cache(path, directory):
            raise DirectoryError(f"{path}: symbolic links are not part of a verifier directory; copy the file")
        if name == MANIFEST or path.is_dir():
            continue
        if not path.is_file() or path.suffix not in ALLOWED_SUFFIXES:
            raise DirectoryError(f"{path}: files of this kind are refused, got {path.suffix!r}; remove it")
        if not _is_inside(name) or not name.isprintable():
            raise DirectoryError(f"{path}: a name that is not the same on every system, got {name!r}; rename the file")
        names.append(name)
    return names


def _is_of_the_hubs_cache(link: Path, directory: Path) -> bool:
    """huggingface_hub keeps `snapshots/<revision>/name` as links to files in `blobs` beside `snapshots`.

    A stage of a cascade lies deeper in the snapshot than a verifier that is a repository of its own.
    """
    blobs = link.resolve().parent
    above = (directory.absolute(), *directory.absolute().parents)
    return any(p.parent.name == "snapshots" and blobs == (p.parent.parent / "blobs").resolve() for p in above)


_ALWAYS = {
    "torch": Requirement(">=2.11", "its sdpa kernels take the claims' boolean masks"),
    "transformers": Requirement(
        ">=5.23,<6", "its names of modules and weights, and where it places text after a video"
    ),
    "safetensors": Requirement(">=0.6", "the weights' format"),
}
_SEES = {"torchvision": Requirement(">=0.26", "the video processor resizes and normalises frames with it")}
_ADAPTER = {"peft": Requirement(">=0.21", "the adapter's format")}
_QUANTISED = {"bitsandbytes": Requirement(">=0.50", "the adapter was trained over its NF4 weights")}


def requirements_of(sees: bool, adapter: bool, quantised: bool) -> dict[str, Requirement]:
    """What a verifier needs: one that looks at frames, one that is an adapter, one whose base is quantised."""
    return {
        **_ALWAYS,
        **(_SEES if sees else {}),
        **(_ADAPTER if adapter else {}),
        **(_QUANTISED if quantised else {}),
    }


def check_requirements(
    requirements: Mapping[str, Requirement],
    where: str | Path,
    version_of: Callable[[str], str] = installed_version,
) -> None:
    """Refuse packages that are absent or of another version, all of them in one sentence.

    Args:
        requirements: by package name, as pip knows it.
        where: the directory, for the message.
        version_of: how an installed version is found out.

    Raises:
        DirectoryError: naming each package, what is installed, what is needed and why.
    """
    wrong = []
    for name, requirement in requirements.items():
        try:
            wanted = SpecifierSet(requirement.versions)
        except InvalidSpecifier as error:
            raise DirectoryError(
                f"{where}: requirement of {name} is no version range, got {requirement.versions!r}; fetch it again"
            ) from error
        try:
            installed = version_of(name)
        except PackageNotFoundError:
            wrong.append(f"{name} is not installed, needed is {requirement.versions} ({requirement.reason})")
            continue
        if not wanted.contains(installed, prereleases=True):
            wrong.append(f"{name} is {installed}, needed is {requirement.versions} ({requirement.reason})")
    if wrong:
        remedy = f"install those{_with_pip(requirements, version_of)}"
        raise DirectoryError(f"{where}: made for other packages, got: {'; '.join(wrong)}; {remedy}")


def _with_pip(requirements: Iterable[str], version_of: Callable[[str], str]) -> str:
    """The command that installs what is absent: of our own extras alone, as a directory may name any package."""
    absent = []
    for name in sorted(EXTRAS.keys() & set(requirements)):
        try:
            version_of(name)
        except PackageNotFoundError:
            absent.append(name)
    return f": {pip_line(*absent)}" if absent else ""


def relative_base(path: str, new: Path, old: Path | None = None) -> str:
    """A base's path rewritten for the directory `new`; hub ids stay as they are.

    Args:
        path: a hub id, an absolute folder, or a folder relative to `old`.
        new: the verifier directory the answer is relative to, so that base and verifier can move together.
        old: the verifier directory `path` was relative to.
    """
    folder = Path(path) if old is None else old / path
    if not folder.is_absolute() and old is None:
        return path
    return Path(os.path.relpath(folder.resolve(), new.resolve())).as_posix() if folder.is_dir() else path
