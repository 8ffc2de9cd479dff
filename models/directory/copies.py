"""A verifier directory as it was loaded, written elsewhere: to another folder, byte for byte, or to the hub."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from ...core import DirectoryError
from ..decision import THRESHOLDS_FILE
from .format import check_manifest, fingerprint, read_directory

_log = logging.getLogger(__name__)
_NOT_PUBLISHED = (".git", ".gitattributes", ".cache")


def copy_directory(source: Path, target: Path, expected: str) -> Path:
    """Copy a verifier directory, file for file.

    Args:
        source: the directory that the verifier was loaded from.
        target: must not exist, or be an empty folder.
        expected: fingerprint of the verifier.

    Raises:
        DirectoryError: there is something, or the source is no longer the verifier that was loaded.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DirectoryError(f"{target}: already exists; choose another name or remove it")
    try:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(*_NOT_PUBLISHED), dirs_exist_ok=True)
        check_manifest(target)
        same = fingerprint(target) == expected
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    if not same:
        shutil.rmtree(target)
        raise DirectoryError(f"{source}: changed since it was loaded, got another fingerprint; load it again")
    base = read_directory(target).base.path
    if (source / base).is_dir() and not (target / base).is_dir():
        _log.warning("%s: its base %s is not beside it there; load it with base=%s", target, base, source / base)
    return target


def push_to_hub(
    directory: Path, repo_id: str, private: bool | None = False, revision: str | None = None, api: Any = None
) -> str:
    """Upload a published verifier; files that an earlier upload left there are deleted, so that its manifest holds.

    Args:
        directory: written by `export`; it is checked first.
        repo_id: owner/name; made if need be.
        private: of a repository that is made now; None: as its owner's settings say.
        revision: branch to upload to, made if need be; None: the main one.
        api: a `huggingface_hub.HfApi`; made with the login of this machine where None.

    Returns:
        Where it lies now, as the hub says.

    Raises:
        DirectoryError: a damaged directory, or a draft.
    """
    read_directory(directory)
    if not (directory / THRESHOLDS_FILE).is_file():
        raise DirectoryError(f"{directory}: is an uncalibrated verifier, got no {THRESHOLDS_FILE}; export it first")
    if api is None:
        from huggingface_hub import HfApi

        api = HfApi()
    api.create_repo(repo_id, repo_type="model", private=private, exist_ok=True)
    if revision is not None:
        api.create_branch(repo_id, branch=revision, repo_type="model", exist_ok=True)
    message = f"Verifier {fingerprint(directory)[:12]}"
    done = api.upload_folder(
        repo_id=repo_id,
        repo_type="model",
        folder_path=directory,
        revision=revision,
        commit_message=message,
        delete_patterns="*",
    )
    return str(done)
