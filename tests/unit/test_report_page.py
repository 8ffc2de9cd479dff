"""A report is read from the top: sentences, the AUC, one table; the rest is folded, linked, and in words."""

import ast
import dataclasses
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from proofreel.core.pairs import Audio, VideoSegment, evidence_key
from proofreel.data_prep.negatives import ORIGIN_NAMES, ORIGINS, name_origin
from proofreel.eval.reports import plots
from proofreel.eval.reports.caveats import remarks
from proofreel.eval.reports.examples import exhibit_of
from proofreel.eval.reports.numbers import measure
from proofreel.eval.reports.page import Report, console, html, markdown
from proofreel.eval.reports.summary import opening
from proofreel.eval.reports.table_rows import against_own_positives
from proofreel.eval.reports.tables import part_tables
from proofreel.eval.scoring.predictions import Prediction
from proofreel.models.decision.calibration import IDENTITY
from proofreel.models.decision.calibrator import sigmoid
from proofreel.models.decision.thresholds import Decision, OperatingPoint

ROOT = Path(__file__).resolve().parents[2]
HALF = Decision(IDENTITY, (OperatingPoint("f1", "f1", 0.5, 1.0, tp=1, fp=0, tn=1, fn=0, positive_rate=0.5),), "f1")
NOTHING = {"pair_ids": [], "groups": []}
SOURCE = {"verifier_fingerprint": "0123456789abcdef", "labels": ["supported", "refuted"], "control": None}
KINDS = ("altered_claim_A", "negative_near_miss", "their own")


def rows_of(n: int = 480, n_groups: int = 60, noise: float = 2.0) -> list[Prediction]:
    rng = np.random.default_rng(0)
    rows = []
    for i in range(n):
        group, positive = i // (n // n_groups), i % 2 == 0
        # The groups of the later origins score higher: only their own positives are a fair comparison.
        margin = float(np.float32(rng.normal(1.5 if positive else -1.0, noise) + 3.0 * (group % 4)))
        rows.append(
            Prediction(
                pair_id=f"r{i}",
                margin=margin,
                p_supported=float(sigmoid(margin)),
                label="supported" if positive else "refuted",
                split="test",
                group=f"g{group}",
                role="Action",
                origin="annotated" if positive else KINDS[min(group % 4, 2)],
                modality="visual",
                evidence=evidence_key((VideoSegment(f"v{group}.mp4", 0.0, 2.0),)),
            )
        )
    return rows


def numbers_of(rows: list[Prediction], **more) -> dict:
    return measure(rows, HALF, source=SOURCE, fitted_rows=NOTHING, **more)


