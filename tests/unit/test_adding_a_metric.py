"""A metric is one function and one line: every place that shows metrics takes it from `METRICS`."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from proofreel.core.errors import RowError
from proofreel.core.prompt import Prompt
from proofreel.data_prep.media.frames import FrameSampling
from proofreel.eval import metrics
from proofreel.eval.calibration.fit import fit_decision
from proofreel.eval.metrics.base import Hub
from proofreel.eval.metrics.catalogue import METRICS, decision_metric, definition, metrics_markdown, ranking_metric
from proofreel.eval.publishing.model_card import DataFacts, write_card
from proofreel.eval.reports.compare import compare, contender
from proofreel.eval.reports.page import console, html, make_report, markdown, write_report
from proofreel.eval.reports.table_rows import apply_decision, full_row
from proofreel.eval.scoring.predictions import Prediction, write_predictions
from proofreel.eval.uncertainty.headline import headline_names
from proofreel.models.decision.calibrator import sigmoid
from proofreel.models.decision.thresholds import write_decision
from proofreel.models.directory.format import BaseModel, VerifierConfig

DOCS = Path(__file__).resolve().parents[2] / "docs"
MEANING = "Mean margin of supported rows less that of the others, in log-odds."


def separation(margins, labels, weights=None):
    """The function: of margins and labels, and of weights of shape (draws, n)."""
    m, y = np.asarray(margins, dtype=float), np.asarray(labels, dtype=float)
    w = np.ones(len(y)) if weights is None else weights
    with np.errstate(invalid="ignore", divide="ignore"):
        return (w * m * y).sum(-1) / (w * y).sum(-1) - (w * m * (1 - y)).sum(-1) / (w * (1 - y)).sum(-1)


SEPARATION = ranking_metric(
    "separation",
    separation,
    MEANING,
    label="separation of margins",
    column="separation",
    format=".2f",
    hub=Hub("separation", "margin separation"),
)


@pytest.fixture(params=[False, True], ids=["with 1,000 draws", "of the headline"])
def added(request, monkeypatch):
    monkeypatch.setitem(METRICS, "separation", dataclasses.replace(SEPARATION, is_headline=request.param))  # one line
    return METRICS["separation"]


def rows_of(split: str, noise: float = 3.0, n: int = 100) -> list[Prediction]:
    rng = np.random.default_rng(len(split))
    rows = []
    for i in range(n):
        label = rng.random() < 0.5
        margin = float(np.float32(rng.normal(1.5 if label else -1.5, noise)))
        rows.append(
            Prediction(
                pair_id=f"{split}{i}",
                margin=margin,
                p_supported=float(sigmoid(margin)),
                label="supported" if label else "refuted",
                split=split,
                group=f"{split} {i // 4}",
                role="Action",
                origin="annotated",
                modality="video",
            )
        )
    return rows


def report_in(folder: Path):
    """Fills the folder with a calibration, predictions of test rows and the report on them; returns the report."""
    write_decision(folder, fit_decision(rows_of("calibration"), "platt", ["f1"], {"split": "calibration"}))
    write_predictions(folder / "eval" / "predictions.parquet", rows_of("test"), {})
    report = make_report(folder / "eval" / "predictions.parquet", folder, clips_per_kind=0)
    write_report(folder / "eval", report)
    return report


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Folder and report with the metric, by whether it is of the headline: made once, as they take a second each."""
    made = {}
    for is_headline in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(METRICS, "separation", dataclasses.replace(SEPARATION, is_headline=is_headline))
            folder = tmp_path_factory.mktemp("reported")
            made[is_headline] = (folder, report_in(folder))
    return made


@pytest.fixture
def reported(added, reports):
    return reports[added.is_headline]


def expected() -> float:
    rows = rows_of("test")
    margins, y = np.array([p.margin for p in rows]), np.array([p.label == "supported" for p in rows])
    return float(margins[y].mean() - margins[~y].mean())


def test_the_report_has_its_column_its_line_its_interval_and_its_definition(added, reported):
    report = reported[1]
    first, every = report.tables[0], next(t for t in report.tables if t.heading == "Every number")
    column = first.headings.index("separation")
    assert first.rows[0][column].text == f"{expected():.2f}"
    assert bool(first.rows[0][column].under) == added.is_headline  # tables have the headline's intervals
    (line,) = [row for row in every.rows if row[0].text == "separation of margins"]
    low, high = (float(bound) for bound in line[2].text.split("–"))
    assert line[1].text == f"{expected():.2f}"
    assert low < expected() < high
    assert f"- **separation of margins**: {MEANING}" in markdown(report)
    assert MEANING in html(report)
    assert "separation" in console(report)


