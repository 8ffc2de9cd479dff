"""A decision for a place where another share of claims is supported: its thresholds chosen again for that share.

Probabilities move with the share (`Calibration.with_prior`). Thresholds are chosen again on the rows that the decision
was fitted on, each class weighted to the stated share; these counts the decision keeps as its `Curve`. A guaranteed
threshold keeps its verdicts instead: a promise about the rows of one class holds whatever their share, a promise about
all rows or about verdicts does not, and is withdrawn. What does not hold is said in the point's `caution`.
"""

from __future__ import annotations

import dataclasses
import math
from statistics import NormalDist

import numpy as np

from ...core import CalibrationError
from .bands import best_pair, counts_of_band, sides_of
from .calibration import Calibration
from .calibrator import log_odds, sigmoid
from .counts import stated
from .criteria import ALL_NEGATIVE, best_point, criterion_of, cuts_between
from .curve import Curve
from .stored import PER_CLASS, StoredInterval
from .thresholds import AbstainBand, Decision, OperatingPoint


def with_prior(decision: Decision | None, prior: float | None) -> Decision:
    """The decision with probabilities and thresholds stated for another positive rate; None: the rate of the fit.

    Raises:
        CalibrationError: no calibration, or one that does not know its rate; a rate outside (0, 1).
    """
    if decision is None:
        raise CalibrationError(
            f"prior: an uncalibrated verifier cannot be corrected to a positive rate, got {prior!r}; calibrate it first"
        )
    fitted = decision.fitted or decision
    calibration = fitted.calibration.with_prior(prior)
    if prior == fitted.calibration.prior:
        return fitted
    moved = calibration.offset - fitted.calibration.offset
    points = tuple(_point(point, fitted.curve, calibration, moved) for point in fitted.points)
    band = fitted.abstain and _band(fitted.abstain, fitted.curve, calibration, moved)
    return dataclasses.replace(fitted, calibration=calibration, points=points, abstain=band, fitted=fitted)


def _point(point: OperatingPoint, curve: Curve | None, calibration: Calibration, moved: float) -> OperatingPoint:
    if point.objective == "risk_control":
        return _guaranteed(point, calibration, moved)
    if curve is None:
        caution = "thresholds were not chosen for it, and their stored numbers are not of it: calibrate again."
        return dataclasses.replace(point, interval=None, caution=caution)
    p, tp, fp = curve.above(calibration.offset)
    try:
        chosen = best_point(
            criterion_of(point),
            cuts_between(p, tp.astype(np.float64), fp.astype(np.float64)),
            point.name,
            calibration.prior,
        )
    except CalibrationError:
        return _nothing(point, curve, calibration)
    return dataclasses.replace(
        chosen,
        positive_rate=point.positive_rate,
        sensitivity_interval=_around(
            chosen.sensitivity, point.sensitivity_interval, point.sensitivity, point.n_positive
        ),
        specificity_interval=_around(
            chosen.specificity, point.specificity_interval, point.specificity, point.n_negative
        ),
        n_groups=point.n_groups,
    )


def _around(rate: float, fitted: StoredInterval | None, fitted_rate: float, n: int) -> StoredInterval | None:
    """A normal interval of a rate at another cut, on as many independent rows as the fitted one's width speaks for."""
    if fitted is None or fitted.low == fitted.high:
        return None
    z = NormalDist().inv_cdf((1 + fitted.level) / 2)
    error = (fitted.high - fitted.low) / (2 * z)
    worth = min(max(fitted_rate * (1 - fitted_rate) / error**2, 1.0), float(n))
    reach = z * math.sqrt(rate * (1 - rate) / worth)
    return StoredInterval(max(rate - reach, 0.0), min(rate + reach, 1.0), fitted.level)


def _nothing(point: OperatingPoint, curve: Curve, calibration: Calibration) -> OperatingPoint:
    """No cut reaches the target at this share: nothing is called supported."""
    counts = stated(curve.counts(ALL_NEGATIVE, calibration.offset), calibration.prior)
    return dataclasses.replace(
        point,
        threshold=ALL_NEGATIVE,
        metric=math.nan,
        **counts._asdict(),
        interval=None,
        sensitivity_interval=None,
        specificity_interval=None,
        prior=calibration.prior,
        caution=f"{point.name} is out of reach at this share: no cut gets there, and nothing is called supported.",
    )


def _guaranteed(point: OperatingPoint, calibration: Calibration, moved: float) -> OperatingPoint:
    """The same verdicts; the promise where it is about rows of one class."""
    threshold = _moved(point.threshold, moved)
    rate = point.positive_rate if calibration.prior is None else calibration.prior
    counts = stated((point.tp, point.fp, point.tn, point.fn), rate)
    if calibration.prior is None:
        counts = stated(tuple(round(c) for c in counts), None)  # type: ignore[arg-type]  # of four, four
    point = dataclasses.replace(point, threshold=threshold, prior=calibration.prior, **counts._asdict())
    if point.guarantee is None or point.guarantee.risk in PER_CLASS:
        return point
    caution = (
        f"{point.name} promises nothing at this share: its guarantee was of all rows as calibrated, and is withdrawn."
    )
    return dataclasses.replace(point, guarantee=None, interval=None, caution=caution)


def _moved(threshold: float, by: float) -> float:
    """The threshold that gives the same verdicts on probabilities moved by this in log-odds."""
    return float(sigmoid(log_odds(threshold) + by)) if 0 < threshold < 1 else threshold


def _unpromised(band: AbstainBand, calibration: Calibration, moved: float) -> AbstainBand:
    """A guaranteed band: the same verdicts, its promise withdrawn, since it was of all rows as calibrated."""
    positive, negative = ("tp", "fn", "abstained_positive"), ("fp", "tn", "abstained_negative")
    counts = {name: float(getattr(band, name)) for name in (*positive, *negative)}
    if calibration.prior is not None:
        for names, share in ((positive, calibration.prior), (negative, 1 - calibration.prior)):
            own = sum(counts[name] for name in names)
            counts |= {name: counts[name] * share * band.n / own for name in names if own}
    return dataclasses.replace(
        band,
        support_at_or_above=_moved(band.support_at_or_above, moved),
        refute_at_or_below=_moved(band.refute_at_or_below, moved),
        prior=calibration.prior,
        guarantee=None,
        caution=(
            f"the abstain band of {band.objective} promises nothing at this share: its guarantee was of all rows as "
            "calibrated, and is withdrawn."
        ),
        **counts,  # type: ignore[arg-type]  # restated counts need not be whole
    )


def _band(band: AbstainBand, curve: Curve | None, calibration: Calibration, moved: float) -> AbstainBand:
    band = dataclasses.replace(band, selective_accuracy_interval=None, coverage_interval=None)
    if band.objective == "selective_accuracy_guaranteed":
        return _unpromised(band, calibration, moved)
    if curve is None:
        return band
    p, tp, fp = curve.above(calibration.offset)
    thresholds = cuts_between(p, tp.astype(np.float64), fp.astype(np.float64)).thresholds
    try:
        i, j = best_pair(sides_of(tp, fp, calibration.prior), band.objective, band.target)
        high, low = float(thresholds[i]), math.nextafter(float(thresholds[len(thresholds) - 1 - j]), -1.0)
    except CalibrationError:  # no band reaches it: nothing gets a verdict
        i, j, high, low = 0, 0, ALL_NEGATIVE, math.nextafter(0.0, -1.0)
    counts = counts_of_band(tp, fp, i, j, calibration.prior)
    return dataclasses.replace(
        band, support_at_or_above=high, refute_at_or_below=low, prior=calibration.prior, **counts
    )
