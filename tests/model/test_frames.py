"""Frames by time: the frames on the screen at the times asked for, their real times, and never other frames."""

import dataclasses
import json
import math
import weakref
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numbered_clips import FPS, HEIGHT, LAYOUTS, N_FRAMES, WIDTH, encode, encode_layout, hide_first, number_shown
from PIL import Image

from proofreel.core.errors import ConfigError, MediaError
from proofreel.core.pairs import VideoSegment
from proofreel.data_prep.media.containers import packet_index
from proofreel.data_prep.media.frames import (
    SIDE_STEP,
    FrameSampling,
    fit_pixels,
    frame_times,
    image_size,
    read_frames,
    read_image,
    read_with_decord,
    read_with_pyav,
    target_size,
)

SPANS = [(0.0, None), (1.0, 3.0), (0.97, 2.53), (2.0, 2.1), (4.5, 4.8)]

budgets = st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)).map(sorted)


def numbers(pixels_FHWC: np.ndarray) -> list[int]:
    """The numbers that resized frames of a numbered clip show."""
    return [number_shown(np.asarray(Image.fromarray(pixels).resize((WIDTH, HEIGHT)))) for pixels in pixels_FHWC]


samplings = st.builds(
    FrameSampling,
    fps=st.floats(0.01, 60),
    min_frames=st.integers(1, 8).map(lambda n: 2 * n),
    max_frames=st.integers(8, 40).map(lambda n: 2 * n),
)


@given(st.floats(0, 1e5), st.floats(1e-3, 1e5), samplings)
def test_times_are_centres_of_an_even_number_of_equal_parts(
    start_s: float, length_s: float, sampling: FrameSampling
) -> None:
    times_F = frame_times(start_s, start_s + length_s, sampling)
    length_s = (start_s + length_s) - start_s
    part_s = length_s / len(times_F)
    assert len(times_F) % 2 == 0
    assert sampling.min_frames <= len(times_F) <= sampling.max_frames
    assert abs(len(times_F) - np.clip(length_s * sampling.fps, sampling.min_frames, sampling.max_frames)) <= 1
    np.testing.assert_allclose(times_F, start_s + (np.arange(len(times_F)) + 0.5) * part_s)


def test_a_span_that_is_no_span_has_no_times() -> None:
    for start_s, end_s in ((2, 1), (1, 1), (-1, 1), (0, math.nan), (0, math.inf)):
        with pytest.raises(MediaError):
            frame_times(start_s, end_s, FrameSampling())


def test_sampling_survives_json() -> None:
    sampling = FrameSampling(fps=1.5, max_frames=8)
    assert FrameSampling(**json.loads(json.dumps(dataclasses.asdict(sampling)))) == sampling


@pytest.mark.parametrize(
    "wrong",
    [
        {"fps": 0},
        {"fps": -1.0},
        {"fps": math.nan},
        {"fps": math.inf},
        {"fps": "2"},
        {"fps": True},
        {"min_frames": 0},
        {"min_frames": 3},
        {"max_frames": 63},
        {"max_frames": 4.0},
        {"min_frames": 66},
        {"min_pixels": 0},
        {"max_pixels": 1},
    ],
)
def test_impossible_sampling_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))}.*got"):
        FrameSampling(**wrong)


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_frame_is_the_one_on_the_screen(tmp_path: Path, name: str) -> None:
    path = encode_layout(tmp_path, name)
    sampling = FrameSampling(fps=4)
    for start_s, end_s in SPANS:
        frames = read_frames(VideoSegment(str(path), start_s, end_s), sampling)
        wanted_F = frame_times(start_s, end_s or N_FRAMES / FPS, sampling)
        expected = np.maximum(np.floor(wanted_F * FPS + 1e-6), math.ceil(start_s * FPS - 1e-6))
        assert numbers(frames.pixels_FHWC) == expected.tolist()
        np.testing.assert_allclose(frames.times_s, expected / FPS, atol=1e-3)


def test_frames_are_uint8_with_a_time_each(tmp_path: Path) -> None:
    frames = read_frames(VideoSegment(str(encode(tmp_path / "clip.mp4"))), FrameSampling())
    assert frames.pixels_FHWC.dtype == np.uint8
    assert frames.pixels_FHWC.shape == (10, *target_size(HEIGHT, WIDTH, FrameSampling()), 3)
    assert frames.pixels_FHWC.flags.writeable
    assert frames.pixels_FHWC.flags.c_contiguous
    assert frames.times_s.dtype == np.float64
    assert frames.times_s.shape == (10,)


