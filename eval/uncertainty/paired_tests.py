"""Two verifiers on the same pairs: the rows both scored, differences with intervals, and tests of them.

The cluster permutation test respects groups. If it made no difference which verifier scored, swapping the two on all
rows of a group would change nothing. So groups are swapped at random (or, where they are few, in every possible way)
and the observed difference is compared with those. McNemar's test takes rows as independent. DeLong's difference of
AUCs is in `delong`.

Shape suffixes: _D ways of swapping, _G groups, _K columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.stats import rankdata

from ...core import RowError
from ..metrics import CELLS_AT_ONCE, METRICS, DrawnRows, Floats, MetricRows, Resamples, summed_columns, values_of_sums
from ..scoring import Prediction, groups_of, labels_of
from .bootstrap import MOST_LEFT_OUT, N_DRAWS, Interval, Method, as_observed, interval_of, leaving_one_out, resample
from .calibration_intervals import error_difference, error_p_value
from .headline import headline_metrics, headline_names, headline_values


@dataclass(frozen=True)
class Matched:
    """Rows that both verifiers scored and that have a label, in the first one's order; and what was left out.

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
    first: MetricRows,
    second: MetricRows,
    groups: ArrayLike,
    n_draws: int = N_DRAWS,
    level: float = 0.95,
    seed: int = 0,
    method: Method = "bca",
) -> dict[str, Interval]:
    """Intervals of first minus second in each headline metric; both are looked at on the same resamples.

    Args:
        first, second: the same rows in the same order, see `metric_rows`.
        groups: shape (n,).
    """
    check_same_rows(first, second, groups)
    drawn = resample(groups, n_draws, seed)
    if drawn.n_groups < 2:
        none = interval_of([], np.nan, level, method, None, drawn.n_groups, drawn.largest_share)
        return dict.fromkeys(headline_names(), none)
    method = method if drawn.n_groups <= MOST_LEFT_OUT else "percentile"
    weightings = [drawn, as_observed(drawn)] + ([leaving_one_out(drawn)] if method == "bca" else [])
    pairs = [(headline_values(first, each), headline_values(second, each)) for each in weightings]
    differ = len(np.unique(drawn.group_of_row[first.decisions != second.decisions]))
    intervals = {}
    for name in (metric.name for metric in headline_metrics() if metric.gaps is None):
        # A difference of decisions rests on the groups in which any differs; where none does it is 0.
        is_of_decisions = METRICS[name].of_counts is not None and differ > 0
        n_groups = max(2, differ) if is_of_decisions else drawn.n_groups
        with np.errstate(invalid="ignore"):  # inf - inf, of a loss infinite in both, is undefined
            values, observed, *without = [one[name] - other[name] for one, other in pairs]
        jackknife = without[0] if without else None
        intervals[name] = interval_of(values, observed[0], level, method, jackknife, n_groups, drawn.largest_share)
    ways = DrawnRows(first, drawn), DrawnRows(second, drawn)
    for metric in (each for each in headline_metrics() if each.gaps is not None):
        one, other = (cast(Any, metric.gaps)(way) for way in ways)
        intervals[metric.name] = error_difference(one, other, drawn.n_groups, level, drawn.largest_share)
    return intervals


def error_p_values(
    first: MetricRows, second: MetricRows, groups: ArrayLike, n_draws: int = N_DRAWS, seed: int = 0
) -> dict[str, float]:
    """Of no difference in each calibration error of the headline: the p-values that belong to `difference_intervals`.

    The permutation test does not serve here: of two calibrated verifiers the one that is surer shows a smaller error.
    """
    drawn = resample(groups, n_draws, seed)
    ways = DrawnRows(first, drawn), DrawnRows(second, drawn)
    gaps = {metric.name: metric.gaps for metric in headline_metrics() if metric.gaps is not None}
    return {name: error_p_value(of(ways[0]), of(ways[1]), drawn.n_groups) for name, of in gaps.items()}


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


