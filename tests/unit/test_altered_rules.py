"""Every rule of DualFact's appendix E for altered values is enforced, and names what it found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofreel.data_prep.negatives.claim_changes import Truths, violations
from proofreel.data_prep.negatives.phrases import SegmentFacts
from proofreel.data_prep.negatives.vocabulary import Vocabulary, read_word_groups

NOTHING = Vocabulary.collect([], read_word_groups())


@pytest.mark.parametrize(
    ("role", "value", "true", "message"),
    [
        ("Object", "red bowl", "red cup", "shares a word with"),
        ("Action", "chopped", "chopping", "shares a stem with"),
        ("Object", "pancake", "frying pan", "shares letters with"),
        ("Location", "cupboard", "board", "shares letters with"),
        ("Object", "colander", "coriander", "shares letters with"),
        ("Object", "three eggs", "two eggs", "numbers or quantities only"),
        ("Count", "three", "2", "numbers or quantities only"),
        ("Location", "skillet", "frying pan", "is a synonym"),
        ("Ingredient", "meat", "chicken", "is a kind or part"),
        ("Ingredient", "yolk", "egg", "is a kind or part"),
        ("Action", "slicing", "chopping", "serves the same function, cutting"),
        ("Tool", "scissors", "knife", "serves the same function, cutting"),
        ("Object", "food", "carrot", "may hold nearly everywhere"),
        ("Object", "", "carrot", "must be a word or a few in one line"),
        ("Object", "a\nb", "carrot", "must be a word or a few in one line"),
        ("Object", "...", "carrot", "must be a word or a few in one line"),
    ],
)
def test_every_rule_is_enforced_and_named(role, value, true, message):
    assert [m for m in violations(role, value, ["zzz", true], NOTHING) if message in m]


@pytest.mark.parametrize(
    ("role", "value", "true"),
    [
        ("Action", "measuring", "chopping"),
        ("Ingredient", "potato", "tomato"),
        ("Tool", "hammer", "knife"),
        ("Location", "floor", "pan"),
        ("Colour", "red", "blue"),
        ("Object", "wombat", "pancake"),
    ],
)
def test_contradicting_values_pass_and_the_rules_are_symmetric(role, value, true):
    assert violations(role, value, [true], NOTHING) == violations(role, true, [value], NOTHING) == []


@given(st.text(max_size=20), st.text(max_size=20), st.sampled_from(["Action", "Object", "Colour"]))
def test_any_text_can_be_judged_and_no_value_contradicts_itself(value, true, role):
    assert all(", got " in message for message in violations(role, value, [true], NOTHING))
    assert violations(role, value, [value], NOTHING)


def test_the_truths_of_a_segment_come_from_both_layers_of_facts():
    facts = SegmentFacts(
        {"Ingredient": ["onion"], "Tool": ["big knife"]}, ["chop shallots with knife on board", "stir"]
    )
    truths = Truths.of(facts, ["chop on the bench"], NOTHING.groups)
    assert truths.values == {
        "object": ["onion", "shallots"],
        "tool": ["big knife", "knife"],
        "action": ["chop"],
        "location": ["board"],
    }
    assert truths.contradict(("action", "object"), ("fry", "egg"))
    assert not truths.contradict(("action", "object"), ("fry", "shallot"))
    assert not truths.contradict(("object",), ("board",))  # shown, as a location
    assert not truths.contradict(("location",), ("bench",))  # told by the caption
