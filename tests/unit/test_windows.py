"""Laws of windows and of the rules that make one margin of several: SciPy and plain formulas say what must come out."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import expit, logit

from proofreel.core.errors import ConfigError, ModelInputError, ProofreelError
from proofreel.models.inputs.windowing import MAX_WINDOWS, Windowing

RULES = [
    Windowing(2, 1),
    Windowing(2, 1, "noisy_or"),
    Windowing(2, 1, "mean_top_k", 1),
    Windowing(2, 1, "mean_top_k", 3),
]


def drawn_spans(n=400):
    rng = np.random.default_rng(0)
    for _ in range(n):
        length_s = rng.choice([0.5, 2.0, 8.0, rng.uniform(0.1, 9)])
        stride_s = length_s * rng.choice([1.0, 0.5, 0.1, rng.uniform(0.05, 1)])
        start_s = rng.choice([0.0, rng.uniform(0, 100)])
        yield Windowing(length_s, stride_s), start_s, start_s + rng.choice([0.01, length_s, 3 * length_s, 37.3])


def test_windows_cover_the_span_without_a_gap_and_end_with_it():
    for windowing, start_s, end_s in drawn_spans():
        windows = windowing.cut(start_s, end_s)
        assert windows[0][0] == start_s
        assert windows[-1][1] == end_s
        for (_, before_end_s), (next_start_s, _) in itertools.pairwise(windows):
            assert next_start_s <= before_end_s + 1e-5


def test_windows_have_one_length_and_strides_as_asked_but_for_the_last():
    for windowing, start_s, end_s in drawn_spans():
        windows = windowing.cut(start_s, end_s)
        if len(windows) == 1:
            assert end_s - start_s <= windowing.length_s + 1e-5
            continue
        assert [b - a for a, b in windows] == pytest.approx([windowing.length_s] * len(windows))
        steps = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(windows)]
        assert steps[:-1] == pytest.approx([windowing.stride_s] * (len(steps) - 1))
        assert 0 < steps[-1] <= windowing.stride_s * (1 + 1e-5)


def test_exact_multiples_make_no_extra_window():
    assert Windowing(2, 1).cut(0, 4) == ((0, 2), (1, 3), (2, 4))
    assert Windowing(2, 2).cut(1, 7) == ((1, 3), (3, 5), (5, 7))
    assert Windowing(0.3, 0.1).cut(0, 0.9)[-1] == (pytest.approx(0.6), 0.9)
    assert len(Windowing(0.3, 0.1).cut(0, 0.9)) == 7


def test_a_span_no_longer_than_a_window_is_itself():
    assert Windowing(2, 1).cut(3.5, 5.5) == ((3.5, 5.5),)
    assert Windowing(2, 1).cut(3.5, 3.6) == ((3.5, 3.6),)
    assert Windowing(2, 1).cut(0, 2.1) == ((0, 2), (pytest.approx(0.1), 2.1))


def test_a_stride_that_would_make_endless_windows_is_refused():
    with pytest.raises(ModelInputError, match="too many windows"):
        Windowing(1, 1e-6).cut(0, 2)
    assert len(Windowing(1, 1).cut(0, MAX_WINDOWS)) == MAX_WINDOWS


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.rule)
def test_one_window_is_itself_and_order_changes_nothing(rule):
    rng = np.random.default_rng(1)
    for n in (1, 2, 3, 7, 50):
        margins = rng.normal(0, 5, n).astype(np.float32).tolist()
        expected = rule.aggregate(margins)
        assert all(rule.aggregate(rng.permutation(margins).tolist()) == expected for _ in range(20))
        if n == 1:
            assert expected == margins[0]


def test_max_is_the_largest_and_the_others_keep_to_their_bounds():
    largest, noisy_or, top_1, top_3 = RULES
    rng = np.random.default_rng(2)
    for n in (2, 5, 40):
        margins = rng.normal(0, 4, n).tolist()
        assert largest.aggregate(margins) == top_1.aggregate(margins) == max(margins)
        assert noisy_or.aggregate(margins) >= max(margins)  # any window may be the one
        assert top_3.aggregate(margins) == pytest.approx(np.mean(sorted(margins)[-3:]))
        assert min(margins) <= top_3.aggregate(margins) <= max(margins)


def test_noisy_or_is_the_chance_that_one_of_independent_windows_supports():
    rule = RULES[1]
    rng = np.random.default_rng(3)
    for n in (2, 3, 10):
        margins = rng.normal(-1, 2, n)
        assert rule.aggregate(margins.tolist()) == pytest.approx(logit(1 - np.prod(1 - expit(margins))), rel=1e-9)
    assert expit(rule.aggregate([0.0, 0.0])) == pytest.approx(0.75)


def test_noisy_or_neither_overflows_nor_rounds_away_what_is_rare():
    rule = RULES[1]
    assert rule.aggregate([700.0, 800.0]) == pytest.approx(1500.0)
    assert rule.aggregate([-800.0, -800.0]) == pytest.approx(-800 + math.log(2))
    for edge in (-29.9, -30.0, -30.1):  # two formulas meet at -30
        assert rule.aggregate([edge, edge]) == pytest.approx(edge + math.log(2), abs=1e-9)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.rule)
def test_more_support_anywhere_never_lowers_the_margin(rule):
    rng = np.random.default_rng(4)
    for _ in range(50):
        margins = rng.normal(0, 3, 6)
        raised = margins + rng.uniform(0, 2, 6) * (rng.random(6) < 0.3)
        assert rule.aggregate(raised.tolist()) >= rule.aggregate(margins.tolist()) - 1e-12


@pytest.mark.parametrize("margins", [[], [math.nan], [1.0, math.nan]])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.rule)
def test_nothing_and_failed_windows_have_no_margin(rule, margins):
    with pytest.raises(ModelInputError, match="margin of every window"):
        rule.aggregate(margins)


@pytest.mark.parametrize(
    ("text", "windowing"),
    [
        ("max:8:4", Windowing(8, 4)),
        ("noisy_or:2:0.25", Windowing(2, 0.25, "noisy_or")),
        ("mean_top_k:10:10:3", Windowing(10, 10, "mean_top_k", 3)),
        ("max:0.1:0.1", Windowing(0.1, 0.1)),
    ],
)
def test_a_rule_is_written_and_read_back(text, windowing):
    assert windowing.rule == text
    assert Windowing.parse(text) == windowing


NO_RULES = """|max|max:8|max:8:4:2|mean_top_k:8:4|median:8:4|max:a:4|max:nan:4|max:inf:4|max:2:3|max:2:0|max:-2:-3|
mean_top_k:8:4:0|mean_top_k:8:4:1.5"""


@pytest.mark.parametrize("text", [text.strip() for text in NO_RULES.split("|")])
def test_other_words_and_windows_with_gaps_are_refused(text):
    with pytest.raises(ConfigError, match="windowing"):
        Windowing.parse(text)


def test_k_belongs_to_the_mean_alone():
    with pytest.raises(ProofreelError, match="top_k"):
        Windowing(2, 1, "max", 3)
