"""The report of a cascade: who answered, what that saved, and what it cost in AUC. Markdown and JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...models.cascades import NOBODY, CascadePlan, reached
from ..metrics import MetricRows, ece_event, metric_rows, roc_auc
from ..scoring import Prediction, labels_of, margins_of
from ..uncertainty import N_DRAWS, Interval, difference_intervals, matched
from .costs import Costs
from .fit import check_aligned

_DIFFERENCES = ("auc", "brier", "nll")
_WAYS = ("together", "alone")  # whether claims about one evidence share its prefix


def cascaded(plan: CascadePlan, scored: Sequence[Sequence[Prediction]]) -> list[Prediction]:
    """The cascade's predictions, from what every stage said of the same rows in the same order."""
    settled = plan.settle([[p.margin for p in rows] for rows in scored], scored[-1])
    rows = []
    for row, stage, margin in zip(scored[-1], settled.stage_N, settled.margins_N, strict=True):
        if stage == NOBODY:
            rows.append(row)
        else:
            p = float(plan.decision.calibration.predict(float(margin)))
            rows.append(dataclasses.replace(row, margin=float(margin), p_supported=p, error=None))
    return rows


def measure(
    plan: CascadePlan,
    scored: Sequence[Sequence[Prediction]],
    costs: Sequence[Costs],
    stages: Sequence[str] | None = None,
    seconds: Mapping[str, float] | None = None,
    n_draws: int = N_DRAWS,
) -> dict[str, Any]:
    """All numbers of the report, as JSON values (NaN becomes null when written).

    Args:
        plan, scored: of the reported rows, which the plan was not fitted on.
        costs: per stage, of these rows.
        stages: how each stage is called.
        seconds: measured wall times, by what was timed.
        n_draws: of the paired intervals, clustered by group.
    """
    check_aligned(scored, costs)
    stage_N = plan.settle([[p.margin for p in rows] for rows in scored], scored[-1]).stage_N
    n, everybody = len(stage_N), np.ones(len(stage_N), dtype=bool)
    stage_rows = []
    for number, (rows, cost) in enumerate(zip(scored, costs, strict=True)):
        is_reached = reached(stage_N, number)
        stage_rows.append(
            {
                "name": stages[number] if stages else f"stage {number}",
                "asked": int(is_reached.sum()),
                "answered": int(np.sum(stage_N == number)),
                "failed": int(sum(p.error is not None for p, a in zip(rows, is_reached, strict=True) if a)),
                "auc_alone": _auc(rows),
                "spent": {w: dataclasses.asdict(cost.total(is_reached, w == "together")) for w in _WAYS},
            }
        )
    alone = {w: dataclasses.asdict(costs[-1].total(everybody, w == "together")) for w in _WAYS}
    final = cascaded(plan, scored)
    return {
        "rows": n,
        "failed": int(np.sum(stage_N == NOBODY)),
        "bands": [dataclasses.asdict(band) for band in plan.bands],
        "fitted": plan.decision.calibration.fitted_on.get("cascade"),
        "stages": stage_rows,
        "last_stage_alone": alone,
        "share_of_last_stage_alone": {w: _shares(stage_rows, alone[w], w) for w in _WAYS},
        "auc": _auc(final),
        "compared": compare(final, scored[-1], n_draws),
        "seconds": dict(seconds or {}),
    }


def compare(final: Sequence[Prediction], last: Sequence[Prediction], n_draws: int = N_DRAWS) -> dict[str, Any]:
    """Cascade minus last stage alone, on the rows both scored, in each of the paired metrics; ECE of the cascade."""
    pairs = matched(final, last)
    if not len(pairs.labels):
        return {"rows": 0, "groups": 0, "differences": {}, "ece": math.nan}
    both = [_headline(pairs.margins_2N[i], pairs.p_2N[i], pairs.labels) for i in (0, 1)]
    intervals = difference_intervals(both[0], both[1], pairs.groups, n_draws)
    values = [{"auc": _area(rows), "brier": _brier(rows), "nll": float(rows.loss.mean())} for rows in both]
    differences = {
        name: {"cascade": values[0][name], "last_stage": values[1][name], **_difference(values, intervals[name], name)}
        for name in _DIFFERENCES
    }
    ece = float(ece_event(pairs.p_2N[0], pairs.labels))
    return {
        "rows": len(pairs.labels),
        "groups": len(np.unique(pairs.groups)),
        "differences": differences,
        "ece": ece,
    }


