"""From probabilities to decisions: thresholds, abstention, risk control, prevalence."""

from .abstention import fit_band, selective_counts
from .prevalence import Proportion, corrected_rows, estimate_prior, soft_proportion
from .risk_control import MARGIN_GRID, conformal_threshold, control_risk, group_risk
from .thresholds import Goal, fit_points, fit_threshold, goal_of, objective_value, outcomes

__all__ = [
    "MARGIN_GRID",
    "Goal",
    "Proportion",
    "conformal_threshold",
    "control_risk",
    "corrected_rows",
    "estimate_prior",
    "fit_band",
    "fit_points",
    "fit_threshold",
    "goal_of",
    "group_risk",
    "objective_value",
    "outcomes",
    "selective_counts",
    "soft_proportion",
]
