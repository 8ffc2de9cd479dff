"""Probing and indexing media files: what is reported is what the file holds, and bad files are named."""

import os
import re
import wave
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.stream import Disposition
from numbered_clips import FPS, HEIGHT, LAYOUTS, N_FRAMES, WIDTH, draw, encode, encode_layout, quarter_turned
from PIL import Image

from proofreel.core.errors import MediaError
from proofreel.core.pairs import VideoSegment
from proofreel.data_prep.media.containers import check_segment, packet_index, probe


@pytest.mark.parametrize("name", LAYOUTS)
def test_duration_rate_and_size_are_those_encoded_in_every_container(tmp_path: Path, name: str) -> None:
    info = probe(encode_layout(tmp_path, name))
    assert info.duration_s == pytest.approx(N_FRAMES / FPS, abs=1e-3)
    assert info.fps == pytest.approx(FPS)
    assert (info.width, info.height) == (WIDTH, HEIGHT)
    assert info.n_frames in (N_FRAMES, None)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_frame_has_its_time_in_every_container(tmp_path: Path, name: str) -> None:
    index = packet_index(encode_layout(tmp_path, name))
    np.testing.assert_allclose(index.times_s, np.arange(N_FRAMES) / FPS, atol=1e-3)
    assert index.end_s == pytest.approx(N_FRAMES / FPS, abs=1e-3)


def test_only_closed_groups_in_exact_containers_are_said_to_jump_exactly(tmp_path: Path) -> None:
    exact = {name for name in LAYOUTS if packet_index(encode_layout(tmp_path, name)).jumps_exactly}
    assert exact == {"closed.mp4", "closed.mkv"}


def test_times_count_from_the_first_frame_of_a_late_start(tmp_path: Path) -> None:
    for name in ("late.mp4", "late.mkv"):
        path = encode(tmp_path / name, tick=lambda n: n + 2 * FPS)
        assert packet_index(path).times_s[0] == 0
        assert probe(path).duration_s == pytest.approx(N_FRAMES / FPS)


def test_uneven_frame_times_are_kept(tmp_path: Path) -> None:
    path = encode(tmp_path / "uneven.mkv", n_frames=10, tick=lambda n: n * n)
    np.testing.assert_allclose(packet_index(path).times_s, np.arange(10) ** 2 / FPS, atol=1e-3)


def test_size_is_as_shown_after_rotation(tmp_path: Path) -> None:
    info = probe(quarter_turned(encode(tmp_path / "phone.mp4", n_frames=4)))
    assert (info.width, info.height) == (HEIGHT, WIDTH)


def test_relative_paths_are_below_the_media_root(tmp_path: Path) -> None:
    encode(tmp_path / "clip.mp4", n_frames=4)
    assert probe("clip.mp4", tmp_path) == probe(tmp_path / "clip.mp4")


def test_a_file_replaced_is_probed_anew(tmp_path: Path) -> None:
    before = probe(encode(tmp_path / "clip.mp4", n_frames=10))
    after = probe(encode(tmp_path / "clip.mp4", n_frames=20))
    assert (before.n_frames, after.n_frames) == (10, 20)


def test_titles_in_old_encodings_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "old.mkv"
    with av.open(str(encode(tmp_path / "clip.mp4", n_frames=4))) as clip, av.open(str(path), "w") as titled:
        titled.metadata["title"] = "Zurich"
        stream = titled.add_stream_from_template(clip.streams.video[0])
        for packet in clip.demux(clip.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                titled.mux(packet)
    path.write_bytes(path.read_bytes().replace(b"Zurich", b"Z\xfcrich"))
    assert probe(path).fps == FPS


def _write_song_with_cover(path: Path) -> None:
    with av.open(str(path), "w") as container:
        sound: Any = container.add_stream("libmp3lame", rate=44100)
        cover: Any = container.add_stream("mjpeg")
        cover.width, cover.height, cover.pix_fmt = WIDTH, HEIGHT, "yuvj420p"
        cover.disposition = Disposition.attached_pic
        picture = av.VideoFrame.from_ndarray(draw(1), format="rgb24")
        picture.pts = 0
        container.mux(cover.encode(picture) + cover.encode(None))
        for n in range(40):
            silence = av.AudioFrame(format="s16p", layout="mono", samples=1152)
            silence.sample_rate, silence.pts = 44100, n * 1152
            container.mux(sound.encode(silence))
        container.mux(sound.encode(None))


def _write_wave(path: Path) -> None:
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(16000))


