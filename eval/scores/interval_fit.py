"""Fitting where a claim holds: windows, averaging, thresholds and edges, for an allowed share of false alarms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ...core import CalibrationError
from ...models.verifier import IntervalRule, Localization, averaged
from .cgbench import Intervals, tiou_code

AVERAGED = (1, 3, 5, 7, 9)
EXTENDS_QUANTILES = (0.01, 0.03, 0.06, 0.1, 0.2, 0.3, 0.45)
"""Of the averages of windows that lie in a reference: how many of them an interval may leave out."""
TRIMS = (0.0, 0.125, 0.25, 0.375, 0.45)
"""Shares of a window's length."""
_FEWEST = 20


def fit_intervals(
    localizations: Mapping[str, Sequence[Localization]],
    references: Sequence[Intervals],
    false_alarms: float = 0.1,
) -> IntervalRule:
    """The rule with the greatest mean tIoU among those that name an interval for few claims that hold nowhere.

    Args:
        localizations: by windowing, one per claim and video, at any threshold: only their windows are looked at. The
            windows that fit best are chosen too. Videos apart from those the rule will search.
        references: where each claim holds, [[start_s, end_s], ...]; empty where it holds nowhere.
        false_alarms: the share of claims that hold nowhere for which an interval may be named here.

    Raises:
        CalibrationError: too few claims that hold somewhere or nowhere, or none that could be searched.
    """
    if not 0 < false_alarms < 1 or not localizations:
        raise CalibrationError(
            f"interval rule: needs windows, and a share of false alarms in (0, 1), got {sorted(localizations)} and "
            f"{false_alarms!r}; give both"
        )
    rules = [
        rule
        for windowing, found in localizations.items()
        for rule in _rules(windowing, found, references, false_alarms)
    ]
    return max(rules, key=lambda rule: rule.fitted_on["mean_tiou"])


def _rules(
    windowing: str, localizations: Sequence[Localization], references: Sequence[Intervals], false_alarms: float
) -> Iterator[IntervalRule]:
    """The best rule of each number of windows averaged."""
    rows = [(a, ref) for a, ref in zip(localizations, references, strict=True) if a.error is None]
    somewhere, nowhere = [(a, ref) for a, ref in rows if len(ref)], [a for a, ref in rows if not len(ref)]
    if min(len(somewhere), len(nowhere)) < _FEWEST:
        raise CalibrationError(
            f"interval rule: needs {_FEWEST} claims that hold somewhere and as many that hold nowhere, got "
            f"{len(somewhere)} and {len(nowhere)} in {windowing}; annotate more"
        )
    length_s = float(windowing.split(":")[1])
    for n in AVERAGED:
        greatest = np.sort([_averages(a, n).max() for a in nowhere])[::-1]
        found_at = float(np.nextafter(greatest[int(false_alarms * len(nowhere))], np.inf))
        inside = np.concatenate([_inside(a, ref, n) for a, ref in somewhere])
        if not len(inside):
            continue
        extends = sorted({min(float(q), found_at) for q in np.quantile(inside, EXTENDS_QUANTILES)})
        tried = [IntervalRule(windowing, n, found_at, at, trim * length_s) for at in extends for trim in TRIMS]
        means = [np.mean([_tiou(rule, a, ref) for a, ref in somewhere]) for rule in tried]
        best = tried[int(np.argmax(means))]
        reached = {
            "n_somewhere": len(somewhere),
            "n_nowhere": len(nowhere),
            "mean_tiou": float(max(means)),
            "false_alarms": float(np.mean([bool(best.intervals(a.windows)) for a in nowhere])),
        }
        yield IntervalRule(windowing, n, found_at, best.extends_at, best.trim_s, reached)


def _averages(localization: Localization, n: int) -> np.ndarray:
    return averaged(np.array([w.verdict.margin for w in localization.windows]), n)


def _inside(localization: Localization, reference: Intervals, n: int) -> np.ndarray:
    """Averages of windows whose middle lies where the claim holds."""
    spans = [(w.segment.start_s, w.segment.end_s or w.segment.start_s) for w in localization.windows]
    middles = [(start_s + end_s) / 2 for start_s, end_s in spans]
    kept = [any(start_s <= middle < end_s for start_s, end_s in reference) for middle in middles]
    return _averages(localization, n)[np.array(kept, dtype=bool)]


def _tiou(rule: IntervalRule, localization: Localization, reference: Intervals) -> float:
    return tiou_code([(i.start_s, i.end_s) for i in rule.intervals(localization.windows)], reference)