def write_cascade_report(folder: str | Path, numbers: Mapping[str, Any], title: str = "Cascade") -> list[Path]:
    """Write report.md and report.json into `folder` (made if need be); returns both paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_finite(numbers), indent=2, allow_nan=False) + "\n"
    (folder / "report.json").write_text(text, encoding="utf-8")
    (folder / "report.md").write_text(markdown(numbers, title), encoding="utf-8")
    return [folder / "report.md", folder / "report.json"]


def markdown(numbers: Mapping[str, Any], title: str = "Cascade") -> str:
    """The report for people."""
    n = numbers["rows"]
    lines = [f"# {title}", "", f"{n} claims, {numbers['failed']} without a verdict.", ""]
    lines += ["| stage | asked | answered | share of claims | failed | AUC alone | visual tokens |"]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for stage in numbers["stages"]:
        share = f"{stage['answered'] / n:.1%}" if n else "-"
        lines.append(
            f"| {stage['name']} | {stage['asked']} | {stage['answered']} | {share} | {stage['failed']} "
            f"| {stage['auc_alone']:.4f} | {stage['spent']['together']['visual_tokens']} |"
        )
    lines += ["", "## Saved", "", "What the cascade spends, as a share of asking the last stage everything.", ""]
    lines += ["| claims about one evidence | tokens | visual tokens | operations |", "| --- | ---: | ---: | ---: |"]
    names = {"together": "asked together, its prefix read once", "alone": "asked one by one"}
    for way, shares in numbers["share_of_last_stage_alone"].items():
        cells = (f"{shares[what]:.1%}" for what in ("tokens", "visual_tokens", "flops"))
        lines.append(f"| {names[way]} | {' | '.join(cells)} |")
    if dearer := [n for w, n in names.items() if numbers["share_of_last_stage_alone"][w]["flops"] > 1]:
        lines += ["", f"**Costs more than it saves** where claims are {' or '.join(dearer)}."]
    lines += [f"\n{what}: {value:.1f} s" for what, value in numbers["seconds"].items()]
    if (fitted := numbers["fitted"]) is not None:
        together = "together" if fitted["together"] else "one by one"
        lines += ["", f"Fitted to {fitted['target']}, counting {fitted['unit']} of claims {together}."]
    compared = numbers["compared"]
    about = f"{compared['rows']} rows of {compared['groups']} groups, paired, 95% intervals clustered by group."
    lines += ["", "## Cost", "", about, ""]
    lines += ["| | cascade | last stage alone | difference |", "| --- | ---: | ---: | ---: |"]
    for name, d in compared["differences"].items():
        interval = f"{d['difference']:+.4f} [{d['low']:+.4f}, {d['high']:+.4f}]"
        lines.append(f"| {name.upper()} | {d['cascade']:.4f} | {d['last_stage']:.4f} | {interval} |")
    lines += ["", f"ECE of the cascade's probabilities: {compared['ece']:.4f}", ""]
    return "\n".join(lines)


def _headline(margins: Any, p: Any, labels: Any) -> MetricRows:
    return metric_rows(margins, p, labels, 0.5)


def _area(rows: MetricRows) -> float:
    return float(roc_auc(rows.margins, rows.labels))


def _brier(rows: MetricRows) -> float:
    return float(np.mean((rows.p - rows.labels) ** 2))


def _auc(rows: Sequence[Prediction]) -> float:
    scored = [p for p in rows if p.error is None and p.label is not None]
    if not scored:
        return math.nan
    return float(roc_auc(margins_of(scored), labels_of(scored)))


def _difference(values: Sequence[Mapping[str, float]], interval: Interval, name: str) -> dict[str, float]:
    return {"difference": values[0][name] - values[1][name], "low": interval.low, "high": interval.high}


def _shares(stage_rows: Sequence[Mapping[str, Any]], alone: Mapping[str, float], way: str) -> dict[str, float]:
    spent = {
        what: sum(stage["spent"][way][what] for stage in stage_rows) for what in ("tokens", "visual_tokens", "flops")
    }
    return {what: value / alone[what] if alone[what] else math.nan for what, value in spent.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
