"""Decoders: decord and PyAV return the same, right frames, and decord is left alone where it would not."""

import dataclasses
import itertools
import multiprocessing
import sys
from pathlib import Path

import numpy as np
import pytest
from nightly import only
from numbered_clips import LAYOUTS, N_FRAMES, encode, encode_layout, number_shown, quarter_turned

from proofreel.core import VideoSegment
from proofreel.core.errors import MediaError
from proofreel.data_prep.media import frames
from proofreel.data_prep.media.containers import packet_index
from proofreel.data_prep.media.frames import read_with_decord, read_with_pyav

# Right after a keyframe, just before one, far apart, neighbours, the last of all.
WANTED = [0, 1, 24, 25, 26, 49, 50, 51, 73, 98, 99, 100, 101, N_FRAMES - 1]
# Large clips, laid out as the others are: `make test-all` reads them.
LARGE_CLIPS = [
    "sam2_01_dog.mp4",
    "sam2_02_cups.mp4",
    "sam2_04_coffee.mp4",
    "sam2_05_default_juggle.mp4",
    "smpte-2997.mp4",
]
REAL_CLIPS = [
    "bigbuckbunny.mp4",
    "bikes.mp4",
    "flipping_a_pancake.mkv",
    "mllm_demo_2.avi",
    "mllm_demo_4.mp4",
    "nasa_13013.mp4",
    "v_rBMQFpHspmo.mp4",
]


@pytest.mark.parametrize("name", LAYOUTS)
def test_pyav_returns_exactly_the_frames_wanted(tmp_path: Path, name: str) -> None:
    path = encode_layout(tmp_path, name)
    frames = read_with_pyav(str(path), packet_index(path), WANTED)
    assert [number_shown(frame) for frame in frames] == WANTED


@pytest.mark.parametrize("name", LAYOUTS)
def test_pyav_finds_each_frame_alone(tmp_path: Path, name: str) -> None:
    path = encode_layout(tmp_path, name)
    index = packet_index(path)
    for number in WANTED:
        assert number_shown(read_with_pyav(str(path), index, [number])[0]) == number


@pytest.mark.parametrize("name", LAYOUTS)
def test_decord_returns_the_frames_wanted_or_is_not_used(tmp_path: Path, name: str) -> None:
    pytest.importorskip("decord")
    path = encode_layout(tmp_path, name)
    frames = read_with_decord(str(path), packet_index(path), WANTED)
    assert (frames is None) == (not name.startswith("closed"))
    assert frames is None or [number_shown(frame) for frame in frames] == WANTED


@pytest.mark.parametrize("name", sorted(set(LAYOUTS) - {"closed.mp4", "closed.mkv"}))
def test_decord_on_its_own_misreads_what_it_is_kept_from(tmp_path: Path, name: str) -> None:
    """The reason for the rule: where decord reads all of these rightly, the rule can go."""
    decord = pytest.importorskip("decord")
    decord.logging.set_level(decord.logging.QUIET)
    reader = decord.VideoReader(str(encode_layout(tmp_path, name)), num_threads=1)
    assert [number_shown(reader[n].asnumpy()) for n in reversed(WANTED)] != WANTED[::-1]


def test_decord_is_not_used_where_its_times_are_not_those_of_the_packets(tmp_path: Path) -> None:
    path = str(encode_layout(tmp_path, "closed.mp4"))
    index = packet_index(path)
    for other in (
        dataclasses.replace(index, times_s=index.times_s * 1.01),
        dataclasses.replace(index, times_s=index.times_s[1:], pts=index.pts[1:]),
    ):
        assert read_with_decord(path, other, [5]) is None


@pytest.mark.parametrize(("name", "leaves_out"), [("closed.mp4", True), ("mpeg4.mp4", False), ("open.mp4", False)])
def test_pictures_that_nothing_refers_to_are_left_undecoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, leaves_out: bool
) -> None:
    path = str(encode_layout(tmp_path, name))
    index, decoded = packet_index(path), []
    real = frames._decoded
    monkeypatch.setattr(frames, "_decoded", lambda *a: (decoded.append(f.pts) or f for f in real(*a)))
    wanted = [0, 40, 41, 99]
    pixels = read_with_pyav(path, index, wanted)
    assert [number_shown(p) for p in pixels] == wanted
    n_decoded = len(decoded)
    monkeypatch.setattr(frames, "_leaves_out", lambda *_: False)
    assert np.array_equal(pixels, read_with_pyav(path, index, wanted))
    assert (n_decoded < len(decoded) - n_decoded) is leaves_out


