"""Pictures that are not stored as they are shown: interlaced, in HDR, of more than 8 bits, of pixels not square."""

import shlex
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import av.filter
import numpy as np
import pytest
from PIL import Image

from proofreel.core.errors import MediaError
from proofreel.core.pairs import VideoSegment
from proofreel.data_prep.exports.cut import cut_segment
from proofreel.data_prep.media.containers import packet_index, probe
from proofreel.data_prep.media.fields import may_hold_fields
from proofreel.data_prep.media.frames import FrameSampling, read_frames, read_with_decord, read_with_pyav, target_size

WIDTH, HEIGHT, N_FRAMES = 160, 96, 24
BEFORE, AFTER = (200, 30, 30), (30, 180, 60)
SQUARE = {"g": "8", "bf": "0", "crf": "6"}
INTERLACED = {**SQUARE, "flags": "+ilme+ildct"}
WANTED = [0, 7, 8, 13, N_FRAMES - 1]


def _drawn(number: int) -> np.ndarray:
    """A bar that moves 6 pixels per frame, over two colours."""
    pixels_HWC = np.full((HEIGHT, WIDTH, 3), BEFORE, np.uint8)
    pixels_HWC[:, WIDTH // 2 :] = AFTER
    pixels_HWC[:, number * 6 : number * 6 + 16] = 255
    return pixels_HWC


def _woven(number: int) -> np.ndarray:
    """Two fields: the upper lines are what is seen at the frame's time, the lower what is seen half a frame later."""
    pixels_HWC = _drawn(number)
    pixels_HWC[1::2] = _drawn(number)[1::2, ::-1]
    return pixels_HWC


def _with_field_first(frame: Any, which: str) -> Any:
    graph = av.filter.Graph()
    source = graph.add_buffer(width=frame.width, height=frame.height, format=frame.format, time_base=Fraction(1, 25))
    graph.link_nodes(source, graph.add("setfield", f"mode={which}"), graph.add("buffersink")).configure()
    graph.push(frame)
    return graph.pull()


def _encode(
    path: Path,
    options: dict[str, str],
    draw: Any = _drawn,
    pix_fmt: str = "yuv420p",
    aspect: Fraction | None = None,
    first_field: str | None = None,
    **context: int,
) -> str:
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=25, options=options)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, pix_fmt
        if aspect is not None:
            stream.codec_context.sample_aspect_ratio = aspect
        for name, value in context.items():
            setattr(stream.codec_context, name, value)
        for n in range(N_FRAMES):
            frame: Any = av.VideoFrame.from_ndarray(draw(n), format="rgb24").reformat(format=pix_fmt)
            if first_field is not None:
                frame = _with_field_first(frame, first_field)
            frame.pts, frame.time_base = n, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return str(path)


def _far(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a.astype(int) - b.astype(int)).mean())


def _segment(path: str) -> VideoSegment:
    return VideoSegment(path, 0.0, None)


@pytest.mark.parametrize("first_field", ["tff", "bff"])
def test_an_interlaced_frame_is_the_field_shown_at_its_time(tmp_path: Path, first_field: str) -> None:
    # 4:4:4, so that the fields do not share colours before they are read
    path = _encode(tmp_path / "tv.mp4", INTERLACED, _woven, "yuv444p", first_field=first_field)
    index = packet_index(path)
    for pixels_HWC, number in zip(read_with_pyav(path, index, WANTED), WANTED, strict=True):
        drawn = _drawn(number) if first_field == "tff" else _drawn(number)[:, ::-1]
        assert _far(pixels_HWC, drawn) < 3
        assert _far(pixels_HWC, _woven(number)) > 10


def test_an_interlaced_frame_does_not_depend_on_where_decoding_began(tmp_path: Path) -> None:
    path = _encode(tmp_path / "tv.mp4", INTERLACED, _woven)
    index = packet_index(path)
    together = read_with_pyav(path, index, list(range(N_FRAMES)))
    for number in WANTED:
        np.testing.assert_array_equal(read_with_pyav(path, index, [number])[0], together[number])


def test_deinterlacing_keeps_the_colours_of_the_file(tmp_path: Path) -> None:
    tagged: dict[str, Any] = {"colorspace": 1, "color_primaries": 1, "color_trc": 1, "color_range": 1}
    plain = _encode(tmp_path / "film.mp4", SQUARE, **tagged)
    fields = _encode(tmp_path / "tv.mp4", INTERLACED, **tagged)
    by_file = [read_with_pyav(path, packet_index(path), [3])[0] for path in (plain, fields)]
    assert _far(by_file[0], by_file[1]) < 2


@pytest.mark.parametrize(
    ("options", "pix_fmt"), [(INTERLACED, "yuv420p"), (SQUARE, "yuv420p10le")], ids=["interlaced", "10 bits"]
)
def test_what_decord_would_show_otherwise_is_read_with_pyav(
    tmp_path: Path, options: dict[str, str], pix_fmt: str
) -> None:
    path = _encode(tmp_path / "clip.mp4", options, pix_fmt=pix_fmt)
    assert not probe(path).plain
    assert read_with_decord(path, packet_index(path), WANTED) is None
    frames = read_frames(_segment(path), FrameSampling())
    assert frames.reader == "pyav"
    assert np.isin(frames.times_s.round(6), (np.arange(N_FRAMES) / 25).round(6)).all()


