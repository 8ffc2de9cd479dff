"""The papers' scores: MuRGAt, DualFact, OMD-Bench, CG-Bench."""
