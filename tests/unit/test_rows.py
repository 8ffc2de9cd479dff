"""Rows survive storage unchanged, and everything wrong with one is named."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofreel.core.errors import ProofreelError, RowError
from proofreel.core.pairs import (
    Image,
    Pair,
    Passage,
    Transcript,
    VideoSegment,
    evidence_from_dict,
    evidence_key,
    media_path,
    problems_of,
    span_problems,
)

SEGMENT = VideoSegment("a.mp4", 1.0, 2.5)
GOOD = Pair("r1", "Object is kettle.", (SEGMENT,), "supported")


def changed(**values: object) -> Pair:
    return Pair(**{**{"id": "r1", "claim": "A claim.", "evidence": (SEGMENT,)}, **values})  # type: ignore[arg-type]


@given(
    claim=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    start=st.floats(0, 1e4),
    label=st.sampled_from(["supported", "refuted", "not_enough", None]),
    soft=st.none() | st.floats(0, 1),
    meta=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers() | st.none() | st.booleans()),
)
def test_a_pair_of_every_kind_of_evidence_survives_json(claim, start, label, soft, meta):
    evidence = (VideoSegment("a.mp4", start, start + 1), Transcript("said", None, 2.0), Image("i.png"), Passage("p"))
    pair = Pair("r", claim, evidence, label, soft_label=soft, meta=meta, context="c", split="test")
    assert Pair.from_dict(json.loads(json.dumps(pair.to_dict()))) == pair


def test_a_good_pair_has_no_problems():
    assert problems_of(GOOD) == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"claim": ""}, "claim is empty"),
        ({"claim": " \n\t"}, "claim is empty"),
        ({"claim": None}, "claim must be a string"),
        ({"claim": "x" * 2001}, "longer than 2000"),
        ({"claim": "bell\x07"}, "control"),
        ({"claim": "half a \ud83d pair"}, "surrogate"),
        ({"label": "yes"}, "label is outside the vocabulary, got 'yes'"),
        ({"label": "Supported"}, "label is outside the vocabulary"),
        ({"label": []}, "label is outside the vocabulary"),
        ({"split": "dev"}, "split is unknown"),
        ({"modality": "video"}, "modality is unknown"),
        ({"soft_label": 1.5}, "soft_label"),
        ({"soft_label": math.nan}, "soft_label"),
        ({"soft_label": True}, "soft_label"),
        ({"weight": -1.0}, "weight"),
        ({"weight": math.inf}, "weight"),
        ({"id": ""}, "id must be"),
        ({"id": 7}, "id must be"),
        ({"group": None}, "group must be a string"),
        ({"role": 3}, "role must be a string"),
        ({"context": 3}, "context must be"),
        ({"teacher_margin": "high"}, "teacher_margin"),
        ({"meta": []}, "meta must be"),
        ({"evidence": ()}, "evidence is empty"),
        ({"evidence": (VideoSegment(""),)}, "no path"),
        ({"evidence": (Transcript("  "),)}, "text is empty"),
        ({"evidence": (VideoSegment("a", 2.0, 1.0),)}, "reversed"),
        ({"evidence": (VideoSegment("a", 2.0, 2.0),)}, "reversed or empty"),
        ({"evidence": (VideoSegment("a", -1.0, 1.0),)}, "negative"),
        ({"evidence": (VideoSegment("a", math.nan, 1.0),)}, "finite"),
        ({"evidence": (VideoSegment("a", 0.0, 10**400),)}, "finite"),
        ({"evidence": (VideoSegment("a", None, 1.0),)}, "start_s is missing"),  # type: ignore[arg-type]
        ({"evidence": (VideoSegment("a", "0", 1.0),)}, "finite"),  # type: ignore[arg-type]
    ],
)
def test_every_fault_is_named_with_its_value_and_a_remedy(values, words):
    problems = problems_of(changed(**values))
    assert len(problems) == 1
    assert words in problems[0]
    assert ";" in problems[0]


def test_all_faults_of_a_row_are_reported_together():
    problems = problems_of(changed(claim="", label="yes", evidence=(VideoSegment("a", 2.0, 1.0),)))
    assert len(problems) == 3


def test_open_spans_are_allowed():
    assert list(span_problems(None, None)) == list(span_problems(0.0, None)) == []
    assert problems_of(changed(evidence=(VideoSegment("a"), Transcript("t")))) == []


@pytest.mark.parametrize(
    "row",
    [
        {"id": "r", "claim": "c"},
        {"id": "r", "claim": "c", "evidence": [], "lable": "supported"},
        {"id": "r", "claim": "c", "evidence": {"kind": "video", "path": "a"}},
        {"id": "r", "claim": "c", "evidence": ["a.mp4"]},
        {"id": "r", "claim": "c", "evidence": [{"kind": "film", "path": "a"}]},
        {"id": "r", "claim": "c", "evidence": [{"kind": ["video"], "path": "a"}]},
        {"id": "r", "claim": "c", "evidence": [{"kind": "video", "file": "a"}]},
        {"id": "r", "claim": "c", "evidence": [{"kind": "video"}]},
    ],
)
def test_a_dict_that_is_no_pair_is_refused_with_its_place(row):
    with pytest.raises(RowError, match=r"^data\.jsonl:3: "):
        Pair.from_dict(row, where="data.jsonl:3")


def test_row_errors_are_value_errors_of_this_package():
    with pytest.raises(ValueError, match="kind") as caught:
        evidence_from_dict(None)
    assert isinstance(caught.value, ProofreelError)


def test_evidence_keys_are_equal_exactly_for_equal_evidence():
    assert evidence_key((SEGMENT,)) == evidence_key((VideoSegment("a.mp4", 1.0, 2.5),))
    others = [(VideoSegment("b.mp4", 1.0, 2.5),), (VideoSegment("a.mp4", 1.0, 2.6),), (SEGMENT, Passage("p")), ()]
    assert len({evidence_key(e) for e in [(SEGMENT,), *others]}) == 5


def test_relative_media_lie_under_the_media_root_and_absolute_ones_stay():
    assert str(media_path("a/b.mp4", "/media")) == "/media/a/b.mp4"
    assert str(media_path("/else/b.mp4", "/root")) == "/else/b.mp4"
    assert str(media_path("b.mp4", None)) == "b.mp4"
