"""Small files with sound for the media tests: waves in any container, with or without pictures."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

CODECS = {"wav": "pcm_s16le", "flac": "flac", "mp3": "mp3", "m4a": "aac", "mp4": "aac", "mkv": "aac", "ts": "aac"}
CODECS |= {"ogg": "libopus", "aac": "aac"}


def sine(hz: float, n: int, rate: int) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hz * np.arange(n) / rate)


def write_sounded(
    path: Path,
    wave_N: np.ndarray,
    rate: int,
    channels: int = 1,
    gap_s: float = 0.0,
    late_s: float = 0.0,
    video=False,
    grey: int = 0,
    seconds: float = 3.0,
) -> Path:
    """A file of one wave, each channel the same; its second half `gap_s` later, all of it `late_s` after the video.

    `video`: with `seconds` of pictures, ten a second.
    """
    with av.open(str(path), "w") as out:
        pictures: Any = out.add_stream("mpeg4", rate=10) if video else None
        if pictures is not None:
            pictures.width = pictures.height = 64
            pictures.pix_fmt = "yuv420p"
        stream: Any = out.add_stream(CODECS[path.suffix[1:]], rate=rate, layout="stereo" if channels == 2 else "mono")
        samples = np.repeat((wave_N * 32767).astype(np.int16), channels)[None]
        stream.codec_context.open()
        size = stream.codec_context.frame_size or 1024
        resampler = av.AudioResampler(format=stream.format, layout=stream.layout, rate=rate)
        half = len(wave_N) // 2 // size * size
        for start in range(0, len(wave_N), size):
            part = np.ascontiguousarray(samples[:, start * channels : (start + size) * channels])
            frame = av.AudioFrame.from_ndarray(part, format="s16", layout=stream.layout.name)
            frame.rate = rate
            for ready in resampler.resample(frame):
                ready.pts = start + round(late_s * rate) + (round(gap_s * rate) if start >= half else 0)
                ready.time_base = Fraction(1, rate)
                out.mux(stream.encode(ready))
        out.mux(stream.encode(None))
        if pictures is not None:
            for nth in range(round(10 * seconds)):
                picture = av.VideoFrame.from_ndarray(np.full((64, 64, 3), grey, np.uint8), format="rgb24")
                picture.pts, picture.time_base = nth, Fraction(1, 10)
                out.mux(pictures.encode(picture))
            out.mux(pictures.encode(None))
    return path
