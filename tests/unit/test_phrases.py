"""Facts are read back from their sentences as they were written; what is no fact is not guessed at."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofreel.core.pairs import Pair, Passage
from proofreel.data_prep.importers.base import Row
from proofreel.data_prep.importers.facts import conceptual_claim, contextual_claim, read_facts
from proofreel.data_prep.negatives.phrases import (
    Phrase,
    Relation,
    claim_of,
    conceptual_value,
    contextual_phrase,
    phrase_of,
    segment_facts,
)

PATTERNS = [
    ("chop carrot", Phrase("chop", "carrot")),
    ("stir with wooden spoon", Phrase("stir", "", (Relation("with", "wooden spoon"),))),
    ("tip into pan", Phrase("tip", "", (Relation("into", "pan"),))),
    ("crawl out of burrow", Phrase("crawl", "", (Relation("out of", "burrow"),))),
    ("stand in front of mirror", Phrase("stand", "", (Relation("in front of", "mirror"),))),
    ("pick up knife", Phrase("pick up", "knife")),
    ("deep fry chicken in oil", Phrase("deep fry", "chicken", (Relation("in", "oil"),))),
    ("pour glass of water into flour", Phrase("pour", "glass of water", (Relation("into", "flour"),))),
    ("flip pancake over", Phrase("flip", "pancake", (Relation("over", ""),))),
    ("cook for 5 minutes in pan", Phrase("cook", "", (Relation("for", "5 minutes"), Relation("in", "pan")))),
    (
        "chop tomato with knife on cutting board",
        Phrase("chop", "tomato", (Relation("with", "knife"), Relation("on", "cutting board"))),
    ),
]


@pytest.mark.parametrize(("text", "phrase"), PATTERNS, ids=[text for text, _ in PATTERNS])
def test_the_slots_of_every_pattern_are_found_and_give_the_phrase_back(text, phrase):
    assert phrase_of(text) == phrase
    assert phrase.text() == text
    assert claim_of(phrase) == contextual_claim(text)


@pytest.mark.parametrize("text", ["", "stir", "DNA is shown", "The man cuts bread", "two eggs", "2 eggs", "it was cut"])
def test_what_follows_no_pattern_is_not_guessed_at(text):
    assert phrase_of(text) is None


@given(st.text(), st.sampled_from(["contextual", "act/with", "Action", ""]))
def test_any_claim_can_be_read(text, role):
    phrase = contextual_phrase(role, text)
    assert phrase is None or phrase_of(phrase) is None or phrase_of(phrase)
    assert conceptual_value(role, text) is None or text.startswith(f"{role} is ")


@given(st.text(st.characters(categories=["L", "N", "Zs"]), min_size=1).filter(str.strip))
def test_conceptual_claims_are_read_back_as_they_were_written(value):
    assert conceptual_value("Act/Tool", conceptual_claim("Act/Tool", value)) == value.strip()


def test_every_fact_of_the_clips_is_read_back(shared_data: Path):
    path = shared_data / "video-clips" / "annotations.json"
    pairs: dict[str, list[Pair]] = {}
    for row in read_facts(path):
        assert isinstance(row, Row)
        pairs.setdefault(row.record, []).append(row.pair)
    annotations = json.loads(path.read_text(encoding="utf-8"))
    for annotation, found in zip(annotations, pairs.values(), strict=True):
        facts = segment_facts(found)
        assert facts.conceptual == {role: [value] for role, value in annotation["conceptual"].items()}
        assert facts.contextual == annotation["contextual"]
        assert all(phrase_of(phrase) for phrase in facts.contextual)


def test_only_supported_facts_are_facts_of_the_segment():
    rows = [
        ("Tool", "Tool is knife.", "supported"),
        ("Tool", "Tool is spoon.", "refuted"),
        ("Tool", "Tool is knife.", "supported"),
        ("", "A man cuts bread.", "supported"),
        ("act/with", "Cut with knife.", "supported"),
        ("contextual", "Cut bread.", None),
    ]
    pairs = [Pair(str(i), claim, (Passage("x"),), label, role=role) for i, (role, claim, label) in enumerate(rows)]
    assert segment_facts(pairs) == ({"Tool": ["knife"]}, ["cut with knife"])
