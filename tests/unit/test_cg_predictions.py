"""CG-Bench's scores from files: both conventions, failures bounded, pairs of models, the two-step judge."""

import json
import math

import pytest

from proofreel.core.errors import ConfigError, RowError
from proofreel.data_prep.language.answers import Completion
from proofreel.eval.scores.cg_predictions import (
    CluePrediction,
    ClueQuestion,
    cgbench_differences,
    cgbench_scores,
    judge_open_answers,
    parse_first_step,
    read_predictions_of,
    read_questions,
)
from proofreel.eval.scores.cgbench import GroundedAnswer, clue_recovery_rate, grounding_scores
from proofreel.eval.scores.judging import by_labels

QUESTIONS = [
    ClueQuestion("1", "v1", "Which colour?", "White", "E", ((8.0, 11.0),)),
    ClueQuestion("2", "v2", "Who speaks?", "The girl", "A", ((339.0, 342.0), (338.0, 340.0))),  # they overlap
    ClueQuestion("3", "v3", "How many?", "Three", "B", ((0.0, 10.0),)),
]
GOOD = [
    CluePrediction("1", "E", "E", ((8.0, 11.0),), open_correct=True),
    CluePrediction("2", "B", "A", ((338.0, 342.0),), open_correct=False),
    CluePrediction("3", "B", "A", ((5.0, 15.0),), open_correct=True),
]


def values(result):
    return {name: score.value for name, score in result.scores.items()}


@pytest.mark.parametrize("convention", ["paper", "code"])
def test_scores_are_those_of_the_formulas(convention):
    got = values(cgbench_scores(QUESTIONS, GOOD, convention, n_draws=20))
    right = [True, False, True]
    answers = [
        GroundedAnswer(p.intervals, q.clue_intervals, ok) for p, q, ok in zip(GOOD, QUESTIONS, right, strict=True)
    ]
    expected = grounding_scores(answers, convention)
    assert got["miou"] == pytest.approx(expected.miou)
    assert got["recall_at_iou"] == pytest.approx(expected.recall)
    assert got["accuracy_at_iou"] == pytest.approx(expected.accuracy)
    assert got["long_accuracy"] == got["clue_accuracy"] == got["open_accuracy"] == pytest.approx(2 / 3)
    assert got["crr"] == pytest.approx(clue_recovery_rate(2 / 3, 2 / 3))


def test_the_formula_counts_overlapping_clues_twice_and_the_code_once():
    # Clues of 3 s and 2 s that share 1 s, of 4 s named: (3 + 2) / (5 + 4 - 5) by formula (1), 4 / 4 by the code.
    only = QUESTIONS[1:2], GOOD[1:2]
    assert values(cgbench_scores(*only, "paper", n_draws=2))["miou"] == pytest.approx(5 / 4)
    assert values(cgbench_scores(*only, "code", n_draws=2))["miou"] == pytest.approx(1.0)


def test_unreadable_is_wrong_in_the_paper_and_left_out_in_the_code_and_failed_is_bounded_in_both():
    unreadable = [*GOOD[:2], CluePrediction("3", unreadable=("long", "clue", "intervals", "open"))]
    assert values(cgbench_scores(QUESTIONS, unreadable, "paper", n_draws=2))["long_accuracy"] == pytest.approx(1 / 3)
    assert values(cgbench_scores(QUESTIONS, unreadable, "code", n_draws=2))["long_accuracy"] == pytest.approx(1 / 2)
    for convention in ("paper", "code"):
        for failed in (GOOD[:2], [*GOOD[:2], CluePrediction("3", failed=("long", "clue", "intervals", "open"))]):
            scores = cgbench_scores(QUESTIONS, failed, convention, n_draws=2).scores
            long, crr = scores["long_accuracy"], scores["crr"]
            assert math.isnan(long.value)
            assert (long.low, long.high, long.n, long.n_failed) == (pytest.approx(1 / 3), pytest.approx(2 / 3), 3, 1)
            assert (crr.low, crr.high) == (pytest.approx(1 / 3), pytest.approx(1.0))


def test_tasks_that_were_not_asked_have_no_score():
    result = cgbench_scores(QUESTIONS, [CluePrediction(q.qid, "A") for q in QUESTIONS], n_draws=2)
    assert set(result.scores) == {"long_accuracy"}


def test_no_right_clue_answer_leaves_crr_undefined():
    rows = [CluePrediction(q.qid, q.right_answer, "Z") for q in QUESTIONS]
    assert math.isnan(cgbench_scores(QUESTIONS, rows, n_draws=5).scores["crr"].low)


def test_a_model_equals_itself_and_the_interval_is_over_videos():
    same = cgbench_differences(QUESTIONS, GOOD, GOOD, n_draws=20)
    assert all(score.value == 0.0 for score in same.values())
    interval = cgbench_scores(QUESTIONS, GOOD, n_draws=20).scores["miou"].interval
    assert interval is not None
    assert interval.n_groups == 3


def test_files_are_read_and_broken_lines_named(tmp_path, shared_data):
    questions = read_questions(shared_data / "cg-bench" / "cgbench_mini.8records.json")
    assert questions[5].clue_intervals == ((339.0, 342.0), (338.0, 340.0))
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"qid": "14", "long": "E", "intervals": [[8, 11]]}) + "\n", encoding="utf-8")
    assert cgbench_scores(questions, read_predictions_of(path), n_draws=2).scores["miou"].low == pytest.approx(1 / 8)
    path.write_text('{"qid": "14"}\n{"qid": "15", "lng": "E"}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"p\.jsonl:2"):
        read_predictions_of(path)
    with pytest.raises(RowError, match="not annotated"):
        cgbench_scores(QUESTIONS, [CluePrediction("9", "A")])
    with pytest.raises(RowError, match="no such task"):
        CluePrediction("1", failed=("lng",))


@pytest.mark.parametrize(
    ("text", "said"),
    [("yes", "yes"), ("YES.", "yes"), ("[YES]", "yes"), ("No", "no"), ('"Need visual clue."', "need visual clue")],
)
def test_the_first_step_is_read_whatever_its_punctuation(text, said):
    assert parse_first_step(text) == said


@pytest.mark.parametrize("text", ["", "yes and no", "maybe", "I cannot say yes"])
def test_anything_else_is_a_failure_that_quotes_the_text(text):
    with pytest.raises(ValueError, match="must be yes, no or need visual clue") as error:
        parse_first_step(text)
    assert repr(text) in str(error.value)


def test_the_verifier_is_asked_only_where_the_language_model_needs_the_video():
    said = {"White": "yes", "A boy": "No.", "Blonde girl": "need visual clue", "Who knows": "perhaps"}
    asked = []

    def model(messages):
        answer = messages[1]["content"].rpartition("answer: ")[2]
        return Completion(said[answer])

    def judge(pairs):
        asked.extend(pairs)
        return by_labels({pair.id: True for pair in pairs})(pairs)

    questions = [QUESTIONS[0], QUESTIONS[1], QUESTIONS[1], QUESTIONS[2]]
    opened = judge_open_answers(questions, list(said), model, judge)
    assert [each.judgment.supported for each in opened] == [True, False, True, None]
    assert "perhaps" in (opened[3].judgment.error or "")
    assert len(asked) == 1
    assert "Blonde girl" in asked[0].claim
    assert [(e.start_s, e.end_s) for e in asked[0].evidence] == [(338.0, 342.0)]
