"""Files behind addresses (`s3://`, `gs://`, `hf://`, `https://`) and in archives (`zip://`, `tar://`), as local files.

Nothing is fetched unless whoever runs the program has said from where (`allow_remote`, `--remote`): annotations of a
stranger may name any address, also one of this machine's own network. What was said travels in the environment, so
that loader workers and decoding processes know it too.

A file is fetched once into a folder under a limit of bytes (`EntryStore`): written beside the others, checked for its
size, renamed. Its name tells the address and the version that the server stated (ETag, time, size). Each run asks for
that once for every address, and then sees one content to its end. A member of an archive is copied out the same way.

    <directory>/entries/    <directory>/known/ab/abcdef...    version last seen of an address    <directory>/locks/ab
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import lzma
import os
import re
import shutil
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from .errors import ConfigError, MediaError
from .extras import is_installed
from .storage import EntryStore, sharded, write_whole

T = TypeVar("T")

PROTOCOLS = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "hf": "huggingface_hub",
    "https": "aiohttp",
    "http": "aiohttp",
}
"""Of addresses that may be allowed, and the package that each needs."""
ARCHIVES = ("zip", "tar")
REMOTE_DIRECTORY = "~/.cache/proofreel/remote"

_VARIABLE = "PROOFREEL_REMOTE"
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_IN_PROCESS = ("memory",)  # fsspec's own, which reaches nothing
_WAITS_S = (0.5, 2.0, 8.0)  # before each further try
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, ImportError, NotImplementedError, ValueError)
_CHUNK = 1 << 20
_DAMAGED = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError)


def allow_remote(*prefixes: str, directory: str | Path | None = None, max_gib: float | None = None) -> None:
    """Let this process, and those that it starts, fetch files whose address begins with one of these.

    Args:
        prefixes: e.g. `s3://my-bucket/clips`, `hf://datasets/owner/name`, `https://data.example.org`, or a whole
            protocol, `gs://`. They are added to those of before; none at all forbids everything again.
        directory: where files are kept; None: as before, at first `~/.cache/proofreel/remote`.
        max_gib: all of them together never exceed this, those used longest ago go first; None: as before, at first 50.

    Raises:
        ConfigError: no such protocol, or the package is missing that it needs.
    """
    for prefix in prefixes:
        scheme = _scheme(prefix)
        if scheme not in (*PROTOCOLS, *_IN_PROCESS):
            known = ", ".join(f"{name}://" for name in PROTOCOLS)
            raise ConfigError(f"remote: not the beginning of an address, got {prefix!r}; give one of {known}, and more")
        if scheme in PROTOCOLS and not is_installed(package := PROTOCOLS[scheme]):
            raise ConfigError(
                f"remote: {scheme}:// needs a package that is not installed, got no {package}; pip install {package}"
            )
    if max_gib is not None and not max_gib > 0:
        raise ConfigError(f"remote: the limit must be above 0, got {max_gib} GiB; give GiB")
    settings = _settings()
    settings["prefixes"] = [*dict.fromkeys([*settings["prefixes"], *prefixes])] if prefixes else []
    settings["since_s"] = time.time()
    settings |= {} if directory is None else {"directory": str(directory)}
    settings |= {} if max_gib is None else {"max_gib": max_gib}
    os.environ[_VARIABLE] = json.dumps(settings)


def is_address(path: str) -> bool:
    """Whether a path names what lies elsewhere, or in an archive."""
    return _ADDRESS.match(path) is not None


def with_local_part(path: str, rename: Callable[[str], str]) -> str:
    """A path under its new name; of an address only an archive on this machine has one."""
    if not is_address(path):
        return rename(path)
    head, chained, archive = path.partition("::")
    return f"{head}::{rename(archive)}" if chained and not is_address(archive) else path


def local_part(path: str) -> str | None:
    """What of a path lies on this machine: itself, or the archive that it is in; None for what lies elsewhere."""
    parts: list[str] = []
    with_local_part(path, lambda part: (parts.append(part), part)[1])
    return parts[0] if parts else None


def address_problem(address: str) -> str | None:
    """Why nothing may be fetched from an address; None where it may be. Nothing is opened."""
    scheme, (head, chained, source) = _scheme(address), address.partition("::")
    if scheme in ARCHIVES:
        if not chained or "::" in source or _scheme(source) in ARCHIVES or not _ADDRESS.sub("", head) or not source:
            example = "zip://clip.mp4::clips.zip"
            return f"{shown_address(address)}: not a member of an archive, got this address; write {example}"
        return address_problem(source) if is_address(source) else None
    if scheme not in (*PROTOCOLS, *_IN_PROCESS) or chained:
        known = ", ".join(f"{name}://" for name in (*PROTOCOLS, *ARCHIVES))
        return f"{shown_address(address)}: not an address that can be opened, got {scheme}://; known are {known}"
    if ".." in re.split(r"[/\\?#]", address) or "%2e" in address.lower():
        return f"{shown_address(address)}: leads upwards, got `..` in an address; give it plainly"
    if not any(_begins(address, prefix) for prefix in _settings()["prefixes"]):
        start = address[: len(address) - len(_ADDRESS.sub("", address))] + _ADDRESS.sub("", address).partition("/")[0]
        return (
            f"{shown_address(address)}: is an address, and nothing is fetched unless you say so, got {scheme}://; "
            f"download the file, or allow it: --remote {shown_address(start)}/, in Python allow_remote(...)"
        )
    return None


def local_file(address: str, locate: Callable[[str], Path]) -> Path:
    """The file that an address names, on this machine; fetched if it is not here.

    Args:
        address: see `is_address`.
        locate: where a path that is no address lies: of an archive on this machine.

    Raises:
        MediaError: it is not allowed, not there, or cannot be fetched.
    """
    if problem := address_problem(address):
        raise MediaError(problem)
    return _downloads(json.dumps(_settings())).find(address, locate)


def local_folder(address: str) -> Path:
    """The folder that an address names, with all its files, on this machine; fetched if it is not here.

    It is asked once in a run what lies there. Each version is kept as a folder of its own, beside the fetched files and
    not among those that make room for others.

    Raises:
        MediaError: it is not allowed, not there, or cannot be fetched.
    """
    if problem := folder_problem(address):
        raise MediaError(problem)
    return _fetched_folder(json.dumps(_settings()), address.rstrip("/"))


def folder_problem(address: str) -> str | None:
    """Why no folder can be read or written at an address; None where one can. Nothing is opened."""
    if (scheme := _scheme(address)) in (*ARCHIVES, "http", "https"):
        kinds = ", ".join(f"{name}://" for name in PROTOCOLS if not name.startswith("http"))
        return f"{shown_address(address)}: names no folder that can be listed, got {scheme}://; use {kinds}"
    return address_problem(address)


def shown_address(address: str) -> str:
    """An address for messages, without what may be secret: a query, a password."""
    return re.sub(r"(://)[^/@]*@", r"\1", re.sub(r"[?#][^:]*", "", address))


class _Downloads:
    """The folder of fetched files, of one saying of what is allowed."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._directory = Path(settings["directory"]).expanduser().absolute()
        self._max_bytes, self._since_s = int(settings["max_gib"] * 2**30), settings["since_s"]
        self._store = EntryStore(self._directory, self._max_bytes)
        self._known: dict[str, tuple[str, int | None]] = {}  # address -> name of its entry, bytes

    def find(self, address: str, locate: Callable[[str], Path]) -> Path:
        """See `local_file`."""
        head, _, source = address.partition("::")
        if source:
            member = _ADDRESS.sub("", head)
            archive = self.find(source, locate) if is_address(source) else locate(source)
            return self._member(address, member, archive, is_entry=is_address(source))
        if (file := self._whole(self._known.get(address))) is not None:
            return file
        with self._locked(address):
            record = sharded(self._directory / "known", hashlib.sha256(address.encode()).hexdigest())
            entry = _recorded(record, self._since_s)
            if (file := self._whole(entry)) is None:
                entry, file = self._fetched(address)
                text = json.dumps({"entry": entry, "checked_s": time.time()})
                write_whole(self._directory, record, text.encode())
            assert entry is not None
            self._known[address] = entry
            return file

    def find_folder(self, address: str) -> Path:
        """See `local_folder`."""
        import fsspec.core

        def listing() -> tuple[Any, str, dict[str, dict[str, Any]]]:
            files, path = fsspec.core.url_to_fs(address)
            return files, path.rstrip("/"), files.find(path, detail=True)

        with self._locked(address):
            files, path, found = tried(address, listing)
            plain = sorted((name, info) for name, info in found.items() if not name.endswith("/"))  # marks of folders
            infos = {_name_below(name, path, address): info for name, info in plain}
            if not infos:
                raise MediaError(f"{shown_address(address)}: no such folder, got no file below this address; check it")
            self._check_room(address, sum(info.get("size") or 0 for info in infos.values()))
            folder = self._directory / "folders" / _entry_name(address, json.dumps(infos, sort_keys=True, default=str))
            if folder.is_dir():
                return folder
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unfinished-") as unfinished:
                whole = Path(unfinished) / "whole"
                for name, info in infos.items():
                    (part := whole / name).parent.mkdir(parents=True, exist_ok=True)
                    tried(address, partial(_fetch_whole, files, f"{path}/{name}", part, info.get("size")))
                whole.rename(folder)
            return folder

    def _whole(self, entry: tuple[str, int | None] | None) -> Path | None:
        """The file of an entry, if it is there with all its bytes."""
        file = None if entry is None else self._store.find(entry[0])
        return file if entry is not None and file is not None and entry[1] in (None, file.stat().st_size) else None

    def _fetched(self, address: str) -> tuple[tuple[str, int | None], Path]:
        import fsspec.core

        def version() -> tuple[Any, str, dict[str, Any]]:
            files, path = fsspec.core.url_to_fs(address)
            return files, path, files.info(path)

        files, path, info = tried(address, version)
        n_bytes = info.get("size")
        entry = _entry_name(address, json.dumps(info, sort_keys=True, default=str)), n_bytes
        if (file := self._whole(entry)) is not None:
            return entry, file
        self._check_room(address, n_bytes)

        def fetch() -> Path:
            with self._store.unfinished() as part:
                _fetch_whole(files, path, part, n_bytes)
                self._check_room(address, part.stat().st_size)
                return self._store.adopt(entry[0], part)

        return entry, tried(address, fetch)

    def _member(self, address: str, member: str, archive: Path, is_entry: bool) -> Path:
        """A member of an archive, copied out once."""
        try:
            status = archive.stat()
        except OSError as error:
            raise MediaError(f"{archive}: no such archive, got {error.strerror}; check the path") from error
        state = archive.name if is_entry else f"{archive.absolute()} {status.st_size} {status.st_mtime_ns}"
        name = _entry_name(address, f"{state} {status.st_ino if not is_entry else ''}")
        if (file := self._store.find(name)) is not None:
            return file
        opened = _zip_member if _scheme(address) == "zip" else _tar_member
        with self._locked(name):
            if (file := self._store.find(name)) is not None:
                return file
            try:
                with opened(archive, member) as (content, n_bytes), self._store.unfinished() as part:
                    self._check_room(address, n_bytes)
                    with part.open("wb") as copy:
                        shutil.copyfileobj(content, copy, _CHUNK)
                    if part.stat().st_size != n_bytes:
                        raise OSError(f"{part.stat().st_size} of {n_bytes} bytes")
                    return self._store.adopt(name, part)
            except MediaError:
                raise
            except KeyError:
                raise MediaError(f"{archive}: no such member, got {member!r}; list the archive") from None
            except _DAMAGED as error:
                raise MediaError(
                    f"{archive}: {member!r} cannot be read, got {error}; download or pack the archive again"
                ) from error

    def _check_room(self, address: str, n_bytes: int | None) -> None:
        if n_bytes is not None and n_bytes > self._max_bytes:
            raise MediaError(
                f"{shown_address(address)}: larger than everything that may be kept, got {n_bytes} of at most "
                f"{self._max_bytes} bytes; raise the limit (--remote-gib)"
            )

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """One process at a time fetches a file; the kernel releases the lock with its holder."""
        path = self._directory / "locks" / hashlib.sha256(name.encode()).hexdigest()[:2]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
        except MediaError:  # which is an OSError as well
            raise
        except OSError as error:
            raise MediaError(f"{self._directory}: files cannot be kept, got {error}; name another folder") from error


