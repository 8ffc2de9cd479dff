"""Predictions: their file, and scoring a data set with one process or several."""
