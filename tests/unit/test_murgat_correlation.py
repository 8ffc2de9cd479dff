"""Correlation of metrics with people's scores: SciPy's coefficients, intervals over videos, tables of metrics."""

import math

import numpy as np
import pytest
from scipy import stats

from proofreel.core import RowError
from proofreel.eval.citations.correlation import (
    correlations_of_draws,
    metric_correlations,
    murgat_agreement,
    read_metrics,
)
from proofreel.eval.citations.scores import (
    FactCitation,
    JudgedFact,
    JudgedResponse,
    JudgedSentence,
    murgat_system_scores,
)

REFERENCES = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}
BAD = {"name,m\n1,2\n": "'id'", "id,m\n1,x\n": "'x'", "id,m\n1,2\n1,3\n": "'1'", "id\n1\n": "beside"}


@pytest.mark.parametrize("ties", [False, True])
def test_a_draws_coefficients_are_scipys_on_repeated_rows(ties):
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 12))
    if ties:
        x, y = np.round(x), np.round(y)
    times = rng.integers(0, 4, size=(40, 12))
    got = correlations_of_draws(x, y, times)
    for d, row in enumerate(times):
        rows = np.repeat(x, row), np.repeat(y, row)
        for name, measure in REFERENCES.items():
            assert got[name][d] == pytest.approx(measure(*rows)[0], abs=1e-12), name


def test_a_draw_without_variation_is_undefined():
    got = correlations_of_draws([0.1, 0.2, 0.3], [1.0, 1.0, 2.0], [[3, 0, 0], [1, 1, 0], [0, 1, 1]])
    assert [[math.isnan(v) for v in got[name]] for name in got] == [[True, True, False]] * 3


def system(recalls, groups=None):
    """Responses of four cited facts, so many of which are supported; None: a failed judgment."""
    responses = []
    for n, recall in enumerate(recalls):
        facts = tuple(
            JudgedFact("f", (FactCitation("visual, 0:01", "visual", yes),), yes)
            for yes in ([None] * 4 if recall is None else [k < recall for k in range(4)])
        )
        sentence = JudgedSentence("He runs (visual, 0:01).", True, facts)
        responses.append(JudgedResponse(str(n), groups[n] if groups else str(n), (sentence,)))
    return murgat_system_scores(responses, 50)


def test_a_metric_is_correlated_with_each_of_peoples_scores():
    human = system([0, 1, 2, 3, 4, 4])
    values = [0.3, 0.1, 0.4, 0.5, 0.9, math.nan]
    found = metric_correlations({str(n): v for n, v in enumerate(values)}, human, 200)["recall"]
    assert (found.n, found.n_left_out) == (5, 1)
    assert found.pearson == pytest.approx(stats.pearsonr(values[:5], [0, 1, 2, 3, 4])[0])
    assert found.kendall == pytest.approx(0.8)
    assert all(i.low <= getattr(found, name) <= i.high for name, i in found.intervals.items())
    assert metric_correlations({}, human, 10)["recall"].n == 0


def test_intervals_resample_videos_and_failed_judgments_are_left_out():
    human, scored = system([0, 1, 2, 3, 4, 2], "aabbcc"), system([1, 0, 2, 4, 3, None], "aabbcc")
    found = murgat_agreement(scored, human, 100)["recall"]
    assert (found.n, found.n_left_out) == (5, 1)
    assert {i.n_groups for i in found.intervals.values()} == {3}
    constant = murgat_agreement(scored, human, 100)["coverage"]
    assert math.isnan(constant.pearson)
    assert constant.intervals == {}


def test_a_table_of_metrics_is_read_and_its_faults_are_named(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("id,holistic,other\n1,3,0.5\n2,,1\n", encoding="utf-8")
    metrics = read_metrics(path)
    assert metrics["other"] == {"1": 0.5, "2": 1.0}
    assert math.isnan(metrics["holistic"]["2"])
    for text, quoted in BAD.items():
        path.write_text(text, encoding="utf-8")
        with pytest.raises(RowError, match=quoted):
            read_metrics(path)
