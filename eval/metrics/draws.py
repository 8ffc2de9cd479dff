"""Metrics in each of many resamples of whole groups, exactly: each draw's value is the metric on the rows it took.

- ROC-AUC: the number of (positive, negative) pairs ranked rightly is a quadratic form of how often each group was
  taken, the sum over groups g, h of times[g] U[g, h] times[h], where U[g, h] counts the positives of g above negatives
  of h, ties half. U is computed once; then each draw costs groups squared, however many rows there are.
- Accuracy at a coverage: coverage c keeps the most confident rows, the fewest that hold at least c of the weight, a tie
  in confidence kept or left as one. Where that cut falls differs by draw. Rows are put into blocks by descending
  confidence; one matrix product gives the block the cut falls into, and only that block's rows are then gone through.
- Average precision and AURC: neither is a function of a few sums over rows, so each draw goes through the rows in order
  of score; many draws go through a few hundred rows at a time, which stay in the processor's cache.
- Any other metric that takes weights: `weighted_draws`, one pass over the rows per draw.

Shape suffixes: _D draws, _G groups, _B blocks of rows, _R rows in order of score, _T ties (runs of equal scores).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core import RowError
from ...models.decision import divide
from .base import CELLS_AT_ONCE, BinGaps, Floats, Resamples
from .calibration_error import N_BINS, bin_index
from .ranking import roc_auc
from .selective import harmonic_numbers

WeightedMetric = Callable[[ArrayLike, ArrayLike, Floats], Floats]
_WEIGHTS_AT_ONCE = 1_000_000  # weights held at once: draws x rows; bounds memory at tens of megabytes
_FORM_IS_FASTER = 200  # per draw, groups^2 multiplications cost what this many times fewer sorted rows do
_EXACT_IN_FLOAT32 = 2**24


def auc_draws(scores: Floats, labels: Floats, drawn: Resamples) -> Floats:
    """ROC-AUC of each draw, shape (draws,); NaN in draws with one class.

    Args:
        scores: shape (n,), checked already.
        labels: 0 or 1, shape (n,).
    """
    if drawn.n_groups**2 > _FORM_IS_FASTER * len(scores):
        return _row_by_row(scores, labels, drawn)
    positives_D, negatives_D = drawn.sums(np.stack([labels, 1 - labels], axis=1)).T
    twice_wins = twice_wins_by_group(scores, labels, drawn.group_of_row, drawn.n_groups)
    # Whole numbers: below 2^24 float32 holds each of them exactly, at half the time.
    largest = 2 * np.max(drawn.by_group(1 - labels), initial=0) * np.max(positives_D, initial=0)
    kind = np.float32 if largest < _EXACT_IN_FLOAT32 else np.float64
    twice_wins = twice_wins.astype(kind)
    wins_D = np.empty(drawn.n_draws)
    at_once = max(1, CELLS_AT_ONCE // max(1, drawn.n_groups))
    for start in range(0, drawn.n_draws, at_once):
        times = drawn.times_DG[start : start + at_once].astype(kind, copy=False)
        against = (times @ twice_wins).astype(np.float64)
        wins_D[start : start + at_once] = np.einsum("dg,dg->d", against, times) / 2
    pairs_D = positives_D * negatives_D
    return divide(wins_D, pairs_D)


def twice_wins_by_group(scores: Floats, labels: Floats, group_of_row: NDArray[np.int64], n_groups: int) -> Floats:
    """Twice U: 2 for each positive of group g above a negative of group h, 1 for a tie, shape (groups, groups).

    Rows are cut, in order of score and never inside a tie, into about a thousand blocks. Between blocks one product of
    counts does; inside a block the pairs are gone through, but for a block that is one long tie.
    """
    order = np.argsort(scores, kind="stable")
    score_R, is_positive_R, group_R = scores[order], labels[order] == 1, group_of_row[order]
    block_R, is_tie_B = _auc_blocks(score_R)
    positives_BG = _counts(block_R[is_positive_R], group_R[is_positive_R], len(is_tie_B), n_groups)
    negatives_BG = _counts(block_R[~is_positive_R], group_R[~is_positive_R], len(is_tie_B), n_groups)
    # Every negative of an earlier block is below; one of the same block is decided inside it, a tie counting half.
    below_BG = np.cumsum(negatives_BG, axis=0) - negatives_BG
    twice = positives_BG.T @ (2 * below_BG + is_tie_B[:, None] * negatives_BG)
    flat, starts = twice.reshape(-1), np.searchsorted(block_R, np.arange(len(is_tie_B) + 1))
    for block in np.flatnonzero(~is_tie_B):
        rows = slice(starts[block], starts[block + 1])
        score, group, positive = score_R[rows], group_R[rows], is_positive_R[rows]
        above, below = score[positive][:, None], score[~positive]
        cell = group[positive][:, None] * n_groups + group[~positive]
        np.add.at(flat, cell.ravel(), (1.0 * (above > below) + (above >= below)).ravel())
    return twice


def _auc_blocks(score_R: Floats) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The block of each row, and which blocks are one tie. Others hold fewer than twice the aimed number of rows."""
    n = len(score_R)
    size = max(64, n // 1000)
    starts_run = np.append(True, score_R[1:] != score_R[:-1])[:n]  # not by subtraction: infinities tie too
    first_of_run = np.flatnonzero(starts_run)
    is_long = np.diff(np.append(first_of_run, n)) >= size
    slot = first_of_run // size
    opens = np.append(True, (np.diff(slot) != 0) | is_long[1:] | is_long[:-1])[: len(first_of_run)]
    block_of_run = np.cumsum(opens) - 1
    is_tie_B = np.zeros(int(opens.sum()), dtype=bool)
    is_tie_B[block_of_run[is_long]] = True
    return block_of_run[np.cumsum(starts_run) - 1], is_tie_B


def _counts(block: NDArray[np.int64], group: NDArray[np.int64], n_blocks: int, n_groups: int) -> Floats:
    counts = np.bincount(block * n_groups + group, minlength=n_blocks * n_groups)
    return counts.reshape(n_blocks, n_groups).astype(np.float64)


def _row_by_row(scores: Floats, labels: Floats, drawn: Resamples) -> Floats:
    """The same where groups are so many (often: every row its own) that going through the rows is faster."""
    order = np.argsort(scores, kind="stable")[::-1]
    scores, labels, group_R = scores[order], labels[order], drawn.group_of_row[order]
    at_once = max(1, CELLS_AT_ONCE // max(1, len(scores)))
    parts = [np.zeros(0)]
    for start in range(0, drawn.n_draws, at_once):
        times = drawn.times_DG[start : start + at_once].astype(np.float64)
        parts.append(roc_auc(scores, labels, times[:, group_R]))
    return np.concatenate(parts)


_N_BLOCKS = 64
_ROUNDING = 1e-9  # of a row: 0.7 x 10 rows are 7, whatever floating point says


class _Rows(NamedTuple):
    """Rows of one block: group, whether right, whether the last of a tie; each of shape (rows,)."""

    group: NDArray[np.int64]
    correct: Floats
    ends_run: NDArray[np.bool_]


def accuracy_at_coverage_draws(confidence: Floats, correct: Floats, drawn: Resamples, coverage: float) -> Floats:
    """Accuracy among the rows kept at `coverage` in each draw, shape (draws,); NaN in draws without rows.

    Args:
        confidence: shape (n,), no NaN; larger is kept first.
        correct: 1 where the decision was right, 0 where wrong, shape (n,).
        coverage: in (0, 1].
    """
    if not 0 < coverage <= 1:
        raise RowError(f"accuracy at coverage: a coverage is within (0, 1], got {coverage}; give one that is")
    if not len(confidence):
        return np.full(drawn.n_draws, np.nan)
    order = np.argsort(-confidence, kind="stable")
    block_R, ends_run_R = _coverage_blocks(confidence[order])
    group_R, correct_R, n_blocks = drawn.group_of_row[order], correct[order], int(block_R[-1]) + 1
    cell_R, n_cells = group_R * n_blocks + block_R, drawn.n_groups * n_blocks
    per_group = [np.bincount(cell_R, of, minlength=n_cells).reshape(-1, n_blocks) for of in (None, correct_R)]
    kept_DB, right_DB = (np.cumsum(drawn.over_groups(counts.astype(np.float64)), axis=1) for counts in per_group)
    needed_D = np.ceil(coverage * kept_DB[:, -1] - _ROUNDING)
    cut_D = np.argmax(kept_DB >= needed_D[:, None], axis=1)  # the first block at whose end enough is kept
    accuracy_D = np.full(drawn.n_draws, np.nan)
    for block in np.unique(cut_D):
        rows, draws = slice(*np.searchsorted(block_R, [block, block + 1])), np.flatnonzero(cut_D == block)
        in_block = _Rows(group_R[rows], correct_R[rows], ends_run_R[rows])
        if block:
            kept, right = kept_DB[draws, block - 1], right_DB[draws, block - 1]
        else:
            kept, right = np.zeros((2, len(draws)))
        accuracy_D[draws] = _cut_inside(in_block, drawn, draws, kept, right, needed_D[draws])
    return accuracy_D


def _coverage_blocks(confidence_R: Floats) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The block of each row, never cutting a tie, and whether the row is the last of its tie."""
    n = len(confidence_R)
    starts_run = np.append(True, confidence_R[1:] != confidence_R[:-1])
    run_R = np.cumsum(starts_run) - 1
    slot_of_run = np.flatnonzero(starts_run) * _N_BLOCKS // n
    block_of_run = np.cumsum(np.append(0, np.diff(slot_of_run) != 0))
    return block_of_run[run_R], np.append(starts_run[1:], True)


def _cut_inside(
    rows: _Rows, drawn: Resamples, draws: NDArray[np.int64], kept: Floats, right: Floats, needed: Floats
) -> Floats:
    """Accuracy at the cut in each of `draws`, all cut inside one block, given what is kept before it."""
    at_once, parts = max(1, CELLS_AT_ONCE // len(rows.group)), []
    for start in range(0, len(draws), at_once):
        some = slice(start, start + at_once)
        times = drawn.times_DG[draws[some]].astype(np.float64)[:, rows.group]
        kept_here = kept[some, None] + np.cumsum(times, axis=1)[:, rows.ends_run]
        right_here = right[some, None] + np.cumsum(times * rows.correct, axis=1)[:, rows.ends_run]
        cut = np.argmax(kept_here >= needed[some, None], axis=1)[:, None]
        n_kept, n_right = np.take_along_axis(kept_here, cut, 1)[:, 0], np.take_along_axis(right_here, cut, 1)[:, 0]
        parts.append(divide(n_right, n_kept))
    return np.concatenate(parts)


def weighted_draws(metric: WeightedMetric, scores: ArrayLike, labels: ArrayLike, drawn: Resamples) -> Floats:
    """Any metric that takes weights in each draw, shape (draws,): the slow way, through the rows."""
    at_once = max(1, _WEIGHTS_AT_ONCE // max(1, len(drawn.group_of_row)))
    parts = []
    for start in range(0, drawn.n_draws, at_once):
        times = drawn.times_DG[start : start + at_once].astype(np.float64)
        parts.append(metric(scores, labels, times[:, drawn.group_of_row]))
    return np.concatenate(parts)


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
    values_D = [np.zeros(0)]
    for times_DG, draws in _some_draws(drawn):
        area_D, last = np.zeros(len(draws)), None
        for last in _tie_blocks(scores, labels, drawn, times_DG):
            precision = last.all_hits_DT / np.maximum(last.all_rows_DT, 1)  # before the first row there is no hit
            area_D += np.einsum("dt,dt->d", last.hits_DT, precision)
        if last is None:
            return np.full(drawn.n_draws, np.nan)
        hits_D = last.all_hits_DT[:, -1]
        values_D.append(divide(np.where(last.all_rows_DT[:, -1] > hits_D, area_D, np.nan), hits_D))
    return np.concatenate(values_D)


def aurc_draws(confidence: Floats, correct: Floats, drawn: Resamples) -> Floats:
    """`selective.aurc` (rule "mean") in each draw, shape (draws,); NaN in draws without rows.

    With K rows kept of which E are wrong, a tie of m more of which w are wrong has, as its k-th risk averaged over
    orders, w/m + (E - K w/m) / (K + k): its sum over k needs only a difference of harmonic numbers.

    Args:
        confidence: shape (n,), no NaN. correct: 0 or 1, shape (n,).
    """
    values_D, harmonic = [np.zeros(0)], harmonic_numbers(drawn.sums(np.ones(len(confidence))))
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
        values_D.append(divide(rows_D - last.all_hits_DT[:, -1] + risk_D, rows_D))
    return np.concatenate(values_D)


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


def best_aurc(n_D: Floats, n_right_D: Floats) -> Floats:
    """AURC (rule "mean") of a ranking with every error last."""
    harmonic = harmonic_numbers(n_D)
    tail = harmonic[n_D.astype(np.int64)] - harmonic[n_right_D.astype(np.int64)]
    return divide(n_D - n_right_D - n_right_D * tail, n_D)


def augrc_draws(confidence: Floats, correct: Floats, n_D: Floats, n_right_D: Floats, drawn: Resamples) -> Floats:
    """AUGRC by its identity with the AUC of confidence against being right (Traub et al., 2024).

    An error adds 1 for every right row it is ranked above, and half for every error: (1 - AUC) r e + e^2 / 2 with r and
    e the shares of right rows and of errors.
    """
    right_share = divide(n_right_D, n_D)
    wrong_share = 1 - right_share
    mixed = right_share * wrong_share
    above = np.where(mixed > 0, (1 - auc_draws(confidence, correct, drawn)) * mixed, 0)
    return above + wrong_share**2 / 2


def bin_gaps(p: Floats, hits: Floats, drawn: Resamples) -> BinGaps:
    """The gaps of p against hits (0 or 1), shape (n,) each; draws without rows are left out."""
    gaps, index = np.zeros((len(p), N_BINS)), bin_index(p)
    gaps[np.arange(len(p)), index] = hits - p
    n_D = drawn.sums(np.ones(len(p)))
    drawn_DK = drawn.sums(gaps)[n_D > 0] / n_D[n_D > 0, None]
    share_K = np.bincount(index, minlength=N_BINS) / max(len(p), 1)
    return BinGaps(gaps.sum(axis=0) / max(len(p), 1), drawn_DK, share_K)


def ece_draws(p: Floats, hits: Floats, drawn: Resamples) -> Floats:
    """Equal-width ECE of p against hits: n_b |mean of hits - mean of p| is |sum - sum| over a bin."""
    gaps = np.zeros((len(p), N_BINS))
    gaps[np.arange(len(p)), bin_index(p)] = hits - p
    return divide(np.abs(drawn.sums(gaps)).sum(axis=1), drawn.sums(np.ones(len(p))))
