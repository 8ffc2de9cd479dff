"""Laws of CG-Bench's grounding scores, against brute force over seconds and pairs, and the paper's own tables."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

from proofreel.core.errors import RowError
from proofreel.eval.scores.cgbench import GroundedAnswer, clue_recovery_rate, grounding_scores, tiou_code, tiou_paper

# CG-Bench Table 3: clue-acc., long-acc., CRR, all in percent.
TABLE_3 = {
    "Human (full-video)": (92.2, 90.3, 97.9),
    "Random": (14.2, 14.2, 100.0),
    "Video-LLAVA": (34.2, 16.2, 47.4),
    "VideoLLAMA": (36.8, 18.4, 50.0),
    "Qwen2-VL": (56.2, 41.3, 73.5),
    "InternVL2": (58.5, 42.2, 72.1),
    "GPT-4o": (58.3, 45.2, 77.5),
    "Gemini-1.5-Pro": (50.1, 37.2, 74.3),
    "Claude3.5-Sonnet": (56.2, 40.5, 72.1),
}


def random_intervals(rng, n, top=20, apart=False):
    """Whole-second intervals in [0, top], overlapping at will or never."""
    if apart:
        cuts = sorted(rng.choice(top + 1, size=2 * n, replace=False).tolist())
        return [list(cuts[i : i + 2]) for i in range(0, 2 * n, 2)]
    return [sorted(rng.choice(top + 1, size=2, replace=False).tolist()) for _ in range(n)]


def seconds_of(intervals):
    return set(itertools.chain.from_iterable(range(int(a), int(b)) for a, b in intervals))


def test_tiou_of_the_code_is_the_share_of_seconds_counted_one_by_one():
    rng = np.random.default_rng(0)
    for _ in range(300):
        one, other = random_intervals(rng, int(rng.integers(0, 5))), random_intervals(rng, int(rng.integers(0, 5)))
        either = seconds_of(one) | seconds_of(other)
        expected = len(seconds_of(one) & seconds_of(other)) / len(either) if either else 0.0
        assert tiou_code(one, other) == pytest.approx(expected, abs=1e-12)


def test_tiou_of_the_paper_is_its_sum_over_pairs_of_intervals():
    rng = np.random.default_rng(1)
    for _ in range(300):
        one, other = random_intervals(rng, int(rng.integers(1, 5))), random_intervals(rng, int(rng.integers(1, 5)))
        both = sum(max(0, min(b, d) - max(a, c)) for (a, b), (c, d) in itertools.product(other, one))
        either = sum(b - a for a, b in [*one, *other]) - both
        if either > 0:
            assert tiou_paper(one, other) == pytest.approx(both / either, abs=1e-12)
        else:
            assert math.isnan(tiou_paper(one, other))


def test_paper_and_code_agree_where_no_side_overlaps_itself():
    rng = np.random.default_rng(2)
    for _ in range(200):
        one, other = random_intervals(rng, 3, apart=True), random_intervals(rng, 2, apart=True)
        assert tiou_paper(one, other) == pytest.approx(tiou_code(one, other), abs=1e-12)


@pytest.mark.parametrize(
    ("predicted", "reference", "paper", "code"),
    [
        ([[0, 10]], [[5, 15]], 1 / 3, 1 / 3),
        ([[0, 10]], [[0, 10]], 1.0, 1.0),
        ([], [[0, 10]], 0.0, 0.0),
        ([[0, 10]], [], 0.0, 0.0),
        ([], [], math.nan, 0.0),  # nothing by nothing: the code says 0
        ([[0, 5]], [[5, 10]], 0.0, 0.0),  # touching intervals share no second
        ([[0, 5], [5, 10]], [[0, 10]], 1.0, 1.0),  # and cover what they cover
        ([[0, 10], [0, 10]], [[0, 10]], 2.0, 1.0),  # a duplicate: the formula goes above 1
        ([[0, 10], [0, 10]], [[0, 10], [0, 10]], math.nan, 1.0),  # 40 / (40 - 40)
        ([[0, 10], [5, 15]], [[5, 10]], 10 / 15, 5 / 15),  # an overlap of the prediction with itself counts twice
        ([[3, 3]], [[0, 10]], 0.0, 0.0),  # a moment has no seconds
        ([[3, 3]], [[3, 3]], math.nan, 0.0),
        ([[0.5, 2.0]], [[1.0, 2.5]], 0.5, 0.5),
    ],
)
def test_worked_examples(predicted, reference, paper, code):
    assert tiou_paper(predicted, reference) == pytest.approx(paper, nan_ok=True)
    assert tiou_code(predicted, reference) == pytest.approx(code)


@pytest.mark.parametrize("tiou", [tiou_paper, tiou_code])
@pytest.mark.parametrize(
    "broken", [[[5, 3]], [[math.nan, 3]], [[0, math.inf]], [[math.inf, math.inf]], [[-1, 3]], [[1, 2, 3]], [[1]]]
)
def test_broken_intervals_are_refused_on_either_side(tiou, broken):
    with pytest.raises(RowError):
        tiou(broken, [[0, 10]])
    with pytest.raises(RowError):
        tiou([[0, 10]], broken)


def test_a_tiou_on_the_threshold_passes_in_the_code_and_not_in_the_paper():
    on_the_edges = [GroundedAnswer([[0, k]], [[0, 10]], is_correct=True) for k in (1, 2, 3, 4, 5)]
    paper, code = grounding_scores(on_the_edges, "paper"), grounding_scores(on_the_edges, "code")
    assert paper.recall_at == {0.1: 0.8, 0.2: 0.6, 0.3: 0.4, 0.4: 0.2, 0.5: 0.0}
    assert code.recall_at == {0.1: 1.0, 0.2: 0.8, 0.3: 0.6, 0.4: 0.4, 0.5: 0.2}
    assert (paper.recall, code.recall) == (pytest.approx(0.4), pytest.approx(0.6))
    assert paper.accuracy_at == paper.recall_at
    assert paper.miou == code.miou == pytest.approx(0.3)


def test_a_threshold_of_0_asks_for_some_overlap_in_the_paper_and_for_nothing_in_the_code():
    answers = [GroundedAnswer([[0, 1]], [[5, 6]], is_correct=True), GroundedAnswer([[5, 6]], [[5, 9]], is_correct=True)]
    assert grounding_scores(answers, "paper", thresholds=(0.0,)).accuracy == 0.5
    assert grounding_scores(answers, "code", thresholds=(0.0,)).accuracy == 1.0


def test_an_unreadable_answer_is_wrong_in_the_paper_and_left_out_in_the_code():
    answers = [GroundedAnswer([[0, 10]], [[0, 10]], True), GroundedAnswer(None, [[0, 10]], True)]
    paper, code = grounding_scores(answers, "paper"), grounding_scores(answers, "code")
    assert (paper.miou, paper.recall, paper.accuracy, paper.n, paper.n_unread) == (0.5, 0.5, 0.5, 2, 1)
    assert (code.miou, code.recall, code.accuracy, code.n, code.n_unread) == (1.0, 1.0, 1.0, 1, 1)
    assert paper.n_undefined == code.n_undefined == 0


def test_a_failed_question_is_no_wrong_answer():
    answered = [GroundedAnswer([[0, 10]], [[0, 10]], True)]
    failed = GroundedAnswer(None, [[0, 10]], None, failed=True)
    for convention in ("paper", "code"):
        scores = grounding_scores([*answered, failed], convention)
        assert (scores.miou, scores.accuracy, scores.n, scores.n_failed, scores.n_unread) == (1.0, 1.0, 1, 1, 0)


def test_accuracy_needs_the_right_option_and_rests_on_answers_whose_option_is_known():
    hit = [[0, 10]]
    answers = [GroundedAnswer(hit, hit, True), GroundedAnswer(hit, hit, False), GroundedAnswer(hit, hit, None)]
    scores = grounding_scores(answers, "code")
    assert (scores.recall, scores.accuracy, scores.n, scores.n_with_option) == (1.0, 0.5, 3, 2)


def test_no_answer_gives_nan_and_a_single_one_gives_its_own_tiou():
    for convention in ("paper", "code"):
        nothing = grounding_scores([], convention)
        assert all(math.isnan(x) for x in (nothing.miou, nothing.recall, nothing.accuracy))
        assert nothing.n == 0
        assert grounding_scores([GroundedAnswer([[0, 5]], [[0, 20]])], convention).miou == 0.25
    undefined = grounding_scores([GroundedAnswer([], [])], "paper")
    assert math.isnan(undefined.miou)
    assert (undefined.n, undefined.n_undefined) == (0, 1)


def test_unknown_conventions_and_no_thresholds_are_refused():
    with pytest.raises(RowError, match="paper or code"):
        grounding_scores([], "mine")  # type: ignore[arg-type]
    with pytest.raises(RowError):
        grounding_scores([], "paper", thresholds=())


@pytest.mark.parametrize("model", TABLE_3)
def test_clue_recovery_rate_gives_the_papers_table(model):
    clue, long, printed = TABLE_3[model]
    assert 100 * clue_recovery_rate(long / 100, clue / 100) == pytest.approx(printed, abs=0.051)


def test_clue_recovery_rate_is_at_most_1_and_nan_without_any_right_clue_answer():
    assert clue_recovery_rate(0.6, 0.5) == 1.0
    assert clue_recovery_rate(0.0, 0.5) == 0.0
    assert math.isnan(clue_recovery_rate(0.4, 0.0))
    for bad in (math.nan, 45.2, -0.1):
        with pytest.raises(RowError, match="percentages"):
            clue_recovery_rate(bad, 0.5)


def test_published_annotations_are_scored_as_seconds_and_are_not_changed(shared_data: Path):
    records = json.loads((shared_data / "cg-bench/cgbench_mini.8records.json").read_text(encoding="utf-8"))
    before = json.dumps(records)
    overlapping = 0
    for record in records:
        clues = record["clue_intervals"]
        assert tiou_code(clues, clues) == pytest.approx(1.0)
        whole = tiou_code([[0, record["duration"]]], clues)
        tenths = {k for a, b in clues for k in range(round(a * 10), round(b * 10))}
        assert whole == pytest.approx(len(tenths) / (10 * record["duration"]), rel=0.02)
        overlapping += tiou_paper(clues, clues) != pytest.approx(1.0)
    assert overlapping == 1  # one of the eight was chosen because its intervals overlap
    answers = [GroundedAnswer(r["clue_intervals"], r["clue_intervals"], True) for r in records]
    assert grounding_scores(answers, "code").recall == 1.0
    assert json.dumps(records) == before
