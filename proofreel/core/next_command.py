"""The last line of a command: the next one, with the paths that are there."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from .storage import sha256_of

RUNS_COMMANDS = "PROOFREEL_RUNS_COMMANDS"
"""Set by what runs commands one after the other and says itself which comes next."""
_BESIDE = ("", "*/", "*/*/")


def say_next(*words: object) -> None:
    """Print the command that usually comes next; words in capitals are left to the user."""
    if not os.environ.get(RUNS_COMMANDS) and int(os.environ.get("RANK", 0)) == 0:
        print(f"next         proofreel {shlex.join(str(word) for word in words)}")


def folder_beside(path: Path, file: str, sha256: object, otherwise: str) -> str:
    """The folder near a file that holds another file with this hash: who made it, or of what; else `otherwise`."""
    for pattern in _BESIDE:
        for candidate in sorted(path.parent.glob(pattern + file)):
            if sha256 is not None and sha256_of(candidate) == sha256:
                return str(candidate.parent)
    return otherwise
