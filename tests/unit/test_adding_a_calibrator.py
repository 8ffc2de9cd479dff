"""A calibrator is one class and one line: every place that knows calibrators takes it from `CALIBRATORS`."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from proofreel.core.errors import CalibrationError
from proofreel.core.prompt import Prompt
from proofreel.data_prep.media.frames import FrameSampling
from proofreel.eval.calibrate import main
from proofreel.eval.publishing.model_card import DataFacts, write_card
from proofreel.eval.reports.page import make_report, markdown
from proofreel.eval.scoring.predictions import Prediction, write_predictions
from proofreel.models.decision.calibrator import Calibrator, log_odds, sigmoid
from proofreel.models.decision.calibrators import CALIBRATORS, calibrator_table
from proofreel.models.decision.thresholds import read_decision
from proofreel.models.directory.format import BaseModel, VerifierConfig

DOCS = Path(__file__).resolve().parents[2] / "docs"


@dataclass(frozen=True)
class TwoLevels(Calibrator):
    """One probability below 0 and one from 0 on."""

    name = "two_levels"
    description = "one probability for margins below 0, one for the others"
    fewest_rows = 50
    ties_margins = True

    below: float
    above: float

    @classmethod
    def fit(cls, margins, labels, weights):
        low, high = (
            float((np.sum(weights[side & (labels == 1)]) + 1) / (np.sum(weights[side]) + 2))
            for side in (margins < 0, margins >= 0)
        )
        return cls(min(low, high), high), False

    def apply(self, margins):
        m = np.asarray(margins, dtype=np.float64)
        return np.where(np.isnan(m), np.nan, log_odds(np.where(m < 0, self.below, self.above)))

    def formula(self):
        return f"p = {self.below:.4g} below 0, {self.above:.4g} from there"


@pytest.fixture
def added(monkeypatch):
    monkeypatch.setitem(CALIBRATORS, TwoLevels.name, TwoLevels)  # the one line


def rows_of(split: str, n: int = 400) -> list[Prediction]:
    """Rows whose truth is two levels: 0.1 below a margin of 0, 0.9 above."""
    rng = np.random.default_rng(0)
    margins = rng.normal(0, 6, n).astype(np.float32).astype(float)
    labels = rng.random(n) < np.where(margins < 0, 0.1, 0.9)
    return [
        Prediction(
            pair_id=f"{split}{i}",
            margin=float(margin),
            p_supported=float(sigmoid(margin)),
            label="supported" if label else "refuted",
            split=split,
            group=f"{split} {i // 4}",
            role="Action",
            origin="annotated",
            modality="video",
        )
        for i, (margin, label) in enumerate(zip(margins, labels, strict=True))
    ]


def calibrated(folder: Path, method: str) -> Path:
    write_predictions(folder / "c.parquet", rows_of("calibration"), {})
    assert main(["--predictions", str(folder / "c.parquet"), "--out", str(folder / "out"), "--method", method]) == 0
    return folder / "out"


def test_calibrate_fits_it_by_name_and_its_file_applies_to_the_same_floats(added, tmp_path):
    out = calibrated(tmp_path, "two_levels")
    stored = json.loads((out / "calibration.json").read_text())
    assert (stored["method"], set(stored["parameters"])) == ("two_levels", {"below", "above"})
    rows = rows_of("calibration")
    margins, labels = np.array([p.margin for p in rows]), np.array([float(p.label == "supported") for p in rows])
    fitted, _ = TwoLevels.fit(margins, labels, np.ones(len(rows)))
    calibration = read_decision(out).calibration
    assert calibration.map == fitted
    np.testing.assert_array_equal(calibration.predict(margins), sigmoid(fitted.apply(margins)), strict=True)


def test_auto_has_it_among_its_candidates_from_its_fewest_rows_on(added, tmp_path, monkeypatch):
    choice = read_decision(calibrated(tmp_path, "auto")).calibration.fitted_on["choice"]
    assert choice["chosen"] == "two_levels"
    monkeypatch.setattr(TwoLevels, "fewest_rows", 401)
    choice = read_decision(calibrated(tmp_path, "auto")).calibration.fitted_on["choice"]
    assert choice["not_tried"]["two_levels"] == "400 rows, fewer than 401"


def test_the_help_of_calibrate_offers_it(added, capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "venn_abers,two_levels}" in capsys.readouterr().out


def test_the_report_and_the_model_card_print_its_formula(added, tmp_path):
    out = calibrated(tmp_path, "two_levels")
    write_predictions(tmp_path / "t.parquet", rows_of("test"), {})
    sentence = f"two_levels: {read_decision(out).calibration.map.formula()}"
    assert sentence in markdown(make_report(tmp_path / "t.parquet", out, clips_per_kind=0))
    (out / "golden").mkdir()
    (out / "golden" / "golden.json").write_text(json.dumps([{"margins": [0.1]}]))
    config = VerifierConfig(
        BaseModel("Qwen/Qwen2.5-VL-3B-Instruct", "0123abc", "b" * 64), "adapter", Prompt(), 5, 6, FrameSampling()
    )
    card = write_card(out, "verifier", config, DataFacts("pans", "a" * 64, {}, False)).read_text(encoding="utf-8")
    assert sentence in card


def test_the_documentations_table_holds_it(added):
    row = "| `two_levels` | one probability for margins below 0, one for the others | cannot arise | below, above | 50"
    assert row in calibrator_table()


def test_without_the_line_its_file_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(CALIBRATORS, TwoLevels.name, TwoLevels)
        out = calibrated(tmp_path, "two_levels")
    with pytest.raises(CalibrationError, match=r"unknown method, got 'two_levels'.*venn_abers"):
        read_decision(out)


def test_the_documentation_holds_the_table_of_the_calibrators_there_are():
    assert calibrator_table() in (DOCS / "calibration.md").read_text(encoding="utf-8")


def test_every_calibrator_stands_under_its_name_and_says_what_it_is():
    for name, calibrator in CALIBRATORS.items():
        assert (calibrator.name, bool(calibrator.description)) == (name, True)
