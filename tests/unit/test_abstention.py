"""Abstention bands are the best of all pairs of cuts, reproduce what they store, and never take a failure for doubt."""

import dataclasses
import json
import math
from itertools import combinations_with_replacement

import numpy as np
import pytest
from nightly import first_of
from numpy.testing import assert_allclose
from scipy.stats import norm, t

from proofreel.core.errors import CalibrationError
from proofreel.eval.decisions.abstention import fit_band, selective_counts
from proofreel.models.decision.thresholds import AbstainBand

BAND = AbstainBand(0.7, 0.3, "selective_accuracy", 0.8, 4, 1, 4, 1, abstained_positive=3, abstained_negative=2)


def _drawn(seed: int, n: int = 25, decimals: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.concatenate([[0, 0, 1, 1], rng.integers(0, 2, n)])
    return np.round(np.clip(rng.normal(0.45 + 0.15 * labels, 0.25), 0, 1), decimals), labels


def _all_bands(p: np.ndarray, labels: np.ndarray) -> list[tuple[int, int]]:
    """(right verdicts, verdicts) of every pair of cuts: refute below the first, support from the second on."""
    found = []
    for low, high in combinations_with_replacement([*np.unique(p), 2.0], 2):
        up, down = p >= high, p < low
        found.append((int(np.sum(up & (labels == 1)) + np.sum(down & (labels == 0))), int(np.sum(up | down))))
    return found


@pytest.mark.parametrize("target", [0.55, 0.7, 0.75, 0.9, 1.0])
@pytest.mark.parametrize("decimals", [8, 1])
@pytest.mark.parametrize("seed", first_of(range(6)))
def test_at_a_selective_accuracy_no_band_gives_more_verdicts(seed: int, decimals: int, target: float) -> None:
    p, labels = _drawn(seed, decimals=decimals)
    possible = [pair for pair in _all_bands(p, labels) if pair[1] and pair[0] / pair[1] >= target]
    if not possible:
        with pytest.raises(CalibrationError, match=f"no band reaches a selective accuracy of {target}"):
            fit_band(p, labels, np.arange(len(p)), "selective_accuracy", target, n_draws=2)
        return
    band = fit_band(p, labels, np.arange(len(p)), "selective_accuracy", target, n_draws=2)
    assert band.selective_accuracy >= target
    assert (band.n_decided, band.tp + band.tn) == max((n, right) for right, n in possible)


@pytest.mark.parametrize("target", [0.0, 0.1, 0.25, 0.6, 0.99])
@pytest.mark.parametrize("decimals", [8, 1])
@pytest.mark.parametrize("seed", first_of(range(6)))
def test_at_an_abstention_rate_no_band_is_more_often_right(seed: int, decimals: int, target: float) -> None:
    p, labels = _drawn(seed, decimals=decimals)
    band = fit_band(p, labels, np.arange(len(p)), "max_abstention", target, n_draws=2)
    possible = [(r / n, n) for r, n in _all_bands(p, labels) if n and (len(p) - n) / len(p) <= target]
    assert 1 - band.coverage <= target + 1e-12
    assert (band.selective_accuracy, band.n_decided) == max(possible)


@pytest.mark.parametrize(("objective", "target"), [("selective_accuracy", 0.65), ("max_abstention", 0.3)])
@pytest.mark.parametrize("decimals", [8, 1])
@pytest.mark.parametrize("seed", first_of(range(5)))
def test_a_stored_band_reproduces_its_counts_exactly(seed: int, decimals: int, objective, target: float) -> None:
    p, labels = _drawn(seed, 150, decimals)
    fitted = fit_band(p, labels, np.arange(len(p)) % 30, objective, target, n_draws=100)
    band = AbstainBand.from_dict(json.loads(json.dumps(fitted.to_dict(), allow_nan=False)), "thresholds.json")
    assert band == fitted
    counts = selective_counts(band, p, labels)
    assert counts == {name: getattr(band, name) for name in counts}
    assert sum(counts.values()) == band.n == len(p)
    state = band.decide(p)
    for name, (positive, negative) in band.state_counts.items():
        assert positive == np.sum((state == name) & (labels == 1))
        assert negative == np.sum((state == name) & (labels == 0))


def test_a_hand_worked_band() -> None:
    p = np.array([0.95, 0.9, 0.8, 0.6, 0.5, 0.4, 0.2, 0.1])
    labels = np.array([1, 1, 1, 0, 1, 1, 0, 0])
    band = fit_band(p, labels, np.arange(8), "selective_accuracy", 1.0, n_draws=2)
    assert band.decide(p).tolist() == ["supported"] * 3 + ["abstain"] * 3 + ["refuted"] * 2
    assert_allclose([band.support_at_or_above, band.refute_at_or_below], [0.7, 0.3])
    # One error among seven or eight verdicts is 6/7 or 7/8: calling all from 0.4 on supported is the best of all pairs.
    whole = fit_band(p, labels, np.arange(8), "max_abstention", 0.0, n_draws=2)
    assert (whole.coverage, whole.selective_accuracy) == (1.0, 7 / 8)
    assert (whole.tp, whole.fp, whole.tn, whole.fn) == (5, 1, 2, 0)


def test_without_abstention_nothing_lies_between_the_thresholds() -> None:
    p, labels = _drawn(1)
    band = fit_band(p, labels, np.arange(len(p)), "max_abstention", 0.0, n_draws=2)
    assert math.nextafter(band.refute_at_or_below, 1) == band.support_at_or_above
    assert set(band.decide(np.linspace(0, 1, 101))) == {"supported", "refuted"}


def test_one_probability_for_all_rows_still_gives_one_verdict() -> None:
    band = fit_band([0.5] * 5, [1, 1, 1, 0, 0], range(5), "max_abstention", 0.5, n_draws=2)
    assert band.decide([0.5]).tolist() == ["supported"]
    with pytest.raises(CalibrationError, match=r"of 0.9, got 0.6000 at most"):
        fit_band([0.5] * 5, [1, 1, 1, 0, 0], range(5), "selective_accuracy", 0.9)


def test_edges_belong_to_a_verdict_and_what_lies_between_to_none() -> None:
    p = [1.0, 0.7, math.nextafter(0.7, 0), 0.5, math.nextafter(0.3, 1), 0.3, 0.0]
    assert BAND.decide(p).tolist() == ["supported"] * 2 + ["abstain"] * 3 + ["refuted"] * 2
    assert BAND.decide(0.5) == "abstain"
    assert BAND.decide([]).shape == (0,)


def test_a_failed_row_is_no_abstention() -> None:
    with pytest.raises(CalibrationError, match="failed row has no state, got 1 NaN"):
        BAND.decide([0.5, math.nan])


def test_shares_of_a_band_are_those_of_its_counts_and_nan_without_any() -> None:
    assert (BAND.n, BAND.n_decided, BAND.coverage, BAND.selective_accuracy) == (15, 10, 10 / 15, 0.8)
    silent = dataclasses.replace(BAND, tp=0, fp=0, tn=0, fn=0)
    assert silent.coverage == 0
    assert math.isnan(silent.selective_accuracy)
    assert math.isnan(dataclasses.replace(silent, abstained_positive=0, abstained_negative=0).coverage)


def test_intervals_are_those_of_resampling_groups_and_choosing_again_by_hand() -> None:
    p, labels = _drawn(2, 150)
    groups = np.random.default_rng(3).integers(0, 15, len(p))
    band = fit_band(p, labels, groups, "selective_accuracy", 0.8, n_draws=2_000)
    rng, fixed, gains = np.random.default_rng(9), [], []

    def values(of: AbstainBand, rows: np.ndarray) -> np.ndarray:
        counted = dataclasses.replace(of, **selective_counts(of, p[rows], labels[rows]))
        return np.array([counted.selective_accuracy, counted.coverage])

    for _ in range(1_000):
        rows = np.concatenate([np.flatnonzero(groups == g) for g in rng.integers(0, 15, 15)])
        fixed.append(values(band, rows))
        if len(gains) < 300:
            again = fit_band(p[rows], labels[rows], groups[rows], "selective_accuracy", 0.8, n_draws=2)
            gains.append(values(again, rows) - values(again, np.arange(len(p))))
    tail = norm.cdf(math.sqrt(15 / 14) * t.ppf(0.025, 14))  # of few groups, read further out (Hesterberg, 2015)
    here = np.array([band.selective_accuracy, band.coverage])
    moved = np.nanquantile(fixed, [tail, 1 - tail], axis=0) - np.mean(gains, axis=0)
    less = np.quantile(here - np.array(gains), [tail, 1 - tail], axis=0)
    low, high = np.minimum(np.minimum(moved[0], less[0]), here), np.maximum(np.maximum(moved[1], less[1]), here)
    for i, interval in enumerate((band.selective_accuracy_interval, band.coverage_interval)):
        assert interval is not None
        assert_allclose([interval.low, interval.high], [low[i], high[i]], atol=0.2 * (interval.high - interval.low))


def test_the_interval_holds_what_a_band_truly_reaches_though_it_was_chosen_on_these_rows() -> None:
    held = []  # scores that know nothing: a verdict is right half of the time
    for seed in range(20):
        p = np.random.default_rng(seed).random(80)
        band = fit_band(p, np.tile([0, 1], 40), np.arange(80) // 2, "max_abstention", 0.6, n_draws=200)
        assert band.selective_accuracy_interval is not None
        held.append(band.selective_accuracy_interval.low <= 0.5 <= band.selective_accuracy_interval.high)
    assert np.mean(held) > 0.9  # with the band held fixed: 0.8


def test_one_group_gives_no_interval() -> None:
    band = fit_band(*_drawn(3), np.zeros(29), "max_abstention", 0.2)
    assert (band.selective_accuracy_interval, band.coverage_interval, band.n_groups) == (None, None, 1)


@pytest.mark.parametrize(("objective", "target"), [("selective_accuracy", 0), ("max_abstention", 1), ("x", 0.5)])
def test_targets_that_ask_for_nothing_are_refused(objective, target: float) -> None:
    with pytest.raises(CalibrationError, match="choose one"):
        fit_band(*_drawn(4), np.arange(29), objective, target)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"refute_at_or_below": 0.7}, "refute below where it supports"),
        ({"support_at_or_above": math.nan}, "refute below where it supports"),
        ({"objective": "f1"}, "unknown objective"),
        ({"tp": -1}, "tp must be a count"),
        ({"tp": 1.5}, "tp must be a count"),
        ({"extra": 1}, "unknown keys"),
        ({"coverage_interval": {"low": 1, "high": 0, "level": 0.95}}, "coverage_interval.*low <= high"),
        ({"coverage_interval": 3}, "must be a JSON object"),
    ],
)
def test_a_damaged_band_is_refused(change: dict, says: str) -> None:
    with pytest.raises(CalibrationError, match=says):
        AbstainBand.from_dict({**BAND.to_dict(), **change}, "thresholds.json: abstain")
