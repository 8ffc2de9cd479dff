"""Post-hoc attribution: the text stays, a sentence ends with what was found for its facts, failures are said."""

from pathlib import Path

import pytest
from chat_server import chat, model_of, running_server

from proofreel.core import Citation, Transcript, VideoSegment
from proofreel.data_prep.importers import Cue, Transcripts
from proofreel.data_prep.language import Completion
from proofreel.eval.citations.moments import Found, Moment, Search, moments_by_verifier, surest
from proofreel.eval.citations.post_hoc import (
    attributed_post_hoc,
    moments_by_language_model,
    with_citations,
    write_murgat_responses,
)
from proofreel.eval.citations.responses import GivenFact, GivenResponse, GivenSentence, read_murgat_responses
from proofreel.eval.citations.views import AnyEvidence, CaptionView, FrameView
from proofreel.eval.scores import Judgment, by_questions
from proofreel.models.inputs import Windowing
from proofreel.models.verifier import Sources

KITCHEN = Path(__file__).resolve().parents[2] / "examples" / "kitchen"
CUES = [Cue(0.0, 0.4, "chop"), Cue(1.5, 2.0, "bowl")]
SOURCES = {"a": Sources("sample.mp4", CUES), "mute": Sources("sample.mp4"), "gone": Sources("gone.mp4")}


def sources(video):
    return SOURCES[video]


def visual(start_s, end_s):
    return Citation("visual", start_s, end_s, f"visual, 0:0{start_s}-0:0{end_s}")


def scripted_judge(asked):
    """Says of each window by its place: supported from 0.75 s on in the picture, where the word stands in speech."""
    judgments = []
    for pair in asked:
        (evidence,) = pair.evidence
        if pair.claim == "broken":
            judgments.append(Judgment(None, error="no GPU"))
        elif isinstance(evidence, VideoSegment):
            yes = evidence.start_s >= 0.75 and pair.claim == "late"
            judgments.append(Judgment(yes, 0.6 + evidence.start_s / 10 if yes else 0.1))
        else:
            assert isinstance(evidence, Transcript)
            judgments.append(Judgment(pair.claim in evidence.text, 0.9))
    return judgments


def found_in_windows(*searches):
    find = moments_by_verifier(
        by_questions(scripted_judge), AnyEvidence(KITCHEN), sources, Windowing.parse("max:0.5:0.25")
    )
    return find(searches)


def test_a_verifier_finds_the_surest_window_rounded_outwards_to_seconds():
    late, speech, nowhere = found_in_windows(Search("mute", "late"), Search("a", "bowl"), Search("a", "never"))
    assert [(m.citation.modality, m.citation.start_s, m.citation.end_s) for m in late.moments] == [("visual", 1.0, 2.0)]
    assert late.moments[0].p_supported == pytest.approx(0.75)
    assert [m.citation.text for m in speech.moments] == ["audio, 0:01-0:02"]
    assert nowhere == Found()
    assert late.error is None  # that the video is mute is no failure where its picture can be looked at


def test_what_could_not_be_looked_at_is_said():
    mute, broken, gone = found_in_windows(
        Search("mute", "late", ("audio",)), Search("mute", "broken", ("visual",)), Search("gone", "late")
    )
    assert "no transcript" in (mute.error or "")
    assert broken == Found(error="7 of 7 windows failed: no GPU")
    assert "gone.mp4" in (gone.error or "")


def test_the_surest_moments_stay_in_order_of_time():
    moments = tuple(Moment(visual(n, n + 1), p) for n, p in enumerate([0.9, 0.6, 0.9]))
    assert surest(Found(moments)).moments == moments[:1]
    assert surest(Found(moments), 2).moments == (moments[0], moments[2])


@pytest.mark.parametrize(
    ("sentence", "cited"),
    [
        ("He runs.", "He runs (visual, 0:01-0:02)."),
        ('He says "Go!"', 'He says "Go (visual, 0:01-0:02)!"'),
        ("He runs", "He runs (visual, 0:01-0:02)"),
    ],
)
def test_citations_stand_before_the_full_stop(sentence, cited):
    assert with_citations(sentence, [visual(1, 2)]) == cited
    assert with_citations(sentence, []) == sentence


def response(*sentences):
    return GivenResponse("1", "a", sentences, True, True, "\nAnswer: A")


