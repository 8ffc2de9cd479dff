"""Calibration errors against netcal, scikit-learn, stored values of four libraries, their integrals, and by hand."""

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from netcal.metrics import ECE, MCE
from nightly import first_of
from numpy.testing import assert_allclose
from references.reading import reference
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.calibration import calibration_curve

from proofreel.core.errors import RowError
from proofreel.eval.metrics import calibration_error as errors
from proofreel.eval.metrics.calibration_error import (
    _OF_DRAWS,
    corp_decomposition,
    murphy_decomposition,
    noise_floor,
    smooth_ece,
    smooth_ece_at,
    spiegelhalter,
)
from proofreel.eval.metrics.values import probability_metrics

NAN = math.nan
ALL = [
    errors.brier,
    errors.ece_event,
    errors.ece_top_label,
    errors.ece_classwise,
    errors.mce,
    errors.ece_debiased,
    errors.squared_ce_debiased,
    errors.rms_ce_debiased,
    smooth_ece,
]
NAMES = ["overconfident", "calibrated", "tied"]


def _sample(seed: int, n: int = 300, decimals: int = 9) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = np.round(rng.beta(0.7, 0.9, n), decimals)
    return p, (rng.random(n) < p**1.3).astype(float)


def _binned(p: np.ndarray, y: np.ndarray, bins: list[np.ndarray], of: Callable) -> float:
    return sum(len(rows) * of(p[rows], y[rows]) for rows in bins) / len(p)


def _gap(p: np.ndarray, y: np.ndarray) -> float:
    return abs(p.mean() - y.mean())


@pytest.mark.parametrize("n_bins", [1, 10, 15, 20])
@pytest.mark.parametrize("seed", first_of(range(3)))
def test_equal_width_errors_equal_netcal(seed: int, n_bins: int) -> None:
    p, y = _sample(seed)
    assert_allclose(errors.ece_event(p, y, n_bins), ECE(n_bins).measure(p, y), rtol=1e-9)
    assert_allclose(errors.mce(p, y, n_bins), MCE(n_bins).measure(p, y), rtol=1e-9)
    # netcal has no top-label error of two classes: of two columns, too, it takes the positive class
    confidence, correct = np.maximum(p, 1 - p), (p >= 0.5) == y
    assert_allclose(errors.ece_top_label(p, y, n_bins), ECE(n_bins).measure(confidence, correct.astype(int)), rtol=1e-9)


@pytest.mark.parametrize("binning", ["width", "mass"])
@pytest.mark.parametrize("seed", first_of(range(3)))
def test_bins_equal_scikit_learns_calibration_curve_off_the_edges(seed: int, binning: errors.Binning) -> None:
    p, y = _sample(seed)
    bins = errors.reliability_bins(p, y, 10, binning)
    strategy = {"width": "uniform", "mass": "quantile"}[binning]
    mean_y, mean_p = calibration_curve(y, p, n_bins=10, strategy=strategy)
    assert_allclose(bins.mean_p[bins.count > 0], mean_p)
    assert_allclose(bins.mean_y[bins.count > 0], mean_y)
    if binning == "mass":
        assert bins.count.tolist() == [30] * 10


@pytest.mark.parametrize("name", NAMES)
def test_errors_equal_the_stored_values_of_other_libraries(name: str) -> None:
    p, y, values = reference(name)
    ours = {
        "ece_event": errors.ece_event(p, y, 10),
        "ece_top_label": errors.ece_top_label(p, y, 10),
        "ece_event_mass": errors.ece_event(p, y, 10, "mass"),
        "rms_ce_debiased": errors.rms_ce_debiased(p, y, 10),
        "mce": errors.mce(p, y, 10),
        **{f"corp_{k}": v for k, v in corp_decomposition(p, y)._asdict().items()},
        "corp_score": errors.brier(p, y),
    }
    compared = 0
    for library in ("uncertainty-calibration", "torchmetrics", "model-diagnostics"):
        for key in values[library].keys() & ours.keys():
            assert_allclose(ours[key], values[library][key], rtol=1e-9, err_msg=f"{library} {key}")
            compared += 1
    assert compared == (8 if name == "tied" else 10)
    # its correction is the mean of 200,000 draws, ours the integral
    resampled = values["uncertainty-calibration"]["ece_debiased_resampled"]
    assert errors.ece_debiased(p, y, 10) == pytest.approx(resampled, abs=3e-4)


