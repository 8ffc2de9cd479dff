"""A report as one self-contained HTML page, as Markdown, and as the tables a terminal shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ..models.calibration import Calibration
from ..models.decisions import OperatingPoint
from .clips import Clip

# (heading, key, format); every table of a report has these columns.
COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("n", "n", "d"),
    ("failed", "n_failed", "d"),
    ("positive rate", "positive_rate", ".3f"),
    ("AUC", "auc", ".3f"),
    ("95% interval", "auc_interval", ""),
    ("AP", "ap", ".3f"),
    ("F1", "f1", ".3f"),
    ("balanced acc.", "balanced_accuracy", ".3f"),
    ("ECE before", "ece_before", ".3f"),
    ("ECE after", "ece_after", ".3f"),
)
CONVENTIONS: tuple[tuple[str, str], ...] = (
    ("positive", "supported; refuted and not enough information are negative"),
    ("n", "rows both scored and labelled; all metrics stand on these"),
    ("failed", "rows that could not be scored: counted, in no metric, never taken for a no"),
    ("AUC", "ROC area on margins (log-odds), ties counting half; interval: percentile bootstrap over whole groups"),
    ("AP", "average precision, step-wise; chance level is the positive rate"),
    ("F1", "of the positive class; a claim is called supported if its calibrated probability is >= the threshold"),
    ("balanced acc.", "mean of the true positive and true negative rates at that threshold"),
    (
        "ECE",
        "expected calibration error of P(supported), 15 equal-width bins; before: sigmoid(margin), after: calibrated",
    ),
    ("–", "undefined for these rows (no rows, or one class only)"),
)
KINDS = {"right": "Right", "wrong": "Most confident errors", "failed": "Not scored"}


@dataclass(frozen=True)
class Report:
    """Everything a page shows. Tables are lists of `measuring.table_row`."""

    title: str
    rows: Sequence[Mapping[str, Any]]  # the headline, then the controls
    by_role: Sequence[Mapping[str, Any]]
    by_origin: Sequence[Mapping[str, Any]]
    leaks: Sequence[str]
    remarks: Sequence[str]
    failures: Sequence[Mapping[str, Any]]
    calibration: Calibration
    point: OperatingPoint
    source: Mapping[str, Any]
    figures: Sequence[tuple[str, str]]  # (caption, SVG)
    clips: Sequence[Clip]

    @property
    def tables(self) -> list[tuple[str, Sequence[Mapping[str, Any]]]]:
        """The tables, in order, with their headings."""
        first = "Results" if len(self.rows) == 1 else "Results and controls"
        return [(first, self.rows), ("By role", self.by_role), ("By origin", self.by_origin)]


def cell(row: Mapping[str, Any], key: str, spec: str) -> str:
    """One cell as text; an undefined value is a dash."""
    value = row.get(key)
    if key == "auc_interval" and value is not None:
        return "–" if math.isnan(value["low"]) else f"{value['low']:.3f}–{value['high']:.3f}"
    return "–" if value is None or math.isnan(value) else format(value, spec)


def cells(row: Mapping[str, Any]) -> list[str]:
    """The cells of a row in the order of `COLUMNS`, its name first."""
    return [str(row["name"]), *(cell(row, key, spec) for _, key, spec in COLUMNS)]


def headings() -> list[str]:
    """Column headings, that of the names empty."""
    return ["", *(heading for heading, _, _ in COLUMNS)]


def fitted(report: Report) -> list[tuple[str, str]]:
    """What was fitted on what, as (name, value) lines."""
    c, p = report.calibration, report.point
    rate = "–" if c.positive_rate is None else f"{c.positive_rate:.3f}"
    lines = [
        ("calibration", f"{c.method}: p = sigmoid({c.slope:.6g} × margin {c.intercept:+.6g})"),
        ("fitted on", f"{c.n} rows of {c.n_groups} groups, positive rate {rate}"),
        ("threshold", f"supported if p >= {p.threshold:.4f}"),
        ("chosen for", f"{p.objective} = {p.metric:.3f} on these rows, cross-fitted"),
        ("counts there", f"{p.tp} true and {p.fp} false positives, {p.tn} true and {p.fn} false negatives"),
    ]
    lines += [(f"calibration rows: {key.replace('_', ' ')}", str(value)) for key, value in c.fitted_on.items()]
    lines += [(f"these rows: {key.replace('_', ' ')}", str(value)) for key, value in report.source.items()]
    return lines


def html(report: Report) -> str:
    """The page; it loads nothing, from the network or from disk. Claims and names are escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("page.html.j2")
    return template.render(
        report=report, headings=headings(), cells=cells, fitted=fitted(report), conventions=CONVENTIONS, kinds=KINDS
    )


def markdown(report: Report) -> str:
    """The same without pictures."""
    lines = [f"# {report.title}", ""]
    lines += [f"> **WARNING: {_inline(text)}**\n>" for text in report.leaks] + ([""] if report.leaks else [])
    lines += [f"- {_inline(text)}" for text in report.remarks] + ([""] if report.remarks else [])
    for heading, rows in report.tables:
        lines += [f"## {heading}", "", *_markdown_table(headings(), [cells(row) for row in rows]), ""]
    if report.failures:
        counts = [[str(f["n"]), str(f["reason"])] for f in report.failures]
        lines += ["## Not scored", "", *_markdown_table(["rows", "reason"], counts), ""]
    lines += ["## What was fitted on what", ""]
    lines += [f"- {_inline(name)}: {_inline(value)}" for name, value in fitted(report)]
    lines += ["", "## What the names mean", "", *(f"- **{name}**: {text}" for name, text in CONVENTIONS), ""]
    return "\n".join(lines)


def console(report: Report) -> str:
    """Warnings and the first table, aligned for a terminal."""
    rows = [headings(), *(cells(row) for row in report.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [f"WARNING: {text}" for text in report.leaks] + [f"note: {text}" for text in report.remarks]
    for row in rows:
        numbers = (text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join([row[0].ljust(widths[0]), *numbers]))
    return "\n".join(lines)


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    aligned = ["---", *("---:" if len(head) > 2 else "---" for _ in head[1:])]
    return ["| " + " | ".join(_inline(text) for text in row) + " |" for row in (head, aligned, *rows)]


def _inline(text: str) -> str:
    """Text that stays inside its cell or line."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
