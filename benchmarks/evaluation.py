"""How long do clustered intervals of the headline metrics take, and how long would the straightforward loop?

    python -m benchmarks.evaluation [--rows 100000] [--groups 2000] [--draws 10000] [--out FILE]

Synthetic predictions with group effects. Ours: `headline_intervals`, all seven metrics from one set of resamples, on
one core. The loop: for each draw put the rows of the drawn groups together and call scikit-learn (its own code for ECE
and accuracy at coverage, which it does not have); and the same with torchmetrics where that is installed. The loops
are timed on a few draws and extrapolated to all, marked ~. On those draws the values must agree, or the table says NO.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
from sklearn import metrics as reference
from sklearn.calibration import calibration_curve
from threadpoolctl import threadpool_limits

from benchmarks.pages import publish
from proofreel.eval.metrics import MetricRows, metric_rows, summed_columns, values_of_sums
from proofreel.eval.uncertainty import (
    cluster_permutation,
    delong,
    difference_intervals,
    headline_intervals,
    headline_names,
    headline_values,
    resample,
)

N_BINS, COVERAGE, THRESHOLD = 15, 0.8, 0.5
Metric = Callable[[Any, Any], float]


def predictions(n: int, n_groups: int, seed: int) -> tuple[MetricRows, Any]:
    """Margins that lean with the group, as float32 stores them, and groups of uneven size."""
    rng = np.random.default_rng(seed)
    groups = np.random.default_rng(0).integers(n_groups, size=n)
    labels = np.random.default_rng(1).integers(2, size=n)
    margins = (2 * labels - 1 + rng.normal(size=n_groups)[groups] + 1.5 * rng.normal(size=n)).astype(np.float32)
    p = 1 / (1 + np.exp(-margins.astype(np.float64)))
    return metric_rows(margins, p, labels, THRESHOLD, coverage=COVERAGE), groups


def timed(work: Callable[[], Any]) -> float:
    """Seconds of one run."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def ece(y: Any, p: Any) -> float:
    """Event ECE from scikit-learn's reliability curve; the curve leaves empty bins out, and so do the counts."""
    mean_y, mean_p = calibration_curve(y, p, n_bins=N_BINS)
    count = np.histogram(p, np.linspace(0, 1, N_BINS + 1))[0]
    return float(np.sum(count[count > 0] * np.abs(mean_y - mean_p)) / len(p))


def accuracy_at_coverage(y: Any, p: Any) -> float:
    """Accuracy of the most confident rows, ties (a row that was drawn twice) whole."""
    confidence, n_kept = np.abs(p - THRESHOLD), int(np.ceil(COVERAGE * len(p) - 1e-9))
    kept = confidence >= np.partition(confidence, len(p) - n_kept)[len(p) - n_kept]
    return float(np.mean((p[kept] >= THRESHOLD) == y[kept]))


def loop_metrics() -> dict[str, Metric]:
    """What one would call on the rows of a draw, taking labels and probabilities."""
    return {
        "auc": lambda y, p: float(reference.roc_auc_score(y, p)),
        "f1": lambda y, p: float(reference.f1_score(y, p >= THRESHOLD)),
        "balanced_accuracy": lambda y, p: float(reference.balanced_accuracy_score(y, p >= THRESHOLD)),
        "brier": lambda y, p: float(reference.brier_score_loss(y, p)),
        "nll": lambda y, p: float(reference.log_loss(y, p)),
        "ece_event": ece,
        "accuracy_at_coverage": accuracy_at_coverage,
    }


def torch_metrics() -> dict[str, Metric]:
    """The same from torchmetrics, for the metrics it has; none where it is not installed."""
    if importlib.util.find_spec("torchmetrics") is None:
        return {}
    import torch

    of = importlib.import_module("torchmetrics.functional.classification")

    torch.set_num_threads(1)

    def balanced(p: Any, y: Any) -> Any:
        return (of.binary_recall(p, y, THRESHOLD) + of.binary_specificity(p, y, THRESHOLD)) / 2

    functions: dict[str, Callable[[Any, Any], Any]] = {
        "auc": of.binary_auroc,
        "f1": lambda p, y: of.binary_f1_score(p, y, THRESHOLD),
        "balanced_accuracy": balanced,
        "ece_event": lambda p, y: of.binary_calibration_error(p, y, n_bins=N_BINS, norm="l1"),
    }

    def called(function: Callable[[Any, Any], Any]) -> Metric:
        return lambda y, p: float(function(torch.from_numpy(p), torch.from_numpy(y.astype(np.int64))))

    return {name: called(function) for name, function in functions.items()}


