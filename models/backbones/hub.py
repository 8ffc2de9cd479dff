"""Snapshots of the Hugging Face hub: named kinds of file of one revision, and nothing that could be run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ...core.errors import DirectoryError
from ..directory.format import ALLOWED_SUFFIXES

_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)?")


def find_verifier(path_or_hub_id: str | Path, revision: str | None = None) -> Path:
    """The local folder of a verifier: the path itself, or the hub's snapshot of that id (downloaded if need be).

    Args:
        path_or_hub_id: a folder, or an id like `name/verifier`.
        revision: commit, tag or branch of a hub id; None: its main branch.

    Raises:
        DirectoryError: neither a folder nor a reachable hub id, or a revision of a folder.
    """
    if Path(path_or_hub_id).is_dir():
        if revision is not None:
            raise DirectoryError(f"{path_or_hub_id}: a folder has no revisions, got {revision!r}; leave it out")
        return Path(path_or_hub_id)
    return download(
        str(path_or_hub_id), revision, [f"*{suffix}" for suffix in (*ALLOWED_SUFFIXES, ".sha256")], "verifier"
    )


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
