"""Do the intervals cover? Simulations with known truth of every interval that a report or a threshold carries.

    python -m benchmarks.coverage [--runs 200] [--draws 500] [--groups 20 50 100 200 400] [--cells FILE] [--out FILE]

A cell is a world (`benchmarks/simulated.py`), a number of groups and an ICC; its number is the share of runs whose 95 %
interval holds the true value. `--cells` keeps each finished cell as a line, so that a run goes on where another ended.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.pages import measured_cells, publish
from benchmarks.simulated import THRESHOLD, WORLDS, Rows, Truth, drawn, share, truths
from proofreel.core import CalibrationError
from proofreel.eval.decisions import criterion_of, criterion_value, fit_band, fit_points
from proofreel.eval.metrics import METRICS, metric_rows
from proofreel.eval.uncertainty import difference_intervals, intervals_of, resample, trust
from proofreel.models.decision import OperatingPoint

LISTED = [metric for metric in METRICS.values() if metric.draws and not metric.name.endswith("_before")]
PERCENTILES = [METRICS[name] for name in ("precision", "recall", "specificity", "f1")]
OBJECTIVES = ("f1", "balanced_accuracy", "mcc", "match_rate", "cost:5:1", "precision_at:0.9", "recall_at:0.9")
BANDS = (("selective_accuracy", 0.9), ("max_abstention", 0.2))
PARTS = ("metric", "difference", "percentiles", "point", "band")
Found = Iterator[tuple[str, float, Any]]  # name, true value, interval or None


def metrics_found(rows: Rows, truth: tuple[Truth, Truth], n_draws: int, seed: int) -> Found:
    """Every metric's interval, differences of the headline's, and percentiles as thresholds on other rows have."""
    first = metric_rows(rows.margins, rows.p, rows.labels, THRESHOLD, log_odds=rows.margins)
    other = metric_rows(rows.other_margins, rows.other_p, rows.labels, THRESHOLD, log_odds=rows.other_margins)
    resamples = resample(rows.groups, n_draws, seed)
    for name, interval in intervals_of(LISTED, first, resamples).items():
        yield f"metric {name}", truth[0].values[name], interval
    for name, interval in difference_intervals(first, other, rows.groups, n_draws, seed=seed).items():
        yield f"difference {name}", truth[0].values[name] - truth[1].values[name], interval
    for name, interval in intervals_of(PERCENTILES, first, resamples, method="percentile").items():
        yield f"percentiles {name}", truth[0].values[name], interval


def points_found(rows: Rows, truth: Truth, n_draws: int, seed: int) -> Found:
    """Intervals of thresholds and bands on the rows that they were chosen on, against what they truly reach."""
    columns = rows.p, rows.labels, rows.groups
    for objective in OBJECTIVES:
        try:
            (point,) = fit_points(*columns, [objective], n_draws, seed)
        except CalibrationError:
            continue
        counts = truth.counts(point.threshold)
        yield f"point {objective}", float(criterion_value(criterion_of(point), counts)), point.interval
        if objective in ("f1", "balanced_accuracy", "precision_at:0.9"):
            yield from _rates(objective, point, counts)
    for objective, target in BANDS:
        try:
            band = fit_band(*columns, objective, target, n_draws, seed)  # type: ignore[arg-type]
        except CalibrationError:
            continue
        up, down = truth.counts(band.support_at_or_above), truth.counts(np.nextafter(band.refute_at_or_below, 2))
        decided = up.tp + up.fp + down.tn + down.fn
        yield f"band {objective} accuracy", share(up.tp + down.tn, decided), band.selective_accuracy_interval
        yield f"band {objective} coverage", float(decided), band.coverage_interval


def _rates(objective: str, point: OperatingPoint, counts: Any) -> Found:
    tp, fp, tn, fn = counts
    yield f"point {objective} sensitivity", share(tp, tp + fn), point.sensitivity_interval
    yield f"point {objective} specificity", share(tn, tn + fp), point.specificity_interval


def cell(world: int, n_groups: int, icc: float, runs: int, n_draws: int, parts: tuple[str, ...]) -> dict[str, Any]:
    """Per name: runs with an interval, those that hold the truth, those too high; runs and hits without a caution."""
    rng, truth = np.random.default_rng([world, n_groups, round(100 * icc)]), truths(WORLDS[world])
    counts: dict[str, list[int]] = defaultdict(lambda: [0] * 5)
    for run in range(runs):
        rows = drawn(rng, WORLDS[world], n_groups, icc)
        if not 2 <= rows.labels.sum() <= len(rows.labels) - 2:
            continue
        found = list(metrics_found(rows, truth, n_draws, run)) if set(parts) & set(PARTS[:3]) else []
        found += points_found(rows, truth[0], n_draws, run) if set(parts) & set(PARTS[3:]) else []
        for name, true, interval in found:
            if interval is None or not np.isfinite([true, interval.low, interval.high]).all():
                continue
            holds = interval.low - 1e-9 <= true <= interval.high + 1e-9
            silent = not (hasattr(interval, "method") and trust(interval))
            seen = (1, holds, interval.low - 1e-9 > true, silent, silent and holds)
            counts[name] = [a + b for a, b in zip(counts[name], seen, strict=True)]
    return {name: [int(n) for n in of] for name, of in counts.items() if name.split()[0] in parts}


def measured(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every cell, those of the file first."""
    settings = [
        {"world": world, "groups": n_groups, "icc": icc}
        for n_groups, icc, world in product(args.groups, args.icc, range(len(WORLDS)))
    ]
    parts = tuple(args.parts)
    return measured_cells(
        args.cells, settings, lambda world, groups, icc: cell(world, groups, icc, args.runs, args.draws, parts)
    )