@pytest.mark.parametrize("profile", ["baseline", "main", "high"])
def test_a_header_tells_whether_later_frames_may_be_interlaced(tmp_path: Path, profile: str) -> None:
    """Progressive frames both times: of the second file any other frame might not be."""
    options = {**SQUARE, "profile": profile}
    assert probe(_encode(tmp_path / "film.mkv", options)).plain
    if profile != "baseline":
        path = _encode(tmp_path / "mixed.mp4", {**options, "x264-params": "fake-interlaced=1"})
        with av.open(path) as container:
            assert not any(frame.interlaced_frame for frame in container.decode(video=0))
        assert not probe(path).plain


@pytest.mark.parametrize("n_bytes", [0, 1, 8, 9, 12, 16])
def test_a_header_that_cannot_be_read_rules_decord_out(n_bytes: int) -> None:
    header = bytes.fromhex("0164000affe100166764000aacd94283f100000300010000")
    assert may_hold_fields("h264", 1, header[:n_bytes]) == (n_bytes > 0)
    assert not may_hold_fields("vp9", 0, header[:n_bytes])
    assert may_hold_fields("mpeg2video", 0, b"")


def test_a_plain_file_is_read_by_both_alike(tmp_path: Path) -> None:
    pytest.importorskip("decord")
    path = _encode(tmp_path / "clip.mp4", SQUARE)
    assert (probe(path).plain, probe(path).pixel_aspect) == (True, 1)
    by_decord = read_with_decord(path, packet_index(path), WANTED)
    assert by_decord is not None
    np.testing.assert_array_equal(by_decord, read_with_pyav(path, packet_index(path), WANTED))


@pytest.mark.parametrize(("transfer", "name"), [(16, "PQ"), (18, "HLG")])
def test_hdr_is_refused_with_the_command_that_makes_it_readable(tmp_path: Path, transfer: int, name: str) -> None:
    path = _encode(
        tmp_path / "a phone's.mp4", SQUARE, pix_fmt="yuv420p10le", colorspace=9, color_primaries=9, color_trc=transfer
    )
    for read in (probe, lambda file: read_frames(_segment(file), FrameSampling())):
        with pytest.raises(MediaError, match=f"HDR.* got the transfer {name}.*convert it to SDR: ") as caught:
            read(path)
        command = shlex.split(str(caught.value).partition("SDR: ")[2])
        assert command[:3] == ["ffmpeg", "-i", path]
        assert command[-1] == str(tmp_path / "a phone's_sdr.mp4")


@pytest.mark.parametrize("aspect", [Fraction(64, 45), Fraction(8, 9), Fraction(3, 1)], ids=str)
@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_pixels_that_are_not_square_become_so(tmp_path: Path, aspect: Fraction, suffix: str) -> None:
    path = _encode(tmp_path / f"dvd.{suffix}", SQUARE, aspect=aspect)
    info = probe(path)
    assert (info.height, info.width) == (HEIGHT, round(WIDTH * aspect))
    frames = read_frames(_segment(path), sampling := FrameSampling(min_pixels=28 * 28, max_pixels=2**20))
    size = target_size(info.height, info.width, sampling)
    assert frames.pixels_FHWC.shape[1:3] == size  # what `count_visual_tokens` counts from the header
    index = packet_index(path)
    stored = read_with_pyav(path, index, [int(index.times_s.searchsorted(frames.times_s[0]))])[0]
    stretched = Image.fromarray(stored).resize((size[1], size[0]), Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(frames.pixels_FHWC[0], np.asarray(stretched))


def test_pixels_near_to_square_are_square(tmp_path: Path) -> None:
    info = probe(_encode(tmp_path / "web.mp4", SQUARE, aspect=Fraction(404, 405)))
    assert (info.width, info.height, info.pixel_aspect) == (WIDTH, HEIGHT, 1)


def test_pixels_of_no_real_shape_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="sample aspect ratio 20; "):
        probe(_encode(tmp_path / "bad.mp4", SQUARE, aspect=Fraction(20, 1)))


def test_an_exported_clip_holds_the_pictures_that_are_read(tmp_path: Path) -> None:
    path = _encode(tmp_path / "tv.mp4", INTERLACED, _woven, "yuv444p", aspect=Fraction(2, 1), first_field="tff")
    clip = cut_segment(VideoSegment(path, 0.2, 0.6), tmp_path)
    info = probe(clip)
    assert (info.width, info.height, info.pixel_aspect, info.plain) == (2 * WIDTH, HEIGHT, 1, True)
    first = read_with_pyav(str(clip), packet_index(clip), [0])[0]
    assert _far(first[:, ::2], _drawn(5)) < 6
