"""Every metric against an independent reference, on random data, ties, bin edges, one class and no rows."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from nightly import first_of
from numpy.testing import assert_allclose, assert_array_equal
from references.reading import reference
from scipy.stats import norm
from sklearn import metrics as sk

from proofreel.core.errors import RowError
from proofreel.eval import metrics
from proofreel.eval.uncertainty.bootstrap import clustered_interval
from proofreel.models.decision.calibrator import sigmoid

NAN = math.nan
OF_COUNTS = [metric.of_counts for metric in metrics.METRICS.values() if metric.of_counts is not None]


def _sample(seed: int, n: int = 300, decimals: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.concatenate([[0, 1], rng.integers(0, 2, n - 2)])
    return np.round(rng.normal(labels, 1.5), decimals), labels


@pytest.mark.parametrize("seed", first_of(range(5)))
@pytest.mark.parametrize("decimals", [8, 1, 0])  # from no ties to mostly ties
def test_ranking_metrics_equal_scikit_learn(seed: int, decimals: int) -> None:
    scores, labels = _sample(seed, decimals=decimals)
    assert_allclose(metrics.roc_auc(scores, labels), sk.roc_auc_score(labels, scores), rtol=1e-12)
    assert_allclose(metrics.average_precision(scores, labels), sk.average_precision_score(labels, scores), rtol=1e-12)


@pytest.mark.parametrize("decimals", [8, 0])
def test_a_weight_counts_as_that_many_copies_of_the_row(decimals: int) -> None:
    scores, labels = _sample(7, decimals=decimals)
    times = np.random.default_rng(1).integers(0, 4, (3, len(scores)))
    for metric in (metrics.roc_auc, metrics.average_precision):
        copied = [metric(np.repeat(scores, t), np.repeat(labels, t)) for t in times]
        assert_allclose(metric(scores, labels, times), copied, rtol=1e-12)


def test_equal_infinite_scores_are_ties() -> None:
    infinite, finite = np.array([np.inf, np.inf, 0.0, -np.inf, -np.inf]), [9.0, 9.0, 0.0, -9.0, -9.0]
    for labels in ([1, 0, 1, 0, 1], [0, 1, 0, 1, 0]):
        assert metrics.roc_auc(infinite, labels) == metrics.roc_auc(finite, labels)
        assert metrics.average_precision(infinite, labels) == metrics.average_precision(finite, labels)


@pytest.mark.parametrize("seed", first_of(range(5)))
@pytest.mark.parametrize("cut", [0.3, -2.0, 3.0])
def test_decision_metrics_equal_scikit_learn(seed: int, cut: float) -> None:
    scores, labels = _sample(seed)
    said = scores >= cut
    counts = metrics.confusion(said, labels)
    tn, fp, fn, tp = sk.confusion_matrix(labels, said).ravel()
    assert counts == (tp, fp, tn, fn)
    assert metrics.decision_metrics(counts) == pytest.approx(
        {
            "f1": sk.f1_score(labels, said),
            "f1_negative": sk.f1_score(labels, said, pos_label=0),
            "f1_macro": sk.f1_score(labels, said, average="macro"),
            "f1_micro": sk.f1_score(labels, said, average="micro"),
            "f1_weighted": sk.f1_score(labels, said, average="weighted"),
            "accuracy": sk.accuracy_score(labels, said),
            "balanced_accuracy": sk.balanced_accuracy_score(labels, said),
            "youden": sk.balanced_accuracy_score(labels, said, adjusted=True),
            "mcc": sk.matthews_corrcoef(labels, said),
            "precision": sk.precision_score(labels, said),
            "recall": sk.recall_score(labels, said),
            "specificity": sk.recall_score(labels, said, pos_label=0),
            "predicted_positive_rate": said.mean(),
        },
        rel=1e-12,
    )
    assert metrics.balanced_accuracy(counts) == pytest.approx(float(metrics.roc_auc(said, labels)))


def test_metrics_of_many_confusions_are_bit_for_bit_those_of_each() -> None:
    drawn = np.random.default_rng(2).integers(0, 5, (4, 300, 2))
    many = metrics.Confusions(*drawn.astype(float))
    for metric in OF_COUNTS:
        values = metric(many)
        assert values.shape == (300, 2)
        for place in np.ndindex(300, 2):
            one = metric(metrics.Confusion(*(int(count[place]) for count in drawn)))
            assert isinstance(one, float)
            assert_array_equal(values[place], one)


def test_f1_and_balanced_accuracy_are_rounded_once() -> None:
    for tp, fp, tn, fn in np.random.default_rng(3).integers(1, 60_000, (200, 4)).tolist():
        counts = metrics.Confusion(tp, fp, tn, fn)
        assert metrics.f1(counts) == float(Fraction(2 * tp, 2 * tp + fp + fn))
        both = Fraction(tp * (tn + fp) + tn * (tp + fn), 2 * (tp + fn) * (tn + fp))
        assert metrics.balanced_accuracy(counts) == float(both)


def test_counts_broadcast() -> None:
    values = metrics.recall(
        metrics.Confusions(np.array([0.0, 1, 3]), np.array(0.0), np.array(0.0), np.array([[1.0], [0]]))
    )
    assert_array_equal(values, [[0, 0.5, 0.75], [NAN, 1, 1]])


@pytest.mark.parametrize(
    ("tp", "fp", "tn", "fn", "undefined"),
    [
        (0, 0, 0, 0, {m.__name__ for m in OF_COUNTS}),
        (3, 0, 0, 0, {"f1_negative", "f1_macro", "f1_weighted", "balanced_accuracy", "youden", "mcc", "specificity"}),
        (0, 3, 0, 0, {"f1", "f1_macro", "f1_weighted", "balanced_accuracy", "youden", "mcc", "recall"}),
        (0, 0, 3, 0, {"f1", "f1_macro", "f1_weighted", "balanced_accuracy", "youden", "mcc", "recall", "precision"}),
        (2, 3, 0, 0, {"mcc"}),
        (0, 0, 2, 3, {"mcc", "precision"}),
        (0, 1, 0, 1, set()),
        (1, 0, 1, 0, set()),
    ],
)
def test_a_decision_metric_is_nan_exactly_where_a_class_or_decision_it_needs_is_missing(
    tp: int, fp: int, tn: int, fn: int, undefined: set[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = metrics.decision_metrics(metrics.Confusion(tp, fp, tn, fn))
    assert {name for name, value in values.items() if math.isnan(value)} == undefined


def test_mirage_always_yes_scores_differ_by_how_f1_is_averaged() -> None:
    """Half the claims supported, every claim called so: a table that prints 50.0 printed no positive-class F1."""
    labels = np.arange(786) % 2
    values = metrics.decision_metrics(metrics.confusion(np.ones(786), labels))
    shown = {k: round(100 * values[k], 1) for k in ("f1", "f1_macro", "f1_micro", "f1_weighted", "accuracy")}
    assert shown == {"f1": 66.7, "f1_macro": 33.3, "f1_micro": 50.0, "f1_weighted": 33.3, "accuracy": 50.0}
    assert values["balanced_accuracy"] == 0.5
    assert math.isnan(values["mcc"])
    a_third = metrics.confusion(np.ones(786), np.arange(786) % 3 == 0)
    assert round(100 * metrics.f1(a_third), 1) == 50.0


@pytest.mark.parametrize("name", ["overconfident", "calibrated", "tied"])
def test_ranking_and_decision_metrics_equal_torchmetrics(name: str) -> None:
    p, labels, values = reference(name)
    theirs = values["torchmetrics"]
    decided = metrics.decision_metrics(metrics.confusion(p >= 0.499, labels))
    ours = {"auc": float(metrics.roc_auc(p, labels)), "ap": float(metrics.average_precision(p, labels)), **decided}
    shared = theirs.keys() & ours.keys()
    assert shared == {"auc", "ap", "f1", "mcc", "specificity"}
    assert {k: ours[k] for k in shared} == pytest.approx(
        {k: theirs[k] for k in shared}, abs=2e-7
    )  # it rounds to float32


@pytest.mark.parametrize("seed", first_of(range(5)))
def test_probability_metrics_equal_scikit_learn(seed: int) -> None:
    margins, labels = _sample(seed)
    p = sigmoid(margins)
    assert_allclose(metrics.brier(p, labels), sk.brier_score_loss(labels, p), rtol=1e-12)
    assert_allclose(metrics.nll(margins, labels), sk.log_loss(labels, p), rtol=1e-9)


def test_nll_does_not_saturate_where_probabilities_do() -> None:
    assert metrics.nll([-800.0, 800.0], [1, 1]) == 400.0


def test_metrics_are_nan_without_rows_and_say_nothing_about_it() -> None:
    none: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        counts = metrics.confusion(none, none)
        values = [metrics.f1(counts), metrics.balanced_accuracy(counts)]
        values += [float(metric(none, none)) for metric in (metrics.roc_auc, metrics.average_precision)]
        values += [float(metric(none, none)) for metric in (metrics.ece_event, metrics.brier, metrics.nll)]
    assert np.isnan(values).all()


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("label", [0, 1])
def test_with_one_class_only_what_is_defined_has_a_value(n: int, label: int) -> None:
    p, labels = np.linspace(0.3, 0.9, n), np.full(n, label)
    counts = metrics.confusion(p >= 0.5, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert math.isnan(metrics.roc_auc(p, labels))
        assert math.isnan(metrics.average_precision(p, labels))
        assert math.isnan(metrics.balanced_accuracy(counts))
        assert math.isnan(metrics.f1(counts)) == (label == 0)
        assert_allclose(metrics.brier(p, labels), np.mean((p - label) ** 2))
        assert metrics.ece_event(p, labels) > 0


@pytest.mark.parametrize("metric", [metrics.roc_auc, metrics.average_precision, metrics.ece_event, metrics.brier])
def test_a_failed_or_unlabelled_row_is_refused_rather_than_scored(metric) -> None:
    with pytest.raises(RowError, match="failed row"):
        metric([0.2, NAN], [0, 1])
    with pytest.raises(RowError, match="0 or 1"):
        metric([0.2, 0.3], [0, NAN])
    with pytest.raises(RowError, match="one length"):
        metric([0.2, 0.3], [0])


def test_headline_counts_every_row_once_and_scores_only_judged_ones() -> None:
    margins = np.array([2.0, -1.0, NAN, 0.5, NAN, -3.0])
    labels = np.array([1, 0, 1, NAN, NAN, 1])
    row = metrics.headline(margins, sigmoid(margins), labels, threshold=0.5)
    assert (row["n_rows"], row["n"], row["n_failed"], row["n_unlabelled"]) == (6, 3, 2, 1)
    assert (row["tp"], row["fp"], row["tn"], row["fn"]) == (1, 0, 1, 1)  # the failed supported row is no miss
    assert_allclose([row["positive_rate"], row["auc"], row["f1"], row["balanced_accuracy"]], [2 / 3, 0.5, 2 / 3, 0.75])


def test_headline_names_every_decision_metric() -> None:
    margins, labels = _sample(4)
    row = metrics.headline(margins, sigmoid(margins), labels, threshold=0.6)
    decided = metrics.decision_metrics(metrics.confusion(sigmoid(margins) >= 0.6, labels))
    assert {name: row[name] for name in decided} == decided


def test_headline_of_nothing_but_failures_is_counted_not_scored() -> None:
    nothing = np.full(3, NAN)
    row = metrics.headline(nothing, nothing, np.array([1.0, 0.0, 1.0]), threshold=0.5)
    assert (row["n"], row["n_failed"]) == (0, 3)
    assert np.isnan([row["auc"], row["f1"], row["ece_after"], row["positive_rate"]]).all()


def _clustered(rng: np.random.Generator, n_groups: int = 40, per_group: int = 20) -> tuple:
    """Margins with an effect per group, labels that lean one way in each group: true AUC in closed form."""
    groups = np.repeat(np.arange(n_groups), per_group)
    labels = (rng.random(len(groups)) < rng.choice([0.1, 0.9], n_groups)[groups]).astype(float)
    effect, spread, gap = 1.0, 1.0, 1.5
    margins = rng.normal(gap * labels + rng.normal(0, effect, n_groups)[groups], spread)
    return margins, labels, groups, norm.cdf(gap / math.sqrt(2 * (effect**2 + spread**2)))


@pytest.mark.nightly  # test_bootstrap simulates the same of AUC and Brier score in every run
def test_the_interval_covers_the_true_auc_when_groups_are_resampled_and_not_when_rows_are() -> None:
    rng = np.random.default_rng(0)
    covered, covered_by_rows = [], []
    for seed in range(150):
        margins, labels, groups, truth = _clustered(rng)
        interval = clustered_interval(metrics.roc_auc, margins, labels, groups, n_draws=200, seed=seed)
        by_rows = clustered_interval(metrics.roc_auc, margins, labels, range(len(groups)), n_draws=200, seed=seed)
        covered.append(interval.low <= truth <= interval.high)
        covered_by_rows.append(by_rows.low <= truth <= by_rows.high)
    assert 0.88 <= np.mean(covered) <= 0.99  # nominal 0.95, 150 simulations
    assert np.mean(covered_by_rows) < 0.7


def test_the_interval_repeats_with_its_seed_and_brackets_the_estimate() -> None:
    margins, labels, groups, _ = _clustered(np.random.default_rng(3))
    first, second = (clustered_interval(metrics.roc_auc, margins, labels, groups) for _ in range(2))
    assert first == second
    assert first.low < metrics.roc_auc(margins, labels) < first.high
    assert (first.n_groups, first.n_draws, first.n_undefined) == (40, 1000, 0)
    assert clustered_interval(metrics.roc_auc, margins, labels, groups, seed=1) != first


def test_drawing_in_pieces_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    margins, labels, groups, _ = _clustered(np.random.default_rng(4))
    whole = clustered_interval(metrics.roc_auc, margins, labels, groups, n_draws=50)
    monkeypatch.setattr("proofreel.eval.metrics.draws._WEIGHTS_AT_ONCE", 7 * len(margins))
    assert clustered_interval(metrics.roc_auc, margins, labels, groups, n_draws=50) == whole


def test_draws_without_both_classes_are_counted_and_left_out() -> None:
    interval = clustered_interval(metrics.roc_auc, [1.0, 0.0, 0.5], [1, 0, 0], ["a", "b", "c"], n_draws=400)
    expected = 1 - (1 - (2 / 3) ** 3 - (1 / 3) ** 3)  # the positive group absent, or alone
    assert abs(interval.n_undefined / 400 - expected) < 0.08
    assert (interval.low, interval.high) == (1, 1)


@pytest.mark.parametrize("groups", [[], ["a", "a"]])
def test_fewer_than_two_groups_give_no_interval(groups: list[str]) -> None:
    interval = clustered_interval(metrics.roc_auc, np.arange(len(groups)), np.arange(len(groups)), groups)
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)
