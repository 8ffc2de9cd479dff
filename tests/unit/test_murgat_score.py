"""MURGAT-Score against numbers worked out by hand, and its bounds where judgments failed against all completions."""

import dataclasses
import itertools
import json
import math
import os
from pathlib import Path

import pytest

from proofreel.core import CitedModality, RowError
from proofreel.eval.citations.correlation import murgat_agreement
from proofreel.eval.citations.responses import judged_by_labels, read_murgat_responses
from proofreel.eval.citations.scores import (
    FactCitation,
    JudgedFact,
    JudgedResponse,
    JudgedSentence,
    as_json,
    compare_murgat,
    murgat_scores,
    murgat_system_scores,
)

CLIPS = Path(os.environ.get("PROOFREEL_SHARED", "shared"), "data/video-clips/responses.json")
with_clips = pytest.mark.skipif(not CLIPS.exists(), reason="needs PROOFREEL_SHARED with data/video-clips")


def sentence(text: str, verifiable: bool | None = True, *facts: JudgedFact) -> JudgedSentence:
    return JudgedSentence(text, verifiable, facts)


def fact(supported: bool | None, *relevant: bool | None, modality: CitedModality = "visual") -> JudgedFact:
    cites = tuple(FactCitation(f"visual, 0:0{i}", modality, value) for i, value in enumerate(relevant))
    return JudgedFact("He runs.", cites, supported)


def response(*sentences, id="r", group="v"):
    return JudgedResponse(id, group, sentences)


@with_clips
def test_the_shared_responses_score_what_people_worked_out_by_hand():
    """Every fact has people's label (supported by its citations together); no list of needed citations.

    Sentences with facts are verifiable: 3, 3, 3 and 2 of them, all cited, so coverage is 1 everywhere.
    coffee   facts T T F F, one citation each:    P = 2/4, R = 2/4, F1 = 1/2
    demo_2   facts T T T T with 1, 1, 2, 1 cites: R = 4/4; of 5 citations 3 are known to be relevant and 2
             lack a label: P from 3/5 to 5/5, F1 from 2 x 0.6 / 1.6 = 3/4 to 1; per fact P from
             (1 + 1 + 0 + 1) / 4 = 3/4 to 1, F1 from 2 x 0.75 / 1.75 = 6/7 to 1
    demo_4   facts T T F, one citation each:      P = R = F1 = 2/3
    pancake  facts T T, one citation each:        P = R = F1 = 1
    Mean MURGAT-Score: (1/2 + 3/4 + 2/3 + 1) / 4 = 35/48 to (1/2 + 1 + 2/3 + 1) / 4 = 19/24.
    """
    responses = read_murgat_responses(CLIPS)
    system = murgat_system_scores(judged_by_labels(one) for one in responses)
    assert [one.scores["coverage"].value for one in system.responses] == [1.0] * 4
    bounds = [(one.scores["murgat"].low, one.scores["murgat"].high) for one in system.responses]
    assert bounds == [pytest.approx(pair) for pair in [(1 / 2, 1 / 2), (3 / 4, 1), (2 / 3, 2 / 3), (1, 1)]]
    mean = system.mean["murgat"]
    assert math.isnan(mean.value)
    assert (mean.low, mean.high, mean.n, mean.n_failed) == (pytest.approx(35 / 48), pytest.approx(19 / 24), 4, 1)
    assert system.responses[1].scores["f1_per_fact"].low == pytest.approx(6 / 7)
    # All in one pool: 14 citations, 9 known to be relevant and 2 unknown; 10 of 13 facts supported.
    pool = system.pooled
    assert (pool["precision"].low, pool["precision"].high) == (pytest.approx(9 / 14), pytest.approx(11 / 14))
    assert pool["recall"].value == pytest.approx(10 / 13)
    assert (pool["precision_audio"].value, pool["precision_audio"].n) == (1.0, 1)
    # With all citations of a supported fact relevant, the upper bounds are the scores.
    whole = murgat_system_scores(judged_by_labels(one, "as_fact") for one in responses)
    assert whole.mean["murgat"].value == pytest.approx(19 / 24)


