"""A report's numbers are right, its page needs nothing but itself, and rows that were fitted on are shouted about."""

import dataclasses
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from headless import CHROMIUM, Browser
from PIL import Image as PILImage
from sklearn import metrics as sk

from proofreel.core.pairs import Image, Passage, evidence_key
from proofreel.eval.calibrate import main as calibrate
from proofreel.eval.report import main
from proofreel.eval.reports.page import make_report
from proofreel.eval.scoring.predictions import Prediction, write_predictions
from proofreel.models.decision.calibrator import sigmoid
from proofreel.models.decision.thresholds import read_decision


def _rows(split: str, n: int = 300, seed: int = 0, **changes) -> list[Prediction]:
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        positive = bool(rng.random() < 0.4)
        margin = float(np.float32(rng.normal(3.0 if positive else -1.0, 4.0)))
        row = Prediction(
            pair_id=f"{split}-{i}",
            margin=margin,
            p_supported=float(sigmoid(margin)),
            label="supported" if positive else ("refuted", "not_enough")[i % 2],
            split=split,
            group=f"{split}-v{i % 30}",
            role=("Action", "Object", "")[i % 3],
            origin=("annotated", "swapped_evidence")[i % 2],
            modality="visual",
            claim=f"Claim {i} <script>alert(1)</script> & more",
            evidence=evidence_key((Passage(f"passage {i}"),)),
        )
        rows.append(dataclasses.replace(row, **changes))
    return rows


def _failed(row: Prediction, reason: str) -> Prediction:
    return dataclasses.replace(row, margin=math.nan, p_supported=math.nan, error=reason)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibration")
    write_predictions(folder / "cal.parquet", _rows("calibration", seed=1), {"verifier_fingerprint": "f00d"})
    assert calibrate(["--predictions", str(folder / "cal.parquet"), "--out", str(folder / "fit")]) == 0
    return folder / "fit"


needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
BEYOND = """[...document.querySelectorAll('body *')].filter(each => {
  const hidden = (box) => box.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).overflowX !== 'visible';
  const shaded = (box) => getComputedStyle(box).backgroundImage.split('linear-gradient').length === 5;
  const says = (box) => parseFloat(getComputedStyle(box, '::before').fontSize) > 8;
  if (hidden(each) && !(shaded(each) && says(each))) return true;
  const wide = each.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
  return wide && !each.closest('.wide') && !each.closest('svg');
}).map(each => each.tagName + '.' + each.className)"""


@needs_browser
@pytest.mark.parametrize(("width", "height", "dark"), [(390, 844, True), (1280, 900, False)])
def test_the_auc_is_on_the_first_screen_links_open_parts_and_what_is_cut_off_says_so(
    tmp_path: Path, calibrated: Path, width: int, height: int, dark: bool
) -> None:
    write_predictions(tmp_path / "blind.parquet", _rows("test", seed=5), {})
    control = f"the claim alone, without its evidence={tmp_path / 'blind.parquet'}"
    _, numbers = _report(tmp_path, _rows("test"), calibrated, "--control", control)
    with Browser(tmp_path / "profile", width, height, dark) as browser:
        browser.open((tmp_path / "out" / "report.html").as_uri())
        box = "document.querySelector('#auc strong').getBoundingClientRect()"
        assert (
            browser.value("document.querySelector('#auc strong').innerText") == f"AUC {numbers['headline']['auc']:.3f}"
        )
        assert 0 < browser.value(f"{box}.top") < browser.value(f"{box}.bottom") < height
        assert browser.value("document.querySelectorAll('details[open]').length") == 0
        for link in (0, 3):
            browser.value(f"document.querySelectorAll('nav a')[{link}].click()")
            target = f"document.querySelector(document.querySelectorAll('nav a')[{link}].getAttribute('href'))"
            assert browser.wait(f"{target}.closest('details').open")
            assert browser.value(f"{target}.getBoundingClientRect().top") < height
        browser.value("document.querySelectorAll('details').forEach(each => each.open = true)")
        browser.wait(f"{BEYOND}.length === 0", limit_s=5)  # the words beside a table come with the next frame
        is_cut = browser.value("[...document.querySelectorAll('.wide')].some(e => e.scrollWidth > e.clientWidth + 1)")
        assert is_cut == (width == 390)  # else the law above says nothing
        assert browser.problems() == []


