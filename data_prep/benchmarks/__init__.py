"""Public benchmarks: one file each, with the layout of its published annotations; `BENCHMARKS` lists them."""

from __future__ import annotations

from . import amber, hallusionbench, pope, tempcompass, videohallucer, vilma, vsr
from .base import Benchmark, as_statement, benchmark_rows
from .tempcompass import DIMENSIONS
from .videohallucer import PAPER_PARTS

__all__ = ["BENCHMARKS", "DIMENSIONS", "PAPER_PARTS", "Benchmark", "as_statement", "benchmark_rows"]

BENCHMARKS: dict[str, Benchmark] = {
    module.BENCHMARK.name: module.BENCHMARK
    for module in (videohallucer, tempcompass, vilma, hallusionbench, pope, vsr, amber)
}
