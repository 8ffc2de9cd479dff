"""Spans of time: merging keeps the seconds, complements keep their distance, the input stays as it was."""

import copy
import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofreel.core.errors import RowError
from proofreel.core.spans import complement, draw_apart, is_seconds, merged, overlap_s, total_s, without

# Whole seconds, so that a set of seconds is the reference.
SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda s: [s[0], s[0] + s[1]]), max_size=8)


def seconds(spans):
    return {second for start, end in spans for second in range(int(start), int(end))}


@given(SPANS)
def test_merged_spans_are_the_same_seconds_sorted_and_apart(spans):
    before = copy.deepcopy(spans)
    found = merged(spans)
    assert spans == before
    assert seconds(found) == seconds(spans)
    assert all(one[1] < other[0] for one, other in itertools.pairwise(found))
    assert merged(found) == found == merged(reversed(spans))
    assert total_s(spans) == len(seconds(spans))


@given(SPANS, st.integers(1, 90), st.integers(0, 5))
def test_the_complement_is_every_second_that_keeps_the_gap(spans, duration, gap):
    near = {t for start, end in spans for t in range(start - gap, end + gap)}
    free = complement(spans, duration, gap)
    assert seconds(free) == set(range(duration)) - near
    assert all(0 <= start < end <= duration for start, end in free)


@given(SPANS, SPANS)
def test_overlap_is_symmetric_and_counts_shared_seconds_once(one, other):
    assert overlap_s(one, other) == overlap_s(other, one) == len(seconds(one) & seconds(other))
    assert seconds(without(one, other)) == seconds(one) - seconds(other)


@given(SPANS, st.lists(st.floats(0.1, 15), min_size=1, max_size=4), st.integers(0, 9))
def test_drawn_spans_have_the_lengths_asked_for_inside_the_free_spans_and_apart(free, lengths, seed):
    drawn = draw_apart(lengths, free, Random(seed))
    if drawn is None:
        assert total_s(free) < sum(lengths) or len(lengths) > 1 or max(b - a for a, b in merged(free)) < lengths[0]
        return
    assert sorted(b - a for a, b in drawn) == pytest.approx(sorted(lengths))
    assert overlap_s(drawn, free) == pytest.approx(sum(lengths)) == pytest.approx(total_s(drawn))
    assert all(any(a <= start and end <= b for a, b in merged(free)) for start, end in drawn)
    assert drawn == draw_apart(lengths, free, Random(seed))


def test_drawing_fills_a_span_of_just_the_length():
    assert draw_apart([3.0], [(1.0, 4.0)], Random(0)) == ((1.0, 4.0),)
    assert draw_apart([3.1], [(1.0, 4.0)], Random(0)) is None


@pytest.mark.parametrize("span", [(2, 1), (1, 1), (-1, 2), (float("nan"), 2), (0, float("inf")), (0, 10**400)])
def test_a_span_that_is_none_is_refused(span):
    with pytest.raises(RowError, match="span:"):
        merged([(0, 1), span])


def test_a_time_is_a_finite_number():
    assert all(is_seconds(value) for value in (0, 1.5, -2))
    assert not any(is_seconds(v) for v in (True, None, "1", float("nan"), float("-inf"), 10**400))


def test_spans_of_whole_seconds_are_drawn_on_whole_seconds():
    drawn = [
        span for seed in range(20) for span in draw_apart([3, 8.0], [(0.0, 90.0), (100.0, 300.0)], Random(seed)) or ()
    ]
    assert len(drawn) == 40
    assert all(time.is_integer() for span in drawn for time in span)
