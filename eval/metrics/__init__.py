"""Every number about verdicts: ranking, decisions, calibration error, selective prediction, and their definitions."""