def test_uneven_and_late_frames_are_found_by_their_times(tmp_path: Path) -> None:
    encode(tmp_path / "uneven.mkv", n_frames=20, tick=lambda n: 50 + n * n)
    frames = read_frames(VideoSegment("uneven.mkv", 4.0, 12.0), FrameSampling(fps=1), tmp_path)
    expected = [max(n for n in range(20) if n * n / FPS <= t) for t in np.arange(4.5, 12)]
    assert numbers(frames.pixels_FHWC) == expected
    np.testing.assert_allclose(frames.times_s, np.square(expected) / FPS, atol=1e-3)


def test_frames_hidden_by_an_edit_list_are_neither_shown_nor_counted(tmp_path: Path) -> None:
    path = hide_first(encode_layout(tmp_path, "closed.mp4"), tmp_path / "cut.mp4", hidden=10)
    frames = read_frames(VideoSegment(str(path), 0.0, 2.0), FrameSampling())
    assert numbers(frames.pixels_FHWC) == [10 + n for n in (6, 18, 31, 43)]
    np.testing.assert_allclose(frames.times_s, np.array([6, 18, 31, 43]) / FPS)


def test_no_frame_of_before_the_span_while_another_appears_in_it(tmp_path: Path) -> None:
    path = encode(tmp_path / "slow.mp4", fps=2, n_frames=20)
    frames = read_frames(VideoSegment(str(path), 1.1, 2.9), FrameSampling())
    assert numbers(frames.pixels_FHWC) == [3, 3, 4, 5]
    np.testing.assert_allclose(frames.times_s, [1.5, 1.5, 2.0, 2.5])


def test_a_span_without_change_shows_the_frame_on_the_screen(tmp_path: Path) -> None:
    path = encode(tmp_path / "slow.mp4", fps=2, n_frames=20)
    frames = read_frames(VideoSegment(str(path), 1.1, 1.3), FrameSampling())
    assert numbers(frames.pixels_FHWC) == [2, 2, 2, 2]
    assert frames.times_s.tolist() == [1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(("start_s", "end_s"), [(3.0, 1.0), (1.0, 1.0), (-1.0, 1.0), (4.0, 6.0), (7.0, None)])
def test_a_span_outside_the_file_is_an_error_that_names_it(tmp_path: Path, start_s: float, end_s: float | None) -> None:
    path = encode(tmp_path / "clip.mp4")
    with pytest.raises(MediaError, match=r"clip\.mp4.*got"):
        read_frames(VideoSegment(str(path), start_s, end_s), FrameSampling())


def test_missing_and_absent_media_are_errors(tmp_path: Path) -> None:
    path = encode(tmp_path / "clip.mp4", n_frames=4)
    with pytest.raises(MediaError, match=r"other\.mp4"):
        read_frames(VideoSegment("other.mp4"), FrameSampling(), tmp_path)
    with pytest.raises(MediaError, match="absent"):
        read_frames(VideoSegment(str(path), absent=True), FrameSampling())


@pytest.mark.parametrize("name", ["closed.mkv", "open.mkv"])
def test_a_download_that_broke_off_is_never_read_as_a_shorter_video(tmp_path: Path, name: str) -> None:
    path = encode_layout(tmp_path, name)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])
    assert numbers(read_frames(VideoSegment(str(path), 0.0, 1.0), FrameSampling()).pixels_FHWC)[0] == 3
    for end_s in (None, 4.8):
        with pytest.raises(MediaError, match="cut short"):
            read_frames(VideoSegment(str(path), 0.0, end_s), FrameSampling())


def _frames_near(path: Path, times_s: np.ndarray, within_s: float) -> list[tuple[float, np.ndarray]]:
    """(time since the first, pixels) of every frame near these times, decoded in one go from the start."""
    frames: list[tuple[float, np.ndarray]] = []
    with av.open(str(path)) as container:
        first_s = 0.0
        for n, frame in enumerate(container.decode(video=0)):
            first_s = frame.time if n == 0 else first_s
            if (time_s := frame.time - first_s) > max(times_s) + within_s:
                break
            if np.abs(times_s - time_s).min() < within_s:
                frames.append((time_s, frame.to_ndarray(format="rgb24")))
    return frames


