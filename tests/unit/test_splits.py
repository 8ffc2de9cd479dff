"""Splits are by group, near the asked shares, repeatable, and never empty where they need not be."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofreel.core.errors import ConfigError
from proofreel.core.pairs import SPLITS, Split
from proofreel.data_prep.dataset.splits import assign_splits

SHARES: dict[Split, float] = {"train": 0.7, "validation": 0.1, "calibration": 0.1, "test": 0.1}
SIZES = st.dictionaries(st.text(min_size=1, max_size=4), st.integers(1, 30), min_size=4, max_size=25)


def filled(sizes: dict[str, int], splits: dict[str, Split]) -> dict[Split, int]:
    return {split: sum(sizes[g] for g in sizes if splits[g] == split) for split in SPLITS}


def miss(sizes: dict[str, int], splits: dict[str, Split], shares: dict[Split, float]) -> float:
    total = sum(sizes.values())
    return sum((rows - shares[split] * total) ** 2 for split, rows in filled(sizes, splits).items())


@settings(max_examples=60, deadline=None)
@given(sizes=SIZES, seed=st.integers(0, 5))
def test_every_group_gets_one_split_and_no_split_is_empty(sizes, seed):
    splits = assign_splits(sizes, SHARES, seed)
    assert set(splits) == set(sizes)
    assert set(splits.values()) == set(SPLITS)


@settings(max_examples=60, deadline=None)
@given(sizes=SIZES, seed=st.integers(0, 5))
def test_no_move_or_exchange_of_single_groups_brings_the_shares_nearer(sizes, seed):
    splits = assign_splits(sizes, SHARES, seed)
    best = miss(sizes, splits, SHARES) - 1e-6
    for group, split in itertools.product(sizes, SPLITS):
        moved: dict[str, Split] = {**splits, group: split}
        if set(moved.values()) == set(SPLITS):
            assert miss(sizes, moved, SHARES) >= best
    for a, b in itertools.combinations(sizes, 2):
        exchanged: dict[str, Split] = {**splits, a: splits[b], b: splits[a]}
        assert miss(sizes, exchanged, SHARES) >= best


def test_many_groups_come_within_one_percent_of_the_shares():
    sizes = {f"v{i}": 1 + i % 17 for i in range(400)}
    splits = assign_splits(sizes, SHARES, 3)
    total = sum(sizes.values())
    for split, rows in filled(sizes, splits).items():
        assert abs(rows / total - SHARES[split]) < 0.01


def test_the_order_of_groups_does_not_matter_and_the_seed_does():
    sizes = {f"v{i}": 1 + i % 5 for i in range(60)}
    backwards = dict(reversed(sizes.items()))
    assert assign_splits(sizes, SHARES, 1) == assign_splits(backwards, SHARES, 1)
    assert assign_splits(sizes, SHARES, 1) != assign_splits(sizes, SHARES, 2)


def test_a_seed_gives_the_same_splits_for_ever():
    sizes = {f"v{i}": i + 1 for i in range(8)}
    assert [SPLITS.index(split) for split in assign_splits(sizes, SHARES, 0).values()] == [0, 0, 2, 1, 3, 0, 0, 0]


def test_fixed_splits_are_honoured_and_count_towards_the_shares():
    sizes = {f"v{i}": 10 for i in range(10)}
    shares: dict[Split, float] = {"train": 0.5, "validation": 0.0, "calibration": 0.0, "test": 0.5}
    splits = assign_splits(sizes, shares, 0, {"v0": "test", "v1": "test", "v2": "validation"})
    assert (splits["v0"], splits["v1"], splits["v2"]) == ("test", "test", "validation")
    assert filled(sizes, splits)["test"] == pytest.approx(50, abs=10)
    assert filled(sizes, splits)["validation"] == 10


def test_a_split_of_share_zero_gets_nothing():
    splits = assign_splits({"a": 1, "b": 2}, {"train": 1.0, "validation": 0.0, "calibration": 0.0, "test": 0.0})
    assert set(splits.values()) == {"train"}


def test_too_few_groups_fill_the_first_splits():
    assert set(assign_splits({"a": 5, "b": 5}, SHARES).values()) <= set(SPLITS)
    assert assign_splits({}, SHARES) == {}
    assert assign_splits({"a": 1}, SHARES) == {"a": "train"}


@pytest.mark.parametrize("shares", [(0.7, 0.1, 0.1, 0.2), (1.1, -0.1, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)])
def test_shares_that_are_no_shares_are_refused(shares):
    with pytest.raises(ConfigError, match="sum to 1"):
        assign_splits({"a": 1}, dict(zip(SPLITS, shares, strict=True)))
