"""Teachers: calibrated predictions to mine with and distil from, alone or averaged."""
