"""The numbers of a report: every table's rows are measured alike, and what is stored is held against what is found."""

import dataclasses
import json
import math

import numpy as np
import pytest
from scipy.stats import binom
from sklearn import metrics as sk

from proofreel.eval.calibration.fit import PerGroup, fit_decision
from proofreel.eval.decisions.abstention import fit_band
from proofreel.eval.metrics.base import DrawnRows
from proofreel.eval.metrics.calibration_error import ece_event, ece_top_label
from proofreel.eval.metrics.catalogue import METRICS
from proofreel.eval.metrics.columns import metric_rows
from proofreel.eval.metrics.draws import ap_draws, aurc_draws
from proofreel.eval.metrics.ranking import average_precision
from proofreel.eval.metrics.selective import augrc, aurc, e_aurc
from proofreel.eval.reports.caveats import IN_SAMPLE, UNCHECKED, leaks, watermark
from proofreel.eval.reports.numbers import band_found, measure, points_found, proportions_found
from proofreel.eval.reports.page import jsonable
from proofreel.eval.reports.table_rows import (
    Scored,
    apply_decision,
    full_row,
    right,
    rows_by,
    rows_by_size,
    table_row,
    worst_groups,
)
from proofreel.eval.reports.tables import (
    columns,
    every_number,
    main_tables,
    meanings,
    part_tables,
    threshold_tables,
)
from proofreel.eval.scoring.predictions import Prediction, groups_of, labels_of, margins_of
from proofreel.eval.uncertainty.bootstrap import resample
from proofreel.models.decision.calibration import IDENTITY
from proofreel.models.decision.calibrator import sigmoid
from proofreel.models.decision.thresholds import Decision, OperatingPoint

HALF = Decision(IDENTITY, (OperatingPoint("half", "f1", 0.5, 1.0, tp=1, fp=0, tn=1, fn=0, positive_rate=0.5),), "half")
NOTHING = {"pair_ids": [], "groups": []}


def _rows(n: int = 200, n_groups: int = 25, split: str = "test", seed: int = 0, decimals: int = 6) -> list[Prediction]:
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        positive = bool(rng.random() < 0.45)
        margin = float(np.float32(np.round(rng.normal(1.5 if positive else -1.0, 2.0), decimals)))
        rows.append(
            Prediction(
                pair_id=f"{split}-{i}",
                margin=margin,
                p_supported=float(sigmoid(margin)),
                label="supported" if positive else "refuted",
                split=split,
                group=f"{split}-v{int(n_groups * rng.random() ** 1.5)}",
                role=("Action", "Object")[i % 2],
                origin="annotated",
                modality="visual",
            )
        )
    return rows


def _failed(row: Prediction) -> Prediction:
    return dataclasses.replace(row, margin=math.nan, p_supported=math.nan, error="gone")


@pytest.mark.parametrize("decimals", [6, 0])
@pytest.mark.parametrize("n", [1, 7, 1_500])
def test_sorted_draws_are_the_metrics_of_the_rows_each_draw_took(n: int, decimals: int) -> None:
    rng = np.random.default_rng(n)
    scores, labels = np.round(rng.normal(size=n), decimals), rng.integers(2, size=n).astype(float)
    drawn = resample(rng.integers(9, size=n), 70)
    weights = drawn.times_DG.astype(np.float64)[:, drawn.group_of_row]
    np.testing.assert_allclose(ap_draws(scores, labels, drawn), average_precision(scores, labels, weights), rtol=1e-12)
    np.testing.assert_allclose(aurc_draws(scores, labels, drawn), aurc(scores, labels, weights), rtol=1e-12)


def test_sorted_draws_of_no_rows_are_undefined() -> None:
    drawn = resample([], 5)
    nothing = np.zeros(0)
    assert np.isnan(ap_draws(nothing, nothing, drawn)).all()
    assert np.isnan(aurc_draws(nothing, nothing, drawn)).all()


