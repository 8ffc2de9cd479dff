"""Probing: every file gets its own plain answer, whatever the others do; nothing leaves the media root unseen."""

import hashlib
import os
import re
from pathlib import Path

import numpy as np
import pytest
from numbered_clips import FPS, HEIGHT, N_FRAMES, WIDTH, encode, encode_layout
from PIL import Image

from proofreel.data_prep.media import survey
from proofreel.data_prep.media.containers import MediaInfo
from proofreel.data_prep.media.survey import (
    ImageInfo,
    MediaFile,
    look_at,
    media_rows,
    media_table,
    outside_root,
    probe_all,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good files, and one of each bad kind."""
    folder = tmp_path_factory.mktemp("media")
    encode(folder / "good.mp4")
    encode_layout(folder, "plain.avi")
    (folder / "copy.mp4").write_bytes((folder / "good.mp4").read_bytes())
    noise = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "photo.png")
    (folder / "cut.png").write_bytes((folder / "photo.png").read_bytes()[:3000])
    Image.fromarray(noise).save(folder / "image.mp4", "PNG")
    (folder / "empty.mp4").touch()
    (folder / "page.mp4").write_text("<html>Video unavailable</html>" * 50)
    (folder / "folder.mp4").mkdir()
    os.mkfifo(folder / "pipe.mp4")
    cut = encode_layout(folder, "closed.mkv")
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size * 6 // 10])
    return folder


BAD_VIDEOS = {
    "image.mp4": "not a video of a format that is opened, got a playlist, a still image",
    "empty.mp4": "file is empty, got 0 bytes",
    "page.mp4": "not a readable video",
    "folder.mp4": "not a regular file, got a folder",
    "pipe.mp4": "not a regular file, got a named pipe",
    "closed.mkv": r"video is cut short, got packets up to \d\.\d+ s of 4\.800 s",
    "gone.mp4": "no such file",
}


def test_every_file_gets_its_own_answer_in_the_order_asked(folder: Path) -> None:
    names = [*BAD_VIDEOS, "good.mp4", "plain.avi", "good.mp4"]
    found = probe_all(names, folder, workers=2, timeout_s=60)
    assert list(found) == [*BAD_VIDEOS, "good.mp4", "plain.avi"]
    for name, problem in BAD_VIDEOS.items():
        message = found[name]
        assert isinstance(message, str)
        assert re.match(rf"{re.escape(str(folder / name))}: {problem}.*; \w+", message), message
    good = found["good.mp4"]
    assert isinstance(good, MediaFile)
    assert isinstance(good.info, MediaInfo)
    assert (good.info.width, good.info.height, good.info.duration_s) == (WIDTH, HEIGHT, N_FRAMES / FPS)
    content = (folder / "good.mp4").read_bytes()
    assert (good.n_bytes, good.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_images_are_decoded_whole_and_videos_are_no_images(folder: Path) -> None:
    found = probe_all(["photo.png", "cut.png", "good.mp4", "gone.png"], folder, kind="image", workers=1)
    photo = found["photo.png"]
    assert isinstance(photo, MediaFile)
    assert photo.info == ImageInfo(str(folder / "photo.png"), 60, 40, "PNG")
    for name in ("cut.png", "good.mp4", "gone.png"):
        assert re.match(rf"{re.escape(str(folder / name))}: .*; \w+", str(found[name]))


def test_nothing_to_probe_starts_nothing(folder: Path) -> None:
    assert probe_all([], folder) == {}


def test_a_file_that_hangs_its_reader_is_one_message_among_others(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "look_at", open_without_looking)
    found = probe_all(["pipe.mp4", "good.mp4"], folder, workers=2, timeout_s=2)
    assert str(found["pipe.mp4"]).startswith(f"{folder / 'pipe.mp4'}: reader hung for 2 s")
    assert isinstance(found["good.mp4"], MediaFile)


def open_without_looking(path: str, media_root: Path, **rest: object) -> MediaFile:
    """What `look_at` would be if pipes were opened."""
    (media_root / path).open("rb").close()
    return look_at(path, media_root, "video")


def test_one_content_under_two_names_is_found(folder: Path) -> None:
    found = probe_all(["good.mp4", "plain.avi", "copy.mp4", "gone.mp4"], folder, workers=1)
    good = found["good.mp4"]
    assert isinstance(good, MediaFile)
    copy = found["copy.mp4"]
    assert isinstance(copy, MediaFile)
    assert copy.sha256 == good.sha256


def test_the_table_counts_what_the_files_are(folder: Path) -> None:
    found = probe_all(["good.mp4", "plain.avi", "copy.mp4"], folder, workers=1)
    files = [file for file in found.values() if isinstance(file, MediaFile)]
    rows = media_rows([*files, look_at("photo.png", folder, "image")])
    assert rows["files"] == {"videos": 3, "images": 1, "bytes": sum(f.n_bytes for f in files) + rows_bytes(folder)}
    assert rows["container"] == {"mov,mp4,m4a,3gp,3g2,mj2": 2, "avi": 1}
    assert rows["codec"] == {"h264": 3}
    assert rows["size"] == {"160x96": 3, "60x40": 1}
    assert rows["fps"] == {"25": 3}
    assert rows["duration_s"]["median"] == 4.8
    assert rows["duration_s"]["sum"] == pytest.approx(14.4)
    assert "1 others 1" in media_table(media_rows([*files, look_at("photo.png", folder, "image")]), most=1)
    assert media_table(media_rows([])) == "files         videos 0, images 0, bytes 0"


def rows_bytes(folder: Path) -> int:
    return (folder / "photo.png").stat().st_size


def test_paths_that_leave_the_root_are_told_with_how(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "secret.mp4").touch()
    (root / "inside.mp4").touch()
    (root / "link.mp4").symlink_to(tmp_path / "secret.mp4")
    (root / "good.mp4").symlink_to("inside.mp4")
    (root / "away").symlink_to(tmp_path)
    (root / "loop.mp4").symlink_to("loop.mp4")
    ways = {
        "../secret.mp4": "got `..`;",
        "sub/../../secret.mp4": "got `..`;",
        str(tmp_path / "secret.mp4"): "got an absolute path;",
        "link.mp4": f"got a link to {tmp_path / 'secret.mp4'};",
        "away/secret.mp4": f"got a link to {tmp_path / 'secret.mp4'};",
        "loop.mp4": "cannot be resolved, got",
        "zero\0.mp4": "cannot be resolved, got",
    }
    for path, way in ways.items():
        message = outside_root(path, root)
        assert message is not None, path
        assert way in message
    for path in ("inside.mp4", "good.mp4", "sub/../inside.mp4", "not/there/yet.mp4", str(root / "inside.mp4")):
        assert outside_root(path, root) is None


def test_a_root_that_is_itself_a_link_holds_its_files(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to("real")
    assert outside_root("clip.mp4", tmp_path / "root") is None
    assert outside_root(str(tmp_path / "real" / "clip.mp4"), tmp_path / "root") is None
    assert outside_root("../clip.mp4", tmp_path / "root") is not None
    assert outside_root("clip.mp4", Path(os.path.relpath(tmp_path / "root"))) is None


def test_the_real_files_are_what_they_are(shared_data: Path) -> None:
    clips = shared_data / "video-clips"
    found = probe_all([p.name for p in sorted(clips.iterdir())], clips, workers=2)
    videos = {name: file for name, file in found.items() if isinstance(file, MediaFile)}
    assert len(videos) == 13
    read = [file.sha256 for file in found.values() if isinstance(file, MediaFile)]
    assert len(set(read)) == len(read)  # no clip is there twice
    refused = "not a video of a format that is opened|no video stream"
    for name in found.keys() - videos.keys():
        assert re.match(rf"{clips / name}: ({refused}), got ", str(found[name]))
    assert media_rows(videos.values())["codec"] == {"h264": 12, "mpeg4": 1}


def test_damage_in_the_middle_is_found_by_decoding(shared_data: Path) -> None:
    names = ["corrupted.mp4", "mllm_demo_4.mp4"]
    found = probe_all(names, shared_data / "video-clips", workers=1, decode=True)
    assert re.search(
        r"corrupted\.mp4: video is damaged, got '.*' after the frame at 2\.700 s of 5\.000 s; ", str(found[names[0]])
    )
    assert isinstance(found[names[1]], MediaFile)
