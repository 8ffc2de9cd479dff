"""Program-aided answers: plans are data of four kinds, tools run them, every step is checked, failures are said."""

import json
import re
from pathlib import Path

import pytest

from proofreel.core import Citation, ConfigError, RowError
from proofreel.data_prep.importers import Transcripts
from proofreel.data_prep.language import Completion
from proofreel.eval.citations.generations import generate, read_murgat_questions
from proofreel.eval.citations.moments import Found, Moment
from proofreel.eval.citations.plans import VARIANTS, parse_plan, plan_lines
from proofreel.eval.citations.programs import (
    Question,
    Tools,
    answer_by_program,
    checked_by,
    described_by,
    described_by_captions,
)
from proofreel.eval.citations.responses import read_murgat_responses
from proofreel.eval.citations.views import AnyEvidence, CaptionView, text_part
from proofreel.eval.scores import Judgment, by_questions
from proofreel.models.verifier import Sources

FIND = {"do": "find_event", "name": "door", "query": "A door opens."}
LOOK = {"do": "describe", "name": "seen", "event": "door", "instruction": "Who opens it?"}
ONCE = {"do": "for_each", "of": "door", "as": "once", "steps": [LOOK | {"event": "once"}]}
AT = {"do": "describe", "name": "seen", "at": "visual, 0:01-0:02; audio, 0:03", "instruction": "Who opens it?"}
ANSWER = {"do": "synthesize", "evidence": ["seen"], "instruction": "Count."}
BRANCH = {"do": "if", "condition": {"count": "door", "at_least": 2}, "then": [LOOK], "else": []}
ASKED = {"do": "if", "condition": {"supported": "seen"}, "then": [AT | {"name": "more"}]}
FITS = {
    "narrative-declarative": [AT, ANSWER],
    "narrative-imperative": [FIND, LOOK, ANSWER],
    "logic-declarative": [AT, ASKED, ANSWER],
    "logic-imperative": [FIND, ONCE, BRANCH | {"then": [LOOK | {"name": "again"}]}, ANSWER],
}


def plan_text(steps):
    return f"```json\n{json.dumps({'steps': steps})}\n```"


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_takes_its_own_plans_and_refuses_what_only_others_may_do(name):
    assert len(parse_plan(plan_text(FITS[name]), VARIANTS[name]).steps) == len(FITS[name]) - 1
    foreign = {
        "narrative-declarative": [FITS["logic-declarative"], FITS["narrative-imperative"]],
        "narrative-imperative": [FITS["logic-imperative"], [FIND, BRANCH, ANSWER], FITS["narrative-declarative"]],
        "logic-declarative": [FITS["narrative-imperative"]],
        "logic-imperative": [FITS["narrative-declarative"]],
    }
    for steps in foreign[name]:
        with pytest.raises(ValueError, match="got"):
            parse_plan(plan_text(steps), VARIANTS[name])


