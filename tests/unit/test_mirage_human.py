"""Human InfoF1 and its agreement with preferences: the paper's tables come out of the released files."""

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scipy.stats import kendalltau

from proofreel.core import RowError
from proofreel.eval import mirage as command
from proofreel.eval.articles import (
    human_groundedness,
    human_info_scores,
    human_preferences,
    info_scores,
    ranking_agreement,
)
from proofreel.eval.articles.human import TABLE_2, TABLE_9, audit, taus, values_of
from proofreel.eval.scores import Score, mean_difference, mean_over


@pytest.fixture(scope="module")
def released(shared_data: Path) -> Path:
    return shared_data / "mirage"


@pytest.fixture(scope="module")
def people(released: Path) -> SimpleNamespace:
    return SimpleNamespace(
        scores=human_info_scores(released / "metric_preference"),
        ratings=human_preferences(released / "human_preference"),
        grounded=human_groundedness(released / "grounding_judgments"),
    )


@pytest.mark.parametrize("measure", ["f1", "precision", "recall"])
def test_all_cells_of_table_9_come_out_as_printed(people, measure):
    columns = [taus(values_of(people.scores[a], measure), people.ratings) for a in (1, 2, 3)]
    rows = [[round(tau, 1) for tau in row] for row in zip(*columns, strict=True)]
    assert rows == [list(row) for row in TABLE_9[measure]]


def test_the_grounding_row_of_table_2_comes_out_as_printed(people):
    assert [round(tau, 1) for tau in taus(people.grounded, people.ratings)] == list(TABLE_2["grounding"])


def test_rouge_l_of_table_1_comes_out_as_printed(released, people):
    pytest.importorskip("rouge_score", reason="extra: proofreel[overlap]")
    from proofreel.eval.articles.human import TABLE_1_ROUGE_L
    from proofreel.eval.articles.reports import human_report

    values = human_report(released)["metrics"]["rougeL"]
    assert [round(v, 1) for v in values["preferences"]] == list(TABLE_1_ROUGE_L["preferences"])
    assert [round(v, 1) for v in values["f1"]] == list(TABLE_1_ROUGE_L["f1"])
    assert round(values["grounding"], 1) == TABLE_1_ROUGE_L["grounding"]


def test_an_unjudged_claim_makes_no_number_and_its_lower_bound_is_the_papers(people):
    with_unjudged = [
        each.recall for by_system in people.scores[1].values() for each in by_system.values() if each.recall.n_failed
    ]
    assert sorted(score.n_failed for score in with_unjudged) == [1, 39]
    assert all(math.isnan(score.value) and score.low < score.high for score in with_unjudged)


def test_released_scores_are_whole_counts_that_the_released_code_cannot_give(released):
    outputs = released / "metric_outputs"
    topics = audit(
        outputs / "qwen_72b_rag_collection_info_f1_qwen_7b.json",
        outputs / "qwen_72b_rag_collection_cite_f1_qwen_7b.json",
        released / "model_preds" / "qwen_72b_rag_relevant_citations.json",
        released / "human_eval_subset.json",
    )
    assert len(topics) == 10
    for topic in topics.values():
        assert None not in (topic.info_p, topic.info_r, topic.cite_p, topic.cite_r)
        assert topic.f1_agrees
        assert topic.cite_p_released > topic.cite_p_most_by_code
        assert topic.cite_r_released <= topic.cite_r_most_by_code <= topic.cite_r_most
    lost = [name for name, topic in topics.items() if topic.cite_r_most_by_code < topic.cite_r_most]
    assert lost == ["2025 Canadian federal election", "2025 Myanmar earthquake", "Blue Ghost Mission 1"]


