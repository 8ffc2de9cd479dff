"""OMD-Bench's eight conditions as clips: pictures and sound of each condition in one file, really corrupted.

An anchor gives four clips: both channels its own, one of them corrupted, both. Corrupted is, as in the benchmark, what
another anchor shows or sounds like; or the anchor's own pictures made black or blurred, its own sound removed or put
in noise's place, which then speak for no anchor. Text is replaced, never written into a clip. Pictures are H.264 at
their own times, sound is 16 bits without loss. A clip's name is a hash of what it is made of; what is there is whole.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import av
import numpy as np

from ...core import Audio, ConfigError, Evidence, MediaError, Pair, VideoSegment, media_path, sha256_of
from ..dataset import write_pairs
from ..importers import OMDBenchOptions, Rejected, Row, conflicting_rows
from ..media import SAMPLE_RATE, open_video, packet_index, probe, read_sound, square_pixels, upright_rgb
from .cut import ENCODING, decoded_frames

PictureCorruption = Literal["another", "black", "blurred"]
SoundCorruption = Literal["another", "removed", "noise"]
_BLOCKS = 4  # on each side of a blurred picture
_FULL = 32767


@dataclass(frozen=True)
class Corruptions:
    """What a corrupted channel is: another anchor's, as in the benchmark, or the anchor's own made useless.

    Raises:
        ConfigError: no such corruption.
    """

    pictures: PictureCorruption = "another"
    sound: SoundCorruption = "another"

    def __post_init__(self) -> None:
        for name, known in (("pictures", get_args(PictureCorruption)), ("sound", get_args(SoundCorruption))):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name}: no such corruption, got {getattr(self, name)!r}; use one of {list(known)}")

    @property
    def lost(self) -> tuple[str, ...]:
        """The channels that show nothing where they are corrupted."""
        ways = {"video": self.pictures, "audio": self.sound}
        return tuple(channel for channel, way in ways.items() if way != "another")


def write_conflict_clips(
    anchors: Path, folder: Path, media_root: Path | None = None, how: Corruptions = Corruptions(), seed: int = 0
) -> list[Pair]:
    """Write the clips of every anchor, and the rows that ask about them; those are in `pairs.jsonl`, too.

    Args:
        anchors: in the format `omdbench`; what is heard is an anchor's `audio_file`, or the sound of its video.
        folder: for the clips.
        media_root: of the anchors' files; None: the folder of `anchors`.
        how: channels are corrupted.
        seed: draws what replaces a channel, and the noise.

    Returns:
        The importer's rows, each with a clip and a passage as evidence; `meta` names the corruptions (`how`).

    Raises:
        ProofreelError: an anchor that cannot be used, or whose media cannot be read, named with its remedy.
    """
    folder.mkdir(parents=True, exist_ok=True)
    root, pairs = media_root or anchors.parent, []
    for item in conflicting_rows(anchors, OMDBenchOptions(seed=seed, audio="sound"), how.lost):
        if isinstance(item, Rejected):
            raise MediaError(str(item))
        pairs.append(_with_clip(item, folder.absolute(), root, how, seed))
    write_pairs(folder / "pairs.jsonl", pairs)
    return pairs


def _with_clip(row: Row, folder: Path, root: Path, how: Corruptions, seed: int) -> Pair:
    pair = row.pair
    seen, heard, text = pair.evidence
    assert isinstance(seen, VideoSegment)
    assert isinstance(heard, Audio)
    corrupted = pair.meta["corrupted"]
    ways = (how.pictures if "video" in corrupted else "clean", how.sound if "audio" in corrupted else "clean")
    clip = _clip(media_path(seen.path, root), media_path(heard.path, root), *ways, folder, seed)
    evidence: tuple[Evidence, ...] = (VideoSegment(str(clip), sound=ways[1] != "removed"), text)
    return dataclasses.replace(pair, evidence=evidence, meta=pair.meta | {"how": dataclasses.asdict(how)})


def _clip(seen: Path, heard: Path, pictures: str, sound: str, folder: Path, seed: int) -> Path:
    """The clip with these pictures and this sound, written now unless it is there."""
    own = {"another": "clean"}  # the replacement is a clean one
    pictures, sound = own.get(pictures, pictures), own.get(sound, sound)
    # Noise is of the sound it drowns; nothing else depends on the seed.
    what = [_digest(seen), pictures, None if sound == "removed" else _digest(heard), sound, ENCODING]
    key = hashlib.sha256(json.dumps([*what, seed if sound == "noise" else None]).encode()).hexdigest()[:16]
    clip = folder / f"{key}.mkv"
    if not clip.is_file():
        temporary = clip.with_suffix(f".{os.getpid()}.tmp")
        try:
            _write(temporary, seen, pictures, None if sound == "removed" else _samples(seen, heard, sound, seed))
            temporary.replace(clip)
        finally:
            temporary.unlink(missing_ok=True)
    return clip


@lru_cache(maxsize=4096)
def _digest(path: Path) -> str:
    return sha256_of(path)


def _samples(seen: Path, heard: Path, way: str, seed: int) -> np.ndarray:
    """(N,) int16, as long as the pictures are: cut, or followed by silence."""
    samples_N = read_sound(Audio(str(heard))).samples_N
    if way == "noise":
        rng = np.random.default_rng([seed, int(_digest(heard)[:8], 16)])
        loudness = float(np.sqrt(np.mean(samples_N**2))) or 0.1
        samples_N = rng.normal(0, loudness, len(samples_N))
    n_samples = round(packet_index(seen).end_s * SAMPLE_RATE)
    samples_N = np.pad(samples_N[:n_samples], (0, max(0, n_samples - len(samples_N))))
    return (samples_N.clip(-1, 1) * _FULL).round().astype(np.int16)


def _write(target: Path, seen: Path, way: str, samples_N: np.ndarray | None) -> None:
    file, aspect, index = str(seen), probe(seen).pixel_aspect, packet_index(seen)
    with (
        open_video(seen) as (container, source),
        av.open(str(target), "w", format="matroska", options={"fflags": "+bitexact"}) as out,
    ):
        stream: Any = None
        sound: deque[tuple[float, Any]] = deque()
        frames = decoded_frames(file, index, 0, len(index.pts), container, source)
        for pts, time_s, frame in zip(index.pts.tolist(), index.times_s.tolist(), frames, strict=True):
            pixels = _corrupted(square_pixels(upright_rgb(frame), aspect), way)
            if stream is None:
                stream = out.add_stream("libx264", rate=Fraction(source.average_rate or 25), options=ENCODING)
                stream.height, stream.width = pixels.shape[:2]
                stream.pix_fmt = "yuv444p" if pixels.shape[0] % 2 or pixels.shape[1] % 2 else "yuv420p"
                stream.codec_context.time_base = source.time_base
                if samples_N is not None:
                    sound.extend(_packets(out.add_stream("pcm_s16le", rate=SAMPLE_RATE, layout="mono"), samples_N))
            picture: Any = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
            picture.pts, picture.time_base = pts - int(index.pts[0]), source.time_base
            out.mux(stream.encode(picture))
            while sound and sound[0][0] <= time_s:
                out.mux(sound.popleft()[1])
        out.mux([*stream.encode(None), *(packet for _, packet in sound)])


def _packets(stream: Any, samples_N: np.ndarray) -> Iterator[tuple[float, Any]]:
    """Coded sound, half a second at a time, each part with the second it starts at."""
    for start in range(0, len(samples_N), SAMPLE_RATE // 2):
        part = samples_N[None, start : start + SAMPLE_RATE // 2]
        frame: Any = av.AudioFrame.from_ndarray(np.ascontiguousarray(part), format="s16", layout="mono")
        frame.rate, frame.pts, frame.time_base = SAMPLE_RATE, start, Fraction(1, SAMPLE_RATE)
        yield from ((start / SAMPLE_RATE, packet) for packet in stream.encode(frame))
    yield from ((math.inf, packet) for packet in stream.encode(None))


def _corrupted(pixels_HWC: np.ndarray, way: str) -> np.ndarray:
    if way == "black":
        return np.zeros_like(pixels_HWC)
    if way != "blurred":
        return pixels_HWC
    height, width = pixels_HWC.shape[:2]
    small = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels_HWC), format="rgb24")
    small = small.reformat(width=_BLOCKS, height=_BLOCKS, interpolation="AREA")
    return small.reformat(width=width, height=height, interpolation="BILINEAR").to_ndarray()
