"""A windowing stated once, when predicting, reaches calibration, directory and verdicts; mixtures are refused."""

# pyright: reportOptionalMemberAccess=false

import json
import shutil

import pytest

from proofreel.data_prep.dataset.shards import read_split
from proofreel.eval.scoring.predictions import read_predictions
from proofreel.models.directory.format import read_directory, write_manifest
from proofreel.models.inputs.windowing import Windowing
from proofreel.models.verifier.verifier import Verifier

RULE = "noisy_or:0.5:0.25"


@pytest.fixture(scope="module")
def windowed(trained_run, colour_dataset, tmp_path_factory):
    """The run's verifier, predicted, calibrated and exported in windows; and what was predicted."""
    from proofreel.eval import calibrate, export, predict

    out = tmp_path_factory.mktemp("windowed")
    common = ["--verifier", str(trained_run / "draft"), "--data", str(colour_dataset)]
    told = ["--split", "calibration", "--out", str(out / "c.parquet"), "--device", "cpu", "--windowing", RULE]
    assert predict.main([*common, *told]) == 0
    assert calibrate.main(["--predictions", str(out / "c.parquet"), "--out", str(out / "calibrated")]) == 0
    exported = ["--calibration", str(out / "calibrated"), "--out", str(out / "verifier"), "--test-split", "test"]
    assert export.main([*common, *exported]) == 0
    return out


def test_the_rule_is_recorded_at_every_station(windowed):
    assert read_predictions(windowed / "c.parquet")[1]["aggregation"] == RULE
    assert json.loads((windowed / "calibrated" / "calibration.json").read_text())["aggregation"] == RULE
    assert read_directory(windowed / "verifier").windowing == Windowing.parse(RULE)
    assert read_predictions(windowed / "verifier" / "eval" / "predictions.parquet")[1]["aggregation"] == RULE


def test_the_exported_verifier_gives_the_predicted_margins_and_needs_no_note(windowed, colour_dataset):
    verifier = Verifier.from_pretrained(windowed / "verifier", device="cpu", prefix_cache_gib=0)
    assert verifier.windowing == Windowing.parse(RULE)
    assert not verifier.notes
    predicted = {p.pair_id: p for p in read_predictions(windowed / "c.parquet")[0]}
    pairs = read_split(colour_dataset, "calibration")
    for pair, verdict in zip(pairs, verifier.score_pairs(pairs), strict=True):
        assert len(verdict.windows) == 3
        assert verdict.note is None
        assert verdict.margin == pytest.approx(predicted[pair.id].margin, abs=1e-4, rel=1e-5)
        p = float(verifier.decision.calibration.predict(verdict.margin))
        assert verdict.p_supported == p


def test_its_golden_margins_and_settings_come_out_again(windowed, capsys):
    from proofreel.cli import main

    assert main(["selftest", str(windowed / "verifier")]) == 0
    assert "ok" in capsys.readouterr().out


@pytest.mark.parametrize("change", [None, {"length_s": 1.0, "stride_s": 1.0, "aggregation": "max", "top_k": 1}])
def test_a_directory_whose_windows_were_changed_is_refused(windowed, tiny_base, tmp_path, change):
    copy = shutil.copytree(windowed / "verifier", tmp_path / "copy")
    config = json.loads((copy / "verifier_config.json").read_text())
    config["windowing"] = change
    (copy / "verifier_config.json").write_text(json.dumps(config))
    write_manifest(copy)
    with pytest.raises(ValueError, match=f"made one by {RULE}, got"):
        Verifier.from_pretrained(copy, base=tiny_base, device="cpu")


def test_windows_with_gaps_are_refused_in_a_directory(windowed, tiny_base, tmp_path):
    copy = shutil.copytree(windowed / "verifier", tmp_path / "copy")
    config = json.loads((copy / "verifier_config.json").read_text())
    config["windowing"]["stride_s"] = 3.0
    (copy / "verifier_config.json").write_text(json.dumps(config))
    write_manifest(copy)
    with pytest.raises(ValueError, match="stride"):
        Verifier.from_pretrained(copy, base=tiny_base, device="cpu")


def test_a_rule_nobody_knows_ends_predicting_with_a_sentence(trained_run, colour_dataset, tmp_path, capsys):
    from proofreel.eval import predict

    common = ["--verifier", str(trained_run / "draft"), "--data", str(colour_dataset), "--device", "cpu"]
    assert predict.main([*common, "--split", "test", "--out", str(tmp_path / "t.parquet"), "--windowing", "max"]) == 1
    assert "max:8:4" in capsys.readouterr().err