def test_the_command_prints_every_cell_as_the_paper_does(released, tmp_path, capsys):
    assert command.main(["human", "--judgments", str(released), "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.partition("## Table 2")[0].count(" ok") == 27
    assert printed.count("(65.4)") == 1
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["tau_with_preferences"]["f1"][1][2] == pytest.approx(81.2, abs=0.05)


def test_missing_and_damaged_files_are_named_with_a_remedy(released, tmp_path, capsys):
    assert command.main(["human", "--judgments", str(tmp_path)]) == 1
    assert "metric_" in capsys.readouterr().err
    shutil.copytree(released / "human_preference", tmp_path / "human_preference")
    damaged = tmp_path / "human_preference" / "preference_json_2.json"
    damaged.chmod(0o644)
    damaged.parent.chmod(0o755)
    text = damaged.read_text().replace('"second_prediction_likert": 4', '"second_prediction_likert": "four"', 1)
    damaged.unlink()
    damaged.write_text(text)
    with pytest.raises(RowError, match=r"preference_json_2\.json:\d+.*'four'"):
        human_preferences(tmp_path / "human_preference")


def test_info_scores_of_a_worked_example():
    scores = info_scores([True, True, False, False], [True, False])
    assert (scores.precision.value, scores.recall.value, scores.f1.value) == (0.5, 0.5, 0.5)
    failed = info_scores([True, None], [True])
    assert (failed.f1.low, failed.f1.high, failed.f1.n_failed) == (pytest.approx(2 / 3), 1.0, 1)


def test_nothing_supported_is_0_and_nothing_said_has_no_precision():
    assert info_scores([False], [False]).f1.value == 0.0
    empty = info_scores([], [False, False])
    assert math.isnan(empty.precision.value)
    assert (empty.recall.value, empty.f1.value) == (0.0, 0.0)


METRIC = {"a": {"x": 1.0, "y": 2.0, "z": 2.0}, "b": {"x": 1.0, "y": 1.0, "z": 1.0}, "c": {"x": 3.0, "y": 2.0, "z": 1.0}}
RATED = {"a": {"x": 1.0, "y": 4.0, "z": 5.0}, "b": {"x": 1.0, "y": 2.0, "z": 3.0}, "c": {"x": 1.0, "y": 4.0, "z": 5.0}}


def test_agreement_is_scipys_tau_averaged_with_undefined_topics_as_0_or_left_out():
    tau: Any = kendalltau([1, 2, 2], [1, 4, 5])[0]
    agreement = ranking_agreement(METRIC, RATED)
    assert agreement.mean.value == pytest.approx((tau + 0 - 1) / 3)
    assert (agreement.n_undefined, agreement.n_unknown) == (1, 0)
    assert ranking_agreement(METRIC, RATED, "left_out").mean.value == pytest.approx((tau - 1) / 2)


def test_a_topic_whose_value_is_not_known_bounds_the_mean():
    metric = METRIC | {"c": {"x": math.nan, "y": 2.0, "z": 1.0}}
    mean = ranking_agreement(metric, RATED).mean
    assert math.isnan(mean.value)
    assert (mean.high - mean.low, mean.n_failed) == (pytest.approx(2 / 3), 1)
    with pytest.raises(RowError, match="systems"):
        ranking_agreement(METRIC | {"a": {"x": 1.0}}, RATED)


def test_means_and_paired_differences_keep_bounds_and_leave_undefined_units_out():
    exact = Score(0.5, 0.5, 0.5, 2, 0)
    bounded = Score(math.nan, 0.2, 0.8, 2, 1)
    undefined = Score(math.nan, math.nan, math.nan, 0, 0)
    mean = mean_over({"a": exact, "b": bounded, "c": undefined})
    assert math.isnan(mean.value)
    assert (mean.low, mean.high, mean.n, mean.n_failed) == (pytest.approx(0.35), pytest.approx(0.65), 4, 1)
    assert mean.interval is not None
    assert mean.interval.low == pytest.approx(0.2)
    difference = mean_difference({"a": exact, "b": bounded}, {"a": exact, "b": exact})
    assert (difference.low, difference.high) == (pytest.approx(-0.15), pytest.approx(0.15))


def test_a_paired_difference_that_is_the_same_everywhere_has_no_width():
    first = {str(i): Score(i / 10, i / 10, i / 10, 1, 0) for i in range(1, 6)}
    second = {i: Score(s.value - 0.1, s.value - 0.1, s.value - 0.1, 1, 0) for i, s in first.items()}
    interval = mean_difference(first, second).interval
    assert interval is not None
    assert (interval.low, interval.high) == (pytest.approx(0.1), pytest.approx(0.1))
    alone = mean_over({"1": first["1"]})
    assert alone.value == 0.1
    assert alone.to_dict()["interval_95"] is None
