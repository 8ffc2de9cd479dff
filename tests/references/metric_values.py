"""What other libraries compute on three small data sets, written to metric_values.json beside this file.

The tests read the JSON; this script is needed only to make it again. It was run with the versions recorded there:

    pip install --no-deps --target refs relplot==1.0.3 seaborn deprecation uncertainty-calibration==0.1.4 \
        parameterized torchmetrics==1.9.0 lightning-utilities torch-uncertainty==0.13.0 \
        model-diagnostics==1.5.0 polars==2.1.0 polars-runtime-32==2.1.0 narwhals
    git clone https://github.com/IML-DKFZ/fd-shifts   # its analysis/rc_stats.py alone, both __init__.py emptied
    PYTHONPATH=refs:fd-shifts python tests/references/metric_values.py <commit of fd-shifts>
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

N_BINS = 10
PACKAGES = ("relplot", "uncertainty-calibration", "torchmetrics", "torch-uncertainty", "model-diagnostics")


def data_sets() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Overconfident probabilities with labels: all distinct, calibrated, and heavily tied. None lies on a bin edge."""
    rng = np.random.default_rng(20240607)
    margins = rng.normal(0, 1.5, 240)
    p = 1 / (1 + np.exp(-margins))
    sharp = 1 / (1 + np.exp(-2.5 * margins))
    tied = np.round(sharp * 10).clip(0, 9) / 10 + 0.05 - 0.1 * (sharp > 0.95)
    return {
        "overconfident": (np.round(sharp, 7), (rng.random(240) < p).astype(int)),
        "calibrated": (np.round(p, 7), (rng.random(240) < p).astype(int)),
        "tied": (np.round(tied.clip(0.05, 0.95), 2), (rng.random(240) < p).astype(int)),
    }


def of_relplot(p: np.ndarray, y: np.ndarray) -> dict[str, float]:
    relplot = importlib.import_module("relplot")
    return {"smooth_ece": relplot.smECE(p, y)} | {
        f"smooth_ece_at_{sigma}": relplot.smECE_sigma(p, y, sigma) for sigma in (0.02, 0.05, 0.1)
    }


def of_uncertainty_calibration(p: np.ndarray, y: np.ndarray) -> dict[str, float]:
    library = importlib.import_module("calibration.utils")
    two = np.stack([1 - p, p], axis=1)
    np.random.seed(0)
    rows = library.bin(list(zip(p, y, strict=True)), library.get_equal_prob_bins(p, N_BINS))
    values = {
        "ece_event": library.get_ece(p, y, num_bins=N_BINS, mode="marginal"),
        "ece_top_label": library.get_ece(two, y, num_bins=N_BINS),
        "ece_debiased_resampled": library.normal_debiased_ce(rows, resamples=200_000),
    }
    if len(np.unique(p)) == len(p):
        values["ece_event_mass"] = library.lower_bound_scaling_ce(p, y, p=1, debias=False, num_bins=N_BINS)
        values["rms_ce_debiased"] = library.lower_bound_scaling_ce(p, y, p=2, debias=True, num_bins=N_BINS)
    return values


def of_torchmetrics(p: np.ndarray, y: np.ndarray) -> dict[str, float]:
    torch, library = importlib.import_module("torch"), importlib.import_module("torchmetrics.functional.classification")
    scores, labels = torch.tensor(p, dtype=torch.float64), torch.tensor(y)
    return {
        "ece_event": library.binary_calibration_error(scores, labels, n_bins=N_BINS),
        "mce": library.binary_calibration_error(scores, labels, n_bins=N_BINS, norm="max"),
        "auc": library.binary_auroc(scores, labels),
        "ap": library.binary_average_precision(scores, labels),
        "f1": library.binary_f1_score(scores, labels, threshold=0.499),
        "mcc": library.binary_matthews_corrcoef(scores, labels, threshold=0.499),
        "specificity": library.binary_specificity(scores, labels, threshold=0.499),
    }


def of_torch_uncertainty(p: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Its orders inside ties are the sort's, so only data without ties are asked. Read as one file: the package's
    __init__ wants every optional dependency."""
    if len(np.unique(np.maximum(p, 1 - p))) < len(p):
        return {}
    torch, root = importlib.import_module("torch"), importlib.metadata.distribution("torch-uncertainty")
    path = root.locate_file("torch_uncertainty/metrics/classification/risk_coverage.py")
    spec = importlib.util.spec_from_file_location("risk_coverage", str(path))
    assert spec
    assert spec.loader
    library = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(library)
    values = {}
    for name, metric in {"aurc_trapezoid": library.AURC(), "risk_at_0.8": library.RiskAt80Cov()}.items():
        metric.update(torch.tensor(p, dtype=torch.float64), torch.tensor(y))
        values[name] = metric.compute()
    return values


def of_fd_shifts(p: np.ndarray, y: np.ndarray) -> dict[str, float]:
    sys.modules["numpy"].__dict__.setdefault("trapz", np.trapezoid)  # it was written for NumPy 1
    mixin = importlib.import_module("fd_shifts.analysis.rc_stats").RiskCoverageStatsMixin
    stats = mixin()
    stats.AUC_DISPLAY_SCALE = 1
    stats.confids, stats.labels = np.maximum(p, 1 - p), y
    stats.residuals = ((p >= 0.5) != y).astype(float)
    return {"aurc_threshold": stats.aurc, "e_aurc_threshold_analytic": stats.eaurc, "augrc": stats.augrc}


def of_model_diagnostics(p: np.ndarray, y: np.ndarray) -> dict[str, float]:
    library = importlib.import_module("model_diagnostics.scoring")
    parts = library.decompose(y_obs=y, y_pred=p, scoring_function=library.SquaredError())
    names = ("miscalibration", "discrimination", "uncertainty", "score")
    return {f"corp_{name}": parts[name].item() for name in names}


def main() -> None:
    """Compute everything and write it down with the versions."""
    sources = {
        "relplot": of_relplot,
        "uncertainty-calibration": of_uncertainty_calibration,
        "torchmetrics": of_torchmetrics,
        "torch-uncertainty": of_torch_uncertainty,
        "fd-shifts": of_fd_shifts,
        "model-diagnostics": of_model_diagnostics,
    }
    versions = {name: importlib.metadata.version(name) for name in PACKAGES} | {"fd-shifts": sys.argv[1]}
    written: dict[str, Any] = {"versions": versions, "n_bins": N_BINS, "data": {}}
    for name, (p, y) in data_sets().items():
        values = {source: {k: float(v) for k, v in of(p, y).items()} for source, of in sources.items()}
        written["data"][name] = {"p": p.tolist(), "y": y.tolist(), "values": values}
    Path(__file__).with_suffix(".json").write_text(json.dumps(written) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
