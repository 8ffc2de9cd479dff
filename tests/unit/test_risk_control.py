"""A promised bound on a risk is kept as often as promised, at group level, and refused where it cannot be given."""

import functools
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from nightly import first_of
from numpy.testing import assert_allclose
from scipy.stats import binomtest, norm

from proofreel.core.errors import CalibrationError
from proofreel.eval import metrics
from proofreel.eval.decisions.risk_control import (
    MARGIN_GRID,
    RISKS,
    conformal_threshold,
    control_risk,
    fixed_sequences,
    group_risk,
    groups_needed,
    hoeffding_bentkus,
    margin_grid,
)
from proofreel.models.decision.calibration import Calibration
from proofreel.models.decision.calibrator import sigmoid
from proofreel.models.decision.thresholds import OperatingPoint

Columns = tuple[np.ndarray, np.ndarray, np.ndarray]  # probabilities or margins, labels, groups
AT_MOST = {"false_support_rate": 0.15, "miss_rate": 0.2, "false_discovery_rate": 0.25, "error_rate": 0.4}


def _drawn(seed: int, n_groups: int, per_group: int = 5, spread: float = 1.0) -> Columns:
    """Rows of groups of unequal size whose margins are shifted together, each group by its own amount."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), rng.integers(1, 2 * per_group, n_groups))
    labels = (rng.random(len(groups)) < 0.5).astype(float)
    shift = rng.normal(0, spread, n_groups)[groups]
    return sigmoid(rng.normal(3 * labels - 1.5, 1) + shift), labels, groups


def _brute_risk(p: np.ndarray, labels: np.ndarray, groups: np.ndarray, threshold: float, risk: str) -> float:
    losses = []
    for group in np.unique(groups):
        said, is_so = p[groups == group] >= threshold, labels[groups == group] == 1
        wrong, counts = {
            "false_support_rate": (said & ~is_so, ~is_so),
            "miss_rate": (~said & is_so, is_so),
            "false_discovery_rate": (said & ~is_so, said),
            "error_rate": (said != is_so, np.ones(len(said))),
        }[risk]
        if counts.sum():
            losses.append(wrong.sum() / counts.sum())
    return float(np.mean(losses)) if losses else math.nan


# The p-value ---------------------------------------------------------------------------------------------------------


def test_p_values_are_those_of_mapie() -> None:
    rows = json.loads((Path(__file__).parents[1] / "data" / "hoeffding_bentkus.json").read_text())["rows"]
    for row in rows:
        assert_allclose(hoeffding_bentkus(row["mean"], row["n"], row["at_most"]), min(row["p"], 1), rtol=1e-9)


@pytest.mark.parametrize("n", [1, 3, 17])
@pytest.mark.parametrize("at_most", [Fraction(1, 10), Fraction(1, 3)])
def test_p_values_are_the_smaller_of_the_two_bounds_summed_by_hand(n: int, at_most: Fraction) -> None:
    for quarter in range(4 * n + 1):
        mean = Fraction(quarter, 4 * n)
        up_to = math.ceil(n * mean)
        tail = sum(math.comb(n, k) * at_most**k * (1 - at_most) ** (n - k) for k in range(up_to + 1))
        low = float(min(mean, at_most))
        kl = (low * math.log(low / at_most) if low else 0) + (1 - low) * math.log((1 - low) / float(1 - at_most))
        expected = min(math.exp(-n * kl), math.e * float(tail), 1)
        assert_allclose(hoeffding_bentkus(float(mean), n, float(at_most)), expected, rtol=1e-12)


def test_no_group_proves_nothing() -> None:
    assert hoeffding_bentkus(0.0, 0, 0.1) == 1
    assert hoeffding_bentkus([0.0, 1.0], [0, 5], 0.1).tolist() == [1, 1]


@pytest.mark.parametrize("at_most", [0.05, 0.3])
@pytest.mark.parametrize("concentration", [0.0, 5.0])
def test_p_values_are_small_no_oftener_than_they_say(at_most: float, concentration: float) -> None:
    # Losses whose mean is exactly the bound: 0 or 1, or spread between.
    rng = np.random.default_rng(1)
    shape = (20_000, 40)
    losses = (
        rng.beta(concentration * at_most, concentration * (1 - at_most), shape)
        if concentration
        else rng.random(shape) < at_most
    )
    p = hoeffding_bentkus(losses.mean(axis=1), 40, at_most)
    for level in (0.01, 0.1, 0.3):
        assert np.mean(p <= level) <= level + 3 * math.sqrt(level / shape[0])


@pytest.mark.parametrize("delta", [0.05, 0.1, 0.5])
@pytest.mark.parametrize("at_most", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("n_starts", [1, 10])
def test_groups_needed_is_the_least_that_a_spotless_record_certifies(delta: float, at_most: float, n_starts) -> None:
    n = groups_needed(at_most, delta, n_starts)
    assert hoeffding_bentkus(0.0, n, at_most) <= delta / n_starts * (1 + 1e-9)
    assert n == 1 or hoeffding_bentkus(0.0, n - 1, at_most) > delta / n_starts


# The order of testing ------------------------------------------------------------------------------------------------


def test_a_fixed_sequence_stops_at_its_first_failure() -> None:
    assert fixed_sequences([0.01, 0.1, 0.2, 0.01], 0.1).tolist() == [0, 1]
    assert fixed_sequences([0.2, 0.0, 0.0], 0.1).tolist() == []
    assert fixed_sequences([0.0, 0.0], 0.1).tolist() == [0, 1]


def test_each_of_several_starts_spends_its_part_of_delta() -> None:
    assert fixed_sequences([0.2, 0.0, 0.04, 0.06], 0.1, n_starts=2).tolist() == [2]
    assert fixed_sequences([0.02, 0.03, 0.02, 0.0], 0.1, n_starts=4).tolist() == [0, 2, 3]  # Bonferroni: 0.025 each


@pytest.mark.parametrize("n_starts", [1, 3, 20])
def test_a_sequence_of_false_hypotheses_errs_no_oftener_than_delta(n_starts: int) -> None:
    rng = np.random.default_rng(2)
    wrong = np.mean([len(fixed_sequences(rng.random(20), 0.1, n_starts)) > 0 for _ in range(4_000)])
    assert 0.05 < wrong <= 0.1 + 3 * math.sqrt(0.09 / 4_000)


# The promise ---------------------------------------------------------------------------------------------------------


@functools.cache
def _true_risk(risk: str, threshold: float, spread: float) -> float:
    """Of `_drawn`'s groups. Margins of a class are normal; a share of what is called supported is drawn, not summed."""
    if risk == "false_discovery_rate":
        return group_risk(*_many(spread), threshold, risk)
    margin, scale = math.log(threshold) - math.log1p(-threshold), math.hypot(1, spread)
    rates = {"false_support_rate": norm.sf(margin, -1.5, scale), "miss_rate": norm.cdf(margin, 1.5, scale)}
    return float(rates[risk] if risk in rates else np.mean(list(rates.values())))


