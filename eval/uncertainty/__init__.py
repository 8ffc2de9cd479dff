"""How sure a number is: resampling, intervals, paired and rank tests."""

from .auc_covariance import delong, delong_difference
from .bootstrap import (
    FEWEST_GROUPS,
    N_DRAWS,
    Interval,
    as_observed,
    clustered_interval,
    interval_of,
    resample,
    share_interval,
    trust,
)
from .calibration_intervals import error_difference, error_interval
from .headline import headline_intervals, headline_names, headline_values, intervals_of
from .paired_tests import (
    PermutationTest,
    adjusted_p,
    cluster_permutation,
    difference_intervals,
    error_p_values,
    matched,
    mcnemar,
    permuted_auc,
)
from .rank_tests import Friedman, SignedRank, friedman, group_means, signed_rank

__all__ = [
    "FEWEST_GROUPS",
    "N_DRAWS",
    "Friedman",
    "Interval",
    "PermutationTest",
    "SignedRank",
    "adjusted_p",
    "as_observed",
    "cluster_permutation",
    "clustered_interval",
    "delong",
    "delong_difference",
    "difference_intervals",
    "error_difference",
    "error_interval",
    "error_p_values",
    "friedman",
    "group_means",
    "headline_intervals",
    "headline_names",
    "headline_values",
    "interval_of",
    "intervals_of",
    "matched",
    "mcnemar",
    "permuted_auc",
    "resample",
    "share_interval",
    "signed_rank",
    "trust",
]
