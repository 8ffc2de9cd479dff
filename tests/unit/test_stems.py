"""The forms of one word meet in one stem, and different words keep apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofreel.data_prep.negatives.phrases import stem, words_of

FORMS = [
    "chop chops chopped chopping",
    "slice slices sliced slicing",
    "fry fries fried frying",
    "add adds added adding",
    "stir stirs stirred stirring",
    "roll rolls rolled rolling",
    "press presses pressed pressing",
    "shred shreds shredded shredding",
    "take takes took taken taking",
    "tie ties tied tying",
    "glue glues glued gluing",
    "saute sautes sauteed sauteing",
    "knife knives",
    "tomato tomatoes",
    "box boxes",
    "cherry cherries",
    "cookie cookies",
    "glass glasses",
    "half halves",
]


@pytest.mark.parametrize("forms", FORMS, ids=lambda forms: forms.split()[0])
def test_forms_of_one_word_share_a_stem(forms):
    assert len({stem(form) for form in forms.split()}) == 1


def test_different_words_keep_different_stems():
    assert len({stem(forms.split()[0]) for forms in FORMS}) == len(FORMS)


@pytest.mark.parametrize("word", ["bread", "string", "spring", "seed", "glass", "bus", "red", "shed", "ring"])
def test_words_that_only_look_inflected_stay_whole(word):
    assert stem(word) == word


def test_case_accents_and_forms_of_characters_do_not_matter():
    assert words_of("SAUTÉED Onions").stems == words_of("saute onion").stems
    assert words_of("２ ｅｇｇｓ").stems == words_of("2 eggs").stems


def test_units_are_content_unless_they_measure():
    assert words_of("red cup").content == ("red", "cup")
    assert words_of("two cups of flour").content == ("flour",)
    assert words_of("3").content == ()


@given(st.text())
def test_any_text_can_be_taken_apart(text):
    words = words_of(text)
    assert len(words.words) == len(words.stems) >= len(words.content)
    assert all(words.stems)
    assert all(words.sequence)
