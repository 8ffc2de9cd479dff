"""Fitting where a claim holds: windows, averaging, thresholds and edges, for an allowed share of false alarms."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...core import CalibrationError, media_name
from ...models.decision import JudgedWindow
from ...models.verifier import IntervalRule, Localization, averaged
from .cgbench import Intervals, tiou_code

AVERAGED = (1, 3, 5, 7, 9, 11, 13)
EXTENDS_QUANTILES = (0.01, 0.03, 0.06, 0.1, 0.2, 0.3, 0.45)
"""Of the averages of windows that lie in a reference: how many of them an interval may leave out."""
TRIMS = (0.0, 0.125, 0.25, 0.375, 0.45)
"""Shares of a window's length."""
_FEWEST = 20


@dataclass(frozen=True)
class _Claim:
    """One claim in one video, its windows' margins, and where it holds."""

    windows: Sequence[JudgedWindow]
    margins_W: NDArray[np.float64]
    reference: Intervals

    @property
    def video(self) -> str:
        return media_name(self.windows[0].segment)

    def greatest(self, n: int) -> float:
        """Average of n neighbouring windows."""
        return float(averaged(self.margins_W, n).max())

    def inside(self, n: int) -> NDArray[np.float64]:
        """Averages of windows whose middle lies where the claim holds."""
        spans = [(w.segment.start_s, w.segment.end_s or w.segment.start_s) for w in self.windows]
        middles = [(start_s + end_s) / 2 for start_s, end_s in spans]
        kept = [any(start_s <= middle < end_s for start_s, end_s in self.reference) for middle in middles]
        return averaged(self.margins_W, n)[np.array(kept, dtype=bool)]


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
        false_alarms: in another video, the expected share of the claims that hold nowhere for which an interval is
            named; see `found_at_most`.

    Raises:
        CalibrationError: too few videos, or claims that hold somewhere or nowhere, or none that could be searched.
    """
    if not 0 < false_alarms < 1 or not localizations:
        raise CalibrationError(
            f"interval rule: needs windows, and a share of false alarms in (0, 1), got {sorted(localizations)} and "
            f"{false_alarms!r}; give both"
        )
    rules = [_fitted(windowing, found, references, false_alarms) for windowing, found in localizations.items()]
    return max(rules, key=lambda rule: rule.fitted_on["mean_tiou"])


def found_at_most(greatest: Sequence[float], videos: Sequence[str], share: float) -> float:
    """The lowest threshold that few claims reach which hold nowhere, by conformal risk control over videos.

    A video's loss is the share of its claims that reach the threshold. With n videos and total loss S,
    (S + 1) / (n + 1) <= `share`: then the expected loss of another video is at most that, averaged over fits as well.

    Args:
        greatest: of each claim that holds nowhere.
        videos: of each claim, what is exchangeable.
        share: allowed.

    Raises:
        CalibrationError: so few videos that no threshold keeps it.
    """
    names, place, n_claims = np.unique(np.asarray(videos), return_inverse=True, return_counts=True)
    needed = math.ceil(1 / share - 1e-9) - 1
    if len(names) < needed:
        raise CalibrationError(
            f"interval rule: {share:g} false alarms need claims that hold nowhere in {needed} videos, got "
            f"{len(names)}; search more, or allow more"
        )
    order = np.argsort(greatest)[::-1]
    losses = np.cumsum(1 / n_claims[place[order]])
    allowed = share * (len(names) + 1) - 1
    first_over = int(np.searchsorted(losses, allowed + 1e-9, side="right"))
    return float(np.nextafter(np.asarray(greatest)[order[min(first_over, len(order) - 1)]], np.inf))


def _fitted(
    windowing: str, localizations: Sequence[Localization], references: Sequence[Intervals], false_alarms: float
) -> IntervalRule:
    """The best rule of some windows: the number averaged first, then how far intervals extend."""
    claims = [
        _Claim(a.windows, np.array([w.verdict.margin for w in a.windows]), ref)
        for a, ref in zip(localizations, references, strict=True)
        if a.error is None
    ]
    somewhere, nowhere = ([c for c in claims if bool(len(c.reference)) is holds] for holds in (True, False))
    if min(len(somewhere), len(nowhere)) < _FEWEST:
        raise CalibrationError(
            f"interval rule: needs {_FEWEST} claims that hold somewhere and as many that hold nowhere, got "
            f"{len(somewhere)} and {len(nowhere)} in {windowing}; annotate more"
        )
    best, reached = None, -1.0
    videos = [claim.video for claim in nowhere]
    for n in AVERAGED:
        found_at = found_at_most([claim.greatest(n) for claim in nowhere], videos, false_alarms)
        rule, mean = _extended(IntervalRule(windowing, n, found_at, found_at), somewhere)
        best, reached = (rule, mean) if best is None or mean > reached else (best, reached)
    assert best is not None
    for n in AVERAGED:
        if n != best.n_averaged:
            rule, mean = _extended(dataclasses.replace(best, n_extended=n), somewhere)
            best, reached = (rule, mean) if mean > reached else (best, reached)
    fitted_on = {
        "n_videos": len({claim.video for claim in claims}),
        "n_somewhere": len(somewhere),
        "n_nowhere": len(nowhere),
        "mean_tiou": reached,
        "false_alarms": float(np.mean([bool(best.stretches(claim.margins_W)) for claim in nowhere])),
    }
    return dataclasses.replace(best, fitted_on=fitted_on)


def _extended(rule: IntervalRule, somewhere: Sequence[_Claim]) -> tuple[IntervalRule, float]:
    """The rule with the best `extends_at` and `trim_s`, and its mean tIoU."""
    inside = np.concatenate([claim.inside(rule.n_extended or rule.n_averaged) for claim in somewhere])
    quantiles = np.quantile(inside, EXTENDS_QUANTILES) if len(inside) else []
    length_s = float(rule.windowing.split(":")[1])
    best, reached = rule, -1.0
    for extends_at in sorted({min(float(q), rule.found_at) for q in quantiles}):
        rules = [dataclasses.replace(rule, extends_at=extends_at, trim_s=trim * length_s) for trim in TRIMS]
        means = np.mean([_tious(rules, claim) for claim in somewhere], axis=0)
        if means.max() > reached:
            best, reached = rules[int(np.argmax(means))], float(means.max())
    return best, reached


def _tious(rules: Sequence[IntervalRule], claim: _Claim) -> list[float]:
    """Of rules that differ in what they take off the edges only."""
    stretches = rules[0].stretches(claim.margins_W)
    if not stretches:
        return [0.0] * len(rules)
    named = [rule.intervals(claim.windows, stretches) for rule in rules]
    return [tiou_code([(i.start_s, i.end_s) for i in intervals], claim.reference) for intervals in named]