@contextmanager
def _zip_member(archive: Path, member: str) -> Iterator[tuple[IO[bytes], int]]:
    with zipfile.ZipFile(archive) as opened, opened.open(member) as content:
        yield content, opened.getinfo(member).file_size


@contextmanager
def _tar_member(archive: Path, member: str) -> Iterator[tuple[IO[bytes], int]]:
    with tarfile.open(archive) as opened:
        info = opened.getmember(member)
        content = opened.extractfile(info)
        if content is None or not info.isreg():
            raise KeyError(member)
        yield content, info.size


def _fetch_whole(files: Any, path: str, part: Path, n_bytes: int | None) -> None:
    """Copy a file here; `OSError` if it is not as long as was stated."""
    files.get_file(path, str(part))
    if n_bytes is not None and (got := part.stat().st_size) != n_bytes:
        raise OSError(f"{got} of {n_bytes} bytes")


def _name_below(name: str, folder: str, address: str) -> str:
    """The name of a listed file from its folder on."""
    below = PurePosixPath(name[len(folder) :].lstrip("/"))
    if not below.parts or ".." in below.parts or "\\" in name:
        raise MediaError(f"{shown_address(address)}: is no plain folder, got the file {name!r}; name the folder above")
    return str(below)


def remote_directory() -> Path:
    """Where fetched files, fetched folders and unsent outputs are kept."""
    return Path(_settings()["directory"]).expanduser().absolute()


