"""Laws of attribution, on the kitchen verifier and real clips; MuRGAt's numbers of a response worked by hand."""

# pyright: reportOptionalMemberAccess=false

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from examples.kitchen.encoding import write_video
from examples.kitchen.filming import film, plan_long
from examples.kitchen.sampling import FPS
from proofreel.core.citations import Citation
from proofreel.core.pairs import Image, Passage, Transcript, VideoSegment
from proofreel.data_prep.importers.transcripts import Cue
from proofreel.eval.metrics.ranking import roc_auc
from proofreel.eval.scores.murgat import attribution_of, cited_fact
from proofreel.models.decision.verdict import Verdict, failed
from proofreel.models.verifier.attribution import (
    Attributed,
    AttributionPairs,
    CitedClaim,
    JudgedCitation,
    Problem,
    Sources,
)
from proofreel.models.verifier.verifier import Verifier

KITCHEN = Path(__file__).resolve().parents[2] / "checkpoints" / "kitchen-verifier"
CUES = [Cue(0.0, 2.0, "now chop the carrot"), Cue(4.0, 5.0, "then stir it")]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A kitchen video of several steps, and the verifier that may be asked about it."""
    root = tmp_path_factory.mktemp("world")
    video = plan_long(31, "test", 1)[0]
    write_video(root / video.path, film(video), FPS)
    return video, Verifier.from_pretrained(
        KITCHEN, device="cpu", media_root=root, prefix_cache_gib=0, untrained_evidence=True
    )


@pytest.fixture
def verifier(world):
    return world[1]


@pytest.fixture
def sources(world):
    return Sources(world[0].path, CUES)


@pytest.fixture
def claim(world):
    return f"Ingredient is {world[0].steps[0].scene.facts.ingredient}."


def near(found, expected):
    return abs(found.margin - expected.margin) <= 1e-4 + 1e-5 * abs(expected.margin)


def cut(sources, start_s, end_s):
    return VideoSegment(sources.video, start_s, end_s)


def test_recall_relevance_and_necessity_are_verdicts_on_all_on_one_and_on_the_others(verifier, sources, claim):
    parts = cut(sources, 0.0, 2.0), cut(sources, 3.0, 5.0), cut(sources, 6.0, 7.0)
    found = verifier.attribute(
        claim, "(visual, 0:00-0:02; visual, 0:03-0:05; visual, 0:06)", sources, sets="one_prompt"
    )
    assert found.claim == claim
    assert found.is_complete
    assert near(found.recall, verifier.score([claim], parts)[0])
    for place, cite in enumerate(found.citations):
        others = tuple(part for part in parts if part != parts[place])
        assert cite.evidence == parts[place]
        assert near(cite.alone, verifier.score([claim], parts[place])[0])
        assert near(cite.without, verifier.score([claim], others)[0])


def test_the_step_that_shows_a_claim_is_told_from_those_that_do_not(verifier):
    planned = plan_long(31, "test", 3)
    margins, shows, right = [], [], []
    for video in planned:
        write_video(verifier.media_root / video.path, film(video), FPS)
        spans = [VideoSegment(video.path, step.start_s, step.end_s) for step in video.steps]
        claims = [CitedClaim(f"Ingredient is {step.scene.facts.ingredient}.", spans) for step in video.steps]
        for own, found in enumerate(verifier.attribute_many(claims)):
            right.append(found.necessary == tuple(place == own for place in range(len(spans))))
            assert (found.contradiction is None) == ((found.one_prompt.label == "supported") == any(found.relevant))
            margins += [cite.alone.margin for cite in found.citations]
            shows += [place == own for place in range(len(spans))]  # no two steps of a video share an ingredient
    assert roc_auc(margins, shows) >= 0.9
    assert sum(right) > len(right) / 2  # in one prompt, irrelevant company refutes nearly all of them


def test_the_order_of_citations_changes_nothing(verifier, sources, claim):
    texts = ["visual, 0:03-0:05", "audio, 0:01", "visual, 0:00-0:02"]
    first = verifier.attribute(claim, texts, sources)
    by_text = {cite.citation.text: cite for cite in first.citations}
    for order in itertools.permutations(texts):
        again = verifier.attribute(claim, list(order), sources)
        assert again.recall == first.recall
        assert [cite.citation.text for cite in again.citations] == list(order)
        assert all(cite == by_text[cite.citation.text] for cite in again.citations)


def test_an_only_citation_is_as_relevant_as_recall_and_necessary_where_it_supports(verifier, sources, claim):
    for text, supports in (("visual, 0:00-0:02", True), ("visual, 0:03-0:05", False)):
        found = verifier.attribute(claim, text, sources)
        (cite,) = found.citations
        assert cite.alone == found.recall
        assert cite.without is None
        assert found.relevant == found.necessary == (supports,)


def test_picture_and_speech_of_one_span_are_two_pieces_of_evidence(verifier, sources, claim):
    found = verifier.attribute(claim, "(visual, 0:00-0:02; audio, 0:00-0:02)", sources)
    seen, said = found.citations
    assert seen.evidence == cut(sources, 0.0, 2.0)
    assert said.evidence == Transcript("now chop the carrot", 0.0, 2.0)
    assert near(seen.without, said.alone)
    assert near(said.without, seen.alone)
    assert not near(seen.alone, said.alone)


def test_citations_of_the_same_evidence_are_asked_about_once_and_told(verifier, sources, claim):
    found = verifier.attribute(claim, "(visual, 0:03-0:05; visual, 0:01; ocr, 0:01; visual, 0:01-0:02)", sources)
    assert [cite.same_as for cite in found.citations] == [None, None, 1, 1]
    assert len({cite.alone for cite in found.citations[1:]}) == 1
    plain = verifier.attribute(claim, "(visual, 0:01; visual, 0:03-0:05)", sources)
    assert found.recall == plain.recall
    questions = AttributionPairs([CitedClaim(claim, "(visual, 0:01; ocr, 0:01)", sources)] * 3, verifier.reader)
    assert len(questions.pairs) == 1


def test_what_cannot_be_judged_is_reported_and_recall_says_that_it_rests_on_the_others(verifier, sources, claim):
    text = "(visual, 0:00-0:02; visual, 9:59; audio, 0:03-0:04; smell, 0:01; visual, 0:08-0:05; visual, 0:05-0:40)"
    found = verifier.attribute(claim, text, sources)
    kinds = [cite.problem and cite.problem.kind for cite in found.citations]
    assert kinds == [None, "beyond_end", "modality", "malformed", "malformed", "beyond_end"]
    assert [word in c.problem.message for c, word in zip(found.citations[1:], ["9:59", "words", "smell"], strict=False)]
    assert all(c.alone is None and c.without is None and c.evidence is None for c in found.citations[1:])
    assert found.recall.note == "rests on 1 of 6 citations: the others cannot be judged"
    assert not found.is_complete
    assert found.recall.margin == verifier.attribute(claim, "visual, 0:00-0:02", sources).recall.margin
    assert found.relevant[1:] == found.necessary[1:] == (None,) * 5


def test_where_no_citation_can_be_judged_recall_has_no_verdict(verifier, sources, claim):
    for text in ("(visual, 9:59; smell, 0:01)", "", []):
        found = verifier.attribute(claim, text, sources)
        assert math.isnan(found.recall.margin)
        assert found.recall.label is None
        assert "no citation can be judged" in found.recall.error
    assert "9:59" in verifier.attribute(claim, "visual, 9:59", sources).recall.error


def test_modalities_that_are_not_at_hand_or_not_the_verifiers_are_reported(verifier, sources, claim, monkeypatch):
    cites = "(visual, 0:01; audio, 0:01)"
    deaf = verifier.attribute(claim, cites, Sources(sources.video))
    assert "no transcript" in deaf.citations[1].problem.message
    blind = verifier.attribute(claim, cites, Sources(None, CUES))
    assert "no video" in blind.citations[0].problem.message
    assert blind.recall.error is None
    monkeypatch.setattr(verifier.reader, "modalities", ("video",))
    untrained = verifier.attribute(claim, cites, sources)
    assert untrained.citations[1].problem.kind == "modality"
    assert "trained on video only" in untrained.citations[1].problem.message
    assert untrained.recall.margin == deaf.recall.margin


def test_media_that_cannot_be_read_are_a_failure_and_no_problem_of_the_citation(verifier, claim):
    found = verifier.attribute(claim, "(visual, 0:01; audio, 0:01)", Sources("missing.mp4", CUES))
    seen, said = found.citations
    assert seen.problem is None
    assert "missing.mp4" in seen.alone.error
    assert "missing.mp4" in found.recall.error
    assert said.alone.error is None
    assert found.relevant[0] is None
    assert found.necessary == (None, None)
    assert cited_fact(found).all_support is None


def test_a_citation_that_overruns_the_video_by_less_than_a_second_ends_with_it(world, verifier, sources, claim):
    last = world[0].steps[-1].end_s
    whole_s = math.floor(last)
    assert last != whole_s
    (cite,) = verifier.attribute(claim, [Citation("visual", whole_s, whole_s)], sources).citations
    assert (cite.evidence.start_s, cite.evidence.end_s) == (whole_s, pytest.approx(last))
    assert "cut at the end" in cite.note
    assert cite.alone.error is None
    for start_s, end_s in ((whole_s + 1, whole_s + 1), (whole_s - 1, last + 1.01)):
        (beyond,) = verifier.attribute(claim, [Citation("visual", start_s, end_s)], sources).citations
        assert beyond.problem.kind == "beyond_end"


def test_evidence_may_stand_in_the_place_of_a_citation(verifier, sources, claim):
    given = [cut(sources, 0.0, 2.0), Passage("A carrot is chopped."), cut(sources, 2.0, 99.0), Image("missing.png")]
    found = verifier.attribute(claim, given, sources)
    assert [cite.problem and cite.problem.kind for cite in found.citations] == [None, None, "beyond_end", None]
    assert "missing.png" in found.recall.error
    two = verifier.attribute(claim, given[:2], Sources())
    assert near(two.one_prompt, verifier.score([claim], tuple(given[:2]))[0])


def test_citations_in_the_claim_are_read_and_taken_out(verifier, sources, claim):
    (found,) = verifier.attribute_many([CitedClaim(claim.rstrip(".") + " (visual, 0:00-0:02).", sources=sources)])
    assert found == verifier.attribute(claim, "visual, 0:00-0:02", sources)
    assert found.claim == claim


def test_many_claims_at_once_are_what_each_is_alone(verifier, sources, claim):
    claims = [
        CitedClaim(claim, "(visual, 0:00-0:02; visual, 0:03-0:05)", sources),
        CitedClaim("Tool is knife.", "(visual, 0:00-0:02; audio, 0:01)", sources),
        CitedClaim("Tool is knife.", "(visual, 9:59)", sources),
        CitedClaim(claim, "(visual, 0:03-0:05)", sources),
    ]
    for asked, found in zip(claims, verifier.attribute_many(claims), strict=True):
        (alone,) = verifier.attribute_many([asked])
        assert (found.recall.error is None) == (alone.recall.error is None)
        assert alone.recall.error is not None or near(found.recall, alone.recall)
        for one, other in zip(found.citations, alone.citations, strict=True):
            assert (one.problem, one.evidence, one.same_as) == (other.problem, other.evidence, other.same_as)
            assert one.alone is None or near(one.alone, other.alone)
            assert one.without is None or near(one.without, other.without)


def test_each_evidence_is_encoded_once_for_all_claims(verifier, sources, claim, monkeypatch):
    seen, encode = [], verifier.encoder.evidence
    monkeypatch.setattr(verifier.encoder, "evidence", lambda e, media: seen.append(e) or encode(e, media))
    cites = "(visual, 0:00-0:02; visual, 0:03-0:05; audio, 0:01)"
    verifier.attribute_many([CitedClaim(text, cites, sources) for text in (claim, "Tool is knife.", "Tool is fork.")])
    assert len(seen) == len(set(seen)) == 1 + 3 + 3


def test_cited_spans_longer_than_a_window_are_judged_in_windows_and_say_so(verifier, sources, claim):
    found = verifier.with_windowing("max:2:2").attribute(claim, "(visual, 0:00-0:04)", sources)
    assert found.recall.route == "windows"
    assert len(found.recall.windows) == 2


# MuRGAt's numbers, by hand ------------------------------------------------------------------------------------------


def said(label):
    p = {"supported": 0.9, "not_supported": 0.2}[label]
    return Verdict(p, math.log(p / (1 - p)), label)


YES, NO = said("supported"), said("not_supported")
CITED = Citation("visual", 1.0, 2.0)


def cite(alone, place, same_as=None):
    return JudgedCitation(CITED, VideoSegment("a.mp4", float(place)), same_as=same_as, alone=alone, without=NO)


def out_of_reach(kind: Any = "beyond_end"):
    return JudgedCitation(CITED, problem=Problem(kind, "beyond the end"))


RESPONSE = [
    Attributed("one citation, right", YES, (cite(YES, 0),)),
    Attributed("three, one of them right", YES, (cite(YES, 0), cite(NO, 1), cite(NO, 2))),
    Attributed("none right, and one beyond the end", NO, (cite(NO, 0), out_of_reach())),
    Attributed("nothing is cited", failed("no citation"), ()),
]


def test_the_numbers_of_a_response_worked_by_hand():
    got = attribution_of(RESPONSE)  # the third fact lacks a verdict and is left out
    assert (got.n, got.n_failed) == (2, 1)
    assert got.precision_pooled == 2 / 4
    assert got.precision_per_fact == pytest.approx((1 + 1 / 3) / 2)
    assert got.recall == 1.0
    assert got.f1_pooled == pytest.approx(2 * 0.5 * 1 / 1.5)


def test_what_is_not_there_can_count_as_wrong():
    got = attribution_of(RESPONSE, counts_as_wrong={"beyond_end"})
    assert (got.n, got.n_failed) == (3, 0)
    assert got.precision_pooled == 2 / 6
    assert got.precision_per_fact == pytest.approx((1 + 1 / 3 + 0) / 3)
    assert got.recall == pytest.approx(2 / 3)
    nothing_there = Attributed("all of it beyond the end", failed("none"), (out_of_reach(), out_of_reach("malformed")))
    assert cited_fact(nothing_there).all_support is None
    assert cited_fact(nothing_there, {"beyond_end"}).all_support is None
    wrong = cited_fact(nothing_there, {"beyond_end", "malformed"})
    assert (wrong.each_supports, wrong.all_support) == ([False, False], False)


def test_a_repeated_citation_counts_once_and_a_failure_is_no_verdict():
    repeated = Attributed("twice", YES, (cite(YES, 0), cite(YES, 0, same_as=0), cite(NO, 1)))
    assert cited_fact(repeated).each_supports == [True, False]
    broken = Attributed("broken", failed("missing.mp4"), (cite(failed("missing.mp4"), 0),))
    assert cited_fact(broken).each_supports == [None]
    assert attribution_of([broken]).n_failed == 1
    assert math.isnan(attribution_of([broken]).recall)
    assert cited_fact(RESPONSE[3]) is None


def test_a_draft_without_labels_counts_nothing():
    draft = Verdict(0.9, 2.0, None)
    found = Attributed("draft", draft, (cite(draft, 0),))
    assert found.relevant == found.necessary == (None,)
    assert cited_fact(found).each_supports == [None]