@functools.cache
def _many(spread: float) -> Columns:
    return _drawn(10**6, 20_000, spread=spread)


@pytest.mark.parametrize("risk", ["false_support_rate", "miss_rate", "error_rate"])
def test_the_true_risk_is_that_of_many_groups(risk: str) -> None:
    assert_allclose(group_risk(*_many(2.0), 0.7, risk), _true_risk(risk, 0.7, 2.0), atol=0.01)  # type: ignore[arg-type]


def _violations(
    risk: str, n_groups: int, tries: int, delta: float, by_row: bool = False, per_group: int = 5
) -> tuple[float, float]:
    """Share of fits whose threshold has a true risk above the bound, and share of fits that were refused."""
    above = refused = 0
    for seed in range(tries):
        p, labels, groups = _drawn(seed, n_groups, per_group, spread=2.0)
        try:
            unit = np.arange(len(p)) if by_row else groups
            point = control_risk(p, labels, unit, risk, AT_MOST[risk], delta, n_draws=2)  # type: ignore[arg-type]
        except CalibrationError:
            refused += 1
            continue
        above += _true_risk(risk, point.threshold, 2.0) > AT_MOST[risk]
    return above / tries, refused / tries


@pytest.mark.parametrize("risk", RISKS)
def test_the_promise_is_kept_with_the_chance_promised(risk: str) -> None:
    broken, refused = _violations(risk, n_groups=150, tries=200, delta=0.2)
    assert binomtest(round(200 * broken), 200, 0.2, alternative="greater").pvalue > 0.001
    assert refused < 0.5