def test_a_probability_on_an_edge_belongs_to_the_bin_above_and_1_to_the_last() -> None:
    for n_bins in range(1, 40):
        edges = np.array([k / n_bins for k in range(n_bins + 1)])
        counts = errors.reliability_bins(edges, np.ones(n_bins + 1), n_bins).count
        assert counts.tolist() == [1] * (n_bins - 1) + [2]
        below = np.nextafter(edges[1:], 0)
        assert errors.reliability_bins(below, np.ones(n_bins), n_bins).count.tolist() == [1] * n_bins


def test_decimals_as_people_write_them_are_edges() -> None:
    # A grid built by adding 0.1 up has 0.30000000000000004 for an edge and puts 0.3 below it.
    index = errors.bin_index(np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]), 10)
    assert index.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_ece_by_hand() -> None:
    # bins [.2, .267): mean p .22, mean y .5; [.8, .867): p .8, y 0; weights 2/3 and 1/3
    assert_allclose(errors.ece_event([0.21, 0.23, 0.8], [0, 1, 0]), 2 / 3 * 0.28 + 1 / 3 * 0.8)
    # the likelier labels are no, no, yes with confidence .79, .77 (one bin: mean .78, half right) and .8 (wrong)
    assert_allclose(errors.ece_top_label([0.21, 0.23, 0.8], [0, 1, 0], 10), 2 / 3 * 0.28 + 1 / 3 * 0.8)
    assert_allclose(errors.mce([0.21, 0.23, 0.8], [0, 1, 0]), 0.8)
    assert_allclose(errors.mce([0.21, 0.23, 0.8], [0, 1, 0], min_count=2), 0.28)
    assert math.isnan(errors.mce([0.21, 0.23, 0.8], [0, 1, 0], min_count=3))


def test_event_and_top_label_errors_answer_different_questions() -> None:
    """Doubt too much in yes and too little in no: the likelier labels' bin holds both, and they cancel."""
    p, y = np.array([0.3] * 10 + [0.7] * 10), np.array([1] * 5 + [0] * 5 + [1] * 9 + [0])
    assert_allclose(errors.ece_event(p, y, 10), 0.2)
    assert_allclose(errors.ece_top_label(p, y, 10), 0, atol=1e-12)  # 5 + 9 of 20 right at confidence 0.7


def test_a_half_says_supported() -> None:
    assert errors.ece_top_label([0.5], [1]) == errors.ece_top_label([0.5], [0]) == 0.5
    p, y = np.full(4, 0.5), np.array([1, 1, 1, 0])
    assert_allclose(errors.ece_top_label(p, y), 0.25)


@pytest.mark.parametrize("decimals", [9, 2, 1])
@pytest.mark.parametrize("n_bins", [1, 7, 15])
def test_equal_mass_bins_never_part_equal_values(decimals: int, n_bins: int) -> None:
    p, y = _sample(3, n=101, decimals=decimals)
    index = errors.bin_index(p, n_bins, "mass")
    assert all(len(set(index[p == value])) == 1 for value in np.unique(p))
    assert np.all(np.diff(index[np.argsort(p, kind="stable")]) >= 0)
    bins = [np.flatnonzero(index == b) for b in np.unique(index)]
    assert_allclose(errors.ece_event(p, y, n_bins, "mass"), _binned(p, y, bins, _gap), rtol=1e-12)
    if decimals == 9:
        sizes = [len(rows) for rows in bins]
        assert len(sizes) == n_bins
        assert max(sizes) - min(sizes) <= 1
    shuffled = np.random.default_rng(0).permutation(len(p))
    assert_allclose(errors.ece_event(p[shuffled], y[shuffled], n_bins, "mass"), errors.ece_event(p, y, n_bins, "mass"))


def test_one_value_for_all_rows_is_one_bin() -> None:
    p, y = np.full(20, 0.7), np.repeat([1, 0], 10)
    for binning in ("width", "mass"):
        assert np.sum(errors.reliability_bins(p, y, 15, binning).count > 0) == 1
        assert_allclose(errors.ece_event(p, y, 15, binning), 0.2)