@pytest.mark.parametrize("decimals", [6, 0])
def test_every_other_interval_rests_on_the_metric_of_the_rows_each_draw_took(decimals: int) -> None:
    scored = apply_decision(_rows(decimals=decimals), HALF)
    drawn = resample(scored.groups, 12, seed=3)
    columns = metric_rows(scored.margins, scored.p, scored.labels, 0.5, log_odds=scored.logits)
    found = {m.name: m.draws(DrawnRows(columns, drawn)) for m in METRICS.values() if m.draws is not None}
    for d in range(drawn.n_draws):
        rows = np.repeat(np.arange(200), drawn.times_DG[d].astype(int)[drawn.group_of_row])
        m, p, y = scored.margins[rows], scored.p[rows], scored.labels[rows]
        said, sure = p >= 0.5, np.abs(p - 0.5)
        correct = (said == y).astype(float)
        expected = {
            "ap": sk.average_precision_score(y, m),
            "f1_macro": sk.f1_score(y, said, average="macro"),
            "mcc": sk.matthews_corrcoef(y, said),
            "precision": sk.precision_score(y, said),
            "recall": sk.recall_score(y, said),
            "specificity": sk.recall_score(1 - y, ~said),
            "positive_rate": y.mean(),
            "brier_before": sk.brier_score_loss(y, p),
            "nll_before": sk.log_loss(y, p),
            "ece_before": ece_event(p, y),
            "ece_top_label": ece_top_label(p, y),
            "aurc": float(aurc(sure, correct)),
            "e_aurc": float(e_aurc(sure, correct)),
            "augrc": float(augrc(sure, correct)),
            "auc_after": sk.roc_auc_score(y, m),
        }
        assert {name: found[name][d] for name in expected} == pytest.approx(expected, abs=1e-9)


def test_every_interval_holds_its_value_and_has_one() -> None:
    row = full_row("all", apply_decision(_rows(600, 60), HALF))
    assert set(row["intervals"]) <= set(row)
    for name, interval in row["intervals"].items():
        assert interval["low"] - 1e-9 <= row[name] <= interval["high"] + 1e-9, name
        assert interval["n_draws"] == (
            10_000
            if name in ("auc", "f1", "balanced_accuracy", "brier", "nll", "ece_event", "accuracy_at_coverage")
            else 1_000
        ), name
    assert row["delong"]["value"] == pytest.approx(row["auc"])


def test_a_part_with_few_groups_has_values_but_no_interval() -> None:
    rows = _rows(300, 40)
    rows = [dataclasses.replace(r, role="Rare" if r.group in ("test-v1", "test-v2") else "Common") for r in rows]
    common, rare = rows_by("role", apply_decision(rows, HALF), n_draws=50)
    assert (common["name"], rare["name"], rare["n_groups"]) == ("Common", "Rare", 2)
    assert common["n"] + rare["n"] == 300
    assert common["intervals"]["auc"]["low"] < common["auc"] < common["intervals"]["auc"]["high"]
    assert 0 < rare["auc"] < 1
    assert all(math.isnan(interval["low"]) for interval in rare["intervals"].values())


def test_group_sizes_count_all_rows_of_a_group_and_rows_without_a_group_stand_alone() -> None:
    sizes = [1, 4, 5, 60]
    rows = [
        dataclasses.replace(row, group=f"g{k}")
        for k, size in enumerate(sizes)
        for row in _rows(size, split=f"s{k}", seed=k)
    ]
    rows[1] = _failed(rows[1])
    rows += [dataclasses.replace(row, group="") for row in _rows(3, split="alone")]
    found = rows_by_size(apply_decision(rows, HALF), n_draws=10)
    assert [(row["name"], row["n_rows"]) for row in found] == [
        ("1 row", 4),
        ("2–4 rows", 4),
        ("5–9 rows", 5),
        ("50+ rows", 60),
    ]


