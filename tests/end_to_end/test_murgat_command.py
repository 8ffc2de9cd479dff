"""`proofreel murgat`: labels and the shipped verifier judge, two systems are compared, a second run changes nothing."""

import json
import re
from pathlib import Path

import pytest
from chat_server import chat, running_server

from proofreel.cli import main

ROOT = Path(__file__).resolve().parents[2]
KITCHEN = ROOT / "checkpoints" / "kitchen-verifier"
RESPONSES = [
    {"id": "1", "video": "sample.mp4", "model_generation": "A carrot is cut (visual, 0:00-0:01). So the answer is A."},
    {"id": "2", "video": "sample.mp4", "model_generation": "An onion is cut (visual, 0:00-0:01; visual, 9:00)."},
]


def written(path: Path, supported: list[bool]) -> str:
    texts = ["Ingredient is carrot.", "Ingredient is onion."]
    cites = [["(visual, 0:00-0:01)"], ["(visual, 0:00-0:01)", "(visual, 9:00)"]]
    facts = [[[t, c, yes]] for t, c, yes in zip(texts, cites, supported, strict=True)]
    path.write_text(json.dumps([r | {"facts": f} for r, f in zip(RESPONSES, facts, strict=True)]), encoding="utf-8")
    return str(path)


def test_two_systems_by_labels(tmp_path, capsys):
    files = [written(tmp_path / "a.json", [True, False]), written(tmp_path / "b.json", [False, False])]
    words = ["murgat", "--responses", *files, "--out", str(tmp_path / "out"), "--draws", "200"]
    assert main(words) == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    assert [system["mean"]["murgat"]["value"] for system in result["systems"]] == [0.5, 0.0]
    assert result["comparison"]["difference"]["murgat"]["value"] == -0.5
    page = (tmp_path / "out" / "page.html").read_text(encoding="utf-8")
    assert page.count('<div class="claim supported">') == 1
    assert page.count('<div class="claim unsupported">') == 3
    assert "sample.mp4: no such file" in page  # there is no --media
    assert "b - a" in capsys.readouterr().out


def test_other_metrics_are_correlated_with_labels(tmp_path, capsys):
    path = tmp_path / "a.json"
    texts = [f"He runs{'' if n % 2 else ' (visual, 0:01)'}. He sits (visual, 0:02)." for n in range(4)]
    facts = [[["He sits.", ["(visual, 0:02)"], n > 1]] for n in range(4)]
    rows = [{"id": str(n), "video": str(n), "model_generation": t, "facts": facts[n]} for n, t in enumerate(texts)]
    path.write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "m.csv").write_text("id,holistic\n0,1\n1,2\n2,3\n3,5\n", encoding="utf-8")
    words = ["murgat", "--responses", str(path), "--metrics", str(tmp_path / "m.csv"), "--draws", "100"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    (system,) = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))["systems"]
    assert system["metrics_with_labels"]["holistic"]["recall"]["kendall"] == pytest.approx(0.8165, abs=1e-4)
    assert "holistic, recall by people: pearson 0.8" in capsys.readouterr().out
    (tmp_path / "m.csv").write_text("id,holistic\n7,1\n", encoding="utf-8")
    assert main([*words, "--out", str(tmp_path / "out")]) == 1
    assert "'7'" in capsys.readouterr().err


def test_a_verifier_judges_and_a_second_run_gives_the_same_file(tmp_path, capsys):
    words = ["murgat", "--responses", written(tmp_path / "a.json", [True, False]), "--verifier", str(KITCHEN)]
    words += [
        "--media",
        str(ROOT / "examples" / "kitchen"),
        "--device",
        "cpu",
        "--out",
        str(tmp_path),
        "--draws",
        "100",
    ]
    assert main(words) == 0
    first = (tmp_path / "result.json").read_bytes()
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("background-image: url(data:image/jpeg;base64,") == 2  # two frames of the one segment
    assert "beyond the end" in page
    system = json.loads(first)["systems"][0]
    assert system["n_passes"] == 1  # one segment carries both claims; 9:00 is not in the video
    missing = system["responses"][1]["response"]["sentences"][0]["facts"][0]["citations"][1]
    assert missing["relevant"] is False
    assert "beyond the end" in missing["reason"]
    assert main(words) == 0
    assert (tmp_path / "result.json").read_bytes() == first
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page


