"""Isotonic maps, bins and Venn-Abers pairs are what their definitions and references say, on ties and by hand."""

import math

import numpy as np
import pytest
from drawn_margins import GRID, drawn, fit, p_of
from netcal.binning import HistogramBinning as NetcalHistogram
from netcal.binning import IsotonicRegression as NetcalIsotonic
from nightly import first_of
from numpy.testing import assert_allclose
from sklearn.isotonic import IsotonicRegression

from proofreel.models.decision.calibrator import sigmoid
from proofreel.models.decision.steps import Histogram, Knots, VennAbers

# Isotonic ------------------------------------------------------------------------------------------------------------


def _pava(values: list[float], weights: list[float]) -> list[float]:
    """Non-decreasing fit by its minimax formula: max over a <= i of min over b >= i of the mean of a..b."""
    v, w = np.array(values), np.array(weights)

    def mean(a: int, b: int) -> float:
        return float(np.sum((v * w)[a : b + 1]) / np.sum(w[a : b + 1]))

    k = len(v)
    return [max(min(mean(a, b) for b in range(i, k)) for a in range(i + 1)) for i in range(k)]


@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("seed", first_of(range(5)))
def test_isotonic_agrees_with_scikit_learn_and_the_minimax_formula(seed: int, decimals: int | None) -> None:
    margins, labels = drawn(seed, 40, decimals)
    fitted = fit("isotonic", margins, labels)
    reference = IsotonicRegression(y_min=1 / 42, y_max=41 / 42, out_of_bounds="clip").fit(margins, labels)
    assert_allclose(p_of(fitted, GRID), reference.predict(np.clip(GRID, -100, 100)), atol=1e-12)
    distinct = np.unique(margins)
    means = [float(labels[margins == m].mean()) for m in distinct]
    brute = np.clip(_pava(means, [float(np.sum(margins == m)) for m in distinct]), 1 / 42, 41 / 42)
    assert_allclose(p_of(fitted, distinct), brute, atol=1e-12)


def test_isotonic_agrees_with_netcal_at_the_rows() -> None:
    margins, labels = drawn(12, 500)
    reference = NetcalIsotonic().fit(sigmoid(margins), labels.astype(int)).transform(sigmoid(margins))
    assert_allclose(p_of(fit("isotonic", margins, labels), margins), np.clip(reference, 1 / 502, 501 / 502), atol=1e-6)


def test_centred_isotonic_by_hand() -> None:
    # Levels: {1: 0}, {2, 3, 4: 1/3} (the 1 at 2 is above the 0s at 3 and 4), {5, 6: 1}. Centres 1, 3, 5.5; n = 6.
    fitted = fit("centred_isotonic", [1, 2, 3, 4, 5, 6], [0, 1, 0, 0, 1, 1])
    assert isinstance(fitted, Knots)
    assert fitted.margins == (1.0, 3.0, 5.5)
    assert_allclose(fitted.p, [1 / 8, 1 / 3, 7 / 8])
    assert_allclose(p_of(fitted, [0, 2, 4.25, 9]), [1 / 8, (1 / 8 + 1 / 3) / 2, (1 / 3 + 7 / 8) / 2, 7 / 8])


def test_centred_isotonic_weighs_its_centres_by_rows() -> None:
    fitted = fit("centred_isotonic", [0, 0, 0, 4, 9, 9], [1, 0, 0, 0, 1, 1])
    assert isinstance(fitted, Knots)
    assert_allclose(fitted.margins, [1.0, 9.0])  # 0 three times and 4 once
    assert_allclose(fitted.p, [1 / 4, 7 / 8])


@pytest.mark.parametrize("seed", first_of(range(5)))
def test_centred_isotonic_meets_the_levels_of_isotonic_and_parts_what_that_ties(seed: int) -> None:
    margins, labels = drawn(seed, 200)
    centred, isotonic = fit("centred_isotonic", margins, labels), fit("isotonic", margins, labels)
    assert set(np.round(centred.p, 12)) == set(np.round(isotonic.p, 12))
    inner = margins[(margins > centred.margins[0]) & (margins < centred.margins[-1])]
    assert len(np.unique(p_of(centred, inner))) == len(inner) > len(np.unique(p_of(isotonic, inner)))


