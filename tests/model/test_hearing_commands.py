"""What a verifier that hears is asked by commands: controls without sound, and OMD-Bench's conditions as clips."""

import json
from pathlib import Path

import pytest
from random_drafts import random_draft
from sounded_clips import sine, write_sounded

from proofreel.core.pairs import Audio, Pair, VideoSegment
from proofreel.data_prep.dataset.shards import write_pairs
from proofreel.data_prep.pipeline.config import BuildConfig, NegativesConfig, ProbingConfig, SourceConfig
from proofreel.data_prep.pipeline.pipeline import build
from proofreel.eval import omd, predict
from proofreel.eval.scoring.predictions import read_predictions

RATE = 16_000


@pytest.fixture(scope="module")
def verifier(tiny_of, small_sampling, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("hearing")
    draft = random_draft(
        tiny_of("qwen2_5_omni_thinker"), folder / "draft", small_sampling, config={"modalities": ("audio", "video")}
    )
    for hertz in (300, 600):
        write_sounded(folder / f"{hertz}.mkv", sine(hertz, RATE, RATE), RATE, video=True, grey=hertz // 6, seconds=1.0)
    return draft


def test_controls_of_sound_stand_beside_the_predictions_and_hold_the_rows_that_hear(verifier, tmp_path):
    pairs = []
    for name in ("300", "600"):
        evidence = {
            "said": Audio(f"{name}.mkv"),
            "both": VideoSegment(f"{name}.mkv", 0.0, 1.0, sound=True),
            "seen": VideoSegment(f"{name}.mkv", 0.0, 1.0),
        }
        for kind, piece in evidence.items():
            pairs.append(Pair(f"{name}/{kind}", "It rings.", (piece,), "supported", group=name, split="test"))
    write_pairs(tmp_path / "p.jsonl", pairs)
    config = BuildConfig(
        str(tmp_path / "data"),
        (SourceConfig("pairs", str(tmp_path / "p.jsonl")),),
        media_root=str(verifier.parent),
        negatives=NegativesConfig(swapped_per_claim=0),
        probing=ProbingConfig(workers=1),
        shortcut_probe=False,
        card=False,
    )
    build(config)
    words = ["--verifier", str(verifier), "--data", str(tmp_path / "data"), "--split", "test", "--device", "cpu"]
    words += ["--out", str(tmp_path / "test.parquet"), "--controls", "no-sound", "mismatched-sound"]
    assert predict.main(words) == 0
    (own, _), (none, about), (other, _) = (
        read_predictions(tmp_path / f"test{name}.parquet") for name in ("", "-no-sound", "-mismatched-sound")
    )
    assert about["control"] == "no-sound"
    assert not any(row.error for row in (*own, *none, *other))
    heard = [row.pair_id for row in own if not row.pair_id.endswith("seen")]
    assert [row.pair_id for row in none] == [row.pair_id for row in other] == heard
    margins = {row.pair_id: row.margin for row in own}
    without = {row.pair_id: row.margin for row in none}
    assert all(margins[row.pair_id] != row.margin for row in other)
    for name in ("300", "600"):
        assert without[f"{name}/both"] == pytest.approx(margins[f"{name}/seen"], abs=1e-4)
    assert len({round(without[f"{name}/said"], 4) for name in ("300", "600")}) == 1


def test_omd_asks_about_clips_that_it_writes(verifier, tmp_path, capsys):
    anchors = tmp_path / "anchors.jsonl"
    question = {"question": "What rings?", "options": ["300", "600", "I cannot answer"], "answer": "300"}
    lines = [{"id": n, "video": f"{n}.mkv", "text": f"{n}.", "questions": [question]} for n in ("300", "600")]
    anchors.write_text("\n".join(map(json.dumps, lines)))
    words = ["--verifier", str(verifier), "--anchors", str(anchors), "--media", str(verifier.parent), "--draws", "10"]
    words += ["--untrained-evidence", "--device", "cpu", "--sound", "noise"]
    assert omd.main([*words, "--out", str(tmp_path / "omd")]) == 1
    assert "--clips: needed to corrupt pictures and sound, got noise" in capsys.readouterr().err
    assert omd.main([*words, "--clips", str(tmp_path / "clips"), "--out", str(tmp_path / "omd")]) == 0
    result = json.loads((tmp_path / "omd" / "result.json").read_text(encoding="utf-8"))
    assert len(result["models"]["verifier"]["answers"]) == 16
    assert result["models"]["verifier"]["tables"]["real"]["n_failed"] == 0
    assert (
        len(list((tmp_path / "clips").glob("*.mkv"))) == 8
    )  # two pictures, own or the other's, with own sound or noise
