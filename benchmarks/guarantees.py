"""Are guaranteed thresholds and abstain bands kept as often as they promise? Simulations with known truth.

    python -m benchmarks.guarantees [--runs 300] [--groups 100 200 400] [--icc 0 0.5] [--cells FILE] [--out FILE]

Each run fits every guarantee (delta 0.1) on one data set of a world (`benchmarks/simulated.py`), and looks up its true
risk, the mean over 20,000 other groups. `broken` is the share of all fits whose true risk is above the bound; it may
be 0.1 at most; `given` is the share that were certified. Bounds lie between the least and the greatest risk of a cut,
and for the error rate also just below the least: there every certificate is a broken one. One world has margins
whose spread lies where the grid of cuts doubles, so that about half of the fits use either. Plain targets at the same
level, which promise nothing, are beside them.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from threadpoolctl import threadpool_limits

from benchmarks.pages import measured_cells, publish
from benchmarks.simulated import Rows, World, drawn
from proofreel.core import CalibrationError
from proofreel.eval.decisions import (
    MARGIN_GRID,
    band_losses,
    control_risk,
    fit_band,
    fit_threshold,
    group_risk,
    guaranteed_band,
)
from proofreel.models.decision import RISKS, AbstainBand, Risk

DELTA, MANY = 0.1, 20_000
WORLDS = {
    "AUC 0.81": World(1.5),
    "AUC 0.81, grid doubles": World(1.5, 2.72),
    "AUC 0.92, too unsure": World(3.0, 0.4),
    "AUC 0.97": World(6.0),
    "AUC 0.81, a tenth supported": World(1.5, place=-3.0),
}


class TrueRisks:
    """Risks of one world over many groups, looked up."""

    def __init__(self, world: World, icc: float) -> None:
        self._rows = drawn(np.random.default_rng(1), world, MANY, icc)
        self.at = cache(self._at)
        self.of_band = cache(self._of_band)

    def _at(self, risk: Risk, threshold: float) -> float:
        return group_risk(self._rows.p, self._rows.labels, self._rows.groups, threshold, risk)

    def _of_band(self, high: float, low: float) -> float:
        band = AbstainBand(high, low, "max_abstention", 0.0, 0, 0, 0, 0, 0, 0)
        return float(np.nanmean(band_losses(band, self._rows.p, self._rows.labels, self._rows.groups)))

    def bounds(self, risk: Risk) -> list[float]:
        """Between the least and the greatest risk of a cut that calls some rows so; for the error rate also below."""
        cuts = expit(MARGIN_GRID[40:121:8])
        risks = np.array([self.at(risk, float(cut)) for cut in cuts])
        low, high = np.nanmin(risks), np.nanmax(risks)
        parts = (-0.02, 0.15) if risk == "error_rate" else (0.3, 0.6)
        return [float(np.clip(low + part * (high - low), 0.02, 0.98)) for part in parts]


def fitted(rows: Rows, risks: TrueRisks, bounds: dict[str, list[float]]) -> dict[str, tuple[bool, bool]]:
    """By name and bound: whether a guarantee was given, and whether it is broken."""
    columns, found = (rows.p, rows.labels, rows.groups), {}
    for risk in RISKS:
        for bound in bounds[risk]:
            try:
                point = control_risk(*columns, risk, bound, DELTA, n_draws=2)
            except CalibrationError:
                found[f"{risk} {bound:.3f}"] = False, False
                continue
            found[f"{risk} {bound:.3f}"] = True, risks.at(risk, point.threshold) > bound
    for bound in bounds["selective_error_rate"]:
        for name, fit in (("selective_error_rate", guaranteed_band), ("plain selective_accuracy", _plain)):
            try:
                band = fit(*columns, 1 - bound, n_draws=2)
            except CalibrationError:
                found[f"{name} {bound:.3f}"] = False, False
                continue
            found[f"{name} {bound:.3f}"] = (
                True,
                risks.of_band(band.support_at_or_above, band.refute_at_or_below) > bound,
            )
    for bound in bounds["false_discovery_rate"]:
        try:
            threshold = fit_threshold(*columns[:2], f"precision_at:{1 - bound}").threshold
        except CalibrationError:
            continue
        found[f"plain precision_at {bound:.3f}"] = True, risks.at("false_discovery_rate", threshold) > bound
    return found


def _plain(p: Any, labels: Any, groups: Any, target: float, n_draws: int) -> AbstainBand:
    return fit_band(p, labels, groups, "selective_accuracy", target, n_draws)


def cell(name: str, n_groups: int, icc: float, runs: int) -> dict[str, list[int]]:
    """Per guarantee: fits, given ones and broken ones."""
    world, counts = WORLDS[name], defaultdict(lambda: [0, 0, 0])
    risks, rng = TrueRisks(world, icc), np.random.default_rng([list(WORLDS).index(name), n_groups, round(100 * icc)])
    bounds = {risk: risks.bounds(risk) for risk in RISKS}
    errors = risks.of_band(0.5, float(np.nextafter(0.5, 0)))  # of a verdict for every row
    bounds["selective_error_rate"] = [0.8 * errors, max(0.5 * errors, 0.03)]
    for _ in range(runs):
        rows = drawn(rng, world, n_groups, icc)
        for of, (given, broken) in fitted(rows, risks, bounds).items():
            counts[of] = [a + b for a, b in zip(counts[of], (1, given, broken), strict=True)]
    return {of: [int(n) for n in each] for of, each in counts.items()}


def measured(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every cell, those of the file first."""
    settings = [
        {"world": world, "groups": n_groups, "icc": icc}
        for n_groups, icc, world in product(args.groups, args.icc, WORLDS)
    ]
    return measured_cells(args.cells, settings, lambda world, groups, icc: cell(world, groups, icc, args.runs))


