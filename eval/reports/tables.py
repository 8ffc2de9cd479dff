"""The tables of a report as text, from its numbers: one form for the page, Markdown and the terminal.

Columns and lines follow `METRICS`. A table of rows that were fitted on carries the watermark in its first heading, so
that no copy of it goes without.

Apart from the page because nothing here reads a file: tables are made of the numbers of `measure` alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...data_prep.negatives import name_origin
from ..metrics import METRICS, Metric, definitions
from ..uncertainty import FEWEST_GROUPS

NONE = "–"


@dataclass(frozen=True)
class TableCell:
    """A value, and what is written small beneath it (its interval)."""

    text: str
    under: str = ""


@dataclass(frozen=True)
class Table:
    """Heading, column headings (the first is that of the rows' names), rows, and notes below."""

    heading: str
    columns: tuple[str, ...]
    rows: list[tuple[TableCell, ...]]
    notes: tuple[str, ...] = ()
    watermark: str = ""
    names: tuple[str, ...] = field(default=())  # metrics whose definition the report prints

    @property
    def headings(self) -> tuple[str, ...]:
        """Column headings; the first one holds the watermark, if there is one."""
        first = " ".join(part for part in (self.watermark, self.columns[0]) if part)
        return (first, *self.columns[1:])


@dataclass(frozen=True)
class Column:
    """A column of the tables of parts, verifiers and controls; `interval` names the metric whose interval is shown."""

    heading: str
    key: str
    format: str = ".3f"
    interval: str = ""


def columns() -> list[Column]:
    """Every metric of `METRICS` that has a column, the AUC first; then the positive rate and the number of rows."""
    listed = []
    for metric in METRICS.values():
        if metric.column:
            listed.append(Column(metric.column, metric.key, metric.format, metric.name if metric.is_headline else ""))
        if metric.chance_column:
            listed.append(Column(metric.chance_column, f"{metric.key}_floor", metric.format))
    return [*listed, Column("positive rate", "positive_rate"), Column("n", "n", "d")]


def main_tables(numbers: Mapping[str, Any]) -> list[Table]:
    """The verifier and its controls, how far they differ, and every number; in the order of the page."""
    rows, mark = [numbers["headline"], *numbers["controls"]], numbers["watermark"]
    results = _parts("Results and controls" if numbers["controls"] else "Results", rows, mark, notes=False)
    tables = [results]
    if numbers["control_differences"]:
        tables.append(_control_differences(numbers["control_differences"], mark))
    return tables


def part_tables(numbers: Mapping[str, Any]) -> list[Table]:
    """The rows by role, origin, modality and group size, and the worst groups."""
    mark = numbers["watermark"]
    by_origin = _origins(numbers["by_origin"], numbers["negatives_by_origin"], mark)
    tables = [
        _parts("By role", numbers["by_role"], mark),
        by_origin,
        _parts("By modality", numbers["by_modality"], mark),
    ]
    if len(numbers["by_group_size"]) > 1:
        tables.append(_parts("By size of the group", numbers["by_group_size"], mark))
    if numbers["worst_groups"]:
        tables.append(_worst(numbers["worst_groups"], mark))
    return tables


def every_number(numbers: Mapping[str, Any]) -> Table:
    """The headline in full: value, interval, value before calibration, and what chance alone would give."""
    row = numbers["headline"]
    metrics = _lines(row)
    lines = [
        (
            TableCell(metric.line),
            TableCell(number(row.get(metric.name), metric.format)),
            TableCell(span(row["intervals"].get(metric.name), metric.format)),
            TableCell(number(row.get(metric.before), metric.format) if metric.before else ""),
            TableCell(_floor(row, metric)),
        )
        for metric in metrics
    ]
    threshold = numbers["operating_point"]["threshold"]
    notes = [
        f"Verdicts: supported if p >= {threshold:.4f}. Intervals: bootstrap over {row['n_groups']} whole "
        "groups, 10,000 resamples for AUC, F1 (supported), balanced accuracy, Brier, NLL, event ECE and accuracy at "
        "80 %, 1,000 for the others.",
        "By chance: mean and 95th percentile that a perfectly calibrated model with these probabilities would show, "
        "rows of a group as dependent as they are; an error below is no evidence of miscalibration. The interval of an "
        "ECE is of the true error, which chance only makes look larger.",
        f"Checks: DeLong's interval of the AUC, clustered, {span(row['delong'])}; Spiegelhalter's test of calibration, "
        f"rows taken as independent, p = {p_value(row['spiegelhalter_p'])}.",
    ]
    headings = ("", "value", "95 % interval", "before calibration", "by chance (95 %)")
    names = tuple(metric.name for metric in metrics)
    return Table("Every number", headings, lines, tuple(notes), numbers["watermark"], names)


def meanings(tables: Iterable[Table]) -> list[tuple[str, str]]:
    """The labels of every metric in the tables, those of one meaning joined, and that meaning."""
    sentences = definitions() | {metric.key: metric.definition for metric in METRICS.values()}
    labels = {column.key: column.heading for column in columns()}
    labels |= {metric.name: metric.line for metric in METRICS.values() if metric.label}
    named: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for table in tables for name in table.names):
        if (text := sentences.get(name)) is not None:
            named.setdefault(text, []).append(labels.get(name, name))
    return [("; ".join(dict.fromkeys(same)), text) for text, same in named.items()]


