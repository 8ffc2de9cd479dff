"""The page of a score: every verdict has a colour, a sign and a word; text is escaped; nothing is loaded."""

import html
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image as PILImage

from proofreel.core import Image, Passage, VideoSegment
from proofreel.eval.scores import (
    Judgment,
    PageCitation,
    PageClaim,
    PageResponse,
    PageSentence,
    Score,
    ScorePage,
    page_html,
    write_page,
)
from proofreel.eval.uncertainty import Interval

YES, NO, FAILED = Judgment(True, 0.91), Judgment(False, 0.2), Judgment(None, error="the segment is <empty>")


def score(value: float) -> Score:
    return Score(value, value, value, 3, 0, Interval(value - 0.1, value + 0.1, 0.95, 3, 100, 0))


def page(*claims: PageClaim, system: str = "A") -> ScorePage:
    sentence = PageSentence("A <b>carrot</b> & a knife.", claims)
    return ScorePage(
        "A score", {"A": {"f1": score(0.5)}, "B": {"f1": score(0.7)}}, {"B - A": {"f1": score(0.2)}},
        [PageResponse("B", "video 1", ()), PageResponse(system, "video 1", (sentence,), {"f1": score(0.5)})],
    )  # fmt: skip


class Elements(HTMLParser):
    """Start tags with their attributes; every one that must be closed is."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def words(text: str) -> str:
    """What a reader sees, without style."""
    return html.unescape(re.sub(r"<[^>]+>", " ", text[text.index("<body") :]))


@pytest.mark.parametrize(
    ("judgments", "kind", "word"),
    [
        ({"cited": YES}, "supported", "✓ supported 0.91"),
        ({"cited": NO, "collection": YES}, "unsupported", "✗ not supported 0.20"),
        ({"cited": FAILED}, "failed", "! failed"),
        ({}, "unjudged", "– not judged"),
    ],
)
def test_a_verdict_is_a_colour_a_sign_and_a_word(judgments, kind, word):
    text = page_html(page(PageClaim("It is cut.", judgments)))
    cards = [tag for tag in Elements(text).tags if tag[1].get("class") == f"claim {kind}"]
    assert len(cards) == 1
    assert word in words(text)
    assert re.search(rf"^\.{kind} {{ --tint: [^;]+; --edge: [^;]+; --dash: [a-z]+; }}$", text, re.MULTILINE)


def test_a_failure_says_why_and_all_text_is_escaped():
    text = page_html(page(PageClaim("<script>alert(1)</script>", {"cited": FAILED})))
    assert "the segment is <empty>" in words(text)
    assert "<script" not in text
    assert "A <b>carrot</b> & a knife." in words(text)


def test_the_score_stands_on_top_with_intervals_and_the_difference_before_the_responses():
    text = words(page_html(page(PageClaim("It is cut.", {"cited": YES}))))
    assert text.index("70.0") < text.index("B - A") + 200
    assert "[40.0, 60.0]" in text
    assert text.index("20.0") < text.index("video 1") < text.index("It is cut.")
    assert text.index(" A ", text.index("video 1")) < text.index(" B ", text.index("video 1"))  # the systems' order


def test_nothing_is_loaded_and_one_picture_is_stored_once(tmp_path):
    PILImage.fromarray(np.full((40, 60, 3), 200, np.uint8)).save(tmp_path / "a.png")
    cites = (PageCitation("picture a", (Image("a.png"),), YES), PageCitation("again", (Image("a.png"),)))
    path = write_page(tmp_path / "out" / "page.html", page(PageClaim("It is cut.", {"cited": YES}, cites)), tmp_path)
    text = path.read_text(encoding="utf-8")
    assert text.count("data:image/jpeg;base64,") == 1
    assert text.count('<span class="p0">') == 2
    assert not re.search(r"(src|href)=|https?:|@import|url\((?!data:)", text)
    assert "default-src 'none'" in text


def test_missing_media_and_problems_are_named_in_place_and_texts_are_quoted():
    cites = (
        PageCitation("(visual, 0:01)", (VideoSegment("none.mp4", 1, 2),), FAILED),
        PageCitation("(visual, 9:00)", problem="beyond the end"),
        PageCitation("passage", (Passage("A carrot, it says."),), NO),
    )
    text = words(page_html(page(PageClaim("It is cut.", {"cited": NO}, cites))))
    assert text.count("none.mp4: ") == 1
    for part in ("beyond the end", "A carrot, it says.", "✗ not supported 0.20", "the segment is <empty>"):
        assert part in text


def test_a_page_of_many_claims_says_what_it_leaves_out():
    claims = tuple(PageClaim(f"Claim {i}.", {"cited": YES}) for i in range(100))
    responses = [PageResponse("A", f"unit {i}", (PageSentence("Text.", claims),)) for i in range(30)]
    text = page_html(ScorePage("Many", {"A": {"f1": score(0.5)}}, {}, responses))
    assert "shows 20 of 30" in text
    assert "A 3000" in " ".join(words(text).split())  # counts are of all claims
