"""`proofreel murgat`: labels and the shipped verifier judge, two systems are compared, a second run changes nothing."""

import json
from pathlib import Path

import pytest

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
    assert "b - a" in capsys.readouterr().out


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
    system = json.loads(first)["systems"][0]
    assert system["n_passes"] == 1  # one segment carries both claims; 9:00 is not in the video
    missing = system["responses"][1]["response"]["sentences"][0]["facts"][0]["citations"][1]
    assert missing["relevant"] is False
    assert "beyond the end" in missing["reason"]
    assert main(words) == 0
    assert (tmp_path / "result.json").read_bytes() == first


def test_bad_input_is_refused_with_a_remedy(tmp_path, capsys):
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(RESPONSES), encoding="utf-8")
    for words, remedy in [
        (["--responses", str(bare)], "--language-model"),
        (["--responses", str(tmp_path / "none.json")], "check the path"),
        (["--responses", str(bare), str(bare)], "--names"),
    ]:
        assert main(["murgat", *words, "--out", str(tmp_path / "out")]) == 1
        assert remedy in capsys.readouterr().err


def test_the_shared_responses_print_their_bounds(tmp_path, capsys, shared_data):
    responses = shared_data / "video-clips" / "responses.json"
    if not responses.exists():
        pytest.skip(f"{responses} is not there")
    assert main(["murgat", "--responses", str(responses), "--out", str(tmp_path), "--draws", "200"]) == 0
    assert "0.729 to 0.792" in capsys.readouterr().out  # worked out in tests/unit/test_murgat_score.py
