"""A shard of a build: which annotations it takes, and the directory in which it leaves them for the merge.

A shard does what takes longest and needs no other shard: it reads and checks annotations, lets a model write
statements, and opens, hashes and decodes media. Whole annotations are dealt by the group of their first row, or whole
files, so that the same config gives the same shards on every machine. A shard's directory holds its staging database,
whose rows are numbered by their places in the annotation files, and `shard.json`: what was read, by which code, and the
SHA-256 of the database. The directory is written completely or not at all.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core import ConfigError, RowError, sha256_of
from ..importers import Rejected, Row
from .config import BuildConfig, Sharding

SHARD_VERSION = 1
ROWS = "rows.sqlite"
_RECORD = "shard.json"
_MEANS_NOTHING = ("output", "probing.workers", "probing.timeout_s")  # to what is in a shard


@dataclass(frozen=True)
class Shard:
    """The `number`-th of `of` shards, counted from 1; `by`: what is dealt out."""

    number: int
    of: int
    by: Sharding = "groups"

    @classmethod
    def parse(cls, text: str, by: Sharding) -> Shard:
        """The shard that `i/n` names.

        Raises:
            ConfigError: no two numbers, or none of 1 to n.
        """
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ConfigError(f"--shard: must be i/n with i from 1 to n, got {text!r}; the first of four is 1/4")
        return cls(int(match[1]), int(match[2]), by)

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def has_file(self, number: int) -> bool:
        """Whether anything of the annotation file with this number (over all sources, from 0) is read."""
        return self.by == "groups" or number % self.of == self.number - 1

    def has(self, annotation: Sequence[Row | Rejected]) -> bool:
        """Whether an annotation of such a file is this shard's: by the group of its first row."""
        if self.by == "files":
            return True
        groups = (str(item.pair.group) for item in annotation if isinstance(item, Row))
        first = next(groups, f"{annotation[0].file}:{annotation[0].line}")
        digest = hashlib.blake2b(first.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest) % self.of == self.number - 1

    def directory(self, output: str | Path) -> Path:
        """Where the shard lies, beside the data set that it is for."""
        return Path(output).with_name(f"{Path(output).name}.shard-{self.number}-of-{self.of}")


@dataclass(frozen=True)
class ShardRecord:
    """What `shard.json` says.

    Attributes:
        shard_version: of this format.
        number: which shard, from 1.
        of: of how many.
        config: of the build, environment variables put in.
        made_by: SHA-256 of the code, and versions of the libraries.
        sources: SHA-256 of the annotation files that were read.
        other_files: and of what they name.
        rows: how many there are (single judgments, for a format that merges them).
        files: how many media files were looked at.
        rejected: what was rejected, by kind.
        language_model: what was asked and paid.
        sha256: of the database.
    """

    shard_version: int
    number: int
    of: int
    config: dict[str, Any]
    made_by: dict[str, str]
    sources: dict[str, str]
    other_files: dict[str, str]
    rows: int
    files: int
    rejected: dict[str, int]
    language_model: dict[str, int | float] | None
    sha256: str


def publish_shard(folder: Path, directory: Path, record: ShardRecord) -> None:
    """Put the finished database of the working folder and its record into place, by one rename."""
    temporary = folder / "shard"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    text = json.dumps(dataclasses.asdict(record), indent=1, ensure_ascii=False) + "\n"
    (temporary / _RECORD).write_text(text, encoding="utf-8")
    (folder / ROWS).rename(temporary / ROWS)
    if directory.exists():
        shutil.rmtree(folder / "replaced", ignore_errors=True)
        directory.rename(folder / "replaced")
    temporary.rename(directory)
    shutil.rmtree(folder)


def check_shard_place(directory: Path) -> None:
    """Raise `ConfigError` where something other than an older shard lies."""
    if directory.exists() and not (directory / _RECORD).is_file():
        raise ConfigError(f"output: exists and is no shard, got {directory}; move it away, or name another output")