def test_classwise_is_the_mean_of_both_classes_errors() -> None:
    for decimals in (9, 1):
        p, y = _sample(4, decimals=decimals)
        expected = (errors.ece_event(p, y) + errors.ece_event(1 - p, 1 - y)) / 2
        assert_allclose(errors.ece_classwise(p, y), expected)
    p, y = _sample(5)
    assert_allclose(errors.ece_classwise(p, y), errors.ece_event(p, y))  # mirror images off the edges


def test_debiasing_by_hand() -> None:
    p, y = np.full(5, 0.5), np.array([1, 1, 1, 1, 0])
    assert_allclose(errors.squared_ce_debiased(p, y), 0.3**2 - 0.8 * 0.2 / 4)
    assert_allclose(errors.rms_ce_debiased(p, y), math.sqrt(0.05))
    assert_allclose(errors.squared_ce_debiased(np.full(5, 0.8), y), -0.04)
    assert errors.rms_ce_debiased(np.full(5, 0.8), y) == 0
    spread = math.sqrt(0.8 * 0.2 / 5)
    expected, _ = quad(lambda x: abs(x) * norm.pdf(x, 0.3, spread), -3, 3, points=[0])
    assert_allclose(errors.ece_debiased(p, y), 0.3 - (expected - 0.3), rtol=1e-8)
    assert_allclose(errors.ece_debiased([0.4, 0.4], [1, 1]), 0.6)  # labels all equal: no spread to correct for


def test_debiasing_removes_all_of_the_squared_errors_bias_and_much_of_the_plain_ones() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(400)
    drawn = [(rng.random(400) < p).astype(float) for _ in range(400)]
    plain = np.mean([errors.ece_event(p, y) for y in drawn])
    assert plain > 0.05
    assert abs(np.mean([errors.squared_ce_debiased(p, y) for y in drawn])) < 4e-4
    assert abs(np.mean([errors.ece_debiased(p, y) for y in drawn])) < 0.65 * plain


@pytest.mark.parametrize("decimals", [9, 2, 1])
@pytest.mark.parametrize("binning", ["width", "mass"])
def test_the_parts_of_the_brier_score_add_up_to_it(binning: errors.Binning, decimals: int) -> None:
    p, y = _sample(6, decimals=decimals)
    parts = murphy_decomposition(p, y, 10, binning)
    total = parts.reliability - parts.resolution + parts.uncertainty + parts.within_bin
    assert_allclose(total, errors.brier(p, y), rtol=1e-12)
    assert parts.uncertainty == pytest.approx(np.var(y))
    index = errors.bin_index(p, 10, binning)
    bins = [np.flatnonzero(index == b) for b in np.unique(index)]
    assert_allclose(parts.reliability, _binned(p, y, bins, lambda p, y: (p.mean() - y.mean()) ** 2))
    assert_allclose(parts.resolution, _binned(p, y, bins, lambda _, b: (b.mean() - y.mean()) ** 2))
    corp = corp_decomposition(p, y)
    assert_allclose(corp.miscalibration - corp.discrimination + corp.uncertainty, errors.brier(p, y), rtol=1e-12)
    assert min(corp) >= 0


def test_murphys_three_parts_suffice_where_a_bin_holds_one_value() -> None:
    p = np.repeat([0.05, 0.35, 0.85], 50)
    y = (np.random.default_rng(0).random(150) < p).astype(float)
    parts = murphy_decomposition(p, y, 10)
    assert parts.within_bin == pytest.approx(0, abs=1e-15)
    rates = y.reshape(3, 50).mean(axis=1)
    assert parts.reliability == pytest.approx(np.mean((rates - [0.05, 0.35, 0.85]) ** 2))
    assert parts.resolution == pytest.approx(np.var(rates))


