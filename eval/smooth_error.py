"""Smooth calibration error: no bins, and the smoothing width chosen by the data (Blasiok and Nakkiran, 2023).

With residuals r_i = y_i - p_i and, as kernel K, the Gaussian of width sigma reflected at 0 and 1, smECE(sigma) is the
integral over t in [0, 1] of |1/n sum of K(t, p_i) r_i|. It falls as sigma grows; the smooth error is its value where it
equals sigma. Reflecting makes the cosines of [0, 1] the kernel's eigenfunctions, so smoothing is a factor
exp(-(pi k sigma)^2 / 2) on the k-th cosine coefficient: one transform serves every sigma.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import dct, idct

from .calibration_error import sum_by_bin
from .checks import Floats, checked_probabilities

N_CELLS = 4096  # residuals are shared between the two nearest cell centres
_N_HALVINGS = 24


def smooth_ece(p: ArrayLike, labels: ArrayLike) -> float:
    """The smooth calibration error (smECE), within about 1 / 4096. NaN for n = 0.

    Between 0 and 1 like a binned error, and what `relplot` computes, which stops its search for sigma earlier.
    """
    return float(_smooth_ece(*checked_probabilities(p, labels)))


def smooth_ece_at(p: ArrayLike, labels: ArrayLike, sigma: float) -> float:
    """smECE(sigma) at a given smoothing width. NaN for n = 0."""
    p, labels = checked_probabilities(p, labels)
    return float(_smoothed(_coefficients(p, labels), np.asarray(sigma))) if len(p) else np.nan


def _smooth_ece(p: Floats, y: NDArray) -> Floats:
    """Labels of shape (n,) or (draws, n): shape () or (draws,)."""
    if not len(p):
        return np.full(y.shape[:-1], np.nan)
    coefficients = _coefficients(p, y)
    low, high = np.zeros(y.shape[:-1]), np.ones(y.shape[:-1])
    for _ in range(_N_HALVINGS):
        middle = (low + high) / 2
        is_below = _smoothed(coefficients, middle) > middle
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return (low + high) / 2


def _coefficients(p: Floats, y: NDArray) -> Floats:
    """Cosine coefficients of the residuals' mass on the cells, shape (..., cells)."""
    residuals = (y - p) / len(p)
    place = (p * N_CELLS - 0.5).clip(0, N_CELLS - 1)  # beyond the outer centres lies their own mirror image
    lower = np.floor(place).astype(np.int64).clip(max=N_CELLS - 2)
    share = place - lower
    mass = sum_by_bin(lower, residuals * (1 - share), N_CELLS) + sum_by_bin(lower + 1, residuals * share, N_CELLS)
    return np.asarray(dct(mass, axis=-1))


def _smoothed(coefficients: Floats, sigma: Floats) -> Floats:
    factors = np.exp(-((np.pi * np.arange(N_CELLS) * sigma[..., None]) ** 2) / 2)
    return np.sum(np.abs(np.asarray(idct(coefficients * factors, axis=-1))), axis=-1)
