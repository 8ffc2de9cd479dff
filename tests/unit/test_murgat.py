"""MuRGAt files: one pair per cited fact, and everything else listed; layouts nobody published are hand-made here."""

import json
from collections import Counter
from pathlib import Path

import pytest

from proofreel.core.errors import ConfigError
from proofreel.core.pairs import Pair, Transcript, VideoSegment, problems_of
from proofreel.data_prep.importers.base import Rejected, Row
from proofreel.data_prep.importers.murgat import MurgatOptions, read

SCORED = {
    "video": "dev_Physics_1",
    "question": "Which force?",
    "options": ["A. Repulsive", "B. None"],
    "model_generation": "Reasoning: It is said that forces are positive (audio, 0:01-0:03). Answer: A",
    "decontextualized_text": "The narrator says that forces are positive (audio, 0:01-0:03; visual, 0:02).",
    "evaluations": {
        "The narrator says that forces are positive (audio, 0:01-0:03; visual, 0:02).": {
            "verification_worthy": {"prediction": True, "prediction_raw": "YES"},
            "atomic_facts": [
                {
                    "fact": "- Forces are positive (audio, 0:01-0:03; visual, 0:02).",
                    "scores": {
                        "precision": 0.5,
                        "recall": 1.0,
                        "citation_judgments": {"(audio, 0:01-0:03)": True, "(visual, 0:02)": False},
                    },
                },
                {"fact": "- A graph is blue (visual, 0:02-0:04).", "scores": {"precision": 0.0, "recall": 0.0}},
                {"fact": "- A graph is big (visual, 0:05).", "scores": {"recall": None}},
                {"fact": "- A graph exists.", "scores": None},
            ],
        },
        "A second sentence.": {"verification_worthy": {"prediction": True}, "atomic_facts": []},
        "Therefore A.": {"verification_worthy": {"prediction": False}, "atomic_facts": None},
        "Unjudged.": {"verification_worthy": {"prediction": None, "error": "timeout"}},
    },
    "response_score": {"coverage": 0.5, "final_score": None},
}


def read_items(tmp_path: Path, *items: object, options: MurgatOptions | None = None) -> list[Row | Rejected]:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(item) for item in items), encoding="utf-8")
    (tmp_path / "said").mkdir(exist_ok=True)
    (tmp_path / "said/dev_Physics_1.srt").write_text("1\n00:00:01,000 --> 00:00:03,000\nForces are positive.\n")
    return list(read(path, options or MurgatOptions(transcripts="said")))


def pairs_of(found: list[Row | Rejected]) -> list[Pair]:
    return [item.pair for item in found if isinstance(item, Row)]


def rejected_of(found: list[Row | Rejected]) -> list[Rejected]:
    return [item for item in found if isinstance(item, Rejected)]


def test_the_real_judged_facts_are_imported_whole(shared_data):
    path = shared_data / "video-clips/responses.json"
    items = json.loads(path.read_text(encoding="utf-8"))
    found = list(read(path, MurgatOptions(transcripts="transcripts.json")))
    pairs = pairs_of(found)
    assert len(items) == 4
    assert [p.claim for p in pairs] == [fact for item in items for fact, _, _ in item["facts"]]
    assert Counter(p.label for p in pairs) == {"supported": 10, "not_enough": 3}
    assert Counter(p.modality for p in pairs) == {"visual": 12, "audio": 1}
    assert {p.group for p in pairs} == {item["video"] for item in items}
    assert not [problem for p in pairs for problem in problems_of(p)]
    by_claim = {p.claim: p for p in pairs}
    girl = by_claim["A girl says that one should look at what she is drawing."]
    assert girl.evidence == (Transcript("Hello! Take a look at what am I drawing!", 0.0, 5.0),)
    carrot = by_claim["The woman tips chopped carrot from a white bowl into a frying pan."]
    assert carrot.evidence == (VideoSegment("mllm_demo_2.avi", 1.0, 2.0), VideoSegment("mllm_demo_2.avi", 8.0, 9.0))
    assert by_claim["The mug is red."].context == "The mug is red and stands in a sink."


def test_every_real_sentence_without_citation_is_listed_and_stops_nothing(shared_data):
    found = rejected_of(
        list(read(shared_data / "video-clips/responses.json", MurgatOptions(transcripts="transcripts.json")))
    )
    assert len(found) == 5
    assert {(r.kind, r.blocking) for r in found} == {("sentence without citations", False)}
    assert "The scene takes place in a kitchen." in found[-2].reason  # the last but one of the pancake response


def test_without_transcripts_only_the_facts_that_cite_sound_are_lost(shared_data):
    found = list(read(shared_data / "video-clips/responses.json", MurgatOptions()))
    assert len(pairs_of(found)) == 12
    (lost,) = [r for r in rejected_of(found) if r.blocking]
    assert (lost.line, lost.pairs, lost.kind) == (83, 1, "audio is cited without transcripts")


