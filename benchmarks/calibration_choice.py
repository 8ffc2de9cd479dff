"""How much worse is the calibration that `auto` chooses than the best single method, on few rows and many?

    python -m benchmarks.calibration_choice [--runs 60] [--rows 60 100 200 500 1500 5000] [--out FILE]

True log-odds are normal with a spread of 1.5 and lean together in groups of three; the verifier's margins are a
distortion of them. Excess is the log-loss of a fitted map less that of the truth, on 40,000 other rows without noise of
labels, averaged over runs. Each cell: the excess of `auto`, then of the best method if always taken.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from threadpoolctl import threadpool_limits

from proofreel.eval.calibration import choose_method
from proofreel.models.decision import CALIBRATORS, calibrator_named

DISTORTIONS: dict[str, Callable[[Any], Any]] = {
    "none": lambda x: x,
    "twice too sure": lambda x: 2 * x,
    "half as sure": lambda x: x / 2,
    "moved by 1": lambda x: x + 1,
    "too sure and moved": lambda x: 2 * x - 1,
    "too sure above 0": lambda x: np.where(x > 0, 3 * x, x),
    "saturated": lambda x: 4 * np.tanh(x / 2),
    "bent": lambda x: np.sign(x) * np.abs(x) ** 1.8,
}
SPREAD, LARGE = 1.5, 40_000


def excesses(distortion: Callable[[Any], Any], n: int, seed: int) -> tuple[dict[str, float], str]:
    """Excess log-loss of every method that may be tried on n rows, and which one `auto` chooses."""
    rng, test = np.random.default_rng(seed), SPREAD * np.random.default_rng(10_000).normal(size=LARGE)
    groups = np.repeat(np.arange(n), 3)[:n]
    x = SPREAD * (np.sqrt(0.3) * rng.normal(size=n)[groups] + np.sqrt(0.7) * rng.normal(size=n))
    y = (rng.random(n) < expit(x)).astype(float)
    choice, q = choose_method(distortion(x), y, groups), expit(test)
    least = _loss(test, q)
    found = {}
    for each in choice.candidates:
        if not each.note:
            fitted, _ = calibrator_named(each.method).fit(distortion(x), y, np.ones(n))
            found[each.method] = _loss(fitted.apply(distortion(test)), q) - least
    return found, choice.method


def _loss(logits: Any, q: Any) -> float:
    return float(np.mean(q * np.logaddexp(0, -logits) + (1 - q) * np.logaddexp(0, logits)))


def measured(args: argparse.Namespace) -> list[str]:
    """The page: a line per number of rows, a column per distortion."""
    began = time.perf_counter()
    lines = ["# The calibration that `auto` chooses", "", "`python -m benchmarks.calibration_choice`", ""]
    lines += [
        f"{args.runs} runs a cell. Excess log-loss in nats of `auto` / of the best method if always taken (its name)."
    ]
    lines += ["", "| rows | " + " | ".join(DISTORTIONS) + " | most lost |", "|---" * (len(DISTORTIONS) + 2) + "|"]
    for n in args.rows:
        cells, lost = [], []
        for distortion in DISTORTIONS.values():
            auto, fixed = [], defaultdict[str, list[float]](list)
            for seed in range(args.runs):
                found, chosen = excesses(distortion, n, seed)
                auto.append(found[chosen])
                for method, excess in found.items():
                    fixed[method].append(excess)
            means = {m: float(np.mean(fixed[m])) for m in CALIBRATORS if len(fixed[m]) == args.runs}
            best = min(means, key=means.__getitem__)
            lost.append(float(np.mean(auto)) - means[best])
            cells.append(f"{np.mean(auto):.4f} / {means[best]:.4f} ({best})")
        lines.append(f"| {n:,} | {' | '.join(cells)} | {max(lost):.4f} |")
        print(lines[-1], flush=True)
    return [*lines, "", f"{time.perf_counter() - began:.0f} s on one core."]


def main() -> None:
    """Simulate and print; write only where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--rows", type=int, nargs="+", default=[60, 100, 200, 500, 1500, 5000])
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    args = parser.parse_args()
    with threadpool_limits(1):
        lines = measured(args)
    if args.out:
        args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