def report_of(numbers: dict) -> Report:
    figure = plots.roc_figure(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    return Report(numbers, IDENTITY, HALF.point(), [("ROC.", figure)], [])


@pytest.fixture(scope="module")
def numbers() -> dict:
    blind = [dataclasses.replace(row, margin=0.1 * (i % 7)) for i, row in enumerate(rows_of())]
    return numbers_of(rows_of(), controls=[("claim alone", blind)])


@pytest.fixture(scope="module")
def page(numbers) -> str:
    return html(report_of(numbers))


def test_the_opening_sentences_give_the_rows_the_auc_the_baselines_and_the_controls(numbers):
    first, row = [str(each) for each in opening(numbers)], numbers["headline"]
    text = " ".join(first)
    assert [sentence.partition(":")[0] for sentence in first[:4]] == ["Judged", "How good", "Verdicts", "Controls"]
    for part in ("480 claims", "60 videos", "60 groups", "test split", "50 % are supported", "0123456789ab"):
        assert part in first[0]
    assert f"AUC {row['auc']:.3f}" in first[1]
    assert f"{row['auc_interval']['low']:.3f}–{row['auc_interval']['high']:.3f}" in first[1]
    assert "Chance is 0.5" in first[1]
    assert "every claim supported gives 0.667" in first[2]  # 2 * 0.5 / (1 + 0.5)
    assert f"claim alone {numbers['controls'][0]['auc']:.3f}" in first[3]
    assert f"ECE {row['ece_after']:.3f}" in text
    assert f"{row['ece_after_floor_high']:.3f} or less" in text


def test_a_control_that_ranks_better_than_chance_is_called_so():
    rows = rows_of()
    numbers = numbers_of(rows, controls=[("same", rows)])
    (control,) = [each for each in opening(numbers) if each.about == "Controls"]
    assert "above chance)" in control.text
    assert any("No better than the control same" in text for text in numbers["remarks"])


def test_of_rows_of_one_class_nothing_is_said_to_be_good():
    numbers = numbers_of([row for row in rows_of() if row.label == "supported"])
    text = " ".join(map(str, opening(numbers)))
    assert "undefined" in text
    assert "F1" not in text
    assert "nan" not in text
    assert "is not measured" in numbers["remarks"][0]
    assert not any("100% of the resamples" in remark for remark in numbers["remarks"])


def test_without_rows_only_what_was_judged_is_said():
    numbers = numbers_of([])
    (only,) = opening(numbers)
    assert "0 claims" in str(only)
    assert not re.search(r"\bnan\b", html(report_of(numbers)))


def test_the_worst_cautions_come_first():
    rows = rows_of(n=80, n_groups=10)
    rows = [dataclasses.replace(row, margin=float(i * 7 % 11)) for i, row in enumerate(rows)]
    rows[0] = dataclasses.replace(rows[0], margin=math.nan, p_supported=math.nan, error="gone")
    found = numbers_of(rows)["remarks"]
    order = [next(i for i, text in enumerate(found) if part in text) for part in ("chance", "failed", "10 groups")]
    assert order == sorted(order)
    assert order[0] == 0


def test_a_ranking_below_chance_is_worse_than_chance():
    row = {"auc_interval": {"low": 0.2, "high": 0.4, "level": 0.95}, "n": 9, "positive_rate": 0.5, "cautions": []}
    found = remarks(row | {"n_failed": 0, "n_unlabelled": 0}, [], {}, IDENTITY)
    assert found[0].startswith("Worse than chance")


class Elements(HTMLParser):
    """Start tags with their attributes, each with the ids and tags it lies in."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs), list(self.open)))
        if tag not in ("meta", "img", "br", "path", "use"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            while self.open.pop() != tag:
                pass


def test_sentences_and_the_auc_stand_before_the_table_and_all_else_is_folded(page):
    places = [
        page.index(part) for part in ('id="auc"', "Be careful", 'class="lead"', '<nav class="contents"', "<figure")
    ]
    assert places == sorted(places)
    tags = Elements(page).tags
    tables = [around for tag, _, around in tags if tag in ("table", "figure", "dl")]
    assert "details" not in tables[0]
    assert all("details" in around for around in tables[1:])
    assert not any("open" in attrs for tag, attrs, _ in tags if tag == "details")


def test_the_first_number_of_the_first_table_is_the_auc(numbers):
    report = report_of(numbers)
    assert report.tables[0].headings[1] == "AUC"
    assert re.search(rf"^this verifier +{numbers['headline']['auc']:.3f} ", console(report), re.MULTILINE)


def test_every_link_of_the_contents_leads_into_a_folded_part(page):
    tags = Elements(page).tags
    links = [attrs["href"] for tag, attrs, _ in tags if tag == "a"]
    inside = {attrs.get("id") for _, attrs, around in tags if "details" in around}
    assert len(links) == len(set(links)) == page.count("<summary><h2>")
    assert {str(link)[1:] for link in links} <= inside  # a browser opens the details around its target


def test_there_are_no_lists_and_no_names_of_python_in_the_text(page, numbers):
    text = re.sub(r"<style>.*?</style>|<svg.*?</svg>|<[^>]+>", " ", page, flags=re.DOTALL)
    for each in (text, markdown(report_of(numbers))):
        assert not re.search(r"\[&#39;|\['|\bNone\b|\bTrue\b|\bFalse\b|\bnan\b", each)
        assert "supported, refuted" in each
    explained = re.sub(r"<li>[a-z ]+\([a-zA-Z_]+\): ", "", re.sub(r"<(style|svg).*?</\1>", "", page, flags=re.DOTALL))
    assert re.findall(r"\b[a-z]+_[a-z_]+\b", re.sub(r"<[^>]+>", " ", explained)) == []


def test_every_origin_that_is_made_here_has_a_name_and_a_meaning():
    made: set[object] = {*ORIGINS}
    for path in (ROOT / "data_prep").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "origin":
                made |= {each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
            if isinstance(node, ast.Constant) and re.fullmatch(r"altered_claim(_[A-Z])?", str(node.value)):
                made.add(node.value)
    names = {origin for origin in made if isinstance(origin, str) and re.fullmatch(r"\w{4,}", origin)}
    assert {"annotated", "distractor", "altered_claim_E", "swapped_text"} <= names
    names = names - {"altered_by_model", "replaced", "supported"} | {"altered_by_model_C", "replaced_video_text"}
    for origin in [*names, *ORIGIN_NAMES, "altered_by_model", "negative_annotated", "negative_near_miss"]:
        name, meaning = name_origin(origin)
        assert meaning, origin
        assert "_" not in name + meaning
    assert name_origin("my own") == ("my own", "")


def test_origins_are_explained_beside_their_numbers(numbers, page):
    (table,) = [table for table in part_tables(numbers) if table.heading == "By origin"]
    names = [row[0].text for row in table.rows]
    assert sorted(names) == sorted(["annotated", "action replaced", "near miss", "their own"])
    assert any(note.startswith("action replaced (altered_claim_A): a true phrase") for note in table.notes)
    assert ORIGIN_NAMES["altered_claim_A"][1] in page


def test_the_auc_of_an_origin_is_against_the_supported_claims_of_its_own_groups(numbers):
    rows = rows_of()
    rows[1] = dataclasses.replace(rows[1], margin=math.nan, p_supported=math.nan, error="gone")
    rows[3] = dataclasses.replace(rows[3], label=None)
    found = against_own_positives(rows, n_draws=50)
    assert {row["name"] for row in found} == set(KINDS)
    used = [row for row in rows if row.error is None and row.label is not None]
    for row in found:
        groups = {each.group for each in used if each.origin == row["name"]}
        some = [r for r in used if r.origin == row["name"] or (r.label == "supported" and r.group in groups)]
        expected = roc_auc_score([r.label == "supported" for r in some], [r.margin for r in some])
        assert row["auc"] == pytest.approx(expected)
        assert (row["n"], row["n_groups"]) == (sum(r.origin == row["name"] for r in used), len(groups))
        assert math.isnan(row["interval"]["low"]) == (len(groups) < 20)
    assert {math.isnan(row["interval"]["low"]) for row in found} == {False, True}
    shown = next(table for table in part_tables(numbers) if table.heading == "By origin")
    expected = {name_origin(row["name"])[0]: f"{row['auc']:.3f}" for row in numbers["negatives_by_origin"]}
    assert {row[0].text: row[1].text for row in shown.rows} == expected | {"annotated": "–"}
    assert not any("resamples" in note for note in shown.notes)


Y = np.array([0.0, 1.0] * 50)
M = np.linspace(-3, 3, 100) + Y
BINS = [{"from": 0.0, "to": 0.5, "n": 3, "mean_p": 0.3, "share_supported": 0.4, "low": 0.2, "high": 0.9}]


@pytest.mark.parametrize(
    "figure",
    [
        plots.reliability_figure(BINS, BINS, (0.1, 0.1), ""),
        plots.roc_figure(M, Y),
        plots.pr_figure(M, Y),
        plots.histogram_figure(np.asarray(sigmoid(M)), Y, 0.5),
        plots.risk_figure(np.abs(M), Y, {"aurc": 0.1, "e_aurc": 0.1, "augrc": 0.1}),
    ],
    ids=["reliability", "roc", "pr", "histogram", "risk"],
)
def test_a_legend_lies_above_all_data(figure):
    before, legend = re.split(r'<g id="\w+-legend_1">', figure)
    frames = re.findall(r'<g id="\w+-axes_\d">\s*<g id="\w+-patch_\d+">\s*<path d="([^"]+)"', before)
    heights = [float(y) for path in frames for _, y in re.findall(r"([\d.]+) ([\d.]+)", path)]
    texts = re.findall(r'<text[^>]*? y="([\d.]+)"|<text[^>]*?translate\([\d.]+ ([\d.]+)\)', legend)
    assert texts
    assert max(float(a or b) for a, b in texts) < min(heights)


def test_a_sound_stands_on_a_page_by_its_name_and_span():
    shown = exhibit_of(Audio("a.wav", 1.0, 3.5), None)
    assert (shown.caption, shown.text, shown.problem) == ("a.wav, 1.0–3.5 s", "(heard, not shown)", "")
