"""Cross-fitting: rows are joined from verifiers that never saw them, and measured by the calibration of other folds."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import logit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score
from test_folds import config_of

from proofreel.core import ConfigError, RowError, sha256_of
from proofreel.core.errors import CalibrationError
from proofreel.data_prep.dataset import FOLDS, read_split, train_shards
from proofreel.data_prep.pipeline import build
from proofreel.eval import calibrate, join
from proofreel.eval.calibration import CrossFitted, read_measuring
from proofreel.eval.publishing.exporting import _check_fitted
from proofreel.eval.reports import measure_files
from proofreel.eval.scoring import Prediction, join_folds, read_predictions, write_predictions
from proofreel.models.directory import CONFIG, MANIFEST, fingerprint

RECIPE = "r" * 64


@pytest.fixture
def data(tmp_path: Path) -> Path:
    config = config_of(tmp_path, 15, 5, rows=12)
    build(config)
    return Path(config.output)


def verifier_of(folder: Path, data: Path, recipe: str = RECIPE) -> Path:
    """What `join` and `export` read of a verifier: which rows it was trained on, by which settings."""
    folder.mkdir(parents=True, exist_ok=True)
    trained = {"train_shards": train_shards(data), "recipe_sha256": recipe}
    (folder / CONFIG).write_text(json.dumps({"trained": trained}))
    (folder / MANIFEST).write_text(f"{sha256_of(folder / CONFIG)}  {folder.name}\n")
    return folder


def predicted(path: Path, data: Path, verifier: Path, seed: int, **source: Any) -> Path:
    """A fold's test split, scored by a verifier with a scale and offset of its own."""
    draws = np.random.default_rng(seed)
    rows = []
    for pair in read_split(data, "test"):
        margin = float(np.float32((0.8 + 0.4 * seed) * draws.normal(1.0 if pair.label == "supported" else -0.4) + 1))
        about_pair = (pair.label, pair.split, pair.group, pair.role, pair.origin, pair.modality)
        rows.append(Prediction(pair.id, margin, 0.5, *about_pair))
    about = {"prompt_sha256": "p", "labels": ["supported", "refuted"], "control": None, "calibrated": False}
    about |= {"verifier_fingerprint": fingerprint(verifier), "manifest_sha256": sha256_of(data / "manifest.json")}
    write_predictions(path, rows, about | {"pairs_sha256": str(seed)} | source)
    return path


@pytest.fixture
def folds(data: Path, tmp_path: Path) -> tuple[list[Path], list[Path]]:
    """Verifiers of the folds, and their predictions."""
    verifiers, files = [], []
    for k, folder in enumerate(sorted((data / FOLDS).iterdir())):
        verifiers.append(verifier_of(tmp_path / f"draft-{k}", folder))
        files.append(predicted(tmp_path / f"test-{k}.parquet", folder, verifiers[-1], k))
    return verifiers, files


def joined(data: Path, folds: tuple[list[Path], list[Path]], out: Path) -> Path:
    words = ["--data", data, "--verifiers", *folds[0], "--predictions", *folds[1], "--out", out]
    assert join.main([str(word) for word in words]) == 0
    return out


def test_joined_predictions_hold_each_row_once_with_its_fold(data, folds, tmp_path):
    rows, source = join_folds(data, folds[0][::-1], folds[1][::-1])
    assert sorted(row.pair_id for row in rows) == sorted(
        pair.id for split in ("train", "validation") for pair in read_split(data, split)
    )
    for row in rows:
        assert row.pair_id in {pair.id for pair in read_split(data / FOLDS / str(row.split), "test")}
    assert source["cross_fitted"]["folds"] == {f"fold-{k}": fingerprint(folds[0][k]) for k in range(5)}
    assert source["manifest_sha256"] == sha256_of(data / "manifest.json")
    assert "verifier_fingerprint" not in source
    assert join_folds(data, *folds) == (rows, source)


