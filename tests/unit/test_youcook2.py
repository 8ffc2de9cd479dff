"""YouCook2: every described segment is one supported claim."""

import json
from collections import Counter
from pathlib import Path

import pytest

from proofreel.core.pairs import VideoSegment, problems_of
from proofreel.data_prep.importers.base import Rejected, Row
from proofreel.data_prep.importers.youcook2 import YouCook2Options, read

SEGMENT = {"segment": [90, 102], "id": 0, "sentence": "spread  margarine on bread "}
VIDEO = {"duration": 241.62, "subset": "training", "recipe_type": "113", "annotations": [SEGMENT], "video_url": "x"}


def read_all(tmp_path: Path, videos: object, options: YouCook2Options | None = None) -> list[Row | Rejected]:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"database": videos}, indent=1), encoding="utf-8")
    return list(read(path, options))


def test_a_segment_becomes_a_supported_claim(tmp_path):
    (row,) = read_all(tmp_path, {"vid": VIDEO})
    assert isinstance(row, Row)
    pair = row.pair
    assert (pair.id, pair.claim, pair.label) == ("youcook2/vid/0", "Spread margarine on bread.", "supported")
    assert pair.evidence == (VideoSegment("vid.mp4", 90, 102),)
    assert (pair.group, pair.role, pair.context, pair.split) == ("vid", "caption", None, None)
    assert pair.meta == {"recipe_type": "113", "subset": "training"}
    assert row.line == 3


def test_subsets_fix_the_split_only_when_asked(tmp_path):
    videos = {"a": VIDEO, "b": {**VIDEO, "subset": "validation"}}
    found = read_all(tmp_path, videos, YouCook2Options(use_subsets=True, extension=".webm"))
    assert [row.pair.split for row in found if isinstance(row, Row)] == ["train", "test"]
    assert next(row.pair.evidence[0] for row in found if isinstance(row, Row)) == VideoSegment("a.webm", 90, 102)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"segment": [102, 90]}, "reversed"),
        ({"segment": [-1, 90]}, "negative"),
        ({"segment": [90, 300]}, "ends after the video"),
        ({"segment": [90, float("nan")]}, "finite"),
        ({"segment": [90, True]}, "finite"),
        ({"segment": None}, "finite"),
        ({"segment": [1, 2, 3]}, "finite"),
        ({"sentence": None}, "sentence must be"),
        ({"sentence": "  "}, "sentence must be"),
        ({"id": None}, "id must be"),
    ],
)
def test_a_damaged_segment_is_one_rejection_and_hides_no_other(tmp_path, change, reason):
    bad = {**SEGMENT, "id": 1, **change}
    rejected, row = read_all(tmp_path, {"vid": {**VIDEO, "annotations": [bad, SEGMENT]}})
    assert isinstance(rejected, Rejected)
    assert isinstance(row, Row)
    assert reason in rejected.reason
    assert (rejected.line, rejected.id) == (3, "vid/annotations/0")


@pytest.mark.parametrize(
    ("video", "reason"),
    [
        (None, "no list of annotations"),
        ({**VIDEO, "annotations": {}}, "no list of annotations"),
        ({**VIDEO, "duration": None}, "duration must be"),
        ({**VIDEO, "subset": "dev"}, "subset is unknown"),
        ({**VIDEO, "subset": ["training"]}, "subset is unknown"),
        ({**VIDEO, "recipe_type": 113}, "recipe_type must be"),
        ({**VIDEO, "annotations": ["x"]}, "annotation must be an object"),
    ],
)
def test_a_damaged_video_is_one_rejection(tmp_path, video, reason):
    rejected, row = read_all(tmp_path, {"bad": video, "good": VIDEO})
    assert isinstance(rejected, Rejected)
    assert isinstance(row, Row)
    assert reason in rejected.reason


def test_truncated_and_foreign_files_are_reported(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("\ufeff" + json.dumps({"database": {"a": VIDEO, "b": VIDEO}})[:-40], encoding="utf-8")
    assert [type(item) for item in read(path)] == [Row, Rejected]
    path.write_text('{"videos": {}}', encoding="utf-8")
    assert [type(item) for item in read(path)] == [Rejected]


def test_the_real_segments_are_read(shared_data):
    path = shared_data / "youcook2" / "youcookii_annotations_trainval.40videos.json"
    found = list(read(path, YouCook2Options(use_subsets=True)))
    rows = [item for item in found if isinstance(item, Row)]
    assert len(found) == len(rows) == len({r.pair.id for r in rows}) == 296
    assert Counter(s for _, s in {(r.pair.group, r.pair.split) for r in rows}) == {"train": 25, "test": 15}
    assert not [p for r in rows for p in problems_of(r.pair)]
