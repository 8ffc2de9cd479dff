"""Spread over training seeds: Student's t against scipy, pairing, and what is called undecided."""

import math

import numpy as np
import pytest
from scipy.stats import ttest_rel

from examples.kitchen.over_seeds import (
    UNDECIDED,
    Difference,
    compare,
    judge,
    mean_text,
    metrics_of,
    rows_of,
    seed_interval,
)
from proofreel.eval.scoring.predictions import Prediction, groups_of, write_predictions
from proofreel.eval.uncertainty import difference_intervals


def predictions(knowledge: float, seed: int, clips: int = 60) -> list[Prediction]:
    """Drawn rows of one verifier: the more knowledge, the higher its AUC."""
    rng = np.random.default_rng(seed)
    rows = []
    for n in range(8 * clips):
        label = "supported" if n % 2 else "refuted"
        margin = float(np.float32(knowledge * (n % 2) + rng.normal()))
        p = float(1 / (1 + np.exp(-margin)))
        rows.append(Prediction(f"p{n}", margin, p, label, "test", f"g{n // 8}", "r", "o", "visual", None))
    return rows


def test_the_interval_over_seeds_is_that_of_a_paired_t_test():
    first, second = [0.98, 0.97, 0.99, 0.96, 0.985], [0.95, 0.96, 0.97, 0.955, 0.96]
    expected = ttest_rel(first, second).confidence_interval(0.95)
    differences = [one - other for one, other in zip(first, second, strict=True)]
    assert seed_interval(differences) == pytest.approx((expected.low, expected.high))
    assert seed_interval([0.03]) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("clips", "of_seeds", "null", "decided"),
    [
        ((0.02, 0.04), [0.03, 0.031, 0.029], 0.0, True),
        ((-0.04, -0.02), [-0.03, -0.031, -0.029], 0.0, True),
        ((0.02, 0.04), [0.10, -0.04, 0.03], 0.0, False),  # as good as sure over clips, not over seeds
        ((-0.01, 0.07), [0.03, 0.031, 0.029], 0.0, False),
        ((0.02, 0.04), [0.03], 0.0, False),
        ((0.02, 0.04), [0.03, 0.03], 0.0, True),
        ((0.97, 0.99), [0.98, 0.981, 0.979], 1.0, True),
        ((0.97, 1.01), [0.98, 0.981, 0.979], 1.0, False),
        ((0.0, 0.0), [0.0, 0.0], 0.0, False),
    ],
)
def test_a_difference_is_undecided_while_either_interval_holds_no_difference(clips, of_seeds, null, decided):
    found = Difference(float(np.mean(of_seeds)), of_seeds, clips, seed_interval(of_seeds), null)
    assert found.decided is decided
    assert str(found).endswith(UNDECIDED) is not decided


def test_seeds_that_disagree_leave_open_what_the_clips_alone_would_decide():
    plain = judge([predictions(1.0, seed) for seed in (1, 2, 3)], 300)
    better = judge([predictions(knowledge, seed) for knowledge, seed in ((1.8, 1), (0.95, 2), (1.5, 3))], 300)
    found = compare(better, plain)
    assert found.of_seeds == pytest.approx(np.subtract(better.of_seeds["auc"], plain.of_seeds["auc"]))
    assert found.clips[0] > 0 > found.seeds[0]
    assert str(found).endswith(UNDECIDED)
    steady = compare(judge([predictions(1.8, seed) for seed in (1, 2, 3)], 300), plain)
    assert steady.decided


def test_a_difference_of_calibration_errors_has_the_interval_of_a_report() -> None:
    one, other = predictions(1.0, 1), predictions(2.0, 2)
    found = compare(judge([one], 300), judge([other], 300), "ece_before")
    rows = metrics_of(one), metrics_of(other)
    report = difference_intervals(*rows, groups_of(one), 300)["ece_event"]
    assert found.clips == pytest.approx((report.low, report.high))
    twice = compare(judge([one, one], 300), judge([other, other], 300), "ece_before")  # no new seed, nothing new
    assert [twice.value, *twice.clips] == pytest.approx([found.value, *found.clips])
    value, bounds = mean_text(judge([one, other], 300), "ece_before").split(" (")
    low, high = (float(bound) for bound in bounds.rstrip(")").split(" to "))
    assert low <= float(value) <= high


def test_files_of_two_seeds_are_paired_by_id_and_not_by_place(tmp_path):
    rows = predictions(1.0, 1)
    write_predictions(tmp_path / "a.parquet", rows, {})
    write_predictions(tmp_path / "b.parquet", rows[::-1], {})
    assert rows_of(tmp_path / "a.parquet") == rows_of(tmp_path / "b.parquet")
    found = compare(judge([rows_of(tmp_path / "a.parquet")], 50), judge([rows_of(tmp_path / "b.parquet")], 50))
    assert (found.value, found.clips) == (0.0, (0.0, 0.0))