@with_clips
def test_one_more_verifiable_sentence_lowers_coverage(tmp_path):
    """Pancake: "The scene takes place in a kitchen." cites nothing. Verifiable, it makes coverage 2/3, score 2/3."""
    records = json.loads(CLIPS.read_text())
    records[3]["verifiable"] = {"The scene takes place in a kitchen.": True}
    path = tmp_path / "responses.json"
    path.write_text(json.dumps(records))
    scores = murgat_scores(judged_by_labels(read_murgat_responses(path)[3])).scores
    assert scores["coverage"].value == pytest.approx(2 / 3)
    assert scores["murgat"].value == pytest.approx(2 / 3)
    assert scores["f1"].value == 1.0


def test_the_paper_and_its_code_average_precision_otherwise():
    """Facts with (yes, no, no) and (yes): pooled 2/4, per fact (1/3 + 1) / 2 = 2/3; recall 1; coverage 1/2."""
    one = response(
        sentence("A (visual, 0:05).", True, fact(True, True, False, False), fact(True, True)), sentence("B.")
    )
    scores = murgat_scores(one).scores
    assert scores["precision"].value == 1 / 2
    assert scores["precision_per_fact"].value == pytest.approx(2 / 3)
    assert scores["murgat"].value == pytest.approx(0.5 * (2 * 0.5 / 1.5))
    assert scores["murgat_per_fact"].value == pytest.approx(0.5 * (2 * (2 / 3) / (5 / 3)))


def test_over_citation_is_the_cited_share_of_what_is_not_verifiable():
    one = response(sentence("So A (visual, 0:05).", False), *[sentence("So B.", False)] * 3, sentence("C."))
    scores = murgat_scores(one).scores
    assert (scores["over_citation"].value, scores["over_citation"].n) == (0.25, 4)
    assert (scores["coverage"].value, scores["murgat"].value) == (0.0, 0.0)
    assert math.isnan(scores["f1"].low)


def test_precision_by_modality_counts_its_citations():
    facts = fact(True, True, False), fact(False, False, modality="audio")
    scores = murgat_scores(response(sentence("A (visual, 0:05).", True, *facts))).scores
    assert (scores["precision_visual"].value, scores["precision_visual"].n) == (0.5, 2)
    assert (scores["precision_audio"].value, scores["precision_audio"].n) == (0.0, 1)
    assert math.isnan(scores["precision_ocr"].value)


def test_without_verifiable_sentences_nothing_is_defined_and_the_mean_leaves_it_out():
    empty = response(sentence("So A.", False), id="empty")
    full = response(sentence("A (visual, 0:05).", True, fact(True, True)), id="full")
    system = murgat_system_scores([empty, full])
    assert (system.mean["murgat"].value, system.mean["murgat"].n, system.n_undefined["murgat"]) == (1.0, 1, 1)
    assert as_json(murgat_scores(empty))["scores"]["murgat"]["value"] is None


def completions(one):
    """A response with every failed judgment answered in every way: judged facts, unknown sentences kept or dropped."""
    places = []
    for i, each in enumerate(one.sentences):
        places += [(i, None, None)] if each.verifiable is None else []
        for j, judged in enumerate(each.facts):
            places += [(i, j, None)] if judged.supported is None else []
            places += [(i, j, k) for k, cite in enumerate(judged.citations) if cite.relevant is None]
    for answers in itertools.product([False, True], repeat=len(places)):
        sentences = list(one.sentences)
        for (i, j, k), answer in zip(places, answers, strict=True):
            facts = list(sentences[i].facts)
            if j is None:
                sentences[i] = dataclasses.replace(sentences[i], verifiable=answer)
                continue
            cites = list(facts[j].citations)
            if k is None:
                facts[j] = dataclasses.replace(facts[j], supported=answer)
            else:
                cites[k] = dataclasses.replace(cites[k], relevant=answer)
                facts[j] = dataclasses.replace(facts[j], citations=tuple(cites))
            sentences[i] = dataclasses.replace(sentences[i], facts=tuple(facts))
        yield dataclasses.replace(one, sentences=tuple(sentences))


def test_bounds_hold_every_way_in_which_the_failures_could_have_been_answered():
    one = response(
        sentence("A (visual, 0:05).", True, fact(True, True, None), fact(None, False)),
        sentence("B (visual, 0:01).", None, fact(True, True)),
        sentence("C.", None),
        sentence("D (visual, 0:02).", False),
    )
    bounds = murgat_scores(one).scores
    for name, bound in bounds.items():
        values = [murgat_scores(each).scores[name].value for each in completions(one)]
        values = [value for value in values if not math.isnan(value)]
        assert all(bound.low - 1e-12 <= value <= bound.high + 1e-12 for value in values), name
        assert (bound.n_failed > 0) == math.isnan(bound.value) or not values or bound.low == bound.high
    assert (bounds["coverage"].low, bounds["coverage"].high, bounds["coverage"].n_failed) == (1 / 2, 1.0, 2)


