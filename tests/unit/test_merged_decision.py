"""Merged margins compared with the adapter's, and a decision fitted again as it was fitted before: on numbers alone."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from nightly import only

from proofreel.core.errors import CalibrationError
from proofreel.eval.calibration.fit import PerGroup, fit_decision
from proofreel.eval.publishing.exporting import compare, refit
from proofreel.eval.scoring.predictions import Prediction
from proofreel.models.decision.calibrator import sigmoid


def rows_of(margins, seed=0, **changes) -> list[Prediction]:
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random(len(margins)) < 0.5, "supported", "refuted")
    base: dict[str, Any] = {"split": "calibration", "role": "", "origin": "", "modality": "video"} | changes
    return [
        Prediction(
            pair_id=str(i),
            margin=float(np.float32(m)),
            p_supported=float(sigmoid(m)),
            label=str(y),  # type: ignore[arg-type]
            group=f"g{i // 4}",
            error="gone" if math.isnan(m) else None,
            **base,
        )
        for i, (m, y) in enumerate(zip(margins, labels, strict=True))
    ]


@pytest.mark.parametrize(
    ("dtype", "shift", "same"),
    [("float32", 9e-5, True), ("float32", 3e-4, False), ("bfloat16", 0.04, True), ("bfloat16", 1.0, False)],
)
def test_margins_are_the_same_within_the_tolerance_of_their_precision(dtype, shift, same):
    margins = np.linspace(-1, 1, 9)
    moved = margins.copy()
    moved[4] += shift
    found = compare(rows_of(margins), rows_of(moved), dtype)
    assert found.same is same
    assert (found.n, found.n_failed) == (9, 0)
    assert found.max_difference == pytest.approx(shift, rel=1e-3)


def test_a_row_that_fails_only_once_is_a_change_and_one_that_always_fails_is_none():
    margins = np.array([0.5, math.nan, -1.0])
    assert compare(rows_of(margins), rows_of(margins), "float32").same
    assert compare(rows_of(margins), rows_of(margins), "float32").n_failed == 1
    for before, after in ((margins, [0.5, 1.0, -1.0]), ([0.5, 1.0, -1.0], margins)):
        assert not compare(rows_of(before), rows_of(after), "float32").same


def test_comparing_nothing_or_other_rows_proves_nothing():
    with pytest.raises(CalibrationError, match="no row was scored"):
        compare(rows_of([math.nan]), rows_of([math.nan]), "float32")
    with pytest.raises(CalibrationError, match="same rows"):
        compare(rows_of([0.0, 1.0]), rows_of([0.0]), "float32")


@pytest.mark.parametrize("method", only(["platt"], ["none", "temperature", "platt", "beta", "auto"]))
def test_a_refit_on_the_same_margins_is_the_same_decision(method):
    rng = np.random.default_rng(1)
    rows = rows_of(rng.normal(size=400), seed=2)
    rows = [dataclasses.replace(r, margin=float(np.float32(r.margin + (r.label == "supported")))) for r in rows]
    rows = [dataclasses.replace(r, role="ab"[i % 2]) for i, r in enumerate(rows)]
    objectives = ["recall_at:0.6", "f1", "cost:5:1"]
    options: dict[str, Any] = {"abstain": ("max_abstention", 0.3), "prior": 0.2}
    if method == "platt":
        options["per_group"] = PerGroup("role", 50)
    if method in ("temperature", "beta"):
        options["risks"] = [("miss_rate", 0.6, 0.1)]
    first = fit_decision(rows, method, objectives, {"split": "calibration"}, **options)  # type: ignore[arg-type]
    assert refit(first, rows, {"split": "calibration"}, "again") == first