def test_rows_that_a_verifier_was_trained_on_are_refused(data, folds, tmp_path):
    verifiers, files = folds
    seen = verifier_of(tmp_path / "seen", data)  # trained on all folds
    for k, trained_elsewhere in ((0, seen), (1, verifiers[2])):
        other = predicted(tmp_path / "other.parquet", data / FOLDS / f"fold-{k}", trained_elsewhere, 7)
        mixed = [trained_elsewhere if i == k else v for i, v in enumerate(verifiers)]
        with pytest.raises(RowError, match=f"was not trained on .*fold-{k}"):
            join_folds(data, mixed, [other if i == k else f for i, f in enumerate(files)])


def test_files_that_do_not_belong_together_are_refused(data, folds, tmp_path):
    verifiers, files = folds
    with pytest.raises(ConfigError, match=r"a file of every fold.*got \['fold-0', 'fold-1', 'fold-2', 'fold-3'\]"):
        join_folds(data, verifiers[:4], files[:4])
    with pytest.raises(ConfigError, match="once, got"):
        join_folds(data, [*verifiers, verifiers[0]], [*files, files[0]])
    with pytest.raises(RowError, match="of another verifier"):
        join_folds(data, [verifiers[1], verifiers[0], *verifiers[2:]], files)
    with pytest.raises(ConfigError, match="is not in folds"):
        join_folds(data / FOLDS / "fold-0", verifiers, files)

    rows, source = read_predictions(files[0])
    write_predictions(tmp_path / "short.parquet", rows[1:], source)
    with pytest.raises(RowError, match=f"got 1 other or missing ones, for example '{rows[0].pair_id}'"):
        join_folds(data, verifiers, [tmp_path / "short.parquet", *files[1:]])
    write_predictions(tmp_path / "prompt.parquet", rows, source | {"prompt_sha256": "q"})
    with pytest.raises(RowError, match="prompt_sha256 differs"):
        join_folds(data, verifiers, [tmp_path / "prompt.parquet", *files[1:]])
    other = verifier_of(tmp_path / "other-settings", data / FOLDS / "fold-4", recipe="s" * 64)
    by_other = predicted(tmp_path / "by-other.parquet", data / FOLDS / "fold-4", other, 4)
    with pytest.raises(RowError, match="trained with other settings"):
        join_folds(data, [*verifiers[:4], other], [*files[:4], by_other])


def test_the_report_is_what_scikit_learn_finds_with_each_fold_calibrated_on_the_others(data, folds, tmp_path):
    path = joined(data, folds, tmp_path / "test.parquet")
    out = tmp_path / "calibrated"
    assert calibrate.main(["--predictions", str(path), "--out", str(out), "--method", "platt"]) == 0
    numbers = measure_files(path, out)
    row = numbers["headline"]

    rows, _ = read_predictions(path)
    margins = np.array([r.margin for r in rows])
    labels = np.array([r.label == "supported" for r in rows], dtype=float)
    fold_of = np.array([r.split for r in rows])
    p = np.full(len(rows), np.nan)
    for fold in np.unique(fold_of):
        others = fold_of != fold
        n1, n0 = labels[others].sum(), (1 - labels[others]).sum()
        smoothed = np.where(
            labels[others] == 1, (n1 + 1) / (n1 + 2), 1 / (n0 + 2)
        )  # Platt's targets, as two weighted rows
        x, y = np.tile(margins[others], 2)[:, None], np.repeat([1, 0], others.sum())
        weights = np.concatenate([smoothed, 1 - smoothed])
        fitted = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(x, y, weights)
        p[~others] = fitted.predict_proba(margins[~others][:, None])[:, 1]
    assert row["n"] == len(rows)
    assert row["auc"] == pytest.approx(roc_auc_score(labels, margins))
    assert row["brier_after"] == pytest.approx(brier_score_loss(labels, p), abs=1e-5)
    assert row["nll_after"] == pytest.approx(log_loss(labels, p), abs=1e-5)

    decision = read_measuring(out)
    assert isinstance(decision.calibration, CrossFitted)
    found = decision.calibration.predict(margins, decision.calibration.group_keys(rows))
    np.testing.assert_allclose(found, p, atol=1e-4)
    every = decision.calibration.map.apply(margins)  # the one that is published, fitted on all
    assert np.abs(every - logit(p)).max() > 1e-3
    assert row["n_groups"] == 15
    assert not numbers["watermark"]
    assert not numbers["warnings"]
    assert any("was not tested itself" in text for text in numbers["remarks"])