def test_a_sentence_that_could_not_be_cut_stands_as_one_unjudged_fact():
    known = sentence("A (visual, 0:05).", True, fact(True, True))
    scores = murgat_scores(response(known, sentence("B (visual, 0:01; audio, 0:02)."))).scores
    assert (scores["recall"].low, scores["recall"].high, scores["recall"].n_failed) == (0.5, 1.0, 1)
    assert (scores["precision"].low, scores["precision"].high, scores["precision"].n) == (1 / 3, 1.0, 3)


def systems():
    """Two systems over 12 responses of 6 videos; the second supports every third fact more."""
    made = []
    for better in (False, True):
        rows = []
        for i in range(12):
            yes = i % 2 == 0 or (better and i % 3 == 0)
            rows.append(
                response(
                    sentence("A (visual, 0:05).", True, fact(yes, yes), fact(True, True)), id=str(i), group=str(i // 2)
                )
            )
        made.append(murgat_system_scores(rows, n_draws=500))
    return made


def test_systems_are_compared_on_the_same_responses():
    first, second = systems()
    # Only 3 and 9 change, each from F1 1/2 to 1: the mean difference is 2 x 0.5 / 12.
    got = compare_murgat(first, second, n_draws=500).difference["murgat"]
    assert got.value == pytest.approx(1 / 12)
    assert got.interval is not None
    assert got.interval.low <= got.value <= got.interval.high
    assert got.interval.n_groups == 6
    same = compare_murgat(first, first, n_draws=500).difference["murgat"]
    assert same.interval is not None
    assert (same.value, same.interval.low, same.interval.high) == (0.0, 0.0, 0.0)


def test_systems_without_a_common_response_cannot_be_compared():
    first, second = systems()
    other = murgat_system_scores([response(sentence("A."), id="x")])
    with pytest.raises(RowError, match="equal ids"):
        compare_murgat(first, other)
    assert murgat_agreement(second, second)["murgat"].pearson == pytest.approx(1.0)


def test_bad_responses_are_refused_with_file_line_and_remedy(tmp_path):
    path = tmp_path / "r.jsonl"
    good = {"video": "a.mp4", "model_generation": "He runs (visual, 0:05). He sits."}
    for bad, said in [
        ({"video": "a.mp4", "model_generation": "He runs.", "facts": [["He runs.", [], True]]}, "`sentence`"),
        (good | {"id": "x", "verifiable": {"She runs.": True}}, "copy a sentence"),
        (good | {"id": "x", "verifiable": [1]}, "true or false"),
        (good, "`id`"),
        ({"video": 3}, "name the video"),
    ]:
        path.write_text(json.dumps(good) + "\n" + json.dumps(bad) + "\n")
        with pytest.raises(RowError, match=said) as error:
            read_murgat_responses(path)
        assert f"{path}:2" in str(error.value)


def test_a_scored_file_is_read_with_its_judgments(tmp_path):
    judgments = {"(visual, 0:05)": True, "(audio, 0:06)": None}
    record = {
        "video": "a.mp4",
        "model_generation": "He runs (visual, 0:05; audio, 0:06). So B.",
        "evaluations": {
            "He runs (visual, 0:05; audio, 0:06).": {
                "verification_worthy": {"prediction": True},
                "atomic_facts": [
                    {
                        "fact": "- He runs (visual, 0:05; audio, 0:06).",
                        "scores": {
                            "recall": 1.0,
                            "citation_judgments": judgments,
                        },
                    }
                ],
            },
            "So B.": {"verification_worthy": {"prediction": False}},
        },
    }
    path = tmp_path / "scored.json"
    path.write_text(json.dumps([record]))
    scores = murgat_scores(judged_by_labels(read_murgat_responses(path)[0])).scores
    assert (scores["recall"].value, scores["coverage"].value) == (1.0, 1.0)
    assert (scores["precision"].low, scores["precision"].high) == (0.5, 1.0)
