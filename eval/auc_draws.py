"""ROC-AUC in each of many resamples of whole groups, exactly.

The number of (positive, negative) pairs ranked rightly is a quadratic form of how often each group was taken: sum over
groups g, h of times[g] U[g, h] times[h], where U[g, h] counts the positives of g above negatives of h, ties half. U is
found once; then each draw costs groups squared, however many rows there are.

Shape suffixes: _D draws, _G groups, _B blocks of rows in ascending order of score, _R rows in that order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .bootstrap import Resamples
from .checks import Floats, divide
from .metrics import roc_auc

_FORM_IS_FASTER = 200  # per draw, groups^2 multiplications cost what this many times fewer sorted rows do
_CELLS_AT_ONCE = 2_000_000
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
    at_once = max(1, _CELLS_AT_ONCE // max(1, drawn.n_groups))
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
    at_once = max(1, _CELLS_AT_ONCE // max(1, len(scores)))
    parts = [np.zeros(0)]
    for start in range(0, drawn.n_draws, at_once):
        times = drawn.times_DG[start : start + at_once].astype(np.float64)
        parts.append(roc_auc(scores, labels, times[:, group_R]))
    return np.concatenate(parts)
