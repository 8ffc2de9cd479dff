"""Do the intervals cover? Simulations with known truth of every headline metric and of differences in ECE.

    python -m benchmarks.coverage [--runs 200] [--draws 500] [--groups 20 50 100 400] [--out FILE]

Claims come in groups of unequal size (1 to 20, about 4 on average); their difficulty and, by the intraclass correlation
(ICC), their labels lean together within a group. A verifier states sigmoid(slope x + shift) where the truth is
sigmoid(x), x normal with a spread that sets the AUC: a slope of 1 is calibrated. True values are those of 400,000 rows
with labels replaced by their probabilities. A cell is the share of runs whose 95 % interval holds the true value.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, ndtr
from threadpoolctl import threadpool_limits

from proofreel.eval.metrics import METRICS, MetricRows, bin_index, metric_rows, roc_auc
from proofreel.eval.uncertainty import difference_intervals, headline_intervals, headline_names

THRESHOLD, COVERAGE, N_BINS, LARGE = 0.5, 0.8, 15, 400_000


@dataclass(frozen=True)
class World:
    """How well a verifier ranks (spread) and how far its probabilities are off; `other`: the slope of a second one."""

    spread: float
    slope: float = 1.0
    shift: float = 0.0
    other: float = 1.0

    def stated(self, x: Any, slope: float | None = None) -> tuple[Any, Any]:
        """Margins and probabilities."""
        margins = np.clip((self.slope if slope is None else slope) * x + self.shift * (slope is None), -30, 30)
        return margins, expit(margins)


WORLDS = (
    World(0.3),
    World(1.5),
    World(1.5, 1.1, other=1.2),
    World(1.5, 1.5),
    World(1.5, 1.0, 0.3),
    World(3.0, 0.4),
    World(6.0),
    World(12.0),
)


def drawn(rng: np.random.Generator, world: World, n_groups: int, icc: float) -> tuple[Any, Any, Any]:
    """x, labels and groups of one data set."""
    sizes = np.clip(np.round(np.exp(rng.normal(1.2, 0.7, n_groups))), 1, 20).astype(int)
    groups = np.repeat(np.arange(n_groups), sizes)
    n = len(groups)
    x = world.spread * (np.sqrt(0.3) * rng.normal(size=n_groups)[groups] + np.sqrt(0.7) * rng.normal(size=n))
    lean = np.sqrt(icc) * rng.normal(size=n_groups)[groups] + np.sqrt(1 - icc) * rng.normal(size=n)
    return x, (ndtr(lean) < expit(x)).astype(float), groups


def truths(world: World) -> dict[str, float]:
    """The true value of every headline metric, and of the second verifier's ECE."""
    x = world.spread * np.random.default_rng(1).normal(size=LARGE)
    q = expit(x)
    margins, p = world.stated(x)
    said, sure = p >= THRESHOLD, np.abs(p - THRESHOLD)
    tp, fp, fn, tn = (float(np.mean(of)) for of in (q * said, (1 - q) * said, q * ~said, (1 - q) * ~said))
    kept = sure >= np.quantile(sure, 1 - COVERAGE)
    both = (np.concatenate([margins] * 2), np.repeat([1.0, 0.0], LARGE), np.concatenate([q, 1 - q]))
    return {
        "auc": float(roc_auc(*both)),
        "f1": 2 * tp / (2 * tp + fp + fn),
        "balanced_accuracy": (tp / (tp + fn) + tn / (tn + fp)) / 2,
        "brier": float(np.mean(q * (1 - p) ** 2 + (1 - q) * p**2)),
        "nll": float(np.mean(np.logaddexp(0, margins) - q * margins)),
        "ece_event": _ece(p, q),
        "accuracy_at_coverage": float(np.mean(np.where(said, q, 1 - q)[kept])),
        "difference of ECE": _ece(p, q) - _ece(world.stated(x, world.other)[1], q),
    }


def _ece(p: Any, q: Any) -> float:
    return float(np.abs(np.bincount(bin_index(p), q - p, minlength=N_BINS)).sum() / len(p))


def cell(world: World, n_groups: int, icc: float, runs: int, n_draws: int) -> dict[str, float]:
    """The share of runs in which each interval holds the true value; NaN-bounded intervals hold nothing."""
    rng, true = np.random.default_rng([n_groups, round(100 * icc)]), truths(world)
    held: dict[str, list[bool]] = defaultdict(list)
    for run in range(runs):
        x, y, groups = drawn(rng, world, n_groups, icc)
        if len(set(y.tolist())) < 2:
            continue
        margins, p = world.stated(x)
        columns: Any = (margins, p, y, groups, THRESHOLD)
        found = headline_intervals(*columns, n_draws=n_draws, seed=run, log_odds=margins, coverage=COVERAGE)
        rows = _rows(margins, p, y), _rows(*world.stated(x, world.other), y)
        other = difference_intervals(*rows, groups, n_draws, seed=run)
        found["difference of ECE"] = other["ece_event"]
        for name, interval in found.items():
            held[name].append(interval.low - 1e-9 <= true[name] <= interval.high + 1e-9)
    return {name: float(np.mean(of)) for name, of in held.items()}


def _rows(margins: Any, p: Any, y: Any) -> MetricRows:
    return metric_rows(margins, p, y, THRESHOLD, log_odds=margins, coverage=COVERAGE)


def measured(args: argparse.Namespace) -> list[str]:
    """The page: what was run, and a line per world, number of groups and ICC."""
    began, names = time.perf_counter(), [*headline_names(), "difference of ECE"]
    lines = ["# Coverage of 95 % intervals", "", "`python -m benchmarks.coverage`", ""]
    lines += [
        f"{args.runs} runs a cell (a cell's own standard error is {100 * np.sqrt(0.0475 / args.runs):.1f} points)"
    ]
    lines += [f"of {args.draws} resamples each.", ""]
    heads = [METRICS[name].label or name if name in METRICS else name for name in names]
    lines += ["| AUC | ECE | groups | ICC | " + " | ".join(heads) + " |", "|---" * (4 + len(heads)) + "|"]
    for world in WORLDS:
        true = truths(world)
        for n_groups in args.groups:
            for icc in args.icc:
                shares = cell(world, n_groups, icc, args.runs, args.draws)
                values = " | ".join(f"{100 * shares[name]:.1f}" for name in names)
                lines.append(f"| {true['auc']:.3f} | {true['ece_event']:.3f} | {n_groups} | {icc:g} | {values} |")
                print(lines[-1], flush=True)
    return [*lines, "", f"{time.perf_counter() - began:.0f} s on one core."]


def main() -> None:
    """Simulate and print; write only where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--groups", type=int, nargs="+", default=[20, 50, 100, 400])
    parser.add_argument("--icc", type=float, nargs="+", default=[0.0, 0.5])
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    args = parser.parse_args()
    with threadpool_limits(1):
        lines = measured(args)
    if args.out:
        args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
