"""What a benchmark run says: on the terminal, as the table of claim-only AUCs, and as an entry for a model card."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from ...data_prep.benchmarks import Benchmark
from ..scores import Score, shown
from .questions import ClaimOnly

HEADLINE = {"auc": "AUC", "f1": "F1", "ece_event": "ECE", "brier": "Brier"}


def counts_text(benchmark: Benchmark, counts: Mapping[str, Any]) -> str:
    """Counts of a benchmark, a line each."""
    parts = ", ".join(f"{part} {n}" for part, n in counts["parts"].items())
    rules = ", ".join(f"{rule} {n}" for rule, n in counts["rules"].items())
    return "\n".join(
        [
            f"{benchmark.title} ({benchmark.source})",
            f"  {counts['statements']} statements, {counts['supported']} true, {counts['groups']} groups, "
            f"{counts['files']} media files",
            f"  parts: {parts}",
            f"  statements made by: {rules}",
        ]
    )


def claim_only_table(rows: Sequence[tuple[str, ClaimOnly]]) -> str:
    """A Markdown table: benchmark, part, AUC of the claim alone with its interval, counts."""
    lines = [
        "| benchmark | part | claim-only AUC [95 %] | statements | true | groups |",
        "| --- | --- | --- | ---: | ---: | ---: |",
    ]
    for title, row in rows:
        value = f"{row.auc:.3f} [{row.low:.3f}, {row.high:.3f}]" if not math.isnan(row.auc) else f"– ({row.reason})"
        lines.append(f"| {title} | {row.part} | {value} | {row.n} | {row.n_supported} | {row.n_groups} |")
    return "\n".join(lines)


def scores_table(systems: Mapping[str, Mapping[str, Score]]) -> str:
    """A Markdown table: a row per score, a column per system (the verifier, then controls), percent."""
    names = list(dict.fromkeys(name for scores in systems.values() for name in scores))
    lines = [f"| score | {' | '.join(systems)} |", f"| --- |{' --- |' * len(systems)}"]
    for name in names:
        cells = [shown(scores[name]) if name in scores else "–" for scores in systems.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def headline_text(row: Mapping[str, Any]) -> str:
    """Our own metrics of a run in one line, with intervals."""
    texts = []
    for key, name in HEADLINE.items():
        if (value := row.get(key)) is None or not math.isfinite(value):
            continue
        ends = (row.get("intervals") or {}).get(key)
        between = f" [{ends['low']:.3f}, {ends['high']:.3f}]" if ends and math.isfinite(ends["low"]) else ""
        texts.append(f"{name} {value:.3f}{between}")
    return ", ".join(texts) or "no metric is defined"


def card_entry(
    benchmark: Benchmark,
    systems: Mapping[str, Mapping[str, Score]],
    headline: Mapping[str, Any],
    claim_only: ClaimOnly,
    notes: Sequence[str],
) -> str:
    """Markdown for a model card: the table of scores, what they were measured on, and a `model-index` result."""
    first = next(iter(systems))
    metrics = []
    for name, score in systems[first].items():
        if not math.isnan(score.value):
            ends = None if score.interval is None or math.isnan(score.interval.low) else score.interval
            args = {} if ends is None else {"low": round(ends.low, 4), "high": round(ends.high, 4), "level": 0.95}
            metrics.append({"type": name.replace(" ", "_"), "name": name, "value": round(score.value, 4), "args": args})
    entry = {
        "task": {"type": "video-text-to-text", "name": "claim verification"},
        "dataset": {"type": benchmark.name, "name": benchmark.title},
        "metrics": metrics,
    }
    lines = [
        f"### {benchmark.title}",
        "",
        f"{benchmark.source}. Percent, 95 % intervals over whole groups of statements about one video or picture. "
        "Questions were turned into statements by rule (docs/benchmarks.md).",
        "",
        scores_table(systems),
        "",
        f"Over all statements: {headline_text(headline)}. Text probe, claim alone: "
        + (f"AUC {claim_only.auc:.3f}." if not math.isnan(claim_only.auc) else f"none, {claim_only.reason}."),
        "",
        *[f"> {note}\n" for note in notes],
        "For the card's `model-index`, under `results`:",
        "",
        "```yaml",
        yaml.safe_dump([entry], sort_keys=False, allow_unicode=True).strip(),
        "```",
        "",
    ]
    return "\n".join(lines)