def test_a_cut_of_the_numbered_clip_returns_exactly_its_frames(shared_data: Path) -> None:
    """Read by eye, these frames show 97, 111, 127 and 141, at 3.237, 3.704, 4.238 and 4.705 s of a 29.97 Hz source."""
    path = shared_data / "video-clips" / "smpte-2997.mp4"
    frames = read_frames(VideoSegment(str(path), 3.0, 5.0), FrameSampling(fps=2))
    np.testing.assert_allclose(frames.times_s, [3.24, 3.72, 4.24, 4.72])
    assert np.floor(frames.times_s * 30000 / 1001).tolist() == [97, 111, 127, 141]
    decoded = [(t, fit_pixels(p, FrameSampling())) for t, p in _frames_near(path, frames.times_s, 0.1)]
    assert len(decoded) == 20
    for time_s, pixels_HWC in zip(frames.times_s, frames.pixels_FHWC, strict=True):
        equal = [t for t, other in decoded if np.array_equal(other, pixels_HWC)]
        assert equal == pytest.approx([time_s])


def test_the_avi_clip_is_read_at_its_real_times(shared_data: Path) -> None:
    path = shared_data / "video-clips" / "mllm_demo_2.avi"
    frames = read_frames(VideoSegment(str(path), 5.0, 9.0), FrameSampling())
    assert frames.reader == "pyav"
    decoded = _frames_near(path, frames.times_s, 0.5)
    for time_s, pixels_HWC in zip(frames.times_s, frames.pixels_FHWC, strict=True):
        assert 5.0 <= time_s <= 9.0
        nearest = min(decoded, key=lambda shown: abs(shown[0] - time_s))
        np.testing.assert_array_equal(fit_pixels(nearest[1], FrameSampling()), pixels_HWC)


def test_the_corrupted_clip_names_file_wanted_time_and_where_decoding_stopped(shared_data: Path) -> None:
    path = shared_data / "video-clips" / "corrupted.mp4"
    assert len(read_frames(VideoSegment(str(path), 0.0, 2.0), FrameSampling()).times_s) == 4
    with pytest.raises(MediaError, match=r"corrupted\.mp4: the frame at 3\.200 s .* the frame at 2\.700 s"):
        read_frames(VideoSegment(str(path), 0.0, 4.0), FrameSampling())


def test_an_image_keeps_its_pixels(tmp_path: Path) -> None:
    pixels_HWC = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    Image.fromarray(pixels_HWC).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_image("a.png", tmp_path), pixels_HWC)


def test_a_photo_is_turned_upright(tmp_path: Path) -> None:
    image = Image.fromarray(np.zeros((10, 20, 3), dtype=np.uint8))
    exif = image.getexif()
    exif[0x0112] = 6  # the camera was held sideways
    image.save(tmp_path / "photo.jpg", exif=exif)
    assert read_image(tmp_path / "photo.jpg").shape == (20, 10, 3)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_lies_over_white(tmp_path: Path, mode: str) -> None:
    image = Image.new("RGBA", (4, 4), (0, 0, 0, 0)).convert(mode)
    if mode == "P":
        image.info["transparency"] = 0
    image.save(tmp_path / "chart.png")
    assert (read_image(tmp_path / "chart.png") == 255).all()


def test_bad_images_are_named_with_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("no picture")
    Image.fromarray(np.zeros((4, 4), dtype=np.uint16)).save(tmp_path / "deep.png")
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:3000])
    for name in ("missing.png", "empty.png", "text.png", "deep.png", "cut.png"):
        with pytest.raises(MediaError, match=rf"{name}: .*; "):
            read_image(tmp_path / name)


@settings(deadline=None)  # importing transformers takes seconds
@given(st.integers(1, 5000), st.integers(1, 5000), budgets)
def test_the_size_is_the_one_the_backbones_processor_chooses(height: int, width: int, budget: list[int]) -> None:
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import smart_resize

    sampling = FrameSampling(min_pixels=budget[0], max_pixels=budget[1])
    if max(height, width) > 200 * min(height, width):
        with pytest.raises(MediaError, match=r"clip: too long and thin, got \d+ x \d+ pixels; crop"):
            target_size(height, width, sampling, "clip")
    else:
        assert target_size(height, width, sampling) == smart_resize(height, width, SIDE_STEP, *budget)