def tried(address: str, act: Callable[[], T], done: str = "fetched") -> T:
    """What `act` gives, tried a few times; `MediaError` names the address and what cannot be `done` with it."""
    for wait_s in (*_WAITS_S, None):
        try:
            return act()
        except MediaError:
            raise
        except Exception as error:  # of the protocol's own library: any kind
            if isinstance(error, FileNotFoundError):
                message = f"{shown_address(address)}: no such file, got nothing at this address; check it"
                raise MediaError(message) from error
            if wait_s is None or isinstance(error, _FINAL):
                tries = 1 if isinstance(error, _FINAL) else len(_WAITS_S) + 1
                raise MediaError(
                    f"{shown_address(address)}: cannot be {done}, got {type(error).__name__}: {error} in {tries} "
                    "tries; check the address, the network and your access"
                ) from error
            time.sleep(wait_s)
    raise AssertionError


def _recorded(record: Path, since_s: float) -> tuple[str, int | None] | None:
    """The entry that was found for an address in this run."""
    try:
        known = json.loads(record.read_bytes())
        return tuple(known["entry"]) if known["checked_s"] >= since_s else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _entry_name(address: str, version: str) -> str:
    """Hash of address and version, then the file's own name, by which messages tell it and its kind is known."""
    name = re.sub(r"[^\w.-]", "_", own_name(address))[-80:]
    return f"{hashlib.sha256(f'{address} {version}'.encode()).hexdigest()[:40]}-{name}"


