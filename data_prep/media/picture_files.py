"""Pictures that a table holds as bytes, as files named by what they hold: evidence names files, and nothing else."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ...core import REMOTE_DIRECTORY, MediaError, sharded, write_whole
from .frames import checked_image

_ENDINGS = {"JPEG": ".jpg", "JPEG2000": ".jp2", "TIFF": ".tif"}


def picture_directory() -> Path:
    """Where pictures of files of claims are kept; it may be deleted when nothing runs."""
    return Path(REMOTE_DIRECTORY).expanduser().absolute().with_name("pictures")


def keep_picture(data: bytes, directory: str | Path) -> Path:
    """The file of a picture, written if it is not there.

    Its header is checked as `read_image` checks a file's; pixels are decoded where they are read.

    Raises:
        MediaError: no picture of a format that is opened, or one of too many pixels.
    """
    directory = Path(directory).expanduser().absolute()
    with checked_image(data) as image:
        ending = _ENDINGS.get(image.format or "", f".{(image.format or 'png').lower()}")
    path = sharded(directory, hashlib.sha256(data).hexdigest() + ending)
    try:
        if not path.is_file() or path.stat().st_size != len(data):
            write_whole(directory, path, data)
    except OSError as error:
        raise MediaError(f"{directory}: a picture cannot be kept, got {error}; name another folder") from error
    return path
