"""Values are counted where they are true, and drawn as often as they are true."""

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofreel.core.pairs import Pair, Passage
from proofreel.data_prep.negatives.vocabulary import SHIPPED, DrawTable, Vocabulary, balanced_weights, read_word_groups

GROUPS = read_word_groups(SHIPPED)


def pair(number: int, role: str, claim: str, label: str | None = "supported") -> Pair:
    return Pair(str(number), claim, (Passage("x"),), label, role=role)  # type: ignore[arg-type]


def collect(*facts: tuple[str, str]) -> Vocabulary:
    return Vocabulary.collect((pair(i, *fact) for i, fact in enumerate(facts)), GROUPS)


def expected_draws(counts: list[int], classes: list[int]) -> list[float]:
    """How often each value is drawn if every true fact is altered once, by the weights."""
    weights = balanced_weights(counts, classes)
    found = [0.0] * len(counts)
    for true, count in enumerate(counts):
        rest = sum(w for w, name in zip(weights, classes, strict=True) if name != classes[true])
        for i, weight in enumerate(weights):
            if classes[i] != classes[true]:
                found[i] += count * weight / rest
    return found


def test_true_values_are_counted_by_role_and_all_else_is_not():
    rows = [
        pair(0, "Tool", "Tool is knife."),
        pair(1, "Tool", "Tool is knife."),
        pair(2, "Tool", "Tool is hammer.", "refuted"),
        pair(3, "Tool", "Tool is saw.", None),
        pair(4, "contextual", "Cut bread."),
        pair(5, "act/with", "Cut with knife."),
        pair(6, "contextual", "The man is here."),
        pair(7, "", "A man cuts bread."),
    ]
    vocabulary = Vocabulary.collect(iter(rows), GROUPS)
    assert vocabulary.values == {"Tool": Counter(knife=2)}
    assert vocabulary.phrases == Counter({"cut bread": 1, "cut with knife": 1, "the man is here": 1})
    assert vocabulary.counts["object", "cut"] == Counter({("bread",): 1})
    assert vocabulary.counts["tool", "cut"] == Counter({("knife",): 1})
    assert vocabulary.counts["tool", "kind", "cutting"] == Counter({("knife",): 1})


def test_a_role_keeps_its_values_and_its_family_has_them_all():
    vocabulary = collect(
        ("Ingredient", "Ingredient is egg."), ("Material", "Material is oak."), ("Tool", "Tool is saw.")
    )
    table = vocabulary.table(("value", "Material"))
    family = vocabulary.table(("family", "object"))
    assert table
    assert table.candidates == (("oak",),)
    assert family
    assert family.candidates == (("egg",), ("oak",))
    assert vocabulary.table(("value", "Colour")) is None


def test_a_value_is_known_from_the_data_or_the_groups():
    vocabulary = collect(("Object", "Object is gold mirror."), ("contextual", "Polish tuba."))
    assert vocabulary.knows("Ingredient", "mirror")
    assert vocabulary.knows("Object", "tuba")
    assert vocabulary.knows("Object", "skillet")
    assert vocabulary.knows("Action", "whisking")
    assert not vocabulary.knows("Object", "wombat")
    assert not vocabulary.knows("Location", "tuba")


@pytest.mark.parametrize(
    "counts", [[1, 1, 1], [40, 30, 20, 10], [45, 25, 10, 10, 5, 5], [round(400 / k) for k in range(1, 41)]]
)
def test_values_are_drawn_as_often_as_they_are_true(counts):
    drawn = expected_draws(counts, list(range(len(counts))))
    assert drawn == pytest.approx(counts, rel=0.03)


def test_classes_of_values_that_exclude_one_another_are_drawn_as_often_as_they_are_true():
    counts, classes = [30, 15, 20, 20, 15], [0, 0, 1, 1, 2]
    assert expected_draws(counts, classes) == pytest.approx(counts, rel=0.03)


def test_a_class_with_the_majority_is_drawn_as_often_as_can_be():
    drawn = expected_draws([70, 20, 10], [0, 1, 2])
    assert drawn[0] == pytest.approx(30, rel=0.02)  # all facts that are not of it


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 5)), min_size=1, max_size=30))
def test_weights_are_positive_and_sum_to_one(items):
    weights = balanced_weights([count for count, _ in items], [name for _, name in items])
    assert sum(weights) == pytest.approx(1)
    assert min(weights) > 0


def test_a_table_offers_every_candidate_and_depends_on_no_order():
    counts = {("b",): 3, ("a",): 1, ("c",): 2}
    classes = {candidate: candidate for candidate in counts}
    table = DrawTable.of(counts, classes)
    assert table == DrawTable.of(dict(reversed(counts.items())), classes)
    assert set(table.draws(itertools.repeat(0.999999))) == set(counts)
    assert table.room(("b",)) == 1
    assert table.room(("nowhere",)) == 1


def test_what_is_drawn_last_is_drawn_by_weight_too():
    # One value takes every early draw, and the rules refuse it: of the others the commonest comes first as a rule,
    # never the first of the alphabet.
    counts = {("aardvark",): 1, ("butter",): 30, ("carrot",): 10, ("onion",): 4000}
    table = DrawTable.of(counts, {candidate: candidate for candidate in counts})
    numbers = random.Random(0)
    left = Counter()
    for _ in range(400):
        early = [0.999] * 24  # "onion" every time
        draws = table.draws(itertools.chain(early, iter(numbers.random, None)))
        left[next(value for value in draws if value != ("onion",))] += 1
    total = sum(left.values())
    assert left[("butter",)] / total == pytest.approx(30 / 41, abs=0.08)
    assert left[("aardvark",)] / total < 0.06


def test_beside_a_nearly_constant_value_there_is_room_for_few_others():
    table = DrawTable.of({("a",): 9, ("b",): 1}, {("a",): 0, ("b",): 1})
    assert table.room(("a",)) == pytest.approx(1 / 9)
    assert table.room(("b",)) == 1
