"""Laws of what a calibrated verifier would show when claims share a video, and of the sentences that rest on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit, ndtr

from proofreel.eval.metrics.calibration_error import NoiseFloor, ece_event, noise_floor, smooth_ece
from proofreel.eval.reports.caveats import against_chance


def _drawn(seed: int, n_groups: int, size: int, icc: float, slope: float = 1.0) -> tuple[Any, Any, Any]:
    """Probabilities whose labels lean together within groups; calibrated at a slope of 1."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), size)
    x = 1.5 * rng.normal(size=len(groups))
    z = np.sqrt(icc) * rng.normal(size=n_groups)[groups] + np.sqrt(1 - icc) * rng.normal(size=len(groups))
    return expit(slope * x), (ndtr(z) < expit(x)).astype(float), groups


def _floor(seed: int, **about: Any) -> tuple[NoiseFloor, float]:
    p, y, groups = _drawn(seed, **about)
    return noise_floor(p, 200, labels=y, groups=groups), ece_event(p, y)


@pytest.mark.parametrize("icc", [0.0, 0.5])
def test_the_floor_is_exceeded_as_seldom_as_it_says_however_claims_lean_together(icc: float) -> None:
    found = [_floor(seed, n_groups=80, size=6, icc=icc) for seed in range(150)]
    above = np.mean([error > floor.high for floor, error in found])
    assert above < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 150)  # of independent rows' floor, 0.4 at an icc of 0.5
    assert np.mean([floor.mean for floor, _ in found]) == pytest.approx(np.mean([e for _, e in found]), rel=0.08)


def test_miscalibration_is_no_part_of_the_floor() -> None:
    about = {"n_groups": 200, "size": 5, "icc": 0.3}
    found = [_floor(seed, slope=2.5, **about) for seed in range(5)]
    assert all(error > floor.high for floor, error in found)


def test_rows_that_stand_alone_have_the_floor_of_independent_rows() -> None:
    p, y, _ = _drawn(0, n_groups=300, size=1, icc=0)
    assert noise_floor(p, 50, labels=y, groups=np.arange(300)) == noise_floor(p, 50)
    clustered = noise_floor(p, 300, statistic=smooth_ece, labels=y, groups=np.arange(300) // 2)
    assert clustered.mean == pytest.approx(noise_floor(p, 300, statistic=smooth_ece).mean, rel=0.25)


def test_what_is_no_better_than_chance_is_said() -> None:
    row = {"auc_interval": {"low": 0.52, "high": 0.6, "level": 0.95}, "ece_after": 0.03, "ece_after_floor_high": 0.04}
    assert against_chance(row) == []
    bad = {"auc_interval": {"low": 0.48, "high": 0.6, "level": 0.95}, "ece_after": 0.05, "ece_after_floor_high": 0.04}
    assert [reason.split(":")[0] for reason in against_chance(bad)] == [
        "No better than chance",
        "Not calibrated on these rows",
    ]
    nothing = {"auc_interval": {"low": float("nan"), "high": float("nan"), "level": 0.95}, "ece_after": None}
    assert against_chance(nothing) == []
