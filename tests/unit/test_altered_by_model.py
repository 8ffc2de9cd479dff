"""Whatever a language model proposes, only claims that keep DualFact's rules come out, and the rest is listed."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from chat_server import Server, chat, model_of, running_server
from hypothesis import given, settings
from hypothesis import strategies as st

from proofreel.core.errors import ConfigError, ProofreelError, RowError
from proofreel.core.pairs import Pair, VideoSegment, evidence_key, problems_of
from proofreel.data_prep.importers.base import Row
from proofreel.data_prep.importers.facts import conceptual_claim, contextual_claim, read_facts
from proofreel.data_prep.language.answers import Completion, LanguageModelError, Message
from proofreel.data_prep.negatives.claim_changes import violations
from proofreel.data_prep.negatives.model_proposals import INSTRUCTIONS, KINDS, altered_by_model
from proofreel.data_prep.negatives.phrases import conceptual_value, segment_facts
from proofreel.data_prep.negatives.swapped import normal_claim
from proofreel.data_prep.negatives.vocabulary import Vocabulary, read_word_groups

GROUPS = read_word_groups()
EVIDENCE = (VideoSegment("pan.mp4", 0.0, 4.0),)


def fact(id_: str, claim: str, role: str, label: Any = "supported", **more: Any) -> Pair:
    return Pair(id_, claim, EVIDENCE, label, role=role, group="pan.mp4", **more)


def facts() -> list[Pair]:
    """Four conceptual and three contextual facts of one segment, and a false one."""
    values = {"Action": "flipping", "Object": "pancake", "Tool": "spatula", "Location": "stove"}
    pairs = [fact(f"s/{role}", conceptual_claim(role, value), role) for role, value in values.items()]
    phrases = ["flip pancake", "flip with spatula", "flip on stove"]
    pairs += [fact(f"s/c{i}", contextual_claim(phrase), "contextual") for i, phrase in enumerate(phrases)]
    return [*pairs, fact("s/not", "Action is sawing.", "Action", "refuted")]


VOCABULARY = Vocabulary.collect([*facts(), fact("t", "Object is brick.", "Object")], GROUPS)

GOOD = {
    'the Action "flipping"': ["measuring"],
    'the Object "pancake"': ["brick"],
    'the Tool "spatula"': ["hammer"],
    'the Location "stove"': ["garage"],
    'the verb "flip"': ["measure"],
    'the object "pancake"': ["timber"],
    'the verb "flip" and the object "pancake"': ["sew", "curtain"],
    'the tool "spatula"': ["drill"],
    'the location "stove"': ["roof"],
}


def tasks_of(messages: Sequence[Message]) -> dict[str, str]:
    """Number -> what is to be replaced, as the model reads it."""
    return dict(re.findall(r"^(\d+)\. .*\. Replace (.*)\.$", messages[1]["content"], re.MULTILINE))


class Model:
    """Answers attempt after attempt from tables of what to replace; the last table answers for ever."""

    def __init__(self, *tables: dict[str, Any]) -> None:
        self.tables, self.asked = list(tables), []

    def __call__(self, messages: Sequence[Message]) -> Completion:
        self.asked.append(list(messages))
        table = self.tables.pop(0) if len(self.tables) > 1 else self.tables[0]
        return Completion(json.dumps({number: table.get(what) for number, what in tasks_of(messages).items()}))


def altered(model: Callable[..., Completion], kinds: Sequence[str] = KINDS, **more: Any) -> tuple[list[Pair], Any]:
    return altered_by_model(facts(), model, VOCABULARY, kinds, more.pop("per_claim", 1), **more)


def test_every_true_claim_gets_a_false_one_of_the_same_structure():
    made, rejected = altered(Model(GOOD), kinds=["conceptual", "B", "C", "D"])
    assert rejected == []
    assert {pair.meta["claim_of"]: (pair.claim, pair.origin, pair.meta["replaced"]) for pair in made} == {
        "s/Action": ("Action is measuring.", "altered_by_model", "Action"),
        "s/Object": ("Object is brick.", "altered_by_model", "Object"),
        "s/Tool": ("Tool is hammer.", "altered_by_model", "Tool"),
        "s/Location": ("Location is garage.", "altered_by_model", "Location"),
        "s/c0": ("Flip timber.", "altered_by_model_B", "object"),
        "s/c1": ("Flip with drill.", "altered_by_model_C", "tool"),
        "s/c2": ("Flip on roof.", "altered_by_model_D", "location"),
    }
    for pair in made:
        assert (pair.label, pair.soft_label, pair.teacher_margin) == ("refuted", None, None)
        assert (pair.evidence, pair.group) == (EVIDENCE, "pan.mp4")
        assert re.fullmatch(rf"{pair.meta['claim_of']}/altered_by_model/[0-9a-f]{{8}}", pair.id)
        assert problems_of(pair) == []


def test_error_types_take_turns_and_exchange_what_they_are_named_for():
    made, rejected = altered(Model(GOOD), kinds=["A", "B", "E"], per_claim=3)
    assert rejected == []
    assert {pair.origin[-1]: pair.claim for pair in made} == {
        "A": "Measure pancake.",
        "B": "Flip timber.",
        "E": "Sew curtain.",
    }
    assert {pair.meta["claim_of"] for pair in made} == {"s/c0"}  # C and D were not asked for


def test_the_model_is_told_all_truths_and_the_rules_and_no_caption():
    model = Model(GOOD)
    pairs = [*facts(), fact("s/z", "Object is egg.", "Object", meta={"caption": "secret caption"})]
    altered_by_model(pairs, model, VOCABULARY)
    system, user = model.asked[0][:2]
    assert system == {"role": "system", "content": INSTRUCTIONS}
    assert all(f"- {pair.claim}" in user["content"] for pair in pairs if pair.label == "supported")
    assert "sawing" not in user["content"]
    assert "secret" not in user["content"]


BROKEN: dict[str, tuple[str, Any, str]] = {
    "shared word": ('the Object "pancake"', ["pancake mix"], "shares"),
    "shared stem": ('the Action "flipping"', ["flipped over"], "shares"),
    "synonym": ('the Tool "spatula"', ["turner"], "synonym"),
    "hypernym": ('the Tool "spatula"', ["utensil"], "kind or part"),
    "same function": ('the Action "flipping"', ["rotating"], "same function"),
    "number only": ('the Object "pancake"', ["two pancakes"], "shares"),
    "other form": ('the Action "flipping"', ["measure"], "another form"),
    "gerund for a verb": ('the verb "flip"', ["measuring"], "another form"),
    "action for an object": ('the Object "pancake"', ["peeling"], "is an action"),
    "action for a tool": ('the Tool "spatula"', ["sawing"], "is an action"),
    "too long": ('the Object "pancake"', ["old brick from a red wall"], "longer than 4 words"),
    "too long a word": ('the Object "pancake"', ["b" * 5000], "longer"),
    "empty": ('the Object "pancake"', [" "], "must be a word"),
    "null": ('the Object "pancake"', None, "needs a list of 1"),
    "number": ('the Object "pancake"', [5], "needs a list of 1"),
    "too many": ('the Object "pancake"', ["brick", "wall"], "needs a list of 1"),
    "too few": ('the verb "flip" and the object "pancake"', ["sew"], "needs a list of 2"),
    "an object in object's clothing": ('the Object "pancake"', {"brick": 1}, "needs a list of 1"),
    "whole phrase": ('the object "pancake"', ["brick on wall"], "pattern"),
    "adverb and verb": ('the verb "flip"', ["slowly measure"], "pattern"),
    "annotated already": ('the Action "flipping"', ["sawing"], "there already"),
    "true in another role": ('the Object "pancake"', ["stove"], "may hold"),
    "control character": ('the Object "pancake"', ["bri\x00ck"], "one line"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_goes_back_to_the_model_and_a_better_answer_is_taken(name: str):
    what, answer, complaint = BROKEN[name]
    kinds = ["conceptual", {"the v": "A", "the o": "B"}.get(what[:5], "C")] if " and " not in what else ["E"]
    model = Model(GOOD | {what: answer}, GOOD)
    made, rejected = altered(model, kinds=kinds)
    assert rejected == []
    good = altered(Model(GOOD), kinds=kinds)[0]
    assert [pair.claim for pair in made] == [pair.claim for pair in good]
    assert len(model.asked) == 2
    sent_back = model.asked[1][-1]
    assert sent_back["role"] == "user"
    assert complaint in sent_back["content"]
    assert sent_back["content"].count("- task") == 1  # what passed is not asked again


@pytest.mark.parametrize("name", BROKEN)
def test_what_never_passes_is_listed_with_its_reason(name: str):
    what, answer, complaint = BROKEN[name]
    kinds = ["conceptual", {"the v": "A", "the o": "B"}.get(what[:5], "C")] if " and " not in what else ["E"]
    model = Model(GOOD | {what: answer})
    made, (rejection,) = altered(model, kinds=kinds, attempts=4)
    assert complaint in rejection.reason
    assert (rejection.pairs, rejection.blocking) == (1, False)
    assert rejection.id is not None
    assert rejection.id not in {pair.meta["claim_of"] for pair in made}
    assert len(made) == len(altered(Model(GOOD), kinds=kinds)[0]) - 1
    assert len(model.asked) == 4


def test_frames_articles_and_capitals_are_no_reason_to_ask_again():
    sloppy = {'the Action "flipping"': ["Action is Measuring."], 'the Object "pancake"': "A brick."}
    model = Model(GOOD | sloppy)
    made, _ = altered(model, kinds=["conceptual"])
    assert {"Action is measuring.", "Object is brick."} <= {pair.claim for pair in made}
    assert len(model.asked) == 1


def test_one_claim_altered_twice_needs_two_different_values():
    model = Model(GOOD)
    made, rejected = altered(model, kinds=["C"], per_claim=2)
    assert len(made) == 1
    assert "there already" in rejected[0].reason


def test_claims_that_hold_in_the_group_are_never_made():
    made, rejected = altered(Model(GOOD), kinds=["conceptual"], true_in_group={normal_claim("Object is brick.")})
    assert "Object is brick." not in {pair.claim for pair in made}
    assert len(rejected) == 1


def test_known_words_only_if_asked():
    model = Model(GOOD | {'the Object "pancake"': ["zyzzyva"]})
    assert "Object is zyzzyva." in {pair.claim for pair in altered(model, kinds=["conceptual"])[0]}
    made, (rejection,) = altered(model, kinds=["conceptual"], known_only=True)
    assert "no known object" in rejection.reason
    assert "Tool is hammer." in {pair.claim for pair in made}


def test_a_model_that_cannot_be_reached_loses_no_claim():
    def down(messages: Sequence[Message]) -> Completion:
        raise LanguageModelError("http://host: gave up")

    made, rejected = altered(down)
    assert made == []
    assert sorted(str(item.id) for item in rejected) == sorted(p.id for p in facts() if p.label == "supported")
    assert {item.kind for item in rejected} == {"language model gave no answer"}


@pytest.mark.parametrize("text", ["", "I cannot help.", '{"1": ["bri', "[]", "[1, 2]", '{"one": []}', "{}"])
def test_an_answer_that_is_no_table_is_listed_for_every_claim(text: str):
    made, rejected = altered(lambda messages: Completion(text), kinds=["conceptual"])
    assert made == []
    assert len(rejected) == 4


def test_a_sentence_that_is_no_fact_is_listed_and_not_asked():
    pairs = [fact("x", "It was a cold day.", "contextual"), fact("y", "A man talks.", "")]
    made, rejected = altered_by_model(pairs, Model({}), VOCABULARY)
    assert made == []
    assert [item.id for item in rejected] == ["x", "y"]
    assert {item.kind for item in rejected} == {"claim is no fact with parts"}


def test_wrong_calls_are_refused():
    with pytest.raises(ConfigError, match="'F'"):
        altered(Model(GOOD), kinds=["F"])
    other = Pair("o", "Object is egg.", (VideoSegment("other.mp4"),), "supported", role="Object")
    with pytest.raises(RowError, match="share one evidence"):
        altered_by_model([*facts(), other], Model(GOOD), VOCABULARY)
    assert altered_by_model([], Model(GOOD), VOCABULARY) == ([], [])


def test_the_order_of_the_pairs_does_not_matter():
    assert altered_by_model(facts()[::-1], Model(GOOD), VOCABULARY) == altered_by_model(
        facts(), Model(GOOD), VOCABULARY
    )


WORDS = st.sampled_from(
    [
        "flip",
        "Flipping",
        "pancake",
        "a pan",
        "brick",
        "two",
        "sew",
        "sewing",
        "the  roof",
        "egg on roof",
        "",
        "\x00",
        "é\ud800",
    ]
)
ANSWERS = st.one_of(WORDS, st.none(), st.integers(), st.lists(st.one_of(WORDS, st.none()), max_size=3))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.dictionaries(st.integers(0, 9).map(str), ANSWERS), min_size=2, max_size=2))
def test_whatever_is_answered_nothing_is_lost_and_nothing_breaks_a_rule(answers: list[dict[str, Any]]):
    texts = [json.dumps(answer) for answer in answers]
    made, rejected = altered(lambda messages: Completion(texts[len(messages) > 2]), attempts=2)
    assert len(made) + len(rejected) == 7
    true = segment_facts(facts()).conceptual
    for pair in made:
        assert problems_of(pair) == []
        if (value := conceptual_value(pair.role, pair.claim)) is not None:
            assert violations(pair.role, value, true[pair.role], VOCABULARY) == []
    assert len({normal_claim(pair.claim) for pair in [*made, *facts()]}) == len(made) + len(facts())


# ---- real annotations, a real endpoint ----


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with running_server() as state:
        yield state


def test_real_segments_through_an_endpoint_replay_to_the_same_rows(server: Server, shared_data: Path, tmp_path: Path):
    rows = [item.pair for item in read_facts(shared_data / "video-clips" / "annotations.json") if isinstance(item, Row)]
    segments: dict[str, list[Pair]] = {}
    for pair in rows:
        segments.setdefault(evidence_key(pair.evidence), []).append(pair)
    vocabulary = Vocabulary.collect(rows, GROUPS)
    proposals = {
        "Action": ["sewing", "measuring", "eating", "painting"],
        "verb": ["sew", "measure", "eat", "varnish"],
        "tool": ["needle", "ruler", "crayon", "hacksaw"],
        "location": ["roof", "garage", "swimming pool", "attic"],
    }

    def answer(body: dict[str, Any]) -> Any:
        turn = len(body["messages"]) // 2 - 1  # another try, another proposal
        values = {}
        for number, what in tasks_of(body["messages"]).items():
            names = re.findall(r'the (\w+) "', what)
            kinds = [name if name in proposals else name.lower() for name in names]
            values[number] = [proposals.get(kind, ["brick", "umbrella", "violin", "magnet"])[turn] for kind in kinds]
        return chat(json.dumps(values))

    server.answer = answer
    results: list[list[Any]] = []
    for mode in ("record", "replay"):
        model = model_of(server, mode=mode, cache_dir=str(tmp_path))
        results.append([altered_by_model(pairs, model, vocabulary, attempts=4) for pairs in segments.values()])
    assert results[0] == results[1]
    made = [pair for pairs, _ in results[0] for pair in pairs]
    listed = [item for _, items in results[0] for item in items]
    supported = [pair for pair in rows if pair.label == "supported"]
    assert len(made) + len(listed) == len(supported)
    assert len(made) > 0.9 * len(supported)
    assert all(problems_of(pair) == [] for pair in made)
    assert len({pair.id for pair in made}) == len(made)


def test_a_wrong_key_stops_the_work_instead_of_emptying_it(server: Server):
    server.answer = lambda body: chat()
    model = model_of(server)
    server.plan = [lambda handler: handler.send_error(401)]
    with pytest.raises(ProofreelError, match="key"):
        altered(model)