def scripted(body):
    """An endpoint that knows each step of the pipeline by its question."""
    content = body["messages"][0]["content"]
    text = content if isinstance(content, str) else content[-1]["text"]
    if fact := re.search(r"^Fact: (.*)$", text, re.MULTILINE):
        return chat(json.dumps({"evidence": "-", "label": "[YES]" if "blueberry" in fact[1] else "NO."}))
    sentence = re.findall(r"^Sentence: (.*)$", text, re.MULTILINE)[-1]
    if "Earlier text" in text:
        return chat(sentence.replace("It", "The carrot"))
    if '"label"' in text:
        return chat(json.dumps({"reasoning": "-", "label": "NO" if "Therefore" in sentence else "YES"}))
    return chat(
        "- Ingredient is carrot." if "shown" in sentence else "- Ingredient is blueberry.\n- Action is chopping."
    )


def endpoint(tmp_path, server):
    """Options for a language model behind the server, and bare responses for it."""
    config = tmp_path / "model.yaml"
    config.write_text(f"base_url: {server.url}\nmodel: m\ncache_dir: {tmp_path / 'answers'}\n", encoding="utf-8")
    text = "A carrot is shown (visual, 0:00-0:01). It is chopped (visual, 0:00-0:02). Therefore A. Then more."
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps([{"id": "1", "video": "sample.mp4", "model_generation": text}]), encoding="utf-8")
    return ["murgat", "--responses", str(bare), "--media", str(ROOT / "examples" / "kitchen"), "--draws", "100"], config


def test_bare_responses_go_through_every_step_over_http_to_a_score(tmp_path):
    """Split, verifiable, decontextualised, facts, the shipped verifier, scores; a second run asks nothing again."""
    with running_server() as server:
        server.answer = scripted
        words, config = endpoint(tmp_path, server)
        words += ["--language-model", str(config), "--verifier", str(KITCHEN), "--device", "cpu"]
        assert main([*words, "--out", str(tmp_path / "out")]) == 0
        n_asked = len(server.bodies)
        assert main([*words, "--out", str(tmp_path / "out")]) == 0
        assert len(server.bodies) == n_asked == 4 + 1 + 2  # four sentences, one with a sentence before it, two cited
    (system,) = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))["systems"]
    sentences = system["responses"][0]["response"]["sentences"]
    assert [s["verifiable"] for s in sentences] == [True, True, False, True]
    assert [[f["text"] for f in s["facts"]] for s in sentences] == [
        ["Ingredient is carrot."],
        ["Ingredient is blueberry.", "Action is chopping."],
        [],
        [],
    ]
    assert system["mean"]["coverage"]["value"] == pytest.approx(2 / 3)  # "Then more." is verifiable and uncited
    supported = [f["supported"] for s in sentences for f in s["facts"]]
    assert supported == [False, True, True]  # what the clip shows: a blueberry is chopped
    assert system["mean"]["murgat"]["value"] == pytest.approx(2 / 3 * 2 / 3)


def test_a_language_model_judges_and_post_hoc_citations_are_found_by_the_verifier(tmp_path, capsys):
    with running_server() as server:
        server.answer = scripted
        words, config = endpoint(tmp_path, server)
        words += ["--language-model", str(config), "--entailment-model", str(config), "--frames", "4"]
        assert main([*words, "--out", str(tmp_path / "judged")]) == 0
        words += ["--post-hoc", "all", "--proposer", str(KITCHEN), "--windows", "max:2:1", "--device", "cpu"]
        assert main([*words, "--out", str(tmp_path / "cited")]) == 0
    judged, cited = (
        json.loads((tmp_path / name / "result.json").read_text(encoding="utf-8"))["systems"][0]
        for name in ("judged", "cited")
    )
    facts = [f for s in judged["responses"][0]["response"]["sentences"] for f in s["facts"]]
    assert [f["supported"] for f in facts] == [False, True, False]
    assert "4 of 5 facts found" in capsys.readouterr().out
    texts = [s["text"] for s in cited["responses"][0]["response"]["sentences"]]
    assert texts == [
        "A carrot is shown.",
        "It is chopped (visual, 0:00-0:02).",
        "Therefore A.",
        "Then more (visual, 0:00-0:02).",
    ]


