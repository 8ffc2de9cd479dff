"""`proofreel mirage score`: killed with kill -9 and run again, the same file; each evidence is encoded once."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

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
    media = ["--media", str(ROOT / "examples" / "kitchen"), "--verifier", str(VERIFIER), "--device", "cpu"]
    return [sys.executable, "-m", "proofreel.cli", "mirage", "score", *files, *media, "--out", str(out)]


def run(words: list[str]) -> str:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rounded(value: Any) -> Any:
    """Probabilities to four digits: the last bits depend on where in memory a process has its tensors."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value


def test_killed_and_run_again_it_writes_the_same_file_with_one_pass_per_evidence(inputs, tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    printed = run(command(inputs, whole))
    assert "| b - a |" in printed
    process = subprocess.Popen(command(inputs, stopped), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (stopped / "judged-sources.parquet").is_file():
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (stopped / "result.json").is_file()
    run(command(inputs, stopped))
    results = [json.loads((out / "result.json").read_text()) for out in (whole, stopped)]
    assert rounded(results[0]) == rounded(results[1])
    # One clip; per topic its reference, and its two responses; the one grounded claim; the one citing sentence.
    assert results[0]["n_passes"] == 1 + 3 * N_TOPICS + 2
    assert all(score["n_failed"] == 0 for score in results[0]["systems"]["a"].values())
