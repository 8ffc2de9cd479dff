"""A text is cut into sentences that keep their citations, and no character is lost."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofreel.core.citations import cited_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("A (visual, 0:01). B (visual, 0:02).", ["A (visual, 0:01).", "B (visual, 0:02)."]),
        ("A. (visual, 0:01) B. (visual, 0:02).", ["A. (visual, 0:01)", "B. (visual, 0:02)."]),
        ("Dr. Fox pays 3.5 dollars, e.g. No one. B", ["Dr. Fox pays 3.5 dollars, e.g. No one.", "B"]),
        ("John F. Kennedy speaks. Option A. The end", ["John F. Kennedy speaks.", "Option A.", "The end"]),
        ("Therefore A. Then he goes.", ["Therefore A.", "Then he goes."]),
        ("So it is A. The cat sleeps. B", ["So it is A.", "The cat sleeps.", "B"]),
        ("We see A. Smith and J. R. Jones. He waves.", ["We see A. Smith and J. R. Jones.", "He waves."]),
        ("A. Smith sings (visual, 0:01). B", ["A. Smith sings (visual, 0:01).", "B"]),
        ("The answer is A. Smith sings.", ["The answer is A.", "Smith sings."]),
        ("Option B. Kim sings. So C. 3 sing.", ["Option B.", "Kim sings.", "So C.", "3 sing."]),
        ("Therefore A.\nSmith sings.", ["Therefore A.", "Smith sings."]),
        ("Therefore A. A man sings.", ["Therefore A.", "A man sings."]),
        ("1. A man.\n2. A dog", ["1. A man.", "2. A dog"]),
        ('He says "Go." Then he goes!', ['He says "Go."', "Then he goes!"]),
        ("A (visual, 0:01.5; bad. Bad) B", ["A (visual, 0:01.5; bad. Bad) B"]),
        ("", []),
    ],
)
def test_a_text_is_cut_into_sentences_that_keep_their_citations(text, sentences):
    assert cited_sentences(text) == sentences


@given(
    st.one_of(
        st.text(), st.lists(st.sampled_from(["(visual, 0:15)", ". ", "A", " ", "\n", "!", "(", ")"])).map("".join)
    )
)
def test_no_character_of_any_text_is_lost(text):
    assert "".join("".join(cited_sentences(text)).split()) == "".join(text.split())


@pytest.mark.parametrize(
    "text", ["." * 100_000 + "x", "." + " " * 100_000 + "x", "A. (visual, 0:15) " * 5_000, "(" * 100_000], ids=range(4)
)
def test_hostile_text_takes_linear_time(text):
    began = time.perf_counter()
    cited_sentences(text)
    assert time.perf_counter() - began < 3
