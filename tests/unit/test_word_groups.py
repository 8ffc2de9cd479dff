"""The word-group file is read strictly, and says which words may be true together."""

from pathlib import Path

import pytest

from proofreel.core.errors import ConfigError
from proofreel.data_prep.negatives.vocabulary import SHIPPED, WordGroups, family, read_word_groups


@pytest.fixture(scope="module")
def shipped() -> WordGroups:
    return read_word_groups()


def read(tmp_path: Path, text: str) -> WordGroups:
    path = tmp_path / "groups.yaml"
    path.write_text(text, encoding="utf-8")
    return read_word_groups(path)


def test_the_shipped_file_covers_cooking_and_crafting(shipped):
    actions = shipped.categories["action"]
    assert len(set(actions.values())) >= 25
    assert len(actions) >= 300
    assert SHIPPED.parent.name == "vocabularies"


@pytest.mark.parametrize(
    ("one", "other"),
    [("chopping", "slice"), ("frying", "boiled"), ("stirring", "whisk"), ("screwing", "attach"), ("pour", "adding")],
)
def test_actions_of_one_function_are_known_in_every_form(shipped, one, other):
    assert shipped.functions("Action", one) & shipped.functions("Action", other)


@pytest.mark.parametrize(("one", "other"), [("chopping", "stirring"), ("measuring", "sawing"), ("peel", "pour")])
def test_actions_of_different_functions_keep_apart(shipped, one, other):
    assert shipped.functions("Action", one)
    assert shipped.functions("Action", other)
    assert not shipped.functions("Action", one) & shipped.functions("Action", other)


def test_several_words_are_one_action_where_the_file_says_so(shipped):
    assert shipped.functions("Action", "stir frying") == {"heating"}
    assert shipped.functions("Action", "folding in") == {"mixing"}
    assert shipped.functions("Action", "folding") == {"shaping"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("large frying pan", "skillet"),
        ("green onions", "scallion"),
        ("cilantro", "fresh coriander"),
        ("workbench", "kitchen table"),
        ("carrot and scallion", "spring onion"),
    ],
)
def test_synonyms_are_found_inside_longer_values(shipped, one, other):
    assert shipped.is_synonym(one, other)


def test_a_compound_is_what_its_last_word_is(shipped):
    assert not shipped.is_synonym("green onion", "onion")
    assert not shipped.is_kind_or_part("kitchen sink", "table")
    assert shipped.is_kind_or_part("kitchen", "table")


def test_kinds_and_parts_hold_along_chains_and_both_ways(shipped):
    for one, other in [("chicken", "meat"), ("drumstick", "meat"), ("egg", "yolk"), ("skillet", "cookware")]:
        assert shipped.is_kind_or_part(one, other)
        assert shipped.is_kind_or_part(other, one)
    assert not shipped.is_kind_or_part("chicken", "carrot")


def test_generic_values_are_known_and_specific_ones_are_not(shipped):
    assert shipped.is_generic("food")
    assert shipped.is_generic("both hands")
    assert shipped.is_generic("Hands")
    assert not shipped.is_generic("hand saw")
    assert not shipped.is_generic("")


@pytest.mark.parametrize("role", ["Ingredient", "materials", "Object", " object "])
def test_things_acted_upon_are_one_family_of_roles(role):
    assert family(role) == "object"


def test_other_roles_stand_alone():
    assert len({family(role) for role in ("Tool", "Location", "Action", "Colour", "Object", "Glass")}) == 6


def test_roles_of_any_name_may_have_categories(tmp_path):
    groups = read(tmp_path, "categories: {Colour: {warm: [red, orange], cold: [blue]}}")
    assert groups.functions("colours", "dark red") == {"warm"}
    assert groups.functions("Action", "red") == frozenset()


def test_synonyms_share_their_category(tmp_path):
    groups = read(tmp_path, "categories: {Tool: {cutting: [knife]}}\nsynonyms: [[blade, knife]]")
    assert groups.functions("Tool", "blade") == {"cutting"}


def test_words_of_yaml_that_look_like_other_things_are_words(tmp_path):
    groups = read(tmp_path, "\ufeffcategories: {Switch: {state: [on, off, no, 7up]}}")
    assert groups.functions("Switch", "off") == {"state"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kinds: {}\nsynonims: []", "groups.yaml:2: unknown section, got 'synonims'; did you mean 'synonyms'?"),
        (
            "categories:\n  Action:\n    a: [cut]\n    b: [cutting]",
            "groups.yaml:4: word is in two categories of Action",
        ),
        ("categories:\n  Action:\n    a: []", "groups.yaml:3: category 'a' needs at least 1 words, got []"),
        ("categories:\n  Action:\n    a: [cut, cuts]", "groups.yaml:3: word is twice in category 'a'"),
        ("categories:\n  Action:\n    a:", "groups.yaml:3: category 'a' needs at least 1 words, got ''"),
        ("categories:\n  Action: [cut]", "groups.yaml:2: must map names to lists"),
        ("categories:\n  Action:\n    a: [cut]\n    a: [fry]", "groups.yaml:4: name is empty or given twice, got 'a'"),
        ("synonyms:\n- [pan]", "groups.yaml:2: a synonym class needs at least 2 words, got ['pan']"),
        ("synonyms:\n- [pan, wok]\n- [pot, pans]", "groups.yaml:3: word is in two synonym classes, got 'pans'"),
        ("synonyms: {a: b}", "groups.yaml:1: synonyms must be a list of lists"),
        ("synonyms:\n- pan", "groups.yaml:2: a synonym class needs at least 2 words, got 'pan'"),
        ("kinds:\n  meat: [beef]\n  beef: [meat]", "word is a kind or part of itself"),
        ("kinds:\n  pan: [skillet]\nsynonyms: [[skillet, pan]]", "groups.yaml:2: word is a kind or part of itself"),
        ("parts:\n  egg: [[yolk]]", "groups.yaml:2: must be a word"),
        ("generic: [food, '...']", "groups.yaml:1: must be a word, got '...'"),
        ("generic: food", "groups.yaml:1: generic needs at least 1 words, got 'food'"),
        ("[]", "groups.yaml:1: must map section names to words"),
        ("", "groups.yaml:1: must map section names to words"),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_faulty_file_is_refused_with_its_line(tmp_path, text, message):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)


def test_a_file_that_is_missing_or_in_another_encoding_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_word_groups(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes("generic: [purée]".encode("latin-1"))
    with pytest.raises(ConfigError, match="not valid YAML"):
        read_word_groups(tmp_path / "latin.yaml")