@pytest.mark.parametrize(
    ("steps", "quoted"),
    [
        ([ANSWER], "seen"),
        ([FIND, LOOK], "last step is synthesize"),
        ([LOOK, FIND, ANSWER], "event must be one of the earlier steps"),
        ([FIND, LOOK, LOOK, ANSWER], "'seen' twice"),
        ([FIND, LOOK | {"code": "print()"}, ANSWER], "code"),
        ([FIND, LOOK | {"instruction": " "}, ANSWER], "instruction must be words"),
        ([FIND | {"modality": "smell"}, LOOK, ANSWER], "smell"),
        ([FIND, BRANCH | {"condition": "len(door) > 1"}, ANSWER], re.escape("len(door) > 1")),
        ([FIND, ONCE, {**ANSWER, "evidence": ["once"]}], "once"),
        ([{"do": "eval", "code": "1"}, ANSWER], "'eval'"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused_with_its_text(steps, quoted):
    with pytest.raises(ValueError, match=quoted):
        parse_plan(plan_text(steps), VARIANTS["logic-imperative"])


def test_plans_have_bounds():
    deep = [FIND, LOOK]
    for n in range(5):
        deep = [FIND | {"name": f"door{n}"}, {"do": "if", "condition": {"found": f"door{n}"}, "then": deep}]
    for steps in (deep, [FIND | {"name": f"d{n}"} for n in range(50)]):
        with pytest.raises(ValueError, match="at most"):
            parse_plan(plan_text([*steps, ANSWER]), VARIANTS["logic-imperative"])


def test_a_plan_reads_as_a_program():
    lines = plan_lines(parse_plan(plan_text(FITS["logic-imperative"]), VARIANTS["logic-imperative"]).steps)
    assert lines == [
        "door = find_event('A door opens.', 'visual')",
        "for once in door:",
        "    seen = describe(once, 'Who opens it?')",
        "if count(door) >= 2:",
        "    again = describe(door, 'Who opens it?')",
    ]


# Runs: the model plans, describes and answers by script; the verifier knows what is false.


class Script:
    """A language model that answers each kind of question in turn, and keeps what it was asked."""

    def __init__(self, plan, descriptions, answers):
        self.left = {"plan": [plan], "describe": list(descriptions), "synthesize": list(answers)}
        self.asked = []

    def __call__(self, messages):
        content = messages[0]["content"]
        kind = "plan" if "Plan how" in content else "synthesize" if "numbered evidence" in content else "describe"
        self.asked.append((kind, content))
        left = self.left[kind]
        return Completion(left.pop(0) if len(left) > 1 else left[0])


class Words:
    """A video of words."""

    def whole(self, video):
        return [text_part("0:01 a door\n")]

    def span(self, video, citation):
        return [text_part(f"<{citation.text}>\n")]


def moment(start_s, p=0.9):
    return Moment(Citation("visual", start_s, start_s + 1, f"visual, 0:0{start_s}-0:0{start_s + 1}"), p)


TWICE = (moment(1), moment(5))


def judge(claims):
    unread = Judgment(None, error="dark")
    return [unread if "maybe" in claim else Judgment("false" not in claim, 0.9) for claim in claims]


def answered(name, model, moments=TWICE, error=None):
    found = Found(tuple(moments), error)
    tools = Tools(
        model,
        Words(),
        lambda searches: [found for _ in searches],
        described_by(model, Words()),
        lambda video, claims: judge([claim for claim, _ in claims]),
    )
    question = Question("q", "a", "How many?", ("A. one", "B. two"), {"options": ["A. one", "B. two"]})
    return answer_by_program(question, VARIANTS[name], tools)


@pytest.mark.parametrize("name", VARIANTS)
def test_each_variant_ends_in_a_response_that_cites_what_it_rests_on(name, tmp_path):
    model = Script(
        plan_text(FITS[name]), ["A man opens it."], ["Reasoning: A man opens it [1]. So it is B.\nAnswer: B"]
    )
    record = answered(name, model)
    cited = "visual, 0:01-0:02"
    assert record["model_generation"] == f"Reasoning: A man opens it ({cited}). So it is B.\nAnswer: B"
    assert record["execution_trace"][-1]["final_output"] == record["model_generation"]
    assert record["parsed_program"][-1] == "synthesize([seen], 'Count.')"
    planner = next(content for kind, content in model.asked if kind == "plan")
    assert ("0:01 a door" in planner) == name.endswith("declarative")  # who finds later is not shown the video
    (tmp_path / "r.json").write_text(json.dumps([record]), encoding="utf-8")
    (response,) = read_murgat_responses(tmp_path / "r.json")
    assert [s.is_cited for s in response.sentences] == [True, False]


def test_every_moment_is_described_and_conditions_decide_what_runs():
    steps = [*FITS["logic-imperative"][:-1], {**ANSWER, "evidence": ["seen", "again", "door"]}]
    many = Script(plan_text(steps), ["It opens."], ["Twice [1][2], found [5].\nAnswer: B"])
    record = answered("logic-imperative", many)
    assert [e["at"] for e in record["execution_trace"] if "describe" in e] == [
        "visual, 0:01-0:02",
        "visual, 0:05-0:06",
    ] * 2
    assert record["model_generation"].startswith(
        "Reasoning: Twice (visual, 0:01-0:02; visual, 0:05-0:06), found (visual, 0:01-0:02; visual, 0:05-0:06)."
    )
    few = Script(plan_text(steps), ["It opens."], ["Once [1], found [2].\nAnswer: A"])
    record = answered("logic-imperative", few, moments=[moment(1)])
    assert {"if": "count(door)", "holds": False} in record["execution_trace"]
    assert len([e for e in record["execution_trace"] if "describe" in e]) == 1


def test_a_condition_on_the_verifier_holds_only_where_it_supports_the_description():
    for text, n in (("It opens.", 4), ("This is false.", 2), ("It opens, maybe.", 2)):
        model = Script(plan_text(FITS["logic-declarative"]), [text], ["So [1].\nAnswer: A"])
        record = answered("logic-declarative", model)
        assert len([e for e in record["execution_trace"] if "describe" in e]) == n, text


def test_what_a_verifier_denies_is_written_again_and_then_left_out():
    model = Script(
        plan_text(FITS["narrative-imperative"]),
        ["It opens. A false thing.", "It opens. Another false thing."],
        ["All false [1]. It opens [1].\nAnswer: A", "Still false [1]. It opens [1]. So A.\nAnswer: A"],
    )
    record = answered("narrative-imperative", model, moments=[moment(1)])
    assert record["model_generation"] == "Reasoning: It opens (visual, 0:01-0:02). So A.\nAnswer: A"
    asked = [content for kind, content in model.asked if kind != "plan"]
    assert "leave it out: A false thing." in asked[1]
    assert "[1] It opens.\n" in asked[2]
    assert "leave it out: All false." in asked[3]
    checks = next(e["checks"] for e in record["execution_trace"] if "describe" in e)
    assert [c["supported"] for c in checks] == [True, False]


def test_what_could_not_be_judged_stays_and_says_so():
    model = Script(plan_text(FITS["narrative-imperative"]), ["It is maybe open."], ["It is maybe open [1].\nAnswer: A"])
    record = answered("narrative-imperative", model, moments=[moment(1)])
    assert "maybe open (visual" in record["model_generation"]
    assert record["execution_trace"][1]["checks"] == [
        {"sentence": "It is maybe open.", "supported": None, "error": "dark"}
    ]


@pytest.mark.parametrize(
    ("plan", "answer", "options", "quoted"),
    [
        ("I cannot plan this", "", {}, "I cannot plan this"),
        ("narrative-imperative", "No marks.\nAnswer: A", {}, "No marks"),
        ("narrative-imperative", "It opens [7].\nAnswer: A", {}, re.escape("[7]")),
        ("narrative-imperative", "It opens (visual, 0:01).\nAnswer: A", {}, "by its number"),
        ("narrative-imperative", "It opens [1].", {}, "Answer: ..."),
        ("narrative-imperative", "All false [1].\nAnswer: A", {}, "All false"),
        ("narrative-imperative", "", {"moments": (), "error": "3 of 3 windows failed"}, "3 of 3 windows failed"),
        ("narrative-imperative", "", {"moments": ()}, "nothing was found"),
    ],
)
def test_a_step_that_fails_is_the_questions_error_with_the_text(plan, answer, options, quoted):
    model = Script(plan_text(FITS[plan]) if plan in FITS else plan, ["It opens."], [answer])
    record = answered("narrative-imperative", model, **options)
    assert "model_generation" not in record
    assert re.search(quoted, record["program_error"])


def test_a_check_asks_about_all_citations_together_and_given_captions_describe(tmp_path):
    kitchen = Path(__file__).resolve().parents[2] / "examples" / "kitchen"
    asked = []

    def answer(pairs):
        asked.extend(pairs)
        return [Judgment(True, 0.9)] * len(pairs)

    check = checked_by(by_questions(answer), AnyEvidence(kitchen), lambda video: Sources("sample.mp4"))
    late, early = Citation("visual", 1, 2, "visual, 0:01-0:02"), Citation("visual", 0, 1, "visual, 0:00-0:01")
    beyond = Citation("visual", 60, 61, "visual, 1:00-1:01")
    good, bad = check("a", [("It opens.", (late, early)), ("It shuts.", (beyond,))])
    assert [e.start_s for e in asked[0].evidence] == [0, 1]
    assert (good.supported, bad.supported) == (True, None)
    assert "beyond the end" in (bad.error or "")
    (tmp_path / "a.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nA door opens.\n", encoding="utf-8")
    describe = described_by_captions(CaptionView(Transcripts(tmp_path)))
    assert describe("a", late, "What?", []) == "A door opens."


def test_generation_goes_on_where_it_stopped_and_asks_failures_again(tmp_path):
    path, file = tmp_path / "generated.jsonl", tmp_path / "q.json"
    file.write_text(json.dumps([{"video": "a", "question": q, "other": 1} for q in ("one?", "two?")]), encoding="utf-8")
    questions, asked = read_murgat_questions(file), []
    assert [q.id for q in questions] == ["a: one?", "a: two?"]

    def answer(question):
        asked.append(question.id)
        record = {"id": question.id, "video": question.video, "question": question.question}
        return record | ({"program_error": "x"} if len(asked) == 1 else {"model_generation": "y"})

    assert "program_error" in generate(questions, answer, path, {"variant": "v"})[0]
    records = generate(questions, answer, path, {"variant": "v"})
    assert asked == ["a: one?", "a: two?", "a: one?"]
    assert [r["model_generation"] for r in records] == ["y", "y"]
    with pytest.raises(ConfigError, match="other settings"):
        generate(questions, answer, path, {"variant": "w"})


@pytest.mark.parametrize(
    "rows", ["[]", '[{"video": "a"}]', '[{"video": "a", "question": "b"}, {"video": "a", "question": "b"}]']
)
def test_questions_that_cannot_be_read_are_refused(rows, tmp_path):
    (tmp_path / "q.json").write_text(rows, encoding="utf-8")
    with pytest.raises(RowError, match=r"q\.json"):
        read_murgat_questions(tmp_path / "q.json")