def table(cells: list[dict[str, Any]], args: argparse.Namespace) -> list[str]:
    """The page: mean over worlds and ICCs for each number of groups, and the least cell."""
    lines = ["# Coverage of 95 % intervals", "", "`python -m benchmarks.coverage`", ""]
    error = 100 * np.sqrt(0.0475 / args.runs)
    lines += [
        f"{args.runs} runs a cell of {args.draws} resamples each, {len(WORLDS)} worlds, ICC "
        f"{', '.join(f'{icc:g}' for icc in args.icc)}. Mean over worlds and ICCs, in parentheses the least cell (its",
        f"own standard error is {error:.1f} points, so the least of {len(WORLDS) * len(args.icc)} lies about "
        f"{2 * error:.0f} points below the mean by chance alone).",
        "",
    ]
    names = sorted(
        {name for of in cells for name in of["counts"]}, key=lambda name: (PARTS.index(name.split()[0]), name)
    )
    lines += [
        "| interval | " + " | ".join(f"{n} groups" for n in args.groups) + " |",
        "|---" * (1 + len(args.groups)) + "|",
    ]
    for name in names:
        shown = []
        for n_groups in args.groups:
            counts = np.array([of["counts"][name] for of in cells if of["groups"] == n_groups and name in of["counts"]])
            counts = counts[counts[:, 0] >= args.runs / 4] if len(counts) else counts
            shares = 100 * counts[:, 1] / counts[:, 0] if len(counts) else np.array([])
            shown.append(f"{shares.mean():.1f} ({shares.min():.0f})" if len(shares) else "")
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return lines


def main() -> None:
    """Simulate and print; write only where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--groups", type=int, nargs="+", default=[20, 50, 100, 200, 400])
    parser.add_argument("--icc", type=float, nargs="+", default=[0.0, 0.2, 0.5])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--cells", type=Path, default=Path("coverage_cells.jsonl"), help="finished cells, a line each")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    args = parser.parse_args()
    with threadpool_limits(1):
        publish(table(measured(args), args), args.out)


if __name__ == "__main__":
    main()
