"""Video-MMMU: three tracks of questions about one lecture fall into one group."""

import json
from collections import Counter
from pathlib import Path

import pytest

from proofreel.core.errors import ConfigError
from proofreel.core.pairs import VideoSegment, problems_of
from proofreel.data_prep.importers.base import Rejected, Row
from proofreel.data_prep.importers.videommmu import FOLDERS, TRACKS, VideoMMMUOptions, read

QUESTION = {
    "id": "dev_Art_Theory_3",
    "link_selected": "https://www.youtube.com/watch?v=U7YqCUd_ZfA&t=4s ",
    "question": "Which style?",
    "options": ["Cubism", "Fauvism", "cubism."],
    "answer": "B",
}
OPEN = {**QUESTION, "options": [], "answer": "12.97", "question_type": "open"}


def read_all(tmp_path: Path, content: object, options: VideoMMMUOptions | None = None, **more) -> list[Row | Rejected]:
    path = tmp_path / "a.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), encoding="utf-8")
    return list(read(path, options, **more))


def rows_of(items) -> list[Row]:
    return [item for item in items if isinstance(item, Row)]


def test_options_become_statements_about_the_whole_video(tmp_path):
    found = read_all(tmp_path, {"Comprehension": {"0": QUESTION}})
    rows = rows_of(found)
    assert [(r.pair.id, r.pair.label, r.pair.origin) for r in rows] == [
        ("video-mmmu/Comprehension/dev_Art_Theory_3/A", "refuted", "distractor"),
        ("video-mmmu/Comprehension/dev_Art_Theory_3/B", "supported", "annotated"),
    ]
    assert rows[1].pair.claim == 'The answer to the question "Which style?" is: Fauvism.'
    assert {r.pair.evidence for r in rows} == {(VideoSegment("Art/dev_Art_Theory_3.mp4"),)}
    assert {(r.pair.group, r.pair.role, r.pair.modality) for r in rows} == {("U7YqCUd_ZfA", "Comprehension", "mixed")}
    (repeated,) = [item for item in found if isinstance(item, Rejected)]
    assert (repeated.line, repeated.pairs, repeated.blocking) == (3, 1, False)


def test_an_open_answer_is_supported_only(tmp_path):
    (row,) = rows_of(read_all(tmp_path, {"Adaptation": {"0": OPEN}}))
    assert (row.pair.label, row.pair.claim[-6:]) == ("supported", "12.97.")
    several = {**OPEN, "answer": "['24/7', '3.429', '3.43]"}
    (row,) = rows_of(read_all(tmp_path, {"Adaptation": {"0": several}}))
    assert row.pair.meta["answers"] == ["24/7", "3.429", "3.43"]
    assert row.pair.claim.endswith("is: 24/7.")


def test_without_a_type_the_options_decide(tmp_path):
    found = read_all(tmp_path, {"Adaptation": {"0": {**QUESTION, "question_type": None}}})
    assert Counter(r.pair.label for r in rows_of(found)) == {"supported": 1, "refuted": 1}


def test_lost_backslashes_come_back_and_line_feeds_stay(tmp_path):
    broken = {**OPEN, "question": "Is\n1. $\frac{1}{2}$ \times 2 right?", "answer": "\right)"}
    (row,) = rows_of(read_all(tmp_path, {"Adaptation": {"0": broken}}))
    assert row.pair.claim == r'The answer to the question "Is 1. $\frac{1}{2}$ \times 2 right?" is: \right).'


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"answer": "D"}, "names no option"),
        ({"answer": None}, "answer must be"),
        ({"options": []}, "do not fit the question_type"),
        ({"question_type": "open"}, "do not fit the question_type"),
        ({"question_type": "essay"}, "question_type is unknown"),
        ({"options": ["x", 3]}, "options must be"),
        ({"options": None}, "options must be"),
        ({"id": "dev_Cookery_3"}, "no known subject"),
        ({"id": "x"}, "no known subject"),
        ({"link_selected": None}, "link_selected must be"),
    ],
)
def test_a_damaged_question_is_one_rejection_and_hides_no_other(tmp_path, change, reason):
    found = read_all(tmp_path, {"Perception": {"0": {**QUESTION, **change}, "1": OPEN, "2": None}})
    rejected = [item for item in found if isinstance(item, Rejected)]
    assert [reason in rejected[0].reason, "must be an object" in rejected[1].reason] == [True, True]
    assert rejected[0].line == 3
    assert len(rows_of(found)) == len(rejected) - 1 == 1


def test_the_folders_are_a_choice(tmp_path):
    def path(folders):
        (row,) = rows_of(read_all(tmp_path, {"Adaptation": {"0": OPEN}}, VideoMMMUOptions(folders, ".webm")))
        return row.pair.evidence[0].path  # type: ignore[union-attr]

    assert path("subject") == "Art_Theory/dev_Art_Theory_3.webm"
    assert path("none") == "dev_Art_Theory_3.webm"
    with pytest.raises(ConfigError, match="folders: unknown"):
        path("topic")
    assert len({subject for subjects in FOLDERS.values() for subject in subjects.split()}) == 30


def test_several_tracks_may_share_a_file_and_no_key_is_skipped(tmp_path):
    found = read_all(tmp_path, {"Perception": {"0": OPEN}, "extra": {}, "Adaptation": {"0": OPEN}})
    assert [r.pair.role for r in rows_of(found)] == ["Perception", "Adaptation"]
    assert [r.kind for r in found if isinstance(r, Rejected)] == ["track is unknown"]


@pytest.mark.parametrize("text", ['{"Adaptation": {"0": {"id": "a"', '{"adaptation": {}}', "[]", '{"x": {"y"'])
def test_truncated_and_foreign_files_are_reported_once(tmp_path, text):
    (rejected,) = read_all(tmp_path, text)
    assert isinstance(rejected, Rejected)
    assert rejected.line == 1


def test_the_real_tracks_are_read_and_share_their_groups(shared_data):
    groups = {}
    for track in TRACKS:
        found = list(read(shared_data / "video-mmmu" / f"{track.lower()}_video.subset.json"))
        rows = rows_of(found)
        assert not [p for r in rows for p in problems_of(r.pair)]
        assert len({r.pair.id for r in rows}) == len(rows)
        assert Counter(r.pair.label for r in rows)["supported"] == 19
        assert all(not r.blocking for r in found if isinstance(r, Rejected))
        groups[track] = {(r.pair.meta["question_id"], r.pair.group) for r in rows}
    assert groups["Perception"] == groups["Comprehension"] == groups["Adaptation"]
