"""From probabilities to decisions: thresholds, abstention, risk control, prevalence."""

from ...models.decision import Criterion, criterion_of, criterion_value
from .abstention import GUARANTEED, BandTarget, fit_band, parse_band, selective_counts
from .guaranteed_bands import band_losses, guaranteed_band
from .prevalence import Proportion, corrected_rows, estimate_prior, soft_proportion
from .risk_control import MARGIN_GRID, conformal_threshold, control_risk, group_risk, margin_grid
from .thresholds import fit_points, fit_threshold, outcomes

__all__ = [
    "GUARANTEED",
    "MARGIN_GRID",
    "BandTarget",
    "Criterion",
    "Proportion",
    "band_losses",
    "conformal_threshold",
    "control_risk",
    "corrected_rows",
    "criterion_of",
    "criterion_value",
    "estimate_prior",
    "fit_band",
    "fit_points",
    "fit_threshold",
    "group_risk",
    "guaranteed_band",
    "margin_grid",
    "outcomes",
    "parse_band",
    "selective_counts",
    "soft_proportion",
]