def check_same_rows(first: MetricRows, second: MetricRows, groups: ArrayLike) -> None:
    """Refuse columns that cannot be the same pairs."""
    if not np.array_equal(first.labels, second.labels) or np.shape(groups) != first.labels.shape:
        raise RowError(
            f"compare: both verifiers are compared on the same labelled rows, got {first.labels.shape} and "
            f"{second.labels.shape} labels and {np.shape(groups)} groups; match them with `matched`"
        )


def _by_id(rows: Sequence[Prediction], which: str) -> dict[str, Prediction]:
    by_id: dict[str, Prediction] = {}
    for row in rows:
        if row.pair_id in by_id:
            raise RowError(f"compare: the {which} predictions hold a pair twice, got {row.pair_id!r}; score it once")
        by_id[row.pair_id] = row
    return by_id


_ROUNDING = 1e-12  # differences this close are equal: the order of a sum is not evidence


@dataclass(frozen=True)
class PermutationTest:
    """A difference between two verifiers and how often chance alone makes one as large.

    Attributes:
        difference: first minus second; NaN where the metric is undefined.
        p_value: two-sided; (1 + as extreme) / (1 + tried) where sampled, so never 0. NaN with fewer than two groups.
        n_tried: ways of swapping looked at.
        is_exact: whether those are all there are.
    """

    difference: float
    p_value: float
    n_tried: int
    is_exact: bool
    n_groups: int


def cluster_permutation(
    first: MetricRows, second: MetricRows, groups: ArrayLike, n_tried: int = 10_000, seed: int = 0
) -> dict[str, PermutationTest]:
    """Test the differences in AUC, F1, balanced accuracy, Brier, NLL and ECE, swapping whole groups.

    AUC is tested on ranks within each verifier, so that verifiers whose margins have different scales can be swapped.
    Decisions are swapped as made, each at its verifier's own threshold.

    Args:
        first, second: the same rows in the same order, see `metric_rows`.
        groups: shape (n,).
        n_tried: ways of swapping to sample; all are tried instead where they are no more than this.
    """
    check_same_rows(first, second, groups)
    each = resample(groups, 0)
    sums_GK, other_GK = each.by_group(summed_columns(first)), each.by_group(summed_columns(second))
    auc_G = _auc_weights(first, second, each)
    observed = _differences(sums_GK, other_GK, auc_G, np.zeros((1, each.n_groups)))
    matters = np.any(sums_GK != other_GK, axis=1) | (auc_G != 0)
    is_exact = bool(matters.sum() <= np.log2(max(n_tried, 1)))
    extreme, tried = dict.fromkeys(observed, 0), 0
    for swapped_DG in _all_swaps(matters) if is_exact else _random_swaps(each.n_groups, n_tried, seed):
        tried += len(swapped_DG)
        for name, values in _differences(sums_GK, other_GK, auc_G, swapped_DG).items():
            extreme[name] += int(np.sum(np.abs(values) >= abs(observed[name][0]) - _ROUNDING))
    tests = {}
    for name, (value,) in observed.items():
        tests[name] = _tested(float(value), extreme[name], tried, is_exact, each.n_groups)
    return tests


