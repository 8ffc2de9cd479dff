"""Cascades of verifiers: fitted, costed, reported."""
