"""A report as one self-contained HTML page, as Markdown, and as the tables a terminal shows.

`make_report` measures prediction files at a calibration; `write_report` writes the page, the Markdown and the numbers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ...core import RowError
from ...models.decision import Calibration, Decision, OperatingPoint
from ..calibration import read_fitted_rows, read_measuring
from ..scoring import Prediction, read_predictions, refuse_teacher_file
from . import plots
from .compare import Contender
from .examples import Clip, make_clips
from .numbers import measure
from .summary import Statement, opening
from .table_rows import Scored, apply_decision, right
from .tables import (
    Table,
    TableCell,
    compare_tables,
    every_number,
    main_tables,
    meanings,
    part_tables,
    threshold_tables,
    words,
)

CONVENTIONS: tuple[tuple[str, str], ...] = (
    ("positive", "supported; refuted and not enough information are negative"),
    ("group", "rows that hang together, such as those of one video; the number of groups stands beneath n"),
    ("failed", "rows that could not be scored: counted, in no metric, never taken for a no"),
    ("interval", "95 %, bootstrap over whole groups, the threshold held fixed"),
    ("before, after", "calibration: before is sigmoid(margin)"),
    ("ECE by chance", "the event ECE that a perfectly calibrated model would show on these probabilities"),
    ("AURC, E-AURC", "by the rule that every row is a step (mean over k); confidence is |p - threshold|"),
    ("–", "undefined for these rows (no rows, or one class only)"),
)
KINDS = {"right": "Right", "wrong": "Most confident errors", "failed": "Not scored"}
NO_CAUTION = "Nothing found that speaks against these numbers."


@dataclass(frozen=True)
class Section:
    """A folded part of the page: a table, or what the page's template writes under `body`."""

    id: str  # what a link to it ends in
    heading: str
    table: Table | None = None
    body: str = ""


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
    def statements(self) -> list[Statement]:
        """The opening sentences."""
        return opening(self.numbers)

    @cached_property
    def tables(self) -> list[Table]:
        """All tables; the first is that of the verifier and its controls."""
        tables = [*main_tables(self.numbers), *compare_tables(self.numbers), *part_tables(self.numbers)]
        return [*tables, every_number(self.numbers), *threshold_tables(self.numbers)]

    @property
    def sections(self) -> list[Section]:
        """What is folded, in the order of the page; what is empty is left out."""
        bodies = {
            "figures": ("Figures", self.figures),
            "clips": ("Clips", self.clips),
            "failures": ("Not scored", self.failures),
            "fitted": ("What was fitted on what", True),
            "names": ("What the names mean", True),
        }
        parts = [Section(body, heading, None, body) for body, (heading, is_there) in bodies.items() if is_there]
        tables = [Section(f"{_slug(each.heading)}-{n}", each.heading, each) for n, each in enumerate(self.tables)]
        n_first = int(bool(self.figures))
        return [*parts[:n_first], *tables[1:], *parts[n_first:]]

    @property
    def conventions(self) -> list[tuple[str, str]]:
        """What every name means."""
        return [*CONVENTIONS, *meanings(self.tables)]


def fitted(report: Report) -> list[tuple[str, str]]:
    """What was fitted on what, as (name, value) lines."""
    c, p = report.calibration, report.point
    rate = "–" if c.positive_rate is None else f"{c.positive_rate:.3f}"
    lines = [
        ("calibration", c.describe()),
        ("fitted on", f"{c.n} rows of {c.n_groups} groups, positive rate {rate}"),
    ]
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
    counts = (p.tp, p.fp, p.tn, p.fn)
    lines += [
        ("threshold", f"supported if p >= {p.threshold:.4f}"),
        ("chosen for", f"{words(p.objective)} = {p.metric:.3f} on the calibration rows, cross-fitted"),
        (
            "counts there",
            "{:.0f} true, {:.0f} false positives; {:.0f} true, {:.0f} false negatives".format(*counts),
        ),
    ]
    lines += [(f"calibration rows: {name}", text) for name, text in _about(c.fitted_on)]
    lines += [(f"these rows: {name}", text) for name, text in _about(report.numbers["source"])]
    return lines


