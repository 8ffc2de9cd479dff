"""Where a verifier's base checkpoint lies, as seen from the verifier directory."""

from __future__ import annotations

import os
from pathlib import Path


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
