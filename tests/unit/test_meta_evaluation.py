"""Scores by a verifier against scores by people: tau over topics, failures bounded, how much accuracy is enough."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from proofreel.cli import main
from proofreel.core.errors import RowError
from proofreel.eval.scores import JudgedClaim, accuracy_curve, agreement, read_judged_claims
from proofreel.eval.scoring import Prediction, write_predictions


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
        shares = [
            [
                np.mean([y for c, y in zip(CLAIMS, side, strict=True) if (c.topic, c.system) == (topic, system)])
                for system in ("s0", "s1", "s2", "s3")
            ]
            for side in (HUMAN, verdicts)
        ]
        taus.append(np.asarray(stats.kendalltau(*shares))[0])
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


def written(folder, *, accuracy=0.9, failed=()):
    """A table of claims and a verifier's predictions of them, as files."""
    table = folder / "claims.csv"
    rows = [f"{c.id},{c.topic},{c.system},{'supported' if c.human else 'refuted'}" for c in CLAIMS]
    table.write_text("\n".join(["id,topic,system,human", *rows]) + "\n")
    rng, predictions = np.random.default_rng(0), []
    for i, claim in enumerate(CLAIMS):
        right = rng.random() < accuracy
        margin = math.nan if i in failed else 2.0 if claim.human == right else -2.0
        p = math.nan if i in failed else 1 / (1 + math.exp(-margin))
        error = "no such file" if i in failed else None
        predictions.append(Prediction(claim.id, margin, p, None, "test", "", "", "annotated", "text", error))
    write_predictions(folder / "v.parquet", predictions[::-1], {})
    return table


def test_the_command_writes_what_the_functions_give(tmp_path, capsys):
    table = written(tmp_path, failed=(3, 5))
    words = ["--verdicts", f"v={tmp_path / 'v.parquet'}", "--cost", "v=0.25", "--out", str(tmp_path / "out")]
    assert main(["agreement", "--claims", str(table), *words]) == 0
    assert "| v | 0." in capsys.readouterr().out
    numbers = json.loads((tmp_path / "out" / "agreement.json").read_text())
    assert numbers["verifiers"]["v"]["n_failed"] == 2
    assert numbers["verifiers"]["v"]["cost_per_claim"] == 0.25
    assert numbers["verifiers"]["v"]["low"] <= numbers["verifiers"]["v"]["high"]
    assert numbers["accuracy_curve"][-1]["tau"] == 1
    assert (tmp_path / "out" / "agreement.png").stat().st_size > 10_000
    assert read_judged_claims(table) == CLAIMS


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1-1-1,t1,s1,true", ":482: stands twice"),
        ("new,t1,s1,perhaps", "'perhaps'"),
        ("new,,s1,true", "must not be empty"),
    ],
)
def test_bad_rows_of_the_table_are_named(tmp_path, line, message):
    table = written(tmp_path)
    table.write_text(table.read_text() + line + "\n")
    with pytest.raises(RowError, match=message):
        read_judged_claims(table)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--verdicts", "v"], "name=path"),
        (["--verdicts", "v={folder}/v.parquet", "--cost", "w=1"], "['w']"),
        (["--verdicts", "v={folder}/v.parquet", "--cost", "v=cheap"], "'v=cheap'"),
        (["--verdicts", "v={folder}/less.parquet"], "lacks 1 claims"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(tmp_path, capsys, words, message):
    table = written(tmp_path)
    rest = [Prediction(c.id, 1.0, 0.7310586, None, "test", "", "", "annotated", "text") for c in CLAIMS[1:]]
    write_predictions(tmp_path / "less.parquet", rest, {})
    filled = [word.format(folder=tmp_path) for word in words]
    assert main(["agreement", "--claims", str(table), *filled, "--out", str(tmp_path / "out")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
