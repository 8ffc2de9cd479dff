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

from ...core import Evidence, Image, ProofreelError, VideoSegment, media_path
from ...data_prep.media import FrameSampling, GuardedReader, read_frames, read_image

LIMIT_S = 5.0
HEIGHT = 84
SAMPLING = FrameSampling(fps=0.001, min_frames=4, max_frames=4, min_pixels=28 * 28, max_pixels=12 * 28 * 28)


def frames_of(evidence: Evidence, media_root: str | Path | None = None) -> tuple[str, ...]:
    """`data:` addresses of the frames, in order; none for texts, and for what cannot be read here and now."""
    if not isinstance(evidence, (VideoSegment, Image)):
        return ()
    try:
        file = media_path(evidence.path, media_root).absolute()
        return _frames(evidence, file, file.stat().st_mtime_ns) if file.is_file() else ()
    except (ProofreelError, OSError, ValueError, TypeError, EOFError):
        return ()


@functools.lru_cache(maxsize=64)
def _frames(evidence: VideoSegment | Image, file: Path, changed: int) -> tuple[str, ...]:
    return _reader().call(_addresses, (evidence, str(file)), str(file), LIMIT_S)


def _addresses(evidence: VideoSegment | Image, file: str) -> tuple[str, ...]:
    """The address of each frame; runs in the child."""
    if isinstance(evidence, Image):
        return (_address(read_image(file)),)
    segment = VideoSegment(file, evidence.start_s, evidence.end_s)
    return tuple(map(_address, read_frames(segment, SAMPLING).pixels_FHWC))


@functools.cache
def _reader() -> GuardedReader:
    return GuardedReader()


def _address(pixels_HWC: np.ndarray) -> str:
    picture = PILImage.fromarray(pixels_HWC)
    picture.thumbnail((4 * HEIGHT, HEIGHT))
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=75)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
