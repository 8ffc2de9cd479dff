"""What a command writes to an address: made on this machine first, sent when it is whole, kept until it was sent.

<directory of fetched files>/outputs/<hash of the address>/<its name>     and what the command puts beside it
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .errors import MediaError, ProofreelError, RowError
from .launcher import launched_as
from .remote import folder_problem, is_address, local_folder, own_name, remote_directory, shown_address, tried


def place(text: str) -> Path | str:
    """An argument that may be a path or an address, which a `Path` would change."""
    return text if is_address(text) else Path(text)


def folder_here(text: str) -> Path:
    """An argument that names a folder, on this machine or at an address: fetched in that case."""
    if not is_address(text):
        return Path(text)
    try:
        return local_folder(text)
    except MediaError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def written_to(
    out: Path | str, write: Callable[[Path], int], overwrite: bool = False, good: Sequence[int] = (0,)
) -> int:
    """What `write` returns for a path of this machine; what it left there is sent where `out` is an address.

    A command that is stopped, or whose output cannot be sent, finds its work again when it is started with the same
    address. Of several processes the first sends.

    Args:
        out: file or folder to write; a path is passed on as it is.
        write: writes it, and may put more files beside it, which are sent beside it; its result is an exit status.
        overwrite: also where something lies at the address.
        good: exit statuses after which there is something to send.
    """
    if not isinstance(out, str):
        return write(out)
    try:
        local = _place_of(out)
        first = launched_as()[0] == 0
        sending = local.parent.with_suffix(".sending")  # a part of it may be there by now
        if first and not overwrite and not sending.exists() and _exists(out):
            raise RowError(f"{shown_address(out)}: holds something already; name another address, or remove it")
        if first:
            local.parent.mkdir(parents=True, exist_ok=True)
        status = write(local)
        if first and status in good:
            sending.touch()
            n_files, n_bytes = _sent(local, out)
            shutil.rmtree(local.parent)
            sending.unlink()
            print(f"sent to {shown_address(out)}: {n_files} files, {n_bytes:,} bytes")
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return status


def _place_of(address: str) -> Path:
    """Where the output of an address is made."""
    if problem := folder_problem(address):
        raise MediaError(problem)
    key = hashlib.sha256(address.rstrip("/").encode()).hexdigest()[:24]
    return remote_directory() / "outputs" / key / own_name(address)


def _exists(address: str) -> bool:
    files, path = _opened(address)
    return tried(address, lambda: files.exists(path), "asked")


def _opened(address: str) -> tuple[Any, str]:
    import fsspec.core

    files, path = fsspec.core.url_to_fs(address)
    return files, path.rstrip("/")


def _sent(local: Path, address: str) -> tuple[int, int]:
    """Send every file beside `local` and in it, those last by which readers know that it is whole."""
    files, path = _opened(address)
    if not local.exists():
        raise MediaError(f"{shown_address(address)}: nothing to send, got no {local}; please report this")
    every = [file for file in local.parent.rglob("*") if file.is_file() and not _is_hidden(file, local.parent)]
    whole = sorted(every, key=lambda file: (_is_last(file, local), str(file)))
    try:
        for file in whole:
            target = f"{path.rpartition('/')[0]}/{file.relative_to(local.parent).as_posix()}"

            def send(file: Path = file, target: str = target) -> None:
                files.makedirs(target.rpartition("/")[0], exist_ok=True)
                files.put_file(str(file), target)

            tried(address, send, "written")
    except MediaError as error:
        raise MediaError(f"{error}; all is kept in {local.parent}: start the same again, and it is sent") from error
    return len(whole), sum(file.stat().st_size for file in whole)


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _is_last(file: Path, local: Path) -> bool:
    return file == local or file.name.startswith("manifest") or file.suffix == ".sha256"