def test_metrics_json_has_it_in_every_row_and_its_interval(added, reported):
    stored = json.loads((reported[0] / "eval" / "metrics.json").read_text())
    assert stored["headline"]["separation"] == pytest.approx(expected())
    assert [row["separation"] for row in stored["by_role"]] == [pytest.approx(expected())]
    interval = stored["headline"]["intervals"]["separation"]
    assert interval["low"] < expected() < interval["high"]
    assert interval["n_groups"] == 25
    assert ("separation" in stored["by_role"][0]["intervals"]) == added.is_headline


def test_the_model_card_has_it_in_its_index_and_in_its_table(added, reported):
    folder = reported[0]
    (folder / "golden").mkdir()
    (folder / "golden" / "golden.json").write_text(json.dumps([{"margins": [0.1]}]))
    base = BaseModel("Qwen/Qwen2.5-VL-3B-Instruct", "0123abc", "b" * 64)
    config = VerifierConfig(base, "adapter", Prompt(), 5, 6, FrameSampling())
    card = write_card(folder, "v", config, DataFacts("pans", "a" * 64, {}, False)).read_text(encoding="utf-8")
    matter = yaml.safe_load(card.split("---\n")[1])
    (entry,) = [m for m in matter["model-index"][0]["results"][0]["metrics"] if m["type"] == "separation"]
    assert entry["value"] == pytest.approx(expected())
    assert entry["args"]["convention"] == MEANING
    assert entry["args"]["low"] < expected() < entry["args"]["high"]
    assert entry["name"].startswith("margin separation (95% interval ")
    assert f"| margin separation | {expected():.2f} | " in card


def test_two_verifiers_are_compared_by_it_where_it_is_of_the_headline(added):
    decision = fit_decision(rows_of("calibration"), "platt", ["f1"])
    verifiers = [contender(name, rows_of("test", noise), decision) for name, noise in (("sharp", 1.0), ("dull", 4.0))]
    (pair,) = compare(verifiers, n_draws=100)["comparisons"]
    assert ("separation" in pair["metrics"]) == ("separation" in headline_names()) == added.is_headline
    if added.is_headline:
        found = pair["metrics"]["separation"]
        assert found["difference"] == pytest.approx(found["first"] - found["second"])
        assert found["interval"]["low"] <= found["interval"]["high"]


def test_the_documentations_table_and_the_definitions_hold_it(added):
    draws = "10,000 draws" if added.is_headline else "1,000 draws"
    assert metrics_markdown().splitlines()[-1] == f"| `separation` | {MEANING} | separation | {draws} | `separation` |"
    assert definition("separation") == MEANING


def row_of_everything():
    """The headline of a report, without the report."""
    return full_row("all", apply_decision(rows_of("test"), fit_decision(rows_of("calibration"), "platt", ["f1"])))


def test_a_metric_of_decisions_is_a_function_of_the_four_counts(monkeypatch):
    def false_alarms(counts):
        return counts.fp / (counts.fp + counts.tn)

    line = decision_metric(
        false_alarms,
        "Share of other rows called supported.",
        label="false alarms",
        share_of=lambda rows: rows.labels == 0,
    )
    monkeypatch.setitem(METRICS, "false_alarms", line)
    row = row_of_everything()
    assert row["false_alarms"] == pytest.approx(1 - row["specificity"])
    low, high = (row["intervals"]["specificity"][bound] for bound in ("low", "high"))
    interval = row["intervals"]["false_alarms"]
    assert (interval["low"], interval["high"]) == pytest.approx((1 - high, 1 - low))


def test_without_the_line_nothing_holds_it():
    row = row_of_everything()
    assert "separation" not in {*row, *row["intervals"], *METRICS}
    assert "separation" not in metrics_markdown()
    with pytest.raises(RowError, match="no such metric"):
        definition("separation")


def test_the_documentation_holds_the_table_of_the_metrics_there_are():
    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    table = text.split("## Every metric of a report\n")[1].split("\n## ")[0]
    assert metrics_markdown() == "\n".join(line for line in table.splitlines() if line.startswith("|"))


def test_the_headings_of_the_documentation_name_what_can_be_imported():
    headings = re.findall(r"^## .*", (DOCS / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = [name for heading in headings for name in re.findall(r"`([\w.]+)`", heading)]
    assert named
    for name in named:
        assert name in metrics.__all__
