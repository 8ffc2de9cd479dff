"""`proofreel cascade`: what `fit` writes opens as a cascade, `report` measures it, and bad input is refused by name."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofreel.cli import main
from proofreel.core.pairs import Pair, Passage, Split
from proofreel.data_prep.dataset.shards import SCHEMA_VERSION, read_split, write_shards
from proofreel.eval.scoring.predictions import Prediction, read_predictions, write_predictions
from proofreel.models.cascades.cascade import Cascade
from proofreel.models.cascades.directory import read_cascade
from proofreel.models.cascades.plan import View
from proofreel.models.decision.calibration import sigmoid
from proofreel.models.directory.format import fingerprint

FIXTURE = Path(__file__).parents[1] / "fixtures" / "verifier_v1_1"
VIEWS = [View(kinds=("transcript", "passage")), View()]
SIZES: tuple[tuple[Split, int], ...] = (("calibration", 200), ("test", 40))
COMMON = ["--untrained-evidence", "--device", "cpu"]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """200 claims about 40 passages to calibrate on, 40 about 8 to report on."""
    folder = tmp_path_factory.mktemp("data")
    pairs = [
        Pair(
            f"{split}-{i}",
            f"Claim {i} is so.",
            (Passage(f"Passage {i // 5} of {split}."),),
            label="supported" if i % 2 else "refuted",
            group=f"g{i // 5}",
            split=split,
        )
        for split, n in SIZES
        for i in range(n)
    ]
    manifest = {"schema_version": SCHEMA_VERSION, "media_root": ".", "shards": write_shards(folder, pairs)}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def predictions(data: Path, split: str, folder: Path) -> list[str]:
    """A file per stage: both right more often than not, the second one more so."""
    rng, paths = np.random.default_rng(0), []
    pairs = read_split(data, split)
    for number, (strength, view) in enumerate(zip((1.0, 2.0), VIEWS, strict=True)):
        rows = []
        for pair in pairs:
            m = float(np.float32(strength * (1 if pair.label == "supported" else -1) + rng.normal()))
            about = (pair.label, pair.split, pair.group, "", "annotated", "text")
            rows.append(Prediction(pair.id, m, float(sigmoid(m)), *about, claim=pair.claim))
        source = {"verifier_fingerprint": fingerprint(FIXTURE), "control": None}
        paths.append(str(folder / f"{split}-{number}.parquet"))
        # The file of a whole view is one of eval/predict.py, which knows of no views.
        more = {} if view == View() else {"view": dataclasses.asdict(view)}
        write_predictions(paths[-1], rows[::-1], source | more)
    return paths


def fit_words(data: Path, out: Path, *more: str) -> list[str]:
    views = ["--views", "kinds:transcript,passage", "all"]
    paths = ["--verifiers", str(FIXTURE), str(FIXTURE), "--data", str(data), "--out", str(out)]
    return ["cascade", "fit", *paths, *views, *COMMON, *more]


@pytest.fixture(scope="module")
def fitted(data, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("fitted") / "cascade"
    files = predictions(data, "calibration", out.parent)
    words = fit_words(data, out, "--target", "auc_loss:0.05", "--one-by-one", "--abstain", "max_abstention:0.2")
    assert main([*words, "--predictions", *files]) == 0
    return out


def test_the_written_directory_is_a_cascade_of_these_verifiers_views_and_rows(fitted, data):
    config, plan = read_cascade(fitted)
    assert [stage.view for stage in config.stages] == VIEWS
    assert {stage.fingerprint for stage in config.stages} == {fingerprint(FIXTURE)}
    about = plan.decision.calibration.fitted_on
    assert about["split"] == "calibration"
    assert about["cascade"]["target"] == "auc_loss:0.05"
    assert plan.decision.calibration.n == 200
    band = plan.decision.abstain
    assert band is not None
    assert 0 < band.abstained_positive + band.abstained_negative <= 0.2 * 200
    cascade = Cascade.from_pretrained(fitted, device="cpu", untrained_evidence=True)
    verdicts = cascade.score_pairs(read_split(data, "test")[:4])
    assert all(v.error is None and 0 <= v.p_supported <= 1 for v in verdicts)


def report_words(data: Path, cascade: Path, out: Path, *more: Any) -> list[str]:
    return ["cascade", "report", "--cascade", str(cascade), "--data", str(data), "--out", str(out), *COMMON, *more]


def test_the_report_is_of_the_predictions_it_is_given(fitted, data, tmp_path, capsys):
    files = predictions(data, "test", tmp_path)
    words = report_words(data, fitted, tmp_path / "report", "--predictions", *files, "--names", "quick", "slow")
    assert main(words) == 0
    numbers = json.loads((tmp_path / "report" / "report.json").read_text())
    assert [stage["name"] for stage in numbers["stages"]] == ["quick", "slow"]
    assert sum(stage["answered"] for stage in numbers["stages"]) == numbers["rows"] == 40
    plan = read_cascade(fitted)[1]
    by_id = [{row.pair_id: row.margin for row in read_predictions(file)[0]} for file in files]
    ids = [pair.id for pair in read_split(data, "test")]
    answered = plan.settle([[margins[i] for i in ids] for margins in by_id]).stage_N
    assert numbers["stages"][0]["answered"] == int(np.sum(answered == 0)) > 0
    assert "| quick |" in capsys.readouterr().out
    assert "| quick |" in (tmp_path / "report" / "report.md").read_text()


def test_without_predictions_the_split_is_scored_once_and_kept(fitted, data, tmp_path):
    words = report_words(data, fitted, tmp_path / "report", "--scores", str(tmp_path / "scores"))
    assert main(words) == 0
    files = sorted((tmp_path / "scores").glob("*.parquet"))
    assert [file.name for file in files] == ["stage-0.parquet", "stage-1.parquet"]
    written = [file.stat().st_mtime_ns for file in files]
    assert main([*words[:-2], "--predictions", *map(str, files)]) == 0
    assert main(words) == 0
    assert [file.stat().st_mtime_ns for file in files] == written


def other(path: str, **source: Any) -> str:
    rows, about = read_predictions(path)
    write_predictions(path, rows, about | source)
    return path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (lambda files: ["--views", "all"], "2 and 1"),
        (lambda files: ["--views", "all", "frame:2"], "'frame:2'"),
        (lambda files: ["--views", "all", "frames:3"], "got 3"),
        (lambda files: ["--predictions", files[0]], "got 1 for 2"),
        (lambda files: ["--predictions", *files[::-1]], "view"),
        (lambda files: ["--predictions", other(files[0], verifier_fingerprint="f"), files[1]], "verifier_fingerprint"),
        (lambda files: ["--predictions", files[0], other(files[1], control="claim-only")], "'claim-only'"),
        (lambda files: ["--predictions", *files, "--target", "auc:1"], "'auc:1'"),
        (lambda files: ["--predictions", *files, "--method", "magic"], "'magic'"),
        (lambda files: ["--predictions", *files, "--abstain", "max_abstention:half"], "'max_abstention:half'"),
        (lambda files: ["--predictions", *files, "--abstain", "sometimes:0.2"], "'sometimes:0.2'"),
        (lambda files: ["--predictions", *files, "--abstain", "max_abstention"], "'max_abstention'"),
        (lambda files: ["--predictions", *files, "--data", files[0]], "not a data set directory"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(data, tmp_path, capsys, words, message):
    files = predictions(data, "calibration", tmp_path)
    assert main(fit_words(data, tmp_path / "out", *words(files))) == 1
    error = capsys.readouterr().err
    assert "error: " in error
    assert message in error
    assert not (tmp_path / "out").exists()


def test_rows_of_another_split_are_refused(data, fitted, tmp_path, capsys):
    files = predictions(data, "calibration", tmp_path)
    assert main(report_words(data, fitted, tmp_path / "report", "--predictions", *files)) == 1
    assert "other rows" in capsys.readouterr().err
    assert main(report_words(data, fitted, tmp_path / "report", "--split", "calibration")) == 1
    assert "got calibration" in capsys.readouterr().err
    (tmp_path / "taken").mkdir()
    assert main(fit_words(data, tmp_path / "taken")) == 1
    assert "exists already" in capsys.readouterr().err
