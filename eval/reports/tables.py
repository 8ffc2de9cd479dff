"""The tables of a report as text, from its numbers: one form for the page, Markdown and the terminal.

A table of rows that were fitted on carries the watermark in its first heading, so that no copy of it goes without.

Tables of a report about thresholds, shares of supported claims, and other verifiers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..metrics import DEFINITIONS

NONE = "–"


@dataclass(frozen=True)
class Cell:
    """A value, and what is written small beneath it (its interval)."""

    text: str
    under: str = ""


@dataclass(frozen=True)
class Table:
    """Heading, column headings (the first is that of the rows' names), rows, and notes below."""

    heading: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    notes: tuple[str, ...] = ()
    watermark: str = ""
    names: tuple[str, ...] = field(default=())  # metrics whose definition the report prints

    @property
    def headings(self) -> tuple[str, ...]:
        """Column headings; the first one holds the watermark, if there is one."""
        first = " ".join(part for part in (self.watermark, self.columns[0]) if part)
        return (first, *self.columns[1:])


# (heading, key, format, metric whose interval is shown): the columns of every table of parts, verifiers and controls.
COLUMNS: tuple[tuple[str, str, str, str], ...] = (
    ("n", "n", "d", ""),
    ("failed", "n_failed", "d", ""),
    ("groups", "n_groups", "d", ""),
    ("positive rate", "positive_rate", ".3f", ""),
    ("AUC", "auc", ".3f", "auc"),
    ("AP", "ap", ".3f", ""),
    ("F1", "f1", ".3f", "f1"),
    ("balanced acc.", "balanced_accuracy", ".3f", "balanced_accuracy"),
    ("Brier", "brier_after", ".3f", "brier"),
    ("NLL", "nll_after", ".3f", "nll"),
    ("ECE before", "ece_before", ".3f", ""),
    ("ECE after", "ece_after", ".3f", "ece_event"),
    ("ECE by chance", "ece_after_floor", ".3f", ""),
    ("acc. at 80 %", "accuracy_at_coverage", ".3f", "accuracy_at_coverage"),
)
# (label, key, key before calibration): one line each of the table of every number.
EVERY: tuple[tuple[str, str, str], ...] = (
    ("AUC", "auc", ""),
    ("AP (chance: the positive rate)", "ap", ""),
    ("positive rate", "positive_rate", ""),
    ("F1, supported class", "f1", ""),
    ("F1, other class", "f1_negative", ""),
    ("F1, macro", "f1_macro", ""),
    ("F1, micro", "f1_micro", ""),
    ("F1, weighted", "f1_weighted", ""),
    ("balanced accuracy", "balanced_accuracy", ""),
    ("MCC", "mcc", ""),
    ("precision", "precision", ""),
    ("recall", "recall", ""),
    ("specificity", "specificity", ""),
    ("called supported", "predicted_positive_rate", ""),
    ("Brier score", "brier", "brier_before"),
    ("NLL", "nll", "nll_before"),
    ("ECE, event, equal width", "ece_event", "ece_before"),
    ("ECE, event, equal mass", "ece_event_mass", ""),
    ("ECE, event, debiased", "ece_debiased", ""),
    ("ECE, top-label", "ece_top_label", "ece_top_label_before"),
    ("ECE, classwise", "ece_classwise", ""),
    ("smooth ECE", "smooth_ece", ""),
    ("MCE, equal mass", "mce_mass", ""),
    ("accuracy at 50 % coverage", "accuracy_at_coverage_50", ""),
    ("accuracy at 80 % coverage", "accuracy_at_coverage", ""),
    ("accuracy at 90 % coverage", "accuracy_at_coverage_90", ""),
    ("coverage at 5 % errors", "coverage_at_risk_5", ""),
    ("AURC", "aurc", ""),
    ("E-AURC", "e_aurc", ""),
    ("AUGRC", "augrc", ""),
)


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
    tables = [_parts(f"By {name}", numbers[f"by_{name}"], mark) for name in ("role", "origin", "modality")]
    if len(numbers["by_group_size"]) > 1:
        tables.append(_parts("By size of the group", numbers["by_group_size"], mark))
    if numbers["worst_groups"]:
        tables.append(_worst(numbers["worst_groups"], mark))
    return tables


def every_number(numbers: Mapping[str, Any]) -> Table:
    """The headline in full: value, interval, value before calibration, and what chance alone would give."""
    row = numbers["headline"]
    lines = [
        (
            Cell(label),
            Cell(number(row.get(key))),
            Cell(span(row["intervals"].get(key))),
            Cell(number(row.get(before)) if before else ""),
            Cell(_floor(row, key)),
        )
        for label, key, before in _every(row)
    ]
    threshold = numbers["operating_point"]["threshold"]
    notes = [
        f"Verdicts: supported if p >= {threshold:.4f}. Intervals: percentile bootstrap over {row['n_groups']} whole "
        "groups, 10,000 resamples for AUC, F1 (supported), balanced accuracy, Brier, NLL, event ECE and accuracy at "
        "80 %, 1,000 for the others.",
        "By chance: mean and 95th percentile that a perfectly calibrated model with these probabilities would show; an "
        "error below is no evidence of miscalibration. Resampling adds chance of its own: near what chance gives, the "
        "interval of an ECE lies too high.",
        f"Checks: DeLong's interval of the AUC, clustered, {span(row['delong'])}; Spiegelhalter's test of calibration, "
        f"rows taken as independent, p = {p_value(row['spiegelhalter_p'])}.",
    ]
    columns = ("", "value", "95 % interval", "before calibration", "by chance (95 %)")
    keys = tuple(key for _, key, _ in _every(row))
    return Table("Every number", columns, lines, tuple(notes), numbers["watermark"], keys)


def spoken(tables: Iterable[Table]) -> list[tuple[str, str]]:
    """Names, those of one meaning joined, and meaning of every metric in the tables, as `conventions` has it."""
    labels = {key: label for label, key, _, _ in COLUMNS} | {key: label for label, key, _ in EVERY}
    named: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for table in tables for name in table.names):
        if (text := DEFINITIONS.get(_plain(name))) is not None:
            named.setdefault(text, []).append(labels.get(name, name))
    return [("; ".join(dict.fromkeys(found)), text) for text, found in named.items()]


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