def test_worst_groups_are_those_with_most_errors_beyond_the_average() -> None:
    def group(name: str, n: int, wrong: int) -> list[Prediction]:
        rows = _rows(n, split=name)
        said = [dataclasses.replace(r, margin=2.0 if r.label == "supported" else -2.0, group=name) for r in rows]
        return [dataclasses.replace(r, margin=-r.margin) if i < wrong else r for i, r in enumerate(said)]

    rows = group("bad", 40, 20) + group("small", 1, 1) + group("large", 100, 12) + group("good", 59, 0)
    first, second = worst_groups(apply_decision(rows, HALF))
    rate = 33 / 200
    assert (first["name"], first["n"], first["n_wrong"]) == ("bad", 40, 20)
    assert first["excess_errors"] == pytest.approx(20 - 40 * rate)
    assert first["p_value"] == pytest.approx(float(binom.sf(19, 40, rate)))
    assert first["adjusted_p"] == pytest.approx(min(1, 4 * first["p_value"]))
    assert (second["name"], second["excess_errors"]) == ("small", pytest.approx(1 - rate))
    assert second["adjusted_p"] > 0.05


def test_probabilities_are_corrected_by_role_where_the_calibration_does_so() -> None:
    rows = _rows(1_200, 60, split="calibration", seed=4)
    shifted = [dataclasses.replace(r, margin=r.margin + 3) if r.role == "Object" else r for r in rows]
    decision = fit_decision(shifted, "platt", per_group=PerGroup("role"))
    scored = apply_decision(shifted, decision)
    roles = [p.role for p in shifted]
    np.testing.assert_array_equal(scored.p, decision.calibration.predict(margins_of(shifted), roles))
    row = full_row("all", scored)
    assert row["auc_after"] > row["auc"]  # the shift hides from AUC of margins what the correction brings back
    assert any(
        cells[0].text == "AUC of p, corrected by part" for cells in every_number(_numbers(shifted, decision)).rows
    )


def _numbers(rows: list[Prediction], decision: Decision = HALF) -> dict:
    return measure(rows, decision, fitted_rows=NOTHING)


@pytest.fixture(scope="module")
def fitted() -> tuple[list[Prediction], Decision]:
    rows = _rows(900, 60, split="calibration", seed=2)
    decision = fit_decision(rows, "platt", ["f1", "precision_at:0.8", "cost:5:1"])
    p = decision.calibration.predict(margins_of(rows))
    band = fit_band(p, labels_of(rows), groups_of(rows), "selective_accuracy", 0.85, n_draws=100)
    return rows, dataclasses.replace(decision, abstain=band)


def test_points_applied_to_other_rows_are_counted_as_scikit_learn_counts(fitted) -> None:
    rows = _rows(400, 30, seed=8)
    rows[3], rows[4] = _failed(rows[3]), dataclasses.replace(rows[4], label=None)
    scored = apply_decision(rows, fitted[1])
    y, p = scored.used.labels, scored.used.p
    assert len(y) == 398
    found = points_found(scored, fitted[1])
    assert [point["name"] for point in found if point["is_default"]] == ["f1"]
    for point in found:
        said = p >= point["stored"]["threshold"]
        tn, fp, fn, tp = sk.confusion_matrix(y, said, labels=[0, 1]).ravel()
        assert [point["found"][k] for k in ("tn", "fp", "fn", "tp")] == [tn, fp, fn, tp]
        expected = {
            "f1": sk.f1_score(y, said),
            "precision_at": sk.precision_score(y, said),
            "cost": (5 * fp + fn) / 398,
        }
        if point["stored"]["objective"] in expected:
            assert point["found"]["metric"] == pytest.approx(expected[point["stored"]["objective"]])
        interval = point["found"]["intervals"]["recall"]
        assert interval["low"] <= point["found"]["recall"] <= interval["high"]