def table(cells: list[dict[str, Any]], args: argparse.Namespace) -> list[str]:
    """The page: a summary of each kind, then a line per world, number of groups, ICC, kind and bound."""
    error = 100 * np.sqrt(DELTA * (1 - DELTA) / args.runs)
    lines = ["# Are guarantees kept?", "", "`python -m benchmarks.guarantees`", ""]
    lines += [
        f"{args.runs} fits a cell, delta {DELTA:g}: at most 10 % may be broken (a cell's own standard error is "
        f"{error:.1f} points).",
        "",
        "| kind | cells | given | broken, mean | broken, most |",
        "|---|---|---|---|---|",
    ]
    flat = [
        (*of.rsplit(" ", 1), each["world"], each["groups"], each["icc"], *counts)
        for each in cells
        for of, counts in each["counts"].items()
    ]
    for kind in dict.fromkeys(row[0] for row in flat):
        own = np.array([row[5:] for row in flat if row[0] == kind], dtype=float)
        given, broken = 100 * own[:, 1] / own[:, 0], 100 * own[:, 2] / own[:, 0]
        lines.append(f"| {kind} | {len(own)} | {given.mean():.0f} % | {broken.mean():.1f} % | {broken.max():.1f} % |")
    lines += ["", "| kind | bound | world | groups | ICC | given | broken |", "|---" * 7 + "|"]
    for kind, bound, world, n_groups, icc, n, given, broken in sorted(flat):
        shares = f"{100 * given / n:.0f} % | {100 * broken / n:.1f} %"
        lines.append(f"| {kind} | {bound} | {world} | {n_groups} | {icc:g} | {shares} |")
    return lines


def main() -> None:
    """Simulate and print; write only where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--groups", type=int, nargs="+", default=[100, 200, 400])
    parser.add_argument("--icc", type=float, nargs="+", default=[0.0, 0.5])
    parser.add_argument("--cells", type=Path, default=Path("guarantee_cells.jsonl"), help="finished cells, a line each")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    args = parser.parse_args()
    with threadpool_limits(1):
        publish(table(measured(args), args), args.out)


if __name__ == "__main__":
    main()
