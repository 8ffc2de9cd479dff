"""Accuracy at a coverage in each of many resamples of whole groups, exactly.

Coverage c keeps the most confident rows: the fewest that hold at least c of the weight, a tie in confidence kept or
left as one. Where that cut falls differs by draw. Rows are put into blocks by descending confidence; one matrix product
finds the block the cut falls into, and only that block's rows are then gone through.

Shape suffixes: _D draws, _G groups, _B blocks, _R rows in descending confidence.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.errors import RowError
from .bootstrap import Resamples
from .checks import Floats, divide

_N_BLOCKS = 64
_ROUNDING = 1e-9  # of a row: 0.7 x 10 rows are 7, whatever floating point says
_CELLS_AT_ONCE = 2_000_000


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
    at_once, parts = max(1, _CELLS_AT_ONCE // len(rows.group)), []
    for start in range(0, len(draws), at_once):
        some = slice(start, start + at_once)
        times = drawn.times_DG[draws[some]].astype(np.float64)[:, rows.group]
        kept_here = kept[some, None] + np.cumsum(times, axis=1)[:, rows.ends_run]
        right_here = right[some, None] + np.cumsum(times * rows.correct, axis=1)[:, rows.ends_run]
        cut = np.argmax(kept_here >= needed[some, None], axis=1)[:, None]
        n_kept, n_right = np.take_along_axis(kept_here, cut, 1)[:, 0], np.take_along_axis(right_here, cut, 1)[:, 0]
        parts.append(divide(n_right, n_kept))
    return np.concatenate(parts)
