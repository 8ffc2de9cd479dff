"""How sure a number is: resampling, intervals, paired and rank tests."""