# Histogram -----------------------------------------------------------------------------------------------------------


def test_bins_by_hand_with_ties_and_exact_edges() -> None:
    # Two bins of eight rows; the three rows at 2 straddle the middle and stay together, in the bin of their middle row.
    fitted = Histogram.fit(np.array([0.0, 1, 1, 2, 2, 2, 5, 6]), np.array([0, 0, 1, 0, 1, 1, 1, 1.0]), np.ones(8), 2)[0]
    assert fitted == Histogram(edges=(1.5,), p=((1 + 1) / (3 + 2), (4 + 1) / (5 + 2)))
    assert_allclose(p_of(fitted, [1.4999, 1.5, -9, 9]), [2 / 5, 5 / 7, 2 / 5, 5 / 7])


def test_bins_that_would_reverse_the_ranking_are_pooled() -> None:
    fitted = Histogram.fit(np.arange(12.0), np.array([0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1.0]), np.ones(12), 4)[0]
    assert_allclose(fitted.p, [1 / 5, 1 / 2, 4 / 5])
    assert_allclose(fitted.edges, [2.5, 8.5])


def test_neighbouring_floats_are_still_parted() -> None:
    low, high = 1.0, math.nextafter(1.0, 2)
    fitted = Histogram.fit(np.array([low, low, high, high]), np.array([0, 0, 1, 1.0]), np.ones(4), 2)[0]
    assert fitted.edges == (high,)


@pytest.mark.parametrize("seed", first_of(range(3)))
def test_bins_are_of_equal_mass_and_agree_with_netcal_but_for_laplace(seed: int) -> None:
    margins, labels = drawn(seed, 2_000)
    fitted = Histogram.fit(margins, labels, np.ones(2_000), 5)[0]
    assert len(fitted.p) == 5
    count = np.histogram(margins, [-np.inf, *fitted.edges, np.inf])[0]
    np.testing.assert_array_equal(count, 400)
    netcal = NetcalHistogram(bins=5, equal_intervals=False).fit(sigmoid(margins), labels.astype(int))
    assert_allclose(
        np.array(fitted.p), (np.asarray(netcal._bin_map) * 400 + 1) / 402, atol=0.0026
    )  # its edges part one row or none


# Venn-Abers ----------------------------------------------------------------------------------------------------------


def _brute_venn_abers(margins, labels, weights, at: float) -> tuple[float, float]:
    """Refit isotonic regression with the row added, once with each label (Vovk and Petej, 2014, section 3)."""
    pair = []
    for label in (0, 1):
        model = IsotonicRegression().fit([*margins, at], [*labels, label], sample_weight=[*weights, 1])
        pair.append(float(model.predict([at])[0]))
    return pair[0], pair[1]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("n", [4, 9, 40])
@pytest.mark.parametrize("seed", first_of(range(3)))
def test_venn_abers_is_what_refitting_with_the_row_gives(seed: int, n: int, decimals, weighted: bool) -> None:
    margins, labels = drawn(seed, n, decimals)
    weights = np.random.default_rng(seed).uniform(0.2, 3, n) if weighted else np.ones(n)
    fitted = fit("venn_abers", margins, labels, weights)
    assert isinstance(fitted, VennAbers)
    distinct = np.unique(margins)
    places = np.concatenate([distinct, (distinct[1:] + distinct[:-1]) / 2, [-100, 100]])
    brute = np.array([_brute_venn_abers(margins, labels, weights, at) for at in places])
    p0, p1 = fitted.pair(places)
    assert_allclose(np.stack([p0, p1], axis=1), brute, atol=1e-12)
    assert_allclose(p_of(fitted, places), p1 / (1 - p0 + p1), atol=1e-12)
    assert (p0 <= p1).all()


def test_venn_abers_stores_steps_not_rows() -> None:
    margins, labels = drawn(13, 5_000)
    fitted = fit("venn_abers", margins, labels)
    assert len(fitted.p0) + len(fitted.p1) < 500


def test_venn_abers_tells_how_little_few_rows_say() -> None:
    width = []
    for n in (10, 1_000):
        p0, p1 = fit("venn_abers", *drawn(14, n)).pair(0.0)
        width.append(float(p1 - p0))
    assert width[1] < 0.1 < width[0]
