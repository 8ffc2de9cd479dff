"""OMD-Bench anchors in eight conditions: what is replaced, by what, and what is then true (hand-made anchors)."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from proofreel.core.errors import ConfigError
from proofreel.core.pairs import Pair, Passage, Transcript, VideoSegment, problems_of
from proofreel.data_prep.importers.base import Rejected, Row
from proofreel.data_prep.importers.omdbench import (
    CHANNELS,
    CONDITIONS,
    OMDBenchOptions,
    Question,
    read,
    supported_option,
)

FILM = {
    "question": "The animal shown appears in which film?",
    "options": ["A. The Lion King", "B. The Aristocats", "C. I cannot answer", "D. Lady and the Tramp", "E. Dumbo"],
}


def anchor(name: str, **changes: Any) -> dict[str, Any]:
    question = {**FILM, "answer": "D"}
    shown = {"video": f"{name}.mp4", "audio": f"a {name} is heard", "text": f"About a {name}."}
    return {"id": name, **shown, "questions": [question], **changes}


ANCHORS = [anchor(name) for name in ("dog", "cat", "bell", "rain", "piano")]


def read_anchors(tmp_path: Path, *anchors: Any, options: OMDBenchOptions | None = None) -> list[Row | Rejected]:
    path = tmp_path / "anchors.jsonl"
    path.write_text("\n".join(json.dumps(a) for a in anchors), encoding="utf-8")
    return list(read(path, options or OMDBenchOptions()))


def pairs_of(found: list[Row | Rejected]) -> list[Pair]:
    return [item.pair for item in found if isinstance(item, Row)]


def evidence_of(name: str) -> dict[str, Any]:
    return {
        "video": VideoSegment(f"{name}.mp4"),
        "audio": Transcript(f"a {name} is heard"),
        "text": Passage(f"About a {name}."),
    }


def test_the_conditions_are_those_of_the_paper():
    assert CONDITIONS == {
        "C000": (),
        "C001": ("text",),
        "C010": ("audio",),
        "C011": ("audio", "text"),
        "C100": ("video",),
        "C101": ("video", "text"),
        "C110": ("video", "audio"),
        "C111": ("video", "audio", "text"),
    }


def test_exactly_the_corrupted_channels_show_another_anchor(tmp_path):
    pairs = pairs_of(read_anchors(tmp_path, *ANCHORS))
    assert len(pairs) == 5 * 8 * 4
    assert not [problem for p in pairs for problem in problems_of(p)]
    assert len({p.id for p in pairs}) == len(pairs)
    for pair in pairs:
        for evidence, channel in zip(pair.evidence, CHANNELS, strict=True):
            shown = pair.meta["depicted"][channel]
            assert evidence == evidence_of(shown)[channel]
            assert (shown != pair.group) == (channel in pair.meta["corrupted"])
        assert tuple(pair.meta["corrupted"]) == CONDITIONS[pair.meta["condition"]]


def test_claims_follow_the_true_anchor_until_nothing_shows_it(tmp_path):
    for pair in pairs_of(read_anchors(tmp_path, *ANCHORS)):
        right = pair.meta["option"] == "Lady and the Tramp"
        if pair.meta["condition"] == "C111":
            assert (pair.label, pair.meta["abstain"]) == ("not_enough", True)
        else:
            assert (pair.label, pair.meta["abstain"]) == ("supported" if right else "refuted", False)
        assert pair.claim == f'The answer to the question "{FILM["question"]}" is: {pair.meta["option"]}.'
        assert pair.meta["option"] != "I cannot answer"


def test_each_condition_carries_how_often_people_abstain(tmp_path):
    synthetic = [{**a, "split": "synthetic"} for a in ANCHORS]
    rates = {
        (p.meta["data"], p.meta["condition"]): p.meta["expected_abstention"]
        for p in pairs_of(read_anchors(tmp_path, *ANCHORS, *synthetic))
    }
    assert len(rates) == 16
    assert rates["real", "C111"] == 0.9843
    assert rates["synthetic", "C111"] == 0.9765
    assert rates["real", "C101"] == 0.0392 == max(r for (_, c), r in rates.items() if c != "C111")
    assert {r for (_, c), r in rates.items() if c.count("1") < 2} == {0.0}


def test_draws_depend_on_seed_anchor_and_channel_alone(tmp_path):
    one = {p.id: p.evidence for p in pairs_of(read_anchors(tmp_path, *ANCHORS))}
    other = {p.id: p.evidence for p in pairs_of(read_anchors(tmp_path, *ANCHORS[::-1]))}
    assert one == other
    assert one != {
        p.id: p.evidence for p in pairs_of(read_anchors(tmp_path, *ANCHORS, options=OMDBenchOptions(seed=1)))
    }
    by_condition = {
        (p.group, p.meta["condition"]): p.meta["depicted"] for p in pairs_of(read_anchors(tmp_path, *ANCHORS))
    }
    for (name, condition), depicted in by_condition.items():
        for channel in CONDITIONS[condition]:
            assert depicted[channel] == by_condition[name, "C111"][channel]


def test_draws_are_uniform_over_the_other_anchors_and_independent_between_channels(tmp_path):
    drawn = Counter()
    for seed in range(400):
        found = pairs_of(read_anchors(tmp_path, *ANCHORS, options=OMDBenchOptions(seed=seed)))
        (depicted,) = {json.dumps(p.meta["depicted"]) for p in found if p.id == "dog/real/C111/q0.0"}
        shown = json.loads(depicted)
        drawn[shown["video"], shown["audio"]] += 1
    assert len(drawn) == 16
    assert all(8 <= count <= 48 for count in drawn.values()), drawn  # 25 expected, sd 4.8


def test_real_and_synthetic_media_never_mix_and_share_a_group(tmp_path):
    synthetic = [anchor(a["id"], split="synthetic", video=f"made/{a['id']}.mp4") for a in ANCHORS]
    pairs = pairs_of(read_anchors(tmp_path, *ANCHORS, *synthetic))
    for pair in pairs:
        assert isinstance(video := pair.evidence[0], VideoSegment)
        assert video.path.startswith("made/") == (pair.meta["data"] == "synthetic")
    assert {p.group for p in pairs} == {a["id"] for a in ANCHORS}


def test_a_channel_that_is_the_same_for_two_anchors_is_no_replacement(tmp_path):
    twins = [anchor("dog"), anchor("puppy", video="dog.mp4"), anchor("cat")]
    for seed in range(20):
        for pair in pairs_of(read_anchors(tmp_path, *twins, options=OMDBenchOptions(seed=seed))):
            if pair.group == "dog" and "video" in pair.meta["corrupted"]:
                assert pair.evidence[0] == VideoSegment("cat.mp4")


@pytest.mark.parametrize(
    ("depicted", "right"),
    [
        (["dog", "dog", "dog"], "Tramp"),
        (["cat", "dog", "dog"], "Tramp"),
        (["cat", "cat", "dog"], "Aristocats"),
        (["cat", "bell", "dog"], None),
        (["bell", "bell", "dog"], "Tramp"),
        (["cat", "bell", "rain"], "Aristocats"),
        (["bell", "rain", "bell"], None),
        (["cat", "lion", "rain"], None),
    ],
)
def test_with_a_key_the_option_most_channels_speak_for_is_right_and_a_tie_abstains(depicted, right):
    key = {"dog": "Tramp", "cat": "Aristocats", "lion": "King"}
    assert supported_option(Question("?", ("Tramp", "Aristocats", "King"), "Tramp", key), depicted) == right


def test_given_claims_keep_their_label_until_nothing_shows_the_anchor(tmp_path):
    claims = [{"claim": "A dog barks.", "label": "supported"}, {"claim": "A cow moos.", "label": "refuted"}]
    pairs = pairs_of(read_anchors(tmp_path, anchor("dog", questions=None, claims=claims), anchor("cat")))
    labels = {(p.claim, p.meta["condition"]): p.label for p in pairs if p.group == "dog"}
    assert len(labels) == 16
    assert labels["A dog barks.", "C110"] == "supported"
    assert labels["A cow moos.", "C000"] == "refuted"
    assert {label for (_, condition), label in labels.items() if condition == "C111"} == {"not_enough"}


def test_the_origin_and_the_split_say_what_the_row_is(tmp_path):
    pairs = pairs_of(read_anchors(tmp_path, *ANCHORS))
    assert {p.origin for p in pairs if p.meta["condition"] == "C000"} == {"annotated"}
    assert {p.origin for p in pairs if p.meta["condition"] == "C101"} == {"replaced_video_text"}
    assert ({p.split for p in pairs}, {p.modality for p in pairs}) == ({"test"}, {"mixed"})
    assert {p.split for p in pairs_of(read_anchors(tmp_path, *ANCHORS, options=OMDBenchOptions(split="")))} == {None}


def test_an_audio_file_is_heard_through_its_transcript(tmp_path):
    (tmp_path / "said").mkdir()
    (tmp_path / "said/woof.srt").write_text("00:01 --> 00:02\nWoof\n\n00:03 --> 00:04\nagain\n")
    dog, cat = anchor("dog", audio=None, audio_file="woof.wav"), anchor("cat", audio=None, audio_file="meow.wav")
    found = read_anchors(tmp_path, dog, cat, *ANCHORS[2:], options=OMDBenchOptions(transcripts="said"))
    assert next(p for p in pairs_of(found) if p.id.startswith("dog/real/C000")).evidence[1] == Transcript("Woof again")
    (lost,) = [item for item in found if isinstance(item, Rejected)]
    assert (lost.id, lost.kind, lost.line) == ("cat", "transcript is missing or empty", 2)
    lost, *_ = read_anchors(tmp_path, dog, *ANCHORS[1:])
    assert isinstance(lost, Rejected)
    assert lost.kind == "audio file without transcripts"


def test_one_anchor_alone_has_nothing_to_be_replaced_from(tmp_path):
    (lost,) = read_anchors(tmp_path, ANCHORS[0])
    assert isinstance(lost, Rejected)
    assert lost.kind == "no other anchor to replace from"


def test_an_anchor_given_twice_is_rejected_once(tmp_path):
    found = read_anchors(tmp_path, *ANCHORS, ANCHORS[0])
    assert [(i.kind, i.line) for i in found if isinstance(i, Rejected)] == [("anchor is given twice", 6)]
    assert len(pairs_of(found)) == 5 * 8 * 4


def question(**changes: Any) -> list[dict[str, Any]]:
    return [{**FILM, "answer": "D", **changes}]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": None}, "id is missing"),
        ({"video": 3}, "video must be text"),
        ({"text": " "}, "text is missing"),
        ({"audio": None}, "audio must be given once"),
        ({"audio_file": "a.wav"}, "audio must be given once"),
        ({"split": "train"}, "split must be one of"),
        ({"vidoe": "x"}, "unknown keys, got ['vidoe']"),
        ({"questions": None}, "anchor asks nothing"),
        ({"questions": "x"}, "questions cannot be read"),
        ({"questions": question(options=["a", None])}, "questions cannot be read"),
        ({"questions": question(options=[])}, "names no option"),
        ({"questions": question(question="")}, "question or answer is empty"),
        ({"questions": question(options=["red", "Red."], answer="red")}, "an option is given twice"),
        ({"questions": question(answer="F")}, "names no option, got 'F' for 5 options"),
        ({"questions": question(answer="C")}, "contradicts key or abstains"),
        ({"questions": question(key={"dog": "A"})}, "contradicts key or abstains"),
        ({"questions": question(key={"cat": "C"})}, "contradicts key or abstains"),
        ({"claims": [{"claim": "x", "label": "yes"}]}, "claims cannot be read"),
        ({"claims": [{"claim": "x"}]}, "claims cannot be read"),
    ],
)
def test_an_anchor_that_is_not_in_the_layout_is_rejected_with_its_line(tmp_path, changes, words):
    found = read_anchors(tmp_path, *ANCHORS[1:], anchor("dog", **changes))
    (lost,) = [item for item in found if isinstance(item, Rejected)]
    assert words in lost.reason
    assert lost.line == 5
    assert len(pairs_of(found)) == 4 * 8 * 4


@pytest.mark.parametrize("answer", ["D", "Lady and the Tramp", "D. Lady and the Tramp", " lady and the tramp. "])
def test_an_answer_may_be_a_letter_or_the_words(tmp_path, answer):
    pairs = pairs_of(
        read_anchors(tmp_path, anchor("dog", questions=question(answer=answer, key={"cat": "B"})), *ANCHORS[1:])
    )
    right = [p.meta["option"] for p in pairs if p.group == "dog" and p.label == "supported" and not p.meta["corrupted"]]
    assert right == ["Lady and the Tramp"]


def test_options_and_truncated_files_that_make_no_sense_are_named(tmp_path):
    with pytest.raises(ConfigError, match="split: unknown split"):
        OMDBenchOptions(split="dev")
    with pytest.raises(ConfigError, match="no such transcripts"):
        read_anchors(tmp_path, *ANCHORS, options=OMDBenchOptions(transcripts="nowhere"))
    path = tmp_path / "a.json"
    path.write_text("\ufeff[" + ",\n".join(json.dumps(a) for a in ANCHORS)[:-40], encoding="utf-8")
    found = list(read(path, OMDBenchOptions()))
    assert [(i.line, i.kind) for i in found if isinstance(i, Rejected)] == [(5, "not valid JSON")]
    assert len(pairs_of(found)) == 4 * 8 * 4
