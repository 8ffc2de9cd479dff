"""OMD-Bench's protocol: stored answers and a judge's, tables against another way to compute them, failures bounded."""

import dataclasses
import itertools
import json
import math
import random

import numpy as np
import pytest
from netcal.metrics import ECE
from scipy import stats

from proofreel.core.errors import ConfigError, RowError
from proofreel.core.pairs import Pair
from proofreel.data_prep.importers.base import Row
from proofreel.data_prep.importers.omdbench import OMDBenchOptions, read
from proofreel.eval.conflicts.answers import ABSTAINS, ConditionAnswer, answers_by_judge, read_answers
from proofreel.eval.conflicts.formulas import (
    CONDITIONS,
    MODALITIES,
    abstention_calibration_error,
    condition_rates,
    level_rates_over_conditions,
    normalised_reliance,
    shapley_reliance,
)
from proofreel.eval.conflicts.page import omd_markdown, omd_result
from proofreel.eval.conflicts.tables import compare_models, model_tables
from proofreel.eval.metrics import N_BINS, aurc
from proofreel.eval.scores.commands import write_rows
from proofreel.eval.scores.intervals import plain
from proofreel.eval.scores.judging import Judgment, Judgments


def drawn_answers(seed: int = 0, questions: int = 6, p_right: float = 0.7, **changes) -> list[ConditionAnswer]:
    rng, answers = random.Random(seed), []
    for number, condition in itertools.product(range(questions), CONDITIONS):
        target = "E" if condition == "C111" else "A"
        answer = target if rng.random() < p_right else rng.choice("BCE" if target == "A" else "ABC")
        logits = tuple(rng.gauss(0, 2) for _ in range(5))
        row = ConditionAnswer(f"q{number}", f"a{number % 3}", condition, target, "E", answer, option_logits=logits)
        answers.append(dataclasses.replace(row, **changes))
    return answers


def scores_of(tables):
    """Every score of the tables, by name."""
    flat = {"accuracy": tables.accuracy, "ace": tables.calibration_error, "ece": tables.ece, "rc_auc": tables.rc_auc}
    for name in ("by_condition", "shapley", "reliance"):
        flat |= {f"{name} {key}": score for key, score in getattr(tables, name).items()}
    for name in ("by_level", "abstention", "confidence"):
        flat |= {f"{name} {k}": score for k, score in enumerate(getattr(tables, name))}
    return flat


def test_the_tables_are_what_the_formulas_give_one_by_one():
    answers = drawn_answers(questions=9)
    tables = model_tables(answers, n_draws=50)
    conditions = [a.condition for a in answers]
    accuracy = condition_rates(conditions, [bool(a.is_right) for a in answers])
    assert {c: score.value for c, score in tables.by_condition.items()} == pytest.approx(accuracy)
    assert [s.value for s in tables.by_level] == pytest.approx(list(level_rates_over_conditions(accuracy)))
    assert {m: s.value for m, s in tables.shapley.items()} == pytest.approx(shapley_reliance(accuracy))
    assert {m: s.value for m, s in tables.reliance.items()} == pytest.approx(normalised_reliance(accuracy))
    observed = [np.mean([bool(a.abstains) for a in answers if a.condition.count("1") == k]) for k in range(4)]
    assert [s.value for s in tables.abstention] == pytest.approx(observed)
    assert tables.should_abstain == (0.0, 0.0, 0.0, 1.0)
    assert tables.calibration_error.value == pytest.approx(abstention_calibration_error(observed, (0, 0, 0, 1)))
    confidence, right = np.array([a.confidence for a in answers]), np.array([bool(a.is_right) for a in answers])
    assert tables.confidence is not None
    assert tables.confidence[3].value == pytest.approx(confidence[np.array(conditions) == "C111"].mean())
    assert tables.ece is not None
    assert tables.rc_auc is not None
    assert tables.ece.value == pytest.approx(ECE(N_BINS).measure(confidence, right.astype(int)))
    assert tables.rc_auc.value == pytest.approx(float(aurc(confidence, right)))
    assert tables.by_anchor["a0"] == np.mean(
        [bool(a.is_right) for a in answers if a.anchor == "a0" and a.condition == "C000"]
    )


