"""A few small frames of a video, or an image, as addresses that hold their JPEG: what a notebook shows of evidence.

Only regular files on this machine are read, by a child process that is stopped after `LIMIT_S`.
"""

from __future__ import annotations

import base64
import functools
import io
from pathlib import Path

import numpy as np
from PIL import Image as PILImage

from ...core import Evidence, Image, ProofreelError, Visual, media_name, media_path, media_paths, with_media_paths
from ...data_prep.media import FrameSampling, GuardedReader, read_image, read_media_piece

LIMIT_S = 5.0
HEIGHT = 84
SAMPLING = FrameSampling(fps=0.001, min_frames=4, max_frames=4, min_pixels=28 * 28, max_pixels=12 * 28 * 28)


def frames_of(evidence: Evidence, media_root: str | Path | None = None) -> tuple[str, ...]:
    """`data:` addresses of the frames, in order; none for texts, and for what cannot be read here and now."""
    if not isinstance(evidence, Visual):
        return ()
    try:
        located = with_media_paths(evidence, lambda path: str(media_path(path, media_root).absolute()))
        files = [Path(path) for path in media_paths(located)]
        changed = tuple(file.stat().st_mtime_ns for file in files)
        return _frames(located, changed) if all(file.is_file() for file in files) else ()
    except (ProofreelError, OSError, ValueError, TypeError, EOFError):
        return ()


@functools.lru_cache(maxsize=64)
def _frames(evidence: Visual, changed: tuple[int, ...]) -> tuple[str, ...]:
    return _reader().call(_addresses, (evidence,), media_name(evidence), LIMIT_S)


def _addresses(evidence: Visual) -> tuple[str, ...]:
    """The address of each frame; runs in the child."""
    if isinstance(evidence, Image):
        return (_address(read_image(evidence.path)),)
    return tuple(map(_address, read_media_piece(evidence, SAMPLING).pixels_FHWC))


@functools.cache
def _reader() -> GuardedReader:
    return GuardedReader()


def _address(pixels_HWC: np.ndarray) -> str:
    picture = PILImage.fromarray(pixels_HWC)
    picture.thumbnail((4 * HEIGHT, HEIGHT))
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=75)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
