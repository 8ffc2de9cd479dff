"""Files behind addresses and in archives: fetched once and whole, only from where it was said, never from elsewhere."""

import io
import json
import os
import tarfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from PIL import Image as Picture

from proofreel import allow_remote
from proofreel.core import (
    ConfigError,
    Frames,
    Image,
    MediaError,
    ModelInputError,
    VideoSegment,
    address_problem,
    is_address,
    media_path,
    own_name,
    remote,
    shown_address,
    with_media_paths,
)
from proofreel.data_prep.exports import read_claims
from proofreel.data_prep.media import FrameCache, FrameSampling, outside_root
from proofreel.models.questions import as_evidence
from proofreel.server.media_root import MediaRoot
from proofreel.server.settings import RefusedError

SAMPLING = FrameSampling(max_frames=4, min_pixels=28 * 28, max_pixels=56 * 56)


def png(shade: int = 0) -> bytes:
    file = io.BytesIO()
    Picture.fromarray(np.full((40, 60, 3), shade, np.uint8)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where fetched files are kept; nothing waits between tries."""
    monkeypatch.setenv("PROOFREEL_REMOTE", "")
    monkeypatch.setattr(remote, "REMOTE_DIRECTORY", str(tmp_path / "kept"))
    monkeypatch.setattr(remote, "_WAITS_S", (0.0, 0.0))
    yield tmp_path / "kept"
    fsspec.filesystem("memory").store.clear()


def put(name: str, content: bytes) -> str:
    fsspec.filesystem("memory").pipe_file(f"/{name}", content)
    return f"memory://{name}"


def kept(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.parts[len(folder.parts)] == "entries"]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    fetched: list[str] = []
    memory = type(fsspec.filesystem("memory"))
    get_file = memory.get_file

    def get(self: Any, path: str, *rest: Any, **more: Any) -> Any:
        fetched.append(path)
        return get_file(self, path, *rest, **more)

    monkeypatch.setattr(memory, "get_file", get)
    return fetched


def test_a_file_is_fetched_once_and_whole_and_again_when_it_changed(folder, monkeypatch):
    fetched = counted(monkeypatch)
    address = put("clips/a.png", b"one")
    for _ in range(2):
        allow_remote("memory://clips", directory=folder)  # another run
        assert [media_path(address, None).read_bytes() for _ in range(3)] == [b"one"] * 3
    assert len(fetched) == 1
    assert media_path(address, folder).suffix == ".png"
    put("clips/a.png", b"another")
    assert media_path(address, None).read_bytes() == b"one", "a run sees one content"
    allow_remote("memory://clips", directory=folder)
    assert media_path(address, None).read_bytes() == b"another"
    assert len(fetched) == 2
    assert not list((folder / "unfinished").iterdir())


def test_what_was_thrown_away_or_cut_short_is_fetched_again(folder, monkeypatch):
    fetched = counted(monkeypatch)
    allow_remote("memory://", directory=folder)
    address = put("a.bin", b"whole")
    media_path(address, None).write_bytes(b"who")
    assert media_path(address, None).read_bytes() == b"whole" or len(fetched) == 2
    media_path(address, None).unlink()
    assert media_path(address, None).read_bytes() == b"whole"


def test_a_download_that_breaks_off_is_tried_again_and_never_used(folder, monkeypatch):
    address, tries = put("a.bin", b"0123456789"), []
    memory = type(fsspec.filesystem("memory"))

    def cut(self: Any, path: str, target: str, *rest: Any, **more: Any) -> None:
        tries.append(path)
        Path(target).write_bytes(b"0123456789"[: 5 if len(tries) < 3 else 10])
        if len(tries) == 1:
            raise ConnectionResetError("gone")

    monkeypatch.setattr(memory, "get_file", cut)
    allow_remote("memory://", directory=folder)
    assert media_path(address, None).read_bytes() == b"0123456789"
    assert len(tries) == 3
    tries.clear()
    monkeypatch.setattr(memory, "get_file", lambda *_, **__: tries.append("x") or (_ for _ in ()).throw(OSError("off")))
    other = put("b.bin", b"x")
    with pytest.raises(MediaError, match=r"^memory://b\.bin: cannot be fetched, got OSError: off in 3 tries"):
        media_path(other, None)
    assert len(tries) == 3
    assert len(kept(folder)) == 1
    assert not list((folder / "unfinished").iterdir())


def test_missing_files_are_asked_for_once(folder):
    allow_remote("memory://", directory=folder)
    with pytest.raises(MediaError, match=r"^memory://gone\.mp4: no such file"):
        media_path("memory://gone.mp4", None)


def test_all_files_together_keep_to_the_limit(folder):
    allow_remote("memory://", directory=folder, max_gib=100 / 2**30)
    for i in range(5):
        media_path(put(f"{i}.bin", bytes(40)), None)
        assert sum(path.stat().st_size for path in kept(folder)) <= 100
    assert media_path("memory://4.bin", None).stat().st_size == 40
    with pytest.raises(MediaError, match=r"^memory://large.bin: larger than everything that may be kept"):
        media_path(put("large.bin", bytes(101)), None)


def archives(folder: Path) -> tuple[Path, Path]:
    with zipfile.ZipFile(folder / "clips.zip", "w") as file:
        file.writestr("in/a.png", png(10))
        file.writestr("../b.png", png(20))
    with tarfile.open(folder / "clips.tar.gz", "w:gz") as file:
        for name, shade in (("in/a.png", 30), ("../b.png", 40)):
            info = tarfile.TarInfo(name)
            info.size = len(png(shade))
            file.addfile(info, io.BytesIO(png(shade)))
        link = tarfile.TarInfo("link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(link)
    return folder / "clips.zip", folder / "clips.tar.gz"


def test_members_of_archives_are_files(tmp_path, folder):
    packed = archives(tmp_path)
    for name, shades in (("zip", (10, 20)), ("tar", (30, 40))):
        archive = packed[name == "tar"]
        for member, shade in zip(("in/a.png", "../b.png"), shades, strict=True):
            relative = f"{name}://{member}::{archive.name}"
            for path, root in ((relative, tmp_path), (f"{name}://{member}::{archive}", None)):
                file = media_path(path, root)
                assert np.asarray(Picture.open(file))[0, 0, 0] == shade
                assert folder in file.parents, "a member never lies where its own name says"
    for fault in (f"zip://gone.png::{packed[0]}", f"tar://gone.png::{packed[1]}", f"tar://link.png::{packed[1]}"):
        with pytest.raises(MediaError, match=r"no such member|cannot be read"):
            media_path(fault, None)
    (tmp_path / "bad.zip").write_bytes(b"PK no")
    with pytest.raises(MediaError, match="cannot be read"):
        media_path("zip://a::bad.zip", tmp_path)
    packed[1].write_bytes(packed[1].read_bytes()[:60])
    content = bytearray(packed[0].read_bytes())
    content[45:60] = bytes(15)
    packed[0].write_bytes(content)
    for damaged in (f"zip://in/a.png::{packed[0]}", f"tar://in/a.png::{packed[1]}"):
        with pytest.raises(MediaError, match=r"cannot be read|no such member"):
            media_path(damaged, None)
    allow_remote(max_gib=10 / 2**30)
    with pytest.raises(MediaError, match=r"^zip://\.\./b\.png::.*larger than everything"):
        media_path(f"zip://../b.png::{packed[0]}", None)
    with pytest.raises(MediaError, match="no such archive"):
        media_path("zip://a::gone.zip", tmp_path)


def test_members_of_archives_elsewhere(tmp_path, folder):
    archive = put("clips.zip", archives(tmp_path)[0].read_bytes())
    with pytest.raises(MediaError, match="nothing is fetched"):
        media_path(f"zip://in/a.png::{archive}", None)
    allow_remote("memory://", directory=folder)
    assert media_path(f"zip://in/a.png::{archive}", None).read_bytes() == png(10)


REFUSED = [
    "s3://bucket/a.mp4",
    "https://example.org/a.mp4",
    "memory://other/a.mp4",
    "memory://clips-of-others/a.mp4",
    "memory://clips/../other/a.mp4",
    "memory://clips/%2E%2e/other/a.mp4",
    "file:///etc/passwd",
    "local://etc/passwd",
    "simplecache::memory://clips/a.mp4",
    "filecache://x::memory://clips/a.mp4",
    "reference://x::memory://clips/a.mp4",
    "zip://a.mp4::https://example.org/a.zip",
    "zip://a::zip://b::memory://clips/c.zip",
    "zip://a.mp4",
    "zip://::a.zip",
    "memory://clips/a.mp4::memory://clips/b.mp4",
]


@pytest.mark.parametrize("address", REFUSED)
def test_nothing_is_fetched_from_where_it_was_not_said(address, folder, monkeypatch):
    monkeypatch.setattr("fsspec.core.url_to_fs", lambda *_: pytest.fail("opened"))
    allow_remote("memory://clips", directory=folder)
    if is_address(address):
        assert address_problem(address)
        with pytest.raises(MediaError):
            media_path(address, None)
        assert outside_root(address, folder)
    else:  # a name like any other: there is no such file
        assert not media_path(address, folder).exists()
    allow_remote(directory=folder)
    if is_address("memory://clips/a.mp4"):
        assert "--remote memory://clips/" in str(address_problem("memory://clips/a.mp4"))


def test_only_known_protocols_can_be_allowed_and_a_missing_package_is_named(monkeypatch):
    for prefix in ("file://", "zip://", "bucket", "ftp://host", "reference://"):
        with pytest.raises(ConfigError, match="not the beginning of an address"):
            allow_remote(prefix)
    monkeypatch.setattr(remote, "is_installed", lambda name: name != "s3fs")
    with pytest.raises(ConfigError, match=r"got no s3fs; pip install s3fs"):
        allow_remote("s3://bucket")
    assert "PROOFREEL_REMOTE" not in os.environ or not os.environ["PROOFREEL_REMOTE"]


def test_what_is_allowed_may_stand_in_the_environment(monkeypatch):
    monkeypatch.setenv("PROOFREEL_REMOTE", "memory://a memory://b")
    assert address_problem("memory://a/x.mp4") is None
    assert address_problem("memory://b/x.mp4") is None
    assert address_problem("memory://c/x.mp4")


def test_messages_hold_no_secrets():
    assert shown_address("https://u:p@host/a.mp4?X-Signature=1#t") == "https://host/a.mp4"
    assert own_name("https://host/a.mp4?X=/b") == "a.mp4"
    assert own_name("zip://in/a.mp4::s3://b/c.zip") == "a.mp4"


def test_evidence_may_name_addresses(tmp_path, folder):
    address = put("clips/a.png", png(50))
    with pytest.raises(ModelInputError, match="nothing is fetched unless you say so"):
        as_evidence(address)
    allow_remote("memory://clips", directory=folder)
    assert as_evidence(address) == (Image(address),)
    assert as_evidence("memory://clips/b.mp4") == (VideoSegment("memory://clips/b.mp4"),)
    assert as_evidence({"video": "memory://clips/b.mp4", "start_s": 1}) == (VideoSegment("memory://clips/b.mp4", 1.0),)
    archive = archives(tmp_path)[0]
    assert as_evidence("zip://in/a.png::clips.zip", tmp_path) == (Image("zip://in/a.png::clips.zip"),)
    cache = FrameCache(tmp_path / "frames", timeout_s=None)
    put("clips/a.png", archive.read_bytes() and png(10))
    read = [
        cache.read(Image(path), SAMPLING, tmp_path) for path in ("memory://clips/a.png", "zip://in/a.png::clips.zip")
    ]
    assert (cache.decoded, cache.hits) == (1, 1), "the same content, wherever it lies"
    np.testing.assert_array_equal(read[0].pixels_FHWC, read[1].pixels_FHWC)
    frames = Frames([put(f"clips/{i}.png", png(i)) for i in range(3)], [0, 1, 2])
    assert cache.read(frames, SAMPLING, tmp_path).pixels_FHWC[:, 0, 0, 0].tolist() == [0, 1, 2]


def test_addresses_keep_their_names_where_other_paths_get_a_root():
    pieces = (Image("a.png"), Image("s3://b/a.png"), Image("zip://m::a.zip"), VideoSegment("zip://m::s3://b/a.zip"))
    renamed = [with_media_paths(piece, lambda path: f"/media/{path}").path for piece in pieces]  # type: ignore[union-attr]
    assert renamed == ["/media/a.png", "s3://b/a.png", "zip://m::/media/a.zip", "zip://m::s3://b/a.zip"]


def test_rows_of_strangers_reach_nothing(tmp_path, folder, monkeypatch):
    monkeypatch.setattr("fsspec.core.url_to_fs", lambda *_: pytest.fail("opened"))
    root = tmp_path / "media"
    root.mkdir()
    videos = ["https://10.0.0.1/a.mp4", "s3://bucket/a.mp4", "zip://a.mp4::../a.zip", "zip://a.mp4::/etc/a.zip"]
    rows = [{"claim": "A claim.", "video": video} for video in videos]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    claims = read_claims(tmp_path / "rows.jsonl", inside=root)
    assert not claims.pairs
    assert len(claims.rejected) == len(videos)


def test_the_server_opens_no_address_even_where_its_process_may(tmp_path, folder):
    allow_remote("memory://", directory=folder)
    address = put("a.png", png())
    root = MediaRoot(tmp_path, 10**6)
    archives(tmp_path)
    for path in (address, "zip://in/a.png::clips.zip", "https://example.org/a.png"):
        with pytest.raises(RefusedError):
            root.find(path)
        with pytest.raises(RefusedError):
            root.find_url(path)


def test_many_who_want_one_file_fetch_it_once(folder, monkeypatch):
    fetched = counted(monkeypatch)
    allow_remote("memory://", directory=folder)
    address = put("a.bin", bytes(10**6))
    with ThreadPoolExecutor(8) as pool:
        each = [remote._Downloads(remote._settings()) for _ in range(8)]  # as many processes would have
        files = list(pool.map(lambda own: own.find(address, Path), each))
    assert {file.stat().st_size for file in files} == {10**6}
    assert len(fetched) == 1


def test_what_killed_processes_left_is_never_read_and_goes(folder):
    left = folder / "unfinished" / "0123"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    allow_remote("memory://", directory=folder)
    assert media_path(put("a.bin", b"whole"), None).read_bytes() == b"whole"
    assert not list(left.parent.iterdir())