def own_name(path: str) -> str:
    """The name of the file itself, with its ending: without an address's query, without a member's archive."""
    if not is_address(path):
        return Path(path).name
    own = _ADDRESS.sub("", path).partition("::")[0]
    own = own if _scheme(path) in ARCHIVES else (urlsplit(path).path or own)
    return own.rstrip("/").rpartition("/")[2]


def _scheme(address: str) -> str:
    match = _ADDRESS.match(address)
    return match[1].lower() if match else ""


def _begins(address: str, prefix: str) -> bool:
    """Whether an address lies below a prefix: `s3://clips` is not the beginning of `s3://clips-of-others/`."""
    return address == prefix or address.startswith(prefix if prefix.endswith("/") else f"{prefix}/")


def _settings() -> dict[str, Any]:
    text = os.environ.get(_VARIABLE, "")
    if text and not text.startswith("{"):  # as people write it: prefixes with spaces between them
        os.environ[_VARIABLE] = ""
        allow_remote(*text.split())
        text = os.environ[_VARIABLE]
    defaults = {"prefixes": [], "directory": REMOTE_DIRECTORY, "max_gib": 50.0, "since_s": 0.0}
    try:
        return defaults | (json.loads(text) if text else {})
    except ValueError as error:
        raise ConfigError(f"{_VARIABLE}: not what allow_remote writes, got {text!r:.60}; unset it") from error


@lru_cache(maxsize=64)
def _fetched_folder(settings: str, address: str) -> Path:
    return _downloads(settings).find_folder(address)


@lru_cache(maxsize=4)
def _downloads(settings: str) -> _Downloads:
    return _Downloads(json.loads(settings))