def test_a_picture_of_the_right_size_is_left_alone() -> None:
    pixels_HWC = np.random.default_rng(0).integers(0, 256, (336, 448, 3), dtype=np.uint8)
    assert fit_pixels(pixels_HWC, FrameSampling()) is pixels_HWC


def test_a_strip_is_refused_with_its_file(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "strip.mp4"), "w") as container:
        stream: Any = container.add_stream("mpeg4", rate=5)
        stream.width, stream.height, stream.pix_fmt = 2048, 8, "yuv420p"
        for _ in range(5):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((8, 2048, 3), np.uint8), format="rgb24")))
        container.mux(stream.encode(None))
    with pytest.raises(MediaError, match=r"strip\.mp4: too long and thin, got 2048 x 8 pixels"):
        read_frames(VideoSegment("strip.mp4"), FrameSampling(), tmp_path)


CLIPS = ["sam2_04_coffee.mp4", "smpte-2997.mp4", "nasa_13013.mp4", "mllm_demo_2.avi", "v_rBMQFpHspmo.mp4"]


@pytest.mark.parametrize("name", CLIPS)
def test_fitting_is_the_processors_own_resize_and_leaves_it_nothing_to_do(shared_data: Path, name: str) -> None:
    import torch
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

    sampling = FrameSampling(max_frames=4)
    path = shared_data / "video-clips" / name
    frames = read_frames(VideoSegment(str(path), 0.0, 4.0), sampling)
    index = packet_index(path)
    wanted = np.searchsorted(index.times_s, frames.times_s).tolist()
    whole_FHWC = read_with_decord(str(path), index, wanted)
    whole_FHWC = read_with_pyav(str(path), index, wanted) if whole_FHWC is None else whole_FHWC
    assert whole_FHWC.shape[1:3] != frames.pixels_FHWC.shape[1:3]

    def process(pixels_FHWC: np.ndarray, resize: bool) -> dict[str, torch.Tensor]:
        videos: Any = [torch.from_numpy(pixels_FHWC).permute(0, 3, 1, 2)]
        size: Any = {"shortest_edge": sampling.min_pixels, "longest_edge": sampling.max_pixels}
        settings: Any = {"do_resize": resize, "do_rescale": False, "do_normalize": False, "cap_pixels_per_frame": False}
        return dict(Qwen2VLVideoProcessor()(videos, size=size, return_tensors="pt", **settings))

    own, fitted, left = process(whole_FHWC, True), process(frames.pixels_FHWC, True), process(frames.pixels_FHWC, False)
    assert torch.equal(own["video_grid_thw"], fitted["video_grid_thw"])
    assert torch.equal(fitted["pixel_values_videos"], left["pixel_values_videos"])
    difference = (own["pixel_values_videos"].float() - left["pixel_values_videos"].float()).abs()
    print(f"{name}: largest difference {difference.max():.0f}, mean {difference.mean():.4f} of 255")
    assert difference.max() <= 2


def test_a_long_clip_in_high_definition_never_lies_in_memory_at_full_size(shared_data: Path) -> None:
    path = shared_data / "video-clips" / "smpte-2997.mp4"
    index, sizes = packet_index(path), []
    for read in (read_with_decord, read_with_pyav):
        alive: list[Any] = []

        def fit(pixels_HWC: np.ndarray, alive: list[Any] = alive) -> np.ndarray:
            alive.append(weakref.ref(pixels_HWC))
            sizes.append(sum(pixels.nbytes for ref in alive if (pixels := ref()) is not None))
            return pixels_HWC[:8, :8].copy()

        assert read(str(path), index, range(0, 100, 2), fit) is not None
    assert max(sizes) <= 2 * 1080 * 1920 * 3


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "tiff", "gif"])
def test_the_size_of_an_image_is_known_without_decoding_it(tmp_path, monkeypatch, kind):
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    Image.new("RGB", (20, 10)).save(tmp_path / "a", kind.upper(), **({} if kind == "gif" else {"exif": exif}))
    upright = read_image(tmp_path / "a").shape[:2]

    def never(*_):
        raise AssertionError("decoded")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", never)
    assert image_size("a", tmp_path) == upright == ((10, 20) if kind == "gif" else (20, 10))
