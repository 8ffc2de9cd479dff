"""eval/calibrate.py: bands without verdicts and guaranteed points, from the command line to the stored decision."""

import numpy as np
import pytest

from proofreel.eval.calibrate import main
from proofreel.eval.scoring.predictions import Prediction, write_predictions
from proofreel.models.decision.thresholds import read_decision


@pytest.fixture(scope="module")
def predictions(tmp_path_factory):
    """2,000 rows of 200 groups, margins three times too sure."""
    rng, rows = np.random.default_rng(0), []
    for i in range(2_000):
        m = float(rng.normal(0, 2))
        label = "supported" if rng.random() < 1 / (1 + np.exp(-m)) else "refuted"
        rows.append(Prediction(f"r{i}", 3 * m, 0.5, label, "calibration", f"g{i % 200}", "", "", "visual"))
    path = tmp_path_factory.mktemp("p") / "calibration.parquet"
    write_predictions(path, rows, {"verifier_fingerprint": "f"})
    return path


def fitted(predictions, out, *words):
    assert main(["--predictions", str(predictions), "--out", str(out), *words]) == 0
    return read_decision(out)


def test_a_band_and_guaranteed_points_are_stored_and_told(predictions, tmp_path, capsys):
    words = ["--abstain", "selective_accuracy:0.9", "--control-risk", "false_support_rate:0.2:0.1", "miss_rate:0.3:0.1"]
    decision = fitted(predictions, tmp_path / "c", "--method", "platt", *words)
    band = decision.abstain
    assert band is not None
    assert band.selective_accuracy >= 0.9
    assert band.decide(np.array([0.0, 1.0])).tolist() == ["refuted", "supported"]
    point = decision.point("false_support_rate_0.2")
    assert point.guarantee is not None
    assert (point.guarantee.at_most, point.guarantee.delta) == (0.2, 0.1)
    assert point.fp / (point.fp + point.tn) <= 0.2
    said = capsys.readouterr().out
    assert "guaranteed   false_support_rate_0.2" in said
    assert "get a verdict" in said


def test_a_guaranteed_band_is_stored_and_a_plain_one_names_it(predictions, tmp_path, capsys):
    words = ["--method", "platt", "--abstain"]
    band = fitted(predictions, tmp_path / "c", *words, "selective_accuracy_guaranteed:0.6:0.2").abstain
    assert band is not None
    assert band.guarantee is not None
    assert (band.guarantee.at_most, band.guarantee.delta) == (0.4, 0.2)
    assert "guaranteed   0.6 of its verdicts" in capsys.readouterr().out
    fitted(predictions, tmp_path / "d", *words, "selective_accuracy:0.6")
    said = capsys.readouterr().out
    assert "no promise   the abstain band" in said
    assert "selective_accuracy_guaranteed:0.6:0.1" in said


def test_a_precision_that_few_verdicts_reach_is_warned_of(predictions, tmp_path, capsys):
    words = ["--method", "none", "--objective", "precision_at:0.9"]
    fitted(predictions, tmp_path / "c", *words)
    assert "may be right by chance" not in capsys.readouterr().out
    rows = [  # margins that know nothing, but for the five highest
        Prediction(
            f"r{i}",
            i / 100,
            0.5,
            "supported" if i % 2 or i > 395 else "refuted",
            "calibration",
            f"g{i % 100}",
            "",
            "",
            "v",
        )
        for i in range(400)
    ]
    write_predictions(tmp_path / "few.parquet", rows, {"verifier_fingerprint": "f"})
    point = fitted(tmp_path / "few.parquet", tmp_path / "d", *words).point()
    assert point.tp + point.fp < 20
    assert "may be right by chance" in capsys.readouterr().out


def test_without_being_asked_there_is_neither(predictions, tmp_path):
    decision = fitted(predictions, tmp_path / "c")
    assert decision.abstain is None
    assert all(point.guarantee is None for point in decision.points)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--method", "histogram", "--control-risk", "miss_rate:0.3:0.1"], "keeps every margin apart"),
        (["--method", "platt", "--per-group", "modality", "--control-risk", "miss_rate:0.3:0.1"], "per group"),
        (["--abstain", "selective_accuracy:2"], "abstain"),
        (["--control-risk", "miss_rate:0.001:0.1"], "groups"),
    ],
)
def test_what_these_rows_cannot_promise_is_refused(predictions, tmp_path, capsys, words, reason):
    assert main(["--predictions", str(predictions), "--out", str(tmp_path / "c"), *words]) == 1
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("words", [["--abstain", "accuracy:0.9"], ["--control-risk", "miss_rate:0.1"]])
def test_words_that_say_nothing_are_refused(predictions, tmp_path, words):
    with pytest.raises(SystemExit):
        main(["--predictions", str(predictions), "--out", str(tmp_path), *words])
