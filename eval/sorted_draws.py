"""Average precision and the area under risk-coverage in each of many resamples of whole groups, exactly.

Neither is a function of a few sums over rows: each draw goes through the rows in order of score. Many draws go through
a few hundred rows at a time, so that what is worked on stays in the processor's cache.

Shape suffixes: _D draws, _G groups, _T ties (runs of equal scores) of one block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .bootstrap import Resamples
from .checks import Floats, divide

_DRAWS_AT_ONCE, _ROWS_AT_ONCE = 64, 512


class _Block(NamedTuple):
    """Some ties in descending order: rows and hits in each, and down to and with each; shape (draws, ties)."""

    rows_DT: Floats
    hits_DT: Floats
    all_rows_DT: Floats
    all_hits_DT: Floats


def ap_draws(scores: Floats, labels: Floats, drawn: Resamples) -> Floats:
    """`metrics.average_precision` in each draw, shape (draws,); NaN in draws with one class.

    Args:
        scores: shape (n,), no NaN. labels: 0 or 1, shape (n,).
    """
    found = [np.zeros(0)]
    for times_DG, draws in _some_draws(drawn):
        area_D, last = np.zeros(len(draws)), None
        for last in _tie_blocks(scores, labels, drawn, times_DG):
            precision = last.all_hits_DT / np.maximum(last.all_rows_DT, 1)  # before the first row there is no hit
            area_D += np.einsum("dt,dt->d", last.hits_DT, precision)
        if last is None:
            return np.full(drawn.n_draws, np.nan)
        hits_D = last.all_hits_DT[:, -1]
        found.append(divide(np.where(last.all_rows_DT[:, -1] > hits_D, area_D, np.nan), hits_D))
    return np.concatenate(found)


def aurc_draws(confidence: Floats, correct: Floats, drawn: Resamples) -> Floats:
    """`selective.aurc` (rule "mean") in each draw, shape (draws,); NaN in draws without rows.

    With K rows kept of which E are wrong, a tie of m more of which w are wrong has, as its k-th risk averaged over
    orders, w/m + (E - K w/m) / (K + k): its sum over k needs only a difference of harmonic numbers.

    Args:
        confidence: shape (n,), no NaN. correct: 0 or 1, shape (n,).
    """
    found, harmonic = [np.zeros(0)], harmonic_numbers(drawn.sums(np.ones(len(confidence))))
    for times_DG, draws in _some_draws(drawn):
        risk_D, last = np.zeros(len(draws)), None
        for last in _tie_blocks(confidence, correct, drawn, times_DG):
            wrong = last.rows_DT - last.hits_DT
            share = wrong / np.maximum(last.rows_DT, 1)
            kept = last.all_rows_DT - last.rows_DT
            extra = (last.all_rows_DT - last.all_hits_DT - wrong) - kept * share
            inverses = harmonic[last.all_rows_DT.astype(np.int64)] - harmonic[kept.astype(np.int64)]
            risk_D += np.einsum("dt,dt->d", extra, inverses)
        if last is None:
            return np.full(drawn.n_draws, np.nan)
        rows_D = last.all_rows_DT[:, -1]
        found.append(divide(rows_D - last.all_hits_DT[:, -1] + risk_D, rows_D))
    return np.concatenate(found)


def harmonic_numbers(up_to: Floats) -> Floats:
    """Harmonic numbers H_0 .. H_max(up_to)."""
    return np.concatenate([[0.0], np.cumsum(1 / np.arange(1, int(np.max(up_to, initial=0)) + 1))])


def _some_draws(drawn: Resamples) -> Iterator[tuple[Floats, range]]:
    """How often each group is taken, some draws at a time, and which draws these are."""
    for start in range(0, drawn.n_draws, _DRAWS_AT_ONCE):
        draws = range(start, min(start + _DRAWS_AT_ONCE, drawn.n_draws))
        yield drawn.times_DG[draws.start : draws.stop].astype(np.float64), draws


def _tie_blocks(scores: Floats, hits: Floats, drawn: Resamples, times_DG: Floats) -> Iterator[_Block]:
    """The rows in descending order of score, a block of whole ties at a time; nothing without rows."""
    if not len(scores):
        return
    order = np.argsort(-scores, kind="stable")
    descending, hit, group = scores[order], hits[order], drawn.group_of_row[order]
    tie_ends = np.append(np.flatnonzero(descending[1:] != descending[:-1]), len(scores) - 1) + 1
    slot = tie_ends // _ROWS_AT_ONCE
    is_last = np.append(slot[1:] != slot[:-1], True)
    rows_D, hits_D = np.zeros((2, len(times_DG), 1))
    start = 0
    for ties in np.split(tie_ends, np.flatnonzero(is_last)[:-1] + 1):
        rows_DT = np.take(times_DG, group[start : ties[-1]], axis=1)
        hits_DT = rows_DT * hit[start : ties[-1]]
        if len(ties) < ties[-1] - start:
            starts = np.append(start, ties[:-1]) - start
            rows_DT, hits_DT = (np.add.reduceat(each, starts, axis=1) for each in (rows_DT, hits_DT))
        all_rows_DT, all_hits_DT = np.cumsum(rows_DT, axis=1) + rows_D, np.cumsum(hits_DT, axis=1) + hits_D
        yield _Block(rows_DT, hits_DT, all_rows_DT, all_hits_DT)
        rows_D, hits_D, start = all_rows_DT[:, -1:], all_hits_DT[:, -1:], ties[-1]