RESPONSE = response(
    GivenSentence("He runs and falls.", True, (GivenFact("He runs.", (), True), GivenFact("He falls.", ()))),
    GivenSentence("He sits (visual, 0:07).", True, (GivenFact("He sits.", (visual(7, 7),), True),)),
    GivenSentence("He sleeps.", True, (GivenFact("He sleeps.", ()),)),
    GivenSentence("Therefore A.", False),
)
PLACES = {"He runs.": (visual(1, 2),), "He falls.": (visual(3, 4), visual(1, 2)), "He sits.": (visual(5, 6),)}


def find(searches):
    return [Found(tuple(map(Moment, PLACES.get(search.claim, ())))) for search in searches]


def test_each_sentence_ends_with_what_was_found_for_its_facts_and_no_other_word_changes():
    (got,), proposals = attributed_post_hoc([RESPONSE], find)
    assert [s.text for s in got.sentences] == [
        "He runs and falls (visual, 0:01-0:02; visual, 0:03-0:04).",
        "He sits (visual, 0:07).",
        "He sleeps.",
        "Therefore A.",
    ]
    assert [len(fact.citations) for fact in got.sentences[0].facts or ()] == [2, 2]
    assert [fact.supported for fact in got.sentences[0].facts or ()] == [None, None]  # people judged other citations
    assert [p.fact for p in proposals] == ["He runs.", "He falls.", "He sleeps."]
    (own,), _ = attributed_post_hoc([RESPONSE], find, "all", "embedded")
    assert [len(fact.citations) for fact in own.sentences[0].facts or ()] == [1, 2]
    assert own.sentences[1].text == "He sits (visual, 0:05-0:06)."


def test_a_sentence_that_is_repeated_keeps_its_facts_each_time(tmp_path):
    one = GivenSentence("He runs.", True, (GivenFact("He runs.", ()),))
    again = GivenSentence("He runs (visual, 0:09).", True, (GivenFact("He runs.", (visual(9, 9),)),))
    write_murgat_responses(tmp_path / "r.json", [response(one, again, one)])
    (back,) = read_murgat_responses(tmp_path / "r.json")
    assert [[len(fact.citations) for fact in s.facts or ()] for s in back.sentences] == [[0], [1], [0]]


def test_attributed_responses_are_read_back_as_they_are(tmp_path):
    (got,), _ = attributed_post_hoc([RESPONSE], find)
    write_murgat_responses(tmp_path / "r.json", [got])
    (back,) = read_murgat_responses(tmp_path / "r.json")
    assert [(s.text, s.verifiable, s.is_cited) for s in back.sentences] == [
        (s.text, s.verifiable, s.is_cited) for s in got.sentences
    ]
    assert [[f.text for f in s.facts or ()] for s in back.sentences] == [
        [f.text for f in s.facts or ()] for s in got.sentences
    ]
    assert back.answer.strip() == "Answer: A"


def test_a_language_model_is_shown_times_pictures_and_speech_and_names_places():
    with running_server() as server:
        server.answer = lambda body: chat("1: (visual, 0:00-0:01; audio, 0:01)\n2: none")
        frames = FrameView(sources, AnyEvidence(KITCHEN))
        got = moments_by_language_model(model_of(server), frames)([Search("a", "late"), Search("a", "never")])
        parts = server.bodies[0]["messages"][0]["content"]
    assert [[m.citation.text for m in each.moments] for each in got] == [["visual, 0:00-0:01", "audio, 0:01"], []]
    assert [part["type"] for part in parts[:4]] == ["text", "image_url", "text", "image_url"]
    assert parts[0]["text"] == "0:00\n"
    assert any("Speech 0:01-0:02: bowl" in part.get("text", "") for part in parts)
    assert "2: never" in parts[-1]["text"]


def test_captions_stand_in_for_pictures_and_a_bad_answer_is_a_failure_that_quotes_it(tmp_path):
    (tmp_path / "a.srt").write_text("1\n00:00:00,000 --> 00:00:01,000\nA knife.\n", encoding="utf-8")
    prompts = []

    def model(messages):
        prompts.append(messages[0]["content"])
        return Completion("1: somewhere near the end")

    find_places = moments_by_language_model(model, CaptionView(Transcripts(tmp_path)))
    shown, bare = find_places([Search("a", "late"), Search("b", "late")])
    assert "somewhere near the end" in (shown.error or "")
    assert "no captions" in (bare.error or "") or "there are no captions" in (bare.error or "")
    assert prompts[0].startswith("Caption 0:00-0:01: A knife.\n")
