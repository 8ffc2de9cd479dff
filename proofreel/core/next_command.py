"""The last line of a command: the next one, with the paths that are there."""

from __future__ import annotations

import os
import shlex

RUNS_COMMANDS = "PROOFREEL_RUNS_COMMANDS"
"""Set by what runs commands one after the other and says itself which comes next."""


def say_next(*words: object) -> None:
    """Print the command that usually comes next; words in capitals are left to the user."""
    if not os.environ.get(RUNS_COMMANDS) and int(os.environ.get("RANK", 0)) == 0:
        print(f"next         proofreel {shlex.join(str(word) for word in words)}")
