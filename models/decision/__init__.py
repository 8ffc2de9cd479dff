"""From a margin to a probability to a label: calibrations, operating points, verdicts. NumPy and SciPy only."""
