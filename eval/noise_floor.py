"""Could a calibration error be chance? What a perfectly calibrated model would show, and Spiegelhalter's test.

Both take rows as independent. Claims about one video are not, so the true floor is higher and the true p value larger
than these: what lies below the floor is no evidence of miscalibration, what lies above it is weaker than it looks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from . import calibration_error as errors
from .checks import Floats, checked_probabilities, divide
from .smooth_error import _smooth_ece, smooth_ece

Statistic = Callable[..., float]
_CELLS_AT_ONCE = 4_000_000  # labels held at once: draws x rows
_OF_DRAWS: dict[Statistic, Callable[..., Floats]] = {
    errors.ece_event: errors._ece,
    errors.ece_top_label: errors._ece_top_label,
    errors.ece_classwise: errors._ece_classwise,
    errors.mce: errors._mce,
    errors.ece_debiased: errors._ece_debiased,
    errors.squared_ce_debiased: errors._squared_ce_debiased,
    smooth_ece: _smooth_ece,
}


class NoiseFloor(NamedTuple):
    """What a perfectly calibrated model with these probabilities would show: mean, and the value 5% of draws exceed."""

    mean: float
    high: float
    n_draws: int


class CalibrationTest(NamedTuple):
    """A standard normal statistic and its two-sided p value."""

    z: float
    p_value: float


def noise_floor(
    p: ArrayLike, n_draws: int = 1_000, seed: int = 0, statistic: Statistic = errors.ece_event, **options: Any
) -> NoiseFloor:
    """The statistic's mean and 95th percentile over labels drawn as Bernoulli(p).

    Args:
        p: probabilities, shape (n,); the labels that were observed play no part.
        seed: the same seed gives the same floor.
        statistic: takes (p, labels, **options); those of `calibration_error` and `smooth_ece` are computed for many
            draws at once, any other draw by draw.
        options: `n_bins`, `binning`, `min_count`.

    Returns:
        NaN for n = 0.
    """
    p = np.sort(checked_probabilities(p, np.zeros(np.shape(p)))[0])  # sorted rows are binned without being moved
    if not len(p):
        return NoiseFloor(np.nan, np.nan, n_draws)
    rng, single = np.random.default_rng(seed), p.astype(np.float32)
    at_once = max(1, _CELLS_AT_ONCE // len(p))
    values = []
    for start in range(0, n_draws, at_once):
        size = min(at_once, n_draws - start)
        values.append(_values(p, rng.random((size, len(p)), dtype=np.float32) < single, statistic, options))
    drawn = np.concatenate(values)
    return NoiseFloor(float(np.mean(drawn)), float(np.quantile(drawn, 0.95)), n_draws)


def spiegelhalter(p: ArrayLike, labels: ArrayLike) -> CalibrationTest:
    """Whether the Brier score is what calibrated probabilities would give (Spiegelhalter, 1986).

    z = sum (y - p)(1 - 2p) / sqrt(sum (1 - 2p)^2 p (1 - p)), standard normal if P(y = 1) = p and rows are independent.
    NaN where the variance is 0: no rows, or every p is 0, 1 or 0.5.
    """
    p, labels = checked_probabilities(p, labels)
    tilt = 1 - 2 * p
    z = float(divide(np.sum((labels - p) * tilt), np.sqrt(np.sum(tilt**2 * p * (1 - p)))))
    return CalibrationTest(z, float(2 * ndtr(-abs(z))))


def _values(p: Floats, labels: NDArray[np.bool_], statistic: Statistic, options: dict[str, Any]) -> Floats:
    """Of labels of shape (draws, n): shape (draws,)."""
    of_draws = _OF_DRAWS.get(statistic)
    if of_draws is None:
        return np.array([statistic(p, row, **options) for row in labels])
    return of_draws(p, labels, **options)
