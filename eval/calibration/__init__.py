"""Choosing a calibrator by cross-fitting on held-out groups, and fitting it."""