def test_scored_facts_carry_their_combined_citations_and_no_label(tmp_path):
    found = read_items(tmp_path, SCORED)
    pairs = pairs_of(found)
    video = "dev_Physics_1.mp4"
    assert [(p.claim, p.label, p.origin, p.modality) for p in pairs] == [
        ("Forces are positive.", None, "generated", "mixed"),
        ("A graph is blue.", None, "generated", "visual"),
        ("A graph is big.", None, "generated", "visual"),
    ]
    assert pairs[0].evidence == (Transcript("Forces are positive.", 1, 3), VideoSegment(video, 2, 3))
    assert {p.context for p in pairs} == {"The narrator says that forces are positive."}
    assert {p.group for p in pairs} == {video}
    assert pairs[0].meta["verification_worthy"] is True
    assert (
        pairs[0].meta["scores"] == SCORED["evaluations"][next(iter(SCORED["evaluations"]))]["atomic_facts"][0]["scores"]
    )
    assert pairs[0].meta["citations"] == ["audio, 0:01-0:03", "visual, 0:02"]
    assert pairs[0].meta["question"] == "Which force?"
    assert [(r.kind, r.blocking) for r in rejected_of(found)] == [
        ("fact without citations", False),
        ("check-worthy sentence without facts", False),
        ("sentence was never judged check-worthy or not", False),
    ]


def test_recall_becomes_a_label_on_request_and_says_that_a_model_judged(tmp_path):
    pairs = pairs_of(read_items(tmp_path, SCORED, options=MurgatOptions(transcripts="said", labels="recall")))
    assert [(p.label, p.origin) for p in pairs] == [
        ("supported", "model_judged"),
        ("not_enough", "model_judged"),
        (None, "generated"),
    ]


def test_cited_sentences_of_a_bare_generation_become_unlabelled_claims(tmp_path):
    text = "Dr. Fox holds 2.5 cups (visual, 0:01). He pours. (visual, 0:02; visual, 0:02) So it is A."
    text = f"Reasoning: {text}\nAnswer: A"
    found = read_items(tmp_path, {"video": "v.webm", "id": "q7", "model_generation": text})
    pairs = pairs_of(found)
    assert [(p.claim, p.label) for p in pairs] == [("Dr. Fox holds 2.5 cups.", None), ("He pours.", None)]
    assert {p.context for p in pairs} == {"Dr. Fox holds 2.5 cups. He pours. So it is A."}
    assert pairs[1].evidence == (VideoSegment("v.webm", 2, 3),)
    assert pairs[0].id.startswith("q7/")
    assert ["So it is A." in r.reason for r in rejected_of(found)] == [True]


def test_a_judged_fact_may_be_an_object_that_says_more(tmp_path):
    fact = {
        "fact": "- A dog (visual, 0:01)",
        "citations": ["audio, 0:02"],
        "supported": None,
        "needed": ["visual, 0:01"],
    }
    fact |= {"verifiable": True, "sentence": "A dog barks (visual, 0:01)."}
    (pair,) = pairs_of(read_items(tmp_path, {"video": "dev_Physics_1", "facts": [fact]}))
    assert (pair.claim, pair.label, pair.context, pair.modality) == ("A dog", None, "A dog barks.", "mixed")
    assert (pair.meta["needed"], pair.meta["verifiable"]) == (["visual, 0:01"], True)


@pytest.mark.parametrize(
    ("citation", "kind", "blocking"),
    [
        ("(visual, 0:75)", "citation cannot be read", True),
        ("see below", "citation cannot be read", True),
        ("(audio, 0:09)", "nothing is said in the cited span", False),
    ],
)
def test_a_fact_with_an_unusable_citation_is_listed_whole(tmp_path, citation, kind, blocking):
    item = {"video": "dev_Physics_1.mp4", "facts": [["A dog.", ["(visual, 0:01)", citation], True]]}
    (lost,) = read_items(tmp_path, item)
    assert isinstance(lost, Rejected)
    assert (lost.kind, lost.blocking, lost.pairs, lost.line) == (kind, blocking, 1, 1)


def test_what_a_model_cites_wrongly_is_listed_and_stops_nothing(tmp_path):
    item = {"video": "v", "model_generation": "A dog (visual, 0:75). A cat (visual, 0:15"}
    assert [(r.kind, r.blocking) for r in rejected_of(read_items(tmp_path, item))] == [
        ("citation cannot be read", False)
    ] * 2
    judged = {**item, "facts": [["A bird.", ["(visual, 0:01)"], True]]}
    found = read_items(tmp_path, judged)
    assert len(pairs_of(found)) == 1
    assert [r.blocking for r in rejected_of(found)] == [False, False]


