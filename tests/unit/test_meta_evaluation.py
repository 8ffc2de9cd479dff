"""Scores by a verifier against scores by people: tau over topics, failures bounded, how much accuracy is enough."""

import math

import numpy as np
import pytest
from scipy import stats

from proofreel.core.errors import RowError
from proofreel.eval.scores import JudgedClaim, accuracy_curve, agreement


def claims_of(rates, topics=6, per_cell=20, seed=0):
    """Claims of systems that are right this often, on some topics."""
    rng = np.random.default_rng(seed)
    return [
        JudgedClaim(f"{t}-{s}-{i}", f"t{t}", f"s{s}", bool(rng.random() < rate))
        for t in range(topics)
        for s, rate in enumerate(rates)
        for i in range(per_cell)
    ]


CLAIMS = claims_of((0.2, 0.5, 0.6, 0.9))
HUMAN = [c.human for c in CLAIMS]


def test_people_agree_with_themselves():
    result = agreement(CLAIMS, HUMAN)
    assert (result.tau, result.low, result.high, result.balanced_accuracy) == (1, 1, 1, 1)
    assert (result.n_topics, result.n_systems, result.n_claims, result.n_failed) == (6, 4, len(CLAIMS), 0)
    assert (result.interval.low, result.interval.high) == (1, 1)
    assert agreement(CLAIMS, [not y for y in HUMAN]).tau == -1


def test_tau_is_that_of_scipy_over_the_shares_of_each_topic():
    rng = np.random.default_rng(1)
    verdicts = [bool(y ^ (rng.random() < 0.3)) for y in HUMAN]
    taus = []
    for topic in sorted({c.topic for c in CLAIMS}):
        rows = [(c.system, y, v) for c, y, v in zip(CLAIMS, HUMAN, verdicts, strict=True) if c.topic == topic]
        shares = [
            [np.mean([row[side] for row in rows if row[0] == s]) for s in ("s0", "s1", "s2", "s3")] for side in (1, 2)
        ]
        taus.append(stats.kendalltau(*shares).statistic)
    result = agreement(CLAIMS, verdicts)
    assert result.tau == pytest.approx(np.mean(taus))
    assert result.interval.low <= result.tau <= result.interval.high


def test_ties_of_all_systems_have_no_tau_and_count_as_zero():
    flat = [True for _ in CLAIMS]
    result = agreement(CLAIMS, flat)
    assert (result.tau, result.n_undefined) == (0, 6)
    assert math.isnan(result.pooled_tau)


def test_failed_verdicts_bound_the_agreement():
    verdicts = [None if c.system == "s3" else c.human for c in CLAIMS]
    result = agreement(CLAIMS, verdicts)
    assert result.n_failed == 120
    assert math.isnan(result.tau)
    assert result.low < 0.5  # the best system would be the worst
    assert result.high == pytest.approx(1, abs=0.2)
    assert result.balanced_accuracy == 1


def test_a_system_without_claims_on_a_topic_is_left_out_there():
    some = [c for c in CLAIMS if (c.topic, c.system) != ("t0", "s0")]
    assert agreement(some, [c.human for c in some]).tau == 1


def test_more_accuracy_is_more_agreement_and_chance_is_none():
    points = accuracy_curve(CLAIMS, [0.5, 0.7, 0.9, 1.0], n_draws=60)
    taus = [p.tau for p in points]
    assert taus == sorted(taus)
    assert taus[0] == pytest.approx(0, abs=0.15)
    assert taus[-1] == points[-1].low == 1
    assert all(p.low <= p.tau <= p.high for p in points)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: agreement([], []), "got 0"),
        (lambda: agreement(CLAIMS, HUMAN[:-1]), f"got {len(CLAIMS) - 1} for {len(CLAIMS)}"),
        (lambda: agreement([c for c in CLAIMS if c.system == "s1"], [True] * 120), "got 1"),
        (lambda: accuracy_curve(CLAIMS, [1.2]), "got 1.2"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(RowError, match=message):
        call()