def test_labels_of_a_fold_do_not_touch_its_own_probabilities(data, folds, tmp_path):
    path = joined(data, folds, tmp_path / "test.parquet")
    found = []
    for flipped in (False, True):
        rows, source = read_predictions(path)
        if flipped:
            other: dict[Any, Any] = {"supported": "refuted", "refuted": "supported"}
            rows = [dataclasses.replace(r, label=other[r.label]) if r.split == "fold-2" else r for r in rows]
        write_predictions(tmp_path / "rows.parquet", rows, source)
        calibrate.main(
            ["--predictions", str(tmp_path / "rows.parquet"), "--out", str(tmp_path / "c"), "--method", "platt"]
        )
        calibration: Any = read_measuring(tmp_path / "c").calibration
        found.append(calibration.predict([r.margin for r in rows], calibration.group_keys(rows)))
    inside = np.array([r.split == "fold-2" for r in rows])
    np.testing.assert_array_equal(found[0][inside], found[1][inside])
    assert (found[0][~inside] != found[1][~inside]).all()


def test_a_calibration_of_a_split_in_the_same_folder_leaves_nothing_of_the_folds(data, folds, tmp_path):
    path, out = joined(data, folds, tmp_path / "test.parquet"), tmp_path / "calibrated"
    assert calibrate.main(["--predictions", str(path), "--out", str(out)]) == 0
    rows, source = read_predictions(path)
    plain = [dataclasses.replace(row, split="calibration") for row in rows]
    write_predictions(tmp_path / "plain.parquet", plain, {k: v for k, v in source.items() if k != "cross_fitted"})
    assert calibrate.main(["--predictions", str(tmp_path / "plain.parquet"), "--out", str(out)]) == 0
    assert not isinstance(read_measuring(out).calibration, CrossFitted)
    assert calibrate.main(["--predictions", str(path), "--out", str(out)]) == 0
    again: Any = read_measuring(out).calibration
    with pytest.raises(CalibrationError, match=r"got rows of \['calibration'\]"):
        again.predict([0.0], plain[:1])


@pytest.mark.parametrize(
    "words", [["--control-risk", "miss_rate:0.3:0.1"], ["--abstain", "selective_accuracy_guaranteed:0.7:0.1"]]
)
def test_guarantees_are_refused(data, folds, tmp_path, capsys, words):
    path = joined(data, folds, tmp_path / "test.parquet")
    assert calibrate.main(["--predictions", str(path), "--out", str(tmp_path / "c"), *words]) == 1
    assert "a guarantee holds for the verifier whose margins these are" in capsys.readouterr().err


def test_only_a_last_verifier_of_the_same_settings_and_all_folds_takes_the_calibration(data, folds, tmp_path):
    path, out = joined(data, folds, tmp_path / "test.parquet"), tmp_path / "calibrated"
    assert calibrate.main(["--predictions", str(path), "--out", str(out)]) == 0
    with pytest.raises(CalibrationError, match="other settings than the verifiers of the folds"):
        _check_fitted(verifier_of(tmp_path / "a", data, recipe="s" * 64), out, data)
    with pytest.raises(CalibrationError, match="was not trained on all folds"):
        _check_fitted(verifier_of(tmp_path / "b", data / FOLDS / "fold-0"), out, data)