def read_shards(
    directories: Sequence[Path], config: BuildConfig, made_by: Mapping[str, str]
) -> list[tuple[Path, ShardRecord]]:
    """The shards of a build by number, all there, whole, and of this config and code.

    Raises:
        ConfigError: not a shard, one of another config, code or number of shards, one given twice, one that is missing.
        RowError: a shard whose bytes are not those of its record, or two that read different bytes of one file.
    """
    named = list(directories) or sorted(
        path for path in Path(config.output).parent.glob(f"{Path(config.output).name}.shard-*") if path.is_dir()
    )
    named = [path for path in named if not path.name.endswith(".building")]
    if not named:
        raise ConfigError(f"--merge: there are no shards, got no {config.output}.shard-*; build them by --shard i/n")
    shards = [(path, _record(path)) for path in named]
    wanted = flat(comparable(config))
    places: dict[int, Path] = {}
    for path, record in shards:
        again = f"build it again by --shard {record.number}/{record.of}"
        _refuse_other(path, flat(record.config), wanted, "config", again)
        _refuse_other(path, record.made_by, made_by, "code or libraries", again)
        if record.of != shards[0][1].of:
            first = f"{shards[0][0]} of {shards[0][1].of}"
            raise ConfigError(
                f"{path}: not a shard of the same number, got {record.number} of {record.of} beside {first}; merge "
                "the shards of one number"
            )
        if record.number in places:
            raise ConfigError(
                f"{path}: shard {record.number} of {record.of} is given twice, got {places[record.number]} too; name "
                "each shard once"
            )
        places[record.number] = path
    n_shards = shards[0][1].of
    if missing := [number for number in range(1, n_shards + 1) if number not in places]:
        where = Shard(missing[0], n_shards).directory(config.output)
        raise ConfigError(
            f"{where}: shard {missing[0]} of {n_shards} is missing, got {sorted(places)}; build it by --shard "
            f"{missing[0]}/{n_shards}, or name its directory"
        )
    for path, record in shards:
        _refuse_damaged(path, record)
    for name in ("sources", "other_files"):
        _refuse_different_bytes(shards, name)
    return sorted(shards, key=lambda shard: shard[1].number)


def comparable(config: BuildConfig) -> dict[str, Any]:
    """A (resolved) config as JSON values, as it stands in a shard's record."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def flat(values: Any, name: str = "") -> dict[str, Any]:
    """{dotted key: value} of all that means something for what is in a shard."""
    if name in _MEANS_NOTHING:
        return {}
    if not isinstance(values, (dict, list)) or not values:
        return {name: values}
    found: dict[str, Any] = {}
    for key, value in values.items() if isinstance(values, dict) else enumerate(values):
        found.update(flat(value, f"{name}.{key}" if name else str(key)))
    return found


def read_by_all(shards: Sequence[tuple[Path, ShardRecord]], name: str) -> dict[str, str]:
    """{file: SHA-256} of what the shards read, `sources` or `other_files`."""
    return dict(sorted(entry for _, record in shards for entry in getattr(record, name).items()))


def _record(path: Path) -> ShardRecord:
    file = path / _RECORD
    if not file.is_file():
        raise ConfigError(f"{path}: not a shard of a build, got no {_RECORD}; make one by proofreel build --shard i/n")
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        version = values["shard_version"]
        record = ShardRecord(**values) if version == SHARD_VERSION else None
    except (ValueError, KeyError, TypeError) as error:
        raise RowError(f"{file}: the record is damaged, got {error!r}; build the shard again") from error
    if record is None:
        raise ConfigError(f"{path}: shard version is not {SHARD_VERSION}, got {version!r}; build the shard again")
    return record


def _refuse_other(path: Path, got: Mapping[str, Any], wanted: Mapping[str, Any], what: str, remedy: str) -> None:
    nothing = "nothing"
    for key in sorted({*got, *wanted}):
        mine, other = got.get(key, nothing), wanted.get(key, nothing)
        if mine != other:
            raise ConfigError(f"{path}: made with other {what}, got {key}={mine} for {other}; {remedy}")


def _refuse_damaged(path: Path, record: ShardRecord) -> None:
    state = "other bytes" if (path / ROWS).is_file() else "no file"
    if state == "no file" or sha256_of(path / ROWS) != record.sha256:
        raise RowError(
            f"{path / ROWS}: the shard differs from its {_RECORD}, got {state}; copy it again, or build it by --shard "
            f"{record.number}/{record.of}"
        )


def _refuse_different_bytes(shards: Sequence[tuple[Path, ShardRecord]], name: str) -> None:
    first: dict[str, tuple[str, Path]] = {}
    for path, record in shards:
        for file, digest in getattr(record, name).items():
            known, place = first.setdefault(file, (digest, path))
            if known != digest:
                raise RowError(
                    f"{path}: read other bytes of {file} than {place}, got {digest[:12]} for {known[:12]}; give every "
                    "machine the same file and build the shards again"
                )
