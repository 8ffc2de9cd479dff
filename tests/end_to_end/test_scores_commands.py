"""The commands of OMD-Bench and CG-Bench with the shipped kitchen verifier."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from proofreel import cli

ROOT = Path(__file__).resolve().parents[2]
VERIFIER = ROOT / "checkpoints" / "kitchen-verifier"


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the shipped clip under two names."""
    folder = tmp_path_factory.mktemp("media")
    for name in ("sample.mp4", "other.mp4"):
        shutil.copy(ROOT / "examples" / "kitchen" / "sample.mp4", folder / name)
    return folder


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def result_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


def test_omd_asks_a_verifier_in_eight_conditions_and_reads_its_answers_again(media, tmp_path, capsys):
    question = {
        "question": "What is chopped?",
        "options": ["Carrot", "Onion", "I cannot answer"],
        "answer": "Carrot",
    }
    anchors = write_lines(
        tmp_path / "anchors.jsonl",
        [
            {"id": name, "video": f"{name}.mp4", "audio": f"{name}!", "text": f"{name}.", "questions": [question]}
            for name in ("sample", "other")
        ],
    )
    words = ["omd", "--verifier", str(VERIFIER), "--anchors", str(anchors), "--media", str(media), "--draws", "50"]
    assert cli.main([*words, "--untrained-evidence", "--device", "cpu", "--out", str(tmp_path / "omd")]) == 0
    asked = result_of(tmp_path / "omd")["models"]["verifier"]
    assert len(asked["answers"]) == 16
    assert asked["tables"]["real"]["n_failed"] == 0
    again = ["omd", "--answers", str(tmp_path / "omd" / "answers-verifier.jsonl"), "--names", "verifier"]
    assert cli.main([*again, "--draws", "50", "--out", str(tmp_path / "again")]) == 0
    assert result_of(tmp_path / "again")["models"]["verifier"] == asked
    assert "Shapley" in capsys.readouterr().out


def test_omd_says_what_is_missing(tmp_path, capsys):
    assert cli.main(["omd", "--out", str(tmp_path)]) == 1
    assert "--answers" in capsys.readouterr().err
    assert cli.main(["omd", "--answers", str(tmp_path / "absent.jsonl"), "--out", str(tmp_path)]) == 1
    assert "no such file" in capsys.readouterr().err


def test_empty_files_are_named(tmp_path, capsys):
    empty = tmp_path / "empty.json"
    empty.touch()
    omd = ["omd", "--verifier", str(VERIFIER), "--media", str(tmp_path), "--anchors", str(empty)]
    for words in (omd, ["cgbench", "--annotation", str(empty), "--predictions", str(empty)]):
        assert cli.main([*words, "--out", str(tmp_path)]) == 1
        assert f"{empty}: no " in capsys.readouterr().err
