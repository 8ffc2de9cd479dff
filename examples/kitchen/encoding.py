"""Frames to a real H.264 file, the same bytes each time on one machine."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np

OPTIONS = {
    "crf": "14",  # colours and edges survive; noise costs most of the bytes
    "preset": "veryfast",
    "threads": "1",
    "bf": "0",
    # Looking ahead, x264 now and then decides otherwise for the same frames (2 to 30 files in a thousand); without,
    # 10,000 files came out alike.
    "x264-params": "rc-lookahead=0:mbtree=0:weightp=0",
}


def write_video(path: str | Path, frames_FHWC: np.ndarray, fps: int) -> None:
    """Write uint8 RGB frames as an mp4 (H.264, yuv420p, no B-frames).

    Args:
        path: where to; folders are made.
        frames_FHWC: shape (F, H, W, 3), H and W even.
        fps: frames per second; frame i is shown at i / fps seconds.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", format="mp4", options={"fflags": "+bitexact"}) as container:
        video = container.add_stream("libx264", rate=fps, options=OPTIONS)
        video.height, video.width = frames_FHWC.shape[1:3]
        video.pix_fmt = "yuv420p"
        for pixels in frames_FHWC:
            container.mux(video.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")))
        container.mux(video.encode())
