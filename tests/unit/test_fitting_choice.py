"""The method is chosen by the rule, on groups held out; the estimator is the same in scikit-learn's form."""

import math
from typing import Any

import numpy as np
import pytest
from drawn_margins import drawn_as
from nightly import first_of
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from proofreel.core.errors import CalibrationError
from proofreel.eval.calibration import fit as calibrating
from proofreel.eval.calibration.estimator import CalibrationEstimator
from proofreel.eval.calibration.fit import PerGroup
from proofreel.eval.calibration.selection import choose_method, clustered_se
from proofreel.models.decision.calibrator import sigmoid
from proofreel.models.decision.calibrators import CALIBRATORS

# Choosing ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", CALIBRATORS)
def test_cross_fitted_log_odds_come_from_maps_that_never_saw_the_group(method) -> None:
    margins, labels = drawn_as(8, 200, 0.5)
    groups = np.repeat(np.arange(50), 4)
    folds = calibrating.grouped_folds(labels, groups)
    logits = calibrating.cross_fitted_logits(margins, labels, folds, method)
    for fold in set(folds):
        out = folds == fold
        alone = calibrating.fit_calibration(margins[~out], labels[~out], method)
        assert_allclose(logits[out], alone.logits(margins[out]), rtol=1e-12)


def test_cross_fitted_corrections_never_saw_the_group_either() -> None:
    margins, labels = drawn_as(9, 600, 0.5)
    keys = np.array(["a", "b", "c"])[np.arange(600) % 3]
    folds = calibrating.grouped_folds(labels, np.repeat(np.arange(150), 4))
    logits = calibrating.cross_fitted_logits(margins, labels, folds, "platt", correct=("role", keys, 100))
    out = folds == 0
    alone = calibrating.fit_calibration(
        margins[~out], labels[~out], "platt", keys=keys[~out], per_group=PerGroup("role")
    )
    assert alone.by_group is not None
    assert set(alone.by_group.corrections) == {"a", "b", "c"}
    assert_allclose(logits[out], alone.logits(margins[out], keys[out]), rtol=1e-12)


@pytest.mark.parametrize("seed", first_of(range(4)))
def test_the_simplest_method_within_one_standard_error_of_the_best_is_chosen(seed: int) -> None:
    margins, labels = drawn_as(seed, 1_200, 0.9)
    groups = np.repeat(np.arange(240), 5)
    choice = choose_method(margins, labels, groups)
    assert [c.method for c in choice.candidates] == list(CALIBRATORS)
    best = min(choice.candidates, key=lambda c: c.nll)
    near = [c.method for c in choice.candidates if c.nll <= best.nll + c.se]
    assert choice.method == near[0]
    assert best.se == 0
    folds = calibrating.grouped_folds(labels, groups)
    for c in choice.candidates:
        logits = calibrating.cross_fitted_logits(margins, labels, folds, c.method)
        assert c.nll == pytest.approx(log_loss(labels, sigmoid(logits)), rel=1e-9)


def test_a_richer_method_that_is_no_clearer_is_not_chosen() -> None:
    chosen, best = [], []
    for seed in range(4):
        choice = choose_method(*drawn_as(seed, 1_200, 0.9), np.arange(1_200) // 5)
        chosen.append(tuple(CALIBRATORS).index(choice.method))
        best.append(tuple(CALIBRATORS).index(min(choice.candidates, key=lambda c: c.nll).method))
    assert chosen != best
    assert all(c <= b for c, b in zip(chosen, best, strict=True))


def test_a_curved_truth_is_given_a_map_that_bends() -> None:
    rng = np.random.default_rng(11)
    margins = rng.normal(0, 3, 4_000)
    labels = (rng.random(4_000) < 0.05 + 0.9 / (1 + np.exp(-8 * (margins - 1)))).astype(float)  # never sure
    chosen = calibrating.fit_calibration(margins, labels, "auto")
    assert chosen.method in tuple(CALIBRATORS)[4:]
    assert chosen.fitted_on["choice"]["chosen"] == chosen.method
    assert_allclose(chosen.predict([-5.0, 5.0]), [0.05, 0.95], atol=0.03)


def test_methods_that_follow_every_step_need_a_thousand_rows_to_be_candidates() -> None:
    margins, labels = drawn_as(12, 999)
    notes = {c.method: c.note for c in choose_method(margins, labels, np.arange(999)).candidates}
    assert {m for m, note in notes.items() if note} == {m for m, c in CALIBRATORS.items() if c.fewest_rows}
    margins, labels = drawn_as(12, 1_000)
    assert not any(c.note for c in choose_method(margins, labels, np.arange(1_000)).candidates)


def test_the_clustered_standard_error_is_that_of_group_sums() -> None:
    rng = np.random.default_rng(13)
    groups, values = np.repeat(np.arange(40), 10), np.repeat(rng.normal(size=40), 10)
    # Copies within a group add nothing: the standard error is that of the 40 values.
    alone = values[::10]
    assert clustered_se(values, groups) == pytest.approx(np.std(alone, ddof=1) / np.sqrt(40))
    assert clustered_se(values, np.arange(400)) == pytest.approx(np.std(values, ddof=1) / np.sqrt(400))
    assert math.isnan(clustered_se(values, np.zeros(400)))
    assert clustered_se(alone, np.arange(40), np.full(40, 10.0)) == pytest.approx(clustered_se(values, groups))


# The estimator -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["platt", "isotonic", "auto"])
def test_the_estimator_is_the_calibration_in_scikit_learns_form(method) -> None:
    margins, labels = drawn_as(15, 300, 0.5)
    estimator: Any = clone(CalibrationEstimator(method))
    estimator.fit(margins, labels, groups=np.arange(300) // 3)
    calibration = calibrating.fit_calibration(margins, labels, method, np.arange(300) // 3)
    assert estimator.calibration_ == calibration
    p = estimator.predict_proba(margins)
    np.testing.assert_array_equal(p[:, 1], calibration.predict(margins))
    assert_allclose(p.sum(axis=1), 1, rtol=1e-15)
    np.testing.assert_array_equal(estimator.predict_proba(margins[:, None]), p)
    np.testing.assert_array_equal(estimator.predict(margins), p[:, 1] >= 0.5)
    assert np.isnan(estimator.predict_proba([math.nan])).all()
    with pytest.raises(CalibrationError, match="leave failed rows out"):
        estimator.predict([math.nan])


def test_an_unfitted_estimator_says_so() -> None:
    with pytest.raises(NotFittedError):
        CalibrationEstimator().predict_proba([0.0])


@pytest.mark.parametrize("method", ["sigmoid", "isotonic", "temperature"])
def test_the_estimator_agrees_with_scikit_learns_calibrated_classifier(method: Any) -> None:
    rng = np.random.default_rng(16)
    x = rng.normal(size=(600, 3))
    labels = (rng.random(600) < sigmoid(x @ [1.0, 2.0, 0.0])).astype(int)
    model = LogisticRegression(C=100).fit(x[:100], labels[:100])
    reference = CalibratedClassifierCV(FrozenEstimator(model), method=method).fit(x[100:], labels[100:])
    ours = CalibrationEstimator("platt" if method == "sigmoid" else method)
    ours.fit(model.decision_function(x[100:]), labels[100:])
    # At the rows of the fit: between them clipped levels are joined by other lines.
    p = ours.predict_proba(model.decision_function(x[100:]))
    expected = reference.predict_proba(x[100:])
    if method == "isotonic":  # ours stays off 0 and 1
        expected = np.clip(expected, 1 / 502, 501 / 502)
    assert_allclose(p, expected, atol=1e-4)