def number(value: float | None, spec: str = ".3f") -> str:
    """A value as text; an undefined one is a dash."""
    return NONE if value is None or math.isnan(value) else format(value, spec)


def span(interval: Mapping[str, Any] | None, spec: str = ".3f") -> str:
    """An interval as text; an undefined one is empty."""
    if interval is None or math.isnan(interval["low"]) or math.isnan(interval["high"]):
        return ""
    low, high = format(interval["low"], spec), format(interval["high"], spec)
    return f"{low} to {high}" if "-" in low + high or "+" in spec else f"{low}–{high}"


def p_value(value: float | None) -> str:
    """A p value as text."""
    if value is None or math.isnan(value):
        return NONE
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def row_cells(row: Mapping[str, Any]) -> tuple[TableCell, ...]:
    """A `table_row` in the order of `columns()`, its name first."""
    mark = f" ({row['watermark']})" if row.get("watermark") else ""
    cells = [TableCell(f"{row['name']}{mark}")]
    for column in columns():
        if column.key == "n":
            cells.append(_count(row))
            continue
        under = span(row["intervals"].get(column.interval), column.format) if column.interval else ""
        cells.append(TableCell(number(row[column.key], column.format), under))
    return tuple(cells)


def _count(row: Mapping[str, Any]) -> TableCell:
    """How many rows; beneath, of how many groups, and how many failed."""
    parts = [f"{row['n_groups']} group{'s' * (row['n_groups'] != 1)}"]
    return TableCell(str(row["n"]), "\n".join(parts + [f"{row['n_failed']} failed"] * (row["n_failed"] > 0)))


def parts_table(heading: str, rows: Sequence[Mapping[str, Any]], watermark: str, notes: Sequence[str] = ()) -> Table:
    """A table of `table_row`s."""
    listed = columns()
    headings = ("", *(column.heading for column in listed))
    names = tuple(column.key for column in listed)
    return Table(heading, headings, [row_cells(r) for r in rows], tuple(notes), watermark, names)


def _parts(heading: str, rows: Sequence[Mapping[str, Any]], watermark: str, notes: bool = True) -> Table:
    cautions = [f"{row['name']}: {reason}" for row in rows for reason in row["cautions"]] if notes else []
    return parts_table(heading, rows, watermark, cautions + (_few(rows) if notes else []))


