"""Choosing a calibrator by cross-fitting on held-out groups, and fitting it."""

from .cross_fitted import CrossFitted, fit_folds, read_measuring, write_folds_fitted
from .estimator import CalibrationEstimator
from .evidence_sets import fit_sets
from .fit import PerGroup, fit_calibration, fit_decision
from .fitted_rows import FITTED_ROWS_FILE, overlaps, read_fitted_rows, write_fitted_rows
from .per_group import MIN_ROWS
from .selection import choose_method, cross_fitted_logits, grouped_folds

__all__ = [
    "FITTED_ROWS_FILE",
    "MIN_ROWS",
    "CalibrationEstimator",
    "CrossFitted",
    "PerGroup",
    "choose_method",
    "cross_fitted_logits",
    "fit_calibration",
    "fit_decision",
    "fit_folds",
    "fit_sets",
    "grouped_folds",
    "overlaps",
    "read_fitted_rows",
    "read_measuring",
    "write_fitted_rows",
    "write_folds_fitted",
]