def test_taking_rows_for_groups_would_break_the_promise() -> None:
    broken, _ = _violations("false_support_rate", n_groups=30, tries=100, delta=0.05, by_row=True, per_group=20)
    assert broken > 0.15


@pytest.mark.parametrize("risk", ["false_support_rate", "miss_rate"])
def test_conformal_risk_is_kept_on_average_and_not_by_much(risk: str) -> None:
    risks = []
    for seed in range(300):
        point = conformal_threshold(*_drawn(seed, 60), risk, 0.15, n_draws=2)  # type: ignore[arg-type]
        risks.append(_true_risk(risk, point.threshold, 1.0))
    error = np.std(risks) / math.sqrt(len(risks))
    assert np.mean(risks) <= 0.15 + 3 * error
    assert np.mean(risks) >= 0.15 - 2 / 61 - 3 * error


# What is stored ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("risk", RISKS)
@pytest.mark.parametrize("seed", first_of(range(3)))
def test_a_stored_point_reproduces_its_risk_and_counts_exactly(seed: int, risk) -> None:
    p, labels, groups = _drawn(seed, 200)
    p = np.round(p, 2)
    for fit in (control_risk, conformal_threshold)[: 2 if risk in RISKS[:2] else 1]:
        fitted = fit(p, labels, groups, risk, AT_MOST[risk], n_draws=50)
        point = OperatingPoint.from_dict(json.loads(json.dumps(fitted.to_dict(), allow_nan=False)))
        assert point == fitted
        assert group_risk(p, labels, groups, point.threshold, risk) == point.metric
        assert_allclose(point.metric, _brute_risk(p, labels, groups, point.threshold, risk), rtol=1e-12)
        assert metrics.confusion(point.decide(p), labels) == (point.tp, point.fp, point.tn, point.fn)
        assert point.metric <= AT_MOST[risk]
        assert point.interval is not None
        assert point.interval.low <= point.metric <= point.interval.high
        assert point.guarantee is not None
        assert (point.guarantee.risk, point.guarantee.at_most, point.target) == (risk, AT_MOST[risk], AT_MOST[risk])


def test_conformal_takes_the_most_useful_of_all_cuts_that_keep_the_bound() -> None:
    p, labels, groups = _drawn(3, 60)
    n = len(np.unique(groups[labels == 0]))

    def keeps(threshold: float) -> bool:
        total = n * _brute_risk(p, labels, groups, threshold, "false_support_rate")
        return (total + 1) / (n + 1) <= 0.15

    point = conformal_threshold(p, labels, groups, "false_support_rate", 0.15)
    assert keeps(point.threshold)
    next_lower = np.max(p[p < point.threshold])
    assert not keeps(next_lower)
    assert point.guarantee is not None
    assert (point.guarantee.n_groups, point.guarantee.delta) == (n, None)


def test_more_groups_or_more_risk_never_make_the_promise_harder() -> None:
    p, labels, groups = _drawn(4, 200)
    strict = control_risk(p, labels, groups, at_most=0.1)
    assert control_risk(p, labels, groups, at_most=0.2).threshold <= strict.threshold
    copies = np.concatenate([groups, groups + 1000])
    assert control_risk(np.tile(p, 2), np.tile(labels, 2), copies, at_most=0.1).threshold <= strict.threshold


def test_groups_without_rows_that_count_change_nothing() -> None:
    p, labels, groups = _drawn(5, 100)
    with_positives = np.append(p, [0.9] * 30), np.append(labels, [1.0] * 30), np.append(groups, 1000 + np.arange(30))
    for fit in (control_risk, conformal_threshold):
        alone, more = fit(p, labels, groups, at_most=0.2), fit(*with_positives, at_most=0.2)
        assert (more.threshold, more.metric, more.guarantee) == (alone.threshold, alone.metric, alone.guarantee)


