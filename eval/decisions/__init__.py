"""From probabilities to decisions: thresholds, abstention, risk control, prevalence."""
