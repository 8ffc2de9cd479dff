"""What share of claims is supported, from the verdicts of a verifier that errs.

Scores such as InfoP, MultiFactScore and attribution precision are shares of `supported` verdicts. Where theta of the
claims are supported, a verifier with sensitivity Se and specificity Sp calls theta Se + (1 - theta)(1 - Sp) of them so:
the share of verdicts is off unless the two errors cancel. Rogan and Gladen (1978) solve for theta. It takes for granted
that Se and Sp are the same on the sample as on the rows they were measured on; other kinds of claims break it.

- `corrected_proportion`: from a stored operating point, Lang and Reiczigel's interval (2014), which takes in the errors
  of the sample and of Se and Sp. Rows of one group are worth fewer independent ones; where the groups of the sample, or
  clustered intervals of Se and Sp, are known, sizes are replaced by effective ones (Kish, 1965, design effect).
- `corrected_by_bootstrap`: where the calibration rows are at hand. Groups of the sample and of the calibration rows are
  resampled, which also keeps the dependence between Se and Sp.
- `soft_proportion`: the mean calibrated probability. Right if p is calibrated on this very population.

`estimate_prior` finds the share of supported rows where no row is labelled. It assumes label shift, as does restating
probabilities for another share: only the share of supported rows differs from the fit, not what supported and other
rows look like. Where the claims themselves are of another kind (harder negatives, other sources) this does not hold,
and nothing in unlabelled rows would show it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from ...core import CalibrationError
from ...models.decision import OperatingPoint, StoredInterval, log_odds, prior_offset, sigmoid
from ..metrics import Confusions, Floats, recall, specificity
from ..uncertainty import interval_of, resample
from .thresholds import outcomes


@dataclass(frozen=True)
class Proportion:
    """An estimated share and its interval, both clipped to [0, 1].

    Attributes:
        value: the share.
        unclipped: before clipping; below 0 or above 1 where chance, or another population, made the verdicts fewer or
            more than Se and Sp allow.
        low, high: bounds, NaN where they are undefined (fewer than two groups).
        apparent: the share of `supported` verdicts; for the soft score the mean probability.
        n: rows of the sample; n_groups: groups among them, None where not known.
        n_effective: independent rows the sample is worth, where that was needed.
    """

    value: float
    unclipped: float
    low: float
    high: float
    level: float
    apparent: float
    n: int
    n_groups: int | None
    method: str
    n_effective: float | None = None


def rogan_gladen(apparent: ArrayLike, sensitivity: ArrayLike, specificity: ArrayLike) -> Floats:
    """(apparent + specificity - 1) / (sensitivity + specificity - 1), unclipped; NaN where the divisor is not positive.

    Takes scalars or arrays that broadcast.
    """
    apparent, youden = np.asarray(apparent, dtype=np.float64), np.add(sensitivity, specificity) - 1.0
    above = np.add(apparent, specificity) - 1.0
    above, youden = np.broadcast_arrays(above, youden)
    return np.divide(above, youden, out=np.full(above.shape, np.nan), where=youden > 0)


def corrected_proportion(
    n_supported: int, n: int, point: OperatingPoint, level: float = 0.95, n_effective: float | None = None
) -> Proportion:
    """The share of claims that are supported, from counts of verdicts and a stored operating point.

    Args:
        n_supported: `supported` verdicts among the `n` of the sample, at this point's threshold.
        n_effective: independent rows the sample is worth, at most `n`; all `n` where None. See `corrected_rows`.

    Raises:
        CalibrationError: no verdicts, or a verifier that does no better than chance at this point.
    """
    if not 0 <= n_supported <= n or n < 1:
        raise CalibrationError(
            f"proportion: needs 0 <= supported <= n and n > 0, got {n_supported} of {n}; count the verdicts again"
        )
    where = f"proportion at {point.name}"
    _informative(point.sensitivity, point.specificity, where)
    apparent, worth = n_supported / n, float(n) if n_effective is None else min(n_effective, float(n))
    unclipped = float(rogan_gladen(apparent, point.sensitivity, point.specificity))
    n_se = _effective(point.n_positive, point.sensitivity, point.sensitivity_interval, point.n_groups)
    n_sp = _effective(point.n_negative, point.specificity, point.specificity_interval, point.n_groups)
    low, high = lang_reiczigel(apparent, worth, point.sensitivity, n_se, point.specificity, n_sp, level)
    value = float(np.clip(unclipped, 0, 1))
    return Proportion(value, unclipped, low, high, level, apparent, n, None, "lang_reiczigel", worth)


def corrected_rows(p: ArrayLike, groups: ArrayLike, point: OperatingPoint, level: float = 0.95) -> Proportion:
    """As `corrected_proportion`, from the probabilities of the sample and their groups, both shape (n,).

    Raises:
        CalibrationError: NaN (leave failed rows out), no rows, or a verifier that does no better than chance.
    """
    p, groups = _rows(p, groups, "proportion")
    is_supported = point.decide(p)
    proportion = corrected_proportion(
        int(np.sum(is_supported)), len(p), point, level, effective_size(is_supported, groups)
    )
    return dataclasses.replace(proportion, n_groups=len(np.unique(groups)))


def corrected_by_bootstrap(
    p: ArrayLike,
    groups: ArrayLike,
    threshold: float,
    calibration_p: ArrayLike,
    calibration_labels: ArrayLike,
    calibration_groups: ArrayLike,
    n_draws: int = 1_000,
    seed: int = 0,
    level: float = 0.95,
) -> Proportion:
    """As `corrected_rows`, with the rows that sensitivity and specificity come from: percentile bootstrap of both.

    Draws in which a class is missing, or in which the verifier does no better than chance, are left out.

    Args:
        p, groups: of the sample, shape (n,).
        calibration_p, calibration_labels, calibration_groups: shape (m,); labels 1 or 0.
    """
    p, groups = _rows(p, groups, "proportion")
    other_p, other_groups = _rows(calibration_p, calibration_groups, "proportion, calibration rows")
    labels = np.asarray(calibration_labels, dtype=np.float64)
    if labels.shape != other_p.shape or not np.isin(labels, (0, 1)).all():
        raise CalibrationError(
            f"proportion: needs a label of 0 or 1 per calibration row, got {labels.shape} for {other_p.shape}; align"
        )
    sample, other = resample(groups, n_draws, seed), resample(other_groups, n_draws, seed + 1)
    is_supported, cells = p >= threshold, outcomes(other_p >= threshold, labels)
    unclipped = float(_theta(np.array([is_supported.mean()]), cells.sum(axis=0)[None])[0])
    if np.isnan(unclipped):
        tp, fp, tn, fn = cells.sum(axis=0)
        _informative(tp / max(tp + fn, 1), tn / max(tn + fp, 1), "proportion")
    n_supported, n_drawn = sample.sums(np.stack([is_supported, np.ones(len(p))], axis=1)).T
    interval = interval_of(
        np.clip(_theta(n_supported / n_drawn, other.sums(cells)), 0, 1),
        unclipped,
        level,
        n_groups=min(sample.n_groups, other.n_groups),
    )
    value = float(np.clip(unclipped, 0, 1))
    return Proportion(
        value,
        unclipped,
        interval.low,
        interval.high,
        level,
        float(is_supported.mean()),
        len(p),
        sample.n_groups,
        "bootstrap",
    )


def soft_proportion(
    p: ArrayLike, groups: ArrayLike, n_draws: int = 1_000, seed: int = 0, level: float = 0.95
) -> Proportion:
    """The mean probability with a group-clustered interval. It takes the calibration as given.

    Args:
        p: calibrated probabilities, shape (n,). groups: shape (n,).
    """
    p, groups = _rows(p, groups, "soft proportion")
    drawn = resample(groups, n_draws, seed)
    total, n = drawn.sums(np.stack([p, np.ones(len(p))], axis=1)).T
    mean = float(np.mean(p))
    interval = interval_of(total / n, mean, level, n_groups=drawn.n_groups)
    return Proportion(mean, mean, interval.low, interval.high, level, mean, len(p), drawn.n_groups, "soft")


def lang_reiczigel(
    apparent: float,
    n: float,
    sensitivity: float,
    n_positive: float,
    specificity: float,
    n_negative: float,
    level: float = 0.95,
) -> tuple[float, float]:
    """Confidence bounds of the true share, clipped to [0, 1]; sizes need not be whole.

    A normal interval with observations added: z^2 to the sample, half of them supported, and one right and one wrong to
    each of the two classes; its centre is moved by what the curvature of the quotient costs (Lang and Reiczigel, 2014).
    """
    z = float(ndtri((1 + level) / 2))
    size, size_se, size_sp = n + z**2, n_positive + 2, n_negative + 2
    share = (n * apparent + z**2 / 2) / size
    se, sp = (n_positive * sensitivity + 1) / size_se, (n_negative * specificity + 1) / size_sp
    youden = se + sp - 1
    if youden <= 0:
        return 0.0, 1.0  # so few rows that the added ones leave no information
    theta = (share + sp - 1) / youden
    variance_se, variance_sp = se * (1 - se) / size_se, sp * (1 - sp) / size_sp
    shift = 2 * z**2 * (theta * variance_se - (1 - theta) * variance_sp)
    error = np.sqrt(share * (1 - share) / size + theta**2 * variance_se + (1 - theta) ** 2 * variance_sp) / youden
    low, high = np.clip([theta + shift - z * error, theta + shift + z * error], 0, 1)
    return float(low), float(high)


def effective_size(values: ArrayLike, groups: ArrayLike) -> float:
    """How many independent rows these are worth for their mean: n over the design effect, between 1 and n.

    The variance of the mean is that between groups, sum over groups of (sum of deviations)^2 / n^2 times G / (G - 1).
    Values that are all equal say nothing about it: then a group is worth one row. So is a single group.
    """
    values, (names, group) = np.asarray(values, dtype=np.float64), np.unique(np.asarray(groups), return_inverse=True)
    n, n_groups = len(values), len(names)
    spread = float(np.var(values))
    if spread == 0 or n_groups < 2:
        return float(n_groups)
    totals = np.bincount(group, values - values.mean())
    variance = float(np.sum(totals**2)) / n**2 * n_groups / (n_groups - 1)
    return float(np.clip(spread / variance, 1, n)) if variance > 0 else float(n)


def _effective(n: int, share: float, interval: StoredInterval | None, n_groups: int | None) -> float:
    """Independent rows behind a stored share, from the width of its clustered interval; at most `n`."""
    if interval is None:
        return float(n)
    error = (interval.high - interval.low) / (2 * float(ndtri((1 + interval.level) / 2)))
    if error == 0:  # no error in any group: each is worth one row
        return float(min(n, n_groups or n))
    return float(np.clip(share * (1 - share) / error**2, 1, n))


def _theta(apparent: Floats, cells: Floats) -> Floats:
    """Rogan-Gladen from shares, shape (draws,), and counts (tp, fp, tn, fn), shape (draws, 4); NaN where undefined."""
    counts = Confusions(*cells.T)
    return rogan_gladen(apparent, recall(counts), specificity(counts))


def _informative(sensitivity: float, specificity: float, where: str) -> None:
    if not sensitivity + specificity > 1:
        raise CalibrationError(
            f"{where}: the verdicts say nothing about the share, got sensitivity {sensitivity:.4f} and specificity "
            f"{specificity:.4f}, whose sum must exceed 1; use another operating point or verifier"
        )


def _rows(p: ArrayLike, groups: ArrayLike, where: str) -> tuple[Floats, np.ndarray]:
    p, groups = np.asarray(p, dtype=np.float64), np.asarray(groups)
    if p.ndim != 1 or p.shape != groups.shape or not len(p):
        raise CalibrationError(
            f"{where}: needs rows and a group for each, got {p.shape} and {groups.shape}; align them"
        )
    if not np.all((p >= 0) & (p <= 1)):
        raise CalibrationError(f"{where}: p must be probabilities, got NaN or others; leave failed rows out, calibrate")
    return p, groups


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