def _report(tmp_path: Path, rows: list[Prediction], calibrated: Path, *options: str) -> tuple[str, dict]:
    write_predictions(tmp_path / "test.parquet", rows, {"verifier_fingerprint": "f00d", "manifest_sha256": "5ha"})
    arguments = ["--predictions", str(tmp_path / "test.parquet"), "--calibration", str(calibrated)]
    assert main([*arguments, "--out", str(tmp_path / "out"), *options]) == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    strict = json.loads((tmp_path / "out" / "metrics.json").read_text(), parse_constant=_refuse)
    return page, strict


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def test_the_headline_is_what_scikit_learn_computes_from_the_scored_rows(tmp_path: Path, calibrated: Path) -> None:
    rows = _rows("test")
    rows[5:8] = [_failed(row, "gone.mp4: no such file") for row in rows[5:8]]
    rows[20] = dataclasses.replace(rows[20], label=None)
    _, numbers = _report(tmp_path, rows, calibrated)
    used = [row for row in rows if row.error is None and row.label is not None]
    labels, margins = np.array([r.label == "supported" for r in used]), np.array([r.margin for r in used])
    decision = read_decision(calibrated)
    said = decision.calibration.predict(margins) >= decision.point().threshold
    headline = numbers["headline"]
    assert (headline["n"], headline["n_failed"], headline["n_unlabelled"]) == (296, 3, 1)
    expected = {
        "positive_rate": labels.mean(),
        "auc": sk.roc_auc_score(labels, margins),
        "ap": sk.average_precision_score(labels, margins),
        "f1": sk.f1_score(labels, said),
        "balanced_accuracy": sk.balanced_accuracy_score(labels, said),
        "brier_after": sk.brier_score_loss(labels, decision.calibration.predict(margins)),
        "nll_before": sk.log_loss(labels, sigmoid(margins)),
        "nll_after": sk.log_loss(labels, decision.calibration.predict(margins)),
    }
    assert {k: headline[k] for k in expected} == pytest.approx(expected, rel=1e-9)
    assert headline["auc_interval"]["low"] < headline["auc"] < headline["auc_interval"]["high"]
    assert headline["auc_interval"]["n_groups"] == 30
    assert headline["ece_after"] < headline["ece_before"]


def test_every_row_is_in_one_role_and_one_origin_failures_included(tmp_path: Path, calibrated: Path) -> None:
    rows = _rows("test")
    rows[5:15] = [_failed(row, f"v{i % 2}.mp4: no such file") for i, row in enumerate(rows[5:15])]
    page, numbers = _report(tmp_path, rows, calibrated)
    for table in ("by_role", "by_origin"):
        assert sum(row["n"] for row in numbers[table]) == 290
        assert sum(row["n_failed"] for row in numbers[table]) == 10
    assert {row["name"] for row in numbers["by_role"]} == {"Action", "Object", "(no role)"}
    assert numbers["failures"] == [{"reason": f"v{i}.mp4: no such file", "n": 5} for i in (0, 1)]
    assert "10 of 300 rows failed and are in no metric." in page


def test_few_groups_are_warned_of_and_every_shown_number_says_its_convention(tmp_path: Path, calibrated: Path) -> None:
    rows = [dataclasses.replace(row, group=f"test-v{i % 7}") for i, row in enumerate(_rows("test"))]
    page, numbers = _report(tmp_path, rows, calibrated)
    assert any("Only 7 groups" in text and text in page for text in numbers["remarks"])
    text = (tmp_path / "out" / "report.md").read_text()
    for sentence in (
        "Plain mean of the two classes' F1.",
        "F1 of the supported class",
        "one class, half of the two-class",
    ):
        assert sentence in page.replace("&#39;", "'")
        assert sentence in text
    for heading in ("Every number", "Thresholds", "Worst groups", "By modality"):
        assert f"<h2>{heading}</h2>" in page
        assert f"## {heading}" in text
    assert {point["name"] for point in numbers["thresholds"]} >= {"f1", "mcc"}


def test_the_page_is_self_contained_and_escapes_claims(tmp_path: Path, calibrated: Path) -> None:
    page, _ = _report(tmp_path, _rows("test"), calibrated, "--title", "<Title> & co")
    assert re.findall(r"<(?:script|link|iframe|object|base)\b", page) == []
    targets = re.findall(r'\b(?:src|href|action|data|poster)="([^"]*)"', page) + re.findall(r"url\(([^)]*)\)", page)
    assert targets
    assert all(target.startswith(("data:image/", "#")) for target in targets)
    assert "@import" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<h1>&lt;Title&gt; &amp; co</h1>" in page


def test_every_reference_inside_a_figure_resolves_within_that_figure(tmp_path: Path, calibrated: Path) -> None:
    page, _ = _report(tmp_path, _rows("test"), calibrated)
    figures = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert len(figures) == 5
    for figure in figures:
        ids = re.findall(r'\bid="([^"]+)"', figure)
        assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', figure)) <= set(ids)
        assert page.count(f'id="{ids[0]}"') == 1
        assert "#0" not in re.sub(r"url\(#[^)]*\)|href=\"#[^\"]*\"", "", figure)  # no placeholder colour is left


def test_the_same_input_gives_the_same_bytes(tmp_path: Path, calibrated: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        _report(tmp_path / name, _rows("test"), calibrated)
    for file in ("report.html", "report.md", "metrics.json"):
        assert (tmp_path / "a" / "out" / file).read_bytes() == (tmp_path / "b" / "out" / file).read_bytes()


def test_unseen_test_rows_raise_no_alarm(tmp_path: Path, calibrated: Path) -> None:
    page, numbers = _report(tmp_path, _rows("test"), calibrated)
    assert numbers["warnings"] == []
    assert 'class="alarm"' not in page


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (_rows("calibration", seed=1), "are of the calibration split"),
        (_rows("calibration", seed=1), "300 pair ids were also used"),
        (_rows("test", group="calibration-v3"), "1 groups were also used"),
        (_rows("train"), "not of test alone"),
        ([*_rows("test"), *_rows("validation")], "of split test, validation"),
    ],
)
def test_rows_that_are_not_unseen_are_shouted_about(
    tmp_path: Path, calibrated: Path, capsys: pytest.CaptureFixture[str], rows: list[Prediction], says: str
) -> None:
    page, numbers = _report(tmp_path, rows, calibrated)
    assert any(says in text for text in numbers["warnings"])
    assert re.search(f'class="alarm".*{says}', page, flags=re.DOTALL)
    assert re.search(f"WARNING: .*{says}", capsys.readouterr().out)
    assert re.search(f"WARNING: .*{says}", (tmp_path / "out" / "report.md").read_text())


