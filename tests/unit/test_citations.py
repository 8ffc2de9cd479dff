"""Citations in running text: all forms are read, nothing that means to be one is lost, the rest of the text stays."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofreel.core.citations import (
    WORDS,
    Citation,
    Malformed,
    parse_citation,
    parse_citation_list,
    parse_citations,
    render_citations,
)


def visual(start_s: float, end_s: float | None = None) -> Citation:
    return Citation("visual", start_s, start_s if end_s is None else end_s)


def audio(start_s: float, end_s: float | None = None) -> Citation:
    return Citation("audio", start_s, start_s if end_s is None else end_s)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(visual, 0:15)", [visual(15)]),
        ("(visual, 00:15)", [visual(15)]),
        ("(visual, 1:02:03)", [visual(3723)]),
        ("(visual, 75:30)", [visual(4530)]),
        ("(visual, 0:15.25)", [visual(15.25)]),
        ("[audio, 0:03-0:08]", [audio(3, 8)]),
        ("(visual, 0:15–0:18)", [visual(15, 18)]),
        ("(visual, 0:15 — 0:18)", [visual(15, 18)]),
        ("(visual, 0:15 \u2011 0:18)", [visual(15, 18)]),
        ("(visual, 59:58-1:00:02)", [visual(3598, 3602)]),
        ("(visual, 0:12; audio, 0:12-0:14)", [visual(12), audio(12, 14)]),
        ("(visual, 0:05, 0:10-0:12; audio, 0:03)", [visual(5), visual(10, 12), audio(3)]),
        ("(visual,0:05,0:10)", [visual(5), visual(10)]),
        ("(visual, 0:05, audio, 0:10)", [visual(5), audio(10)]),
        ("( Visual ,\u00a00:15 ; )", [visual(15)]),
        ("(visual 0:15)", [visual(15)]),
        ("(visual: 0:15)", [visual(15)]),
        ("(visual, 0:15-0:15)", [visual(15)]),
        ("(visual, 0:15) and [audio, 0:16]", [visual(15), audio(16)]),
        ("(see (visual, 0:15))", [visual(15)]),
    ],
)
def test_every_written_form_of_a_citation_is_read(text, found):
    cited = parse_citations(f"A man walks {text}.")
    assert list(cited.items) == found
    assert cited.text == ("A man walks (see)." if "see" in text else "A man walks.")


@pytest.mark.parametrize("word", [w for name in WORDS for w in (name, name.upper(), name.capitalize())])
def test_every_name_of_a_modality_is_mapped(word):
    assert parse_citation(f"({word}, 0:15)") == Citation(WORDS[word.lower()], 15.0, 15.0)


@pytest.mark.parametrize(
    ("text", "malformed"),
    [
        ("(visual, 0:75)", ("visual, 0:75", "seconds are 60 or more")),
        ("(visual, 1:60:03)", ("visual, 1:60:03", "minutes are 60 or more")),
        ("(visual, 0:18-0:15)", ("visual, 0:18-0:15", "the range is reversed")),
        ("(visual, 0:15-0:16-0:17)", ("visual, 0:15-0:16-0:17", "a range has two times")),
        ("(visual, 0:15-)", ("visual, 0:15-", "the time is missing")),
        ("(visual, 0:15-18)", ("visual, 0:15-18", "the time is not M:SS or H:MM:SS")),
        ("(visual, 0:5)", ("visual, 0:5", "the time is not M:SS or H:MM:SS")),
        ("(visual, 15s)", ("visual, 15s", "the time is not M:SS or H:MM:SS")),
        ("(visual, 1:2:03)", ("visual, 1:2:03", "the time is not M:SS or H:MM:SS")),
        ("(visual)", ("visual", "a time is missing")),
        ("(visual, )", ("visual", "a time is missing")),
        ("(visual, throughout)", ("visual, throughout", "a time is missing")),
        ("(smell, 0:15)", ("smell, 0:15", "the modality is unknown")),
        ("(audio-visual, 0:15)", ("audio-visual, 0:15", "the modality is unknown")),
        ("(visual/audio, 0:15)", ("visual/audio, 0:15", "the modality is unknown")),
        ("(0:15)", ("0:15", "the modality is missing")),
        ("(from 0:15 to 0:18)", ("from 0:15 to 0:18", "the modality is unknown")),
        ("(visual, 0:15]", ("(visual, 0:15]", "the brackets do not match")),
        ("(visual, 0:15", ("(visual, 0:15", "the bracket is not closed")),
        ("visual, 0:15)", ("visual, 0:15)", "the bracket is not opened")),
        ("(vi\u017fual, 0:15)", ("vi\u017fual, 0:15", "the modality is unknown")),
    ],
)
def test_what_means_to_be_a_citation_is_kept_with_its_reason_and_leaves_the_claim(text, malformed):
    cited = parse_citations(f"A man walks {text} quickly.")
    assert cited.items == (Malformed(*malformed),)
    assert cited.text == "A man walks quickly."


def test_a_bad_part_does_not_hide_its_good_neighbours():
    cited = parse_citations("It rains (visual, 0:15; smell, 0:20; audio, 0:99, 0:05; 0:30).")
    assert cited.citations == (visual(15), audio(5))
    assert [bad.text for bad in cited.malformed] == ["smell, 0:20", "audio, 0:99", "0:30"]


def test_a_time_after_an_unknown_modality_is_never_given_to_the_one_before():
    cited = parse_citations("It rains (visual, 0:15, smell, 0:16).")
    assert cited.items == (visual(15), Malformed("smell, 0:16", "the modality is unknown"))


@pytest.mark.parametrize(
    "text",
    [
        "A man walks (see below).",
        "A film (2019) about ratios (16:9), main() and [sic].",
        "He said so (at 3:00 pm on a cold day).",
        "Media (video and audio) and (video: how to cook).",
        "In the video, 3:15 is on the clock.",
        "Intervals [0, 5) and a lone ( or ].",
        "Frame (video 2) (Figure 1; b).",
        "",
    ],
)
def test_ordinary_parentheses_and_times_stay_in_the_text(text):
    cited = parse_citations(text)
    assert (cited.items, cited.removed, cited.text) == ((), (), text)


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("A man (visual, 0:01) walks.", "A man walks."),
        ("A man, (visual, 0:01), walks.", "A man, walks."),
        ("A man walks. (visual, 0:01)", "A man walks."),
        ("A man walks. (visual, 0:01).", "A man walks."),
        ("A man walks, (visual, 0:01).", "A man walks."),
        ("(visual, 0:01) A man walks.", "A man walks."),
        ("(visual, 0:01): A man walks.", "A man walks."),
        ("A man walks ((visual, 0:01), [audio, 0:02]).", "A man walks."),
        ("A man walks (visual, 0:01)          (audio, 0:02) home.", "A man walks home."),
        ('He says "go" (audio, 0:01)!', 'He says "go"!'),
        ("One.\n(visual, 0:01)\nTwo.", "One.\nTwo."),
        ("(visual, 0:01)", ""),
    ],
)
def test_the_gap_a_citation_leaves_is_closed(text, claim):
    assert parse_citations(text).text == claim


def test_a_point_is_its_second_and_a_range_is_as_written():
    assert visual(15).span() == (15.0, 16.0)
    assert visual(15).span(point_s=0.5) == (15.0, 15.5)
    assert visual(15, 18).span() == (15.0, 18.0)


def test_a_string_of_nothing_but_citations_needs_no_brackets():
    assert parse_citation_list("audio, 0:03; visual, 0:04") == (audio(3), visual(4))
    assert parse_citation_list(" (audio, 0:03). ") == (audio(3),)
    assert parse_citation("audio, 0:03") == audio(3)
    for text in ("", "see below", "A man (visual, 0:01)", "(see)", "0:15"):
        assert all(isinstance(item, Malformed) for item in parse_citation_list(text)), text
    assert isinstance(parse_citation("(audio, 0:03; visual, 0:04)"), Malformed)


millisecond_times = st.integers(0, 400 * 3600 * 1000).map(lambda ms: ms / 1000)


@st.composite
def citations(draw: st.DrawFn) -> Citation:
    first, second = sorted((draw(millisecond_times), draw(millisecond_times)))
    return Citation(draw(st.sampled_from(("visual", "audio", "ocr"))), first, draw(st.sampled_from((first, second))))


@given(st.lists(citations(), min_size=1, max_size=5))
def test_rendered_citations_are_read_back(given_citations):
    cited = parse_citations(f"A man walks {render_citations(given_citations)}.")
    assert list(cited.items) == given_citations
    assert cited.text == "A man walks."


PIECES = [
    "(",
    ")",
    "[",
    "]",
    "visual",
    "audio",
    "smell",
    ", ",
    "; ",
    ":",
    "0:15",
    "1:02:03",
    "-",
    "–",
    " ",
    ".",
    "A",
    "\n",
]


@settings(max_examples=300)
@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join)))
def test_any_text_is_read_and_every_span_is_where_its_text_stands(text):
    cited = parse_citations(text)
    assert [text[a:b] for a, b in cited.spans] == [item.text for item in cited.items]
    assert all(any(a <= x and y <= b for a, b in cited.removed) for x, y in cited.spans)
    assert all(a[1] <= b[0] for a, b in zip(cited.removed, cited.removed[1:], strict=False))
    if not cited.items:
        assert cited.text == text.strip()
    starts, ends = [0, *(b for _, b in cited.removed)], [*(a for a, _ in cited.removed), len(text)]
    outside = "".join(text[a:b] for a, b in zip(starts, ends, strict=True))
    assert [c for c in cited.text if c.isalnum()] == [c for c in outside if c.isalnum()]


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "()" * 50_000,
        "(visual, 0:15" * 20_000,
        "visual, 0:15; " * 20_000 + "!",
        "(visual," + " " * 100_000 + "x)",
        "(visual, " + "0:15, " * 20_000 + ")",
        "(" * 50_000 + "visual, 0:15" + ")" * 50_000,
        "(visual, 0:" + "1" * 100_000 + ")",
        "." * 100_000 + "x",
        "." + " " * 100_000 + "x",
        "(" + "a " * 50_000 + "0:15)",
    ],
    ids=range(11),
)
def test_hostile_text_takes_linear_time(text):
    began = time.perf_counter()
    parse_citations(text)
    assert time.perf_counter() - began < 3


def test_the_real_responses_hold_only_well_formed_citations(shared_data):
    items = json.loads((shared_data / "video-clips/responses.json").read_text(encoding="utf-8"))
    cited = [parse_citations(item["model_generation"]) for item in items]
    assert [len(c.citations) for c in cited] == [3, 4, 3, 2]
    assert not any(c.malformed for c in cited)
    assert not any(word in c.text for c in cited for word in ("(", "visual,", "0:"))
    for item in items:
        for _, citation_texts, _ in item["facts"]:
            assert all(isinstance(parse_citation(text), Citation) for text in citation_texts)
