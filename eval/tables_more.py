"""Tables of a report about thresholds, shares of supported claims, and other verifiers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .tables import Cell, Table, number, p_value, parts_table, span

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
                Cell(number(found["called_rate"])),
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
    names = ("f1", "precision", "recall", "specificity", "called_rate")
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
