"""MiRAGE's shares on examples counted by hand: forms, joint sources, weights, duplicates, failures, claims."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from proofreel.core import Pair, RowError, VideoSegment
from proofreel.data_prep.language import Completion
from proofreel.eval.articles import (
    Claim,
    MirageOptions,
    ReferenceClaim,
    Response,
    Sentence,
    Source,
    Topic,
    mirage_scores,
    read_responses,
    read_topics,
    with_claims,
)
from proofreel.eval.scores import Judgments, by_labels

SENTENCES = (
    Sentence("One and two.", ("a",), (Claim("one"), Claim("two", 0.5))),
    Sentence("One again.", ("b",), (Claim("one"),)),
    Sentence("Three.", (), (Claim("three"),)),
)
RESPONSE = Response("t", "s", "One and two. One again. Three.", SENTENCES)
TOPIC = Topic(
    "t",
    "The reference.",
    (ReferenceClaim("one", ("b",)), ReferenceClaim("two", ("a", "c")), ReferenceClaim("six", ())),
    {"a": Source(VideoSegment("a.mp4")), "b": Source(VideoSegment("b.mp4"), 0.5), "c": Source(VideoSegment("c.mp4"))},
)


def judge(says: Callable[[Pair], bool | None]) -> Callable[[Sequence[Pair]], Judgments]:
    return lambda pairs: by_labels({pair.id: says(pair) for pair in pairs})(pairs)


def values(says: Callable[[Pair], bool | None], topic: Topic = TOPIC, **options) -> dict[str, float]:
    result = mirage_scores([RESPONSE], {"t": topic}, judge(says), options=MirageOptions(**options))
    return {name: score.value for name, score in result.responses["s"]["t"].scores.items()}


def shows(claim: str, video: str) -> Callable[[Pair], bool]:
    return lambda pair: pair.claim == claim and VideoSegment(video) in pair.evidence


def test_a_claim_counts_by_its_best_source_and_only_cited_ones_count_for_citations():
    both = values(lambda pair: shows("one", "c.mp4")(pair) or shows("two", "a.mp4")(pair))
    assert both["info_p_collection"] == pytest.approx((1 + 0.5) / 3)  # one by c, two (importance 0.5) by a
    assert both["cite_p_collection"] == pytest.approx(0.5 / 3)  # c is not cited
    assert both["info_r"] == 0.0
    assert both["info_f1_collection"] == 0.0


def test_quality_weighs_the_source_and_importance_can_be_normalised():
    assert values(shows("one", "b.mp4"))["cite_p_collection"] == pytest.approx(0.5 / 3)
    assert values(shows("one", "b.mp4"), weights="normalised")["cite_p_collection"] == pytest.approx(0.5 / 2.5)


def test_a_claim_made_twice_has_all_its_citations_or_the_first_or_counts_twice():
    assert values(shows("one", "b.mp4"), duplicates="first")["cite_p_collection"] == 0.0
    assert values(shows("one", "b.mp4"), duplicates="keep")["cite_p_collection"] == pytest.approx(0.5 / 4)
    assert values(shows("one", "c.mp4"), duplicates="keep")["info_p_collection"] == pytest.approx(2 / 4)


def test_joint_sources_are_one_question_about_all_of_them():
    asked: list[Pair] = []

    def say(pair: Pair) -> bool:
        asked.append(pair)
        return True

    joint = values(say, sources="joint")
    collection = [pair for pair in asked if "/info_p_collection/" in pair.id]
    assert [len(pair.evidence) for pair in collection] == [3, 3, 3]
    assert joint["info_p_collection"] == pytest.approx((2.5 / 3) * (1 + 0.5 + 1) / 3)


def test_recall_is_over_grounded_reference_claims_and_citing_sentences_of_their_sources():
    asked: dict[str, list[str]] = {}

    def say(pair: Pair) -> bool:
        asked.setdefault(pair.id.split("/")[2], []).append(pair.evidence[0].text if pair.modality == "text" else "")  # type: ignore[union-attr]
        return True

    scores = values(say)
    assert asked["cite_r"] == ["One again.", "One and two."]
    assert asked["cite_p_reference"] == ["two", "one", "two"]  # claim one: sources a and b; claim two: a
    assert (scores["info_r"], scores["cite_r"]) == (1.0, pytest.approx((0.5 + 1) / 2))
    assert values(say, grounded_only=False)["cite_r"] == pytest.approx(1.5 / 3)


def test_failed_judgments_bound_every_score_they_can_change_and_no_other():
    def say(pair: Pair) -> bool | None:
        if shows("one", "a.mp4")(pair):
            return None
        return shows("one", "c.mp4")(pair) or pair.modality == "text"

    result = mirage_scores([RESPONSE], {"t": TOPIC}, judge(say))
    scores = result.responses["s"]["t"].scores
    assert scores["info_p_collection"].value == pytest.approx(1 / 3)  # c is as good as the failed a
    assert scores["info_p_collection"].n_failed == 1
    cite = scores["cite_p_collection"]
    assert math.isnan(cite.value)
    assert (cite.low, cite.high) == (0.0, pytest.approx(1 / 3))
    assert math.isnan(scores["cite_f1_collection"].value)
    assert math.isnan(result.systems["s"]["cite_p_collection"].value)


def test_a_response_without_claims_has_no_precision_and_is_counted():
    empty = Response("t", "s", "", ())
    result = mirage_scores([empty], {"t": TOPIC}, judge(lambda pair: True))
    assert math.isnan(result.systems["s"]["info_p_collection"].value)
    assert result.undefined["s"]["info_p_collection"] == 1
    assert result.systems["s"]["info_f1_collection"].value == 0.0  # nothing is recalled


def test_what_is_not_there_is_named():
    with pytest.raises(RowError, match="'t'"):
        mirage_scores([RESPONSE], {}, judge(lambda pair: True))
    with pytest.raises(RowError, match="twice"):
        mirage_scores([RESPONSE, RESPONSE], {"t": TOPIC}, judge(lambda pair: True))
    unknown = Response("t", "s", "x", (Sentence("x", ("z",), (Claim("x"),)),))
    with pytest.raises(RowError, match="'z'"):
        mirage_scores([unknown], {"t": TOPIC}, judge(lambda pair: True))


def test_claims_come_from_a_language_model_and_an_unreadable_answer_is_quoted():
    wanted = Response("t", "s", "One.", (Sentence("One.", ("a",), needs_claims=True),))
    made = with_claims([wanted], lambda messages: Completion('["It is one."]'))
    assert made[0].sentences == (Sentence("One.", ("a",), (Claim("It is one."),)),)
    with pytest.raises(RowError, match="I cannot"):
        with_claims([wanted], lambda messages: Completion("I cannot do that."))


def test_files_are_read_with_joined_ids_and_faults_are_named_by_line(tmp_path: Path):
    topic = {
        "videos": {"V": {"quality": 0.5}},
        "claims": [["one"]],
        "original_article": ["One."],
        "article": "One.",
        "claims_to_supporting_videos": {"one": {"supporting_videos": ["watch?v=V", "V"]}},
    }
    path = tmp_path / "topics.json"
    path.write_text(json.dumps({"a_b": topic}))
    read = read_topics(path)["a b"]
    assert read.claims == (ReferenceClaim("one", ("V",), "One."),)
    assert read.sources["V"] == Source(VideoSegment("V.mp4"), 0.5)
    response = {"sentences": ["One."], "claims": [["one"]], "citations": [["/x/V.mp4"]]}
    path = tmp_path / "responses.json"
    path.write_text(json.dumps({"a_b": response}))
    assert read_responses(path)[0].sentences == (Sentence("One.", ("V",), (Claim("one"),)),)
    path.write_text(json.dumps({"a_b": response | {"claims": []}}))
    with pytest.raises(RowError, match=r"responses\.json:1.*aligned"):
        read_responses(path)
