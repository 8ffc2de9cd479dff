"""`proofreel multifact` with the shipped kitchen verifier: facts in the files, facts by an endpoint, after a kill."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from chat_server import Server, chat, running_server
from conftest import ROOT

from proofreel import cli

VERIFIER = ROOT / "checkpoints" / "kitchen-verifier"
CLIP = {  # what is so in the first two seconds, see docs/kitchen.md
    "start_s": 0,
    "end_s": 2,
    "caption": "Chop the blueberry with the knife on the cutting board.",
    "caption_implicit": "Chop it.",
    "conceptual": {"Action": "chopping", "Ingredient": "blueberry", "Tool": "knife", "Location": "cutting board"},
    "contextual": ["chop blueberry", "chop with knife", "chop on cutting board"],
    "negative_conceptual": {"Action": "stirring", "Ingredient": "carrot", "Tool": "spatula", "Location": "pan"},
    "negative_contextual": ["stir blueberry", "chop with spatula", "chop in pan"],
    "distractors": ["onion"],
}
TRUE = {"conceptual": {"Action": "chopping", "Ingredient": "blueberry"}, "contextual": ["chop with knife"]}
FALSE = {"conceptual": {"Action": "stirring", "Tool": "spatula"}, "contextual": ["stir with spatula"]}
N_CLIPS = 3


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three videos that are one, their gold facts, and two systems: one right, one wrong but for the first clip."""
    folder = tmp_path_factory.mktemp("inputs")
    for number in range(N_CLIPS):
        shutil.copy(ROOT / "examples" / "kitchen" / "sample.mp4", folder / f"{number}.mp4")
    ids = [str(number) for number in range(N_CLIPS)]
    write_lines(folder / "gold.jsonl", [{"id": id, "video": f"{id}.mp4", **CLIP} for id in ids])
    write_lines(folder / "right.jsonl", [{"id": id, "caption": "Chop the blueberry.", **TRUE} for id in ids])
    write_lines(
        folder / "wrong.jsonl", [{"id": id, "caption": f"Stir {id}.", **(FALSE if id != "0" else TRUE)} for id in ids]
    )
    write_lines(folder / "bare.jsonl", [{"id": id, "caption": f"Chop the blueberry, {id}."} for id in ids])
    return folder


def words(inputs: Path, out: Path, *captions: str) -> list[str]:
    files = ["--captions", *(str(inputs / f"{name}.jsonl") for name in captions), "--gold", str(inputs / "gold.jsonl")]
    judge = ["--verifier", str(VERIFIER), "--media", str(inputs), "--device", "cpu", "--draws", "50"]
    return ["multifact", *files, *judge, "--out", str(out)]


def result_of(folder: Path) -> dict[str, Any]:
    """Numbers to four digits: the last bits depend on where in memory a process has its tensors."""
    text = (folder / "result.json").read_text(encoding="utf-8")
    return json.loads(text, parse_float=lambda number: round(float(number), 4))


def test_two_systems_with_facts_in_the_files_are_scored_paired_and_each_clip_is_encoded_once(inputs, tmp_path, capsys):
    assert cli.main(words(inputs, tmp_path, "right", "wrong")) == 0
    printed, result = capsys.readouterr().out, result_of(tmp_path)
    assert result["n_passes"] == N_CLIPS
    name = "visual/conceptual/multifact"
    assert result["systems"]["right"]["scores"][name]["value"] == 1.0
    assert result["systems"]["wrong"]["scores"][name]["value"] == pytest.approx(1 / 3, abs=1e-4)
    apart = result["differences"]["wrong"][name]
    assert apart["value"] == pytest.approx(-2 / 3, abs=1e-4)
    assert apart["interval_95"][0] <= apart["value"] <= apart["interval_95"][1]
    assert result["systems"]["wrong"]["captions"][1]["omitted"] == ["chopping", "blueberry", "knife", "cutting board"]
    assert result["judges_on_gold_facts"]["visual/conceptual/pooled"]["value"] == 1.0
    assert f"{N_CLIPS} encoder passes" in printed
    assert "wrong - right" in printed
    assert not any(key.startswith("textual") for key in result["systems"]["right"]["scores"])  # nobody judges texts
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Stir with spatula." in page
    assert "hallucination" in page
    assert "data:image/jpeg;base64," in page  # the clips' frames
    judged = (tmp_path / "judged-videos.parquet").stat().st_mtime_ns
    (tmp_path / "result.json").unlink()
    assert cli.main(words(inputs, tmp_path, "right", "wrong")) == 0
    assert (tmp_path / "judged-videos.parquet").stat().st_mtime_ns == judged
    assert result_of(tmp_path) == result


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """A language model that reads every caption as TRUE, and says of claims whether they hold of that."""
    text = body["messages"][0]["content"]
    if "JSON object" in text:
        return chat(json.dumps(TRUE["conceptual"]))
    if "JSON list" in text:
        return chat(json.dumps(TRUE["contextual"]))
    so = any(claim in text for claim in ("Statement: Action is chopping.", "Statement: Ingredient is blueberry."))
    return chat("YES." if so else "[no]")


