"""The stored data sets and what other libraries made of them; metric_values.py says which and how."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np


def reference(name: str) -> tuple[np.ndarray, np.ndarray, dict[str, dict[str, float]]]:
    """Probabilities, labels, and per library its values by metric."""
    stored = json.loads(Path(__file__).with_name("metric_values.json").read_text(encoding="utf-8"))["data"][name]
    return np.array(stored["p"]), np.array(stored["y"]), stored["values"]