def _smooth_by_integral(p: np.ndarray, y: np.ndarray, sigma: float) -> float:
    """The definition: residuals under a Gaussian and its mirror images, integrated over a fine grid."""
    t = (np.arange(20_000) + 0.5) / 20_000
    smoothed = np.zeros(len(t))
    for p_i, residual in zip(p, (y - p) / len(p), strict=True):
        for image in (p_i + 2 * k for k in range(-4, 5)):
            smoothed += residual * norm.pdf(t, image, sigma)
        for image in (-p_i + 2 * k for k in range(-4, 5)):
            smoothed += residual * norm.pdf(t, image, sigma)
    return float(np.mean(np.abs(smoothed)))


@pytest.mark.parametrize("sigma", [0.01, 0.1, 0.5, 1.0])
def test_the_smooth_error_at_a_width_is_its_integral(sigma: float) -> None:
    p, y = _sample(8, n=40)
    p[:4] = [0, 1, 1 / 8192, 0.5]
    assert_allclose(smooth_ece_at(p, y, sigma), _smooth_by_integral(p, y, sigma), rtol=2e-4, atol=1e-7)


@pytest.mark.parametrize("seed", first_of(range(4)))
def test_the_smooth_error_is_the_width_it_was_smoothed_with(seed: int) -> None:
    p, y = _sample(seed)
    value = smooth_ece(p, y)
    assert_allclose(smooth_ece_at(p, y, value), value, atol=1e-6)
    widths = [smooth_ece_at(p, y, sigma) for sigma in (value / 4, value / 2, value, 2 * value)]
    assert np.all(np.diff(widths) <= 1e-12)  # more smoothing never shows more error
    assert widths[0] - value / 4 > 0 > widths[3] - 2 * value


@pytest.mark.parametrize("name", NAMES)
def test_the_smooth_error_is_relplots_within_its_grid(name: str) -> None:
    p, y, values = reference(name)
    theirs = values["relplot"]
    assert smooth_ece(p, y) == pytest.approx(theirs["smooth_ece"], rel=0.03)
    for sigma in (0.02, 0.05, 0.1):
        assert smooth_ece_at(p, y, sigma) == pytest.approx(theirs[f"smooth_ece_at_{sigma}"], rel=0.03)


def test_residuals_of_one_sign_make_the_smooth_error_their_mean_at_any_width() -> None:
    p = np.array([0.0, 0.2, 0.31, 0.6, 1.0])
    for sigma in (0.001, 0.1, 2.0):
        assert_allclose(smooth_ece_at(p, np.ones(5), sigma), np.mean(1 - p))
    assert_allclose(smooth_ece(p, np.ones(5)), np.mean(1 - p), atol=1e-6)
    assert_allclose(smooth_ece([0.3], [1]), 0.7, atol=1e-6)
    assert smooth_ece([0.0, 1.0], [0, 1]) == pytest.approx(0, abs=1e-6)


def test_the_noise_floor_is_what_calibrated_labels_show() -> None:
    p = _sample(9, n=129)[0]
    rng = np.random.default_rng(5)
    for statistic in (errors.ece_event, errors.ece_top_label):
        drawn = [statistic(p, rng.random(129) < p) for _ in range(400)]
        floor = noise_floor(p, 400, statistic=statistic)
        assert floor.mean == pytest.approx(np.mean(drawn), rel=0.06)
        assert floor.high == pytest.approx(np.quantile(drawn, 0.95), rel=0.1)


def test_the_noise_floor_is_that_of_one_bin_in_closed_form() -> None:
    # one bin, p = 1/2 throughout: |mean of n signs| / 2, whose mean is sqrt(1 / (2 pi n)) for large n
    floor = noise_floor(np.full(10_000, 0.5), 4_000)
    assert floor.mean == pytest.approx(math.sqrt(1 / (2 * math.pi * 10_000)), rel=0.04)
    assert floor.high == pytest.approx(norm.ppf(0.975) / 2 / 100, rel=0.05)
    assert noise_floor(np.array([0.0, 1.0]), 50) == (0, 0, 50)


@pytest.mark.parametrize("statistic", list(_OF_DRAWS))
def test_many_draws_at_once_are_the_draws_one_by_one(statistic: Callable[..., float]) -> None:
    p = _sample(10, n=80, decimals=2)[0]
    at_once = noise_floor(p, 60, 3, statistic)
    one_by_one = noise_floor(p, 60, 3, lambda p, y: statistic(p, y))
    assert at_once == pytest.approx(one_by_one, rel=1e-9, abs=1e-12)


