"""The frame cache: what comes out is what a fresh read gives, decoded once, whatever other processes do to it."""

import dataclasses
import multiprocessing
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numbered_clips import encode, encode_layout
from PIL import Image as PILImage

from proofreel.core.errors import ConfigError, MediaError
from proofreel.core.pairs import Image, VideoSegment
from proofreel.core.storage import STALE_S, DamagedEntryError, EntryStore
from proofreel.data_prep.media import frame_cache
from proofreel.data_prep.media.frame_cache import FrameCache, frames_key, pack_frames, unpack_frames
from proofreel.data_prep.media.frame_files import read_media_piece
from proofreel.data_prep.media.frames import (
    Frames,
    FrameSampling,
    fit_pixels,
    read_frames,
    read_image,
)

SMALL = FrameSampling(min_pixels=84 * 84, max_pixels=84 * 84)
SPANS = [VideoSegment("clip.mp4", 0.5 * i, 0.5 * i + 1.0) for i in range(7)]


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("media")
    encode(folder / "clip.mp4")
    encode_layout(folder, "mpeg4.avi")
    return folder


@pytest.fixture
def decodes(monkeypatch: pytest.MonkeyPatch) -> list[VideoSegment]:
    """What was really decoded, in order."""
    done: list[VideoSegment] = []

    def counted(segment: VideoSegment, *rest: Any) -> Frames:
        done.append(segment)
        return read_media_piece(segment, *rest)

    monkeypatch.setattr(frame_cache, "read_media_piece", counted)
    return done


def assert_equal(found: Frames, expected: Frames) -> None:
    np.testing.assert_array_equal(found.pixels_FHWC, expected.pixels_FHWC)
    np.testing.assert_array_equal(found.times_s, expected.times_s)
    assert found.pixels_FHWC.dtype == expected.pixels_FHWC.dtype == np.uint8
    assert found.times_s.dtype == expected.times_s.dtype == np.float64
    assert found.reader == expected.reader
    assert found.pixels_FHWC.flags.writeable
    assert found.pixels_FHWC.flags.c_contiguous


def entries(folder: Path) -> list[Path]:
    return sorted((folder / "entries").rglob("??/*"))


@pytest.mark.parametrize("timeout_s", [None, 60.0])
def test_cached_frames_are_those_of_a_fresh_read_bit_for_bit(
    media: Path, tmp_path: Path, timeout_s: float | None
) -> None:
    cache = FrameCache(tmp_path, timeout_s=timeout_s)
    for segment in (*SPANS, VideoSegment("mpeg4.avi", 1.0)):
        for sampling in (SMALL, FrameSampling(fps=4)):
            expected = read_frames(segment, sampling, media)
            assert_equal(cache.read(segment, sampling, media), expected)
            assert_equal(cache.read(segment, sampling, media), expected)
    assert cache.hits == cache.decoded == len(entries(tmp_path)) == 16


def test_the_second_epoch_and_the_next_run_decode_nothing(
    media: Path, tmp_path: Path, decodes: list[VideoSegment]
) -> None:
    for run in range(2):
        cache = FrameCache(tmp_path, timeout_s=None)
        for _ in range(3):
            for segment in SPANS:
                cache.read(segment, SMALL, media)
        assert decodes == SPANS
        assert cache.hits == (21 if run else 14)
        assert cache.decoded == (0 if run else 7)


def test_only_what_the_frames_depend_on_makes_another_entry(
    media: Path, tmp_path: Path, decodes: list[VideoSegment]
) -> None:
    cache, segment = FrameCache(tmp_path / "cache", timeout_s=None), VideoSegment("clip.mp4", 1.0, 2.0)
    cache.read(segment, SMALL, media)
    shutil.copy(media / "clip.mp4", tmp_path / "moved.mp4")
    cache.read(VideoSegment("moved.mp4", 1, 2), SMALL, tmp_path)  # the same content, elsewhere
    cache.read(segment, dataclasses.replace(SMALL, fps=2), media)
    assert len(decodes) == 1
    changed = [{"fps": 3.0}, {"min_frames": 6}, {"max_frames": 8}, {"min_pixels": 56 * 56}, {"max_pixels": 112 * 112}]
    for change in changed:
        cache.read(segment, dataclasses.replace(SMALL, **change), media)
    cache.read(dataclasses.replace(segment, start_s=1.1), SMALL, media)
    cache.read(dataclasses.replace(segment, end_s=None), SMALL, media)
    assert len(decodes) == len(entries(tmp_path / "cache")) == 8