def test_a_missing_or_damaged_transcript_stops_a_build(tmp_path):
    item = {"video": "other", "facts": [["A dog barks.", ["(audio, 0:01)"], True]]}
    (lost,) = read_items(tmp_path, item)
    assert isinstance(lost, Rejected)
    assert (lost.kind, lost.blocking) == ("transcript is missing", True)
    (tmp_path / "said/other.srt").write_text("lost words\n")
    (lost,) = read_items(tmp_path, item)
    assert isinstance(lost, Rejected)
    assert (lost.kind, lost.blocking) == ("transcript cannot be read", True)
    assert "other.srt:1: text without a time line" in lost.reason


def test_failed_generations_are_listed_and_stop_nothing(tmp_path):
    found = read_items(tmp_path, {"video": "v", "error": "API"}, {"video": "v", "model_generation": ""})
    assert [(r.kind, r.blocking) for r in rejected_of(found)] == [("generation failed", False)] * 2


def test_ids_are_unique_and_do_not_depend_on_the_order_of_records(tmp_path):
    items = [
        SCORED,
        {**SCORED, "question": "Other?"},
        {"video": "v", "model_generation": "A (visual, 0:01). A (visual, 0:01)."},
    ]
    one = [p.id for p in pairs_of(read_items(tmp_path, *items))]
    other = [p.id for p in pairs_of(read_items(tmp_path, *items[::-1]))]
    assert len(set(one)) == len(one) == 8
    assert set(one) == set(other)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("x", "record must be an object"),
        ({"model_generation": "x"}, "video must be a file name"),
        ({"video": None, "facts": []}, "video must be a file name"),
        ({"video": 3, "facts": []}, "video must be a file name"),
        ({"video": "v", "id": 3, "facts": []}, "id must be text"),
        ({"video": "v"}, "holds neither text nor facts"),
        ({"video": "v", "model_generation": ["x"]}, "model_generation must be text"),
        ({"video": "v", "facts": {"a": 1}}, "facts must be"),
        ({"video": "v", "facts": [["a", ["b"]]]}, "facts must be"),
        ({"video": "v", "facts": [["a", "b", True]]}, "facts must be"),
        ({"video": "v", "facts": [["a", [None], True]]}, "facts must be"),
        ({"video": "v", "facts": [["a", ["b"], "yes"]]}, "facts must be"),
        ({"video": "v", "facts": [{"fact": "a", "citations": [], "suported": True}]}, "facts must be"),
        ({"video": "v", "evaluations": []}, "evaluations must map"),
        ({"video": "v", "evaluations": {"s": None}}, "evaluation of a sentence cannot be read, got 's'"),
        ({"video": "v", "evaluations": {"s": {"verification_worthy": {"prediction": "YES"}}}}, "cannot be read"),
        ({"video": "v", "evaluations": {"s": {"atomic_facts": [{"fact": None}]}}}, "cannot be read"),
        (
            {"video": "v", "evaluations": {"s": {"atomic_facts": [{"fact": "f", "scores": {"recall": 0.5}}]}}},
            "cannot be",
        ),
        (
            {"video": "v", "evaluations": {"s": {"atomic_facts": [{"fact": "f", "scores": {"recall": float("nan")}}]}}},
            "cann",
        ),
    ],
)
def test_a_record_that_is_not_in_a_layout_is_rejected_with_its_line(tmp_path, item, words):
    rejected, *rest = read_items(tmp_path, item, SCORED)
    assert isinstance(rejected, Rejected)
    assert words in rejected.reason
    assert (rejected.line, rejected.blocking) == (1, True)
    assert len(pairs_of(rest)) == 3


def test_a_truncated_file_gives_what_stands_before_the_damage(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(
        "\ufeff[" + json.dumps({**SCORED, "video": "v"}) + ",\n" + json.dumps(SCORED)[:300], encoding="utf-8"
    )
    found = list(read(path, MurgatOptions()))
    assert len(pairs_of(found)) == 2
    assert found[-1].line == 2
    assert isinstance(found[-1], Rejected)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"labels": "precision"}, "labels: unknown source"),
        ({"extension": "mp4"}, "extension: must start with a dot"),
        ({"point_s": 0.0}, "point_s: must be a positive"),
        ({"point_s": float("nan")}, "point_s: must be a positive"),
    ],
)
def test_options_that_make_no_sense_are_refused(values, words):
    with pytest.raises(ConfigError, match=words):
        MurgatOptions(**values)


def test_transcripts_that_do_not_exist_are_refused_at_once(tmp_path):
    with pytest.raises(ConfigError, match=r"transcripts: .*no such transcripts"):
        read_items(tmp_path, SCORED, options=MurgatOptions(transcripts="nowhere"))
