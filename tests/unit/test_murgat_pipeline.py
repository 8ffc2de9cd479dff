"""MuRGAt's pipeline with a scripted language model: what counts as an answer, what each step may change."""

import json
import re

import pytest
from chat_server import chat, model_of, running_server

from proofreel.core import Citation
from proofreel.data_prep.language import AnswerError, Completion
from proofreel.eval.citations.pipeline import (
    ANSWERS,
    Style,
    annotate,
    atomic_facts,
    decontextualised,
    is_verifiable,
    judged_fact,
    step_failures,
)
from proofreel.eval.citations.responses import read_murgat_responses
from proofreel.eval.citations.scores import JudgedResponse, JudgedSentence, murgat_scores
from proofreel.models.decision import Verdict, failed
from proofreel.models.verifier.attribution import Attributed, JudgedCitation, Problem

YES, NO = Verdict(0.9, 2.0, "supported"), Verdict(0.1, -2.0, "not_supported")


def says(*answers):
    """A model that gives these answers in turn, the last one forever."""
    left = list(answers)
    return lambda messages: Completion(left.pop(0) if len(left) > 1 else left[0])


@pytest.mark.parametrize("text", ["YES", "yes.", "[YES]", "**Yes**", " 'YES'\n", "YES (Supported)"])
def test_a_yes_is_read_however_it_is_dressed(text):
    assert ANSWERS["simple"](text) is True
    assert ANSWERS["cot"](f"Reasoning: no doubt. Answer: no?\nAnswer: {text}") is True
    assert ANSWERS["json"](json.dumps({"reasoning": "no", "label": text})) is True
    for read, dressed in zip(ANSWERS.values(), _dressed(text), strict=True):
        assert read(f"<think>Answer: no</think>{dressed}") is True


def _dressed(text):
    return text, f"Answer: {text}", json.dumps({"label": text})


@pytest.mark.parametrize("text", ["", "maybe", "yes and no", "No doubt it is shown", "Error: 500", "yesterday"])
def test_what_is_no_verdict_is_an_error_with_the_text_quoted(text):
    styles: tuple[tuple[Style, str], ...] = (
        ("simple", text),
        ("cot", f"Answer: {text}"),
        ("json", json.dumps({"label": text})),
    )
    for style, dressed in styles:
        with pytest.raises(AnswerError, match=re.escape(text) if text else "got"):
            is_verifiable(says(dressed), "He runs.", style)
    with pytest.raises(ValueError, match="Answer: YES"):
        ANSWERS["cot"]("YES")


def test_decontextualisation_is_shown_nothing_later_and_keeps_citations():
    prompts = []

    def model(messages):
        prompts.append(messages[0]["content"])
        return Completion("The man sits (visual, 0:07).")

    got = decontextualised(model, "He sits (visual, 0:07).", ["A man enters."])
    assert got == "The man sits (visual, 0:07)."
    assert "A man enters." in prompts[0]
    with pytest.raises(AnswerError, match="keep the citations"):
        decontextualised(says("The man sits."), "He sits (visual, 0:07).", ["A man enters."])
    assert decontextualised(says("never asked"), "A man enters (visual, 0:05).", []) == "A man enters (visual, 0:05)."


def test_facts_carry_the_citations_of_their_sentence_or_those_the_model_leaves_them():
    sentence = "A boy sings (visual, 0:05) and a dog barks (audio, 0:06)."
    model = says("- A boy sings (visual, 0:05).\n- A dog barks (audio, 0:06).")
    everything = atomic_facts(model, sentence)
    assert [fact.text for fact in everything] == ["A boy sings.", "A dog barks."]
    assert [len(fact.citations) for fact in everything] == [2, 2]
    assert [
        [c.modality for c in f.citations if isinstance(c, Citation)] for f in atomic_facts(model, sentence, "embedded")
    ] == [
        ["visual"],
        ["audio"],
    ]
    for bad in ("- A boy sings (visual, 0:09).", "- A boy sings."):
        with pytest.raises(AnswerError, match="copied from its sentence"):
            atomic_facts(says(bad), sentence, "embedded")
    with pytest.raises(AnswerError, match="line of its own"):
        atomic_facts(says("Here are the facts:"), sentence)


def scripted(body):
    """An endpoint that knows two sentences, and never answers about the third."""
    text = body["messages"][0]["content"]
    found = re.search(r"^Sentence: (?!A tall man)(.*)$", text, re.MULTILINE)
    assert found
    sentence = found[1]
    if "label" in text:
        label = "perhaps" if "third" in sentence else "NO" if "Therefore" in sentence else "YES"
        return chat(json.dumps({"reasoning": "-", "label": label}))
    if "Earlier text" in text:
        return chat(sentence.replace("He", "The man"))
    return chat(f"- {sentence}")


def test_bare_responses_are_annotated_through_an_endpoint_and_failures_stay_failures(tmp_path):
    text = "A man runs (visual, 0:01). He sits (visual, 0:03). Therefore option A is right."
    text += " Is the third one seen (visual, 0:05)?"
    path = tmp_path / "bare.json"
    path.write_text(json.dumps([{"video": "a.mp4", "model_generation": f"Reasoning: {text}\nAnswer: A"}]))
    with running_server() as server:
        server.answer = scripted
        got = annotate(read_murgat_responses(path), model_of(server))[0]
    assert [s.verifiable for s in got.sentences] == [True, True, False, None]
    assert [[f.text for f in s.facts or ()] for s in got.sentences] == [["A man runs."], ["The man sits."], [], []]
    failures = step_failures([got])
    assert len(failures) == 1
    assert "perhaps" in failures[0][2]
    sentences = tuple(JudgedSentence(s.text, s.verifiable, (), s.error) for s in got.sentences)
    assert murgat_scores(JudgedResponse("a", "a", sentences)).scores["coverage"].n_failed == 1


def cite(alone=None, without=None, problem=None):
    from proofreel.core import Citation

    return JudgedCitation(Citation("visual", 1.0, 2.0, "visual, 0:01-0:02"), None, problem, None, None, alone, without)


def test_relevance_alone_necessary_or_either():
    # Together yes. The first supports alone and is not needed; the second does not and is needed by nobody.
    fact = Attributed("He runs.", YES, (cite(YES, YES), cite(NO, YES), cite(NO, NO)))
    relevant = {
        rule: [c.relevant for c in judged_fact(fact, rule).citations] for rule in ("alone", "necessary", "alce")
    }
    assert relevant == {
        "alone": [True, False, False],
        "necessary": [False, False, True],
        "alce": [True, False, True],
    }


def test_what_cannot_be_judged_is_a_failure_and_what_is_not_there_is_wrong():
    beyond, deaf = Problem("beyond_end", "beyond"), Problem("modality", "deaf")
    got = judged_fact(Attributed("He runs.", failed("none"), (cite(problem=beyond),)))
    assert (got.supported, got.citations[0].relevant) == (False, False)
    got = judged_fact(Attributed("He runs.", NO, (cite(NO), cite(problem=deaf))))
    assert (got.supported, [c.relevant for c in got.citations]) == (None, [False, None])
    got = judged_fact(Attributed("He runs.", YES, (cite(YES), cite(problem=deaf))))
    assert (got.supported, [c.relevant for c in got.citations]) == (True, [True, None])
    got = judged_fact(Attributed("He runs.", failed("broken"), (cite(failed("broken")),)))
    assert (got.supported, got.citations[0].relevant, got.reason) == (None, None, "broken")
