"""Laws of the intervals of a calibration error: they cover, hold what was found, and agree with their p-value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit, ndtr

from proofreel.eval.metrics import metric_rows
from proofreel.eval.metrics.calibration_error import bin_index, ece_event
from proofreel.eval.metrics.draws import bin_gaps
from proofreel.eval.uncertainty.bootstrap import resample
from proofreel.eval.uncertainty.calibration_intervals import error_difference, error_interval, error_p_value
from proofreel.eval.uncertainty.headline import headline_intervals
from proofreel.eval.uncertainty.paired_tests import difference_intervals


def _drawn(seed: int, n_groups: int = 60, icc: float = 0.3) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), rng.integers(1, 8, n_groups))
    x = 1.5 * rng.normal(size=len(groups))
    lean = np.sqrt(icc) * rng.normal(size=n_groups)[groups] + np.sqrt(1 - icc) * rng.normal(size=len(groups))
    return x, (ndtr(lean) < expit(x)).astype(float), groups


def _true(slope: float) -> float:
    x = 1.5 * np.random.default_rng(0).normal(size=200_000)
    p = expit(slope * x)
    return float(np.abs(np.bincount(bin_index(p), expit(x) - p)).sum() / len(x))


def _gaps(p: Any, y: Any, groups: Any, seed: int) -> Any:
    return bin_gaps(p, y, resample(groups, 300, seed + 10_000))


@pytest.mark.parametrize("slope", [1.0, 1.2, 2.0])
def test_the_interval_covers_the_true_error_and_holds_the_one_found(slope: float) -> None:
    true, held = _true(slope), []
    for seed in range(60):
        x, y, groups = _drawn(seed)
        p = expit(slope * x)
        interval = error_interval(_gaps(p, y, groups, seed), 60)
        assert interval.low - 1e-9 <= ece_event(p, y) <= interval.high + 1e-9
        held.append(interval.low <= (true if slope != 1 else 0.0) <= interval.high)
    assert np.mean(held) >= 0.9  # percentiles of the draws: 0 at a slope of 1, 0.3 at 1.2


def test_the_interval_of_a_difference_covers_it() -> None:
    true, held = _true(2.0) - _true(1.0), []
    for seed in range(60):
        x, y, groups = _drawn(seed)
        first, second = (_gaps(expit(slope * x), y, groups, seed) for slope in (2.0, 1.0))
        interval = error_difference(first, second, 60)
        held.append(interval.low <= true <= interval.high)
    assert np.mean(held) >= 0.9


def test_a_p_value_is_small_exactly_where_the_interval_leaves_0_out() -> None:
    for seed in range(12):
        x, y, groups = _drawn(seed)
        first, second = (_gaps(expit(slope * x), y, groups, seed) for slope in (2.5 + seed / 4, 1.0))
        interval = error_difference(first, second, 60)
        assert (error_p_value(first, second, 60) < 0.05) == (not interval.low <= 0 <= interval.high)


def test_more_groups_make_it_shorter_and_a_surer_level_longer() -> None:
    x, y, groups = _drawn(0, 60)
    many = _drawn(0, 600)
    few, more = (_gaps(expit(2 * x), y, g, 0) for x, y, g in ((x, y, groups), many))
    width = [
        i.high - i.low for i in (error_interval(more, 600), error_interval(few, 60), error_interval(few, 60, 0.99))
    ]
    assert width == sorted(width)


def test_the_headline_takes_it_for_the_error_and_its_difference() -> None:
    x, y, groups = _drawn(1)
    p = expit(2 * x)
    assert headline_intervals(x, p, y, groups, 0.5, n_draws=200)["ece_event"].method == "inversion"
    rows = metric_rows(2 * x, p, y, 0.5), metric_rows(x, expit(x), y, 0.5)
    assert difference_intervals(*rows, groups, n_draws=200)["ece_event"].method == "inversion"


def test_one_group_has_no_interval_and_certain_rows_a_point() -> None:
    x, y, _ = _drawn(2)
    one = _gaps(expit(x), y, np.zeros(len(x)), 0)
    assert np.isnan([error_interval(one, 1).low, error_difference(one, one, 1).high, error_p_value(one, one, 1)]).all()
    sure = _gaps(y, y, np.arange(len(y)), 0)
    assert (error_interval(sure, len(y)).low, error_interval(sure, len(y)).high) == (0, 0)


def test_without_an_error_the_interval_still_leaves_room_for_one() -> None:
    y, groups = np.tile([0.0, 1.0], 60), np.arange(120) // 4
    found = headline_intervals(4 * y - 2, 0.1 + 0.8 * y, y, groups, 0.5, n_draws=100)
    for name in ("auc", "f1", "balanced_accuracy", "accuracy_at_coverage"):
        assert (found[name].low, found[name].high) == (pytest.approx(1 - 3 / 30, abs=0.006), 1)