def permuted_auc(
    pairs: Sequence[tuple[MetricRows, MetricRows]], groups: ArrayLike, n_tried: int = 10_000, seed: int = 0
) -> PermutationTest:
    """Test the mean difference in AUC of several pairs of verifiers, such as one pair for each seed of training.

    A group is swapped in all pairs at once: chance is that of the rows, the verifiers are as they are. With one pair it
    is the test that `cluster_permutation` makes of its AUC.

    Args:
        pairs: at least one, all of the same rows in the same order, see `metric_rows`.
        groups: shape (n,).
        n_tried: ways of swapping to sample; all are tried instead where they are no more than this.
    """
    for rows in (each for pair in pairs for each in pair):
        check_same_rows(pairs[0][0], rows, groups)
    each = resample(groups, 0)
    auc_G = np.mean([_auc_weights(first, second, each) for first, second in pairs], axis=0)
    observed, matters = auc_G.sum(), auc_G != 0
    is_exact = bool(matters.sum() <= np.log2(max(n_tried, 1)))
    extreme = tried = 0
    for swapped_DG in _all_swaps(matters) if is_exact else _random_swaps(each.n_groups, n_tried, seed):
        tried += len(swapped_DG)
        extreme += int(np.sum(np.abs(observed - 2 * swapped_DG @ auc_G) >= abs(observed) - _ROUNDING))
    return _tested(float(observed), extreme, tried, is_exact, each.n_groups)


def _tested(difference: float, extreme: int, tried: int, is_exact: bool, n_groups: int) -> PermutationTest:
    p_value = extreme / tried if is_exact else (1 + extreme) / (1 + tried)
    can_be_made = np.isfinite(difference) and n_groups > 1
    return PermutationTest(difference, p_value if can_be_made else np.nan, tried, is_exact, n_groups)


def _differences(sums_GK: Floats, other_GK: Floats, auc_G: Floats, swapped_DG: Floats) -> dict[str, Floats]:
    """First minus second after each way of swapping, shape (ways,)."""
    moved_DK = swapped_DG @ (other_GK - sums_GK)
    one, other = values_of_sums(sums_GK.sum(axis=0) + moved_DK), values_of_sums(other_GK.sum(axis=0) - moved_DK)
    differences = {"auc": auc_G.sum() - 2 * swapped_DG @ auc_G}
    with np.errstate(invalid="ignore"):
        return differences | {name: one[name] - other[name] for name in one}


def _auc_weights(first: MetricRows, second: MetricRows, each: Resamples) -> Floats:
    """What each group adds to the difference of AUCs, and takes from it when swapped, shape (groups,).

    Let v be +1 for a group left alone, -1 for one swapped. Both AUCs are quadratic in v with the same quadratic part,
    so it cancels in their difference: what is left is linear. A row adds half its wins among the scores of both
    verifiers together (taken from it, for the second verifier's row), divided by the number of pairs.
    """
    y = first.labels
    pairs = y.sum() * (1 - y).sum()
    if not pairs:
        return np.full(each.n_groups, np.nan)
    scores = np.concatenate([rankdata(rows.margins) for rows in (first, second)])
    is_positive = np.concatenate([y, y]) == 1
    wins, among_all = np.empty(len(scores)), rankdata(scores)
    wins[is_positive] = among_all[is_positive] - rankdata(scores[is_positive])
    wins[~is_positive] = is_positive.sum() - (among_all[~is_positive] - rankdata(scores[~is_positive]))
    of_first, of_second = wins.reshape(2, -1)
    return each.by_group(of_first - of_second) / (2 * pairs)


def _all_swaps(matters: NDArray[np.bool_]) -> Iterator[Floats]:
    """Every way of swapping the groups that matter, some at a time, shape (ways, groups)."""
    which, n_ways = np.flatnonzero(matters), 2 ** int(matters.sum())
    at_once = max(1, CELLS_AT_ONCE // max(1, len(matters)))
    for start in range(0, n_ways, at_once):
        way = np.arange(start, min(start + at_once, n_ways))[:, None]
        swapped = np.zeros((len(way), len(matters)))
        swapped[:, which] = way >> np.arange(len(which)) & 1
        yield swapped


def _random_swaps(n_groups: int, n_tried: int, seed: int) -> Iterator[Floats]:
    rng, at_once = np.random.default_rng(seed), max(1, CELLS_AT_ONCE // max(1, n_groups))
    for start in range(0, n_tried, at_once):
        yield rng.integers(2, size=(min(at_once, n_tried - start), n_groups)).astype(np.float64)
