"""CG-Bench: the answer holds on the clue, the distractors do not, and elsewhere in the video nobody knows."""

import copy
import json
from collections import Counter
from pathlib import Path

import pytest
from nightly import first_of

from proofreel.core.errors import ConfigError
from proofreel.core.pairs import VideoSegment, problems_of
from proofreel.core.spans import overlap_s
from proofreel.data_prep.importers.base import Rejected, Row
from proofreel.data_prep.importers.cgbench import CGBenchOptions, read

MISSING = object()
QUESTION = {
    "qid": 7,
    "video_uid": "vid",
    "question": "What colour is the car?",
    "answer": "Red",
    "choices": ["Blue", "Red", "Green"],
    "right_answer": "B",
    "clue_intervals": [[50, 60], [20, 30.5], [55, 70]],
    "domain": "Driving",
    "sub_category": "Entity Perception",
    "duration": 600,
}


def read_all(tmp_path: Path, *questions: object, options: CGBenchOptions | None = None, **more) -> list[Row | Rejected]:
    path = tmp_path / "q.json"
    path.write_text(json.dumps(questions, indent=1), encoding="utf-8")
    return list(read(path, options, **more))


def rows_of(items) -> list[Row]:
    return [item for item in items if isinstance(item, Row)]


def rejected_of(items) -> list[Rejected]:
    return [item for item in items if isinstance(item, Rejected)]


def spans_of(row: Row) -> list[tuple[float, float]]:
    found = [(e.start_s, e.end_s) for e in row.pair.evidence if isinstance(e, VideoSegment)]
    return [(start_s, end_s) for start_s, end_s in found if end_s is not None]


def test_a_question_becomes_one_statement_per_choice_on_all_its_clues(tmp_path):
    before = copy.deepcopy(QUESTION)
    found = read_all(tmp_path, QUESTION)
    assert before == QUESTION
    assert [(r.pair.id, r.pair.label, r.pair.origin) for r in rows_of(found)] == [
        ("cgbench/7/A", "refuted", "distractor"),
        ("cgbench/7/B", "supported", "annotated"),
        ("cgbench/7/C", "refuted", "distractor"),
        ("cgbench/7/B/non_clue/0", "not_enough", "non_clue"),
    ]
    on_clues = rows_of(found)[:3]
    assert all(spans_of(row) == [(20, 30.5), (50, 70)] for row in on_clues)
    assert {r.pair.evidence[0].path for r in rows_of(found)} == {"vid.mp4"}  # type: ignore[union-attr]
    assert {(r.pair.group, r.pair.role, r.pair.context) for r in rows_of(found)} == {("vid", "Entity Perception", None)}
    assert on_clues[1].pair.claim == 'The answer to the question "What colour is the car?" is: Red.'
    assert len(found) == 4


@pytest.mark.parametrize("seed", first_of(range(5)))
def test_spans_without_a_clue_look_like_clues_and_keep_their_distance(tmp_path, seed):
    options = CGBenchOptions(non_clue_per_question=6, gap_s=15.0, seed=seed)
    drawn = [r for r in rows_of(read_all(tmp_path, QUESTION, options=options)) if r.pair.origin == "non_clue"]
    assert len(drawn) == 6
    for row in drawn:
        assert sorted(end - start for start, end in spans_of(row)) == pytest.approx([10.5, 20.0])
        assert all(start >= 0 and end <= 599 for start, end in spans_of(row))
        assert not overlap_s(spans_of(row), [(5, 45.5), (35, 85)])
    assert not any(overlap_s(spans_of(a), spans_of(b)) for i, a in enumerate(drawn) for b in drawn[:i])


def test_drawn_spans_depend_on_seed_and_question_only(tmp_path):
    def drawn(*questions, seed=0):
        return {r.pair.id: r.pair for r in rows_of(read_all(tmp_path, *questions, options=CGBenchOptions(seed=seed)))}

    other = {**QUESTION, "qid": 8}
    one, name = drawn(QUESTION, other), "cgbench/7/B/non_clue/0"
    assert one == drawn(QUESTION, other) == drawn(other, QUESTION)
    assert one[name].evidence not in (drawn(QUESTION, seed=1)[name].evidence, one["cgbench/8/B/non_clue/0"].evidence)


def test_clues_may_be_asked_one_by_one(tmp_path):
    found = rows_of(read_all(tmp_path, QUESTION, options=CGBenchOptions(clues="each")))
    assert Counter(r.pair.origin for r in found) == {"annotated": 2, "distractor": 4, "non_clue": 2}
    assert all(len(r.pair.evidence) == 1 for r in found)
    assert len({r.pair.id for r in found}) == len(found)


def test_a_video_without_room_is_reported_and_stops_nothing(tmp_path):
    found = read_all(tmp_path, {**QUESTION, "clue_intervals": [[0, 590]]})
    (rejected,) = rejected_of(found)
    assert (rejected.pairs, rejected.blocking, rejected.kind) == (1, False, "no room for spans without a clue")
    assert len(rows_of(found)) == 3


