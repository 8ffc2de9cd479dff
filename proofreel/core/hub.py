"""Snapshots of the Hugging Face hub: named kinds of file of one revision, and nothing that could be run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from .errors import DirectoryError

_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)?")


def download(name: str, revision: str | None, patterns: Sequence[str], what: str) -> Path:
    """The folder of a repository's snapshot, with the files that match `patterns`; none of them is looked into.

    Raises:
        DirectoryError: not a hub id, or one that cannot be reached.
    """
    if not _HUB_ID.fullmatch(name) or ".." in name:
        raise DirectoryError(f"{what}: no such folder, got {name}; check the path or give a hub id")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")
        raise DirectoryError(
            f"{what}: neither a folder here nor a reachable hub id, got {name!r}; {type(error).__name__}: {reason}"
        ) from error
