"""A reader of frames that hangs over files of one name, for child processes with a deadline."""

import time
from collections.abc import Callable
from typing import Any

from proofreel.data_prep.media.frames import Frames

HANGS = "1.mp4"


def read_or_hang(item: tuple[Callable[..., Frames], tuple[Any, ...]]) -> Frames:
    """What the child of a `GuardedReader` does, unless the file is the one that hangs."""
    function, arguments = item
    if arguments[0].path.endswith(f"/{HANGS}"):
        time.sleep(600)
    return function(*arguments)