def test_a_band_applied_to_the_rows_it_was_fitted_on_gives_what_it_stores(fitted) -> None:
    rows, decision = fitted
    found = band_found(apply_decision(rows, decision), decision.abstain)
    assert found is not None
    assert {k: found["found"][k] for k in ("tp", "fn", "abstained_negative", "coverage", "selective_accuracy")} == {
        k: found["stored"][k] for k in ("tp", "fn", "abstained_negative", "coverage", "selective_accuracy")
    }
    assert band_found(apply_decision(rows, decision), None) is None


def test_shares_of_supported_claims_are_told_apart_by_whether_the_truth_is_known(fitted) -> None:
    rows = _rows(400, 30, seed=8)
    rows[:100] = [dataclasses.replace(r, label=None) for r in rows[:100]]
    known, unknown = proportions_found(apply_decision(rows, fitted[1]), fitted[1])
    assert (known["n"], unknown["n"]) == (300, 100)
    assert known["true_share"] == pytest.approx(np.mean([r.label == "supported" for r in rows[100:]]))
    assert math.isnan(unknown["true_share"])
    for sample in (known, unknown):
        for each in sample["corrected"]:
            assert each["low"] <= each["value"] <= each["high"]


def test_a_verifier_that_only_guesses_gets_no_corrected_share() -> None:
    guess = OperatingPoint("half", "f1", 0.5, 0.5, tp=5, fp=5, tn=5, fn=5, positive_rate=0.5)
    decision = Decision(IDENTITY, (guess,), "half")
    (sample,) = proportions_found(apply_decision(_rows(50), decision), decision)
    assert "say nothing about the share" in sample["corrected"][0]["refused"]


@pytest.mark.parametrize(
    ("split", "fitted_rows", "mark"),
    [
        ("test", NOTHING, ""),
        ("test", None, UNCHECKED),
        (None, NOTHING, UNCHECKED),
        ("train", NOTHING, IN_SAMPLE),
        ("validation", NOTHING, IN_SAMPLE),
        ("test", {"pair_ids": ["test-3"], "groups": []}, IN_SAMPLE),
        ("test", {"pair_ids": [], "groups": ["test-v3"]}, IN_SAMPLE),
    ],
)
def test_rows_that_were_fitted_on_and_rows_of_which_nobody_knows_are_marked(split, fitted_rows, mark) -> None:
    rows = [dataclasses.replace(row, split=split) for row in _rows(40, 6)]
    assert watermark(rows, IDENTITY, fitted_rows) == mark
    assert bool(leaks(rows, IDENTITY, fitted_rows)) == bool(mark)


@pytest.mark.parametrize("rows", [[], [_failed(_rows(1)[0])], _rows(1), _rows(2, 1)], ids=["none", "failed", "1", "2"])
def test_hardly_any_rows_give_numbers_and_tables_all_the_same(rows: list[Prediction], fitted) -> None:
    numbers = _numbers(rows, fitted[1])
    json.dumps(jsonable(numbers), allow_nan=False)
    tables = [*main_tables(numbers), *part_tables(numbers), every_number(numbers), *threshold_tables(numbers)]
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)
    assert "nan" not in str([table.rows for table in tables])


def test_every_number_that_is_shown_is_there_and_says_what_it_means() -> None:
    numbers = _numbers(_rows(300, 30))
    lines = [metric for metric in METRICS.values() if metric.label and metric.name != "auc_after"]
    shown = {metric.name for metric in lines} | {metric.before for metric in lines if metric.before}
    assert shown | {column.key for column in columns()} <= set(numbers["headline"])
    tables = [*main_tables(numbers), every_number(numbers), *threshold_tables(numbers)]
    explained = {name for names, _ in meanings(tables) for name in names.split("; ")}
    assert {metric.line for metric in lines} <= explained


def test_right_is_agreement_at_the_threshold() -> None:
    scored: Scored = apply_decision(_rows(50), HALF)
    assert list(right(scored)) == [float((p >= 0.5) == y) for p, y in zip(scored.p, scored.labels, strict=True)]
    assert table_row("all", scored, n_draws=10)["accuracy"] == pytest.approx(right(scored).mean())
