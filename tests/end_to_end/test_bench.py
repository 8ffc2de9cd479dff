"""`proofreel bench` the whole way: small clips laid out as a benchmark's media folder, and the shipped verifier."""

import json
from pathlib import Path

import av
import numpy as np
import pytest
import yaml

from proofreel.cli import main
from proofreel.eval.scoring import read_predictions
from proofreel.models.verifier import Verifier

ROOT = Path(__file__).resolve().parents[2]
VERIFIER = ROOT / "checkpoints" / "kitchen-verifier"
CLIPS = 6


@pytest.fixture
def stand_in(tmp_path):
    """Six clips and a pair of questions about each, as VideoHallucer lays them out."""
    videos = tmp_path / "object_relation" / "videos"
    videos.mkdir(parents=True)
    records = []
    for i in range(CLIPS):
        with av.open(str(videos / f"{i}.mp4"), "w") as container:
            stream = container.add_stream("libx264", rate=4)
            stream.width = stream.height = 84
            stream.pix_fmt = "yuv420p"
            for k in range(4):
                pixels = np.full((84, 84, 3), 40 * i, np.uint8)
                pixels[20 * k : 20 * k + 10] = 255
                container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
            container.mux(stream.encode())
        questions = [("Is there a pan in the video?", "yes"), (f"Is there a knife {i} in the video?", "no")]
        sides = [{"video": f"{i}.mp4", "question": question, "answer": answer} for question, answer in questions]
        records.append({"basic": sides[0], "hallucination": sides[1], "type": "subject"})
    (tmp_path / "object_relation.json").write_text(json.dumps(records), encoding="utf-8")
    return tmp_path


def test_one_command_gives_the_score_our_metrics_controls_and_a_card_entry(stand_in, capsys, monkeypatch):
    together = []
    ask = Verifier.score_pairs
    monkeypatch.setattr(
        Verifier, "score_pairs", lambda self, pairs, **how: together.append(pairs) or ask(self, pairs, **how)
    )
    words = ["bench", "videohallucer", "--annotations", str(stand_in), "--parts", "object_relation"]
    words += ["--media", str(stand_in), "--verifier", str(VERIFIER), "--device", "cpu", "--draws", "200"]
    out = stand_in / "out"
    assert main([*words, "--out", str(out)]) == 0, capsys.readouterr().err
    folder = out / "videohallucer"
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert set(result["scores"]) == {"judge", "claim-only", "mismatched-evidence"}
    rows, source = read_predictions(folder / "predictions.parquet")
    assert source["benchmark"] == "videohallucer"
    assert [row.error for row in rows] == [None] * 2 * CLIPS
    for call in together:  # a pair of questions is never cut in two
        items = [pair.meta["item"] for pair in call]
        assert all(items.count(item) == 2 for item in items)
    threshold = json.loads((VERIFIER / "thresholds.json").read_text(encoding="utf-8"))
    (point,) = [p for p in threshold["points"] if p["name"] == threshold["default"]]
    right = [(row.p_supported >= point["threshold"]) == (row.label == "supported") for row in rows]
    paired = sum(a and b for a, b in zip(right[::2], right[1::2], strict=True)) / CLIPS
    score = result["scores"]["judge"]["object_relation paired"]
    assert score["value"] == pytest.approx(paired)
    assert score["interval_95"] is not None
    claims = read_predictions(folder / "predictions-claim-only.parquet")[0]
    same = [row.margin for row in claims if row.claim == "There is a pan in the video."]
    assert len(same) == CLIPS
    assert max(same) - min(same) < 1e-4  # the claim is all it saw; its place in a pack moves the last bits
    assert result["metrics"]["headline"]["n"] == 2 * CLIPS
    card = (folder / "card.md").read_text(encoding="utf-8")
    (entry,) = yaml.safe_load(card.partition("```yaml\n")[2].partition("```")[0])
    assert entry["dataset"]["type"] == "videohallucer"
    assert any(
        m["name"] == "overall paired" and m["value"] == pytest.approx(paired, abs=1e-4) for m in entry["metrics"]
    )
    assert (folder / "report" / "report.html").is_file()


@pytest.mark.nightly  # what is left out is a unit test's
def test_what_media_there_is_can_be_scored(stand_in, capsys):
    (stand_in / "object_relation" / "videos" / "0.mp4").unlink()
    words = ["bench", "videohallucer", "--annotations", str(stand_in), "--parts", "object_relation", "--draws", "200"]
    words += ["--media", str(stand_in), "--verifier", str(VERIFIER), "--device", "cpu", "--out", str(stand_in / "less")]
    assert main(words) == 1
    assert "files are missing, got 1 of 6, the first object_relation/videos/0.mp4" in capsys.readouterr().err
    assert main([*words, "--partial", "--controls"]) == 0
    less = json.loads((stand_in / "less" / "videohallucer" / "result.json").read_text(encoding="utf-8"))
    assert less["missing"] == ["object_relation/videos/0.mp4"]
    assert less["scores"]["judge"]["object_relation paired"]["n"] == 2 * (CLIPS - 1)
    assert "Only 10 of 12 statements" in less["notes"][0]


@pytest.mark.nightly  # as above, by a judge without calibration
def test_a_base_that_nobody_trained_is_judged_from_one_half_on(stand_in, capsys):
    config = stand_in / "base.yaml"
    config.write_text(f"model: {{path: {ROOT / 'checkpoints/kitchen-base'}, dtype: float32}}\n", encoding="utf-8")
    words = ["bench", "videohallucer", "--annotations", str(stand_in), "--parts", "object_relation", "--draws", "200"]
    words += ["--media", str(stand_in), "--zero-shot", str(config), "--device", "cpu", "--out", str(stand_in / "out")]
    assert main(words) == 0, capsys.readouterr().err
    folder = stand_in / "out" / "videohallucer"
    rows = read_predictions(folder / "predictions.parquet")[0]
    right = [(row.margin >= 0) == (row.label == "supported") for row in rows]
    scores = json.loads((folder / "result.json").read_text(encoding="utf-8"))["scores"]
    assert set(scores) == {"judge", "claim-only", "mismatched-evidence"}
    assert scores["judge"]["object_relation basic"]["value"] == pytest.approx(sum(right[::2]) / CLIPS)
    assert not (folder / "report").exists()  # which needs a calibration