def _few(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    is_few = any(row["n_groups"] < FEWEST_GROUPS for row in rows)
    return [f"No interval is given where there are fewer than {FEWEST_GROUPS} groups."] if is_few else []


_OF_ORIGINS = ("accuracy", "predicted_positive_rate", "brier", "nll", "positive_rate")


def _origins(rows: Sequence[Mapping[str, Any]], negatives: Sequence[Mapping[str, Any]], watermark: str) -> Table:
    """The origins by name, each with the AUC of its negatives against the supported claims of their groups.

    Most origins have one class only; what needs two is undefined for them and left out.
    """
    own = {row["name"]: row for row in negatives}
    metrics = [METRICS[name] for name in _OF_ORIGINS]
    lines, notes = [], []
    for row in rows:
        (name, meaning), against = name_origin(row["name"]), own.get(row["name"])
        auc = TableCell(NONE) if against is None else TableCell(number(against["auc"]), span(against["interval"]))
        cells = (TableCell(number(row[m.key], m.format), span(row["intervals"].get(m.name), m.format)) for m in metrics)
        lines.append((TableCell(name), auc, *cells, _count(row)))
        key = "" if name == row["name"] else f" ({row['name']})"  # as it stands in the data
        notes += [f"{name}{key}: {meaning}."] if meaning else []
    notes.append(
        "AUC: of the origin's claims that are not supported, against the supported claims of the same groups (of any "
        "origin). A dash: the origin has supported claims only, or its groups have none."
    )
    headings = ("", "AUC", *(metric.column or metric.label or metric.name for metric in metrics), "n")
    names = (*_OF_ORIGINS, "n")
    return Table("By origin", headings, lines, (*notes, *_few(rows)), watermark, names)


def _lines(row: Mapping[str, Any]) -> list[Metric]:
    """The metrics that say something: AUC after calibration only where corrections by part changed the ranking."""
    is_same = row["auc_after"] == row["auc"] or math.isnan(row["auc_after"])
    return [metric for metric in METRICS.values() if metric.label and not (is_same and metric.name == "auc_after")]


def _floor(row: Mapping[str, Any], metric: Metric) -> str:
    if metric.statistic is None:
        return ""
    low, high = (number(row[f"{metric.name}{end}"], metric.format) for end in ("_floor", "_floor_high"))
    return f"{low} ({high})"


def _control_differences(differences: Sequence[Mapping[str, Any]], watermark: str) -> Table:
    labels = {column.interval: column.heading for column in columns() if column.interval}
    rows = []
    for each in differences:
        cells = [TableCell(each["second"])]
        for name in labels:
            metric = each["metrics"][name]
            under = [span(metric["interval"], "+.3f")]
            if not math.isnan(metric["p_value"]):
                under.append(f"p {p_value(metric['adjusted_p'])}")
            cells.append(TableCell(number(metric["difference"], "+.3f"), "\n".join(part for part in under if part)))
        rows.append((*cells, TableCell(str(each["n"]))))
    notes = [
        "On the pairs both scored; interval and p value resample or swap whole groups, p adjusted over the table "
        "(Benjamini and Hochberg). Controls are judged by this verifier's calibration and threshold.",
        *(f"{each['second']}: {reason}" for each in differences for reason in each["cautions"]),
    ]
    return Table("This verifier minus its controls", ("", *labels.values(), "n"), rows, tuple(notes), watermark)


def _worst(groups: Sequence[Mapping[str, Any]], watermark: str) -> Table:
    rows = [
        (
            TableCell(g["name"]),
            TableCell(str(g["n"])),
            TableCell(str(g["n_wrong"])),
            TableCell(number(g["excess_errors"], "+.1f")),
            TableCell(number(g["accuracy"])),
            TableCell(number(g["mean_p"])),
            TableCell(number(g["positive_rate"])),
            TableCell(p_value(g["adjusted_p"])),
        )
        for g in groups
    ]
    columns = ("", "n", "wrong", "beyond the average", "accuracy", "mean p", "positive rate", "adjusted p")
    note = (
        "Ordered by errors beyond what the overall error rate gives on as many rows. Adjusted p: the chance of so many "
        "errors if all groups were alike and rows independent, allowing for the number of groups."
    )
    return Table("Worst groups", columns, rows, (note,), watermark)


_STORED = "stored: on the calibration rows it was chosen on, so flattering; found: on these rows"


def threshold_tables(numbers: Mapping[str, Any]) -> list[Table]:
    """Stored operating points applied to these rows, the abstention band, and shares of supported claims."""
    tables = [_points(numbers["thresholds"], numbers["watermark"])]
    if numbers["abstention"] is not None:
        tables.append(_band(numbers["abstention"], numbers["watermark"]))
    return tables + [_shares(each, numbers["watermark"]) for each in numbers["proportions"]]


def compare_tables(numbers: Mapping[str, Any]) -> list[Table]:
    """Verifiers side by side, then each pair of them with tests; nothing without other verifiers."""
    compared = numbers["compare"]
    if compared is None:
        return []
    verifiers = compared["verifiers"]
    marks = {row["name"]: row["watermark"] for row in verifiers}
    notes = ["On the pairs that all files hold.", *(f"{row['name']}: {row['about']}." for row in verifiers)]
    notes += [f"WARNING, {row['name']}: {text}" for row in verifiers for text in row["leaks"]]
    notes += [f"{row['name']}: {text}" for row in verifiers for text in row["cautions"]]
    mark = next((m for m in marks.values() if m == "IN-SAMPLE"), next((m for m in marks.values() if m), ""))
    tables = [parts_table("Verifiers side by side", verifiers, mark, notes)]
    for each in compared["comparisons"]:
        of_pair = [m for m in (marks[each["first"]], marks[each["second"]]) if m]
        tables.append(_pair(each, max(of_pair, key="IN-SAMPLE".__eq__, default=""), compared["n_tests"]))
    return tables


def _points(points: Sequence[Mapping[str, Any]], watermark: str) -> Table:
    rows = []
    for point in points:
        stored, measured = point["stored"], point["found"]
        between = measured["intervals"]
        default = " (default)" if point["is_default"] else ""
        rows.append(
            (
                TableCell(f"{words(point['name'])}{default}", _chosen_for(stored)),
                TableCell(number(stored["threshold"], ".4f")),
                TableCell(number(stored["metric"]), span(stored.get("interval"))),
                TableCell(number(measured["metric"]), span(between.get("metric"))),
                *(
                    TableCell(number(measured[k]), span(between[k]))
                    for k in ("f1", "precision", "recall", "specificity")
                ),
                TableCell(number(measured["predicted_positive_rate"])),
                TableCell(f"{measured['tp']} / {measured['fp']} / {measured['tn']} / {measured['fn']}"),
            )
        )
    columns = (
        "",
        "p at least",
        "stored",
        "found",
        "F1",
        "precision",
        "recall",
        "specificity",
        "called supported",
        "tp / fp / tn / fn",
    )
    names = ("f1", "precision", "recall", "specificity", "predicted_positive_rate")
    notes = [
        f"Stored and found: values of what each was chosen for. {_STORED.capitalize()}.",
        "tp, fp: called supported, rightly and wrongly; tn, fn: not called supported, rightly and wrongly.",
        *(f"{words(point['name'])}: {text}" for point in points if (text := point["stored"].get("caution"))),
    ]
    return Table("Thresholds", columns, rows, tuple(notes), watermark, names)


def _chosen_for(stored: Mapping[str, Any]) -> str:
    if promise := stored.get("guarantee"):
        chance = "on average" if promise.get("delta") is None else f"with chance {1 - promise['delta']:g}"
        return f"{promise['risk'].replace('_', ' ')} at most {promise['at_most']:g}, {chance}, as a mean over groups"
    name = words(stored["objective"])
    if stored.get("target") is not None:
        return f"{name} {stored['target']:g}"
    if stored.get("cost_fp") is not None:
        return f"{name}, {stored['cost_fp']:g} a wrong yes, {stored['cost_fn']:g} a missed one"
    return "" if name == words(stored["name"]) else name


def words(name: str) -> str:
    """What an operating point or objective is called: the label of its metric, else its name in words."""
    metric = METRICS.get(name)
    return metric.label if metric is not None and metric.label else _NAMES.get(name, name.replace("_", " "))


_NAMES = {"youden": "Youden's J"}


def _band(band: Mapping[str, Any], watermark: str) -> Table:
    stored, measured = band["stored"], band["found"]
    rows = [
        (
            TableCell(name),
            TableCell(number(of["coverage"]), span(intervals[0])),
            TableCell(number(of["selective_accuracy"]), span(intervals[1])),
            TableCell(f"{of['tp']:.0f} / {of['fp']:.0f}"),
            TableCell(f"{of['tn']:.0f} / {of['fn']:.0f}"),
            TableCell(f"{of['abstained_positive']:.0f} / {of['abstained_negative']:.0f}"),
        )
        for name, of, intervals in (
            ("stored", stored, (stored.get("coverage_interval"), stored.get("selective_accuracy_interval"))),
            ("found", measured, (measured["intervals"]["coverage"], measured["intervals"]["selective_accuracy"])),
        )
    ]
    columns = (
        "",
        "share with a verdict",
        "accuracy of verdicts",
        "supported, right / wrong",
        "refuted, right / wrong",
        "abstained, supported / not",
    )
    chosen_for = f"{words(stored['objective'])} {stored['target']:g}"
    note = (
        f"Supported if p >= {stored['support_at_or_above']:.4f}, refuted if p <= {stored['refute_at_or_below']:.4f}, "
        f"no verdict between; chosen for {chosen_for}. {_STORED.capitalize()}."
    )
    return Table("Abstaining", columns, rows, (note,), watermark)


def _shares(shares: Mapping[str, Any], watermark: str) -> Table:
    soft = shares["soft"]
    known = not math.isnan(shares["true_share"])
    rows = [(TableCell("labelled supported"), TableCell(""), TableCell(number(shares["true_share"])))] if known else []
    rows.append((TableCell("mean probability"), TableCell(""), TableCell(number(soft["value"]), span(soft))))
    notes = [
        "Counted: verdicts as they are. Estimate: corrected for the sensitivity and specificity stored with the point "
        "(Rogan and Gladen; interval of Lang and Reiczigel with effective sizes), or the mean calibrated probability."
    ]
    for each in shares["corrected"]:
        counted = TableCell(number(each["apparent"]))
        if each["refused"]:
            rows.append((TableCell(f"verdicts at {words(each['point'])}"), counted, TableCell("–")))
            notes.append(each["refused"])
            continue
        clipped = f", before clipping {each['unclipped']:.3f}" if each["unclipped"] != each["value"] else ""
        under = span(each) + clipped
        rows.append(
            (TableCell(f"verdicts at {words(each['point'])}"), counted, TableCell(number(each["value"]), under))
        )
    notes.append(f"{shares['n']} rows of {shares['n_groups']} groups.")
    return Table(
        f"Share of supported claims, {shares['name']}", ("", "counted", "estimate"), rows, tuple(notes), watermark
    )


def _pair(pair: Mapping[str, Any], watermark: str, n_tests: int) -> Table:
    rows = []
    for name, metric in pair["metrics"].items():
        between = span(metric["interval"], "+.3f")
        values = (number(metric["first"]), number(metric["second"]), number(metric["difference"], "+.3f"), between)
        tests = (p_value(metric["p_value"]), p_value(metric["adjusted_p"]))
        rows.append(tuple(TableCell(text) for text in (METRICS[name].label, *values, *tests)))
    columns = ("", pair["first"], pair["second"], "difference", "95 % interval", "p", "adjusted p")
    notes = [
        f"{pair['n']} pairs of {pair['n_groups']} groups that both scored; left out: {pair['n_only_first']} only in "
        f"{pair['first']}, {pair['n_only_second']} only in {pair['second']}, {pair['n_failed']} that either failed "
        f"on, {pair['n_unlabelled']} without a label.",
        f"p: swapping the two on whole groups; adjusted over the {n_tests} tests of all pairs (Benjamini and "
        "Hochberg). Lower is better for Brier, NLL and ECE.",
        *pair["cautions"],
    ]
    if (test := pair["mcnemar"]) is not None:
        notes.append(
            f"Checks: McNemar, rows taken as independent: {test['only_first_right']} rows only {pair['first']} gets "
            f"right, {test['only_second_right']} only {pair['second']}, p {p_value(test['p_exact'])}. DeLong's "
            f"difference of AUCs, clustered: {span(pair['delong'], '+.3f') or 'undefined'}, "
            f"p {p_value(pair['delong']['p_value'])}."
        )
    heading = f"{pair['first']} against {pair['second']}"
    return Table(heading, columns, rows, tuple(notes), watermark, tuple(pair["metrics"]))
