"""A report as one self-contained HTML page, as Markdown, and as the tables a terminal shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ..models.calibration import Calibration
from ..models.decisions import OperatingPoint
from .clips import Clip
from .tables import Cell, Table, every_number, main_tables, part_tables, spoken
from .tables_more import compare_tables, threshold_tables

CONVENTIONS: tuple[tuple[str, str], ...] = (
    ("positive", "supported; refuted and not enough information are negative"),
    ("failed", "rows that could not be scored: counted, in no metric, never taken for a no"),
    ("interval", "95 %, percentile bootstrap over whole groups, the threshold held fixed"),
    ("before, after", "calibration: before is sigmoid(margin)"),
    ("ECE by chance", "the event ECE that a perfectly calibrated model would show on these probabilities"),
    ("AURC, E-AURC", "by the rule that every row is a step (mean over k); confidence is |p - threshold|"),
    ("–", "undefined for these rows (no rows, or one class only)"),
)
KINDS = {"right": "Right", "wrong": "Most confident errors", "failed": "Not scored"}


@dataclass(frozen=True)
class Report:
    """Everything a page shows: numbers as `report_numbers.measure` gives them, figures and clips."""

    numbers: Mapping[str, Any]
    calibration: Calibration
    point: OperatingPoint
    figures: Sequence[tuple[str, str]]  # (caption, SVG)
    clips: Sequence[Clip]

    @property
    def title(self) -> str:
        return self.numbers["title"]

    @property
    def leaks(self) -> Sequence[str]:
        """Sentences that say why these may not be numbers on unseen rows."""
        return self.numbers["warnings"]

    @property
    def remarks(self) -> Sequence[str]:
        return self.numbers["remarks"]

    @property
    def failures(self) -> Sequence[Mapping[str, Any]]:
        return self.numbers["failures"]

    @property
    def watermark(self) -> str:
        return self.numbers["watermark"]

    @cached_property
    def first(self) -> list[Table]:
        """The tables above the figures."""
        return main_tables(self.numbers)

    @cached_property
    def others(self) -> list[Table]:
        """The tables below the figures."""
        tables = [*compare_tables(self.numbers), *part_tables(self.numbers)]
        return [*tables, every_number(self.numbers), *threshold_tables(self.numbers)]

    @property
    def conventions(self) -> list[tuple[str, str]]:
        """What every name means."""
        return [*CONVENTIONS, *spoken([*self.first, *self.others])]


def fitted(report: Report) -> list[tuple[str, str]]:
    """What was fitted on what, as (name, value) lines."""
    c, p = report.calibration, report.point
    rate = "–" if c.positive_rate is None else f"{c.positive_rate:.3f}"
    lines = [("calibration", c.describe()), ("fitted on", f"{c.n} rows of {c.n_groups} groups, positive rate {rate}")]
    if c.prior is not None:
        lines.append(("stated for", f"positive rate {c.prior:.4g}, moved there from {rate} (prior shift)"))
    if c.by_group is not None:
        for value, each in c.by_group.corrections.items():
            text = (
                f"log-odds × {each.slope:.4g} {each.intercept:+.4g}, fitted on {each.n} rows, weight {each.weight:.2f}"
            )
            lines.append((f"{c.by_group.key} {value}", text))
        lines += [(f"{c.by_group.key} {value}", f"overall map: {why}") for value, why in c.by_group.left.items()]
    if c.aggregation is not None:
        lines.append(("windows", f"margins aggregated by {c.aggregation}"))
    lines += [
        ("threshold", f"supported if p >= {p.threshold:.4f}"),
        ("chosen for", f"{p.objective} = {p.metric:.3f} on the calibration rows, cross-fitted"),
        ("counts there", f"{p.tp} true and {p.fp} false positives, {p.tn} true and {p.fn} false negatives"),
    ]
    lines += [(f"calibration rows: {name}", text) for name, text in _about(c.fitted_on)]
    lines += [(f"these rows: {name}", text) for name, text in _about(report.numbers["source"])]
    return lines


def _about(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Stored facts as lines; the choice of the method with its losses."""
    lines = []
    for key, value in values.items():
        if key == "choice":
            losses = ", ".join(f"{each['method']} {each['nll']:.4f}" for each in value["candidates"])
            lines.append(("choice", f"{value['chosen']} ({value['rule']}); cross-fitted nats: {losses}"))
        elif isinstance(value, Mapping):
            text = ", ".join(f"{name.replace('_', ' ')} {_short(each)}" for name, each in value.items())
            lines.append((key.replace("_", " "), text))
        else:
            lines.append((key.replace("_", " "), str(value)))
    return lines


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


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
    return template.render(report=report, fitted=fitted(report), conventions=report.conventions, kinds=KINDS)


def markdown(report: Report) -> str:
    """The same without pictures."""
    lines = [f"# {report.title}", ""]
    lines += [f"> **WARNING: {_inline(text)}**\n>" for text in report.leaks] + ([""] if report.leaks else [])
    for number, table in enumerate([*report.first, *report.others]):
        rows = [[_joined(cell) for cell in row] for row in table.rows]
        lines += [f"## {_inline(table.heading)}", "", *_markdown_table(table.headings, rows), ""]
        lines += [f"- {_inline(text)}" for text in table.notes] + ([""] if table.notes else [])
        if number == 0:
            lines += [f"- {_inline(text)}" for text in report.remarks] + ([""] if report.remarks else [])
    if report.failures:
        counts = [[str(f["n"]), str(f["reason"])] for f in report.failures]
        lines += ["## Not scored", "", *_markdown_table(["rows", "reason"], counts), ""]
    lines += ["## What was fitted on what", ""]
    lines += [f"- {_inline(name)}: {_inline(value)}" for name, value in fitted(report)]
    lines += ["", "## What the names mean", "", *(f"- **{name}**: {text}" for name, text in report.conventions), ""]
    return "\n".join(lines)


def console(report: Report) -> str:
    """Warnings, the first table and comparisons, aligned for a terminal."""
    lines = [f"WARNING: {text}" for text in report.leaks] + [f"note: {text}" for text in report.remarks]
    for table in [report.first[0], *compare_tables(report.numbers)]:
        lines += ["", *_aligned(table)] if lines else _aligned(table)
    return "\n".join(lines)


def _aligned(table: Table) -> list[str]:
    """A table in columns; of the intervals only that of the AUC, so that lines stay short."""
    rows = [list(table.headings)]
    for row in table.rows:
        rows.append([_joined(c) if h == "AUC" else c.text for h, c in zip(table.headings, row, strict=True)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        numbers = (text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join([row[0].ljust(widths[0]), *numbers]))
    return lines


def _joined(cell: Cell) -> str:
    under = cell.under.replace("\n", "; ")
    return f"{cell.text} ({under})" if under else cell.text


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    aligned = ["---", *("---:" if len(head) > 2 else "---" for _ in head[1:])]
    return ["| " + " | ".join(_inline(text) for text in row) + " |" for row in (head, aligned, *rows)]


def _inline(text: str) -> str:
    """Text that stays inside its cell or line."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