def test_repeated_choices_are_kept_once_and_reported(tmp_path):
    choices = ["red.", "Red", "Blue", "blue "]
    found = read_all(tmp_path, {**QUESTION, "choices": choices}, options=CGBenchOptions(non_clue_per_question=0))
    assert [(r.pair.id, r.pair.label) for r in rows_of(found)] == [
        ("cgbench/7/B", "supported"),
        ("cgbench/7/C", "refuted"),
    ]
    assert [(r.pairs, r.blocking) for r in rejected_of(found)] == [(1, False), (1, False)]


def test_a_model_may_write_the_claims_and_its_failure_is_no_row(tmp_path):
    found = rows_of(read_all(tmp_path, QUESTION, rewrite=lambda asked: [f"It is {a}." for _, a in asked]))
    assert [r.pair.claim for r in found] == ["It is Blue.", "It is Red.", "It is Green.", "It is Red."]
    (rejected,) = read_all(tmp_path, QUESTION, rewrite=lambda asked: ["It is a car."] * len(asked))
    assert isinstance(rejected, Rejected)
    assert "lost the answer" in rejected.reason
    assert len(rows_of(read_all(tmp_path, QUESTION, rewrite=lambda asked: [""] * len(asked), fall_back=True))) == 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"right_answer": "A"}, "another choice than answer"),
        ({"right_answer": "D"}, "names no option"),
        ({"choices": [str(n) for n in range(27)]}, "more options than letters"),
        ({"choices": []}, "names no option"),
        ({"choices": ["Red", None]}, "choices must be"),
        ({"clue_intervals": []}, "clue_intervals must be"),
        ({"clue_intervals": [[1]]}, "clue_intervals must be"),
        ({"clue_intervals": [[1, float("nan")]]}, "clue_intervals must be"),
        ({"clue_intervals": [[1, "2"]]}, "clue_intervals must be"),
        ({"clue_intervals": [[9, 3]]}, "reversed"),
        ({"clue_intervals": [[-2, 3]]}, "negative"),
        ({"clue_intervals": [[590, 601]]}, "ends after the video"),
        ({"duration": float("inf")}, "duration must be"),
        ({"duration": True}, "duration must be"),
        ({"qid": None}, "qid must be"),
        ({"qid": "a\ud800"}, "qid holds control or surrogate characters"),
        ({"qid": "a\0b"}, "qid holds control or surrogate characters"),
        ({"right_answer": MISSING}, "names no option"),
        ({"question": " "}, "question must be"),
        ({"video_uid": 3}, "video_uid must be"),
    ],
)
def test_a_damaged_question_is_one_rejection_and_hides_no_other(tmp_path, change, reason):
    damaged = {key: value for key, value in {**QUESTION, **change}.items() if value is not MISSING}
    found = read_all(tmp_path, damaged, {**QUESTION, "qid": 8})
    (rejected,) = rejected_of(found)
    assert reason in rejected.reason
    assert (rejected.line, rejected.blocking) == (2, True)
    assert {r.record for r in rows_of(found)} == {"cgbench/8"}


def test_truncated_files_and_wrong_records_are_reported(tmp_path):
    path = tmp_path / "q.json"
    path.write_text("\ufeff" + json.dumps([QUESTION, 3, QUESTION])[:-30], encoding="utf-8")
    found = list(read(path))
    assert [r.kind for r in rejected_of(found)] == ["annotation must be an object", "not valid JSON"]
    assert len(rows_of(found)) == 4


def test_measured_durations_replace_the_rounded_ones(tmp_path):
    options = CGBenchOptions(durations="meta.json")
    meta = tmp_path / "meta.json"
    meta.write_text('{"vid": {"duration": 69.9}}', encoding="utf-8")
    (rejected,) = read_all(tmp_path, QUESTION, options=options)
    assert isinstance(rejected, Rejected)
    assert "ends after the video, got 70 of 69.9" in rejected.reason
    meta.write_text('{"vid": {"duration": null}, "other": {"duration": 5.0}}', encoding="utf-8")
    reasons = [r.reason for r in rejected_of(read_all(tmp_path, QUESTION, options=options))]
    assert ["must be a number of seconds" in reasons[0], "video has no duration" in reasons[1]] == [True, True]


@pytest.mark.parametrize(
    "options",
    [
        CGBenchOptions(clues="all"),
        CGBenchOptions(gap_s=-1),
        CGBenchOptions(non_clue_per_question=-1),
        CGBenchOptions(durations="none.json"),
    ],
)
def test_options_out_of_range_are_refused(tmp_path, options):
    with pytest.raises(ConfigError):
        read_all(tmp_path, QUESTION, options=options)


@pytest.mark.parametrize("durations", ["", "video_meta_info.8records.json"])
def test_the_real_questions_are_read(shared_data, durations):
    path = shared_data / "cg-bench" / "cgbench_mini.8records.json"
    found = list(read(path, CGBenchOptions(durations=durations)))
    rows = rows_of(found)
    assert Counter(r.pair.origin for r in rows) == {"annotated": 8, "distractor": 44, "non_clue": 8}
    assert [(r.id, r.blocking) for r in rejected_of(found)] == [("cgbench/1312", False)]
    assert not [p for r in rows for p in problems_of(r.pair)]
    by_id = {r.pair.id: r for r in rows}
    assert spans_of(by_id["cgbench/586/A"]) == [(338, 342)]  # annotated as [339, 342], [338, 340]
    assert len(spans_of(by_id["cgbench/85/G"])) == 11
