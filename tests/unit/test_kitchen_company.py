"""Laws of the kitchen's rows in company: labels are true, sentences alone say nothing, held-out clips stay out."""

from collections import Counter

import pytest

from examples.kitchen.annotating import annotate
from examples.kitchen.company import SIZES, claims_of, in_company
from examples.kitchen.filming import plan_clips

ANNOTATIONS = [
    row for split, n in (("train", 160), ("test", 60)) for row in annotate(0, plan_clips(0, split, n), f"clips/{split}")
]


@pytest.fixture(scope="module")
def rows():
    return list(in_company(ANNOTATIONS, "train", SIZES))


def test_a_claim_is_supported_where_one_clip_shows_it_and_refuted_where_none_does(rows):
    true = {row["video"]: set(claims_of(row, "")) for row in ANNOTATIONS}
    for pair in rows:
        shown = [segment.path for segment in pair.evidence if pair.claim in true[segment.path]]
        own = [segment.path for segment in pair.evidence if segment.path == f"{pair.group}.mp4"]
        assert shown == (own if pair.label == "supported" else [])
        assert len(own) == 1
    assert {len(pair.evidence) for pair in rows} == set(SIZES)
    assert len({pair.id for pair in rows}) == len(rows)


def test_the_supporting_clip_stands_anywhere_and_sentences_alone_say_little(rows):
    of_eight = [p for p in rows if len(p.evidence) == 8]
    places = Counter([s.path for s in p.evidence].index(f"{p.group}.mp4") for p in of_eight)
    assert len(places) == 8
    counts = Counter((pair.claim, pair.label) for pair in rows)
    balance = [abs(counts[claim, "supported"] - counts[claim, "refuted"]) for claim in {pair.claim for pair in rows}]
    assert sum(balance) < 0.25 * len(rows)
    assert abs(sum(p.label == "supported" for p in rows) / len(rows) - 0.5) < 0.02


def test_rows_stay_in_their_split_and_the_same_seed_gives_the_same_rows(rows):
    assert all(segment.path.startswith("clips/train") for pair in rows for segment in pair.evidence)
    assert rows == list(in_company(ANNOTATIONS, "train", SIZES))
    assert rows != list(in_company(ANNOTATIONS, "train", SIZES, seed=1))
