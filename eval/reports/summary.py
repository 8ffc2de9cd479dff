"""The opening sentences of a report: what was judged, how good it is, and against what, in words.

Apart from the tables because a sentence weighs numbers against each other, where a table sets them side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...data_prep.negatives import name_origin
from ..scoring import CROSS_FITTED
from .caveats import interval_bounds, miscalibration
from .tables import number, span


@dataclass(frozen=True)
class Statement:
    """A sentence or two: what they are about, the number they give (empty where none), and the rest."""

    about: str
    value: str
    text: str

    def __str__(self) -> str:
        return f"{self.about}: {' '.join(part for part in (self.value, self.text) if part)}"


def opening(numbers: Mapping[str, Any]) -> list[Statement]:
    """What was judged, how well claims are ranked and decided, the controls, the hardest negatives, the calibration.

    Args:
        numbers: as `measure` gives them. What they leave undefined gets no sentence.
    """
    row = numbers["headline"]
    statements = [_judged(numbers)]
    if not row["n"]:
        return statements
    if math.isnan(row["auc"]):
        statements.append(Statement("How good", "AUC –", "is undefined: all rows have labels of one class."))
    else:
        statements += [_ranking(row), _verdicts(numbers)]
        statements += _controls(numbers["controls"]) + _hardest(numbers["negatives_by_origin"])
    return [*statements, *_calibration(row)]


def _judged(numbers: Mapping[str, Any]) -> Statement:
    judged, row = numbers["judged"], numbers["headline"]
    pieces = [_count(n, "text" if kind == "passage" else kind) for kind, n in judged["evidence"].items()]
    about = f" about {_listed(pieces)}" if pieces else ""
    splits = judged["splits"]
    of = f", from the {_listed(splits)} split{'s' * (len(splits) > 1)}" if splits else ""
    if cross := numbers["source"].get(CROSS_FITTED):
        of = f", each in one of {len(cross['folds'])} folds and judged by a verifier trained on the others"
    share = f"; {100 * row['positive_rate']:.3g} % are supported" if row["n"] else ""
    text = f"{_count(judged['n'], 'claim')}{about}, in {_count(judged['n_groups'], 'group')}{of}{share}."
    if fingerprint := numbers["source"].get("verifier_fingerprint"):
        text += f" The verifier is {fingerprint[:12]}."
    return Statement("Judged", "", text)


def _ranking(row: Mapping[str, Any]) -> Statement:
    between = span(row["auc_interval"])
    interval = f"95 % interval {between}" if between else "no interval"
    text = (
        f"({interval}): of a supported claim and another, it scores the supported one higher {100 * row['auc']:.1f} "
        "times in 100. Chance is 0.5."
    )
    return Statement("How good", f"AUC {number(row['auc'])}", text)


def _verdicts(numbers: Mapping[str, Any]) -> Statement:
    row, threshold = numbers["headline"], numbers["operating_point"]["threshold"]
    between = span(row["intervals"]["f1"])
    rate = row["positive_rate"]
    text = (
        f"{f'({between}) ' if between else ''}with “supported” said from p = {threshold:.3f} on; calling every claim "
        f"supported gives {number(numbers['always_supported']['f1'])}. {_percent(row['accuracy'])} of the verdicts are "
        f"right, {_percent(max(rate, 1 - rate))} if all were the more frequent one."
    )
    return Statement("Verdicts", f"F1 {number(row['f1'])}", text)


def _controls(controls: Sequence[Mapping[str, Any]]) -> list[Statement]:
    """Their AUCs, those above chance named as such."""
    parts, n_above = [], 0
    for row in controls:
        is_above = interval_bounds(row["auc_interval"])[0] > 0.5
        n_above += is_above
        parts.append(f"{row['name']} {number(row['auc'])}{' (above chance)' if is_above else ''}")
    if not parts:
        return []
    end = "" if n_above else "; not above chance" if len(parts) == 1 else "; none is above chance"
    return [Statement("Controls", "", f"AUC of {_listed(parts)}{end}.")]


def _hardest(negatives: Sequence[Mapping[str, Any]]) -> list[Statement]:
    """The origin whose negatives are told apart worst, where there are several; one with an interval, if any has."""
    defined = [row for row in negatives if not math.isnan(row["auc"])]
    if len(defined) < 2:
        return []
    trusted = [row for row in defined if span(row["interval"])] or defined
    row = min(trusted, key=lambda each: each["auc"])
    between = span(row["interval"])
    text = (
        f"{f'({between}) ' if between else ''}for “{name_origin(row['name'])[0]}”, {_count(row['n'], 'claim')} against "
        "the supported claims of the same groups."
    )
    return [Statement("Hardest negatives", f"AUC {number(row['auc'])}", text)]


def _calibration(row: Mapping[str, Any]) -> list[Statement]:
    error, chance = row["ece_after"], row["ece_after_floor_high"]
    if math.isnan(error) or math.isnan(chance):
        return []
    verdict = "it is beyond chance" if miscalibration(row) else "no miscalibration shows"
    text = (
        f"is the calibration error, {number(row['ece_before'])} before calibration. Of perfectly calibrated verifiers "
        f"95 % would show {number(chance)} or less on these rows: {verdict}."
    )
    return [Statement("Probabilities", f"ECE {number(error)}", text)]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
