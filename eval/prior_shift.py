"""Which share of rows is supported where no row is labelled, and probabilities restated for another share.

Both assume label shift: only the share of supported rows differs from the fit, not what supported and other rows look
like. Where the claims themselves are of another kind (harder negatives, other sources) neither holds, and nothing in
unlabelled rows would show it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..core.errors import CalibrationError
from ..models.calibration import prior_offset, sigmoid
from ..models.calibration_maps import log_odds
from .checks import Floats


@dataclass(frozen=True)
class PriorEstimate:
    """The outcome of `estimate_prior`.

    Attributes:
        prior: estimated share of supported rows.
        converged: did the last step move it by less than the tolerance?
        steps: steps taken.
        last_change: how far the last step moved it.
        n: rows it was estimated on.
    """

    prior: float
    converged: bool
    steps: int
    last_change: float
    n: int


def shift_prior(p: ArrayLike, positive_rate: float, prior: float) -> Floats:
    """Probabilities that hold at `positive_rate` restated for `prior` (Elkan, 2001, theorem 2); any shape, NaN stays.

    `Calibration.with_prior` does the same from margins, and goes on to log-odds where p is already rounded to 0 or 1.
    """
    offset = prior_offset(positive_rate, prior)
    with np.errstate(divide="ignore"):
        return sigmoid(log_odds(p) + offset)


def estimate_prior(
    p: ArrayLike, positive_rate: float, tolerance: float = 1e-8, max_steps: int = 10_000
) -> PriorEstimate:
    """Share of supported rows among unlabelled ones by EM (Saerens, Latinne and Decaestecker, 2002, section 2.2).

    Each step restates the probabilities for the present share and takes their mean as the next. The likelihood rises
    with every step and has one maximum; near 0 and 1 the steps are small, so look at `converged`.

    Args:
        p: calibrated P(supported) at `positive_rate`, (n,), without NaN.
        positive_rate: the rate the calibration was fitted at (`Calibration.positive_rate`).
        tolerance: stop where a step moves the share by less.
        max_steps: stop after so many steps, unconverged.

    Raises:
        CalibrationError: no rows, values that are no probabilities, or a rate not inside (0, 1).
    """
    p = np.asarray(p, dtype=np.float64)
    if p.ndim != 1 or len(p) == 0 or not ((p >= 0) & (p <= 1)).all():
        raise CalibrationError(
            f"prior: needs at least one probability in [0, 1] and no NaN, got shape {p.shape}; leave failed rows out"
        )
    prior_offset(positive_rate, 0.5)  # refuses a rate that is none
    share, change, step = float(positive_rate), np.inf, 0
    while step < max_steps and change >= tolerance:
        # Ratios rather than log-odds: they stay defined when the share reaches 0 or 1.
        supported, other = share / positive_rate * p, (1 - share) / (1 - positive_rate) * (1 - p)
        following = float(np.mean(supported / (supported + other)))
        change, share, step = abs(following - share), following, step + 1
    return PriorEstimate(share, bool(change < tolerance), step, change, len(p))
