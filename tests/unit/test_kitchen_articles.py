"""The kitchen's articles: what is written, and what the truth says of it."""

import numpy as np

from examples.kitchen.articles import article_of, topic_of, truth
from proofreel.core import Pair, VideoSegment

RED = {"Action": "grating", "Ingredient": "onion", "Tool": "fork", "Location": "bowl"}
BLUE = {"Action": "stirring", "Ingredient": "onion", "Tool": "spoon", "Location": "pan"}
WRONG = {role: {"text": value} for role, value in {**BLUE, "Ingredient": "salmon"}.items()}
CLIPS = {
    "a": {"conceptual": RED, "negative_conceptual": WRONG},
    "b": {"conceptual": BLUE, "negative_conceptual": {role: {"text": value} for role, value in RED.items()}},
}
VERBS = ["grate", "stir"]


def supported(claim: str, *clips: str) -> bool | None:
    said = {"Grate onion with fork in bowl.": RED}
    pair = Pair("p", claim, tuple(VideoSegment(f"{clip}.mp4") for clip in clips))
    return truth(said, {name: clip["conceptual"] for name, clip in CLIPS.items()})([pair]).of["p"].supported


def test_a_sentence_holds_where_one_clip_shows_all_of_it():
    assert supported("Grate onion with fork in bowl.", "a", "b") is True
    assert supported("Grate onion with fork in bowl.", "b") is False
    assert supported("Ingredient is onion.", "b") is True


def test_articles_say_what_is_shown_or_its_opposite_and_cite_in_turn():
    facts: dict = {}
    article = article_of(["a", "b"], CLIPS, VERBS, facts, 0.0, 2, np.random.default_rng(0))
    assert article["sentences"] == ["Grate onion with fork in bowl.", "Stir onion with spoon on pan."]
    assert article["citations"] == [["a", "b"], ["b", "a"]]
    assert article["claims"][0][0] == "Action is grating."
    wrong = article_of(["a"], CLIPS, VERBS, facts, 1.0, 1, np.random.default_rng(0))
    assert wrong["sentences"] == ["Stir salmon with spoon on pan."]
    assert facts["Stir salmon with spoon on pan."]["Tool"] == "spoon"
    topic = topic_of(["a", "b"], CLIPS)
    assert topic["claims_to_supporting_videos"]["Ingredient is onion."]["supporting_videos"] == ["a", "b"]
