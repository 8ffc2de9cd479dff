"""Statements hold question and answer; rewriting never loses an answer unnoticed; options are only cleaned."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofreel.core.errors import RowError
from proofreel.data_prep.importers.qa_statements import (
    distinct_options,
    option_number,
    plain_options,
    same_text,
    statement,
    statements,
)
from proofreel.data_prep.language.answers import LanguageModelError
from proofreel.data_prep.language.rewrite import read_with_statements

ASKED = [("What colour is it?", "red"), ("What colour is it?", "blue")]


@pytest.mark.parametrize(
    ("answer", "ending"),
    [("White", "White."), ("White.", "White."), ("it is, ", "it is."), ("Stop!", "Stop!"), ("12.97", "12.97.")],
)
def test_a_statement_holds_question_and_answer_and_ends_once(answer, ending):
    assert statement("What\n colour? ", answer) == f'The answer to the question "What colour?" is: {ending}'


@given(st.text("abc .,", min_size=1), st.text("abc .,", min_size=1))
def test_answers_that_differ_give_statements_that_differ(one, other):
    if same_text(one) and same_text(other):
        same = same_text(one) == same_text(other)
        assert (same_text(statement("q", one)) == same_text(statement("q", other))) == same


@pytest.mark.parametrize(("question", "answer"), [("", "a"), ("q", " "), ("q", ";")])
def test_nothing_is_stated_without_question_or_answer(question, answer):
    with pytest.raises(RowError, match="is empty"):
        statement(question, answer)


def test_a_model_may_write_the_statements():
    found = statements(ASKED, lambda pairs: [f"It is\n{answer}." for _, answer in pairs])
    assert found == ["It is red.", "It is blue."]


@pytest.mark.parametrize("written", [["It is red.", ""], ["Coloured.", "Coloured."], ["It is red.", None]])
def test_a_lost_answer_is_refused_and_the_template_stands_in_only_when_told(written):
    with pytest.raises(RowError, match="lost the answer"):
        statements(ASKED, lambda pairs: written)
    found = statements(ASKED, lambda pairs: written, fall_back=True)
    assert found[1] == statement(*ASKED[1])
    assert found[0] == (written[0] if written[0] != written[1] else statement(*ASKED[0]))


def test_one_statement_per_answer_is_demanded_even_with_a_fall_back():
    with pytest.raises(RowError, match="got 1 for 2"):
        statements(ASKED, lambda pairs: ["It is red."], fall_back=True)


def test_a_letter_names_its_option():
    assert [option_number(letter, "wxyz") for letter in ("A", " D ")] == [0, 3]
    for letter in ("E", "a", "AB", "", None, 1):
        with pytest.raises(RowError, match="names no option"):
            option_number(letter, "wxyz")
    with pytest.raises(RowError, match="more options than letters"):
        option_number("A", ["x"] * 27)


def test_letters_go_only_where_every_option_opens_with_its_own():
    assert plain_options(["A. red", "(B) blue", "C: C. elegans"]) == ["red", "blue", "C. elegans"]
    for options in (["E. coli", "C. elegans"], ["A: 1, B: 2", "A: 2, B: 1"], ["A.", "B."], ["A. red", "blue"], []):
        assert plain_options(options) == options


def test_the_right_option_outlives_its_copies():
    assert distinct_options(["red", "blue", "Red ", "green", "blue."], right=2) == ([1, 2, 3], [(0, 2), (4, 1)])
    assert distinct_options(["x", "y"], right=0) == ([0, 1], [])


def test_a_model_that_does_not_answer_is_named_as_the_reason_and_the_template_stands_in_only_when_told():
    def complete(messages: object):
        raise LanguageModelError("endpoint is down, got 503; wait")

    def read(path, options, rewrite, fall_back) -> Any:
        yield from statements(ASKED, rewrite, fall_back)

    def told(fall_back: bool) -> list:
        return list(read_with_statements(read, Path("x"), None, complete, 2, fall_back))

    with pytest.raises(RowError, match="wrote none, got endpoint is down"):
        told(fall_back=False)
    assert told(fall_back=True) == [statement(*asked) for asked in ASKED]