def test_a_grid_mapped_through_a_fitted_calibration_decides_as_fixed_cuts_on_margins() -> None:
    calibration = Calibration("platt", 0.6, -0.4, 10, 2, 0.5)
    p, labels, groups = _drawn(6, 150)
    margins = np.log(p) - np.log1p(-p)
    plain = control_risk(sigmoid(margins), labels, groups)
    grid = margin_grid(margins)
    mapped = control_risk(calibration.predict(margins), labels, groups, thresholds=calibration.predict(grid))
    assert (mapped.tp, mapped.fp, mapped.metric) == (plain.tp, plain.fp, plain.metric)
    assert_allclose(mapped.threshold, calibration.predict(np.log(plain.threshold) - np.log1p(-plain.threshold)))


def test_the_grid_lies_where_margins_lie_and_is_the_plain_one_for_usual_margins() -> None:
    margins = np.random.default_rng(0).normal(0, 3, 1_000)
    assert np.array_equal(margin_grid(margins), MARGIN_GRID)
    for scale in (0.001, 0.05, 6.0, 1e6):
        for place in (0.0, 40.0):
            moved = scale * (margins + place)
            grid = margin_grid(moved)
            inside = (grid > moved.min()) & (grid < moved.max())
            assert inside.sum() > 60
            assert np.mean((moved > grid[0]) & (moved < grid[-1])) > 0.94
    assert np.array_equal(margin_grid([]), MARGIN_GRID)
    assert np.isfinite(margin_grid([np.inf, 2.0, 2.0])).all()


@pytest.mark.parametrize("scale", [0.05, 6.0, 1000.0])
@pytest.mark.parametrize("risk", ["false_support_rate", "false_discovery_rate"])
def test_a_guarantee_does_not_depend_on_the_scale_of_margins(scale: float, risk) -> None:
    rng = np.random.default_rng(3)
    labels, groups = rng.integers(0, 2, 2_000), np.arange(2_000) // 8
    margins = rng.normal(4 * labels - 2, 1.5)
    usual, other = (
        control_risk(_flat(m), labels, groups, risk, 0.2, thresholds=_flat(margin_grid(m)))
        for m in (margins, scale * margins)
    )
    assert abs(usual.sensitivity - other.sensitivity) < 0.06
    assert other.guarantee is not None


def _flat(margins: np.ndarray) -> np.ndarray:
    """Probabilities that keep margins of any scale apart."""
    return 0.5 + np.arctan(margins) / np.pi


# Refusals ------------------------------------------------------------------------------------------------------------


def test_too_few_groups_are_refused_with_the_number_needed() -> None:
    p, labels, groups = _drawn(7, 21)
    with pytest.raises(CalibrationError, match=r"needs at least 22 groups .* false_support_rate, got \d+"):
        control_risk(p, labels, groups, at_most=0.1, delta=0.1)
    with pytest.raises(CalibrationError, match="needs at least 99 groups"):
        conformal_threshold(p, labels, groups, at_most=0.01)


def test_a_verifier_no_better_than_chance_certifies_nothing() -> None:
    _, labels, groups = _drawn(8, 60)
    p = np.full(len(labels), 0.9999)
    with pytest.raises(CalibrationError, match="none is certified"):
        control_risk(p, labels, groups)
    with pytest.raises(CalibrationError, match="only calling nothing supported"):
        conformal_threshold(p, labels, groups)
    with pytest.raises(CalibrationError, match="only calling everything supported"):
        conformal_threshold(p, labels, groups, "miss_rate")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"risk": "f1"}, "needs one of"),
        ({"at_most": 0.0}, "a bound between 0 and 1"),
        ({"at_most": 1.0}, "a bound between 0 and 1"),
        ({"delta": 1.0}, "delta must lie between"),
        ({"groups": [1, 2]}, "a group per row"),
        ({"p": np.full(5, math.nan), "labels": np.ones(5), "groups": np.ones(5)}, "leave failed rows out"),
    ],
)
def test_what_makes_no_promise_is_refused(change: dict, says: str) -> None:
    p, labels, groups = _drawn(9, 50)
    with pytest.raises(CalibrationError, match=says):
        control_risk(**{"p": p, "labels": labels, "groups": groups, **change})


def test_conformal_refuses_a_risk_that_is_not_monotone() -> None:
    p, labels, groups = _drawn(9, 50)
    with pytest.raises(CalibrationError, match="use control_risk"):
        conformal_threshold(p, labels, groups, "false_discovery_rate")