def test_another_version_of_a_decoder_decodes_anew(
    media: Path, tmp_path: Path, decodes: list[VideoSegment], monkeypatch: pytest.MonkeyPatch
) -> None:
    for av_version in ("1", "1", "2"):
        monkeypatch.setattr(frame_cache, "_versions", lambda v=av_version: {"av": v})
        FrameCache(tmp_path, timeout_s=None).read(SPANS[0], SMALL, media)
    assert len(decodes) == 2


REPLACE: dict[str, Callable[[Path, bytes], Any]] = {
    "written again": lambda path, content: path.write_bytes(content),
    "renamed over": lambda path, content: (
        ((path.parent / "new").write_bytes(content) and os.utime(path.parent / "new", (1e9, 1e9)))
        or os.replace(path.parent / "new", path)
    ),
    "with the old time": lambda path, content: path.write_bytes(content) and os.utime(path, (1e9, 1e9)),
}


@pytest.mark.parametrize("settled_ns", [0, frame_cache._SETTLED_NS])
@pytest.mark.parametrize("way", REPLACE)
def test_new_content_of_the_same_size_under_an_old_name_is_decoded(
    tmp_path: Path, decodes: list[VideoSegment], monkeypatch: pytest.MonkeyPatch, way: str, settled_ns: int
) -> None:
    monkeypatch.setattr(frame_cache, "_SETTLED_NS", settled_ns)
    contents = [encode(tmp_path / f"{crf}.mp4", options={"crf": crf}).read_bytes() for crf in ("10", "51")]
    room = len(contents[0]) - len(contents[1])
    contents[1] += room.to_bytes(4, "big") + b"free" + bytes(room - 8)
    path, cache = tmp_path / "clip.mp4", FrameCache(tmp_path / "cache", timeout_s=None)
    path.write_bytes(contents[0])
    os.utime(path, (1e9, 1e9))
    before = cache.read(SPANS[0], SMALL, tmp_path)
    time.sleep(0.02)  # more than a tick of the file system's clock
    REPLACE[way](path, contents[1])
    after = cache.read(SPANS[0], SMALL, tmp_path)
    assert len(decodes) == 2
    assert not np.array_equal(before.pixels_FHWC, after.pixels_FHWC)