def test_h264_is_read_by_pyav_and_the_rest_by_decord(tmp_path: Path) -> None:
    for codec, reader in (("libx264", "pyav"), ("mpeg4", "decord")):
        segment = VideoSegment(str(encode(tmp_path / f"{codec}.mp4", codec, {"g": "25"})), 0.0, 2.0)
        assert frames.read_frames(segment, frames.FrameSampling()).reader == reader


@pytest.mark.parametrize("name", only(REAL_CLIPS, [*REAL_CLIPS, *LARGE_CLIPS]))
def test_both_readers_agree_on_real_clips(shared_data: Path, name: str) -> None:
    pytest.importorskip("decord")
    path = str(shared_data / "video-clips" / name)
    index = packet_index(path)
    wanted = np.linspace(0, len(index.pts) - 1, 7).astype(int).tolist()
    by_pyav = read_with_pyav(path, index, wanted)
    by_decord = read_with_decord(path, index, wanted)
    if name == "mllm_demo_2.avi":
        assert by_decord is None
    else:
        np.testing.assert_array_equal(by_decord, by_pyav)
    assert all(np.any(a != b) for a, b in itertools.pairwise(by_pyav))


def test_decord_on_its_own_misreads_the_avi_clip(shared_data: Path) -> None:
    decord = pytest.importorskip("decord")
    path = str(shared_data / "video-clips" / "mllm_demo_2.avi")
    late = read_with_pyav(path, packet_index(path), [200])[0]
    reader = decord.VideoReader(path, num_threads=1)
    assert abs(reader.get_frame_timestamp([200])[0, 0]) > 1e9
    assert np.abs(reader[200].asnumpy().astype(int) - late).mean() > 10


def test_both_readers_turn_frames_upright(tmp_path: Path) -> None:
    path = encode(tmp_path / "phone.mp4", n_frames=4)
    lying = read_with_pyav(str(path), packet_index(path), [3])[0]
    path = quarter_turned(path)
    upright = read_with_pyav(str(path), packet_index(path), [3])
    np.testing.assert_array_equal(upright[0], np.rot90(lying, -1))
    by_decord = read_with_decord(str(path), packet_index(path), [3])
    assert by_decord is None or np.array_equal(by_decord, upright)


def test_without_decord_there_is_still_pyav(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "decord", None)  # what an import finds where there is no wheel
    path = encode_layout(tmp_path, "closed.mp4")
    assert read_with_decord(str(path), packet_index(path), [5]) is None
    assert number_shown(read_with_pyav(str(path), packet_index(path), [5])[0]) == 5


def _numbers(path: str) -> list[int]:
    frames = read_with_decord(path, packet_index(path), WANTED)
    frames = read_with_pyav(path, packet_index(path), WANTED) if frames is None else frames
    return [number_shown(frame) for frame in frames]


def test_frames_are_read_in_a_forked_worker_after_the_parent_has_read(tmp_path: Path) -> None:
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("this system cannot fork")
    path = str(encode_layout(tmp_path, "closed.mp4"))
    assert _numbers(path) == WANTED
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_numbers, (path,)).get(timeout=60) == WANTED


def test_damage_stops_with_file_wanted_and_last_time(tmp_path: Path) -> None:
    path = encode_layout(tmp_path, "closed.mp4")
    index = packet_index(path)
    content = bytearray(path.read_bytes())
    middle = content.index(b"mdat") + (len(content) - content.index(b"mdat")) // 2
    content[middle : middle + 400] = bytes(400)
    path.write_bytes(content)
    assert number_shown(read_with_pyav(str(path), index, [5])[0]) == 5
    with pytest.raises(MediaError, match=r"closed\.mp4: the frame at \d\.\d+ s cannot be decoded, got .* s; "):
        read_with_pyav(str(path), index, list(range(N_FRAMES)))


def test_a_picture_decoded_from_damaged_data_is_refused(tmp_path: Path) -> None:
    path = encode(tmp_path / "broadcast.ts", "mpeg2video", {"g": "12", "bf": "2", "b": "2M"})
    packets = [path.read_bytes()[at : at + 188] for at in range(0, path.stat().st_size, 188)]
    inside = [n for n, packet in enumerate(packets) if packet[1] & 0x5F == 1 and packet[2] == 0]  # of the video stream
    del packets[inside[len(inside) // 2]]
    path.write_bytes(b"".join(packets))
    index = packet_index(path)
    assert number_shown(read_with_pyav(str(path), index, [5])[0]) == 5
    with pytest.raises(MediaError, match="damaged picture"):
        read_with_pyav(str(path), index, list(range(N_FRAMES)))
