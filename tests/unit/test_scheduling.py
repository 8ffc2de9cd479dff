"""Reading ahead and batching: in order, within bounds, whatever the threads do; nothing is left behind."""

import contextlib
import itertools
import random
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofreel.models.engine.batching import batch_by_length, read_ahead, read_threads


@settings(max_examples=20, deadline=None)
@given(n=st.integers(0, 12), threads=st.integers(1, 4), ahead=st.integers(1, 6), seed=st.integers(0, 99))
def test_results_come_in_order_whatever_the_time_each_takes(n, threads, ahead, seed):
    delays = random.Random(seed)

    def read(i):
        time.sleep(delays.random() / 500)
        return i * i

    assert list(read_ahead(read, range(n), threads, ahead)) == [i * i for i in range(n)]


@pytest.mark.parametrize(("cores", "processes", "threads"), [(1, 1, 2), (12, 1, 12), (12, 4, 3), (96, 1, 16)])
def test_as_many_are_read_at_once_as_this_process_has_cores(monkeypatch, cores, processes, threads):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)), raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    assert read_threads() == threads


@pytest.mark.parametrize(("threads", "ahead"), [(1, 1), (2, 4), (3, 2)])
def test_no_more_is_begun_than_the_bound_allows(threads, ahead):
    begun, at_once, most = itertools.count(), [], []
    n_begun = [0]

    def read(i):
        n_begun[0] = next(begun) + 1
        at_once.append(i)
        most.append(len(at_once))
        time.sleep(0.002)
        at_once.remove(i)
        return i

    for n_taken, _ in enumerate(read_ahead(read, itertools.count(), threads, ahead), 1):
        time.sleep(0.004)  # a slow consumer lets the threads run as far as they may
        assert n_begun[0] <= n_taken + ahead
        if n_taken == 10:
            break
    assert max(most) <= threads


def reading():
    """Threads that read ahead; other libraries' threads come and go as they like."""
    return [t for t in threading.enumerate() if t.name.startswith("read-ahead")]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_comes_in_its_turn_and_ends_the_threads(error):
    taken = []

    def read(i):
        if i == 3:
            raise error("three")
        return i

    with pytest.raises(error, match="three"):
        taken.extend(read_ahead(read, itertools.count()))
    assert taken == [0, 1, 2]
    assert not reading()


def test_closing_early_ends_the_threads_and_begins_nothing_more():
    begun = []
    with contextlib.closing(read_ahead(begun.append, itertools.count())) as results:
        next(results)
    n_begun = len(begun)
    time.sleep(0.01)
    assert not reading()
    assert len(begun) == n_begun <= 5


LENGTHS = st.tuples(st.integers(1, 3000), st.integers(1, 400))


@given(items=st.lists(st.one_of(LENGTHS, st.none()), max_size=60), budget=st.sampled_from([1, 500, 4096]))
def test_batches_hold_every_item_once_within_budget_and_with_little_padding(items, budget):
    numbered = list(enumerate(items))
    batches = list(batch_by_length(numbered, lambda item: item[1], budget))
    assert sorted(i for batch in batches for i, _ in batch) == list(range(len(items)))
    assert batches == list(batch_by_length(iter(numbered), lambda item: item[1], budget))
    for batch in batches:
        assert [i for i, _ in batch] == sorted(i for i, _ in batch)
        sizes = [size for _, size in batch if size is not None]
        if len(sizes) < len(batch) or len(batch) == 1:
            assert len(batch) == 1
            continue
        row = max(p for p, _ in sizes) + max(c for _, c in sizes)
        assert len(batch) * row <= budget
        assert all(p + c >= 0.7 * row for p, c in sizes)


def test_no_more_than_two_budgets_of_tokens_wait_for_company():
    taken, given_back = [0], [0]

    def items():
        for i in range(400):
            taken[0] += 1
            yield (50 + 37 * i % 900, 20)

    for batch in batch_by_length(items(), lambda item: item, 2000):
        given_back[0] += len(batch)
        assert (taken[0] - given_back[0]) * 70 <= 2 * 2000
    assert given_back[0] == 400


def test_equal_lengths_fill_the_budget():
    batches = list(batch_by_length([(90, 10)] * 25, lambda item: item, 1000))
    assert [len(b) for b in batches] == [10, 10, 5]
