"""Small clips for the media tests, in which every frame shows its own number as nine black or white bars."""

import functools
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

FPS = 25
N_FRAMES = 120
WIDTH, HEIGHT = 160, 96

LAYOUTS: dict[str, tuple[str, dict[str, str]]] = {
    "closed.mp4": ("libx264", {"g": "25", "bf": "2"}),
    "closed.mkv": ("libx264", {"g": "25", "bf": "2"}),
    "open.mp4": ("libx264", {"x264-params": "keyint=25:min-keyint=25:scenecut=0:bframes=3:open-gop=1"}),
    "open.mkv": ("libx264", {"x264-params": "keyint=25:min-keyint=25:scenecut=0:bframes=3:open-gop=1"}),
    "mpeg4.mp4": ("mpeg4", {"g": "25", "bf": "2"}),
    "plain.avi": ("libx264", {"g": "25", "bf": "0"}),
    "reordered.avi": ("libx264", {"g": "25", "bf": "2"}),
    "mpeg4.avi": ("mpeg4", {"g": "25", "bf": "2"}),
    "open.ts": ("libx264", {"x264-params": "keyint=25:min-keyint=25:scenecut=0:bframes=3:open-gop=1"}),
    "mpeg2.mpg": ("mpeg2video", {"g": "12", "bf": "2"}),
    "jumpy.wmv": ("wmv2", {"g": "12"}),
}
"""File name -> codec and options: ways to lay out the same frames, most of them read wrongly by decord."""


def draw(number: int) -> np.ndarray:
    """uint8 (H, W, 3): `number` in binary, lowest bit left, above a moving square."""
    pixels_HWC = np.full((HEIGHT, WIDTH, 3), (40, 60, 90), dtype=np.uint8)
    for bit in range(9):
        pixels_HWC[8:40, 4 + 16 * bit : 18 + 16 * bit] = 255 * (number >> bit & 1)
    left = number * 3 % (WIDTH - 20)
    pixels_HWC[50:90, left : left + 20] = (220, 160, number * 7 % 256)
    return pixels_HWC


def number_shown(pixels_HWC: np.ndarray) -> int:
    """The number a decoded frame shows."""
    return sum(int(pixels_HWC[24, 11 + 16 * bit].mean() > 128) << bit for bit in range(9))


def encode(
    path: Path,
    codec: str = "libx264",
    options: dict[str, str] | None = None,
    *,
    n_frames: int = N_FRAMES,
    fps: int = FPS,
    tick: Callable[[int], int] = lambda n: n,
) -> Path:
    """Write frames 0 .. n_frames-1; frame n is shown at `tick(n) / fps` seconds."""
    ticks = tuple(tick(n) for n in range(n_frames))
    path.write_bytes(_encoded(path.suffix, codec, tuple((options or {}).items()), ticks, fps))
    return path


@functools.cache
def _encoded(suffix: str, codec: str, options: tuple[tuple[str, str], ...], ticks: tuple[int, ...], fps: int) -> bytes:
    """The bytes of a clip, encoded once for all tests of a process that write it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"clip{suffix}"
        with av.open(str(path), "w") as container:
            stream: Any = container.add_stream(codec, rate=fps, options=dict(options))
            stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
            for n, shown_at in enumerate(ticks):
                frame = av.VideoFrame.from_ndarray(draw(n), format="rgb24")
                frame.pts, frame.time_base = shown_at, Fraction(1, fps)
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
        return path.read_bytes()


def encode_layout(folder: Path, name: str) -> Path:
    """The clip of `LAYOUTS` called `name`."""
    codec, options = LAYOUTS[name]
    return encode(folder / name, codec, options)


def quarter_turned(path: Path) -> Path:
    """Ask players to turn the mp4 by 90 degrees clockwise (patches the matrix of its track header)."""
    content = bytearray(path.read_bytes())
    matrix_at = content.index(b"tkhd") + 44
    matrix = (0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30)
    content[matrix_at : matrix_at + 36] = b"".join(v.to_bytes(4, "big", signed=True) for v in matrix)
    path.write_bytes(content)
    return path


def hide_first(source: Path, path: Path, hidden: int) -> Path:
    """Copy an mp4 so that an edit list hides its first frames, as cutting tools do to cut between keyframes."""
    with (
        av.open(str(source)) as full,
        av.open(str(path), "w", options={"avoid_negative_ts": "disabled", "use_editlist": "1"}) as cut,
    ):
        stream = cut.add_stream_from_template(full.streams.video[0])
        for packet in full.demux(full.streams.video[0]):
            if packet.pts is not None and packet.dts is not None:
                hidden_ticks = hidden * (packet.duration or 0)
                packet.pts, packet.dts = packet.pts - hidden_ticks, packet.dts - hidden_ticks
                packet.stream = stream
                cut.mux(packet)
    return path
