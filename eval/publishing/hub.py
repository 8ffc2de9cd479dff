"""A finished verifier directory handed to the Hugging Face hub, file for file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...core import DirectoryError
from ...models.decision import THRESHOLDS_FILE
from ...models.directory import fingerprint, read_directory


def push_to_hub(
    directory: Path, repo_id: str, private: bool = False, revision: str | None = None, api: Any = None
) -> str:
    """Upload a published verifier; files that an earlier upload left there are deleted, so that its manifest holds.

    Args:
        directory: written by `export`; it is checked first.
        repo_id: owner/name; made if need be.
        private: of a repository that is made now.
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