def language_model(server: Server, folder: Path) -> list[str]:
    """The option, for a client that keeps what it was told."""
    folder.mkdir()
    path = folder / "model.yaml"
    path.write_text(f"base_url: {server.url}\nmodel: m\nconcurrency: 1\ncache_dir: {folder / 'kept'}\n")
    return ["--language-model", str(path)]


def test_facts_by_an_endpoint_and_a_run_killed_in_the_middle_goes_on_to_the_same_result(inputs, tmp_path):
    with running_server() as server:
        server.answer = answer
        more = ["--check-extraction", *language_model(server, tmp_path / "a")]
        whole = [*words(inputs, tmp_path / "whole", "bare"), *more]
        assert cli.main(whole) == 0
        n_asked, reached, go_on = len(server.bodies), threading.Event(), threading.Event()

        def stall(handler: Any) -> None:
            reached.set()
            go_on.wait(60)
            handler.connection.close()

        def slowly(body: dict[str, Any]) -> Any:
            if len(server.bodies) == n_asked + 5:
                server.plan.append(stall)
            return answer(body)

        server.answer = slowly
        more = ["--check-extraction", *language_model(server, tmp_path / "b")]
        stopped = [*words(inputs, tmp_path / "out", "bare"), *more]
        command = [sys.executable, "-m", "proofreel.cli", *stopped]
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        assert reached.wait(120)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        go_on.set()
        server.answer = answer
        assert cli.main(stopped) == 0
        assert len(server.bodies) == 2 * n_asked + 1  # the question that got no answer alone is put again
    results = [result_of(tmp_path / name) for name in ("whole", "out")]
    assert results[0] == results[1]
    scores = results[0]["systems"]["bare"]["scores"]
    assert scores["visual/conceptual/multifact"]["value"] == 1.0
    assert scores["textual_gold/conceptual/multifact"]["value"] == 0.5
    assert scores["textual_predicted/conceptual/multifact"]["value"] == 1.0
    assert scores["errors/caption_only/conceptual/Location/omission"]["value"] == 1.0
    assert scores["errors/caption_only/conceptual/Tool/omission"]["value"] is None  # "chop with knife" names it
    assert results[0]["extraction"]["Action"]["f1"] == 1.0
    assert results[0]["extraction"]["Tool"]["recall"] == 0.0


def test_what_is_missing_is_named_with_its_remedy(inputs, tmp_path, capsys):
    for more, complaint in (
        (["bare"], "bare.jsonl: conceptual facts are missing, got none for '0'"),
        (["absent"], "no such file"),
    ):
        assert cli.main(words(inputs, tmp_path, *more)) == 1
        assert complaint in capsys.readouterr().err
    bad = write_lines(tmp_path / "bad.jsonl", [{"id": "0", "caption": "C.", **TRUE}, {"id": "7", "caption": "C."}])
    gold = ["--gold", str(inputs / "gold.jsonl"), "--out", str(tmp_path)]
    assert cli.main(["multifact", "--captions", str(bad), *gold]) == 1
    assert "bad.jsonl:2: id names no clip" in capsys.readouterr().err
    assert cli.main(["multifact", "--captions", str(inputs / "right.jsonl"), *gold]) == 1
    assert "give a verifier" in capsys.readouterr().err
