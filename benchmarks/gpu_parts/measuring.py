"""What the parts share: seconds, peak memory, the machine's rate, and questions of noise."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_parts.networks import SHAPES, TINY, checkpoint
from proofreel.train.memory import GIB
from proofreel.train.settings import PEAK_TFLOPS

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def folder_of(args: Any, shape: str, layers: int | None = None) -> Path:
    """The checkpoint of a shape of `--shape`."""
    return checkpoint(SHAPES.get(shape, TINY), args.work, args.device, layers)


def working_dtype(args: Any) -> torch.dtype:
    """Of the frozen weights."""
    return DTYPES["bfloat16" if args.device == "cuda" else "float32"]


def seconds_of(work: Callable[[], Any], args: Any) -> float:
    """Median of `--rounds` runs after one that warms up: wall seconds of a GPU, CPU seconds of a CPU."""
    work()
    return statistics.median(clocked(work, args.device) for _ in range(args.rounds))


def clocked(work: Callable[[], Any], device: str) -> float:
    """Seconds of one run, waiting for the device."""
    if device == "cpu":
        began = time.process_time()
        work()
        return time.process_time() - began
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def peak_gib(work: Callable[[], Any], device: str) -> float | None:
    """Most memory that tensors hold during a run, weights included; None on a CPU, which does not count them."""
    if device == "cpu":
        work()
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / GIB


def share_of_peak(operations: float, seconds: float, args: Any) -> float:
    """Operations a second over the card's data sheet, or over its measured matrix rate where that is unknown."""
    return operations / seconds / peak_rate(args.device)


@functools.cache
def peak_rate(device: str) -> float:
    """Operations a second in the working dtype: of the data sheet, else of a large matrix product measured here."""
    if device == "cuda":
        name = torch.cuda.get_device_name().lower()
        known = [tflops for card, tflops in PEAK_TFLOPS.items() if card in name.replace(" ", "-")]
        if known:
            return max(known) * 1e12
    return matrix_rate(device)


def matrix_rate(device: str) -> float:
    """Operations a second of a product of two square matrices, the best of five."""
    n, dtype = (8192, torch.bfloat16) if device == "cuda" else (1024, torch.float32)
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    a @ b
    return 2 * n**3 / min(clocked(lambda: a @ b, device) for _ in range(5))