def test_what_failed_answers_could_have_been_lies_within_the_bounds():
    answers = drawn_answers(seed=3, questions=3)
    failed = {4, 23}
    broken = [
        dataclasses.replace(a, answer=None, option_logits=None, error="down") if i in failed else a
        for i, a in enumerate(answers)
    ]
    bounds = scores_of(model_tables(broken, n_draws=10))
    assert model_tables(broken, n_draws=10).n_failed == 2
    reached: dict[str, list[float]] = {name: [] for name in bounds}
    sure, torn = (40.0, 0.0, 0.0, 0.0, 0.0), (0.0,) * 5
    for options, logits in itertools.product(
        itertools.product("ABE", repeat=2), itertools.product((sure, torn), repeat=2)
    ):
        given = dict(zip(sorted(failed), zip(options, logits, strict=True), strict=True))
        whole = [
            dataclasses.replace(a, answer=given[i][0], option_logits=given[i][1]) if i in given else a
            for i, a in enumerate(answers)
        ]
        for name, score in scores_of(model_tables(whole, n_draws=10)).items():
            reached[name].append(score.value)
    for name, values in reached.items():
        low, high = bounds[name].low, bounds[name].high
        assert low - 1e-9 <= min(values) <= max(values) <= high + 1e-9, name
        if name.split()[0] in ("accuracy", "by_condition", "by_level", "abstention", "ace"):
            assert (min(values), max(values)) == pytest.approx((low, high)), name
        assert math.isnan(bounds[name].value) == (low < high), name


def test_unreadable_answers_leave_every_rate_and_are_counted():
    answers = drawn_answers()
    unreadable = [dataclasses.replace(a, question="extra", answer=None) for a in answers[:8]]
    assert model_tables([*answers, *unreadable], n_draws=10).by_condition["C000"].value == (
        model_tables(answers, n_draws=10).by_condition["C000"].value
    )
    tables = model_tables([*answers, *unreadable], n_draws=10)
    assert (tables.n, tables.n_invalid, tables.n_failed) == (56, 8, 0)


def test_a_model_without_confidence_has_no_confidence_tables_and_all_failed_is_unknown():
    tables = model_tables(drawn_answers(option_logits=None), n_draws=10)
    assert (tables.confidence, tables.ece, tables.rc_auc, tables.confidence_method) == (None, None, None, None)
    failed = model_tables(drawn_answers(option_logits=None, answer=None, error="down"), n_draws=10)
    assert (failed.accuracy.low, failed.accuracy.high, failed.n_failed) == (0.0, 1.0, 48)
    assert (failed.calibration_error.low, failed.calibration_error.high) == (0.0, 1.0)
    assert all(math.isnan(share) for share in failed.shapley_shares.values())


def test_intervals_resample_questions_or_anchors_whole():
    answers = drawn_answers(questions=12)
    by_question, by_anchor = model_tables(answers, n_draws=200), model_tables(answers, unit="anchor", n_draws=200)
    assert by_question.accuracy.interval is not None
    assert by_anchor.accuracy.interval is not None
    assert (by_question.accuracy.interval.n_groups, by_anchor.accuracy.interval.n_groups) == (12, 3)
    assert by_question.accuracy.interval.low <= by_question.accuracy.value <= by_question.accuracy.interval.high
    constant = model_tables(drawn_answers(p_right=1.0), n_draws=50).accuracy
    assert constant.interval is not None
    assert (constant.value, constant.interval.low, constant.interval.high) == (1.0, 1.0, 1.0)


def test_signed_rank_tests_compare_what_corruption_costs_each_anchor():
    answers = [dataclasses.replace(a, anchor=a.question) for a in drawn_answers(questions=10)]
    rates = {
        c: np.array([float(bool(a.is_right)) for a in answers if a.condition == c]) for c in ("C100", "C010", "C001")
    }
    test = model_tables(answers, n_draws=10).reliance_tests["text - audio"]
    assert test.mean_difference == pytest.approx(np.mean(rates["C010"] - rates["C001"]))


def test_a_model_equals_itself_and_differs_from_another_as_its_tables_say():
    one, other = drawn_answers(seed=1, questions=10), drawn_answers(seed=2, questions=10, p_right=0.3)
    same = compare_models({"a": one, "b": one}, n_draws=50).pairs[0]
    assert all((s.value, s.low, s.high) == (0.0, 0.0, 0.0) for s in same.differences.values())
    assert same.permutation_p == 1.0
    pair = compare_models({"a": one, "b": other}, n_draws=50).pairs[0]
    tables = [model_tables(each, n_draws=50) for each in (one, other)]
    assert pair.differences["accuracy"].value == pytest.approx(tables[0].accuracy.value - tables[1].accuracy.value)
    for m in MODALITIES:
        expected = tables[0].shapley[m].value - tables[1].shapley[m].value
        assert pair.differences[f"shapley {m}"].value == pytest.approx(expected)
    right = [[bool(a.is_right) for a in each if a.condition == "C001"] for each in (one, other)]
    b, c = (sum(x and not y for x, y in zip(*order, strict=True)) for order in (right, right[::-1]))
    assert pair.mcnemar_p["C001"] == pytest.approx(stats.binomtest(b, b + c).pvalue if b + c else 1.0)
    assert pair.permutation_p < 0.05