def row_cells(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    """A `measuring.table_row` in the order of `COLUMNS`, its name first."""
    mark = f" ({row['watermark']})" if row.get("watermark") else ""
    cells = [Cell(f"{row['name']}{mark}")]
    for _, key, spec, metric in COLUMNS:
        cells.append(Cell(number(row[key], spec), span(row["intervals"].get(metric)) if metric else ""))
    return tuple(cells)


def parts_table(heading: str, rows: Sequence[Mapping[str, Any]], watermark: str, notes: Sequence[str] = ()) -> Table:
    """A table of `measuring.table_row`s."""
    columns = ("", *(heading for heading, _, _, _ in COLUMNS))
    return Table(
        heading, columns, [row_cells(r) for r in rows], tuple(notes), watermark, tuple(k for _, k, _, _ in COLUMNS)
    )


def _parts(heading: str, rows: Sequence[Mapping[str, Any]], watermark: str, notes: bool = True) -> Table:
    cautions = [f"{row['name']}: {reason}" for row in rows for reason in row["cautions"]] if notes else []
    if notes and any(span(row["auc_interval"]) == "" for row in rows):
        cautions.append("No interval is given where there are fewer than 20 groups.")
    return parts_table(heading, rows, watermark, cautions)


def _every(row: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The lines that say something: AUC after calibration only where corrections by part changed the ranking."""
    if row["auc_after"] == row["auc"] or math.isnan(row["auc_after"]):
        return list(EVERY)
    return [EVERY[0], ("AUC of p, corrected by part", "auc_after", ""), *EVERY[1:]]


def _floor(row: Mapping[str, Any], key: str) -> str:
    if f"{key}_floor" not in row:
        return ""
    return f"{number(row[f'{key}_floor'])} ({number(row[f'{key}_floor_high'])})"


def _plain(name: str) -> str:
    """The name that `conventions` knows a variant under."""
    for end in ("_mass", "_50", "_90", "_5", "_after", "_before", "_floor"):
        name = name.removesuffix(end)
    return "ece_event" if name == "ece" else name


def _control_differences(found: Sequence[Mapping[str, Any]], watermark: str) -> Table:
    labels = {key: label for label, _, _, key in COLUMNS if key}
    names = list(labels)
    rows = []
    for each in found:
        cells = [Cell(each["second"]), Cell(str(each["n"]))]
        for name in names:
            metric = each["metrics"][name]
            under = [span(metric["interval"], "+.3f")]
            if not math.isnan(metric["p_value"]):
                under.append(f"p {p_value(metric['adjusted_p'])}")
            cells.append(Cell(number(metric["difference"], "+.3f"), "\n".join(part for part in under if part)))
        rows.append(tuple(cells))
    notes = [
        "On the pairs both scored; interval and p value resample or swap whole groups, p adjusted over the table "
        "(Benjamini and Hochberg). Controls are judged by this verifier's calibration and threshold.",
        *(f"{each['second']}: {reason}" for each in found for reason in each["cautions"]),
    ]
    return Table("This verifier minus its controls", ("", "n", *labels.values()), rows, tuple(notes), watermark)


def _worst(groups: Sequence[Mapping[str, Any]], watermark: str) -> Table:
    rows = [
        (
            Cell(g["name"]),
            Cell(str(g["n"])),
            Cell(str(g["n_wrong"])),
            Cell(number(g["excess_errors"], "+.1f")),
            Cell(number(g["accuracy"])),
            Cell(number(g["mean_p"])),
            Cell(number(g["positive_rate"])),
            Cell(p_value(g["adjusted_p"])),
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
    found = numbers["compare"]
    if found is None:
        return []
    verifiers = found["verifiers"]
    marks = {row["name"]: row["watermark"] for row in verifiers}
    notes = ["On the pairs that all files hold.", *(f"{row['name']}: {row['about']}." for row in verifiers)]
    notes += [f"WARNING, {row['name']}: {text}" for row in verifiers for text in row["leaks"]]
    notes += [f"{row['name']}: {text}" for row in verifiers for text in row["cautions"]]
    mark = next((m for m in marks.values() if m == "IN-SAMPLE"), next((m for m in marks.values() if m), ""))
    tables = [parts_table("Verifiers side by side", verifiers, mark, notes)]
    for each in found["comparisons"]:
        of_pair = [m for m in (marks[each["first"]], marks[each["second"]]) if m]
        tables.append(_pair(each, max(of_pair, key="IN-SAMPLE".__eq__, default=""), found["n_tests"]))
    return tables


def _points(points: Sequence[Mapping[str, Any]], watermark: str) -> Table:
    rows = []
    for point in points:
        stored, found = point["stored"], point["found"]
        between = found["intervals"]
        default = " (default)" if point["is_default"] else ""
        rows.append(
            (
                Cell(f"{point['name'].replace('_', ' ')}{default}", _chosen_for(stored)),
                Cell(number(stored["threshold"], ".4f")),
                Cell(number(stored["metric"]), span(stored.get("interval"))),
                Cell(number(found["metric"]), span(between.get("metric"))),
                *(Cell(number(found[k]), span(between[k])) for k in ("f1", "precision", "recall", "specificity")),
                Cell(number(found["predicted_positive_rate"])),
                Cell(f"{found['tp']} / {found['fp']} / {found['tn']} / {found['fn']}"),
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
    return Table("Thresholds", columns, rows, (f"Values of what each was chosen for; {_STORED}.",), watermark, names)


def _chosen_for(stored: Mapping[str, Any]) -> str:
    if promise := stored.get("guarantee"):
        chance = "on average" if promise.get("delta") is None else f"with chance {1 - promise['delta']:g}"
        return f"{promise['risk'].replace('_', ' ')} at most {promise['at_most']:g}, {chance}"
    name = stored["objective"].replace("_", " ")
    if stored.get("target") is not None:
        return f"{name} {stored['target']:g}"
    if stored.get("cost_fp") is not None:
        return f"{name}, {stored['cost_fp']:g} a wrong yes, {stored['cost_fn']:g} a missed one"
    return "" if name == stored["name"].replace("_", " ") else name


def _band(band: Mapping[str, Any], watermark: str) -> Table:
    stored, found = band["stored"], band["found"]
    rows = [
        (
            Cell(name),
            Cell(number(of["coverage"]), span(intervals[0])),
            Cell(number(of["selective_accuracy"]), span(intervals[1])),
            Cell(f"{of['tp']} / {of['fp']}"),
            Cell(f"{of['tn']} / {of['fn']}"),
            Cell(f"{of['abstained_positive']} / {of['abstained_negative']}"),
        )
        for name, of, intervals in (
            ("stored", stored, (stored.get("coverage_interval"), stored.get("selective_accuracy_interval"))),
            ("found", found, (found["intervals"]["coverage"], found["intervals"]["selective_accuracy"])),
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
    asked = f"{stored['objective'].replace('_', ' ')} {stored['target']:g}"
    note = (
        f"Supported if p >= {stored['support_at_or_above']:.4f}, refuted if p <= {stored['refute_at_or_below']:.4f}, "
        f"no verdict between; chosen for {asked}. {_STORED.capitalize()}."
    )
    return Table("Abstaining", columns, rows, (note,), watermark)


def _shares(found: Mapping[str, Any], watermark: str) -> Table:
    soft = found["soft"]
    known = not math.isnan(found["true_share"])
    rows = [(Cell("labelled supported"), Cell(""), Cell(number(found["true_share"])))] if known else []
    rows.append((Cell("mean probability"), Cell(""), Cell(number(soft["value"]), span(soft))))
    notes = [
        "Counted: verdicts as they are. Estimate: corrected for the sensitivity and specificity stored with the point "
        "(Rogan and Gladen; interval of Lang and Reiczigel with effective sizes), or the mean calibrated probability."
    ]
    for each in found["corrected"]:
        counted = Cell(number(each["apparent"]))
        if each["refused"]:
            rows.append((Cell(f"verdicts at {each['point']}"), counted, Cell("–")))
            notes.append(each["refused"])
            continue
        clipped = f", before clipping {each['unclipped']:.3f}" if each["unclipped"] != each["value"] else ""
        under = span(each) + clipped
        rows.append((Cell(f"verdicts at {each['point']}"), counted, Cell(number(each["value"]), under)))
    heading = f"Share of supported claims, {found['name']} ({found['n']} rows, {found['n_groups']} groups)"
    return Table(heading, ("", "counted", "estimate"), rows, tuple(notes), watermark)


def _pair(found: Mapping[str, Any], watermark: str, n_tests: int) -> Table:
    names = {
        "auc": "AUC",
        "f1": "F1, supported class",
        "balanced_accuracy": "balanced accuracy",
        "brier": "Brier score",
        "nll": "NLL",
        "ece_event": "ECE, event",
        "accuracy_at_coverage": "accuracy at 80 % coverage",
    }
    rows = []
    for name, metric in found["metrics"].items():
        between = span(metric["interval"], "+.3f")
        values = (number(metric["first"]), number(metric["second"]), number(metric["difference"], "+.3f"), between)
        tests = (p_value(metric["p_value"]), p_value(metric["adjusted_p"]))
        rows.append(tuple(Cell(text) for text in (names[name], *values, *tests)))
    columns = ("", found["first"], found["second"], "difference", "95 % interval", "p", "adjusted p")
    notes = [
        f"{found['n']} pairs of {found['n_groups']} groups that both scored; left out: {found['n_only_first']} only in "
        f"{found['first']}, {found['n_only_second']} only in {found['second']}, {found['n_failed']} that either failed "
        f"on, {found['n_unlabelled']} without a label.",
        f"p: swapping the two on whole groups; adjusted over the {n_tests} tests of all pairs (Benjamini and "
        "Hochberg). Lower is better for Brier, NLL and ECE.",
        *found["cautions"],
    ]
    if (test := found["mcnemar"]) is not None:
        notes.append(
            f"Checks: McNemar, rows taken as independent: {test['only_first_right']} rows only {found['first']} gets "
            f"right, {test['only_second_right']} only {found['second']}, p {p_value(test['p_exact'])}. DeLong's "
            f"difference of AUCs, clustered: {span(found['delong'], '+.3f') or 'undefined'}, "
            f"p {p_value(found['delong']['p_value'])}."
        )
    heading = f"{found['first']} against {found['second']}"
    return Table(heading, columns, rows, tuple(notes), watermark, tuple(names))