def _about(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Stored facts as lines, those that are None left out; the choice of the method with its losses."""
    lines = []
    for key, value in values.items():
        if value is None:
            continue
        if key == "choice":
            losses = ", ".join(f"{words(each['method'])} {each['nll']:.4f}" for each in value["candidates"])
            lines.append(("choice", f"{words(value['chosen'])} ({value['rule']}); cross-fitted nats: {losses}"))
        else:
            lines.append((words(key), _short(value)))
    return lines


def _short(value: Any) -> str:
    """A JSON value as text: lists and objects as what they hold, separated by commas."""
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case Mapping():
            return ", ".join(f"{words(str(name))} {_short(each)}" for name, each in value.items())
        case list() | tuple():
            return ", ".join(map(_short, value))
    return str(value)


def _slug(heading: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")


def html(report: Report) -> str:
    """The page; it loads nothing, from the network or from disk. Claims and names are escaped."""
    template = template_environment().get_template("page.html.j2")
    values = {"title": report.title, "report": report, "fitted": fitted(report), "no_caution": NO_CAUTION}
    return template.render(**values, conventions=report.conventions, kinds=KINDS)


def template_environment(folder: Path | None = None) -> Environment:
    """Templates of pages that load nothing, `base.html.j2` among them; all values are escaped.

    Args:
        folder: of further templates.
    """
    return Environment(
        loader=FileSystemLoader([Path(__file__).parent, *([] if folder is None else [folder])]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def markdown(report: Report) -> str:
    """The same without pictures."""
    lines = [f"# {report.title}", ""]
    lines += [f"> **WARNING: {_inline(text)}**\n>" for text in report.leaks] + ([""] if report.leaks else [])
    lines += [f"- {_inline(str(each))}" for each in report.statements]
    lines += [f"- Be careful: {_inline(text)}" for text in report.remarks or [NO_CAUTION]] + [""]
    for table in report.tables:
        rows = [[_joined(cell) for cell in row] for row in table.rows]
        lines += [f"## {_inline(table.heading)}", "", *_markdown_table(table.headings, rows), ""]
        lines += [f"- {_inline(text)}" for text in table.notes] + ([""] if table.notes else [])
    if report.failures:
        counts = [[str(f["n"]), str(f["reason"])] for f in report.failures]
        lines += ["## Not scored", "", *_markdown_table(["rows", "reason"], counts), ""]
    lines += ["## What was fitted on what", ""]
    lines += [f"- {_inline(name)}: {_inline(value)}" for name, value in fitted(report)]
    lines += ["", "## What the names mean", "", *(f"- **{name}**: {text}" for name, text in report.conventions), ""]
    return "\n".join(lines)


def console(report: Report) -> str:
    """Warnings, the opening sentences, cautions, the first table and comparisons, aligned for a terminal."""
    lines = [f"WARNING: {text}" for text in report.leaks] + [str(each) for each in report.statements]
    lines += [f"Be careful: {text}" for text in report.remarks]
    for table in [report.tables[0], *compare_tables(report.numbers)]:
        lines += ["", *_aligned(table)]
    return "\n".join(lines)


def _aligned(table: Table) -> list[str]:
    """A table in columns; beneath values only the AUC's interval and the number of groups, so that lines stay short."""
    rows = [list(table.headings)]
    for row in table.rows:
        rows.append([_joined(c) if h in ("AUC", "n") else c.text for h, c in zip(table.headings, row, strict=True)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        numbers = (text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join([row[0].ljust(widths[0]), *numbers]))
    return lines


def _joined(cell: TableCell) -> str:
    under = cell.under.replace("\n", "; ")
    return f"{cell.text} ({under})" if under else cell.text


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    aligned = ["---", *("---:" if len(head) > 2 else "---" for _ in head[1:])]
    return ["| " + " | ".join(_inline(text) for text in row) + " |" for row in (head, aligned, *rows)]


def _inline(text: str) -> str:
    """Text that stays inside its cell or line."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def measure_files(
    predictions_path: Path,
    calibration_dir: Path,
    controls: Sequence[tuple[str, Path]] = (),
    compared: Sequence[Contender] = (),
    title: str = "Proofreel report",
) -> dict[str, Any]:
    """The numbers of a report from its files: the dictionary of metrics.json, with NaN where that has null.

    Arguments and errors as `make_report`.
    """
    return _measured(predictions_path, calibration_dir, controls, compared, title)[0]


def make_report(
    predictions_path: Path,
    calibration_dir: Path,
    controls: Sequence[tuple[str, Path]] = (),
    media_root: Path | None = None,
    title: str = "Proofreel report",
    clips_per_kind: int = 4,
    compared: Sequence[Contender] = (),
) -> Report:
    """Measure predictions at a calibration's default operating point.

    Args:
        predictions_path: Parquet of the rows to report on, normally the test split.
        calibration_dir: holds calibration.json, thresholds.json and, from eval/calibrate.py, fitted_rows.json.
        controls: (name, predictions file) of the same pairs under other conditions, judged by the same calibration.
        media_root: what relative media paths start from.
        clips_per_kind: how many right, wrong and failed rows to show.
        compared: other verifiers on the same pairs, see `comparing.read_contender`.

    Raises:
        RowError, CalibrationError: a file is missing or damaged, or compared files disagree about a pair.
    """
    numbers, predictions, decision = _measured(predictions_path, calibration_dir, controls, compared, title)
    scored = apply_decision(predictions, decision)
    return Report(
        numbers=numbers,
        calibration=decision.calibration,
        point=scored.point,
        figures=_figures(scored.used, numbers),
        clips=make_clips(scored, media_root, clips_per_kind),
    )


def write_report(out: Path, report: Report) -> list[Path]:
    """Write report.html, report.md and metrics.json into `out`; returns their paths."""
    texts = {
        "report.html": html(report),
        "report.md": markdown(report),
        "metrics.json": json.dumps(jsonable(report.numbers), indent=2, ensure_ascii=False, allow_nan=False) + "\n",
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    return [out / name for name in texts]


def parse_control(text: str) -> tuple[str, Path]:
    """`name=path` of a --control option."""
    name, separator, path = text.partition("=")
    if not (name and separator and path):
        raise RowError(f"--control: must read name=path.parquet, got {text!r}; for example claim-only=blind.parquet")
    return name, Path(path)


def jsonable(value: Any) -> Any:
    """Strict JSON: NaN (undefined) becomes null, all the way down."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: jsonable(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(v) for v in value]
    return value


def _measured(
    predictions_path: Path,
    calibration_dir: Path,
    controls: Sequence[tuple[str, Path]],
    compared: Sequence[Contender],
    title: str,
) -> tuple[dict[str, Any], list[Prediction], Decision]:
    decision, fitted_rows = read_measuring(calibration_dir), read_fitted_rows(calibration_dir)
    predictions, source = read_predictions(predictions_path)
    refuse_teacher_file(predictions_path, source)
    others = [(name, read_predictions(path)[0]) for name, path in controls]
    about: dict[str, Any] = {"source": source, "fitted_rows": fitted_rows, "controls": others, "title": title}
    return measure(predictions, decision, **about, compared=compared), predictions, decision


def _figures(used: Scored, numbers: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(caption, SVG) of each figure; none without rows."""
    if not len(used.p):
        return []
    row, bins, mark = numbers["headline"], numbers["reliability"], numbers["watermark"]
    ece = (row["ece_before"], row["ece_after"])
    captions = (
        "Reliability: on the dotted line, 70 % of claims given 0.7 hold. Below: rows per bin.",
        "ROC: share of supported claims accepted, against the share of others accepted, over all thresholds.",
        "Precision and recall over all thresholds.",
        "Calibrated probabilities by label.",
        "Risk and coverage: errors among the verdicts kept as the least confident are withheld.",
    )
    drawn = (
        plots.reliability_figure(bins["before"], bins["after"], ece, mark),
        plots.roc_figure(used.margins, used.labels, mark),
        plots.pr_figure(used.margins, used.labels, mark),
        plots.histogram_figure(used.p, used.labels, used.point.threshold, mark),
        plots.risk_figure(used.confidence, right(used), row, mark),
    )
    return [(f"{mark}: {text}" if mark else text, svg) for text, svg in zip(captions, drawn, strict=True)]
