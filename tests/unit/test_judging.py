"""What the papers' scores share: each question once, failures neither yes nor no, bounds around them."""

import math

import numpy as np
import pytest

from proofreel.core.pairs import Pair, Passage
from proofreel.eval.scores import bounded, by_labels

PAIRS = [Pair(str(i), f"Claim {i % 3}.", (Passage(f"Text {i % 2}."),)) for i in range(6)]


def test_a_failed_judgment_makes_a_score_no_number_with_bounds():
    score = bounded(np.mean, [True, False, None, True])
    assert math.isnan(score.value)
    assert (score.low, score.high, score.n, score.n_failed) == (0.5, 0.75, 4, 1)
    assert score.to_dict()["value"] is None


def test_a_score_that_no_failure_can_change_is_known():
    score = bounded(lambda yes: float(yes.any()), [True, None])
    assert (score.value, score.low, score.high, score.n_failed) == (1.0, 1.0, 1.0, 1)


def test_of_a_statistic_that_falls_with_every_yes_the_bounds_are_in_order():
    score = bounded(lambda yes: 1.0 - yes.mean(), [True, None])
    assert (score.low, score.high) == (0.0, 0.5)


def test_without_failures_the_value_is_its_own_bounds():
    score = bounded(np.mean, [True, False])
    assert (score.value, score.low, score.high) == (0.5, 0.5, 0.5)


def test_people_judge_what_they_have_labelled_and_the_rest_failed():
    judgments = by_labels({p.id: i % 2 == 0 for i, p in enumerate(PAIRS[:-1])} | {"0": None})(PAIRS)
    assert (judgments.n_questions, judgments.n_passes) == (6, 2)
    assert [judgments.of[p.id].supported for p in PAIRS] == [None, False, True, False, True, None]
    assert judgments.of["2"].p_supported == 1.0
    assert judgments.of["5"].error == "pair 5: no label"


@pytest.mark.parametrize("twice", [PAIRS[0], PAIRS[3]])
def test_equal_questions_count_once(twice):
    same = Pair("again", twice.claim, twice.evidence)
    assert by_labels({})([*PAIRS, same]).n_questions == 6
