"""`proofreel mirage score`: killed with kill -9 and run again, the same file; each evidence is encoded once; every
metric in one run."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from chat_server import chat, running_server
from conftest import ROOT
from transformers import BertConfig, BertModel, BertTokenizer

from proofreel.eval.mirage import METRICS, main

VERIFIER = ROOT / "checkpoints" / "kitchen-verifier"
ACTIONS, THINGS = ("chopping", "stirring", "peeling", "washing"), ("onion", "carrot", "tomato", "potato", "apple")
N_TOPICS = 30


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """Thirty topics about one clip, each with its own text, and five claims of each of two systems about each."""
    folder = tmp_path_factory.mktemp("inputs")
    claims = [f"Action is {action}." for action in ACTIONS] + [f"Ingredient is {thing}." for thing in THINGS]
    reference = {"videos": {"sample": {}}, "article": "", "claims": [], "original_article": []}
    judged = {claims[0]: {"supporting_videos": ["sample"]}}
    topics = {
        f"t{i}": reference | {"article": f"Action is chopping. Number {i}.", "claims_to_supporting_videos": judged}
        for i in range(N_TOPICS)
    }
    (folder / "topics.json").write_text(json.dumps(topics))
    for name, made in (("a", claims[:5]), ("b", claims[4:])):
        response = {"sentences": ["It is."], "claims": [made], "citations": [["sample"]]}
        texts = {topic: response | {"prediction": f"{topic} by {name}."} for topic in topics}
        (folder / f"{name}.json").write_text(json.dumps(texts))
    return folder


def command(inputs: Path, out: Path) -> list[str]:
    files = ["--responses", str(inputs / "a.json"), str(inputs / "b.json"), "--topics", str(inputs / "topics.json")]
    media = [
        "--media",
        str(ROOT / "examples" / "kitchen"),
        "--verifier",
        str(VERIFIER),
        "--device",
        "cpu",
        "--untrained-evidence",
    ]
    return [sys.executable, "-m", "proofreel.cli", "mirage", "score", *files, *media, "--out", str(out)]


def run(words: list[str]) -> str:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_killed_and_run_again_it_writes_the_same_file_with_one_pass_per_evidence(inputs, tmp_path, capsys):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert main(command(inputs, whole)[4:]) == 0
    assert "| b - a |" in capsys.readouterr().out
    process = subprocess.Popen(command(inputs, stopped), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (stopped / "judged-sources.parquet").is_file():
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (stopped / "result.json").is_file()
    assert main(command(inputs, stopped)[4:]) == 0
    assert (stopped / "result.json").read_bytes() == (whole / "result.json").read_bytes()
    result = json.loads((whole / "result.json").read_text())
    # One clip; per topic its reference, and its two responses; the one grounded claim; the one citing sentence.
    assert result["n_passes"] == 1 + 3 * N_TOPICS + 2
    assert all(score["n_failed"] == 0 for score in result["systems"]["a"].values())


def scripted(body: dict[str, Any]) -> dict[str, Any]:
    """A language model that writes questions, queries, and what it sees; one question it refuses."""
    content = body["messages"][-1]["content"]
    if isinstance(content, list):
        assert any(part["type"] == "image_url" for part in content)
        return chat("It is red." if "Question:" in content[-1]["text"] else "It is red. It is hot.")
    asked = body["messages"][1]["content"]
    if "article" in json.loads(asked):
        return chat('{"query": "chopping"}')
    return chat("I would rather not.") if "t4" in asked else chat('{"question": "What is done?"}')


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Path:
    """A BERT of one small layer with random weights."""
    folder, words = tmp_path_factory.mktemp("encoder"), ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "chopping", "t"]
    BertTokenizer(vocab={word: i for i, word in enumerate(words)}, model_max_length=512).save_pretrained(folder)
    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    BertModel(BertConfig(vocab_size=len(words), intermediate_size=8, **sizes)).save_pretrained(folder)
    return folder


def test_every_metric_at_once_two_systems_side_by_side(inputs, encoder, tmp_path, capsys):
    with running_server() as server:
        server.answer = scripted
        for name in ("language", "vision"):
            (tmp_path / f"{name}.yaml").write_text(f"base_url: {server.url}\nmodel: {name}\nmode: live\n")
        topics = json.loads((inputs / "topics.json").read_text())
        some = {topic: topics[topic] for topic in list(topics)[:5]}
        (tmp_path / "topics.json").write_text(json.dumps(some))
        for name in ("a", "b"):
            made = json.loads((inputs / f"{name}.json").read_text())
            (tmp_path / f"{name}.json").write_text(json.dumps({topic: made[topic] for topic in some}))
        words = command(tmp_path, tmp_path / "out")[4:]
        words += ["--metrics", *METRICS, "--language-model", str(tmp_path / "language.yaml")]
        words += ["--vision-model", str(tmp_path / "vision.yaml"), "--embedder", str(encoder)]
        assert main([*words, "--bert-model", str(encoder), "--bert-layer", "1"]) == 0
    printed, told = capsys.readouterr()
    assert "vision: 10 questions, 0 answered from the cache, 0.00 paid" in told
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    names = list(result["systems"]["a"])
    assert names[-3:] == ["ragas_context_relevance", "rougeL", "bertscore"]
    assert all(f"| {name} |" in printed for name in names)
    assert list(result["differences"]["b"]) == names
    # One clip; per topic its reference and two responses; the grounded claim; the one citing sentence.
    assert result["n_passes"] == 1 + 3 * 5 + 2
    assert "18 encoder passes" in printed
    assert result["systems"]["a"]["ragas_context_relevance"]["value"] == 0.5
    coverage = result["systems"]["a"]["argue_nugget_coverage"]
    assert (coverage["value"], coverage["n_failed"]) == (None, 1)
    refused = result["topics"]["t4"]["a"]["items"]["argue_nugget_coverage"][0]
    assert "I would rather not." in refused["error"]
    assert result["topics"]["t0"]["a"]["details"]["ragas_answer_relevance"]["written"] == "chopping"


def test_what_a_metric_lacks_is_named(inputs, tmp_path, capsys):
    words = command(inputs, tmp_path)[4:]
    assert main([*words, "--metrics", "argue"]) == 1
    assert "--language-model" in capsys.readouterr().err
    assert main([*words, "--metrics", "bertscore"]) == 1
    assert "--bert-model" in capsys.readouterr().err
    assert main([*words, "--metrics", "rouge"]) == 0
    assert "rougeL" in capsys.readouterr().out


def test_a_wrong_media_folder_is_said_with_the_path_that_was_tried(inputs, tmp_path, capsys):
    words = command(inputs, tmp_path / "out")[4:]
    words[words.index("--media") + 1] = str(tmp_path)
    assert main([*words, "--metrics", "citef1", "--forms", "collection", "--precision-only"]) == 0
    assert capsys.readouterr().err.count(f"failed: {tmp_path / 'sample.mp4'}: no such file; check the path") == 1
