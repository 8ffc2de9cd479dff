"""A hash of the coded pictures of a video, which copies in other containers have in common.

The same stream in MP4, MOV, MKV or MPEG-TS differs in its bytes: other headers, other sound, other metadata, parameter
sets in the header or in front of each picture, sizes or start codes between the units of a picture. What stays is the
coded slices, in decoding order; these are hashed. Re-encoded copies differ.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any

import av.error
from av.bitstream import BitStreamFilterContext

_PICTURE_UNITS = {"h264": "1-5", "hevc": "0-31", "vvc": "0-11", "av1": "3|4|6"}
"""Per codec, the units that hold pictures: slices (of AV1: frames and tiles), not parameter sets and delimiters."""


class PictureHash:
    """SHA-256 of the pictures of a video stream; its packets are added in decoding order."""

    def __init__(self, stream: Any) -> None:
        self._sha256 = hashlib.sha256()
        self._is_empty = True
        self._units = None
        if units := _PICTURE_UNITS.get(stream.codec_context.codec.canonical_name):
            with contextlib.suppress(av.error.FFmpegError):  # a damaged header: packets are hashed whole
                self._units = BitStreamFilterContext(f"filter_units=pass_types={units}", stream)

    def add(self, packet: Any) -> None:
        """Hash the pictures of a packet; a damaged packet as it is."""
        whole = bytes(packet)  # filtering empties the packet
        pictures = [whole]
        if self._units is not None:
            with contextlib.suppress(av.error.FFmpegError):
                pictures = self._units.filter(packet)
        for picture in pictures:
            self._sha256.update(picture)
            self._is_empty = False

    def hexdigest(self) -> str | None:
        """Of all packets so far; None if they held no picture."""
        return None if self._is_empty else self._sha256.hexdigest()