SEEN = {"do": "describe", "name": "seen", "event": "once", "instruction": "What is done?"}
PLAN = [
    {"do": "find_event", "name": "cut", "query": "Ingredient is blueberry."},
    {"do": "for_each", "of": "cut", "as": "once", "steps": [SEEN]},
    {"do": "synthesize", "evidence": ["seen", "cut"], "instruction": "Say what is done."},
]


def programmed(body):
    content = body["messages"][0]["content"]
    text = content if isinstance(content, str) else content[-1]["text"]
    if "Plan how" in text:
        return chat("no plan" if "Why" in text else json.dumps({"steps": PLAN}))
    if "numbered evidence" in text:
        return chat("Action is chopping [1]. Ingredient is carrot [1]. So it is A.\nAnswer: A")
    if "What is done?" in text:
        return chat("Action is chopping. Ingredient is carrot.")
    return scripted(body)


def test_a_program_answers_questions_and_its_answers_are_scored(tmp_path, capsys):
    questions = [{"id": str(n), "video": "sample.mp4", "question": q} for n, q in enumerate(["What is done?", "Why?"])]
    (tmp_path / "q.json").write_text(json.dumps(questions), encoding="utf-8")
    with running_server() as server:
        server.answer = programmed
        words, config = endpoint(tmp_path, server)
        words = ["murgat", "--questions", str(tmp_path / "q.json"), "--program", "logic-imperative", *words[3:]]
        words += ["--language-model", str(config), "--verifier", str(KITCHEN), "--windows", "max:2:1"]
        words += ["--device", "cpu", "--frames", "4", "--out", str(tmp_path / "out")]
        assert main(words) == 0
        first, n_asked = (tmp_path / "out" / "result.json").read_bytes(), len(server.bodies)
        assert main(words) == 0
        assert (tmp_path / "out" / "result.json").read_bytes() == first
        assert len(server.bodies) == n_asked
    said = capsys.readouterr()
    assert "1 of 2 questions answered" in said.out
    assert "no plan" in said.err
    answered, failed = map(json.loads, (tmp_path / "out" / "generated.jsonl").read_text(encoding="utf-8").splitlines())
    # A blueberry is chopped: the verifier leaves the carrot out, from the description and from the answer.
    expected = "Reasoning: Action is chopping (visual, 0:00-0:02). So it is A.\nAnswer: A"
    assert answered["model_generation"] == expected
    assert "no plan" in failed["program_error"]
    (system,) = json.loads(first)["systems"]
    assert system["mean"]["coverage"]["n"] > 0


def test_bad_input_is_refused_with_a_remedy(tmp_path, capsys):
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(RESPONSES), encoding="utf-8")
    for words, remedy in [
        (["--responses", str(bare)], "--language-model"),
        (["--responses", str(tmp_path / "none.json")], "check the path"),
        (["--responses", str(bare), str(bare)], "--names"),
        ([], "--questions"),
        (["--questions", str(bare), "--program", "logic-imperative"], "question is"),
        (["--responses", str(bare), "--program", "logic-imperative"], "choose one"),
    ]:
        assert main(["murgat", *words, "--out", str(tmp_path / "out")]) == 1
        assert remedy in capsys.readouterr().err


def test_the_shared_responses_print_their_bounds(tmp_path, capsys, shared_data):
    responses = shared_data / "video-clips" / "responses.json"
    if not responses.exists():
        pytest.skip(f"{responses} is not there")
    assert main(["murgat", "--responses", str(responses), "--out", str(tmp_path), "--draws", "200"]) == 0
    assert "0.729 to 0.792" in capsys.readouterr().out  # worked out in tests/unit/test_murgat_score.py
