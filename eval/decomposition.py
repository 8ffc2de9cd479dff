"""The Brier score taken apart: how far from calibrated, how well the rows are told apart, how hard they are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.isotonic import IsotonicRegression

from .calibration_error import N_BINS, Binning, bin_index, brier, reliability_bins
from .checks import checked_probabilities


class Murphy(NamedTuple):
    """Parts with reliability - resolution + uncertainty + within_bin = the Brier score, exactly."""

    reliability: float
    resolution: float
    uncertainty: float
    within_bin: float


class Corp(NamedTuple):
    """Parts with miscalibration - discrimination + uncertainty = the Brier score, exactly; none is negative."""

    miscalibration: float
    discrimination: float
    uncertainty: float


def murphy_decomposition(p: ArrayLike, labels: ArrayLike, n_bins: int = N_BINS, binning: Binning = "width") -> Murphy:
    """Reliability, resolution and uncertainty over bins (Murphy, 1973), and what binning leaves over.

    reliability = sum n_b / n (p_b - y_b)^2, resolution = sum n_b / n (y_b - y)^2, uncertainty = y (1 - y). Murphy's
    three parts add up only if all p of a bin are equal; `within_bin`, the mean of (p - p_b)^2 - 2 (p - p_b)(y - y_b),
    makes up the rest (Stephenson et al., 2008). NaN for n = 0.
    """
    p, labels = checked_probabilities(p, labels)
    if not len(p):
        return Murphy(*[np.nan] * 4)
    bins = reliability_bins(p, labels, n_bins, binning)
    index = bin_index(p, n_bins, binning)
    mean_p, mean_y, rate = bins.mean_p[index], bins.mean_y[index], np.mean(labels)
    inside = (p - mean_p) ** 2 - 2 * (p - mean_p) * (labels - mean_y)
    parts = (np.mean((mean_p - mean_y) ** 2), np.mean((mean_y - rate) ** 2), rate * (1 - rate), np.mean(inside))
    return Murphy(*map(float, parts))


def corp_decomposition(p: ArrayLike, labels: ArrayLike) -> Corp:
    """Miscalibration, discrimination and uncertainty without bins (Dimitriadis, Gneiting and Jordan, 2021).

    The isotonic fit of the labels on p stands in for calibrated probabilities: miscalibration is what it would gain,
    discrimination what it gains over the bare positive rate. NaN for n = 0.
    """
    p, labels = checked_probabilities(p, labels)
    if not len(p):
        return Corp(*[np.nan] * 3)
    recalibrated = IsotonicRegression(y_min=0, y_max=1).fit_transform(p, labels)
    before, after, constant = (brier(q, labels) for q in (p, recalibrated, np.full(len(p), np.mean(labels))))
    return Corp(before - after, constant - after, constant)
