"""Files written completely or not at all: hashes, sealed entries, and a folder of entries under one limit of bytes.

`EntryStore` is safe for many processes and for `kill -9`. An entry is written beside the others and renamed. A process
killed while it writes leaves a file in `unfinished/`, which is never read and is removed after an hour. `total`, the
bytes of all entries, is changed under a lock that the kernel releases with its holder; after a crash it may be too
high, never too low, and it is counted anew before anything is evicted. POSIX only; on network disks it is as safe as
their locks and renames. It keeps decoded frames, and features of a vision tower.

    <directory>/entries/ab/abcdef...    <directory>/unfinished/    <directory>/lock    <directory>/total
    <directory>/used/ab/abcdef...       empty; its time is that of the last use of an entry found as a file

A sealed entry (`seal`, `unseal`) is a checksum, the size of a JSON header, the header with the entry's key, and raw
bytes. Nothing in an entry can be executed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import struct
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

STALE_S = 3600.0
_ROOM = 0.9  # share of the limit that eviction leaves filled


class EntryStore:
    """Named entries under a common limit of bytes; those used longest ago go first."""

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory, self._max_bytes, self._tidied = directory, max_bytes, False

    def read(self, key: str) -> bytes | None:
        """The entry, or None; reading it is using it."""
        path = self._path(key)
        try:
            entry = path.read_bytes()
        except OSError:  # not there, or just evicted
            return None
        with suppress(OSError):
            os.utime(path)  # the order of eviction
        return entry

    def find(self, key: str) -> Path | None:
        """Where an entry lies, or None; finding it is using it.

        The time of use is that of another file: a media file whose own times change would count as changed.
        """
        path = self._path(key)
        if not path.is_file():
            return None
        with suppress(OSError):
            used = sharded(self._directory / "used", key)
            used.parent.mkdir(parents=True, exist_ok=True)
            used.touch()
        return path

    def drop(self, key: str) -> None:
        """Forget an entry, if it is there."""
        with suppress(OSError):
            self._path(key).unlink()

    def write(self, key: str, entry: bytes) -> bool:
        """Keep an entry, making room for it; False if it is larger than the limit."""
        if len(entry) > self._max_bytes:
            return False
        with self.unfinished() as path:
            path.write_bytes(entry)
            self.adopt(key, path)
        return True

    @contextmanager
    def unfinished(self) -> Iterator[Path]:
        """A name for a file that is being written; what lies there in the end is removed."""
        if not self._tidied:
            _tidy(self._directory / "unfinished")
            self._tidied = True
        path = _unfinished_path(self._directory)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def adopt(self, key: str, unfinished: Path) -> Path:
        """Make a file that is no larger than the limit an entry, making room for it; where it then lies."""
        n_bytes = unfinished.stat().st_size
        with self._locked():
            if not self._path(key).exists():  # else another writer was first, with the same bytes
                total = self._total()
                if total + n_bytes > self._max_bytes:
                    total = self._evict(int(_ROOM * self._max_bytes) - n_bytes)
                # counted before it is there: a process killed in between leaves a total too high, never too low
                self._total_file.write_text(str(total + n_bytes))
                _rename(unfinished, self._path(key))
        return self._path(key)

    def _path(self, key: str) -> Path:
        return sharded(self._directory / "entries", key)

    @property
    def _total_file(self) -> Path:
        return self._directory / "total"

    def _total(self) -> int:
        try:
            return int(self._total_file.read_text())
        except (OSError, ValueError):
            return sum(size for _, size, _ in self._entries())

    def _entries(self) -> list[tuple[int, int, str]]:
        """(time of last use, bytes, path) of every entry."""
        entries = []
        for path in (self._directory / "entries").glob("??/*"):
            with suppress(OSError):
                status, used_ns = path.stat(), 0
                with suppress(OSError):
                    used_ns = sharded(self._directory / "used", path.name).stat().st_mtime_ns
                entries.append((max(status.st_mtime_ns, used_ns), status.st_size, str(path)))
        return entries

    def _evict(self, goal: int) -> int:
        """Remove what was used longest ago until at most `goal` bytes are left; how many are."""
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total <= goal:
                break
            Path(path).unlink(missing_ok=True)
            sharded(self._directory / "used", Path(path).name).unlink(missing_ok=True)
            total -= size
        return total

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._directory / "lock").open("a") as file:
            # The kernel releases the lock when the file is closed, also when the process is killed.
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def sharded(folder: Path, name: str) -> Path:
    """Where a file of a name lies: folders by two letters, because a folder must not hold a million files."""
    return folder / name[:2] / name


def write_whole(directory: Path, path: Path, content: bytes) -> None:
    """A file that is written completely or not at all."""
    unfinished = _write_unfinished(directory, content)
    try:
        _rename(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _write_unfinished(directory: Path, content: bytes) -> Path:
    path = _unfinished_path(directory)
    try:
        path.write_bytes(content)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return path


def _unfinished_path(directory: Path) -> Path:
    path = directory / "unfinished" / uuid.uuid4().hex
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _rename(unfinished: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.replace(unfinished, path)


def _tidy(folder: Path) -> None:
    """Remove what was left by processes that were killed while they wrote."""
    for path in folder.glob("*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_S:
                path.unlink()


_N_DIGEST, _SIZE = 32, struct.Struct("<I")


class DamagedEntryError(ValueError):
    """An entry that is not, whole and unchanged, what was stored under its key."""


def seal(key: str, header: dict[str, Any], *body: bytes) -> bytes:
    """An entry of this key; `unseal` gives header and body back."""
    text = json.dumps({"key": key, **header}).encode()
    rest = b"".join((_SIZE.pack(len(text)), text, *body))
    return hashlib.sha256(rest).digest() + rest


def unseal(entry: bytes, key: str) -> tuple[dict[str, Any], memoryview]:
    """Header and body of an entry; `DamagedEntryError` unless it is, whole and unchanged, the one of this key."""
    rest = memoryview(entry)[_N_DIGEST:]
    if hashlib.sha256(rest).digest() != entry[:_N_DIGEST]:
        raise DamagedEntryError(f"entry {key}: checksum differs")
    at = _SIZE.size + _SIZE.unpack_from(rest)[0]
    header = json.loads(bytes(rest[_SIZE.size : at]))
    if header["key"] != key:
        raise DamagedEntryError(f"entry {key}: holds another entry, {header['key']}")
    return header, rest[at:]


def sha256_of(path: str | Path) -> str:
    """SHA-256 of a file, in hex."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def source_digest(path: Path, suffixes: tuple[str, ...] = ("",)) -> str:
    """SHA-256 of a file; of a folder, over the names and digests of the files in it that end so."""
    if path.is_file():
        return sha256_of(path)
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name.endswith(suffixes))
    names = "".join(f"{file.relative_to(path).as_posix()} {sha256_of(file)}\n" for file in files)
    return hashlib.sha256(names.encode("utf-8", "surrogateescape")).hexdigest()