def test_friedman_needs_three_models_and_takes_anchors_as_blocks():
    models = {name: drawn_answers(seed=i, questions=12) for i, name in enumerate("abc")}
    tests = compare_models(models, n_draws=10).friedman
    blocks = [
        [np.mean([bool(a.is_right) for a in models[m] if a.anchor == anchor and a.condition == "C000"]) for m in "abc"]
        for anchor in ("a0", "a1", "a2")
    ]
    assert tests["k=0"].n_groups == 3
    expected = stats.friedmanchisquare(*np.array(blocks).T)
    assert tests["k=0"].p_value == pytest.approx(expected.pvalue, nan_ok=True)
    assert compare_models(dict(list(models.items())[:2]), n_draws=10).friedman == {}


def test_models_are_compared_on_the_same_instances_only():
    with pytest.raises(RowError, match="same instances"):
        compare_models({"a": drawn_answers(), "b": drawn_answers()[:-1]})
    with pytest.raises(RowError, match="one kind of media"):
        model_tables([*drawn_answers(), *drawn_answers(data="synthetic")])


def test_answers_survive_their_file(tmp_path):
    answers = [*drawn_answers(), *drawn_answers(data="synthetic", answer=None, option_logits=None, error="down")]
    assert read_answers(write_rows(answers, tmp_path / "answers.jsonl")) == answers


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"condition": "C002"}, "no such condition"),
        ({"answr": "A"}, "did you mean answer"),
        ({"log_probability": -0.1}, "give one"),
        ({"option_logits": [1.0]}, "two numbers"),
        ({"option_logits": None, "log_probability": 0.5}, "at most 0"),
        ({"error": "down"}, "keep one"),
        ({}, "given twice"),
    ],
)
def test_a_bad_line_is_named_with_its_file_number_and_remedy(tmp_path, change, words):
    path = write_rows(drawn_answers()[:2], tmp_path / "answers.jsonl")
    row = json.loads(path.read_text(encoding="utf-8").splitlines()[0]) | change
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    with pytest.raises((RowError, ConfigError), match=words) as error:
        read_answers(path)
    assert "answers.jsonl:3" in str(error.value)


def test_one_file_has_one_way_to_read_confidence(tmp_path):
    rows = [drawn_answers()[0], dataclasses.replace(drawn_answers()[1], option_logits=None, log_probability=-1.0)]
    with pytest.raises(RowError, match="one way"):
        read_answers(write_rows(rows, tmp_path / "answers.jsonl"))
    with pytest.raises(RowError, match="no such file"):
        read_answers(tmp_path / "absent.jsonl")


def anchor_pairs(tmp_path) -> list[Pair]:
    question = {"question": "Which film?", "options": ["Dumbo", "Bambi", "Jaws", ABSTAINS], "answer": "A"}
    anchors = [
        {"id": name, "video": f"{name}.mp4", "audio": name, "text": f"{name}.", "questions": [question]}
        for name in ("dog", "cat")
    ]
    path = tmp_path / "anchors.jsonl"
    path.write_text("\n".join(map(json.dumps, anchors)), encoding="utf-8")
    return [item.pair for item in read(path, OMDBenchOptions()) if isinstance(item, Row)]


def test_a_judge_answers_with_what_it_supports_most_and_abstains_where_it_supports_nothing(tmp_path):
    pairs = anchor_pairs(tmp_path)

    def judge(asked):
        of = {}
        for pair in asked:
            p = {"Dumbo": 0.9, "Bambi": 0.8, "Jaws": 0.1}[pair.meta["option"]]
            p = p / 2 if pair.meta["condition"] == "C111" else p
            of[pair.id] = Judgment(p >= 0.5, p)
            if pair.group == "cat" and pair.meta["condition"] == "C010":
                of[pair.id] = Judgment(None, error="no frames")
        return Judgments(of, len(asked), len(asked))

    answers = answers_by_judge(judge, pairs)
    assert len(answers) == 16
    by_condition = {a.condition: a for a in answers if a.anchor == "dog"}
    assert (by_condition["C000"].answer, by_condition["C000"].is_right) == ("Dumbo", True)
    assert (by_condition["C111"].answer, by_condition["C111"].should_abstain) == (ABSTAINS, True)
    # p / (1 - p) of 0.9, 0.8, 0.1 and of the threshold, 1
    assert by_condition["C000"].confidence == pytest.approx(9 / (9 + 4 + 1 / 9 + 1))
    assert [a.error for a in answers if a.error] == ["no frames"]
    tables = model_tables(answers, n_draws=10)
    assert (tables.by_condition["C010"].low, tables.by_condition["C010"].high) == (0.5, 1.0)


def test_claims_alone_are_no_questions():
    with pytest.raises(RowError, match="give anchors questions"):
        answers_by_judge(lambda pairs: Judgments({}, 0, 0), [])


def test_the_whole_result_is_json_and_text():
    result = omd_result({"one": drawn_answers(), "two": drawn_answers(seed=5)}, n_draws=20)
    text = json.dumps(plain(result), allow_nan=False)
    assert json.loads(text)["models"]["one"]["answers"][0]["question"] == "q0"
    page = omd_markdown(result)
    assert "one - two" in page
    assert "table 14" in page
