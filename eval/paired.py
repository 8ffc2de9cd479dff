"""Two verifiers on the same pairs: which rows both scored, McNemar's test, intervals of differences, many comparisons.

The cluster permutation test is in `permutation`, DeLong's difference of AUCs in `delong`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from ..core.errors import RowError
from .bootstrap import N_DRAWS, Interval, Method, as_observed, interval_of, leaving_one_out, resample
from .headline_draws import HEADLINE, HeadlineRows, headline_values
from .predictions import Prediction, groups_of, labels_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Matched:
    """Rows that both verifiers scored and somebody labelled, in the first one's order; and what was left out.

    Attributes:
        margins_2N, p_2N: of the first and of the second verifier, shape (2, n).
        n_only_first, n_only_second: pairs the other file does not hold.
        n_failed: pairs in both that at least one failed to score.
        n_unlabelled: pairs both scored, without a label.
    """

    pair_ids: tuple[str, ...]
    margins_2N: Floats
    p_2N: Floats
    labels: Floats
    groups: NDArray[np.str_]
    n_only_first: int
    n_only_second: int
    n_failed: int
    n_unlabelled: int


def matched(first: Sequence[Prediction], second: Sequence[Prediction]) -> Matched:
    """Match two lists of predictions by pair_id.

    Raises:
        RowError: a pair_id twice in one list, or a pair whose label or group differs between the lists.
    """
    by_id = [_by_id(rows, which) for rows, which in ((first, "first"), (second, "second"))]
    both = [(row, by_id[1][row.pair_id]) for row in first if row.pair_id in by_id[1]]
    for one, other in both:
        for what in ("label", "group"):
            if getattr(one, what) != getattr(other, what):
                raise RowError(
                    f"compare: pair {one.pair_id!r} has two {what}s, got {getattr(one, what)!r} and "
                    f"{getattr(other, what)!r}; compare predictions of the same data set"
                )
    scored = [pair for pair in both if not any(np.isnan(row.margin) for row in pair)]
    used = [pair for pair in scored if pair[0].label is not None]
    rows = [one for one, _ in used]
    return Matched(
        pair_ids=tuple(row.pair_id for row in rows),
        margins_2N=np.array([[pair[i].margin for pair in used] for i in (0, 1)], dtype=np.float64),
        p_2N=np.array([[pair[i].p_supported for pair in used] for i in (0, 1)], dtype=np.float64),
        labels=labels_of(rows),
        groups=groups_of(rows),
        n_only_first=len(first) - len(both),
        n_only_second=len(second) - len(both),
        n_failed=len(both) - len(scored),
        n_unlabelled=len(scored) - len(used),
    )


@dataclass(frozen=True)
class McNemar:
    """McNemar's test (1947) on rows that one verifier gets right and the other wrong; rows taken as independent.

    Attributes:
        p_exact: two-sided binomial; 1 where the two never differ.
        chi_square: with continuity correction, (max(|b - c| - 1, 0))^2 / (b + c); NaN where they never differ.
    """

    only_first_right: int
    only_second_right: int
    p_exact: float
    chi_square: float
    p_chi_square: float


def mcnemar(first_right: ArrayLike, second_right: ArrayLike) -> McNemar:
    """Compare decisions: was each row decided rightly by the first, by the second; booleans of shape (n,)."""
    first, second = np.asarray(first_right, dtype=bool), np.asarray(second_right, dtype=bool)
    if first.shape != second.shape or first.ndim != 1:
        raise RowError(f"mcnemar: two rows of one length are compared, got {first.shape}, {second.shape}; match them")
    b, c = int(np.sum(first & ~second)), int(np.sum(~first & second))
    if b + c == 0:
        return McNemar(0, 0, 1.0, np.nan, np.nan)
    chi_square = max(abs(b - c) - 1, 0) ** 2 / (b + c)
    exact: Any = stats.binomtest(b, b + c)
    return McNemar(b, c, float(exact.pvalue), chi_square, float(stats.chi2.sf(chi_square, 1)))


def difference_intervals(
    first: HeadlineRows,
    second: HeadlineRows,
    groups: ArrayLike,
    n_draws: int = N_DRAWS,
    level: float = 0.95,
    seed: int = 0,
    method: Method = "percentile",
) -> dict[str, Interval]:
    """Intervals of first minus second in each headline metric; both are looked at on the same resamples.

    Args:
        first, second: the same rows in the same order, see `headline_rows`.
        groups: shape (n,).
    """
    check_same_rows(first, second, groups)
    drawn = resample(groups, n_draws, seed)
    if drawn.n_groups < 2:
        none = interval_of([], np.nan, level, method, None, drawn.n_groups, drawn.largest_share)
        return dict.fromkeys(HEADLINE, none)
    looked_at = [drawn, as_observed(drawn)] + ([leaving_one_out(drawn)] if method == "bca" else [])
    pairs = [(headline_values(first, each), headline_values(second, each)) for each in looked_at]
    found = {}
    for name in HEADLINE:
        with np.errstate(invalid="ignore"):  # inf - inf, of a loss infinite in both, is undefined
            values, observed, *without = [one[name] - other[name] for one, other in pairs]
        jackknife = without[0] if without else None
        found[name] = interval_of(values, observed[0], level, method, jackknife, drawn.n_groups, drawn.largest_share)
    return found


def adjusted_p(p_values: ArrayLike) -> Floats:
    """p-values adjusted for the number of comparisons (Benjamini and Hochberg, 1995), in the same shape.

    Calling those at most alpha different keeps the expected share of false calls at alpha. NaN (a test that could not
    be made) stays NaN and is not counted.
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    adjusted, made = np.full(p_values.shape, np.nan), ~np.isnan(p_values)
    if made.any():
        adjusted[made] = stats.false_discovery_control(p_values[made], method="bh")
    return adjusted


def check_same_rows(first: HeadlineRows, second: HeadlineRows, groups: ArrayLike) -> None:
    """Refuse columns that cannot be the same pairs."""
    if not np.array_equal(first.labels, second.labels) or np.shape(groups) != first.labels.shape:
        raise RowError(
            f"compare: both verifiers are compared on the same labelled rows, got {first.labels.shape} and "
            f"{second.labels.shape} labels and {np.shape(groups)} groups; match them with `matched`"
        )


def _by_id(rows: Sequence[Prediction], which: str) -> dict[str, Prediction]:
    found: dict[str, Prediction] = {}
    for row in rows:
        if row.pair_id in found:
            raise RowError(f"compare: the {which} predictions hold a pair twice, got {row.pair_id!r}; score it once")
        found[row.pair_id] = row
    return found
