"""Frames as evidence, before any pixel: what is wrong with them, rows of data sets and tables, builds, the server."""

import csv
import json
import math
from pathlib import Path

import pytest
from PIL import Image as Picture
from pydantic import ValidationError

from proofreel.core import (
    Frames,
    Image,
    ModelInputError,
    Pair,
    Passage,
    evidence_from_dict,
    evidence_kinds,
    evidence_to_dict,
    problems_of,
)
from proofreel.data_prep.dataset import read_pairs, write_pairs
from proofreel.data_prep.exports import read_claims
from proofreel.data_prep.media import FrameSampling
from proofreel.models.cascades.plan import View
from proofreel.models.questions import as_evidence, as_pairs
from proofreel.server.media import Library, picture, prepare
from proofreel.server.schemas import PIECE

FAULTS = [
    (["a.png"], [0.0], "fewer than two, got 1"),
    ([], [], "fewer than two, got 0"),
    (["a.png", "b.png"], [0.0], "differ in number, got 2 and 1"),
    (["a.png", "b.png", "c.png"], [0.0, 2.0, 1.0], r"times_s[1] = 2.0, times_s[2] = 1.0"),
    (["a.png", "b.png"], [1.0, 1.0], "do not increase"),
    (["a.png", "b.png"], [-1.0, 1.0], "negative"),
    (["a.png", "b.png"], [0.0, math.nan], "have no times"),
    (["a.png", "b.png"], None, "have no times"),
    (["a.png", ""], [0.0, 1.0], "have no paths"),
    ("a.png", [0.0, 1.0], "have no paths"),
]


@pytest.mark.parametrize(("paths", "times_s", "reason"), FAULTS)
def test_frames_that_are_none_are_named_with_a_remedy(paths, times_s, reason):
    problems = problems_of(Pair("1", "A claim.", (Frames(paths, times_s),)))
    assert len(problems) == 1
    assert reason in problems[0]
    assert "; " in problems[0]
    with pytest.raises(ModelInputError, match="frames"):
        as_evidence({"frames": paths, "times_s": times_s})


def test_the_last_frame_ends_where_it_is_said_or_is_shown_as_long_as_the_others():
    assert Frames(["a", "b", "c"], [1, 2, 4]).until_s == 5.5
    assert Frames(["a", "b"], [1, 2], 9.0).until_s == 9.0
    assert problems_of(Pair("1", "A claim.", (Frames(["a", "b"], [1, 2], 2.0),)))


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_rows_of_frames_are_stored_and_read_back(tmp_path: Path, name: str):
    pairs = [
        Pair("1", "A claim.", (Frames((Path("a.png"), "b.png"), [0, 0.5]),), "supported"),
        Pair("2", "A claim.", (Image("a.png"), Frames(["a.png", "b.png"], [0, 0.5], 2.0)), "refuted"),
    ]
    write_pairs(tmp_path / name, pairs)
    assert read_pairs(tmp_path / name) == pairs
    piece = evidence_to_dict(pairs[0].evidence[0])
    assert json.loads(json.dumps(piece)) == piece
    assert evidence_from_dict(piece) == pairs[0].evidence[0]
    assert len({pair.evidence for pair in read_pairs(tmp_path / name)}) == 2, "evidence is hashed and compared"


def test_plain_rows_name_frames_and_their_times(tmp_path: Path):
    expected = Frames(["a.png", "b.png"], [0.0, 0.5])
    row = {"claim": "A claim.", "frames": ["a.png", "b.png"], "times_s": [0.0, 0.5]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, row)
        writer.writeheader()
        writer.writerow({name: value if isinstance(value, str) else json.dumps(value) for name, value in row.items()})
    for file in ("rows.jsonl", "rows.csv"):
        (pair,) = read_claims(tmp_path / file).pairs
        assert pair.evidence == (expected,)
        assert pair.modality == "visual"
        assert pair.group == "a.png"
    assert as_pairs([row])[0].evidence == (expected,)
    bad = [{**row, "times_s": [0.5, 0.0]}, {**row, "times_s": None}, {**row, "frames": 3}]
    (tmp_path / "bad.jsonl").write_text("".join(json.dumps(each) + "\n" for each in bad))
    read = read_claims(tmp_path / "bad.jsonl")
    assert not read.pairs
    assert len(read.rejected) == 3


def test_frames_outside_the_media_root_are_refused_one_and_all(tmp_path: Path):
    row = {"claim": "A claim.", "frames": ["a.png", "../b.png"], "times_s": [0.0, 0.5]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    read = read_claims(tmp_path / "rows.jsonl", inside=tmp_path)
    assert not read.pairs
    assert "leaves the media root" in str(read.rejected[0])


def library(root: Path, max_pixels: int = 10**6) -> Library:
    sampling = FrameSampling(max_frames=4, min_pixels=28 * 28, max_pixels=56 * 56)
    return Library(str(root), str(root / "cache"), 1.0, sampling, 60.0, max_pixels)


def test_the_server_takes_frames_within_its_limits(tmp_path: Path):
    for i in range(3):
        Picture.new("RGB", (60, 40 if i < 2 else 50), (i, 0, 0)).save(tmp_path / f"{i}.png")
    given = {"kind": "frames", "paths": ["0.png", "1.png"], "times_s": [0.0, 0.5]}
    frames = evidence_from_dict(PIECE.validate_python(given).model_dump())
    assert isinstance(frames, Frames)
    assert frames == Frames(["0.png", "1.png"], [0.0, 0.5])
    prepare(library(tmp_path), (frames,))
    assert [time_s for time_s, _ in picture(library(tmp_path), frames)] == [0.0, 0.5]
    with pytest.raises(Exception, match=r"0\.png: image is too large, got 60 x 40 of at most 2000 pixels"):
        prepare(library(tmp_path, 2000), (frames,))
    with pytest.raises(Exception, match=r"2\.png: frames differ in size"):
        prepare(library(tmp_path), (Frames(["0.png", "2.png"], [0.0, 0.5]),))
    for change in ({"times_s": ["0", 1.0]}, {"paths": ["0.png"]}, {"paths": ["0.png"] * 5000}, {"fps": 2}):
        with pytest.raises(ValidationError):
            PIECE.validate_python(given | change)


def test_a_verifier_of_videos_takes_frames_and_a_view_of_videos_shows_them():
    frames, text = Frames(["a.png", "b.png"], [0, 1]), Passage("A text.")
    assert evidence_kinds((frames, text)) == ("passage", "video")
    assert View(kinds=("video",)).of((frames, text)) == (frames,)
    assert View(kinds=("passage",)).of((frames, text)) == (text,)
