"""Media files of strangers: a file opens itself alone, starts no program, and is not decoded past a limit."""

import shutil
import struct
import subprocess
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as PILImage

from proofreel.core import MediaError, VideoSegment
from proofreel.data_prep.media import FrameSampling, guarded, probe, read_frames, read_image, sandbox
from proofreel.data_prep.media.frames import MAX_IMAGE_PIXELS, read_with_decord

SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kitchen" / "sample.mp4"
PLAYLIST = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:10\n#EXTINF:2.0,\n{target}\n#EXT-X-ENDLIST\n"
LISTS = {
    "list.m3u8": PLAYLIST,
    "list.mp4": PLAYLIST,
    "live.m3u8": PLAYLIST.replace("#EXT-X-ENDLIST\n", ""),
    "list.ffconcat": "ffconcat version 1.0\nfile {target}\n",
    "concat.mp4": "ffconcat version 1.0\nfile {target}\n",
    "list.sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\n",
    "list.mpd": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="dynamic"><Period>'
    '<AdaptationSet><Representation id="1" mimeType="video/mp4"><BaseURL>{target}</BaseURL></Representation>'
    "</AdaptationSet></Period></MPD>",
}


@pytest.mark.parametrize("name", LISTS)
def test_a_playlist_opens_no_other_file(tmp_path, name):
    """It used to show whatever file it named, from anywhere; a live one was waited for without end."""
    (tmp_path / "inside").mkdir()
    shutil.copy(SAMPLE, tmp_path / "secret.mp4")
    shutil.copy(SAMPLE, tmp_path / "inside" / "beside.mp4")
    for target in ("../secret.mp4", str(tmp_path / "secret.mp4"), "beside.mp4", "http://127.0.0.1:9/x.mp4"):
        (tmp_path / "inside" / name).write_text(LISTS[name].replace("{target}", target))
        with pytest.raises(MediaError, match=r"not a (readable )?video"):
            read_frames(VideoSegment(name, 0.0, 1.0), FrameSampling(), tmp_path / "inside")


@pytest.mark.parametrize(
    "path", ["concat:a.mp4|b.mp4", "file:a.mp4", "http://127.0.0.1:9/a.mp4", "subfile,,start,0,end,0,,:a.mp4"]
)
def test_a_path_is_a_file_and_no_protocol(tmp_path, path, monkeypatch):
    for name in ("a.mp4", "b.mp4"):
        shutil.copy(SAMPLE, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for root in (None, tmp_path):
        with pytest.raises(MediaError, match=r"no such file|nothing is fetched unless you say so"):
            read_frames(VideoSegment(path, 0.0, 1.0), FrameSampling(), root)


def test_a_file_whose_name_looks_like_a_protocol_is_read(tmp_path, monkeypatch):
    shutil.copy(SAMPLE, tmp_path / "concat:a|b.mp4")
    monkeypatch.chdir(tmp_path)
    frames = read_frames(VideoSegment("concat:a|b.mp4", 0.0, 1.0), FrameSampling())
    assert (frames.pixels_FHWC == read_frames(VideoSegment(str(SAMPLE), 0.0, 1.0), FrameSampling()).pixels_FHWC).all()


@pytest.mark.parametrize("name", ["frame001.png", "frame%03d.png", "frame*.png"])
def test_a_sequence_of_images_is_no_video(tmp_path, name):
    for each in ("frame001.png", name):
        PILImage.new("RGB", (64, 64)).save(tmp_path / each)
    with pytest.raises(MediaError, match="not a video of a format that is opened"):
        probe(tmp_path / name)


def test_decord_is_not_given_what_begins_as_no_container(tmp_path):
    class Believed:
        jumps_exactly = True

    index: Any = Believed()
    path = tmp_path / "a.mp4"
    path.write_text(PLAYLIST.replace("{target}", str(SAMPLE)))
    assert read_with_decord(str(path), index, [0]) is None


@pytest.mark.parametrize("name", ["a.eps", "a.png", "a.jpg"])
def test_an_image_starts_no_program(tmp_path, name, monkeypatch):
    (tmp_path / name).write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\n%%EndComments\nshowpage\n")
    monkeypatch.setattr(subprocess, "Popen", None)
    monkeypatch.setattr(subprocess, "check_call", None)
    with pytest.raises(MediaError, match="not a readable image"):
        read_image(tmp_path / name)


def png_of(width, height):
    """A file that says it has so many pixels and holds none of them."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = b"IDAT" + zlib.compress(b"")
    chunks = (struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in (header, body, b"IEND"))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(PILImage.Image, "load", None)
    path = tmp_path / "a.png"
    path.write_bytes(png_of(8193, 8193))
    assert 8193**2 > MAX_IMAGE_PIXELS >= 8192**2
    with pytest.raises(MediaError, match="8193 x 8193 pixels"):
        read_image(path)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000"])
def test_the_usual_formats_are_read(tmp_path, form):
    path = tmp_path / "picture"
    PILImage.new("RGB", (40, 30), "red").save(path, form)
    assert read_image(path).shape == (30, 40, 3)


def hang(path):
    time.sleep(600)


def test_a_decoder_that_hangs_is_ended_though_nothing_is_cached(monkeypatch):
    monkeypatch.setattr(sandbox, "READ_LIMIT_S", 0.2)
    with pytest.raises(MediaError, match=r"a\.mp4: reader hung for 0.2 s"):
        guarded(hang, "a.mp4", name="a.mp4")
    assert guarded(probe, str(SAMPLE), name=str(SAMPLE)).n_frames == 16