BAD_FILES = {
    "missing.mp4": (lambda path: None, "no such file"),
    "folder.mp4": (lambda path: path.mkdir(), "not a regular file, got a folder"),
    "pipe.mp4": (os.mkfifo, "not a regular file, got a named pipe"),
    "below.mp4/clip.mp4": (lambda path: path.parent.touch(), "no such file"),
    "long.mp4" + "x" * 300: (lambda path: None, "its status cannot be read"),
    "zero\0.mp4": (lambda path: None, "its status cannot be read"),
    "loop.mp4": (lambda path: path.symlink_to(path), "its status cannot be read"),
    "dangling.mp4": (lambda path: path.symlink_to("gone.mp4"), "no such file"),
    "empty.mp4": (lambda path: path.touch(), "file is empty"),
    "page.mp4": (lambda path: path.write_text("<html>Video unavailable</html>" * 50), "not a readable video"),
    "notes.txt": (lambda path: path.write_text("some notes\n" * 50), "not a"),
    "image.mp4": (lambda path: Image.new("RGB", (64, 64)).save(path, "PNG"), "not a video"),
    "photo.jpg": (lambda path: Image.new("RGB", (64, 64)).save(path), "not a video"),
    "sound.wav": (_write_wave, "no video stream"),
    "song.mp3": (_write_song_with_cover, "no video stream"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_named_with_what_is_wrong(tmp_path: Path, name: str) -> None:
    make, problem = BAD_FILES[name]
    make(tmp_path / name)
    for read in (probe, packet_index):
        with pytest.raises(MediaError, match=problem) as caught:
            read(tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path / name}: ")
        assert re.search(r"; \w+", str(caught.value)), "no remedy"


def test_a_file_cut_before_its_index_is_unreadable(tmp_path: Path) -> None:
    path = encode(tmp_path / "half.mp4")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(MediaError, match=r"half\.mp4"):
        probe(path)


def test_a_stream_without_times_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="carry no times"):
        packet_index(encode(tmp_path / "raw.h264"))


@pytest.mark.parametrize(
    ("start_s", "end_s", "problem"),
    [
        (0.0, None, None),
        (1.0, 2.0, None),
        (0.0, 4.8, None),
        (4.0, 4.8 + 1 / FPS, None),
        (4.0, 5.0, "end_s is past the end"),
        (4.8, None, "start_s is past the end"),
        (9.0, 10.0, "start_s is past the end"),
        (2.0, 1.0, "reversed or empty"),
        (2.0, 2.0, "reversed or empty"),
        (-1.0, 2.0, "negative"),
        (float("nan"), 2.0, "finite"),
    ],
)
def test_a_span_must_lie_in_its_file(tmp_path: Path, start_s: float, end_s: float | None, problem: str | None) -> None:
    info = probe(encode(tmp_path / "clip.mp4"))
    found = check_segment(VideoSegment("clip.mp4", start_s, end_s), info)
    assert bool(found) == (problem is not None)
    assert problem is None or problem in found[0]


# The best stream of the NASA clip is its larger one (its first is 320x180 at 25 frames per second).
REAL_CLIPS = {
    "sam2_04_coffee.mp4": ("h264", 1280, 720, 29.97, 9.576),
    "nasa_13013.mp4": ("h264", 480, 270, 29.97, 13.013),
    "flipping_a_pancake.mkv": ("h264", 426, 240, 30.0, 10.333),
    "mllm_demo_2.avi": ("h264", 320, 240, 29.917, 9.025),
    "v_rBMQFpHspmo.mp4": ("mpeg4", 398, 224, 3.0, 144.667),
    "smpte-2997.mp4": ("h264", 1920, 1080, 25.0, 10.04),
}


@pytest.mark.parametrize("name", REAL_CLIPS)
def test_real_clips_are_described_rightly(shared_data: Path, name: str) -> None:
    info = probe(name, shared_data / "video-clips")
    codec, width, height, fps, duration_s = REAL_CLIPS[name]
    assert (info.codec, info.width, info.height) == (codec, width, height)
    assert (info.fps, info.duration_s) == pytest.approx((fps, duration_s), abs=1e-3)
