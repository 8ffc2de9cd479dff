"""What all scores share at scale: a segment is encoded once however many claims cite it; kill -9 changes no byte."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from chat_server import chat, running_server
from conftest import ROOT

from proofreel import cli
from proofreel.models.engine import PrefixScorer

KITCHEN = ["--verifier", str(ROOT / "checkpoints" / "kitchen-verifier"), "--device", "cpu"]
ACTIONS = ("chopping", "stirring", "peeling", "washing")
THINGS = ("onion", "carrot", "tomato", "potato", "apple", "egg")
CLAIMS = [*(f"Action is {action}" for action in ACTIONS), *(f"Ingredient is {thing}" for thing in THINGS)]


@pytest.fixture
def encoded(monkeypatch) -> list[int]:
    """One entry for each segment that the network encodes."""
    counts: list[int] = []
    score = PrefixScorer.score

    def counted(self, segments, claims_per_chunk=None):
        counts.extend(1 for _ in segments)
        return score(self, segments, claims_per_chunk)

    monkeypatch.setattr(PrefixScorer, "score", counted)
    # Loading scores golden inputs to see whether the adapter may be merged.
    monkeypatch.setattr("proofreel.models.verifier.verifier.has_adapter_to_merge", lambda model: False)
    return counts


def media(folder: Path, n: int) -> list[str]:
    """The shipped clip under n names."""
    folder.mkdir()
    for i in range(n):
        shutil.copy(ROOT / "examples" / "kitchen" / "sample.mp4", folder / f"v{i}.mp4")
    return [f"v{i}" for i in range(n)]


def articles(folder: Path, videos: list[str], n_sentences: int, claims: bool) -> list[str]:
    """One topic per video and n sentences of ten claims each that cite it; the words that score them."""
    texts = [f"Sentence {i}." for i in range(n_sentences)]
    made = {"claims": [[f"{claim} {i}." for claim in CLAIMS] for i in range(n_sentences)]} if claims else {}
    empty = {"article": "", "claims": [], "original_article": [], "claims_to_supporting_videos": {}}
    topics = {f"about {v}": empty | {"videos": {v: {}}} for v in videos}
    response = {
        f"about {v}": {"prediction": " ".join([v, *texts]), "sentences": texts, "citations": [[v]] * n_sentences} | made
        for v in videos
    }
    for name, value in (("topics", topics), ("articles", response)):
        (folder / f"{name}.json").write_text(json.dumps(value))
    words = ["--responses", str(folder / "articles.json"), "--topics", str(folder / "topics.json"), *KITCHEN]
    words += ["--media", str(folder / "media"), "--metrics", "citef1", "--forms", "collection", "--precision-only"]
    return ["mirage", "score", *words]


def result_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


def test_claims_come_over_http_and_a_video_is_encoded_once_however_many_cite_it(tmp_path, encoded, capsys):
    """mirage score from bare sentences: a language model behind an endpoint extracts, the verifier judges."""
    words = articles(tmp_path, media(tmp_path / "media", 2), n_sentences=15, claims=False)

    def extract(body: dict[str, Any]) -> dict[str, Any]:
        number = json.loads(body["messages"][1]["content"])["sentence"].split()[1]
        return chat(json.dumps([f"{claim} {number}" for claim in CLAIMS]))

    with running_server() as server:
        server.answer = extract
        config = tmp_path / "model.yaml"
        config.write_text(f"base_url: {server.url}\nmodel: m\ncache_dir: {tmp_path / 'answers'}\n")
        words += ["--language-model", str(config), "--out", str(tmp_path / "out")]
        assert cli.main(words) == 0
        assert len(server.bodies) == 30  # sentences
        first = (tmp_path / "out" / "result.json").read_bytes()
        assert cli.main(words) == 0
        assert len(server.bodies) == 30  # the cache answered
    result = json.loads(first)
    assert (result["n_questions"], result["n_passes"], len(encoded)) == (300, 2, 2)
    assert "300 questions, 2 encoder passes" in capsys.readouterr().out
    assert (tmp_path / "out" / "result.json").read_bytes() == first
    page = (tmp_path / "out" / "page.html").read_text(encoding="utf-8")
    assert page.count('<div class="claim ') == 300
    assert page.count("url(data:image/jpeg") == 4  # of two videos, two frames each


def test_a_claim_that_cannot_be_extracted_is_quoted_with_its_sentence(tmp_path, capsys):
    words = articles(tmp_path, media(tmp_path / "media", 1), n_sentences=1, claims=False)
    with running_server() as server:
        server.answer = lambda body: chat("I see none, sorry.")
        (tmp_path / "model.yaml").write_text(f"base_url: {server.url}\nmodel: m\nmode: live\n")
        words += ["--language-model", str(tmp_path / "model.yaml"), "--out", str(tmp_path / "out")]
        assert cli.main(words) == 1
    error = capsys.readouterr().err
    assert "I see none, sorry." in error
    assert "'about v0', sentence 0" in error
    assert not (tmp_path / "out" / "result.json").exists()


def test_omd_encodes_each_condition_once_and_says_so(tmp_path, encoded, capsys):
    questions = [
        {"question": f"What is chopped in part {i}?", "options": ["Carrot", "Onion", "Nothing"], "answer": "Carrot"}
        for i in range(4)
    ]
    anchors = [
        {"id": v, "video": f"{v}.mp4", "audio": f"{v}!", "text": f"{v}.", "questions": questions}
        for v in media(tmp_path / "media", 2)
    ]
    (tmp_path / "anchors.jsonl").write_text("".join(json.dumps(each) + "\n" for each in anchors))
    words = ["omd", *KITCHEN, "--anchors", str(tmp_path / "anchors.jsonl"), "--media", str(tmp_path / "media")]
    assert cli.main([*words, "--untrained-evidence", "--draws", "20", "--out", str(tmp_path / "out")]) == 0
    counts = result_of(tmp_path / "out")["judging"]["verifier"]
    assert counts == {"n_claims": 2 * 4 * 3 * 8, "n_questions": counts["n_questions"], "n_passes": len(encoded)}
    assert 0 < len(encoded) <= 2 * 8  # anchors, conditions: twelve claims share one
    assert f"{len(encoded)} encoder passes" in capsys.readouterr().out


def test_cgbench_encodes_the_clues_of_many_questions_once_and_says_so(tmp_path, encoded, capsys):
    media(tmp_path / "media", 1)
    about = {"video_uid": "v0", "answer": "An onion.", "right_answer": "A", "clue_intervals": [[0, 1]]}
    questions = [about | {"qid": i, "question": f"What is chopped by hand {i}?"} for i in range(6)]
    (tmp_path / "questions.json").write_text(json.dumps(questions))
    rows = [{"qid": str(i), "open": "A carrot."} for i in range(6)]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with running_server() as server:
        server.answer = lambda body: chat("yes" if "hand 0" in body["messages"][1]["content"] else "Need visual clue.")
        (tmp_path / "model.yaml").write_text(f"base_url: {server.url}\nmodel: m\nmode: live\n")
        words = ["--annotation", str(tmp_path / "questions.json"), "--predictions", str(tmp_path / "m.jsonl")]
        words += ["--language-model", str(tmp_path / "model.yaml"), "--media", str(tmp_path / "media"), *KITCHEN]
        assert cli.main(["cgbench", *words, "--draws", "20", "--out", str(tmp_path / "out")]) == 0
    assert result_of(tmp_path / "out")["judging"] == {"m": {"n_claims": 5, "n_questions": 5, "n_passes": 1}}
    assert len(encoded) == 1
    assert "5 claims, 5 questions, 1 encoder passes" in capsys.readouterr().out


@pytest.mark.nightly
def test_ten_thousand_claims_killed_in_the_middle_and_run_again_give_the_same_bytes(tmp_path):
    """Parts end where the evidence changes, and a part is scored by itself: what was done before changes no batch."""
    words = articles(tmp_path, media(tmp_path / "media", 20), n_sentences=50, claims=True)
    words = [sys.executable, "-m", "proofreel.cli", *words, "--out"]
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    subprocess.run([*words, str(whole)], cwd=ROOT, check=True, capture_output=True)
    process = subprocess.Popen([*words, str(stopped)], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    parts = stopped / "judged-sources.parquet.partial"
    while process.poll() is None and len(list(parts.glob("rows-*.parquet"))) < 3:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (stopped / "judged-sources.parquet").exists()
    subprocess.run([*words, str(stopped)], cwd=ROOT, check=True, capture_output=True)
    result = result_of(whole)
    assert (result["n_questions"], result["n_passes"]) == (10_000, 20)
    for name in ("result.json", "page.html", "judged-sources.parquet"):
        assert (stopped / name).read_bytes() == (whole / name).read_bytes(), name
