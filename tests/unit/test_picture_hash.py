"""Copies of a video in other containers are known by their pictures, and keep their groups in one split."""

import math
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numbered_clips import FPS, encode

from proofreel.core.errors import RowError
from proofreel.core.pairs import Pair, VideoSegment
from proofreel.data_prep.dataset.shards import read_split, write_pairs
from proofreel.data_prep.media.containers import hashed_packet_index, packet_index
from proofreel.data_prep.media.survey import look_at
from proofreel.data_prep.pipeline.config import BuildConfig, LeaksConfig, SourceConfig, SplitsConfig
from proofreel.data_prep.pipeline.pipeline import build

EVEN = SplitsConfig(0.25, 0.25, 0.25, 0.25)
REORDERED = {"g": "12", "bf": "2"}


def remuxed(source: Path, path: Path, *, title: str = "", sound_s: float = 0.0, faststart: bool = False) -> Path:
    """The pictures of `source` in another file, not encoded again; with other metadata and sound."""
    options = {"movflags": "+faststart"} if faststart else {}
    with av.open(str(source)) as old, av.open(str(path), "w", options=options) as new:
        if title:
            new.metadata["title"] = title
        stream = new.add_stream_from_template(old.streams.video[0])
        sound: Any = new.add_stream("aac", rate=16_000, layout="mono") if sound_s else None
        for n in range(math.ceil(sound_s * 16_000 / 1024)):
            tone = np.sin(np.arange(n * 1024, (n + 1) * 1024, dtype=np.float32)[None] / 20)
            frame = av.AudioFrame.from_ndarray(tone, format="fltp", layout="mono")
            frame.sample_rate, frame.pts = 16_000, n * 1024
            new.mux(sound.encode(frame))
        packets: list[Any] = [packet for packet in old.demux(old.streams.video[0]) if packet.size]
        first = next(n for n, packet in enumerate(packets) if packet.dts is not None)
        for n, packet in enumerate(packets):
            if packet.dts is None:  # Matroska holds no decoding times
                packet.dts = packets[first].dts - (first - n) * packet.duration
            packet.stream = stream
            new.mux(packet)
        if sound is not None:
            new.mux(sound.encode(None))
    return path


def pictures_of(path: Path) -> str | None:
    return look_at(path.name, path.parent, "video").pictures_sha256


@pytest.mark.parametrize("codec", ["libx264", "libx265", "mpeg4", "libvpx-vp9"])
def test_a_remuxed_copy_has_the_pictures_of_its_original_and_another_video_has_not(tmp_path: Path, codec: str) -> None:
    options = REORDERED if codec in ("libx264", "mpeg4") else {"preset": "ultrafast"} if codec == "libx265" else {}
    original = encode(tmp_path / "original.mp4", codec, options, n_frames=30)
    mkv = remuxed(original, tmp_path / "copy.mkv", title="a copy", sound_s=1.0)
    copies = [
        mkv,
        remuxed(mkv, tmp_path / "back.mp4", title="moved", sound_s=0.5, faststart=True),
        *([] if codec == "libvpx-vp9" else [remuxed(original, tmp_path / "copy.mov")]),
        *([remuxed(mkv, tmp_path / "copy.ts")] if codec in ("libx264", "libx265") else []),
    ]
    files = [look_at(path.name, tmp_path, "video") for path in (original, *copies)]
    assert len({file.sha256 for file in files}) == len(files)
    assert {file.pictures_sha256 for file in files} == {pictures_of(original)} != {None}

    shorter = encode(tmp_path / "shorter.mp4", codec, options, n_frames=29)
    later = encode(tmp_path / "later.mp4", codec, options, n_frames=30, tick=lambda n: 2 * n)
    assert pictures_of(shorter) != pictures_of(original)
    assert hashed_packet_index(later)[0].end_s == pytest.approx(60 / FPS, abs=0.1)


def test_hashing_the_pictures_leaves_the_index_as_it_is(tmp_path: Path) -> None:
    path = encode(tmp_path / "clip.mp4", "libx264", REORDERED, n_frames=30)
    index, plain = hashed_packet_index(path)[0], packet_index(path)
    np.testing.assert_array_equal(index.pts, plain.pts)
    np.testing.assert_array_equal(index.keyframe_pts, plain.keyframe_pts)
    assert index.gops_closed == plain.gops_closed


def test_damaged_units_are_hashed_as_they_are(tmp_path: Path) -> None:
    path = encode(tmp_path / "clip.mp4", "libx264", REORDERED, n_frames=30)
    content = bytearray(path.read_bytes())
    with av.open(str(path)) as file:
        packet = list(file.demux(video=0))[12]
        at = content.index(bytes(packet))
    content[at : at + 4] = b"\xff\xff\xff\xff"  # the size of its first unit
    (tmp_path / "damaged.mp4").write_bytes(content)
    damaged = pictures_of(tmp_path / "damaged.mp4")
    assert damaged is not None
    assert damaged != pictures_of(path)


def build_of(folder: Path, clips: dict[str, str], **rules: Any) -> BuildConfig:
    """{group: the file its only row shows}."""
    rows = [
        Pair(group, f"Claim of {group}.", (VideoSegment(clip, 0.0, 0.1),), "supported", group=group)
        for group, clip in clips.items()
    ]
    write_pairs(folder / "rows.jsonl", rows)
    source = SourceConfig("pairs", str(folder / "rows.jsonl"))
    config = BuildConfig(str(folder / "out"), (source,), splits=EVEN, shortcut_probe=False, card=False)
    return BuildConfig(**{**vars(config), **rules})


def test_groups_that_show_copies_fall_into_one_split_or_are_refused_with_both_files(tmp_path: Path) -> None:
    names = [f"v{n}.mp4" for n in range(5)]
    for n, name in enumerate(names):
        encode(tmp_path / name, "mpeg4", n_frames=4 + n)
    copies = [remuxed(tmp_path / names[1], tmp_path / f"c{n}.mkv", title=f"copy {n}").name for n in range(5)]
    clips = {f"g{n}": name for n, name in enumerate([*names, *copies])}

    manifest = build(config := build_of(tmp_path, clips))
    tied = {"g1", "g5", "g6", "g7", "g8", "g9"}
    held = [{pair.group for pair in read_split(config.output, split)} for split in manifest["shards"]]
    assert [groups & tied for groups in held if groups & tied] == [tied]
    assert manifest["leaks"]["media"] == 1
    assert manifest["leaks"]["tied_groups"] == 6
    assert manifest["media_in_several_splits"] == []

    with pytest.raises(RowError, match=r"media files 'c0.mkv', 'c1.mkv', 'c2.mkv', which show the same pictures"):
        build(build_of(tmp_path, clips, leaks=LeaksConfig(media="refuse")))
    allowed = build(build_of(tmp_path, clips, leaks=LeaksConfig(media="allow")))
    assert allowed["media_in_several_splits"] == sorted([names[1], *copies])
