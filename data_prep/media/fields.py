"""Whether a stream may hold interlaced pictures anywhere, from its header: the first picture alone does not tell."""

from __future__ import annotations

from itertools import islice

_PROGRESSIVE_ORDERS = (0, 1)  # FFmpeg's AVFieldOrder: unknown, progressive

_PER_PICTURE = ("mpeg2video", "vc1", "prores")
"""Codecs in which each picture says anew how it is scanned."""

_WITH_CHROMA = (100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135)
"""H.264's profiles whose sequence header names a chroma format (ITU-T H.264, 7.3.2.1.1)."""


def may_hold_fields(codec: str, field_order: int, header: bytes) -> bool:
    """A stream of this codec, order of fields and header (`extradata`) may hold interlaced pictures."""
    if field_order not in _PROGRESSIVE_ORDERS or codec in _PER_PICTURE:
        return True
    return codec == "h264" and header[:1] == b"\x01" and not _frames_only(header)


def _frames_only(header: bytes) -> bool:
    """`frame_mbs_only_flag` of the one sequence parameter set in an MP4 or Matroska header of H.264.

    False where it cannot be read: PyAV then reads the file, whose pixels are the same.
    """
    if len(header) < 9 or header[5] & 31 != 1:
        return False
    sequence = header[8 : 8 + int.from_bytes(header[6:8], "big")].replace(b"\0\0\3", b"\0\0")
    bits = iter("".join(f"{byte:08b}" for byte in sequence))

    def fixed(n: int) -> int:
        return int("".join(islice(bits, n)) or "0", 2)

    def golomb() -> int:
        n_zeros = 0
        while next(bits) == "0":
            n_zeros += 1
        return (1 << n_zeros) - 1 + fixed(n_zeros)

    def skip_golomb(n: int) -> None:
        for _ in range(n):
            golomb()

    try:
        fixed(8)
        profile = fixed(8)
        fixed(16)
        golomb()
        if profile in _WITH_CHROMA:
            fixed(int(golomb() == 3))
            skip_golomb(2)
            fixed(1)
            if fixed(1):  # scaling lists: rare
                return False
        golomb()
        match golomb():  # how pictures are put in order
            case 0:
                golomb()
            case 1:
                fixed(1)
                skip_golomb(2)
                skip_golomb(golomb())
        golomb()  # reference frames
        fixed(1)  # gaps between them
        skip_golomb(2)  # width, height
        return next(bits) == "1"
    except StopIteration:
        return False