def test_large_files_are_hashed_once(media: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Path] = []
    monkeypatch.setattr(frame_cache, "_SETTLED_NS", 0)
    real = frame_cache.sha256_of
    monkeypatch.setattr(frame_cache, "sha256_of", lambda path: hashed.append(path) or real(path))
    for _ in range(2):
        cache = FrameCache(tmp_path, timeout_s=None)
        for segment in SPANS[:3]:
            cache.read(segment, SMALL, media)
    assert len(hashed) == 1
    for record in (tmp_path / "hashes").rglob("??/*"):
        record.write_text('{"stamp": 3')
    FrameCache(tmp_path, timeout_s=None).read(SPANS[0], SMALL, media)
    assert len(hashed) == 2


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda entry: entry[: len(entry) // 2],
    "emptied": lambda entry: b"",
    "one bit": lambda entry: entry[:-9] + bytes([entry[-9] ^ 1]) + entry[-8:],
    "header": lambda entry: entry[:33] + b"\xff" + entry[34:],
    "zeros": lambda entry: bytes(len(entry)),
    "longer": lambda entry: entry + b"x",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_dropped_and_decoded_again(
    media: Path, tmp_path: Path, decodes: list[VideoSegment], damage: str
) -> None:
    cache = FrameCache(tmp_path, timeout_s=None)
    expected = cache.read(SPANS[0], SMALL, media)
    (entry,) = entries(tmp_path)
    whole = entry.read_bytes()
    entry.write_bytes(DAMAGE[damage](whole))
    assert_equal(cache.read(SPANS[0], SMALL, media), expected)
    assert (cache.damaged, len(decodes), entry.read_bytes() == whole) == (1, 2, True)


def test_an_entry_under_another_name_is_not_believed() -> None:
    frames_ = Frames(np.zeros((2, 28, 28, 3), np.uint8), np.zeros(2), "pyav")
    assert_equal(unpack_frames(pack_frames(frames_, "a"), "a"), frames_)
    with pytest.raises(DamagedEntryError, match="another entry"):
        unpack_frames(pack_frames(frames_, "a"), "b")


def test_errors_are_raised_as_ever_and_never_kept(media: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    os.mkfifo(tmp_path / "pipe.mp4")
    wrong = [
        (VideoSegment("gone.mp4"), "no such file"),
        (VideoSegment("empty.mp4"), "file is empty"),
        (VideoSegment("pipe.mp4"), "named pipe"),
        (VideoSegment("clip.mp4", absent=True), "absent"),
        (VideoSegment(str(media / "clip.mp4"), 3.0, 9.0), "end_s is past the end"),
        (VideoSegment(str(media / "clip.mp4"), 3.0, float("nan")), "finite"),
    ]
    for timeout_s in (None, 60.0):
        cache = FrameCache(tmp_path / "cache", timeout_s=timeout_s)
        for segment, problem in wrong * 2:
            with pytest.raises(MediaError, match=problem):
                cache.read(segment, SMALL, tmp_path)
    assert entries(tmp_path / "cache") == []


def test_a_decoder_that_hangs_is_given_up(media: Path, tmp_path: Path) -> None:
    cache = FrameCache(tmp_path, timeout_s=0.001)
    with pytest.raises(MediaError, match=r"clip\.mp4: reader hung for 0\.001 s"):
        cache.read(SPANS[0], SMALL, media)
    assert entries(tmp_path) == []


def test_limits_must_make_sense(tmp_path: Path) -> None:
    for limits in ({"max_gib": 0}, {"max_gib": float("nan")}, {"timeout_s": 0}):
        with pytest.raises(ConfigError, match=next(iter(limits))):
            FrameCache(tmp_path, **limits)


def test_a_cache_that_cannot_be_written_says_so_and_reads_on(media: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    cache = FrameCache(tmp_path / "cache", timeout_s=None)
    with pytest.warns(UserWarning, match="frames are not kept"):
        assert_equal(cache.read(SPANS[0], SMALL, media), read_frames(SPANS[0], SMALL, media))
    assert (cache.decoded, cache.not_kept) == (1, 1)


def total_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in entries(folder))


def test_the_total_never_exceeds_the_limit_and_the_longest_unused_go_first(tmp_path: Path) -> None:
    store = EntryStore(tmp_path, max_bytes=10_000)
    for i in range(10):
        assert store.write(f"{i:04d}", bytes(1000))
        assert store.read("0000")
        assert total_bytes(tmp_path) <= 10_000
        time.sleep(0.002)
    assert len(entries(tmp_path)) == 10
    assert store.write("0010", bytes(1000))
    assert [path.name for path in entries(tmp_path)] == ["0000", *(f"{i:04d}" for i in range(3, 11))]
    assert store.write("all", bytes(9_990))
    assert [path.name for path in entries(tmp_path)] == ["all"]
    assert not store.write("more", bytes(10_001))
    assert store.read("more") is None


@pytest.mark.parametrize("total", ["", "no number", None])
def test_a_lost_total_is_counted_anew(tmp_path: Path, total: str | None) -> None:
    store = EntryStore(tmp_path, max_bytes=10_000)
    for i in range(9):
        store.write(f"{i:04d}", bytes(1000))
    if total is None:
        (tmp_path / "total").unlink()
    else:
        (tmp_path / "total").write_text(total)
    store.write("last", bytes(2_000))
    assert total_bytes(tmp_path) <= 10_000
    assert store.read("last") == bytes(2_000)


def test_eviction_decodes_again_and_nothing_else(media: Path, tmp_path: Path, decodes: list[VideoSegment]) -> None:
    FrameCache(tmp_path / "probe", timeout_s=None).read(SPANS[0], SMALL, media)
    size = total_bytes(tmp_path / "probe")
    limit_gib = 3.5 * size / 2**30
    cache = FrameCache(tmp_path / "cache", max_gib=limit_gib, timeout_s=None)
    for _ in range(2):
        for segment in SPANS:
            assert_equal(cache.read(segment, SMALL, media), read_frames(segment, SMALL, media))
            assert total_bytes(tmp_path / "cache") <= limit_gib * 2**30
    assert cache.decoded == 14


def read_all(folder: Path, media: Path, seed: int, max_gib: float, queue: Any) -> None:
    """Read every span twice in an order of one's own, and report what was wrong."""
    cache = FrameCache(folder, max_gib, timeout_s=None)
    expected = {segment: read_frames(segment, SMALL, media) for segment in SPANS}
    for _ in range(4):
        for segment in random.Random(seed).sample(SPANS, len(SPANS)):
            assert_equal(cache.read(segment, SMALL, media), expected[segment])
    queue.put((cache.hits, cache.decoded, cache.damaged, cache.not_kept))


@pytest.mark.parametrize("max_gib", [1.0, 2e-4])
def test_four_processes_share_a_cache(media: Path, tmp_path: Path, max_gib: float) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    workers = [context.Process(target=read_all, args=(tmp_path, media, i, max_gib, queue)) for i in range(4)]
    for worker in workers:
        worker.start()
    counts = np.array([queue.get(timeout=120) for _ in workers])
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert (counts[:, :2].sum(1) == 28).all()
    assert (counts[:, 2:] == 0).all()
    assert total_bytes(tmp_path) <= max_gib * 2**30
    assert list((tmp_path / "unfinished").iterdir()) == []
    assert max_gib < 1 or len(entries(tmp_path)) == len(SPANS)


WRITER = """
import os, signal, sys
from pathlib import Path
from proofreel.core import storage
from proofreel.core.storage import EntryStore
if sys.argv[2] == "before the rename":
    storage._rename = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
elif sys.argv[2] == "half written":
    def half(path, content):
        with open(path, "wb") as file:
            file.write(content[: len(content) // 2])
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    Path.write_bytes = half
store, i = EntryStore(Path(sys.argv[1]), 200_000), 0
while True:
    i += 1
    store.write(f"{i % 40:04d}", bytes([i % 40]) * 9_000)
    print(i, flush=True)
"""


@pytest.mark.parametrize("when", ["before the rename", "half written"])
def test_a_writer_killed_in_the_middle_leaves_nothing_that_is_read(tmp_path: Path, when: str) -> None:
    done = subprocess.run([sys.executable, "-c", WRITER, str(tmp_path), when], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = (tmp_path / "unfinished").iterdir()
    assert entries(tmp_path) == []
    store = EntryStore(tmp_path, 200_000)
    assert store.read("0001") is None
    assert store.write("0001", bytes(9_000))  # the lock died with its holder
    assert left.exists()  # it might still be being written
    old_s = time.time() - STALE_S - 1
    os.utime(left, (old_s, old_s))
    EntryStore(tmp_path, 200_000).write("0002", bytes(9_000))
    assert not left.exists()


def test_writers_killed_at_random_times_never_break_the_store(tmp_path: Path) -> None:
    for delay_s in np.random.default_rng(0).uniform(0, 0.05, 6):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), "never"], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(delay_s)
            writer.kill()
        assert total_bytes(tmp_path) <= 200_000
        for path in entries(tmp_path):
            assert path.read_bytes() == bytes([int(path.name)]) * 9_000
        assert int((tmp_path / "total").read_text() or 10**9) >= total_bytes(tmp_path)


def test_a_cache_travels_to_data_loader_workers(media: Path, tmp_path: Path) -> None:
    cache = FrameCache(tmp_path, timeout_s=60.0)
    cache.read(SPANS[0], SMALL, media)
    copy = pickle.loads(pickle.dumps(cache))
    assert_equal(copy.read(SPANS[0], SMALL, media), read_frames(SPANS[0], SMALL, media))
    copy.read(SPANS[1], SMALL, media)
    assert copy.decoded == cache.decoded + 1


def test_the_key_is_stable() -> None:
    """Entries written by one process must be found by the next: no hash seeds, no order of dicts."""
    code = (
        "from proofreel.data_prep.media.frame_cache import *\n"
        "print(frames_key('c', VideoSegment('x', 1, 2.5), FrameSampling(fps=3)))"
    )
    said = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert said == {frames_key("c", VideoSegment("y", 1.0, 2.5), FrameSampling(fps=3.0)) + "\n"}


def test_real_clips_come_back_bit_for_bit(shared_data: Path, tmp_path: Path) -> None:
    clips = shared_data / "video-clips"
    cache = FrameCache(tmp_path, timeout_s=None)
    sampling = FrameSampling(fps=1, max_frames=8)
    for name in ("sam2_04_coffee.mp4", "nasa_13013.mp4", "mllm_demo_2.avi", "flipping_a_pancake.mkv"):
        expected = cache.read(VideoSegment(name), sampling, clips)
        assert_equal(cache.read(VideoSegment(name), sampling, clips), expected)
    assert cache.hits == cache.decoded == 4


def test_data_loader_workers_fill_the_cache_and_the_second_epoch_decodes_nothing(
    colour_dataset: Path,
    tiny_base: Path,
    tmp_path: Path,
    small_sampling: FrameSampling,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch
    from torch.utils.data import DataLoader

    from proofreel.core.prompt import Prompt
    from proofreel.data_prep.dataset.shards import read_split
    from proofreel.models.backbones.families import vision_layout
    from proofreel.models.backbones.load import load_backbone, load_processor
    from proofreel.models.inputs.encoder import Encoder
    from proofreel.train.dataset import GroupDataset

    encoder = Encoder(
        load_processor(tiny_base), vision_layout(load_backbone(tiny_base).config), Prompt(), small_sampling
    )
    pairs = read_split(colour_dataset, "train")

    def epoch(cache: FrameCache | None) -> list[torch.Tensor]:
        loader = DataLoader(GroupDataset(pairs, encoder, 8, 0.0, cache), batch_size=None, num_workers=2)
        return [example.row.vision["pixel_values_videos"] for example in loader]

    expected, first = epoch(None), epoch(FrameCache(tmp_path))
    monkeypatch.setattr(FrameCache, "_decode", None)
    second = epoch(FrameCache(tmp_path))
    assert len(expected) == len(first) == len(second) == len({pair.evidence for pair in pairs})
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(expected, first, second, strict=True))


def test_an_image_is_decoded_once_and_kept_at_the_size_the_network_sees(tmp_path, decodes):
    picture = PILImage.fromarray(np.random.default_rng(0).integers(0, 256, (300, 500, 3), dtype=np.uint8))
    picture.save(tmp_path / "a.png")
    sampling = FrameSampling(min_pixels=28 * 28, max_pixels=84 * 84)
    expected = fit_pixels(read_image(tmp_path / "a.png"), sampling)
    for _ in range(2):  # two copies, as two processes have
        cache = FrameCache(tmp_path / "cache", timeout_s=None)
        frames = cache.read(Image("a.png"), sampling, tmp_path)
        np.testing.assert_array_equal(frames.pixels_FHWC[0], expected)
    assert decodes == [Image("a.png")]
    assert frames_key("x", Image("a"), sampling) != frames_key("x", VideoSegment("a", 0.0), sampling)