def loops(rows: MetricRows, groups: Any, ways: dict[str, dict[str, Metric]], args: argparse.Namespace) -> Any:
    """Seconds that each way's metrics would take on all draws, and how far scikit-learn's values are from ours.

    The key ("rows", "") holds the time to put the rows of the draws together, which every way needs.
    """
    drawn = resample(groups, args.draws)
    ours, scale = headline_values(rows, drawn), args.draws / args.timed_draws
    seconds, differences = defaultdict[tuple[str, str], float](float), defaultdict[str, float](float)
    members = [np.flatnonzero(drawn.group_of_row == group) for group in range(drawn.n_groups)]
    for draw, times in enumerate(drawn.times_DG[: args.timed_draws].astype(int)):
        began = time.perf_counter()
        taken = np.concatenate([members[group] for group in np.repeat(np.arange(drawn.n_groups), times)])
        y, p = rows.labels[taken], rows.p[taken]
        seconds["rows", ""] += scale * (time.perf_counter() - began)
        for way, name, metric in [(way, *item) for way, metrics in ways.items() for item in metrics.items()]:
            began = time.perf_counter()
            value = metric(y, p)
            seconds[way, name] += scale * (time.perf_counter() - began)
            if way == "scikit-learn":  # torchmetrics reckons in float32 in places
                differences[name] = max(differences[name], abs(value - ours[name][draw]))
    return seconds, differences


def table(rows: MetricRows, groups: Any, args: argparse.Namespace) -> list[str]:
    """One line per metric, and the total."""
    ways = {"scikit-learn": loop_metrics(), "torchmetrics": torch_metrics()}
    seconds, differences = loops(rows, groups, ways, args)
    lines = ["| metric | scikit-learn (s) | torchmetrics (s) | ours agrees (largest difference) |", "|---|---|---|---|"]
    lines.append(f"| putting the rows together | ~{seconds['rows', '']:,.0f} | the same | |")
    for name in headline_names():
        cells = [f"~{seconds[way, name]:,.0f}" if (way, name) in seconds else _absent(ways[way]) for way in ways]
        agrees = "yes" if differences[name] < 1e-9 else "NO"
        lines.append(f"| {name} | {' | '.join(cells)} | {agrees} ({differences[name]:.0e}) |")
    sums = {way: sum(value for key, value in seconds.items() if key[0] in ("rows", way)) for way in ways}
    totals = [f"~{sums[way]:,.0f}" if ways[way] else _absent({}) for way in ways]
    return [*lines, f"| all it has | {' | '.join(totals)} | |"]


def _absent(way: dict[str, Metric]) -> str:
    return "has none" if way else "not installed"


def parts(rows: MetricRows, other: MetricRows, groups: Any, args: argparse.Namespace) -> list[str]:
    """Seconds of what is ours: the headline, and comparisons of two verifiers on the same rows."""
    columns, draws = (rows.margins, rows.p, rows.labels, groups, THRESHOLD), args.draws
    drawn = resample(groups, draws)
    work: dict[str, Callable[[], Any]] = {
        "**headline intervals, all seven metrics**": lambda: headline_intervals(*columns, n_draws=draws),
        "of these, everything but AUC and coverage": lambda: values_of_sums(drawn.sums(summed_columns(rows))),
        "the same, BCa (with its jackknife)": lambda: headline_intervals(*columns, n_draws=draws, method="bca"),
        "differences of two verifiers, all seven": lambda: difference_intervals(rows, other, groups, draws),
        "permutation test of two, six metrics": lambda: cluster_permutation(rows, other, groups, draws),
        "DeLong's interval of AUC, clustered": lambda: delong(rows.margins, rows.labels, groups),
    }
    lines = ["| ours | seconds |", "|---|---|"]
    for number, (name, do) in enumerate(work.items()):
        lines.append(f"| {name} | {timed(do):.2f} |")
        if number == 0:
            peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            lines.append(f"| its highest memory, libraries included | {peak_gb:.2f} GB |")
    return lines


def main() -> None:
    """Measure and print; write only where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=2_000)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--timed-draws", type=int, default=5, help="draws the loops are timed on")
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    args = parser.parse_args()
    with threadpool_limits(1):
        lines = measured(args)
    publish(lines, args.out)


def measured(args: argparse.Namespace) -> list[str]:
    """The page: machine, what is ours, and the loops."""
    (rows, groups), (other, _) = (predictions(args.rows, args.groups, seed) for seed in (2, 3))
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    versions = f"NumPy {np.__version__}, SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}"
    if importlib.util.find_spec("torchmetrics"):
        versions += f", torchmetrics {importlib.metadata.version('torchmetrics')}"
    return [
        "# Clustered intervals of the headline metrics\n",
        f"`{' '.join(['python -m benchmarks.evaluation', *sys.argv[1:]])}`\n".replace(f" --out {args.out}", ""),
        f"machine: one core of {os.cpu_count()}, {system}, {versions}",
        f"{args.rows:,} rows in {args.groups:,} groups, {args.draws:,} resamples of whole groups\n",
        *parts(rows, other, groups, args),
        f"\nThe straightforward loop, timed on {args.timed_draws} draws and extrapolated (~):\n",
        *table(rows, groups, args),
    ]


if __name__ == "__main__":
    main()
