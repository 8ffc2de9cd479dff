"""A decoder that hangs over files of one name, for the server's children: a module that imports nothing heavy."""

import time
from pathlib import Path
from typing import Any

from proofreel.server import media

HANGS = "hangs.mp4"


def prepare_or_hang(library: Any, evidence: Any) -> None:
    """What a child does with an evidence, except that one name hangs; every start is noted."""
    for piece in evidence:
        if getattr(piece, "path", "") == HANGS:
            Path(library.cache).mkdir(exist_ok=True)
            with (Path(library.cache) / "hung.txt").open("a") as notes:
                notes.write("x")
            time.sleep(600)
    media.prepare(library, evidence)