def test_the_noise_floor_repeats_with_its_seed_and_takes_the_statistics_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p = _sample(11)[0]
    first = noise_floor(p, 100, 1)
    assert first == noise_floor(p[::-1], 100, 1)
    assert first != noise_floor(p, 100, 2)
    assert noise_floor(p, 100, 1, n_bins=50).mean > 1.3 * first.mean
    monkeypatch.setattr("proofreel.eval.metrics.calibration_error._CELLS_AT_ONCE", 7 * len(p))
    assert noise_floor(p, 100, 1) == pytest.approx(first)


def test_spiegelhalters_test_is_calibrated_and_finds_overconfidence() -> None:
    rng = np.random.default_rng(2)
    p = rng.random(300)
    values = [spiegelhalter(p, rng.random(300) < p) for _ in range(1_000)]
    assert np.mean([v.z for v in values]) == pytest.approx(0, abs=0.1)
    assert np.std([v.z for v in values]) == pytest.approx(1, abs=0.07)
    assert np.mean([v.p_value < 0.05 for v in values]) == pytest.approx(0.05, abs=0.025)
    sharpened = p**3 / (p**3 + (1 - p) ** 3)
    found = spiegelhalter(sharpened, rng.random(300) < p)
    assert found.z > 4
    assert found.p_value == pytest.approx(2 * norm.sf(found.z))


def test_spiegelhalters_z_by_hand() -> None:
    # p .9 and .2, labels 0 and 0: (-.9 x -.8 + -.2 x .6) / sqrt(.64 x .09 + .36 x .16)
    assert spiegelhalter([0.9, 0.2], [0, 0]).z == pytest.approx((0.72 - 0.12) / math.sqrt(0.0576 + 0.0576))
    for p in ([], [0.5, 0.5], [0.0, 1.0]):
        assert np.isnan(spiegelhalter(p, np.zeros(len(p)))).all()


def test_without_rows_every_number_is_nan() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for binning in ("width", "mass"):
            binned = [m for m in ALL if m not in (errors.brier, smooth_ece)]
            assert np.isnan([metric([], [], binning=binning) for metric in binned]).all()
        values = [*murphy_decomposition([], []), *corp_decomposition([], []), errors.brier([], []), smooth_ece([], [])]
        assert np.isnan([*values, *noise_floor([])[:2], smooth_ece_at([], [], 0.1)]).all()
        assert np.isnan(list(probability_metrics([], []).values())).all()


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("n", [1, 5])
def test_one_row_or_one_class_suffices(n: int, label: int) -> None:
    p, y = np.linspace(0.3, 0.9, n), np.full(n, label)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        row = probability_metrics(p, y, n_draws=20)
        assert not np.isnan(list(row.values())).any()
    assert_allclose(row["ece_event"], np.mean(np.abs(p - label)))
    assert_allclose(row["smooth_ece"], np.mean(np.abs(p - label)), atol=1e-6)
    assert_allclose([row["brier_uncertainty"], row["brier_resolution"]], 0, atol=1e-12)


@pytest.mark.parametrize("metric", ALL)
def test_what_is_no_probability_is_refused(metric: Callable[..., float]) -> None:
    for p in ([0.2, 1.01], [-0.1, 0.5], [math.inf, 0.5]):
        with pytest.raises(RowError, match="must be probabilities"):
            metric(p, [0, 1])
    with pytest.raises(RowError, match="failed row"):
        metric([0.2, NAN], [0, 1])
    with pytest.raises(RowError, match="0 or 1"):
        metric([0.2, 0.3], [0, NAN])


def test_every_error_stands_beside_its_noise_floor() -> None:
    p, y = _sample(12)
    row = probability_metrics(p, y)
    for name in ("ece_event", "ece_event_mass", "ece_top_label", "ece_classwise", "smooth_ece", "mce_mass"):
        assert 0 < row[f"{name}_floor"] < row[f"{name}_floor_high"]
    assert row["ece_event_mass_floor"] == noise_floor(p, 200, binning="mass").mean
    assert_allclose(row["mce_mass"], errors.mce(p, y, binning="mass"))
