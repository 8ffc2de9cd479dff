"""Predictions in; metrics, fitted calibrations and thresholds, the report and the exported verifier out."""