def test_overlap_that_cannot_be_checked_is_said(tmp_path: Path, calibrated: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("calibration.json", "thresholds.json"):
        (bare / name).write_bytes((calibrated / name).read_bytes())
    _, numbers = _report(tmp_path, _rows("test"), bare)
    assert any("unchecked" in text for text in numbers["warnings"])


def test_a_calibration_of_another_verifier_is_remarked(tmp_path: Path, calibrated: Path) -> None:
    write_predictions(tmp_path / "p.parquet", _rows("test"), {"verifier_fingerprint": "beef"})
    report = make_report(tmp_path / "p.parquet", calibrated)
    assert any("beef" in text and "f00d" in text for text in report.remarks)


def test_controls_are_rows_of_the_first_table(
    tmp_path: Path, calibrated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(3)
    blind = [dataclasses.replace(r, margin=float(np.float32(rng.normal())), p_supported=0.5) for r in _rows("test")]
    write_predictions(tmp_path / "blind.parquet", blind[:-1], {})
    page, numbers = _report(
        tmp_path, _rows("test"), calibrated, "--control", f"claim-only={tmp_path / 'blind.parquet'}"
    )
    (control,) = numbers["controls"]
    assert control["name"] == "claim-only"
    assert control["auc_interval"]["low"] < 0.5 < control["auc_interval"]["high"] < numbers["headline"]["auc"]
    assert "Control claim-only stands on 299 rows, the headline on 300." in page
    out = capsys.readouterr().out
    assert re.search(
        rf"^this verifier +{numbers['headline']['auc']:.3f} .* 300 \(30 groups\)$", out, flags=re.MULTILINE
    )
    assert re.search(rf"^claim-only +{control['auc']:.3f} .* 299 \(30 groups\)$", out, flags=re.MULTILINE)
    assert str(tmp_path / "out" / "report.html") in out


@pytest.mark.parametrize(
    ("rows", "undefined"),
    [
        ([], ["positive_rate", "auc", "ap", "f1", "balanced_accuracy", "ece_after"]),
        ([_failed(row, "gone") for row in _rows("test", 4)], ["auc", "f1", "ece_before"]),
        (_rows("test", 1, label="refuted"), ["auc", "ap", "f1", "balanced_accuracy"]),
        (_rows("test", 30, label="supported"), ["auc", "ap", "balanced_accuracy"]),
        (_rows("test", 5, label=None), ["auc", "f1", "positive_rate"]),
    ],
)
def test_what_is_undefined_is_null_in_json_and_a_dash_on_the_page(
    tmp_path: Path, calibrated: Path, rows: list[Prediction], undefined: list[str]
) -> None:
    page, numbers = _report(tmp_path, rows, calibrated)
    assert [numbers["headline"][name] for name in undefined] == [None] * len(undefined)
    assert "<td>–</td>" in page


def test_clips_are_on_the_page_with_pictures_verdicts_labels_and_failures(tmp_path: Path, calibrated: Path) -> None:
    PILImage.new("RGB", (400, 300), "green").save(tmp_path / "still.png")
    rows = _rows("test", evidence=evidence_key((Image("still.png"),)))
    rows[0] = _failed(rows[0], "gone.mp4: no such file, got nothing")
    page, _ = _report(tmp_path, rows, calibrated, "--media-root", str(tmp_path), "--clips", "2")
    assert page.count('src="data:image/jpeg;base64,') == 2 + 2 + 1
    assert page.count('class="clip right"') == page.count('class="clip wrong"') == 2
    assert re.search(r"verdict <strong>(not )?supported</strong>, p = 0\.\d+, label <strong>", page)
    assert "not scored: gone.mp4: no such file, got nothing" in page


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--control", "nameless.parquet"], "must read name=path.parquet"),
        (["--control", "x=missing.parquet"], "missing.parquet: no such predictions file"),
        (["--calibration", "nowhere"], "run eval/calibrate.py first"),
    ],
)
def test_wrong_arguments_end_in_one_line(
    tmp_path: Path, calibrated: Path, capsys: pytest.CaptureFixture[str], options: list[str], says: str
) -> None:
    write_predictions(tmp_path / "p.parquet", _rows("test", 5), {})
    arguments = ["--predictions", str(tmp_path / "p.parquet"), "--calibration", str(calibrated)]
    assert main([*arguments, "--out", str(tmp_path / "out"), *options]) == 1
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
