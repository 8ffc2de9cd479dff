"""Pictures and videos in memory as files, which evidence names: kept in a temporary folder until the process ends.

A file is named by what it holds, so that the same picture is the same evidence. Pixels are stored without loss.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as PILImage

from ...core import Image, ModelInputError, VideoSegment

_STORED_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16")  # what PNG holds; other modes become RGB
_ENDINGS = {"PNG": ".png", "JPEG": ".jpg", "WEBP": ".webp", "BMP": ".bmp", "TIFF": ".tif"}


def is_picture(value: Any) -> bool:
    """Whether a value is a picture in memory: of Pillow, or an array of 8-bit pixels."""
    return isinstance(value, PILImage.Image) or (isinstance(value, np.ndarray) and value.ndim > 1)


def picture_evidence(value: Any, where: str) -> Image:
    """A picture in memory as evidence; `ModelInputError` for an array that is no picture."""
    if isinstance(value, np.ndarray):
        if value.dtype != np.uint8 or not (value.ndim == 2 or (value.ndim == 3 and value.shape[2] in (3, 4))):
            raise ModelInputError(
                f"{where}: an array must be one picture, (height, width, 3) of uint8, got {value.shape} of "
                f"{value.dtype}; e.g. PIL.Image.open('frame.jpg'), and for a video name its file"
            )
        value = PILImage.fromarray(value)
    if value.mode not in _STORED_MODES:
        value = value.convert("RGB")
    file = io.BytesIO()
    value.save(file, "PNG", compress_level=1, exif=value.getexif())
    return Image(_kept(file.getvalue(), ".png"))


def bytes_evidence(data: bytes, name: str | None, where: str) -> Image | VideoSegment:
    """The bytes of an image or video file as evidence; `name` may tell which video. `ModelInputError` for others."""
    try:
        with PILImage.open(io.BytesIO(data)) as picture:
            ending = _ENDINGS.get(picture.format or "", "")
            animated = picture.format == "GIF"
        if ending:
            return Image(_kept(data, ending))
        if animated:
            return VideoSegment(_kept(data, ".gif"))
    except (OSError, ValueError, PILImage.DecompressionBombError):
        pass
    ending = ".mp4" if data[4:8] == b"ftyp" else ".mkv" if data[:4] == b"\x1aE\xdf\xa3" else Path(name or "").suffix
    if ending:
        return VideoSegment(_kept(data, ending))
    raise ModelInputError(
        f"{where}: bytes must be those of an image or video file, got {data[:12]!r}...; e.g. Path('clip.mp4')"
    )


def data_url_evidence(url: str, where: str) -> Image | VideoSegment:
    """What a `data:` address holds, as evidence."""
    head, _, body = url.partition(",")
    try:
        data = base64.b64decode(body, validate=True) if head.endswith(";base64") else b""
    except binascii.Error:
        data = b""
    return bytes_evidence(data, None, where)


def _kept(data: bytes, ending: str) -> str:
    file = Path(_folder().name) / f"{hashlib.sha256(data).hexdigest()[:32]}{ending}"
    if not file.exists():
        part = file.with_suffix(".part")
        part.write_bytes(data)
        part.replace(file)
    return str(file)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="proofreel-")
